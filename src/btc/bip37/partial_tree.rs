//! Reading the tree of a `merkleblock`: Bitcoin Core's `CPartialMerkleTree::ExtractMatches` and
//! the comparison of the root that its callers make, each check with an error of its own.

use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{TxMerkleNode, Txid};
use thiserror::Error;

use super::MerkleBlock;
use crate::btc::merkle_tree::{MAX_BLOCK_TRANSACTIONS, height, parent, preimage, width};

/// What the tree of a merkle block says, once it is found well-formed under the header's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeMatches {
    /// The matched leaves: position in the block, and txid.
    pub matches: Vec<(u32, Txid)>,
    /// The merkle root, equal to the header's.
    pub root: TxMerkleNode,
    /// The levels above the txids, by the number of transactions that the peer claims.
    pub height: u32,
}

/// An inner node that reading the tree computed: the level and position, and its two children
/// as they were hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerNode {
    /// Levels above the txids.
    pub level: u32,
    /// Position in the level.
    pub position: u32,
    /// The left child, then the right one.
    pub preimage: [u8; 64],
}

impl MerkleBlock {
    /// Reads the tree and compares its root with the header's.
    ///
    /// Exactly as strict as Bitcoin Core, so padding flags may be set. It proves neither that
    /// the header is of any chain nor that the number of transactions is right: see
    /// [`Proof`](super::Proof).
    ///
    /// # Errors
    /// The first of Core's checks that fails, in the order of [`TreeError`].
    ///
    /// # Cost
    /// One double hash per inner node shown: fewer than the number of hashes, and one for each level
    /// above a match at the end of an uneven tree.
    pub fn extract_matches(&self) -> Result<TreeMatches, TreeError> {
        self.extract_matches_and_nodes(|_| ())
    }

    /// As [`extract_matches`](Self::extract_matches), and hands every inner node to `visit`,
    /// children first, also where a later check fails.
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
    /// The hash of the node at `position` of `level`; at most 15 levels deep.
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

/// Why the tree of a merkle block is refused, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A block without transactions.
    #[error("a block has at least 1 transaction, not 0")]
    NoTransactions,
    /// More transactions than a block can have.
    #[error("{0} transactions, the limit is {MAX_BLOCK_TRANSACTIONS}")]
    TooManyTransactions(u32),
    /// More hashes than transactions.
    #[error("{hashes} hashes for {transactions} transactions")]
    TooManyHashes {
        /// The hashes given.
        hashes: usize,
        /// The transactions claimed.
        transactions: u32,
    },
    /// Fewer flag bits than hashes.
    #[error("{bits} flag bits for {hashes} hashes")]
    TooFewBits {
        /// The bits given, padding included.
        bits: usize,
        /// The hashes given.
        hashes: usize,
    },
    /// The tree goes on after the last of so many flag bits.
    #[error("the tree needs more than {0} flag bits")]
    BitsRunOut(usize),
    /// The tree goes on after the last of so many hashes.
    #[error("the tree needs more than {0} hashes")]
    HashesRunOut(usize),
    /// Two children with one hash, by which a list of txids can be made longer under the same
    /// root (CVE-2012-2459).
    #[error("both children of node {position} at level {level} have one hash")]
    IdenticalChildren {
        /// The parent's level above the txids.
        level: u32,
        /// The parent's position in its level.
        position: u32,
    },
    /// A whole byte of flags or more that the tree does not use.
    #[error("the tree uses {used} of {bits} flag bits")]
    UnusedBits {
        /// The bits used.
        used: usize,
        /// The bits given.
        bits: usize,
    },
    /// Hashes that the tree does not use.
    #[error("the tree uses {used} of {hashes} hashes")]
    UnusedHashes {
        /// The hashes used.
        used: usize,
        /// The hashes given.
        hashes: usize,
    },
    /// A root that is not the header's.
    #[error("the tree's root is {tree}, the header's {header}")]
    RootMismatch {
        /// The root of the tree.
        tree: TxMerkleNode,
        /// The root in the header.
        header: TxMerkleNode,
    },
}
