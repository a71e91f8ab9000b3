//! The claims about one interval: the 1,000 blocks between two filter headers of a `cfcheckpt`.

use std::ops::{Range, RangeInclusive};
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use core::time::Duration;

use super::CHECKPOINT_INTERVAL;
use crate::btc::bip158::filter_header;
use crate::btc::peer::PeerId;

/// Number of heights in an interval: the heights above one checkpoint, up to and including the next
/// checkpoint. Interval 1 begins at height 1, because the filter of the genesis block is known.
pub(super) const SPAN: usize = CHECKPOINT_INTERVAL as usize;
/// Maximum number of departed peers that are remembered individually for each interval. Further
/// departed peers are only counted, because peers can come and go without end.
pub(super) const MAX_VOUCHERS: usize = 32;

/// The way in which a height was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeightAnswer {
    /// The height has no answer yet.
    None,
    /// A filter was handed to the caller.
    Filter,
    /// The block was handed to the caller. This is the most certain answer.
    Block,
    /// The height is below the first wanted height.
    Unwanted,
}

/// The state of one height.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Height {
    /// The accepted hash: the claim of all peers that vouch for the height. All zeros if every
    /// claim was refuted.
    pub(super) hash: FilterHash,
    pub(super) answer: HeightAnswer,
    /// `true` if no filter of this height is evidence, so that only the block can answer the
    /// height. Causes: the block did not decide between the claimed hashes, all claimed hashes were
    /// refuted, the only hash left is suspicious, or too many peers disputed the height.
    pub(super) ambiguous: bool,
    /// `true` if the filter equals the filter built from the block.
    pub(super) audited: bool,
    /// `true` if the block was handed to the caller, even if a filter has answered the height since.
    pub(super) scanned: bool,
    /// `true` if a claim that differs from the accepted hash was not kept: a peer that vouches for
    /// the height may have claimed another hash.
    pub(super) lost_claims: bool,
}

/// A peer that vouches for the first heights of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Voucher {
    pub(super) peer: PeerId,
    /// The number of heights that the peer vouches for, from the first one of the interval on.
    pub(super) heights: usize,
    /// `true` if the peer has disconnected. It may be the same as a peer that connected later.
    pub(super) has_left: bool,
}

/// Peers that are only counted: the peers of an earlier run, and departed peers beyond the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Anonymous {
    pub(super) peers: u32,
    pub(super) heights: usize,
}

/// The claims and the answers of one interval. Invariants: `open` equals the number of unanswered
/// heights, and the values that were derived from all hashes are reset when a hash changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) heights: Vec<Height>,
    pub(super) vouchers: Vec<Voucher>,
    pub(super) earlier: Anonymous,
    /// The largest number of vouchers that were connected at the same time before one of them left,
    /// and the number of heights for which all of them vouched.
    together: Anonymous,
    /// The filter headers before the interval and at its end, as claimed by a peer that vouches for
    /// all heights of the interval.
    ends: Option<[FilterHeader; 2]>,
    /// `true` if a trusted filter header commits to the hashes.
    committed: bool,
    /// `true` if a block has refuted a hash that a trusted header commits to.
    distrusted: bool,
    /// The number of heights without an answer.
    pub(super) open: usize,
    /// The time at which the interval began to wait for the claims of further peers: from then on,
    /// its filters could have been requested.
    waits_since: Option<Duration>,
}

impl Interval {
    /// Restores an interval of an earlier run. The peers of that run have left, so they vouch only
    /// for the heights below the first unanswered one: they can no longer send filters for the
    /// other heights.
    pub(super) fn restored(heights: Vec<Height>, earlier: Anonymous) -> Self {
        let is_open = |at: &Height| at.answer == HeightAnswer::None;
        let first_open = heights.iter().position(is_open).unwrap_or(heights.len());
        let open = heights.iter().filter(|at| is_open(at)).count();
        let vouched = if earlier.peers == 0 { 0 } else { earlier.heights.min(first_open) };
        let earlier = Anonymous { heights: vouched, ..earlier };
        Self { heights, earlier, open, ..Self::default() }
    }

