//! Transactions that wait for a block.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chainsieve::bitcoin::{OutPoint, Transaction, Txid, Wtxid};

/// The transactions of the folder, and which of them may still come into a block.
#[derive(Debug, Default)]
pub(super) struct Pool {
    all: BTreeMap<Txid, Arc<Transaction>>,
    wtxids: HashMap<Wtxid, Txid>,
    /// Those that may still come into a block, parents before their children, so that a filter
    /// which takes up a parent's outputs sees the child after it.
    open: Vec<Txid>,
    is_open: HashSet<Txid>,
}

impl Pool {
    /// All transactions of the folder. None is open before [`settle`](Self::settle).
    pub(super) fn new(transactions: impl IntoIterator<Item = Arc<Transaction>>) -> Self {
        let mut pool = Self::default();
        for tx in transactions {
            let txid = tx.compute_txid();
            pool.wtxids.insert(tx.compute_wtxid(), txid);
            pool.all.insert(txid, tx);
        }
        pool
    }

    /// Finds those that may still come into a block: no block has them, none spends what they
    /// spend, and the same holds for their parents but that a block may have these.
    pub(super) fn settle(&mut self, spent: &HashMap<OutPoint, Txid>) {
        self.open.clear();
        self.is_open.clear();
        let mut lost = HashSet::new();
        let mut visited = HashSet::new();
        for &txid in self.all.keys() {
            // A stack of its own: the chain of parents may be long.
            let mut stack = vec![(txid, false)];
            while let Some((txid, parents_done)) = stack.pop() {
                let Some(tx) = self.all.get(&txid) else { continue };
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
                }
            }
        }
    }

    /// Those that may still come into a block, parents first.
    pub(super) fn open(&self) -> impl Iterator<Item = (Txid, &Arc<Transaction>)> {
        self.open.iter().filter_map(|txid| Some((*txid, self.all.get(txid)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn contains(&self, txid: &Txid) -> bool {
        self.is_open.contains(txid)
    }

    pub(super) fn get(&self, txid: &Txid) -> Option<&Arc<Transaction>> {
        self.is_open.get(txid).and_then(|txid| self.all.get(txid))
    }

    pub(super) fn get_by_wtxid(&self, wtxid: &Wtxid) -> Option<&Arc<Transaction>> {
        self.get(self.wtxids.get(wtxid)?)
    }
}
