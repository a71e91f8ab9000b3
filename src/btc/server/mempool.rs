//! The mempool: transactions that are in no block yet.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::collections::{HashMap, HashSet};

use bitcoin::{OutPoint, Transaction, TxIn, Txid, Wtxid};
use thiserror::Error;

/// Maximum number of transactions of peers in a mempool.
pub const MAX_ACCEPTED: usize = 10_000;
/// Maximum total size in bytes of the transactions of peers in a mempool, encoded with witnesses.
pub const MAX_ACCEPTED_BYTES: usize = 64 << 20;
/// Maximum weight of a transaction of a peer, in weight units (`policy/policy.h`,
/// `MAX_STANDARD_TX_WEIGHT`).
pub const MAX_ACCEPTED_WEIGHT: u64 = 400_000;

/// The transactions of a node that are in no block yet.
///
/// Transactions come from two sources: the operator and the peers. The operator may add any
/// transactions, and always replaces all transactions of the operator together. The limits and
/// checks of transactions of peers are described at
/// [`ServedChain::add_transaction`](super::ServedChain::add_transaction).
///
/// A transaction is *open* if it may still be mined, which means that it may enter a block of the
/// active chain. Transactions that are not open are kept too. Such a transaction becomes open again
/// if the block that contains it, or that conflicts with it, leaves the chain.
#[derive(Debug, Default)]
pub struct Mempool {
    /// All transactions, open or not.
    all: BTreeMap<Txid, Entry>,
    wtxids: HashMap<Wtxid, Txid>,
    /// The open transactions, parents before their children. In this order, a Bloom filter that
    /// matches a parent can add the parent's outputs first, and then match the child too.
    open: Vec<Txid>,
    /// The txids of `open`, as a set for look-ups.
    is_open: HashSet<Txid>,
    /// The outputs that open transactions spend, each with the spending transaction.
    spent: HashMap<OutPoint, Txid>,
    accepted: Accepted,
}

#[derive(Debug)]
struct Entry {
    tx: Arc<Transaction>,
    /// `true` if the transaction came from a peer.
    is_accepted: bool,
}

