//! The claims about 1,000 blocks, from one checkpoint of filter headers to the next.

use core::cmp::Ordering;
use std::ops::{Range, RangeInclusive};
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use core::time::Duration;

use super::CHECKPOINT_INTERVAL;
use crate::btc::bip158::filter_header;
use crate::btc::peer::PeerId;

/// Heights of an interval: those above one checkpoint, up to the next. Interval 1 begins at
/// height 1; the filter of the genesis block is known.
pub(super) const SPAN: usize = CHECKPOINT_INTERVAL as usize;
/// Peers that have left are remembered one by one up to this many for each interval. More are counted
/// together, since anyone can come and go without end.
pub(super) const MAX_VOUCHERS: usize = 32;

/// How the caller was answered about a height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Not yet.
    None,
    /// By a filter.
    Filter,
    /// By the block: nothing is more certain.
    Block,
    /// Not asked for.
    Unwanted,
}

/// What is known about the filter of one height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Height {
    /// The hash that those who vouch for the interval claim, except those who differ here.
    /// All zeros after everyone's claim was refuted.
    pub(super) hash: FilterHash,
    pub(super) answer: Answer,
    /// No filter is evidence: only the block answers. It did not decide between the hashes claimed,
    /// all of them were refuted, the one left is suspicious, or too many peers differed.
    pub(super) ambiguous: bool,
    /// The filter equals that built from the block.
    pub(super) audited: bool,
}

/// A peer that vouches for the first heights of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Voucher {
    pub(super) peer: PeerId,
    /// How many, from the first on.
    pub(super) heights: usize,
}

/// Peers of an earlier run, of which only the number is known, and those that have left and are not
/// remembered one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Anonymous {
    pub(super) peers: u32,
    pub(super) heights: usize,
}

/// Claims, and how each height was answered. The number of open heights is always that of the
/// heights without an answer, and a change of a hash undoes what followed from all hashes together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interval {
    heights: Vec<Height>,
    vouchers: Vec<Voucher>,
    earlier: Anonymous,
    /// The headers before and at the end of one who vouches for all heights.
    ends: Option<[FilterHeader; 2]>,
    /// A header that is trusted commits to the hashes.
    committed: bool,
    /// Heights without an answer.
    open: usize,
    /// Since when these could be asked for, if all claims were in.
    waits_since: Option<Duration>,
}

impl Interval {
    /// An interval of an earlier run. Its peers have left: they vouch up to the first height without
    /// an answer, since a claim counts only with its filter.
    pub(super) fn restored(heights: Vec<Height>, earlier: Anonymous) -> Self {
        let is_open = |at: &Height| at.answer == Answer::None;
        let first_open = heights.iter().position(is_open).unwrap_or(heights.len());
        let open = heights.iter().filter(|at| is_open(at)).count();
        let vouched = if earlier.peers == 0 { 0 } else { earlier.heights.min(first_open) };
        let earlier = Anonymous { heights: vouched, ..earlier };
        Self { heights, earlier, open, ..Self::default() }
    }

    pub(super) fn heights(&self) -> &[Height] {
        &self.heights
    }

    pub(super) fn at(&self, place: usize) -> Option<&Height> {
        self.heights.get(place)
    }

    pub(super) fn vouchers(&self) -> &[Voucher] {
        &self.vouchers
    }

    pub(super) fn earlier(&self) -> Anonymous {
        self.earlier
    }

    pub(super) fn ends(&self) -> Option<[FilterHeader; 2]> {
        self.ends
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed
    }

    pub(super) fn num_open(&self) -> usize {
        self.open
    }

    /// How many heights someone vouches for, from the first on.
    pub(super) fn vouched(&self) -> usize {
        let heights = self.vouchers.iter().map(|voucher| voucher.heights);
        heights.max().unwrap_or(0).max(self.earlier.heights)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.open == 0 && self.heights.len() == SPAN && self.vouched() == SPAN
    }

    /// The place of the first height without an answer that counts, if nobody disputes the answers
    /// of filters; the number of heights if each has one.
    pub(super) fn answered(&self) -> usize {
        let vouched = self.vouched();
        let is_open = |(place, at): (usize, &Height)| match at.answer {
            Answer::None => true,
            Answer::Filter => place >= vouched,
            Answer::Block | Answer::Unwanted => false,
        };
        self.heights.iter().enumerate().position(is_open).unwrap_or(self.heights.len())
    }

    /// Since when its filters could be asked for, which is now if it was not before.
    pub(super) fn waits_since(&mut self, now: Duration) -> Duration {
        *self.waits_since.get_or_insert(now)
    }

    /// Whether the hashes of a complete interval lead from one header to the other.
    pub(super) fn leads(&mut self, ends: [FilterHeader; 2]) -> bool {
        if self.heights.len() < SPAN {
            return false;
        }
        if self.ends == Some(ends) {
            return true;
        }
        let fold = |header, height: &Height| filter_header(&height.hash, &header);
        let leads = self.heights.iter().fold(ends[0], fold) == ends[1];
        if leads {
            self.ends = Some(ends);
        }
        leads
    }

    /// A trusted header commits to its hashes; returns whether that is new.
    pub(super) fn commit(&mut self) -> bool {
        !core::mem::replace(&mut self.committed, true)
    }

    /// Adds the hash of the height after the last.
    pub(super) fn push(&mut self, hash: FilterHash, wanted: bool) {
        let answer = if wanted { Answer::None } else { Answer::Unwanted };
        self.open += usize::from(wanted);
        self.heights.push(Height { hash, answer, ambiguous: false, audited: false });
    }

    /// Another hash is claimed for a height than what was.
    pub(super) fn set_hash(&mut self, place: usize, hash: FilterHash) {
        let Some(at) = self.heights.get_mut(place).filter(|at| at.hash != hash) else { return };
        at.hash = hash;
        self.ends = None;
        self.committed = false;
    }

