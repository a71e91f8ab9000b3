//! A node's and a wallet's work without a standard library: that this builds is the test.
//!
//! Built on its own (`cargo build -p no-std-check`), so that no other crate turns `std` on.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use chainsieve::bitcoin::{Network, Transaction};
use chainsieve::btc::bip37::{BloomFilter, MerkleBlock, Policy, Proof, UpdateMode};

/// The payload of a filter with one element, or nothing if it has no size.
pub fn filter_of(element: &[u8], tweak: u32) -> Option<Vec<u8>> {
    let mut filter = BloomFilter::new(100, 0.0001, tweak, UpdateMode::All).ok()?;
    filter.insert(element);
    Some(filter.encode())
}

/// Whether a transaction matches a filter as received; false if the filter is malformed.
pub fn matches(filter: &[u8], tx: &Transaction) -> bool {
    BloomFilter::decode(filter).is_ok_and(|mut filter| filter.match_transaction(tx).is_some())
}

/// How many transactions a merkle block proves to be in its block.
pub fn proven(merkle_block: &[u8], network: Network) -> Option<usize> {
    let block = MerkleBlock::decode(merkle_block).ok()?;
    let proof = Proof::verify(&block, Policy::Strict(network), []).ok()?;
    Some(proof.inclusions.len())
}
