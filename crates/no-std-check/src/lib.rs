//! Functions that a node and a wallet may call without a standard library. The only test of this
//! crate is that it compiles.
//!
//! The crate is built on its own (`cargo build -p no-std-check`), so that no other crate enables
//! `std`.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;
use core::time::Duration;

use chainsieve::alloy_primitives::{B256, Log};
use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::{Block, Network, Transaction};
use chainsieve::btc::bip37::{BloomFilter, MerkleBlock, Policy, Proof, UpdateMode};
use chainsieve::btc::bip158::audit::{Prevouts, Verdict, audit};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, BoundBlock, Matcher, PreparedScripts};
use chainsieve::btc::headers::{HeaderChain, HeadersError};
use chainsieve::btc::wallet::{BlockScan, WatchedItems};
use chainsieve::eth::anchor::header_proof::{HeaderProof, History};
use chainsieve::eth::anchor::network::{Fork, Network as BeaconNetwork};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, LightClient};
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::scan;
use chainsieve::filter::cuckoo::CuckooFilter16;
use chainsieve::filter::{AnyFilter, Filter, Insert, KeyHasher};

/// Returns the payload of a filter with one element; `None` if the parameters are invalid.
pub fn filter_of(element: &[u8], tweak: u32) -> Option<Vec<u8>> {
    let mut filter = BloomFilter::new(100, 0.0001, tweak, UpdateMode::All).ok()?;
    filter.insert(element);
    Some(filter.encode())
}

/// Returns `true` if a transaction matches a received filter; `false` if the filter is malformed.
pub fn matches(filter: &[u8], tx: &Transaction) -> bool {
    BloomFilter::decode(filter).is_ok_and(|mut filter| filter.match_transaction(tx).is_some())
}

/// Returns the number of transactions that a merkle block proves to be in its block.
pub fn proven(merkle_block: &[u8], network: Network) -> Option<usize> {
    let block = MerkleBlock::decode(merkle_block).ok()?;
    let proof = Proof::verify(&block, Policy::Strict(network), []).ok()?;
    Some(proof.inclusions.len())
}

/// Returns `true` if a block may concern scripts. The result is also `true` if the filter cannot be
/// read.
pub fn may_concern(filter: &BlockFilter, scripts: &PreparedScripts) -> bool {
    let mut matcher = Matcher::new();
    let answer = filter.gcs(Acceptance::Strict);
    answer.and_then(|gcs| matcher.match_any(&gcs, scripts)).unwrap_or(true)
}

/// Starts a light client of the beacon chain; `None` if the root does not prove the bootstrap.
pub fn light_client(root: B256, bootstrap: &[u8], now: Duration) -> Option<LightClient> {
    let network = BeaconNetwork::mainnet();
    let bootstrap = Bootstrap::from_ssz(bootstrap, Fork::Fulu, network.preset()).ok()?;
    LightClient::new(network, root, &bootstrap, now).ok()
}

/// Returns `true` if a filter is proven not to be the filter of a block.
pub fn is_false(filter: &BlockFilter, block: &Block, network: Network) -> bool {
    BoundBlock::bind(block, filter.block_hash, network).is_ok_and(|block| {
        matches!(audit(&block, &filter.content, Prevouts::None), Verdict::Invalid(_))
    })
}

/// Returns the hits of a wallet in a block; `None` if the block does not match its header.
pub fn scanned(
    watch: &mut WatchedItems,
    height: u32,
    block: &Block,
    network: Network,
) -> Option<BlockScan> {
    let bound = BoundBlock::bind(block, block.block_hash(), network).ok()?;
    Some(watch.scan(height, &bound))
}

/// Returns the height of the chain tip after a chain that has only the genesis block accepts
/// `headers`.
///
/// # Errors
/// Returns the error of the first invalid header.
pub fn height(headers: &[Header], network: Network, now: Duration) -> Result<u32, HeadersError> {
    let mut chain = HeaderChain::new(network);
    chain.accept(headers, now)?;
    Ok(chain.tip().height)
}

/// Returns the blocks that may contain logs of a query; `None` unless `anchor` is the last header.
pub fn candidates(headers: &[u8], anchor: B256, query: &str) -> Option<Vec<usize>> {
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(headers).ok()?;
    chain.anchored_to(&[anchor])?;
    let query = LogQuery::from_json(query, Semantics::Geth).ok()?.compile();
    Some(scan::candidates(&query, chain.blooms()))
}

/// Returns the logs of a block's receipts; `None` unless the receipts have this root.
pub fn logs(receipts: &[u8], root: B256, bloom: &[u8]) -> Option<Vec<Log>> {
    let receipts = BlockReceipts::from_rlp_list(receipts).ok()?;
    let verified = receipts.verify(root, BloomView::from_wire(bloom)).ok()?;
    Some(verified.logs().map(|log| log.log.clone()).collect())
}

/// Returns `true` if a header from before Capella is proven to be part of mainnet's history.
pub fn is_history(header: &[u8], record: &[u8]) -> bool {
    let proof = HeaderProof::decode_record(record);
    let header = HeaderView::decode(header);
    proof.is_ok_and(|proof| {
        header.is_ok_and(|header| proof.verify(&header, &History::mainnet()).is_ok())
    })
}

/// Returns `true` if a key may be in the set of a received filter, or if the filter is malformed.
pub fn may_contain(filter: &[u8], key: &[u8]) -> bool {
    AnyFilter::decode(filter).map_or(true, |filter| filter.contains(key))
}

/// Returns the number of keys that a filter of this capacity accepts; `None` if the capacity is invalid.
pub fn inserted(keys: &[&[u8]], capacity: u64) -> Option<u64> {
    let mut filter = CuckooFilter16::with_capacity(capacity, KeyHasher::xxh3(0)).ok()?;
    keys.iter().try_for_each(|key| filter.insert(key).map(drop)).ok()?;
    Some(filter.len())
}
