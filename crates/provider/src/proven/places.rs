//! The blocks of transactions, as nodes named them and as the block itself proved.

use chainsieve::alloy_primitives::B256;

use super::memory::{Kept, Size, kept};

impl Size for B256 {
    fn size(&self) -> u64 {
        32
    }
}

/// The block of each transaction that was found, by the hash of the transaction. A block may have left the
/// chain since then, which the caller looks up.
#[derive(Debug)]
pub(super) struct Places(Kept<B256, B256>);

impl Places {
    pub(super) fn new(bytes: u64) -> Self {
        Self(kept(bytes))
    }

    pub(super) fn get(&self, transaction: B256) -> Option<B256> {
        self.0.get(&transaction)
    }

    pub(super) fn set(&self, transaction: B256, block: B256) {
        self.0.insert(transaction, block);
    }
}
