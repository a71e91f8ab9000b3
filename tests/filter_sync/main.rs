//! Syncs of compact filters with peers of every kind: honest, slow, disconnecting, lying and
//! colluding.
//!
//! Each run is a simulation from a seed. A run has a tree of blocks with filters built by
//! `bitcoin`'s own writer, peers that serve true or false filters, and a wallet. If one peer is
//! honest, the wallet finds exactly its transactions.

mod lies;
mod peers;
mod runs;
mod scenarios;
mod simulation;
mod wallet;

/// Checks the assertions of the fuzz target on random steps.
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
