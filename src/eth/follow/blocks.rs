//! The blocks that are followed, and what is known of each.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bloom};

use crate::eth::header::BlockRef;
use crate::eth::log::LocatedLog;

/// A block of the chain that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) at: BlockRef,
    pub(super) work: Work,
    /// Whether an earlier run may have delivered it, and was killed before that was stored.
    pub(super) unsure: bool,
}

/// What is known of the logs of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// To be read out of receipts.
    Wanted(Box<Wanted>),
    /// These match, and no other.
    Logs(Vec<LocatedLog>),
}

/// What receipts of a block are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) receipts_root: B256,
    /// All ones if the header's has not 256 bytes.
    pub(super) bloom: Bloom,
    pub(super) timestamp: u64,
    /// Bytes that they are estimated to have in JSON.
    pub(super) cost: u64,
}

impl Block {
    /// A block without a log that matches.
    pub(super) fn without_logs(at: BlockRef) -> Self {
        Self { at, work: Work::Logs(Vec::new()), unsure: false }
    }

    pub(super) fn logs(&self) -> &[LocatedLog] {
        match &self.work {
            Work::Logs(logs) => logs,
            Work::Wanted(_) => &[],
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.work, Work::Wanted(_))
    }
}

/// Blocks in order, each the parent of the next, except that blocks without a log are left out where
/// an index says which those are. Delivered blocks come first, pending ones after them.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    all: VecDeque<Block>,
    delivered: usize,
    /// Whether blocks below the first were dropped: a reorganisation there cannot be followed.
    has_dropped: bool,
}

impl Blocks {
    /// The blocks of an earlier run.
    pub(super) fn of(blocks: Vec<Block>, delivered: usize, has_dropped: bool) -> Self {
        let delivered = delivered.min(blocks.len());
        Self { all: blocks.into(), delivered, has_dropped }
    }

    pub(super) fn has_dropped(&self) -> bool {
        self.has_dropped
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

    pub(super) fn has(&self, at: BlockRef) -> bool {
        self.get(at.number).is_some_and(|block| block.at == at)
    }

    fn index(&self, number: u64) -> Option<usize> {
        // Without an index no block is left out.
        let at = usize::try_from(number.checked_sub(self.first()?.number)?).ok()?;
        if self.all.get(at).is_some_and(|block| block.at.number == number) {
            return Some(at);
        }
        self.all.binary_search_by_key(&number, |block| block.at.number).ok()
    }

    pub(super) fn push(&mut self, block: Block) {
        self.all.push_back(block);
    }

    /// The first `count` pending blocks are delivered. Keeps `keep` delivered blocks, and the one
    /// before them: it is the ancestor of a branch that replaces them all.
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
        self.all.pop_front();
        self.delivered = self.delivered.saturating_sub(1);
        self.has_dropped = true;
    }

    /// The block with this number, which was delivered, and all before it will not change.
    pub(super) fn finalize(&mut self, number: u64) {
        while self.first().is_some_and(|first| first.number < number) && self.delivered > 1 {
            self.drop_first();
        }
        if let Some(first) = self.all.front_mut().filter(|first| first.at.number <= number) {
            first.work = Work::Logs(Vec::new());
            self.has_dropped = true;
        }
    }

    /// Removes the blocks after `ancestor`, or all. Returns those that were delivered, or may have
    /// been, the highest first.
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
