//! The followed blocks, and the known logs of each block.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bloom};

use crate::eth::header::BlockRef;
use crate::eth::log::LocatedLog;

/// Number of dropped blocks whose hashes are kept, so that an anchor can still be compared with
/// them. On Ethereum, this is about 3.4 hours: a light client may learn of a finalised block later
/// than the provider, and the provider's claim of finality drops all blocks before it. 40 KB.
const COMPARABLE: usize = 1024;

/// A block of the followed chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) at: BlockRef,
    pub(super) work: Work,
    /// `true` if an earlier run may have delivered the block, but was killed before it could store
    /// the acknowledgement.
    pub(super) unsure: bool,
}

/// State of a block's logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// The logs are still to be read from receipts.
    Wanted(Box<Wanted>),
    /// All matching logs of the block, at least one. The hashes of their transactions are still to
    /// be proven by the block's transactions, which have this root.
    Unbound { transactions_root: B256, logs: Vec<LocatedLog> },
    /// All matching logs of the block.
    Logs(Vec<LocatedLog>),
}

/// Header fields against which the receipts of a block are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) receipts_root: B256,
    pub(super) transactions_root: B256,
    /// The header's filter; all ones if its length is not 256 bytes.
    pub(super) bloom: Bloom,
    pub(super) timestamp: u64,
    /// Estimated length of the receipts in JSON, in bytes.
    pub(super) cost: u64,
}

impl Block {
    /// Returns a block without matching logs.
    pub(super) fn without_logs(at: BlockRef) -> Self {
        Self { at, work: Work::Logs(Vec::new()), unsure: false }
    }

    pub(super) fn logs(&self) -> &[LocatedLog] {
        match &self.work {
            Work::Unbound { logs, .. } | Work::Logs(logs) => logs,
            Work::Wanted(_) => &[],
        }
    }

    /// Returns `true` if nothing further is needed to deliver the block's logs.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.work, Work::Logs(_))
    }
}

/// The followed blocks in ascending order: first the delivered blocks, then the pending blocks.
///
/// Each block is the parent of the next block, except in the range of an index, where blocks that
/// are not candidates are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    all: VecDeque<Block>,
    delivered: usize,
    /// `true` if blocks before the first block of `all` were dropped. A reorganisation of dropped
    /// blocks cannot be followed.
    pub(super) has_dropped: bool,
    /// The last dropped blocks, in ascending order.
    dropped: VecDeque<BlockRef>,
}

impl Blocks {
    /// Restores the blocks of an earlier run.
    pub(super) fn of(blocks: Vec<Block>, delivered: usize, has_dropped: bool) -> Self {
        let delivered = delivered.min(blocks.len());
        Self { all: blocks.into(), delivered, has_dropped, dropped: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn first(&self) -> Option<BlockRef> {
        self.all.front().map(|block| block.at)
    }

    pub(super) fn last(&self) -> Option<BlockRef> {
        self.all.back().map(|block| block.at)
    }

    pub(super) fn last_delivered(&self) -> Option<BlockRef> {
        let last = self.delivered.checked_sub(1)?;
        self.all.get(last).map(|block| block.at)
    }

    pub(super) fn delivered(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.all.range(..self.delivered)
    }

    pub(super) fn pending(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.all.range(self.delivered..)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Block> {
        self.all.get(self.index(number)?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Block> {
        let index = self.index(number)?;
        self.all.get_mut(index)
    }

    /// Returns the block with this number, kept or recently dropped.
    pub(super) fn at(&self, number: u64) -> Option<BlockRef> {
        let dropped = || {
            let index = self.dropped.binary_search_by_key(&number, |block| block.number).ok()?;
            self.dropped.get(index).copied()
        };
        self.get(number).map(|block| block.at).or_else(dropped)
    }

    /// Returns the block with this hash, kept or recently dropped.
    pub(super) fn find(&self, hash: B256) -> Option<BlockRef> {
        // The block is most often a recent one.
        let kept = self.all.iter().rev().map(|block| block.at);
        kept.chain(self.dropped.iter().rev().copied()).find(|at| at.hash == hash)
    }

    pub(super) fn has(&self, at: BlockRef) -> bool {
        self.get(at.number).is_some_and(|block| block.at == at)
    }

    fn index(&self, number: u64) -> Option<usize> {
        // Fast path: without an index no block is left out, so the number of a block determines its
        // position.
        let at = usize::try_from(number.checked_sub(self.first()?.number)?).ok()?;
        if self.all.get(at).is_some_and(|block| block.at.number == number) {
            return Some(at);
        }
        self.all.binary_search_by_key(&number, |block| block.at.number).ok()
    }

    pub(super) fn push(&mut self, block: Block) {
        self.all.push_back(block);
    }

    /// Marks the first `count` pending blocks as delivered. Keeps the last `keep` delivered blocks,
    /// and the block before them: a branch that replaces all of the `keep` blocks starts from that
    /// block.
    pub(super) fn deliver(&mut self, count: usize, keep: usize) {
        for block in self.all.range_mut(self.delivered..).take(count) {
            block.unsure = false;
        }
        self.delivered = (self.delivered + count).min(self.all.len());
        while self.delivered > keep.saturating_add(1) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(block) = self.all.pop_front() {
            if self.dropped.len() >= COMPARABLE {
                self.dropped.pop_front();
            }
            self.dropped.push_back(block.at);
        }
        self.delivered = self.delivered.saturating_sub(1);
        self.has_dropped = true;
    }

    /// Drops the delivered blocks before block `number`: these blocks cannot be reorganised any
    /// more.
    pub(super) fn finalize(&mut self, number: u64) {
        while self.first().is_some_and(|first| first.number < number) && self.delivered > 1 {
            self.drop_first();
        }
        if let Some(first) = self.all.front_mut().filter(|first| first.at.number <= number) {
            // The logs of a final block are never removed again, so they need not be stored.
            first.work = Work::Logs(Vec::new());
            self.has_dropped = true;
        }
    }

    /// Removes the blocks after `ancestor`, or all blocks if `ancestor` is `None`. Returns those
    /// removed blocks that were delivered or may have been delivered, the highest first.
    pub(super) fn cut(&mut self, ancestor: Option<u64>) -> Vec<Block> {
        let kept = ancestor.and_then(|number| self.index(number)).map_or(0, |index| index + 1);
        let delivered = self.delivered;
        self.delivered = delivered.min(kept);
        let mut off: Vec<_> = self.all.drain(kept.min(self.all.len())..).collect();
        let were_delivered = delivered.saturating_sub(kept);
        let mut index = 0;
        off.retain(|block| {
            index += 1;
            index <= were_delivered || block.unsure
        });
        off.reverse();
        off
    }
}
