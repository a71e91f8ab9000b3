//! The number and hash of a block.

use core::fmt;

use alloy_primitives::B256;

use super::HeaderBuf;

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
