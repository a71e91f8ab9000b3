//! The heights whose block is wanted: where peers dispute a filter, where the caller has a match,
//! where a spot audit is due. A bounded number is fetched at a time; the others wait.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use core::time::Duration;

use super::{Limits, Why};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// A height whose block is wanted.
#[derive(Debug, Clone)]
pub(super) struct Inspection {
    pub(super) at: BlockAt,
    pub(super) why: Why,
    /// Filters claimed for it, by hash; from one who claims it, or the caller.
    pub(super) contents: BTreeMap<FilterHash, Vec<u8>>,
    /// The peers that did not deliver the block, and when they said so.
    pub(super) without_block: BTreeMap<PeerId, Duration>,
    /// That nobody has it was reported.
    pub(super) reported: bool,
    /// When it was begun.
    since: Option<Duration>,
    /// Its block was asked for, when it was last looked at.
    pub(super) is_asked: bool,
    /// It has one of the places for heights with several filters.
    is_disputed: bool,
}

impl Inspection {
    fn new(at: BlockAt) -> Self {
        Self {
            at,
            why: Why::Disputed,
            contents: BTreeMap::new(),
            without_block: BTreeMap::new(),
            reported: false,
            since: None,
            is_asked: false,
            is_disputed: false,
        }
    }

    /// A match stays one: the caller waits for the block, whatever else it is good for.
    fn set_why(&mut self, why: Why) {
        if self.why != Why::Matched {
            self.why = why;
        }
    }

    /// How long it has been going on.
    pub(super) fn waited(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.since.get_or_insert(now))
    }

    /// Bytes of its filters.
    fn bytes(&self) -> usize {
        self.contents.values().map(Vec::len).sum()
    }
}

/// Which open inspections an event may have changed: looking at all of them for every filter and
/// block would be too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Only those begun by this event.
    New,
    /// Those whose block is not requested yet.
    Waiting,
    /// Every open inspection.
    All,
}

/// All heights whose block is wanted: each is open or waits.
#[derive(Debug, Clone)]
pub(super) struct Inspections {
    open: BTreeMap<u32, Inspection>,
    waiting: BTreeMap<u32, Inspection>,
    /// Bytes of the filters of those that wait.
    kept: usize,
    limits: Limits,
}

impl Inspections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { open: BTreeMap::new(), waiting: BTreeMap::new(), kept: 0, limits }
    }

    /// Whether the block of a height is being fetched, or will be.
    pub(super) fn contains(&self, height: u32) -> bool {
        self.open.contains_key(&height) || self.waiting.contains_key(&height)
    }

    pub(super) fn open(&self, height: u32) -> Option<&Inspection> {
        self.open.get(&height)
    }

    pub(super) fn open_mut(&mut self, height: u32) -> Option<&mut Inspection> {
        self.open.get_mut(&height)
    }

    /// How many filters are kept with those that are open.
    #[cfg(test)]
    pub(super) fn num_filters(&self) -> usize {
        self.open.values().map(|open| open.contents.len()).sum()
    }

    /// Takes one that is open out.
    pub(super) fn remove(&mut self, height: u32) -> Option<Inspection> {
        self.open.remove(&height)
    }

    /// Whether the filter of a claim is kept, of a height that is open: the claim is settled with it,
    /// whoever has left.
    pub(super) fn holds(&self, height: u32, hash: FilterHash) -> bool {
        self.open(height).is_some_and(|open| open.contents.contains_key(&hash))
    }

    /// Whether the caller waits for the block of a height.
    pub(super) fn awaits(&self, height: u32) -> bool {
        let wanted = self.open.get(&height).or_else(|| self.waiting.get(&height));
        wanted.is_some_and(|wanted| wanted.why == Why::Matched)
    }

    /// The lowest height for whose block the caller waits.
    pub(super) fn first_awaited(&self) -> Option<u32> {
        let lowest = |wanted: &BTreeMap<u32, Inspection>| {
            let matched = |(_, wanted): &(&u32, &Inspection)| wanted.why == Why::Matched;
            wanted.iter().find(matched).map(|(height, _)| *height)
        };
        lowest(&self.open).into_iter().chain(lowest(&self.waiting)).min()
    }

    /// Has a block fetched as soon as there is room, if it is not being fetched.
    pub(super) fn want(&mut self, at: BlockAt) {
        if !self.contains(at.height) {
            self.waiting.insert(at.height, Inspection::new(at));
        }
    }

    /// The same for a reason, with a filter. Of one that waits, that is kept if there is room for it;
    /// else it is fetched again from one who claims it.
    pub(super) fn want_with(
        &mut self,
        at: BlockAt,
        why: Why,
        content: Option<(FilterHash, Vec<u8>)>,
    ) {
        if let Some(open) = self.open.get_mut(&at.height) {
            open.set_why(why);
            open.contents.extend(content);
            return;
        }
        let waiting = self.waiting.entry(at.height).or_insert_with(|| Inspection::new(at));
        waiting.set_why(why);
        let room = self.limits.kept_bytes.saturating_sub(self.kept);
        if let Some((hash, content)) = content
            && content.len() <= room
            && !waiting.contents.contains_key(&hash)
        {
            self.kept += content.len();
            waiting.contents.insert(hash, content);
        }
    }

    /// How many more may be begun.
    pub(super) fn room(&self) -> usize {
        self.limits.inspections.max(1).saturating_sub(self.open.len())
    }

    /// Begins as many as there is room for, the lowest first.
    pub(super) fn begin(&mut self) -> Vec<u32> {
        let mut begun = Vec::new();
        for _ in 0..self.room() {
            let Some((height, inspection)) = self.waiting.pop_first() else { break };
            self.kept -= inspection.bytes();
            self.open.insert(height, inspection);
            begun.push(height);
        }
        begun
    }

    /// The heights that are open and may have changed, ascending, if these were begun.
    pub(super) fn to_look_at(&self, look: Look, begun: Vec<u32>) -> Vec<u32> {
        let open = self.open.iter();
        match look {
            Look::New => begun,
            Look::Waiting => {
                open.filter(|(_, open)| !open.is_asked).map(|(height, _)| *height).collect()
            }
            Look::All => open.map(|(height, _)| *height).collect(),
        }
    }

    /// Gives an open one a place among those that keep a filter of each peer, whose number is limited;
    /// returns whether it has one.
    pub(super) fn take_dispute_place(&mut self, height: u32) -> bool {
        let disputed = self.open.values().filter(|open| open.is_disputed).count();
        let limit = self.limits.disputes.max(1);
        let Some(open) = self.open.get_mut(&height) else { return false };
        open.is_disputed |= disputed < limit;
        open.is_disputed
    }

    /// Forgets everything above a height.
    pub(super) fn truncate(&mut self, height: u32) {
        self.open.retain(|&at, _| at <= height);
        self.waiting.retain(|&at, _| at <= height);
        self.kept = self.waiting.values().map(Inspection::bytes).sum();
    }
}
