//! The merkle tree over the txids of a block: its shape, its nodes, and the merkle path of one
//! txid.
//!
//! The txids are level 0 of the tree. The last node of a level of odd width is paired with itself,
//! so that different lists of txids can have the same root (CVE-2012-2459). A leaf is not
//! distinguished from an inner node: a hash at level 0 is known to be a txid only if the height of
//! the tree is known from elsewhere (CVE-2017-12842).

use alloc::vec::Vec;

use bitcoin::hashes::{Hash as _, HashEngine as _, sha256};
use bitcoin::{Transaction, TxMerkleNode, Txid};
use thiserror::Error;

/// Core's limit on `nTransactions` in a `merkleblock`: `MAX_BLOCK_WEIGHT` (4,000,000) divided by
/// `MIN_TRANSACTION_WEIGHT` (240).
pub const MAX_BLOCK_TRANSACTIONS: u32 = 16_666;

/// Returns the number of nodes at `level` of a tree over `leaves` txids.
pub(crate) fn width(leaves: u32, level: u32) -> u32 {
    u32::try_from(u64::from(leaves).div_ceil(1 << level)).expect("no more than leaves")
}

/// Returns the level of the root of a tree over `leaves` txids, at most 32.
pub(crate) fn height(leaves: u32) -> u32 {
    u32::BITS - leaves.saturating_sub(1).leading_zeros()
}

/// Concatenates the two children of an inner node, for hashing.
pub(crate) fn preimage(left: &[u8; 32], right: &[u8; 32]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(left);
    bytes[32..].copy_from_slice(right);
    bytes
}

/// Returns the double SHA-256 of 64 bytes: the parent of two concatenated nodes.
///
/// The padding is written here and the engine is given three whole blocks. With the engine's own
/// padding, which takes one call for each piece, hashing takes about a tenth longer.
pub(crate) fn parent(children: &[u8; 64]) -> [u8; 32] {
    let mut inner = sha256::HashEngine::default();
    inner.input(children);
    inner.input(&PADDING_OF_64);
    let mut block = PADDED_32;
    block[..32].copy_from_slice(&inner.midstate().to_byte_array());
    let mut outer = sha256::HashEngine::default();
    outer.input(&block);
    outer.midstate().to_byte_array()
}

/// SHA-256's padding block after a message of 64 bytes: a one bit, zeros, and the number 512,
/// which is the length of the message in bits.
const PADDING_OF_64: [u8; 64] = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 2;
    block
};

/// SHA-256's padding after a message of 32 bytes, within the same block: the length is 256 bits.
const PADDED_32: [u8; 64] = {
    let mut block = [0; 64];
    block[32] = 0x80;
    block[62] = 1;
    block
};

/// Returns the hash of the node at `position` of `level` in the tree over `txids`.
///
/// The subtree of the node must contain at least one txid.
pub(crate) fn node(txids: &[Txid], level: u32, position: u32) -> [u8; 32] {
    if level == 0 {
        return txids[position as usize].to_byte_array();
    }
    let below = txids.len().div_ceil(1 << (level - 1));
    let left = node(txids, level - 1, position * 2);
    let right = if (position as usize) * 2 + 1 < below {
        node(txids, level - 1, position * 2 + 1)
    } else {
        left
    };
    parent(&preimage(&left, &right))
}

/// Returns the merkle root over `txids`; `None` if there are no txids, or more than
/// [`MAX_BLOCK_TRANSACTIONS`].
///
/// # Cost
/// Computes at most about one double hash for each txid, and allocates nothing.
pub fn merkle_root(txids: &[Txid]) -> Option<TxMerkleNode> {
    let leaves = block_size(txids)?;
    Some(TxMerkleNode::from_byte_array(node(txids, height(leaves), 0)))
}

fn block_size(txids: &[Txid]) -> Option<u32> {
    u32::try_from(txids.len()).ok().filter(|count| (1..=MAX_BLOCK_TRANSACTIONS).contains(count))
}

/// The merkle path from one txid up to the merkle root. Anyone who has the block can compute the
/// path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MerklePath {
    /// Position of the transaction in the block, from 0.
    pub index: u32,
    /// The sibling at each level, from the txids upwards.
    pub siblings: Vec<TxMerkleNode>,
}

impl MerklePath {
    /// Returns the path of `txids[index]`; `None` if there is no such txid, or if there are more
    /// txids than [`MAX_BLOCK_TRANSACTIONS`].
    ///
    /// # Cost
    /// Computes at most about one double hash for each txid.
    pub fn new(txids: &[Txid], index: u32) -> Option<Self> {
        let leaves = block_size(txids).filter(|&leaves| index < leaves)?;
        let siblings = (0..height(leaves))
            .map(|level| {
                let position = index >> level;
                let sibling = (position ^ 1).min(width(leaves, level) - 1);
                TxMerkleNode::from_byte_array(node(txids, level, sibling))
            })
            .collect();
        Some(Self { index, siblings })
    }

