//! Cache of recently received transactions, which can replace a transaction that a block's answer
//! lacks.

use alloc::collections::{BTreeMap, VecDeque};

use bitcoin::{Transaction, Txid};

/// State of a cached transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The transaction was received outside of a block, and was not known to be the wallet's.
    Foreign,
    /// The transaction was reported as unconfirmed.
    Reported,
    /// The transaction was received with a block.
    InBlock {
        /// Height of the block.
        height: u32,
        /// `true` if the transaction was the wallet's and was reported.
        reported: bool,
    },
    /// The block that contained the transaction has left the chain.
    Dropped,
}

impl Standing {
    /// Returns `true` if the transaction was already reported as the wallet's.
    pub(super) fn is_reported(self) -> bool {
        matches!(self, Self::Reported | Self::InBlock { reported: true, .. })
    }
}

/// Received transactions; the oldest is dropped first.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    max_bytes: usize,
    by_txid: BTreeMap<Txid, (Transaction, Standing)>,
    order: VecDeque<(Txid, usize)>,
    bytes: usize,
}

impl Recent {
    /// Returns an empty cache for at most `max_bytes` of transactions.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, by_txid: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn get(&self, txid: &Txid) -> Option<&Transaction> {
        self.by_txid.get(txid).map(|(tx, _)| tx)
    }

    pub(super) fn standing(&self, txid: &Txid) -> Option<Standing> {
        self.by_txid.get(txid).map(|&(_, standing)| standing)
    }

    /// Stores `tx`, or changes its state if it is stored already.
    pub(super) fn insert(&mut self, txid: Txid, tx: &Transaction, standing: Standing) {
        if let Some((_, known)) = self.by_txid.get_mut(&txid) {
            *known = standing;
            return;
        }
        // In memory, a transaction needs at most a few times its size. Because 200 bytes are added
        // to each size, the number of small transactions is bounded too.
        let size = tx.base_size() + 200;
        // A transaction larger than the cache would only evict all other transactions.
        if size > self.max_bytes {
            return;
        }
        self.by_txid.insert(txid, (tx.clone(), standing));
        self.order.push_back((txid, size));
        self.bytes += size;
        // Without this limit, a node could fill the memory: it may send any number of transactions.
        while self.bytes > self.max_bytes {
            let Some((oldest, size)) = self.order.pop_front() else { break };
            self.by_txid.remove(&oldest);
            self.bytes -= size;
        }
    }

    /// Returns the transactions that may turn out to be the wallet's, oldest first.
    pub(super) fn foreign(&self) -> impl Iterator<Item = (Txid, &Transaction)> {
        self.order.iter().filter_map(|(txid, _)| match self.by_txid.get(txid) {
            Some((tx, Standing::Foreign)) => Some((*txid, tx)),
            _ => None,
        })
    }

    /// Marks transactions of blocks from `from` on, because these blocks have left the chain.
    pub(super) fn reorganize(&mut self, from: u32) {
        for (_, standing) in self.by_txid.values_mut() {
            if matches!(standing, Standing::InBlock { height, .. } if *height >= from) {
                *standing = Standing::Dropped;
            }
        }
    }
}
