//! Syncs of compact filters with peers of every kind: honest, slow, gone, lying, colluding.
//!
//! Each run is a simulation from a seed: a tree of blocks whose filters `bitcoin`'s own writer
//! made, peers that serve true or false ones, and a wallet on top. With one honest peer the
//! wallet finds exactly its transactions.

mod lies;
mod peers;
mod runs;
mod scenarios;
mod simulation;
mod wallet;

/// What the fuzz target asserts, of steps by chance.
#[test]
fn any_steps_at_all() {
    let mut rng = testkit::Rng::new(0x157);
    let (mut filters, mut blocks) = (0, 0);
    for _ in 0..400 {
        let length = 3 * rng.below(300) + 1;
        let (some, others) = testkit::btc::fuzzed_sync::sync_keeps_its_word(&rng.bytes(length));
        filters += some;
        blocks += others;
    }
    assert!(filters > 1_000 && blocks > 200, "{filters} filters, {blocks} blocks");
}
