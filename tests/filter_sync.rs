//! Syncs of compact filters with peers of every kind: honest, slow, gone, lying, colluding.
//!
//! Each run is a simulation from a seed: a tree of blocks whose filters `bitcoin`'s own writer
//! made, peers that serve true or false ones, and a wallet on top. With one honest peer the
//! wallet finds exactly its transactions.

#[path = "filter_sync/lies.rs"]
mod lies;
#[path = "filter_sync/peers.rs"]
mod peers;
#[path = "support/rng.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod rng;
#[path = "filter_sync/runs.rs"]
mod runs;
#[path = "filter_sync/scenarios.rs"]
mod scenarios;
#[path = "filter_sync/scripts.rs"]
mod scripts;
#[path = "filter_sync/simulation.rs"]
mod simulation;
#[path = "filter_sync/wallet.rs"]
mod wallet;
#[path = "filter_sync/world.rs"]
mod world;
