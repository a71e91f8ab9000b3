//! A node's and a wallet's work without a standard library: that this builds is the test.
//!
//! Built on its own (`cargo build -p no-std-check`), so that no other crate turns `std` on.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use chainsieve::alloy_primitives::{B256, Log};
use chainsieve::bitcoin::{Network, Transaction};
use chainsieve::btc::bip37::{BloomFilter, MerkleBlock, Policy, Proof, UpdateMode};
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::header::HeaderChain;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::scan;
use chainsieve::simd::Backend;

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

/// The blocks of a stretch of headers that may hold logs of a query, if `anchor` is their end.
pub fn candidates(headers: &[u8], anchor: B256, query: &str) -> Option<Vec<usize>> {
    let mut chain = HeaderChain::new();
    chain.extend_from_rlp(Backend::best(), headers).ok()?;
    chain.anchored_to(&[anchor])?;
    let query = LogQuery::from_json(query, Semantics::Geth).ok()?.compile(Backend::best());
    Some(scan::candidates(Backend::best(), &query, chain.blooms()))
}

/// The logs of a block's receipts, if they are those of this root.
pub fn logs(receipts: &[u8], root: B256, bloom: &[u8]) -> Option<Vec<Log>> {
    let receipts = BlockReceipts::from_rlp_list(receipts).ok()?;
    let verified = receipts.verify(root, BloomView::from_wire(bloom)).ok()?;
    Some(verified.logs().map(|log| log.log.clone()).collect())
}