    pub(super) fn at(&self, place: usize) -> Option<&Height> {
        self.heights.get(place)
    }

    /// Returns a lower bound of the number of distinct peers among those that vouch for the first
    /// `heights` heights, leaving out the peers for which `differs` returns `true`. Connections that
    /// were open at the same time are counted as distinct peers. A peer that has left may have
    /// connected again, so that it is not counted twice.
    pub(super) fn num_peers(&self, heights: usize, differs: impl Fn(PeerId) -> bool) -> u32 {
        let vouchers = self.vouchers.iter();
        let vouchers = vouchers.filter(|it| it.heights >= heights && !differs(it.peer));
        let (mut all, mut present) = (0, 0);
        for voucher in vouchers {
            all += 1;
            present += u32::from(!voucher.has_left);
        }
        let others = self.vouchers.iter().filter(|it| it.heights >= heights && differs(it.peer));
        let others = u32::try_from(others.count()).unwrap_or(u32::MAX);
        let counted = |peers: Anonymous| if peers.heights >= heights { peers.peers } else { 0 };
        // Of those that were connected together, some may differ by now.
        let together = counted(self.together).saturating_sub(others).max(1).min(all);
        present.max(together).max(counted(self.earlier))
    }

    pub(super) fn ends(&self) -> Option<[FilterHeader; 2]> {
        self.ends
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed
    }

    /// Returns the number of heights, from the first height on, for whose accepted hash at least one
    /// peer or a trusted header vouches.
    pub(super) fn vouched(&self) -> usize {
        // The trusted header stays, even if peers leave or claim another hash.
        if self.committed {
            return self.heights.len();
        }
        let heights = self.vouchers.iter().map(|voucher| voucher.heights);
        heights.max().unwrap_or(0).max(self.earlier.heights)
    }

    pub(super) fn is_finished(&self) -> bool {
        let is_known = self.open == 0 && self.heights.len() == SPAN;
        is_known && (self.vouched() == SPAN || self.answered() == SPAN)
    }

    /// Returns the index of the first height without a valid answer, assuming that no answer by a
    /// filter is disputed. Returns the number of heights if all heights have a valid answer.
    pub(super) fn answered(&self) -> usize {
        let vouched = self.vouched();
        let is_open = |(place, at): (usize, &Height)| match at.answer {
            HeightAnswer::None => true,
            // An answer by a filter is valid only while a peer vouches for the height, or if the
            // filter is known to be true.
            HeightAnswer::Filter => place >= vouched && !at.audited,
            HeightAnswer::Block | HeightAnswer::Unwanted => false,
        };
        self.heights.iter().enumerate().position(is_open).unwrap_or(self.heights.len())
    }

    /// Returns the time at which the interval began to wait for the claims of further peers. The
    /// first call sets this time to `now`.
    pub(super) fn waits_since(&mut self, now: Duration) -> Duration {
        *self.waits_since.get_or_insert(now)
    }

