//! Proofs against filters: they survive a round trip, and none verifies against a block's own
//! filter. Bytes are proven to be malformed exactly if the reader written from the BIP rejects
//! them.
#![no_main]

use bitcoin::Network;
use bitcoin::constants::genesis_block;
use chainsieve::bitcoin;
use chainsieve::btc::bip158::BlockFilter;
use chainsieve::btc::bip158::audit::{FilterEvidence, InvalidFilter};
use libfuzzer_sys::fuzz_target;

use testkit::btc::naive_gcs::Coding;

fuzz_target!(|data: &[u8]| {
    let network = Network::Bitcoin;
    let block = genesis_block(network);
    let honest = BlockFilter::new(&block, |_| None).expect("it spends nothing");
    let hash = honest.block_hash;
    if let Ok(proof) = InvalidFilter::decode(data) {
        assert_eq!(proof.encode(), data);
        if proof.verify(hash, network).is_ok() {
            assert_eq!(proof.block_hash, hash);
            assert_ne!(proof.filter, honest.content, "an honest filter is proven wrong");
        }
        let _ = proof.verify(proof.block_hash, Network::Regtest);
        // The same evidence, against the honest filter.
        let accused = InvalidFilter { filter: honest.content, block_hash: hash, ..proof };
        assert!(accused.verify(hash, network).is_err(), "an honest filter is proven wrong");
    }
    let evidence = FilterEvidence::Malformed;
    let proof = InvalidFilter { block_hash: hash, filter: data.to_vec(), evidence };
    let is_filter = Coding::basic(hash.as_ref()).read(data).is_ok_and(|set| set.is_canonical());
    assert_eq!(proof.verify(hash, network).is_err(), is_filter);
    assert_eq!(InvalidFilter::decode(&proof.encode()), Ok(proof));
});
