//! The blocks that are followed, and what is known of each.

use std::collections::VecDeque;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log::LocatedLog;

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) number: u64,
    pub(super) hash: B256,
}

/// A block of the chain that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) at: Point,
    pub(super) work: Work,
    /// Whether it may have been printed by a process that was killed before it could say so.
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

/// What receipts of a block are held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) receipts_root: B256,
    /// All ones if the header's has not 256 bytes.
    pub(super) bloom: [u8; 256],
    pub(super) timestamp: u64,
    /// Bytes that they are expected to have in JSON.
    pub(super) cost: u64,
}

impl Block {
    /// A block without a log that matches.
    pub(super) fn without_logs(at: Point) -> Self {
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

/// Blocks in order, each the parent of the next: but where an index says that those between have no
/// log, they are left out. Those that were printed come first.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    all: VecDeque<Block>,
    printed: usize,
    /// Whether blocks below the first were let go: what happens there can't be followed.
    let_go: bool,
}

impl Blocks {
    /// The blocks of an earlier process.
    pub(super) fn of(blocks: Vec<Block>, printed: usize, let_go: bool) -> Self {
        let printed = printed.min(blocks.len());
        Self { all: blocks.into(), printed, let_go }
    }

    pub(super) fn has_let_go(&self) -> bool {
        self.let_go
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn first(&self) -> Option<Point> {
        self.all.front().map(|block| block.at)
    }

    pub(super) fn last(&self) -> Option<Point> {
        self.all.back().map(|block| block.at)
    }

    /// The last block that was printed.
    pub(super) fn last_printed(&self) -> Option<Point> {
        let last = self.printed.checked_sub(1)?;
        self.all.get(last).map(|block| block.at)
    }

    pub(super) fn printed(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.all.range(..self.printed)
    }

    /// Those that are still to be printed.
    pub(super) fn pending(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.all.range(self.printed..)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Block> {
        self.all.get(self.index(number)?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Block> {
        let index = self.index(number)?;
        self.all.get_mut(index)
    }

    pub(super) fn has(&self, at: Point) -> bool {
        self.get(at.number).is_some_and(|block| block.at == at)
    }

    fn index(&self, number: u64) -> Option<usize> {
        // Mostly none is left out.
        let at = usize::try_from(number.checked_sub(self.first()?.number)?).ok()?;
        if self.all.get(at).is_some_and(|block| block.at.number == number) {
            return Some(at);
        }
        self.all.binary_search_by_key(&number, |block| block.at.number).ok()
    }

    pub(super) fn push(&mut self, block: Block) {
        self.all.push_back(block);
    }

    /// So many more are printed. Keeps `keep` of them, and the one below, from which a branch parts
    /// that takes them all off.
    pub(super) fn print(&mut self, count: usize, keep: usize) {
        for block in self.all.range_mut(self.printed..).take(count) {
            block.unsure = false;
        }
        self.printed = (self.printed + count).min(self.all.len());
        while self.printed > keep.saturating_add(1) {
            self.let_go_first();
        }
    }

    fn let_go_first(&mut self) {
        self.all.pop_front();
        self.printed = self.printed.saturating_sub(1);
        self.let_go = true;
    }

    /// Nothing below this block, which was printed, will change, and it won't either.
    pub(super) fn finalize(&mut self, number: u64) {
        while self.first().is_some_and(|first| first.number < number) && self.printed > 1 {
            self.let_go_first();
        }
        if let Some(first) = self.all.front_mut().filter(|first| first.at.number <= number) {
            first.work = Work::Logs(Vec::new());
            self.let_go = true;
        }
    }

    /// Takes off what is above `number`, or all. Returns those that were printed, or may have
    /// been, the highest first.
    pub(super) fn cut(&mut self, above: Option<u64>) -> Vec<Block> {
        let kept = above.and_then(|number| self.index(number)).map_or(0, |index| index + 1);
        let printed = self.printed;
        self.printed = printed.min(kept);
        let mut off: Vec<_> = self.all.drain(kept.min(self.all.len())..).collect();
        let still_printed = printed.saturating_sub(kept);
        let mut index = 0;
        off.retain(|block| {
            index += 1;
            index <= still_printed || block.unsure
        });
        off.reverse();
        off
    }
}