    /// Returns `true` if the hashes of a complete interval lead from the first header to the
    /// second.
    pub(super) fn leads(&mut self, ends: [FilterHeader; 2]) -> bool {
        // Headers are known only at the ends of intervals, so only complete intervals are compared.
        if self.heights.len() < SPAN {
            return false;
        }
        // Most peers have the same headers, so the 1,000 hashes are computed only once.
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

    /// Records that a trusted header commits to the hashes. Returns `true` if this was not recorded
    /// before, and the header is not known to be false.
    pub(super) fn commit(&mut self) -> bool {
        let is_new = !self.committed && !self.distrusted;
        self.committed |= is_new;
        is_new
    }

    /// Records that a trusted header which commits to the hashes is false.
    pub(super) fn distrust(&mut self) {
        self.distrusted |= core::mem::take(&mut self.committed);
    }

    /// Appends the hash of the next height.
    pub(super) fn push(&mut self, hash: FilterHash, wanted: bool) {
        let answer = if wanted { HeightAnswer::None } else { HeightAnswer::Unwanted };
        self.open += usize::from(wanted);
        self.heights.push(Height {
            hash,
            answer,
            ambiguous: false,
            audited: false,
            scanned: false,
            lost_claims: false,
        });
    }

    /// Replaces the accepted hash of a height. No trusted header commits to the new hash.
    pub(super) fn set_hash(&mut self, place: usize, hash: FilterHash) {
        let Some(at) = self.heights.get_mut(place).filter(|at| at.hash != hash) else { return };
        at.hash = hash;
        self.ends = None;
        self.committed = false;
    }

    /// Records how a height was answered, or that it is unanswered again.
    pub(super) fn answer(&mut self, place: usize, answer: HeightAnswer) {
        let Some(at) = self.heights.get_mut(place) else { return };
        let open = |answer| usize::from(answer == HeightAnswer::None);
        self.open = self.open + open(answer) - open(at.answer);
        at.scanned |= answer == HeightAnswer::Block;
        at.answer = answer;
        self.waits_since = self.waits_since.filter(|_| self.open > 0);
    }

    /// Records whether only the block can answer a height (`ambiguous`), because its filters are no
    /// evidence.
    pub(super) fn set_ambiguous(&mut self, place: usize, ambiguous: bool) {
        if let Some(at) = self.heights.get_mut(place) {
            at.ambiguous = ambiguous;
        }
    }

    /// Records whether a claim that differs from the accepted hash was not kept.
    pub(super) fn set_lost_claims(&mut self, place: usize, lost: bool) {
        if let Some(at) = self.heights.get_mut(place) {
            at.lost_claims = lost;
        }
    }

    /// Records that the filter with this hash equals the filter built from the block.
    pub(super) fn audit(&mut self, place: usize, hash: FilterHash) {
        self.set_hash(place, hash);
        if let Some(at) = self.heights.get_mut(place) {
            at.audited = true;
            at.ambiguous = false;
        }
    }

    /// Records that a peer vouches for the first `heights` heights. A peer that makes its claims again,
    /// from the first height on, still vouches for what it has claimed before.
    pub(super) fn vouch(&mut self, peer: PeerId, heights: usize) {
        match self.vouchers.iter_mut().find(|voucher| voucher.peer == peer) {
            Some(voucher) => voucher.heights = voucher.heights.max(heights),
            None => self.vouchers.push(Voucher { peer, heights, has_left: false }),
        }
    }

    /// Removes the given vouchers. If `earlier` is `true`, also removes the peers that are only
    /// counted.
    pub(super) fn drop_vouchers(&mut self, peers: &[PeerId], earlier: bool) {
        let before = self.vouchers.len();
        self.vouchers.retain(|voucher| !peers.contains(&voucher.peer));
        // Those that are only counted may be among those that were connected together.
        if earlier || self.vouchers.len() < before {
            self.together = Anonymous::default();
        }
        if earlier {
            self.earlier = Anonymous::default();
        }
    }

    /// Limits the number of heights that a peer vouches for to `heights`.
    pub(super) fn limit_voucher(&mut self, peer: PeerId, heights: usize) {
        for voucher in self.vouchers.iter_mut().filter(|voucher| voucher.peer == peer) {
            voucher.heights = voucher.heights.min(heights);
        }
        self.vouchers.retain(|voucher| voucher.heights > 0);
        // The peer may be one of those that were counted together.
        self.together.heights = self.together.heights.min(heights);
    }

    /// Records that a peer that vouches has disconnected. Peers for which `differs` returns `true`
    /// are not counted, because they claim another hash somewhere in the interval.
    pub(super) fn part(&mut self, peer: PeerId, differs: impl Fn(PeerId) -> bool) {
        let Some(heights) = self.vouchers.iter().find(|it| it.peer == peer).map(|it| it.heights)
        else {
            return;
        };
        let present = self.vouchers.iter();
        let present =
            present.filter(|it| !it.has_left && it.heights >= heights && !differs(it.peer));
        let peers = u32::try_from(present.count()).unwrap_or(u32::MAX);
        if (peers, heights) > (self.together.peers, self.together.heights) {
            self.together = Anonymous { peers, heights };
        }
        for voucher in self.vouchers.iter_mut().filter(|voucher| voucher.peer == peer) {
            voucher.has_left = true;
        }
    }

    /// Drops records of departed peers for which `is_free` returns `true`, while too many vouchers are
    /// remembered individually, so that only a count remains. The count does not grow: the departed
    /// peers may be one peer that connected again and again.
    ///
    /// If one of the counted peers is convicted, all counted peers are convicted. Only the departed
    /// peers that vouch for the largest number of heights are counted.
    pub(super) fn count_together(&mut self, is_free: impl Fn(PeerId) -> bool) {
        while self.vouchers.len() > MAX_VOUCHERS {
            let free = |voucher: &Voucher| voucher.has_left && is_free(voucher.peer);
            let Some(place) = self.vouchers.iter().rposition(free) else { return };
            let heights = self.vouchers.swap_remove(place).heights;
            if heights > self.earlier.heights {
                self.earlier = Anonymous { peers: 1, heights };
            }
        }
    }

    /// Marks heights as unanswered. Returns the indices of the heights that only a block can
    /// answer.
    pub(super) fn reopen(&mut self, places: Range<usize>) -> Vec<usize> {
        let mut ambiguous = Vec::new();
        for place in places.start..places.end.min(self.heights.len()) {
            self.answer(place, HeightAnswer::None);
            ambiguous
                .extend(self.heights.get(place).is_some_and(|at| at.ambiguous).then_some(place));
        }
        ambiguous
    }

    /// Marks the unwanted heights from `first` on as wanted and unanswered. Returns `true` if the
    /// interval had unwanted heights from `first` on.
    ///
    /// Differing claims about unwanted heights were not recorded. So all vouchers are dropped, and
    /// the interval must be compared with all peers again. A trusted header commits to the accepted
    /// hashes whatever others claim.
    pub(super) fn extend(&mut self, first: usize) -> bool {
        let is_unwanted = |(_, at): &(usize, &Height)| at.answer == HeightAnswer::Unwanted;
        let unwanted = self.heights.iter().enumerate().skip(first).filter(is_unwanted);
        let unwanted: Vec<_> = unwanted.map(|(place, _)| place).collect();
        for &place in &unwanted {
            self.answer(place, HeightAnswer::None);
            self.set_lost_claims(place, false);
        }
        if !unwanted.is_empty() {
            self.vouchers.clear();
            self.together = Anonymous::default();
            self.earlier = Anonymous::default();
            self.ends = None;
        }
        !unwanted.is_empty()
    }

    /// Drops all but the first `heights` heights.
    pub(super) fn truncate(&mut self, heights: usize) {
        if heights >= self.heights.len() {
            return;
        }
        self.heights.truncate(heights);
        self.ends = None;
        self.committed = false;
        self.open = self.heights.iter().filter(|at| at.answer == HeightAnswer::None).count();
        self.earlier.heights = self.earlier.heights.min(heights);
        self.together.heights = self.together.heights.min(heights);
        for voucher in &mut self.vouchers {
            voucher.heights = voucher.heights.min(heights);
        }
    }

    /// Returns the indices below `before` that were answered by a filter for which no peer vouches,
    /// and which is not known to be true.
    pub(super) fn unvouched(&self, before: usize) -> impl Iterator<Item = usize> + '_ {
        let heights = self.heights.iter().enumerate().take(before).skip(self.vouched());
        let heights = heights.filter(|(_, at)| at.answer == HeightAnswer::Filter && !at.audited);
        heights.map(|(place, _)| place)
    }
}

/// Returns the number of the interval that contains a height. The height must not be 0.
pub(super) fn interval_of(height: u32) -> u32 {
    height.div_ceil(CHECKPOINT_INTERVAL)
}

/// Returns the first height of an interval.
pub(super) fn first_of(interval: u32) -> u32 {
    (interval - 1) * CHECKPOINT_INTERVAL + 1
}

/// Returns the index of a height in its interval.
pub(super) fn place_of(height: u32) -> usize {
    (height - first_of(interval_of(height))) as usize
}

/// Joins ascending heights into ranges of consecutive heights.
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
