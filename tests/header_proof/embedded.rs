//! The embedded lists of mainnet: their published roots and entries.

use alloy_primitives::b256;
use chainsieve::eth::anchor::header_proof::History;

use crate::corpus::{Anchors, nodes};
use crate::slow_ssz::{self, merkleize, mix_in_length};

/// EIP-7643 publishes the root of the accumulator, and the root of each epoch.
#[test]
fn the_epochs_have_the_published_root() {
    let history = History::mainnet();
    let published = b256!("ec8e040fd6c557b41ca8ddd38f7e9d58a9281918dc92bdb72342a38fb085e701");
    assert_eq!(history.accumulator_root(), published);
    let epochs: Vec<_> =
        (0..1897).map(|epoch| history.epoch_root(epoch).expect("embedded").0).collect();
    assert_eq!(history.epoch_root(1897), None);
    assert_eq!(history.epoch_root(u64::MAX), None);
    assert_eq!(history.merge_block(), 15_537_394);
    let list = mix_in_length(merkleize(&epochs, 11), epochs.len());
    let current = mix_in_length(merkleize(&[], 13), 0);
    assert_eq!(slow_ssz::hash(&[list, current].concat()), published.0);
    // From the test cases of EIP-7643.
    for (epoch, root) in [
        (0, b256!("5ec1ffb8c3b146f42606c74ced973dc16ec5a107c0345858c343fc94780b4218")),
        (1, b256!("a5364e9a9bc513c4601f0d62e6b46dbdedf3200bbfae54d6350f46f2c7a01938")),
        (122, b256!("cddbda3fd6f764602c06803ff083dbfc73f2bb396df17a31e5457329b9a0f38d")),
        (187, b256!("ce8b009f996254d6df379dd2b3a5aba9dd1d3e0b64de28e5838b43f411f42e4b")),
    ] {
        assert_eq!(history.epoch_root(epoch), Some(root), "{epoch}");
    }
}

/// The root that trin and erigon test their list against, and that state proofs of mainnet have.
#[test]
fn the_historical_roots_have_the_published_root() {
    let published = b256!("4df6b89755125d4f6c5575039a04e22301a5a49ee893c1d27e559e3eeab73da7");
    assert_eq!(History::mainnet().historical_roots_root(), published);
}

#[test]
fn the_lists_are_those_of_the_corpus() {
    let Some(corpus) = Anchors::open() else { return };
    let history = History::mainnet();
    let accumulator = corpus.read("history/accumulators/historical_hashes_accumulator.ssz");
    // Two offsets, then the list of epochs; the current epoch is empty.
    let epochs = nodes(&accumulator[8..]);
    assert_eq!(epochs.len(), 1897);
    for (epoch, root) in (0..).zip(&epochs) {
        assert_eq!(history.epoch_root(epoch).expect("embedded").0, *root, "{epoch}");
    }
    let roots = nodes(&corpus.read("history/accumulators/historical_roots.ssz"));
    assert_eq!(roots.len(), 758);
    let root = mix_in_length(merkleize(&roots, 24), roots.len());
    assert_eq!(history.historical_roots_root().0, root);
}
