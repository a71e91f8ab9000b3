//! Filters held in memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use thiserror::Error;

use super::FilterStore;
use crate::btc::bip158::BlockFilter;

/// A [`FilterStore`] in memory, filled in the order of the chain: for tests of wallets, and for
/// chains that are small.
///
/// Blocks that [`rollback`](Self::rollback) takes off keep their filters, as in Core's index, so
/// that a client which has not yet heard of the reorganization is answered.
#[derive(Debug, Clone)]
pub struct MemoryFilterStore {
    filters: BTreeMap<BlockHash, Indexed>,
    /// The blocks of the chain, the lowest first.
    active: Vec<BlockHash>,
    /// The filter header before the lowest.
    before: FilterHeader,
}

#[derive(Debug, Clone)]
struct Indexed {
    /// The place in the chain, or the last one.
    place: usize,
    content: Vec<u8>,
    hash: FilterHash,
    header: FilterHeader,
}

impl MemoryFilterStore {
    /// An empty store; the first filter is that of genesis.
    pub fn new() -> Self {
        Self::behind(FilterHeader::all_zeros())
    }

    /// An empty store for a chain whose first blocks are left out: `before` is the filter header
    /// of the block before the first.
    pub fn behind(before: FilterHeader) -> Self {
        Self { filters: BTreeMap::new(), active: Vec::new(), before }
    }

    /// Adds the filter of the next block, and returns its filter header. The bytes are not read:
    /// a test may serve what it likes.
    ///
    /// # Errors
    /// A block that is in the chain already.
    ///
    /// # Cost
    /// A double SHA-256 of the filter.
    pub fn append(&mut self, filter: BlockFilter) -> Result<FilterHeader, StoreError> {
        let block = filter.block_hash;
        if self.place(&block).is_some() {
            return Err(StoreError::AlreadyThere(block));
        }
        let hash = filter.filter_hash();
        let header = filter.filter_header(&self.tip_header());
        let place = self.active.len();
        self.filters.insert(block, Indexed { place, content: filter.content, hash, header });
        self.active.push(block);
        Ok(header)
    }

    /// Takes the blocks behind `block` off the chain, which then ends in it.
    ///
    /// # Errors
    /// A block that is not in the chain; nothing changes then.
    pub fn rollback(&mut self, block: &BlockHash) -> Result<(), StoreError> {
        let place = self.place(block).ok_or(StoreError::NotThere(*block))?;
        self.active.truncate(place + 1);
        Ok(())
    }

    /// Frees the filters of the blocks that left the chain.
    pub fn drop_stale(&mut self) {
        let mut stale = core::mem::take(&mut self.filters);
        let kept = |block: &BlockHash| stale.remove(block).map(|indexed| (*block, indexed));
        self.filters = self.active.iter().filter_map(kept).collect();
    }

    /// The place of `block`, if it is in the chain.
    fn place(&self, block: &BlockHash) -> Option<usize> {
        let place = self.filters.get(block)?.place;
        (self.active.get(place) == Some(block)).then_some(place)
    }

    /// The last block of the chain.
    pub fn tip(&self) -> Option<BlockHash> {
        self.active.last().copied()
    }

    /// The filter header of the last block.
    pub fn tip_header(&self) -> FilterHeader {
        let tip = self.active.last().and_then(|tip| self.filters.get(tip));
        tip.map_or(self.before, |tip| tip.header)
    }

    /// The blocks of the chain.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether the chain has no block.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }
}

impl Default for MemoryFilterStore {
    fn default() -> Self {
        Self::new()
    }
}

impl FilterStore for MemoryFilterStore {
    fn filter(&self, block: &BlockHash) -> Option<Vec<u8>> {
        self.filters.get(block).map(|indexed| indexed.content.clone())
    }

    fn filter_hash(&self, block: &BlockHash) -> Option<FilterHash> {
        self.filters.get(block).map(|indexed| indexed.hash)
    }

    fn filter_header(&self, block: &BlockHash) -> Option<FilterHeader> {
        self.filters.get(block).map(|indexed| indexed.header)
    }
}

/// Why a [`MemoryFilterStore`] stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The block is in the chain.
    #[error("block {0} is in the chain already")]
    AlreadyThere(BlockHash),
    /// The block is not in the chain.
    #[error("block {0} is not in the chain")]
    NotThere(BlockHash),
}
