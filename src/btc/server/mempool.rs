//! Transactions that wait for a block.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::collections::{HashMap, HashSet};

use bitcoin::{OutPoint, Transaction, TxIn, Txid, Wtxid};
use thiserror::Error;

/// The most transactions of peers that a mempool keeps.
pub const MAX_ACCEPTED: usize = 10_000;
/// The most bytes of transactions of peers that a mempool keeps, in their encoding with witnesses.
pub const MAX_ACCEPTED_BYTES: usize = 64 << 20;
/// The heaviest transaction of a peer that a mempool keeps (`policy/policy.h`,
/// `MAX_STANDARD_TX_WEIGHT`).
pub const MAX_ACCEPTED_WEIGHT: u64 = 400_000;

/// The transactions of a node that no block has yet.
///
/// It has two sources: the operator, who gives any transactions and replaces them as a whole, and
/// peers, whose transactions are bounded and checked as far as
/// [`ServedChain::add_transaction`](super::ServedChain::add_transaction) says. Which of them may
/// still come into a block depends on the chain: the others are kept, and come back when the block
/// that has them, or that conflicts with them, leaves the chain.
#[derive(Debug, Default)]
pub struct Mempool {
    all: BTreeMap<Txid, Entry>,
    wtxids: HashMap<Wtxid, Txid>,
    /// Those that may still come into a block, parents before their children, so that a filter
    /// which takes up a parent's outputs sees the child after it.
    open: Vec<Txid>,
    is_open: HashSet<Txid>,
    /// What the open ones spend.
    spent: HashMap<OutPoint, Txid>,
    accepted: Accepted,
}

#[derive(Debug)]
struct Entry {
    tx: Arc<Transaction>,
    is_accepted: bool,
}

/// How much peers have filled.
#[derive(Debug, Default, Clone, Copy)]
struct Accepted {
    count: usize,
    bytes: usize,
}

impl Accepted {
    fn add(&mut self, tx: &Transaction) {
        self.count += 1;
        self.bytes += tx.total_size();
    }

    fn remove(&mut self, tx: &Transaction) {
        self.count -= 1;
        self.bytes -= tx.total_size();
    }
}

impl Mempool {
    /// Those that may still come into a block, parents first.
    pub fn iter(&self) -> impl Iterator<Item = (Txid, &Arc<Transaction>)> {
        self.open.iter().filter_map(|txid| Some((*txid, &self.all.get(txid)?.tx)))
    }

    /// The number of transactions that may still come into a block.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns `true` if no transaction may still come into a block.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns `true` if this transaction may still come into a block.
    pub fn contains(&self, txid: &Txid) -> bool {
        self.is_open.contains(txid)
    }

    /// A transaction that may still come into a block.
    pub fn get(&self, txid: &Txid) -> Option<&Arc<Transaction>> {
        self.is_open.get(txid).and_then(|txid| self.all.get(txid)).map(|entry| &entry.tx)
    }

    /// A transaction that may still come into a block, by the id that commits to its witnesses.
    pub fn get_by_wtxid(&self, wtxid: &Wtxid) -> Option<&Arc<Transaction>> {
        self.get(self.wtxids.get(wtxid)?)
    }

    /// Replaces the operator's transactions; [`settle`](Self::settle) is to follow.
    pub(super) fn set_given(&mut self, transactions: impl IntoIterator<Item = Arc<Transaction>>) {
        self.drop_where(|_, entry| !entry.is_accepted);
        for tx in transactions {
            // What the operator gives has no limit, and stays until it is taken back.
            self.insert(tx.compute_txid(), Entry { tx, is_accepted: false });
        }
    }

    /// Adds a peer's transaction, of which the chain has found nothing against it: `has_output`
    /// says whether the chain has an output.
    pub(super) fn accept(
        &mut self,
        tx: Arc<Transaction>,
        has_output: impl Fn(&OutPoint) -> bool,
    ) -> Result<(), TransactionError> {
        let txid = tx.compute_txid();
        if self.contains(&txid) {
            return Err(TransactionError::AlreadyThere(txid));
        }
        let weight = tx.weight().to_wu();
        if weight > MAX_ACCEPTED_WEIGHT {
            return Err(TransactionError::TooHeavy(weight));
        }
        for TxIn { previous_output: outpoint, .. } in &tx.input {
            if let Some(by) = self.spent.get(outpoint) {
                return Err(TransactionError::Spent { outpoint: *outpoint, by: *by });
            }
            let parent = self.get(&outpoint.txid);
            let has_parent = parent.is_some_and(|tx| tx.output.len() > outpoint.vout as usize);
            if !has_parent && !has_output(outpoint) {
                return Err(TransactionError::MissingInput(*outpoint));
            }
        }
        if !self.has_room(&tx) {
            // Those in blocks, or in conflict with one, are kept for a reorganisation alone.
            self.drop_settled();
        }
        if !self.has_room(&tx) {
            return Err(TransactionError::Full(self.accepted.count));
        }
        self.spent.extend(tx.input.iter().map(|input| (input.previous_output, txid)));
        // Its parents are open already, so that it comes after them.
        self.open.push(txid);
        self.is_open.insert(txid);
        self.insert(txid, Entry { tx, is_accepted: true });
        Ok(())
    }

