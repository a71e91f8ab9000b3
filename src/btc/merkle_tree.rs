//! The merkle tree over the txids of a block: its shape, its nodes, and the path of one leaf.
//!
//! Level 0 are the txids. A level of odd width has its last node paired with itself, so that
//! different lists of txids can have one root (CVE-2012-2459). No leaf is marked as one: what
//! stands at level 0 is a transaction only if the height of the tree is known otherwise
//! (CVE-2017-12842).

use alloc::vec::Vec;

use bitcoin::hashes::{Hash as _, HashEngine as _, sha256};
use bitcoin::{Transaction, TxMerkleNode, Txid};
use thiserror::Error;

/// Core's limit on `nTransactions` in a `merkleblock`: `MAX_BLOCK_WEIGHT` (4,000,000) over
/// `MIN_TRANSACTION_WEIGHT` (240).
pub const MAX_BLOCK_TRANSACTIONS: u32 = 16_666;

/// The number of nodes at `level` of a tree over `leaves`.
pub(crate) fn width(leaves: u32, level: u32) -> u32 {
    u32::try_from(u64::from(leaves).div_ceil(1 << level)).expect("no more than leaves")
}

/// The level of the root of a tree over `leaves`, at most 32.
pub(crate) fn height(leaves: u32) -> u32 {
    u32::BITS - leaves.saturating_sub(1).leading_zeros()
}

/// The two children of an inner node as they are hashed.
pub(crate) fn preimage(left: &[u8; 32], right: &[u8; 32]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(left);
    bytes[32..].copy_from_slice(right);
    bytes
}

/// Double SHA-256 of 64 bytes.
///
/// The three blocks go to the engine whole, padding included: its own padding takes a call per
/// piece, which costs a tenth of the time.
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

/// The block of padding behind 64 bytes: a one bit, zeros, and the length of 512 bits.
const PADDING_OF_64: [u8; 64] = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 2;
    block
};

/// The padding behind 32 bytes, in the same block: the length is 256 bits.
const PADDED_32: [u8; 64] = {
    let mut block = [0; 64];
    block[32] = 0x80;
    block[62] = 1;
    block
};

/// The hash of the node at `position` of `level` over `txids`, of which it must have at least one.
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

/// The merkle root over `txids`; `None` without any, or for more than any block can have.
///
/// # Cost
/// About as many double hashes as there are txids, no allocation.
pub fn merkle_root(txids: &[Txid]) -> Option<TxMerkleNode> {
    let leaves = block_size(txids)?;
    Some(TxMerkleNode::from_byte_array(node(txids, height(leaves), 0)))
}

fn block_size(txids: &[Txid]) -> Option<u32> {
    u32::try_from(txids.len()).ok().filter(|count| (1..=MAX_BLOCK_TRANSACTIONS).contains(count))
}

/// The way from one txid up to the merkle root: what anyone with the block can show for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MerklePath {
    /// The position of the transaction in the block.
    pub index: u32,
    /// The sibling at each level, from the txids upwards.
    pub siblings: Vec<TxMerkleNode>,
}

impl MerklePath {
    /// The path of `txids[index]`; `None` where there is no such txid, or more txids than any
    /// block can have.
    ///
    /// # Cost
    /// About as many double hashes as there are txids.
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

    /// The root that the path gives to `txid` in a block of `num_transactions`.
    ///
    /// That `txid` is a transaction of the block follows only if both the root and the number
    /// of levels of the block's tree are known: a path of other length starts elsewhere.
    ///
    /// # Errors
    /// A number of transactions that no block has, an index or a number of siblings that the
    /// tree does not have, or siblings that no tree over different txids has.
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
        let mut hash = txid.to_byte_array();
        for (level, sibling) in (0..height).zip(&self.siblings) {
            let position = self.index >> level;
            // The last node of an odd level is its own sibling; two nodes are never equal.
            let alone = position | 1 >= width(num_transactions, level);
            let sibling = sibling.as_byte_array();
            if alone != (*sibling == hash) {
                return Err(PathError::Sibling { level });
            }
            hash = parent(&match position & 1 {
                0 => preimage(&hash, sibling),
                _ => preimage(sibling, &hash),
            });
        }
        Ok(TxMerkleNode::from_byte_array(hash))
    }

    /// The root that the path gives to `txid` in a tree of `height` levels above the txids.
    ///
    /// The number of transactions is not needed: a node that is its own sibling is the last of
    /// its level, so it stands left. A path that claims to come from the copy on its right comes
    /// from behind the last transaction, and no other path can.
    ///
    /// # Errors
    /// An index or a number of siblings that no tree of this height has, or a node on the right
    /// that equals its sibling.
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
        let mut hash = txid.to_byte_array();
        for (level, sibling) in (0..height).zip(&self.siblings) {
            let sibling = sibling.as_byte_array();
            let is_right = self.index >> level & 1 == 1;
            if is_right && *sibling == hash {
                return Err(PathError::Sibling { level });
            }
            let children =
                if is_right { preimage(sibling, &hash) } else { preimage(&hash, sibling) };
            hash = parent(&children);
        }
        Ok(TxMerkleNode::from_byte_array(hash))
    }
}

/// A transaction with its path: what someone with the whole block shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionInBlock {
    /// The transaction.
    pub transaction: Transaction,
    /// Its place under the merkle root.
    pub path: MerklePath,
}

/// Why a merkle path fits no tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// No transactions, or more than a block can have.
    #[error("{0} transactions, a block has 1 to {MAX_BLOCK_TRANSACTIONS}")]
    NumTransactions(u32),
    /// A position behind the last transaction.
    #[error("position {index} in a block of {num_transactions} transactions")]
    IndexOutOfRange {
        /// The position claimed.
        index: u32,
        /// The transactions in the block.
        num_transactions: u32,
    },
    /// More or fewer siblings than the tree has levels above the txids.
    #[error("{siblings} siblings for a tree of height {height}")]
    Length {
        /// The siblings given.
        siblings: usize,
        /// The levels of the tree.
        height: u32,
    },
    /// A node equal to its sibling, or a last node of an odd level whose sibling is not itself.
    #[error("the sibling at level {level} is not one that a tree over txids has")]
    Sibling {
        /// The level of the two, 0 for txids.
        level: u32,
    },
}
