//! A merkle block whose transactions are coming.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bitcoin::{Transaction, Txid};

use super::event::Finding;
use super::request::Request;
use crate::btc::bip37::{BloomFilter, MerkleBlock, Proof, ProofError};

/// The most that the transactions of a block have without witness: a quarter of
/// `MAX_BLOCK_WEIGHT`.
const MAX_BLOCK_BASE_SIZE: usize = 1_000_000;

/// A merkle block whose transactions are coming.
#[derive(Debug, Clone)]
pub(super) struct OpenBlock {
    request: Request,
    merkle_block: MerkleBlock,
    proof: Proof,
    /// By position, with the ids.
    delivered: BTreeMap<u32, (Txid, Transaction)>,
    /// Transactions that came and are passed over.
    refused: BTreeSet<Txid>,
    /// Size of the delivered transactions.
    bytes: usize,
    /// The filter that the answer can be held against.
    held_against: Option<Arc<BloomFilter>>,
}

/// What the tree of an open block has of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// It is matched, and has not come.
    Awaited,
    /// It has come.
    Came,
    /// It is not in the tree.
    Absent,
}

/// What became of a transaction for an open block.
pub(super) enum Delivery {
    Taken,
    /// The transaction alone is passed over.
    Refused(Finding),
    /// The block cannot be what the node says.
    Impossible(Finding),
}

/// An open block's parts, once no more transactions are waited for.
pub(super) struct Parts {
    pub(super) merkle_block: MerkleBlock,
    pub(super) proof: Proof,
    pub(super) transactions: BTreeMap<u32, (Txid, Transaction)>,
    pub(super) held_against: Option<Arc<BloomFilter>>,
}

impl OpenBlock {
    pub(super) fn new(
        request: Request,
        merkle_block: MerkleBlock,
        proof: Proof,
        held_against: Option<Arc<BloomFilter>>,
    ) -> Self {
        Self {
            request,
            merkle_block,
            proof,
            delivered: BTreeMap::new(),
            refused: BTreeSet::new(),
            bytes: 0,
            held_against,
        }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    pub(super) fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    pub(super) fn leaf(&self, txid: Txid) -> Leaf {
        match self.proof.inclusion(txid) {
            None => Leaf::Absent,
            Some(leaf) if leaf.delivered || self.refused.contains(&txid) => Leaf::Came,
            Some(_) => Leaf::Awaited,
        }
    }

    /// Takes a transaction of the tree.
    pub(super) fn deliver(&mut self, txid: Txid, tx: Transaction) -> Delivery {
        let block = self.proof.block_hash;
        match self.proof.deliver(&tx) {
            Ok(Some(index)) => {
                self.bytes += tx.base_size();
                self.delivered.insert(index, (txid, tx));
            }
            Ok(None) => {}
            // It may be an inner node of the tree, and an honest node sends one that a miner has
            // put into a block: the others count.
            Err(ProofError::TransactionOf64Bytes { index, txid }) => {
                self.refused.insert(txid);
                return Delivery::Refused(Finding::Refused { block, index, txid });
            }
            Err(error) => {
                return Delivery::Impossible(Finding::InvalidMerkleBlock(block, error));
            }
        }
        if self.bytes > MAX_BLOCK_BASE_SIZE {
            return Delivery::Impossible(Finding::OversizedBlock(block));
        }
        Delivery::Taken
    }

    /// Whether all transactions of the tree have come.
    pub(super) fn is_complete(&self) -> bool {
        self.delivered.len() + self.refused.len() == self.proof.inclusions.len()
    }

    /// Transactions of the tree that have not come: position and id.
    pub(super) fn outstanding(&self) -> Vec<(u32, Txid)> {
        let leaves = self.proof.inclusions.iter();
        let outstanding =
            leaves.filter(|leaf| !leaf.delivered && !self.refused.contains(&leaf.txid));
        outstanding.map(|leaf| (leaf.index, leaf.txid)).collect()
    }

    /// The transactions that have come, in the order of the block.
    pub(super) fn transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.delivered.values().map(|(_, tx)| tx)
    }

    pub(super) fn into_parts(self) -> Parts {
        let Self { merkle_block, proof, delivered, held_against, .. } = self;
        Parts { merkle_block, proof, transactions: delivered, held_against }
    }
}
