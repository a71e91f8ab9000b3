//! Verification of the tree of a `merkleblock`: Bitcoin Core's
//! `CPartialMerkleTree::ExtractMatches`, and the comparison of the root that Core's callers make.
//! Each check has an error of its own.

use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{TxMerkleNode, Txid};
use thiserror::Error;

use super::MerkleBlock;
use crate::btc::merkle_tree::{MAX_BLOCK_TRANSACTIONS, height, parent, preimage, width};

/// Contents of a merkle block's tree that is well-formed and has the header's root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeMatches {
    /// The matched leaves: position in the block and txid.
    pub matches: Vec<(u32, Txid)>,
    /// The merkle root, equal to the header's.
    pub root: TxMerkleNode,
    /// Number of levels above the txids, derived from the number of transactions that the peer
    /// claims.
    pub height: u32,
}

/// An inner node that was hashed during verification: level, position, and the two children as they
/// were hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InnerNode {
    /// Level of the node; the txids are level 0.
    pub level: u32,
    /// Position of the node in its level.
    pub position: u32,
    /// The left child, followed by the right child.
    pub preimage: [u8; 64],
}

impl MerkleBlock {
    /// Verifies the tree, and compares its root with the header's.
    ///
    /// The checks are exactly as strict as Bitcoin Core's, so padding flags may be set. The checks
    /// prove neither that the header belongs to any chain nor that the number of transactions is
    /// right: see [`Proof`](super::Proof).
    ///
    /// # Errors
    /// Returns the first of Core's checks that fails, in the order of [`TreeError`].
    ///
    /// # Cost
    /// One double hash for each inner node in the message. The message has fewer inner nodes with
    /// two children than hashes. A match at the end of an uneven tree adds at most one inner node
    /// with a single child for each level.
    pub fn extract_matches(&self) -> Result<TreeMatches, TreeError> {
        self.extract_matches_and_nodes(|_| ())
    }

    /// Verifies the tree as [`extract_matches`](Self::extract_matches), and calls `visit` with
    /// every inner node, children first.
    ///
    /// Nodes are visited even if a later check fails.
    ///
    /// # Errors
    /// As [`extract_matches`](Self::extract_matches).
    pub fn extract_matches_and_nodes(
        &self,
        visit: impl FnMut(&InnerNode),
    ) -> Result<TreeMatches, TreeError> {
        let transactions = self.num_transactions;
        let (hashes, bits) = (self.hashes.len(), self.flags.len() * 8);
        if transactions == 0 {
            return Err(TreeError::NoTransactions);
        }
        if transactions > MAX_BLOCK_TRANSACTIONS {
            return Err(TreeError::TooManyTransactions(transactions));
        }
        if hashes > transactions as usize {
            return Err(TreeError::TooManyHashes { hashes, transactions });
        }
        if bits < hashes {
            return Err(TreeError::TooFewBits { bits, hashes });
        }
        let height = height(transactions);
        let mut reader =
            Reader { block: self, bits_used: 0, hashes_used: 0, matches: Vec::new(), visit };
        let root = reader.descend(height, 0)?;
        // As in Core, only whole unused bytes are an error: the bits after the last used one are
        // padding.
        if reader.bits_used.div_ceil(8) != self.flags.len() {
            return Err(TreeError::UnusedBits { used: reader.bits_used, bits });
        }
        if reader.hashes_used != hashes {
            return Err(TreeError::UnusedHashes { used: reader.hashes_used, hashes });
        }
        let root = TxMerkleNode::from_byte_array(root);
        if root != self.header.merkle_root {
            return Err(TreeError::RootMismatch { tree: root, header: self.header.merkle_root });
        }
        Ok(TreeMatches { matches: reader.matches, root, height })
    }
}

struct Reader<'a, V> {
    block: &'a MerkleBlock,
    bits_used: usize,
    hashes_used: usize,
    matches: Vec<(u32, Txid)>,
    visit: V,
}

impl<V: FnMut(&InnerNode)> Reader<'_, V> {
    /// Reads the node at `position` of `level` and returns its hash. Recurses at most 15 levels
    /// deep.
    fn descend(&mut self, level: u32, position: u32) -> Result<[u8; 32], TreeError> {
        let bits = self.block.flags.len() * 8;
        let byte = self.block.flags.get(self.bits_used / 8).ok_or(TreeError::BitsRunOut(bits))?;
        let flag = byte >> (self.bits_used % 8) & 1 != 0;
        self.bits_used += 1;
        if level == 0 || !flag {
            let hash = self.block.hashes.get(self.hashes_used);
            let hash = hash.ok_or(TreeError::HashesRunOut(self.hashes_used))?.to_byte_array();
            self.hashes_used += 1;
            if flag {
                self.matches.push((position, Txid::from_byte_array(hash)));
            }
            return Ok(hash);
        }
        let left = self.descend(level - 1, position * 2)?;
        let right = if position * 2 + 1 < width(self.block.num_transactions, level - 1) {
            let right = self.descend(level - 1, position * 2 + 1)?;
            // Equal children would allow a longer list of txids with the same root (CVE-2012-2459).
            if left == right {
                return Err(TreeError::IdenticalChildren { level, position });
            }
            right
        } else {
            left
        };
        let preimage = preimage(&left, &right);
        (self.visit)(&InnerNode { level, position, preimage });
        Ok(parent(&preimage))
    }
}

/// Reason why the tree of a merkle block is rejected, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The block has no transactions.
    #[error("a block has at least 1 transaction, not 0")]
    NoTransactions,
    /// There are more transactions than a block can have.
    #[error("{0} transactions, the limit is {MAX_BLOCK_TRANSACTIONS}")]
    TooManyTransactions(u32),
    /// There are more hashes than transactions.
    #[error("{hashes} hashes exceed the {transactions} transactions")]
    TooManyHashes {
        /// Number of hashes in the message.
        hashes: usize,
        /// Number of transactions that the peer claims.
        transactions: u32,
    },
    /// There are fewer flag bits than hashes.
    #[error("{bits} flag bits are too few for {hashes} hashes")]
    TooFewBits {
        /// Number of flag bits in the message, including padding.
        bits: usize,
        /// Number of hashes in the message.
        hashes: usize,
    },
    /// The message ends after this many flag bits, but the tree needs more.
    #[error("the tree needs more than {0} flag bits")]
    BitsRunOut(usize),
    /// The message ends after this many hashes, but the tree needs more.
    #[error("the tree needs more than {0} hashes")]
    HashesRunOut(usize),
    /// The two children of a node have the same hash. Such a node allows a longer list of txids
    /// with the same root (CVE-2012-2459).
    #[error("both children of node {position} at level {level} have the same hash")]
    IdenticalChildren {
        /// The parent's level above the txids.
        level: u32,
        /// The parent's position in its level.
        position: u32,
    },
    /// At least one whole byte of flags is not used by the tree.
    #[error("the tree uses {used} of {bits} flag bits")]
    UnusedBits {
        /// Number of flag bits that the tree uses.
        used: usize,
        /// Number of flag bits in the message, including padding.
        bits: usize,
    },
    /// Some hashes are not used by the tree.
    #[error("the tree uses {used} of {hashes} hashes")]
    UnusedHashes {
        /// Number of hashes that the tree uses.
        used: usize,
        /// Number of hashes in the message.
        hashes: usize,
    },
    /// The root of the tree differs from the header's merkle root.
    #[error("the tree's root is {tree}, but the header's root is {header}")]
    RootMismatch {
        /// The root of the tree.
        tree: TxMerkleNode,
        /// The root in the header.
        header: TxMerkleNode,
    },
}
