//! A merkle block whose transactions are being received.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bitcoin::{Transaction, Txid};

use super::event::Finding;
use super::request::Request;
use crate::btc::bip37::{Proof, ProofError};

/// Largest total size of a block's transactions without witnesses, in bytes: a quarter of
/// `MAX_BLOCK_WEIGHT`.
const MAX_BLOCK_BASE_SIZE: usize = 1_000_000;

/// A merkle block whose transactions are being received.
#[derive(Debug, Clone)]
pub(super) struct OpenBlock {
    request: Request,
    proof: Proof,
    /// The delivered transactions and their txids, by position in the block.
    delivered: BTreeMap<u32, (Txid, Transaction)>,
    /// Transactions that were delivered and ignored.
    refused: BTreeSet<Txid>,
    /// Total size of the delivered transactions in bytes.
    bytes: usize,
}

/// Relation of a transaction to the tree of an open block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The transaction is matched and was not delivered yet.
    Awaited,
    /// The transaction is matched and was delivered.
    Came,
    /// The tree does not contain the transaction.
    Absent,
}

/// Result of delivering a transaction to an open block.
pub(super) enum Delivery {
    Taken,
    /// This transaction is ignored; the block stays open.
    Refused(Finding),
    /// The block must be dropped, because the answer is invalid.
    Impossible(Finding),
}

impl OpenBlock {
    pub(super) fn new(request: Request, proof: Proof) -> Self {
        Self { request, proof, delivered: BTreeMap::new(), refused: BTreeSet::new(), bytes: 0 }
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

    /// Adds a transaction of the tree.
    pub(super) fn deliver(&mut self, txid: Txid, tx: Transaction) -> Delivery {
        let block = self.proof.block_hash;
        match self.proof.deliver(&tx) {
            Ok(Some(index)) => {
                self.bytes += tx.base_size();
                self.delivered.insert(index, (txid, tx));
            }
            Ok(None) => {}
            // The txid may be an inner node of the tree. An honest node sends such a transaction if
            // a miner has put it into a block, so the other transactions are still accepted.
            Err(ProofError::TransactionOf64Bytes { index, txid }) => {
                self.refused.insert(txid);
                return Delivery::Refused(Finding::Refused { block, index, txid });
            }
            Err(error) => {
                return Delivery::Impossible(Finding::InvalidMerkleBlock(block, error));
            }
        }
        // Without this limit, a lying node could fill the memory with transactions.
        if self.bytes > MAX_BLOCK_BASE_SIZE {
            return Delivery::Impossible(Finding::OversizedBlock(block));
        }
        Delivery::Taken
    }

    /// Returns `true` if all transactions of the tree have been delivered.
    pub(super) fn is_complete(&self) -> bool {
        self.delivered.len() + self.refused.len() == self.proof.inclusions.len()
    }

    /// Returns the transactions of the tree that were not delivered: position and txid.
    pub(super) fn outstanding(&self) -> Vec<(u32, Txid)> {
        let leaves = self.proof.inclusions.iter();
        let outstanding =
            leaves.filter(|leaf| !leaf.delivered && !self.refused.contains(&leaf.txid));
        outstanding.map(|leaf| (leaf.index, leaf.txid)).collect()
    }

    /// Returns the delivered transactions, in block order.
    pub(super) fn transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.delivered.values().map(|(_, tx)| tx)
    }

    /// Returns the proof and the delivered transactions with their txids, by position in the block.
    pub(super) fn into_parts(self) -> (Proof, BTreeMap<u32, (Txid, Transaction)>) {
        (self.proof, self.delivered)
    }
}
