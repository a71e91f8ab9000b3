//! Transactions that are kept for a while, to stand in for one in a block.

use alloc::collections::{BTreeMap, VecDeque};

use bitcoin::{Transaction, Txid};

/// What is known of a transaction that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It came outside of a block, and was not the wallet's as far as was known.
    Foreign,
    /// It was reported as unconfirmed.
    Reported,
    /// It came with a block of this height, and was reported if it was the wallet's.
    InBlock {
        /// The height.
        height: u32,
        /// Whether it was.
        reported: bool,
    },
    /// The chain has dropped the block that it came with.
    Dropped,
}

impl Standing {
    /// Whether it is known to be the wallet's, and nothing is left to say.
    pub(super) fn is_reported(self) -> bool {
        matches!(self, Self::Reported | Self::InBlock { reported: true, .. })
    }
}

/// Transactions that came, the oldest dropped first.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    max_bytes: usize,
    by_txid: BTreeMap<Txid, (Transaction, Standing)>,
    order: VecDeque<(Txid, usize)>,
    bytes: usize,
}

impl Recent {
    /// At most `max_bytes` of transactions, as they take up memory.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, by_txid: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn get(&self, txid: &Txid) -> Option<&Transaction> {
        self.by_txid.get(txid).map(|(tx, _)| tx)
    }

    pub(super) fn standing(&self, txid: &Txid) -> Option<Standing> {
        self.by_txid.get(txid).map(|&(_, standing)| standing)
    }

    /// Keeps `tx`, or changes its standing if it is kept.
    pub(super) fn insert(&mut self, txid: Txid, tx: &Transaction, standing: Standing) {
        if let Some((_, known)) = self.by_txid.get_mut(&txid) {
            *known = standing;
            return;
        }
        // What a transaction takes in memory is at most a few times its size; an empty one counts
        // too.
        let size = tx.base_size() + 200;
        if size > self.max_bytes {
            return;
        }
        self.by_txid.insert(txid, (tx.clone(), standing));
        self.order.push_back((txid, size));
        self.bytes += size;
        while self.bytes > self.max_bytes {
            let Some((oldest, size)) = self.order.pop_front() else { break };
            self.by_txid.remove(&oldest);
            self.bytes -= size;
        }
    }

    /// Those that may turn out to be the wallet's, the oldest first.
    pub(super) fn foreign(&self) -> impl Iterator<Item = (Txid, &Transaction)> {
        self.order.iter().filter_map(|(txid, _)| match self.by_txid.get(txid) {
            Some((tx, Standing::Foreign)) => Some((*txid, tx)),
            _ => None,
        })
    }

    /// The chain has changed from `from` on.
    pub(super) fn reorganize(&mut self, from: u32) {
        for (_, standing) in self.by_txid.values_mut() {
            if matches!(standing, Standing::InBlock { height, .. } if *height >= from) {
                *standing = Standing::Dropped;
            }
        }
    }
}