    /// Returns the merkle root that results from this path and `txid`, in a block of
    /// `num_transactions`.
    ///
    /// The result proves that `txid` is a transaction of the block only if the block's merkle root
    /// and the height of its tree are both known. A path that is longer or shorter than this height
    /// starts at a node that is not a txid.
    ///
    /// # Errors
    /// Returns an error if `num_transactions` is 0 or over [`MAX_BLOCK_TRANSACTIONS`], if the
    /// path's index is outside the tree, if the number of siblings differs from the height of the
    /// tree, or if no tree over different txids has these siblings.
    pub fn root(&self, txid: Txid, num_transactions: u32) -> Result<TxMerkleNode, PathError> {
        if !(1..=MAX_BLOCK_TRANSACTIONS).contains(&num_transactions) {
            return Err(PathError::NumTransactions(num_transactions));
        }
        if self.index >= num_transactions {
            return Err(PathError::IndexOutOfRange { index: self.index, num_transactions });
        }
        let height = height(num_transactions);
        if self.siblings.len() != height as usize {
            return Err(PathError::Length { siblings: self.siblings.len(), height });
        }
        // Only the last node of a level of odd width is its own sibling. Equal nodes elsewhere would
        // make the list of txids ambiguous (CVE-2012-2459).
        self.climb(txid, |level, is_equal| {
            is_equal == (self.index >> level | 1 >= width(num_transactions, level))
        })
    }

    /// Returns the merkle root that results from this path and `txid`, in a tree with `height`
    /// levels above the txids.
    ///
    /// The number of transactions is not needed. A node that is its own sibling is the last node of
    /// its level, so it is the left one of the pair, and its copy is on the right. A path through
    /// the copy leads to a position after the last transaction. Every path to such a position goes
    /// through a copy, and a path through a copy is rejected.
    ///
    /// # Errors
    /// Returns an error if no tree of this height has the path's index or its number of siblings,
    /// or if a node on the right equals its sibling.
    pub fn root_at_height(&self, txid: Txid, height: u32) -> Result<TxMerkleNode, PathError> {
        let height = height.min(self::height(MAX_BLOCK_TRANSACTIONS));
        if self.siblings.len() != height as usize {
            return Err(PathError::Length { siblings: self.siblings.len(), height });
        }
        let places = 1 << height;
        if self.index >= places {
            let index = self.index;
            return Err(PathError::IndexOutOfRange { index, num_transactions: places });
        }
        // A right node that equals its sibling is the copy of the last node of an odd level.
        self.climb(txid, |level, is_equal| !is_equal || self.index >> level & 1 == 0)
    }

    /// Hashes from `txid` up to the root. `is_allowed` is called with the level of a node, and with
    /// `true` if the node equals its sibling.
    fn climb(
        &self,
        txid: Txid,
        is_allowed: impl Fn(u32, bool) -> bool,
    ) -> Result<TxMerkleNode, PathError> {
        let mut hash = txid.to_byte_array();
        for (level, sibling) in (0..).zip(&self.siblings) {
            let sibling = sibling.as_byte_array();
            if !is_allowed(level, *sibling == hash) {
                return Err(PathError::Sibling { level });
            }
            hash = parent(&match self.index >> level & 1 {
                0 => preimage(&hash, sibling),
                _ => preimage(sibling, &hash),
            });
        }
        Ok(TxMerkleNode::from_byte_array(hash))
    }
}

/// A transaction with its merkle path, as provided by anyone who has the whole block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransactionInBlock {
    /// The transaction.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus"))]
    pub transaction: Transaction,
    /// The transaction's merkle path.
    pub path: MerklePath,
}

/// Reason why a merkle path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// The number of transactions is 0 or over [`MAX_BLOCK_TRANSACTIONS`].
    #[error("{0} transactions, but a block has 1 to {MAX_BLOCK_TRANSACTIONS}")]
    NumTransactions(u32),
    /// The position is after the last transaction.
    #[error("position {index} is outside a block of {num_transactions} transactions")]
    IndexOutOfRange {
        /// The claimed position.
        index: u32,
        /// Number of transactions in the block.
        num_transactions: u32,
    },
    /// The number of siblings differs from the number of levels above the txids.
    #[error("{siblings} siblings for a tree of height {height}")]
    Length {
        /// Number of siblings in the path.
        siblings: usize,
        /// Number of levels of the tree above the txids.
        height: u32,
    },
    /// A node equals its sibling where the tree does not duplicate the node, or differs from its
    /// sibling where the tree duplicates the node.
    #[error(
        "invalid sibling at level {level}: only the last node of an odd level equals its sibling"
    )]
    Sibling {
        /// The level of the node and its sibling, 0 for txids.
        level: u32,
    },
}
