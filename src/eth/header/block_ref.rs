//! A block by number and hash.

use core::fmt;

use alloy_primitives::B256;

use super::HeaderBuf;

/// A block by number and hash. The hash is what says which block it is; the number follows from it.
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

/// `block 17000000, 0x96cf…`.
impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}, {}", self.number, self.hash)
    }
}