    /// Notes how a height was answered.
    pub(super) fn answer(&mut self, place: usize, answer: Answer) {
        let Some(at) = self.heights.get_mut(place) else { return };
        let open = |answer| usize::from(answer == Answer::None);
        self.open = self.open + open(answer) - open(at.answer);
        at.answer = answer;
        self.waits_since = self.waits_since.filter(|_| self.open > 0);
    }

    /// Whether no filter is evidence about a height.
    pub(super) fn set_ambiguous(&mut self, place: usize, ambiguous: bool) {
        if let Some(at) = self.heights.get_mut(place) {
            at.ambiguous = ambiguous;
        }
    }

    /// The filter of a height with this hash was built from its block.
    pub(super) fn audit(&mut self, place: usize, hash: FilterHash) {
        self.set_hash(place, hash);
        if let Some(at) = self.heights.get_mut(place) {
            at.audited = true;
            at.ambiguous = false;
        }
    }

    /// A peer vouches for the first heights.
    pub(super) fn vouch(&mut self, peer: PeerId, heights: usize) {
        match self.vouchers.iter_mut().find(|voucher| voucher.peer == peer) {
            Some(voucher) => voucher.heights = heights,
            None => self.vouchers.push(Voucher { peer, heights }),
        }
    }

    /// These vouch for nothing here any more; nor do those of an earlier run, if `earlier`.
    pub(super) fn drop_vouchers(&mut self, peers: &[PeerId], earlier: bool) {
        self.vouchers.retain(|voucher| !peers.contains(&voucher.peer));
        if earlier {
            self.earlier = Anonymous::default();
        }
    }

    /// A peer vouches for this many heights at most.
    pub(super) fn limit_voucher(&mut self, peer: PeerId, heights: usize) {
        for voucher in self.vouchers.iter_mut().filter(|voucher| voucher.peer == peer) {
            voucher.heights = voucher.heights.min(heights);
        }
        self.vouchers.retain(|voucher| voucher.heights > 0);
    }

    /// Counts a peer that has left together with others where too many are remembered: if one of
    /// them is convicted, all of them are. Where they vouch for different heights, fewer are
    /// counted than there were.
    pub(super) fn count_together(&mut self, peer: PeerId) {
        if self.vouchers.len() <= MAX_VOUCHERS {
            return;
        }
        let place = self.vouchers.iter().position(|voucher| voucher.peer == peer);
        let Some(heights) = place.map(|place| self.vouchers.swap_remove(place).heights) else {
            return;
        };
        let together = &mut self.earlier;
        match heights.cmp(&together.heights) {
            Ordering::Less => {}
            Ordering::Equal => together.peers = together.peers.saturating_add(1),
            Ordering::Greater => *together = Anonymous { peers: 1, heights },
        }
    }

    /// Has these heights answered again. Returns the places of those whose block answers, since no
    /// filter is evidence.
    pub(super) fn reopen(&mut self, places: Range<usize>) -> Vec<usize> {
        let mut ambiguous = Vec::new();
        for place in places.start..places.end.min(self.heights.len()) {
            self.answer(place, Answer::None);
            ambiguous
                .extend(self.heights.get(place).is_some_and(|at| at.ambiguous).then_some(place));
        }
        ambiguous
    }

    /// Has the heights from `first` on answered that were not wanted before; returns whether there
    /// are any. Who differed about them was not remembered, so that nobody vouches for the interval
    /// until it has been compared again.
    pub(super) fn extend(&mut self, first: usize) -> bool {
        let is_unwanted = |(_, at): &(usize, &Height)| at.answer == Answer::Unwanted;
        let unwanted = self.heights.iter().enumerate().skip(first).filter(is_unwanted);
        let unwanted: Vec<_> = unwanted.map(|(place, _)| place).collect();
        for &place in &unwanted {
            self.answer(place, Answer::None);
        }
        if !unwanted.is_empty() {
            self.vouchers.clear();
            self.earlier = Anonymous::default();
            self.ends = None;
            self.committed = false;
        }
        !unwanted.is_empty()
    }

    /// Forgets all but the first heights.
    pub(super) fn truncate(&mut self, heights: usize) {
        if heights >= self.heights.len() {
            return;
        }
        self.heights.truncate(heights);
        self.ends = None;
        self.committed = false;
        self.open = self.heights.iter().filter(|at| at.answer == Answer::None).count();
        self.earlier.heights = self.earlier.heights.min(heights);
        for voucher in &mut self.vouchers {
            voucher.heights = voucher.heights.min(heights);
        }
    }

    /// The places below `before` that only filters answered and that nobody vouches for.
    pub(super) fn unvouched(&self, before: usize) -> impl Iterator<Item = usize> + '_ {
        let heights = self.heights.iter().enumerate().take(before).skip(self.vouched());
        heights.filter(|(_, at)| at.answer == Answer::Filter).map(|(place, _)| place)
    }
}

/// The number of the interval of a height, which is not 0.
pub(super) fn interval_of(height: u32) -> u32 {
    height.div_ceil(CHECKPOINT_INTERVAL)
}

/// The first height of an interval.
pub(super) fn first_of(interval: u32) -> u32 {
    (interval - 1) * CHECKPOINT_INTERVAL + 1
}

/// The place of a height in its interval.
pub(super) fn place_of(height: u32) -> usize {
    (height - first_of(interval_of(height))) as usize
}

/// Ascending heights as runs.
pub(super) fn runs(heights: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut runs: Vec<RangeInclusive<u32>> = Vec::new();
    for height in heights {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == height => *run = *run.start()..=height,
            _ => runs.push(height..=height),
        }
    }
    runs
}
