//! A block shown to be the one of its header.

use alloc::vec::Vec;

use bitcoin::{Block, BlockHash, Network, Txid};
use thiserror::Error;

/// A block that was checked to be what its header commits to.
#[derive(Debug, Clone)]
pub struct BoundBlock<'a> {
    block: &'a Block,
    block_hash: BlockHash,
    txids: Vec<Txid>,
}

impl<'a> BoundBlock<'a> {
    /// Checks that `block` is the one with the hash `expected`.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn bind(
        block: &'a Block,
        expected: BlockHash,
        _network: Network,
    ) -> Result<Self, BindError> {
        let block_hash = block.block_hash();
        if block_hash != expected {
            return Err(BindError::OtherBlock { expected, found: block_hash });
        }
        let txids = block.txdata.iter().map(bitcoin::Transaction::compute_txid).collect();
        Ok(Self { block, block_hash, txids })
    }

    /// The block.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    /// Its hash.
    pub fn block_hash(&self) -> BlockHash {
        self.block_hash
    }

    /// The ids of its transactions, in their order.
    pub fn txids(&self) -> &[Txid] {
        &self.txids
    }
}

/// Why a block is not shown to be the one of its header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The header of another block.
    #[error("block {found}, asked for {expected}")]
    OtherBlock {
        /// The hash asked for.
        expected: BlockHash,
        /// The hash of the block's header.
        found: BlockHash,
    },
}
