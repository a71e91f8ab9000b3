//! The root of an epoch of blocks from before the Merge, as era1 and ere archives have it.

use alloy_primitives::{B256, U256};

use crate::eth::anchor::list_root::ListRoot;
use crate::eth::anchor::merkle_branch::parent;

/// Number of blocks in an epoch of the accumulator.
pub const EPOCH_BLOCKS: u64 = 8192;

/// Computes the root of an epoch: of the hashes and total difficulties of up to 8,192 blocks.
///
/// The root is the `Accumulator` entry of an archive, and
/// [`epoch_root`](super::History::epoch_root) of the epoch. It also commits to the number of
/// blocks, so no block can be left out.
///
/// Source: `EpochRecord` of EIP-7643, `hash_tree_root(List[HeaderRecord, 8192])`.
///
/// # Cost
/// Two SHA-256 hashes of 64 bytes for each block. Memory is 14 nodes.
#[derive(Debug, Clone)]
pub struct EpochRecord {
    records: ListRoot<13>,
}

impl EpochRecord {
    /// Creates a record without blocks.
    pub const fn new() -> Self {
        Self { records: ListRoot::new() }
    }

    /// Adds the next block: its hash, and the total difficulty up to and including it.
    ///
    /// Returns `false`, and adds nothing, if the epoch already has [`EPOCH_BLOCKS`] blocks.
    #[must_use]
    pub fn push(&mut self, hash: B256, total_difficulty: U256) -> bool {
        self.records.push(parent(&hash, &total_difficulty.to_le_bytes()))
    }

    /// Returns the number of blocks.
    pub const fn len(&self) -> u64 {
        self.records.len()
    }

    /// Returns `true` if there is no block.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the root of the blocks added so far.
    pub fn root(&self) -> B256 {
        self.records.list_root().into()
    }
}

impl Default for EpochRecord {
    fn default() -> Self {
        Self::new()
    }
}
