//! What happened to the head: blocks that joined the chain, and blocks that left it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chainsieve::alloy_primitives::B256;
use tokio::sync::watch;

pub(super) use crate::proven::BlockHeader;

/// Number of blocks of which the journal knows that they joined or left the chain.
const CAPACITY: usize = 4096;

/// A change of the chain, of a block that is or was part of it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) block: Arc<BlockHeader>,
    /// `true` if the block left the chain.
    pub(super) removed: bool,
}

/// The newest changes, each with a number. Filters and subscriptions read them from their own place.
#[derive(Debug)]
pub(super) struct Journal {
    state: Mutex<State>,
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    changes: VecDeque<Change>,
    /// Number of the first change.
    first: u64,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), next: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next change.
    pub(super) fn next(&self) -> u64 {
        *self.next.borrow()
    }

    /// Returns a receiver that is woken by each change, and when the journal is dropped.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// Notes that blocks left the chain, the highest first, and that others joined it. With `gap`,
    /// blocks in between are missing: whoever reads from an earlier place has missed something.
    pub(super) fn push(&self, removed: &[B256], added: Vec<Arc<BlockHeader>>, gap: bool) {
        let mut state = self.state();
        // Of a block that the journal does not know, nobody can be told.
        let is_forgotten = |hash: &B256| !state.changes.iter().any(|it| it.block.at.hash == *hash);
        let gap = gap || removed.iter().any(is_forgotten);
        if gap {
            state.first += state.changes.len() as u64 + 1;
            state.changes.clear();
        }
        for hash in removed {
            let is_it = |change: &&Change| !change.removed && change.block.at.hash == *hash;
            if let Some(known) = state.changes.iter().rev().find(is_it) {
                let block = Arc::clone(&known.block);
                state.changes.push_back(Change { block, removed: true });
            }
        }
        let added = added.into_iter().map(|block| Change { block, removed: false });
        state.changes.extend(added);
        while state.changes.len() > CAPACITY {
            state.changes.pop_front();
            state.first += 1;
        }
        let next = state.first + state.changes.len() as u64;
        drop(state);
        self.next.send_replace(next);
    }

    /// Returns the changes from this number on, and the number of the next one; `None` if some of them
    /// are no longer known.
    pub(super) fn since(&self, number: u64) -> Option<(Vec<Change>, u64)> {
        let state = self.state();
        let skipped = usize::try_from(number.checked_sub(state.first)?).ok()?;
        let changes = state.changes.iter().skip(skipped).cloned().collect();
        Some((changes, state.first + state.changes.len() as u64))
    }

    /// Returns the header of a block that joined the chain not long ago.
    pub(super) fn header(&self, hash: B256) -> Option<Arc<BlockHeader>> {
        let state = self.state();
        let mut known = state.changes.iter().rev();
        known.find(|change| change.block.at.hash == hash).map(|change| Arc::clone(&change.block))
    }
}
