//! Transactions of answered blocks that were not delivered and may arrive late.

use alloc::collections::BTreeMap;

use bitcoin::Txid;

use crate::btc::headers::BlockAt;

/// Transactions that were not delivered with their block, with their positions in the block.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    limit: usize,
    places: BTreeMap<Txid, (BlockAt, u32)>,
}

impl Missing {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, places: BTreeMap::new() }
    }

    /// Records a transaction that was not delivered, unless the limit is reached.
    pub(super) fn insert(&mut self, txid: Txid, block: BlockAt, index: u32) {
        // The node chooses how many transactions it withholds, so memory must be bounded.
        if self.places.len() < self.limit {
            self.places.insert(txid, (block, index));
        }
    }

    pub(super) fn contains(&self, txid: &Txid) -> bool {
        self.places.contains_key(txid)
    }

    pub(super) fn remove(&mut self, txid: &Txid) -> Option<(BlockAt, u32)> {
        self.places.remove(txid)
    }

    /// Drops transactions of blocks from `height` on, because these blocks have left the chain.
    pub(super) fn reorganize(&mut self, height: u32) {
        self.places.retain(|_, (block, _)| block.height < height);
    }
}
