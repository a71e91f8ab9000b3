//! Syncs of compact filters with peers of every kind: honest, slow, gone, lying, colluding.
//!
//! Each run is a simulation from a seed: a tree of blocks whose filters `bitcoin`'s own writer
//! made, peers that serve true or false ones, and a wallet on top. With one honest peer the
//! wallet finds exactly its transactions.

#[path = "support/fuzzed_protocol.rs"]
mod fuzzed_protocol;
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

/// What the fuzz target asserts, of steps by chance.
#[test]
fn any_steps_at_all() {
    let mut rng = rng::Rng::new(0x157);
    let (mut filters, mut blocks) = (0, 0);
    for _ in 0..400 {
        let length = 3 * rng.below(300) + 1;
        let (some, others) = fuzzed_protocol::sync_keeps_its_word(&rng.bytes(length));
        filters += some;
        blocks += others;
    }
    assert!(filters > 1_000 && blocks > 200, "{filters} filters, {blocks} blocks");
}
