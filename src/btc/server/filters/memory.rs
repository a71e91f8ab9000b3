//! A store of compact filters in memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use thiserror::Error;

use super::FilterStore;
use crate::btc::bip158::BlockFilter;

/// A [`FilterStore`] in memory, filled in the order of the chain. The store is meant for tests of
/// wallets and for small chains.
///
/// [`rollback`](Self::rollback) keeps the filters of the removed blocks, as Core's index does. A
/// client that does not know the reorganisation yet can therefore still request these filters.
#[derive(Debug, Clone)]
pub struct MemoryFilterStore {
    /// The filters of all blocks, on the chain and off the chain.
    filters: BTreeMap<BlockHash, Indexed>,
    /// The blocks of the chain, from the lowest on.
    active: Vec<BlockHash>,
    /// The filter header before the lowest block.
    before: FilterHeader,
}

#[derive(Debug, Clone)]
struct Indexed {
    /// Position of the block in the chain. If the block has left the chain, this is the position
    /// that it had.
    place: usize,
    content: Vec<u8>,
    hash: FilterHash,
    header: FilterHeader,
}

impl MemoryFilterStore {
    /// Creates an empty store for a chain that starts with genesis.
    pub fn new() -> Self {
        Self::behind(FilterHeader::all_zeros())
    }

    /// Creates an empty store for a chain without its first blocks. `before` is the filter header
    /// of the block before the first one in the store.
    pub fn behind(before: FilterHeader) -> Self {
        Self { filters: BTreeMap::new(), active: Vec::new(), before }
    }

    /// Adds the filter of the next block and returns its filter header. The bytes are not
    /// validated: a test may serve arbitrary bytes.
    ///
    /// # Errors
    /// [`StoreError::AlreadyThere`] if the block is in the chain already.
    ///
    /// # Cost
    /// One double SHA-256 of the filter.
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

    /// Removes the blocks after `block` from the chain, which then ends in `block`.
    ///
    /// # Errors
    /// [`StoreError::NotThere`] if the block is not in the chain. After an error, the store is
    /// unchanged.
    pub fn rollback(&mut self, block: &BlockHash) -> Result<(), StoreError> {
        let place = self.place(block).ok_or(StoreError::NotThere(*block))?;
        self.active.truncate(place + 1);
        Ok(())
    }

    /// Removes the filters of all blocks that left the chain.
    pub fn drop_stale(&mut self) {
        let mut stale = core::mem::take(&mut self.filters);
        let kept = |block: &BlockHash| stale.remove(block).map(|indexed| (*block, indexed));
        self.filters = self.active.iter().filter_map(kept).collect();
    }

    /// Returns the position of `block`, if it is in the chain.
    fn place(&self, block: &BlockHash) -> Option<usize> {
        let place = self.filters.get(block)?.place;
        (self.active.get(place) == Some(block)).then_some(place)
    }

    /// Returns the last block of the chain; `None` if the chain is empty.
    pub fn tip(&self) -> Option<BlockHash> {
        self.active.last().copied()
    }

    /// Returns the filter header of the last block. For an empty chain, returns the filter header
    /// before the first block.
    pub fn tip_header(&self) -> FilterHeader {
        let tip = self.active.last().and_then(|tip| self.filters.get(tip));
        tip.map_or(self.before, |tip| tip.header)
    }

    /// Returns the number of blocks in the chain.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Returns `true` if the chain has no block.
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

/// Error of a [`MemoryFilterStore`]. The store is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The block is in the chain already.
    #[error("block {0} is in the chain already")]
    AlreadyThere(BlockHash),
    /// The block is not in the chain.
    #[error("block {0} is not in the chain")]
    NotThere(BlockHash),
}
