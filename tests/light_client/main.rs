//! The light client through its public API, among honest and lying nodes. The client is killed and
//! restarted, and its wallets are added and removed. The expected results follow from the blocks
//! alone.
//!
//! The [`simulation`] runs 500 random schedules, each from a seed, unless
//! `CHAINSIEVE_SIMULATION=COUNT` or `CHAINSIEVE_SIMULATION=COUNT:FIRST` gives their number and the
//! first seed. A failure names its seed, and `CHAINSIEVE_SIMULATION=1:SEED` runs this schedule
//! alone.

#![expect(clippy::unwrap_used, reason = "a test fails where there is nothing")]

mod additions;
mod caught_up;
mod mined;
mod node;
mod peers;
mod restarts;
mod simulation;
mod storage;
mod truth;
mod watches;
mod world;
