//! Inspections: heights whose block is wanted, because peers dispute the filter, the filter
//! matched, or a spot audit is due. A limited number of blocks is fetched at a time; the other
//! inspections wait in a queue.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use core::time::Duration;

use super::{Limits, ScanReason};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// A height whose block is wanted.
#[derive(Debug, Clone)]
pub(super) struct Inspection {
    pub(super) at: BlockAt,
    pub(super) why: ScanReason,
    /// The claimed filters that have been received from peers or from the caller, by hash.
    pub(super) contents: BTreeMap<FilterHash, Vec<u8>>,
    /// The peers that did not deliver the block, with the time of their answer.
    pub(super) without_block: BTreeMap<PeerId, Duration>,
    /// `true` if it was reported that no peer has the block.
    pub(super) reported: bool,
    /// The time at which the inspection was first processed.
    since: Option<Duration>,
    /// `true` if the block was requested and not overdue when the inspection was last processed.
    pub(super) is_asked: bool,
    /// `true` if the inspection has one of the places for heights with several filters.
    is_disputed: bool,
}

impl Inspection {
    fn new(at: BlockAt) -> Self {
        Self {
            at,
            why: ScanReason::Disputed,
            contents: BTreeMap::new(),
            without_block: BTreeMap::new(),
            reported: false,
            since: None,
            is_asked: false,
            is_disputed: false,
        }
    }

    /// Changes the reason of the inspection. The reason `Matched` is never replaced, because the
    /// caller waits for the block of a match.
    fn set_why(&mut self, why: ScanReason) {
        if self.why != ScanReason::Matched {
            self.why = why;
        }
    }

    /// Returns the time since the first call of this function.
    pub(super) fn waited(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.since.get_or_insert(now))
    }

    /// Returns the total size of the stored filters in bytes.
    fn bytes(&self) -> usize {
        self.contents.values().map(Vec::len).sum()
    }
}

/// The set of open inspections that an event may have changed. Processing all open inspections for
/// every filter and block would be too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// The inspections that the current event opened.
    New,
    /// The inspections whose block has not been requested.
    Waiting,
    /// All open inspections.
    All,
}

/// All inspections. Each is either open (its block is being fetched) or waits in the queue.
#[derive(Debug, Clone)]
pub(super) struct Inspections {
    open: BTreeMap<u32, Inspection>,
    waiting: BTreeMap<u32, Inspection>,
    /// The total size in bytes of the filters of waiting inspections.
    kept: usize,
    limits: Limits,
}

impl Inspections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { open: BTreeMap::new(), waiting: BTreeMap::new(), kept: 0, limits }
    }

    /// Returns `true` if the block of a height is being fetched or queued.
    pub(super) fn contains(&self, height: u32) -> bool {
        self.open.contains_key(&height) || self.waiting.contains_key(&height)
    }

    pub(super) fn open(&self, height: u32) -> Option<&Inspection> {
        self.open.get(&height)
    }

    pub(super) fn open_mut(&mut self, height: u32) -> Option<&mut Inspection> {
        self.open.get_mut(&height)
    }

    /// Number of filters that are stored with open inspections.
    #[cfg(test)]
    pub(super) fn num_filters(&self) -> usize {
        self.open.values().map(|open| open.contents.len()).sum()
    }

    /// Removes and returns an open inspection.
    pub(super) fn remove(&mut self, height: u32) -> Option<Inspection> {
        self.open.remove(&height)
    }

    /// Returns `true` if the filter with a claimed hash is stored with an open inspection. The
    /// inspection will check the claim with this filter, even if the peer that made the claim has
    /// left.
    pub(super) fn holds(&self, height: u32, hash: FilterHash) -> bool {
        self.open(height).is_some_and(|open| open.contents.contains_key(&hash))
    }

    /// Returns `true` if the caller waits for the block of a height.
    pub(super) fn awaits(&self, height: u32) -> bool {
        let wanted = self.open.get(&height).or_else(|| self.waiting.get(&height));
        wanted.is_some_and(|wanted| wanted.why == ScanReason::Matched)
    }

    /// Returns the lowest height for whose block the caller waits.
    pub(super) fn first_awaited(&self) -> Option<u32> {
        let lowest = |wanted: &BTreeMap<u32, Inspection>| {
            let matched = |(_, wanted): &(&u32, &Inspection)| wanted.why == ScanReason::Matched;
            wanted.iter().find(matched).map(|(height, _)| *height)
        };
        lowest(&self.open).into_iter().chain(lowest(&self.waiting)).min()
    }

    /// Queues the block of a height, unless it is already queued or being fetched.
    pub(super) fn want(&mut self, at: BlockAt) {
        if !self.contains(at.height) {
            self.waiting.insert(at.height, Inspection::new(at));
        }
    }

    /// Queues the block of a height for a reason, with its filter if it is at hand. A queued filter
    /// is kept only if there is room for it; otherwise it is requested again from a peer that
    /// claims it.
    pub(super) fn want_with(
        &mut self,
        at: BlockAt,
        why: ScanReason,
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
        // Many hits at once, as in a recovery, must not fill the memory with filters.
        if let Some((hash, content)) = content
            && content.len() <= room
            && !waiting.contents.contains_key(&hash)
        {
            self.kept += content.len();
            waiting.contents.insert(hash, content);
        }
    }

    /// Returns the number of further inspections that can be opened.
    pub(super) fn room(&self) -> usize {
        self.limits.inspections.max(1).saturating_sub(self.open.len())
    }

    /// Opens queued inspections while there is room, lowest height first. Returns the heights of
    /// the opened inspections.
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

    /// Returns the heights of open inspections that may have changed, in ascending order. `begun`
    /// contains the heights whose inspections the current event opened.
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

    /// Gives an open inspection one of the limited places for heights with several filters. Returns
    /// `true` if the inspection now has such a place.
    pub(super) fn take_dispute_place(&mut self, height: u32) -> bool {
        let disputed = self.open.values().filter(|open| open.is_disputed).count();
        let limit = self.limits.disputes.max(1);
        let Some(open) = self.open.get_mut(&height) else { return false };
        open.is_disputed |= disputed < limit;
        open.is_disputed
    }

    /// Drops all inspections above a height.
    pub(super) fn truncate(&mut self, height: u32) {
        self.open.retain(|&at, _| at <= height);
        self.waiting.retain(|&at, _| at <= height);
        self.kept = self.waiting.values().map(Inspection::bytes).sum();
    }
}
