//! Block headers as received, and chains of headers.
//!
//! A header's hash is the Keccak-256 of its RLP. So headers are kept as the received bytes, and
//! [`HeaderView`] reads the fields in place. Unknown fields that later forks append are kept and
//! hashed, too. A header from JSON ([`HeaderBuf::from_json`]) or from alloy's type is encoded, and
//! its hash must equal the hash that its source claims.
//!
//! Sources for the fields: Yellow Paper 4.4.3; EIP-1559, 4895, 4844, 4788, 7685, 7928, 7843.

mod chain;
pub(super) mod json;
#[cfg(test)]
pub(super) mod tests;
mod view;

use core::fmt;

use alloy_primitives::B256;

pub use chain::{ChainBlock, ChainError, Linked, LinkedHeaders};
pub use json::HeaderBuf;
pub use view::{HeaderError, HeaderLayout, HeaderView, bloom_at_fixed_place};

/// The number and hash of a block. The hash alone identifies the block.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct BlockRef {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: B256,
}

impl From<&HeaderBuf> for BlockRef {
    fn from(header: &HeaderBuf) -> Self {
        Self { number: header.view().number(), hash: header.hash() }
    }
}

/// Writes number and hash, for example `block 17000000, 0x96cf…` with all digits of the hash.
impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}, {}", self.number, self.hash)
    }
}
