//! The light client through its public API: among honest and lying nodes, killed and restarted,
//! with wallets that come and go; what is expected follows from the blocks alone.
//!
//! The [`simulation`] runs random schedules, each from a seed: 10,000 unless
//! `CHAINSIEVE_SIMULATION=COUNT` or `CHAINSIEVE_SIMULATION=COUNT:FIRST` says how many to run and
//! the seed of the first. A failure names its seed; `CHAINSIEVE_SIMULATION=1:SEED` runs it alone.

#![expect(clippy::unwrap_used, reason = "a test fails where there is nothing")]

mod mined;
mod node;
mod peers;
mod restarts;
mod simulation;
mod storage;
mod truth;
mod watches;
mod world;
