//! The light client through its public API: among honest and lying nodes, killed and restarted,
//! with wallets that come and go; what is expected follows from the blocks alone.
//!
//! The [`simulation`] runs random schedules, each from a seed: 10,000 unless
//! `CHAINSIEVE_SIMULATION=COUNT` or `CHAINSIEVE_SIMULATION=COUNT:FIRST` says how many to run and
//! the seed of the first. A failure names its seed; `CHAINSIEVE_SIMULATION=1:SEED` runs it alone.

#![expect(clippy::unwrap_used, reason = "a test fails where there is nothing")]

#[path = "light_client/mined.rs"]
mod mined;
#[path = "light_client/node.rs"]
mod node;
#[path = "light_client/peers.rs"]
mod peers;
#[path = "light_client/restarts.rs"]
mod restarts;
#[path = "support/rng.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod rng;
#[path = "light_client/simulation.rs"]
mod simulation;
#[path = "light_client/storage.rs"]
mod storage;
#[path = "light_client/truth.rs"]
mod truth;
#[path = "light_client/watches.rs"]
mod watches;
#[path = "light_client/world.rs"]
mod world;