/// Number and total size of the transactions of peers.
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
    /// Returns the transactions that may still be mined, parents before their children.
    pub fn iter(&self) -> impl Iterator<Item = (Txid, &Arc<Transaction>)> {
        self.open.iter().filter_map(|txid| Some((*txid, &self.all.get(txid)?.tx)))
    }

    /// Returns the number of transactions that may still be mined.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns `true` if no transaction may still be mined.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns `true` if the mempool has this transaction and it may still be mined.
    pub fn contains(&self, txid: &Txid) -> bool {
        self.is_open.contains(txid)
    }

    /// Returns a transaction that may still be mined, by its txid.
    pub fn get(&self, txid: &Txid) -> Option<&Arc<Transaction>> {
        self.is_open.get(txid).and_then(|txid| self.all.get(txid)).map(|entry| &entry.tx)
    }

    /// Returns a transaction that may still be mined, by its wtxid, which commits to its witnesses.
    pub fn get_by_wtxid(&self, wtxid: &Wtxid) -> Option<&Arc<Transaction>> {
        self.get(self.wtxids.get(wtxid)?)
    }

    /// Replaces the transactions of the operator. The caller must call [`settle`](Self::settle)
    /// next.
    pub(super) fn set_given(&mut self, transactions: impl IntoIterator<Item = Arc<Transaction>>) {
        self.drop_where(|_, entry| !entry.is_accepted);
        for tx in transactions {
            // Transactions of the operator have no limit and stay until the operator replaces them.
            self.insert(tx.compute_txid(), Entry { tx, is_accepted: false });
        }
    }

    /// Adds a transaction of a peer. The caller has already checked that no transaction of the
    /// chain spends the same outputs. `has_output` returns `true` if the chain has the given output.
    ///
    /// # Errors
    /// [`TransactionError`] if the transaction is known, is too heavy, or spends an unknown or
    /// spent output, or if the mempool is full.
    pub(super) fn accept(
        &mut self,
        tx: Arc<Transaction>,
        has_output: impl Fn(&OutPoint) -> bool,
    ) -> Result<(), TransactionError> {
        let txid = tx.compute_txid();
        // A second copy would be listed and announced twice.
        if self.contains(&txid) {
            return Err(TransactionError::AlreadyThere(txid));
        }
        let weight = tx.weight().to_wu();
        if weight > MAX_ACCEPTED_WEIGHT {
            return Err(TransactionError::TooHeavy(weight));
        }
        for TxIn { previous_output: outpoint, .. } in &tx.input {
            // Transactions are not replaced (BIP125): the first one stays.
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
            // Transactions that are not open are only needed after a reorganisation, so they are
            // dropped first.
            self.drop_settled();
        }
        if !self.has_room(&tx) {
            return Err(TransactionError::Full(self.accepted.count));
        }
        self.spent.extend(tx.input.iter().map(|input| (input.previous_output, txid)));
        // The parents of the transaction are in the list already, so the transaction comes after
        // them.
        self.open.push(txid);
        self.is_open.insert(txid);
        self.insert(txid, Entry { tx, is_accepted: true });
        Ok(())
    }

    fn insert(&mut self, txid: Txid, entry: Entry) {
        let wtxid = entry.tx.compute_wtxid();
        // The limits apply to transactions of peers only: peers could otherwise fill the memory.
        // The operator decides how many transactions of the operator are added.
        if entry.is_accepted {
            self.accepted.add(&entry.tx);
        }
        if let Some(before) = self.all.insert(txid, entry) {
            // The replaced transaction may have another witness, so its wtxid must be removed.
            self.wtxids.remove(&before.tx.compute_wtxid());
            if before.is_accepted {
                self.accepted.remove(&before.tx);
            }
        }
        self.wtxids.insert(wtxid, txid);
    }

    /// Returns `true` if the limits on transactions of peers allow one more transaction.
    fn has_room(&self, tx: &Transaction) -> bool {
        self.accepted.count < MAX_ACCEPTED
            && self.accepted.bytes + tx.total_size() <= MAX_ACCEPTED_BYTES
    }

    /// Drops the transactions of peers that are not open.
    fn drop_settled(&mut self) {
        let open = core::mem::take(&mut self.is_open);
        self.drop_where(|txid, entry| entry.is_accepted && !open.contains(txid));
        self.is_open = open;
    }

    /// Drops the transactions for which `is_dropped` returns `true`.
    fn drop_where(&mut self, is_dropped: impl Fn(&Txid, &Entry) -> bool) {
        let (wtxids, accepted) = (&mut self.wtxids, &mut self.accepted);
        self.all.retain(|txid, entry| {
            let stays = !is_dropped(txid, entry);
            // `wtxids` and `accepted` must always match `all`.
            if !stays {
                wtxids.remove(&entry.tx.compute_wtxid());
                if entry.is_accepted {
                    accepted.remove(&entry.tx);
                }
            }
            stays
        });
    }

    /// Determines the open transactions from the outputs that the active chain spends.
    ///
    /// A transaction is open if no block contains it, no other transaction in a block spends the
    /// same outputs, and each of its parents in the mempool is open or in a block.
    pub(super) fn settle(&mut self, spent: &HashMap<OutPoint, Txid>) {
        self.open.clear();
        self.is_open.clear();
        self.spent.clear();
        let mut lost = HashSet::new();
        let mut visited = HashSet::new();
        for &txid in self.all.keys() {
            // This is an explicit stack instead of recursion, since the chain of parents may be
            // long.
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
                // A block of the active chain contains the transaction. The transaction's children
                // may still be open.
                if spenders.clone().flatten().any(|spender| *spender == txid) {
                    continue;
                }
                // A coinbase transaction is valid only in its own block. The two conditions after
                // `is_coinbase` test whether the transaction conflicts with a block, or has a
                // parent with such a conflict.
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

/// Reason why a transaction of a peer is not added to the mempool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The transaction has no inputs or no outputs.
    #[error("a transaction without inputs or without outputs")]
    Empty,
    /// The transaction is a coinbase, which is valid only in its block.
    #[error("a coinbase transaction outside of a block")]
    Coinbase,
    /// The transaction is in the mempool already.
    #[error("transaction {0} is in the mempool already")]
    AlreadyThere(Txid),
    /// The transaction is in a block of the active chain already.
    #[error("transaction {0} is in a block already")]
    InBlock(Txid),
    /// The transaction is heavier than the transactions that nodes relay.
    #[error("a transaction of {0} weight units, the limit is {MAX_ACCEPTED_WEIGHT}")]
    TooHeavy(u64),
    /// The transaction spends an output that neither a block nor the mempool contains.
    #[error("the transaction spends the unknown output {0}")]
    MissingInput(OutPoint),
    /// The transaction spends an output that another transaction already spends, in a block or in
    /// the mempool.
    #[error("the transaction spends output {outpoint}, which {by} already spends")]
    Spent {
        /// The spent output.
        outpoint: OutPoint,
        /// The transaction that already spends the output.
        by: Txid,
    },
    /// The limits on transactions of peers are reached.
    #[error(
        "the mempool is full with {0} transactions of peers, the limits are {MAX_ACCEPTED} \
         transactions and {MAX_ACCEPTED_BYTES} bytes"
    )]
    Full(usize),
}