    fn insert(&mut self, txid: Txid, entry: Entry) {
        let wtxid = entry.tx.compute_wtxid();
        if entry.is_accepted {
            self.accepted.add(&entry.tx);
        }
        if let Some(before) = self.all.insert(txid, entry) {
            // It may be the same transaction with another witness.
            self.wtxids.remove(&before.tx.compute_wtxid());
            if before.is_accepted {
                self.accepted.remove(&before.tx);
            }
        }
        self.wtxids.insert(wtxid, txid);
    }

    fn has_room(&self, tx: &Transaction) -> bool {
        self.accepted.count < MAX_ACCEPTED
            && self.accepted.bytes + tx.total_size() <= MAX_ACCEPTED_BYTES
    }

    /// Drops the transactions of peers that cannot come into a block.
    fn drop_settled(&mut self) {
        let open = core::mem::take(&mut self.is_open);
        self.drop_where(|txid, entry| entry.is_accepted && !open.contains(txid));
        self.is_open = open;
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&Txid, &Entry) -> bool) {
        let (wtxids, accepted) = (&mut self.wtxids, &mut self.accepted);
        self.all.retain(|txid, entry| {
            let stays = !is_dropped(txid, entry);
            if !stays {
                wtxids.remove(&entry.tx.compute_wtxid());
                if entry.is_accepted {
                    accepted.remove(&entry.tx);
                }
            }
            stays
        });
    }

    /// Finds those that may still come into a block: no block has them, none spends what they
    /// spend, and the same holds for their parents except that a block may have these.
    pub(super) fn settle(&mut self, spent: &HashMap<OutPoint, Txid>) {
        self.open.clear();
        self.is_open.clear();
        self.spent.clear();
        let mut lost = HashSet::new();
        let mut visited = HashSet::new();
        for &txid in self.all.keys() {
            // A stack of its own: the chain of parents may be long.
            let mut stack = vec![(txid, false)];
            while let Some((txid, parents_done)) = stack.pop() {
                let Some(Entry { tx, .. }) = self.all.get(&txid) else { continue };
                if !parents_done {
                    if visited.insert(txid) {
                        stack.push((txid, true));
                        stack.extend(
                            tx.input.iter().map(|input| (input.previous_output.txid, false)),
                        );
                    }
                    continue;
                }
                let spenders = tx.input.iter().map(|input| spent.get(&input.previous_output));
                let has_lost_parent =
                    tx.input.iter().any(|input| lost.contains(&input.previous_output.txid));
                if spenders.clone().flatten().any(|spender| *spender == txid) {
                    continue;
                }
                if tx.is_coinbase() || has_lost_parent || spenders.flatten().next().is_some() {
                    lost.insert(txid);
                } else {
                    self.open.push(txid);
                    self.is_open.insert(txid);
                    self.spent.extend(tx.input.iter().map(|input| (input.previous_output, txid)));
                }
            }
        }
    }
}

/// Why a transaction of a peer is not added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// No inputs or no outputs.
    #[error("a transaction without inputs or without outputs")]
    Empty,
    /// A coinbase transaction, which comes with its block only.
    #[error("a coinbase transaction outside of a block")]
    Coinbase,
    /// The mempool has it.
    #[error("transaction {0} is in the mempool already")]
    AlreadyThere(Txid),
    /// A block of the active chain has it.
    #[error("transaction {0} is in a block already")]
    InBlock(Txid),
    /// Heavier than what nodes relay.
    #[error("a transaction of {0} weight units, the limit is {MAX_ACCEPTED_WEIGHT}")]
    TooHeavy(u64),
    /// An input that neither a block nor the mempool has.
    #[error("output {0}, which it spends, is not known")]
    MissingInput(OutPoint),
    /// An input that another transaction spends, in a block or in the mempool.
    #[error("output {outpoint}, which it spends, is spent by {by}")]
    Spent {
        /// The output.
        outpoint: OutPoint,
        /// The transaction that spends it already.
        by: Txid,
    },
    /// No room for more transactions of peers.
    #[error(
        "{0} transactions of peers are there, the limits are {MAX_ACCEPTED} and \
         {MAX_ACCEPTED_BYTES} bytes"
    )]
    Full(usize),
}
