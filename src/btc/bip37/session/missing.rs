//! Transactions of answered blocks that were not delivered, and may come late.

use alloc::collections::BTreeMap;

use bitcoin::Txid;

use crate::btc::headers::BlockAt;

/// Transactions not delivered with their block, with the position in it.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    limit: usize,
    places: BTreeMap<Txid, (BlockAt, u32)>,
}

impl Missing {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, places: BTreeMap::new() }
    }

    /// Notes a transaction, unless there are too many already.
    pub(super) fn insert(&mut self, txid: Txid, block: BlockAt, index: u32) {
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

    /// Blocks from `height` on have left the chain: no place there counts.
    pub(super) fn reorganize(&mut self, height: u32) {
        self.places.retain(|_, (block, _)| block.height < height);
    }
}
