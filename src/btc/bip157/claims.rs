//! The filter hashes that peers claim for each height, and how each height was answered.
//!
//! A filter header commits to all filters before it. Once the filters of two peers differ at one
//! height, their headers differ at all later heights, even where their filters are equal. So the
//! *hash* of each filter is stored and compared. Filter headers are compared only to find out
//! whether two peers agree on a whole interval.
//!
//! A claim is dropped in three cases: the peer that made the claim is convicted of a lie, the peer
//! leaves before it has sent the claimed filter, or the claim's block leaves the chain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use core::time::Duration;

use super::CHECKPOINT_INTERVAL;
use super::interval::{
    Anonymous, Height, HeightAnswer, Interval, SPAN, first_of, interval_of, place_of, runs,
};
use crate::btc::peer::{Grade, PeerId};

/// Core stores heights as `int`: no higher height is wanted, and height arithmetic cannot overflow.
const MAX_FIRST: u32 = i32::MAX as u32;
/// Maximum number of refuted hashes that are remembered for each height. The value of this limit is
/// a choice, not a measurement. The limit bounds the memory, because peers that connect one after
/// another can claim new hashes without end. A refuted hash beyond this number is not remembered.
/// If a peer claims this hash again, the block is fetched again to decide.
const MAX_REFUTED: usize = 16;

/// Result of recording the filter hashes that a peer claims.
#[derive(Debug)]
pub(super) struct Reported {
    /// The first of these claims that an audit has already refuted.
    pub(super) refuted: Option<(u32, FilterHash)>,
    /// Ranges of heights whose answers were given by filters and are withdrawn, because no peer
    /// vouches for these heights now.
    pub(super) reopened: Vec<RangeInclusive<u32>>,
}

/// All claims. The intervals are consecutive, beginning with `first_interval`. An interval without
/// any claims is empty.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    /// The number of the first interval, which contains `first`.
    pub(super) first_interval: u32,
    /// The first height wanted.
    pub(super) first: u32,
    pub(super) intervals: Vec<Interval>,
    /// Claims that differ from the accepted hash of their height, until the height is settled. The
    /// map also contains claims of departed peers whose filter is at hand.
    differing: BTreeMap<(u32, PeerId), FilterHash>,
    /// Filter hashes that blocks have refuted.
    pub(super) refuted: BTreeSet<(u32, FilterHash)>,
    /// All intervals before this interval are finished.
    frontier: u32,
}

impl Claims {
    pub(super) fn new(first: u32) -> Self {
        let first = first.min(MAX_FIRST);
        let first_interval = interval_of(first.max(1));
        Self {
            first_interval,
            first,
            intervals: Vec::new(),
            differing: BTreeMap::new(),
            refuted: BTreeSet::new(),
            frontier: first_interval,
        }
    }

    /// Iterates over the known intervals and their numbers, up to the last interval with claims.
    pub(super) fn intervals(&self) -> impl Iterator<Item = (u32, &Interval)> {
        (self.first_interval..).zip(&self.intervals)
    }

    /// Returns the unanswered heights at which no filter is evidence.
    pub(super) fn ambiguous_open(&self) -> Vec<u32> {
        let heights = self.intervals().flat_map(|(number, interval)| {
            let heights = (first_of(number)..).zip(&interval.heights);
            heights.filter(|(_, at)| at.ambiguous && at.answer == HeightAnswer::None)
        });
        heights.map(|(height, _)| height).collect()
    }

    pub(super) fn interval(&self, interval: u32) -> Option<&Interval> {
        self.intervals.get(interval.checked_sub(self.first_interval)? as usize)
    }

    fn interval_mut(&mut self, interval: u32) -> Option<&mut Interval> {
        self.intervals.get_mut(interval.checked_sub(self.first_interval)? as usize)
    }

    fn end_interval(&self) -> u32 {
        self.first_interval + u32::try_from(self.intervals.len()).expect("fewer than heights")
    }

    pub(super) fn at(&self, height: u32) -> Option<&Height> {
        self.interval(interval_of(height))?.at(place_of(height))
    }

    /// Returns the number of the lowest unfinished interval.
    pub(super) fn frontier(&mut self) -> u32 {
        while self.interval(self.frontier).is_some_and(Interval::is_finished) {
            self.frontier += 1;
        }
        self.frontier
    }

    fn reach_back(&mut self, height: u32) {
        self.frontier = self.frontier.min(interval_of(height));
    }

    /// Returns the height up to which all wanted heights above genesis have a valid answer.
    pub(super) fn answered_to(&self) -> Option<u32> {
        let mut number = self.frontier;
        while self.interval(number).is_some_and(Interval::is_finished) {
            number += 1;
        }
        let from = first_of(number);
        let answered = self.interval(number).map_or(0, |known| {
            let answered = known.answered();
            // A peer that vouches for the interval need not vouch for a disputed height: its own
            // claim there may differ.
            let below = from.saturating_add(u32::try_from(answered).expect("1,000 at most"));
            let mut disputed = self.differing.range((from, PeerId(0))..(below, PeerId(0)));
            let lone = disputed.find(|&(&(height, _), _)| {
                let answer = self.at(height).map(|at| at.answer);
                answer == Some(HeightAnswer::Filter) && self.grade(height).is_none()
            });
            lone.map_or(answered, |(&(height, _), _)| place_of(height))
        });
        let last = from.saturating_add(u32::try_from(answered).expect("1,000 at most")) - 1;
        (last >= self.first.max(1)).then_some(last)
    }

    /// Returns the height after the highest height with a claim.
    pub(super) fn end(&self) -> u32 {
        let number = self.end_interval().saturating_sub(1).max(self.first_interval);
        let known = self.interval(number).map_or(0, |known| known.heights.len());
        first_of(number) + u32::try_from(known).expect("1,000 at most")
    }

    /// Returns a lower bound of the number of distinct peers that vouch for the accepted hash of a
    /// height. A peer of this run may also be one of the earlier peers that are only counted, for
    /// example after a restart, and a peer that has left may have connected again. So such peers are
    /// not added to the connected peers.
    pub(super) fn num_vouchers(&self, height: u32) -> u32 {
        let Some(interval) = self.interval(interval_of(height)) else { return 0 };
        let differs = |peer| self.differing.contains_key(&(height, peer));
        interval.num_peers(place_of(height) + 1, differs)
    }

    /// Returns the longest prefix of an interval that any peer vouches for, and the number of peers
    /// that vouch for the whole prefix, counted as in [`num_vouchers`](Self::num_vouchers). A peer
    /// that disputes a height vouches only for the heights below.
    pub(super) fn agreement(&self, number: u32) -> Anonymous {
        let Some(interval) = self.interval(number) else { return Anonymous::default() };
        let range = (first_of(number), PeerId(0))..(first_of(number + 1), PeerId(0));
        let differing: Vec<_> = self.differing.range(range).map(|(key, _)| *key).collect();
        let vouched = interval.vouchers.iter().map(|voucher| {
            let differs = differing.iter().find(|(_, peer)| *peer == voucher.peer);
            voucher.heights.min(differs.map_or(usize::MAX, |&(height, _)| place_of(height)))
        });
        let heights = vouched.max().unwrap_or(0).max(interval.earlier.heights);
        let differs = |peer| {
            differing.iter().any(|&(height, other)| other == peer && place_of(height) < heights)
        };
        Anonymous { peers: interval.num_peers(heights, differs), heights }
    }

    /// Returns the grade of a "no" that the filter with the accepted hash gives; `None` if no peer
    /// and no trusted header vouches for this hash.
    pub(super) fn grade(&self, height: u32) -> Option<Grade> {
        let at = self.at(height)?;
        match self.num_vouchers(height) {
            _ if at.audited => Some(Grade::Audited),
            _ if self.is_committed(interval_of(height)) => Some(Grade::Checkpoint),
            0 => None,
            1 => Some(Grade::OnePeer),
            peers => Some(Grade::Peers(peers)),
        }
    }

    /// Returns `true` if a trusted filter header commits to the accepted hashes of an interval.
    fn is_committed(&self, number: u32) -> bool {
        self.interval(number).is_some_and(Interval::is_committed)
    }

    /// Returns `true` if a peer or a trusted header vouches for the accepted hash of a height.
    fn is_vouched(&self, height: u32) -> bool {
        self.is_committed(interval_of(height)) || self.num_vouchers(height) > 0
    }

    /// Returns `true` if a peer other than `peer`, or a trusted header, vouches for the accepted hash
    /// of a height.
    fn is_vouched_by_others(&self, height: u32, peer: PeerId) -> bool {
        let earlier = self.interval(interval_of(height)).map_or(0, |known| known.earlier.heights);
        self.is_committed(interval_of(height))
            || place_of(height) < earlier
            || self.vouchers(height).any(|voucher| voucher != peer)
    }

    /// Iterates over the peers, connected or departed, that claim the accepted hash of a height.
    pub(super) fn vouchers(&self, height: u32) -> impl Iterator<Item = PeerId> {
        let place = place_of(height);
        let interval = self.interval(interval_of(height));
        let vouchers = interval.into_iter().flat_map(|interval| &interval.vouchers);
        vouchers
            .filter(move |voucher| voucher.heights > place)
            .map(|voucher| voucher.peer)
            .filter(move |&peer| !self.differing.contains_key(&(height, peer)))
    }

    /// Iterates over the peers whose claims about a height differ from the accepted hash.
    pub(super) fn differing_at(
        &self,
        height: u32,
    ) -> impl Iterator<Item = (PeerId, FilterHash)> + '_ {
        let range = (height, PeerId(u64::MIN))..=(height, PeerId(u64::MAX));
        self.differing.range(range).map(|(&(_, peer), &hash)| (peer, hash))
    }

    /// Iterates over the disputed heights, ascending. A height is repeated for each peer that
    /// disputes it.
    pub(super) fn disputed(&self) -> impl Iterator<Item = u32> + '_ {
        self.differing.keys().map(|(height, _)| *height)
    }

    /// Returns `true` if a peer's claims differ from the accepted hashes at `many` heights or more.
    pub(super) fn differs_at_many(&self, peer: PeerId, many: usize) -> bool {
        let heights = self.differing.keys().filter(|(_, other)| *other == peer);
        heights.take(many).count() == many
    }

    /// Returns the unanswered heights of an interval at which filters are evidence and no peer
    /// disputes the accepted hash.
    pub(super) fn undisputed_open(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let known = self.interval(number).into_iter().flat_map(|known| &known.heights);
        let heights = (first_of(number)..).zip(known);
        let open = heights.filter(|(_, at)| at.answer == HeightAnswer::None && !at.ambiguous);
        let heights = open.map(|(height, _)| height);
        heights.filter(|&height| self.differing_at(height).next().is_none())
    }

    /// Returns the time at which an interval began to wait for the claims of further peers. The
    /// first call sets this time to `now`. Returns `None` if the interval has no claims.
    pub(super) fn waits_since(&mut self, number: u32, now: Duration) -> Option<Duration> {
        Some(self.interval_mut(number)?.waits_since(now))
    }

    /// Returns `true` if `hash` is the accepted hash of a height, and each peer that vouches for the
    /// height has claimed this hash.
    fn is_claimed(&self, height: u32, hash: FilterHash) -> bool {
        self.at(height).is_some_and(|at| at.hash == hash && !at.lost_claims)
    }

    /// Returns the peers, connected or departed, that are known to claim `hash` for a height.
    pub(super) fn claimants(&self, height: u32, hash: FilterHash) -> Vec<PeerId> {
        let is_claimed = self.is_claimed(height, hash);
        let vouchers = self.vouchers(height).filter(|_| is_claimed);
        let differing = self.differing_at(height).filter(|&(_, claimed)| claimed == hash);
        vouchers.chain(differing.map(|(peer, _)| peer)).collect()
    }

    /// Returns the hashes that peers claim for a height and that the block of this height has not
    /// settled.
    pub(super) fn hashes(&self, height: u32) -> BTreeSet<FilterHash> {
        let at = self.at(height).filter(|at| !at.ambiguous);
        let accepted = at.map(|at| at.hash).filter(|_| self.is_vouched(height));
        accepted.into_iter().chain(self.differing_at(height).map(|(_, hash)| hash)).collect()
    }

    /// Returns the hash that a peer claims for a height, if it has made a claim.
    pub(super) fn claim(&self, peer: PeerId, height: u32) -> Option<FilterHash> {
        let differing = self.differing.get(&(height, peer)).copied();
        differing.or_else(|| {
            let place = place_of(height);
            let interval = self.interval(interval_of(height))?;
            let voucher = interval.vouchers.iter().find(|voucher| voucher.peer == peer)?;
            let hash = interval.at(place)?.hash;
            (voucher.heights > place).then_some(hash)
        })
    }

    /// Records that a peer vouches for a complete interval, if the known hashes lead from the first
    /// filter header of `ends` to the second. Returns `true` in this case.
    pub(super) fn vouch_if_agrees(
        &mut self,
        peer: PeerId,
        interval: u32,
        ends: [FilterHeader; 2],
    ) -> bool {
        let Some(interval) = self.interval_mut(interval) else { return false };
        let agrees = interval.leads(ends);
        if agrees {
            interval.vouch(peer, SPAN);
        }
        agrees
    }

    /// Records a peer's hashes of consecutive heights of one interval. These hashes follow the
    /// hashes that the peer has claimed before.
    pub(super) fn report(&mut self, peer: PeerId, start: u32, hashes: &[FilterHash]) -> Reported {
        let (mut refuted, mut reopened) = (None, Vec::new());
        let number = interval_of(start);
        while self.interval(number).is_none() {
            self.intervals.push(Interval::default());
        }
        for (height, &hash) in (start..).zip(hashes) {
            // An audit has refuted this hash before: the peer is a liar, without another download.
            if self.refuted.contains(&(height, hash)) {
                refuted.get_or_insert((height, hash));
            }
            // The peer's own voucher is ignored, because a peer may replace its own earlier claim.
            let is_vouched = self.is_vouched_by_others(height, peer);
            let wanted = height >= self.first;
            let place = place_of(height);
            let interval = self.interval_mut(number).expect("made above");
            let Some(&at) = interval.at(place) else {
                // The first claim about a height becomes the accepted hash.
                interval.push(hash, wanted);
                continue;
            };
            // The claim agrees with the accepted hash. The code after this loop records that the
            // peer vouches for this hash.
            if at.hash == hash {
                continue;
            }
            match at.answer {
                // Claims about a height below the birthday are not compared, because no filter of
                // that height is requested.
                HeightAnswer::Unwanted if is_vouched => interval.set_lost_claims(place, true),
                // The audit has found the block's only valid filter. Any other hash is a lie.
                _ if at.audited => {
                    refuted.get_or_insert((height, hash));
                }
                // Nobody else vouches for the accepted hash, so this claim replaces it. If the
                // block was already scanned, the height is no longer ambiguous, because the claims
                // that the block could not decide are gone. If the block was not scanned yet, it is
                // still needed.
                _ if !is_vouched => {
                    interval.set_hash(place, hash);
                    interval.set_ambiguous(place, at.ambiguous && at.answer != HeightAnswer::Block);
                    interval.set_lost_claims(place, false);
                    // The answer was given by a filter that nobody vouches for any longer.
                    if at.answer == HeightAnswer::Filter {
                        interval.answer(place, HeightAnswer::None);
                        reopened.push(height);
                    }
                    // Peers that have claimed this hash before vouch for it now.
                    self.differing.retain(|&(at, _), other| at != height || *other != hash);
                }
                // The block was scanned and cannot decide between the claims. So no filter of this
                // height is evidence in later rescans.
                HeightAnswer::Block => {
                    interval.set_ambiguous(place, true);
                    interval.set_lost_claims(place, true);
                }
                HeightAnswer::None | HeightAnswer::Filter | HeightAnswer::Unwanted => {
                    // At an ambiguous height the block decides, so further claims need not be kept.
                    if at.ambiguous {
                        interval.set_lost_claims(place, true);
                    } else {
                        self.differing.insert((height, peer), hash);
                    }
                }
            }
        }
        let end = start as usize - first_of(number) as usize + hashes.len();
        // The peer vouches for all its hashes. Where a claim differs, `differing` takes precedence.
        if let Some(interval) = self.interval_mut(number) {
            interval.vouch(peer, end);
        }
        self.reach_back(start);
        Reported { refuted, reopened: runs(reopened.into_iter()) }
    }

    /// Records how a height was answered, or that it is unanswered again.
    pub(super) fn answer(&mut self, height: u32, answer: HeightAnswer) {
        let Some(interval) = self.interval_mut(interval_of(height)) else { return };
        interval.answer(place_of(height), answer);
        // An unanswered height makes its interval unfinished again.
        if answer == HeightAnswer::None {
            self.reach_back(height);
        }
    }

    /// Settles a height whose block was scanned. The block has refuted the hashes `refuted`.
    /// `valid` is the hash of its filter, if the audit has found it; the peer that claimed it may
    /// have left. Returns ranges of other heights whose answers were given by filters and are
    /// withdrawn: a trusted header that commits to another hash than the true hash is false.
    pub(super) fn settle(
        &mut self,
        height: u32,
        refuted: &[FilterHash],
        valid: Option<FilterHash>,
    ) -> Vec<RangeInclusive<u32>> {
        let mut left = self.hashes(height);
        left.retain(|hash| !refuted.contains(hash));
        // The peers of refuted claims are convicted.
        self.differing.retain(|&(at, _), _| at != height);
        self.answer(height, HeightAnswer::Block);
        let place = place_of(height);
        let mut reopened = self.change(interval_of(height), |interval| {
            let Some(&at) = interval.at(place) else { return };
            // The audit has found the true filter. The hash of that filter is accepted, whoever
            // claims it.
            if let Some(valid) = valid {
                interval.audit(place, valid);
                return;
            }
            let is_refuted = refuted.contains(&at.hash);
            // Below the birthday, claims were not compared.
            let lost_claims = at.lost_claims || left.len() > 1;
            interval.set_lost_claims(place, lost_claims);
            let is_ambiguous = at.ambiguous || lost_claims || is_refuted && left.is_empty();
            interval.set_ambiguous(place, is_ambiguous);
            // The accepted hash is false: another claimed hash replaces it, or all zeros if no claim
            // remains.
            if is_refuted {
                let other = left.first().copied().unwrap_or_else(FilterHash::all_zeros);
                interval.set_hash(place, other);
            }
        });
        reopened.extend(self.promote());
        reopened
    }

    /// Changes an interval. Returns ranges of its heights whose answers were given by filters, and
    /// for which no peer vouches since the change.
    fn change(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut Interval),
    ) -> Vec<RangeInclusive<u32>> {
        let Some(interval) = self.interval_mut(number) else { return Vec::new() };
        let before = interval.vouched();
        change(interval);
        if interval.vouched() >= before {
            return Vec::new();
        }
        let height = |place| first_of(number) + u32::try_from(place).expect("1,000 at most");
        let withdrawn = runs(interval.unvouched(before).map(height));
        self.reach_back(first_of(number));
        withdrawn
    }

    /// Remembers that a block has refuted a hash. Returns `false` if the height already has the
    /// maximum number of refuted hashes.
    pub(super) fn refute(&mut self, height: u32, hash: FilterHash) -> bool {
        let all =
            (height, FilterHash::all_zeros())..=(height, FilterHash::from_byte_array([0xff; 32]));
        // Peers that connect one after another could otherwise fill the memory with false hashes.
        if self.refuted.range(all).count() < MAX_REFUTED {
            self.refuted.insert((height, hash));
        }
        self.refuted.contains(&(height, hash))
    }

    /// Records that a trusted header which commits to a refuted hash is false: it vouches for no hash
    /// of the interval. Returns ranges of heights whose answers were given by filters and are
    /// withdrawn.
    pub(super) fn distrust(
        &mut self,
        height: u32,
        refuted: FilterHash,
    ) -> Vec<RangeInclusive<u32>> {
        if self.at(height).is_none_or(|at| at.hash != refuted) {
            return Vec::new();
        }
        let mut reopened = self.change(interval_of(height), Interval::distrust);
        reopened.extend(self.promote());
        reopened
    }

    /// Records that no filter is evidence about a height, so that its block is needed.
    pub(super) fn set_ambiguous(&mut self, height: u32) {
        if let Some(interval) = self.interval_mut(interval_of(height)) {
            interval.set_ambiguous(place_of(height), true);
        }
    }

    /// Returns `true` if peers that are not known individually claim this hash: those of an earlier
    /// run, or departed ones.
    pub(super) fn is_claimed_earlier(&self, height: u32, hash: FilterHash) -> bool {
        let covers = |interval: &Interval| place_of(height) < interval.earlier.heights;
        self.interval(interval_of(height)).is_some_and(covers) && self.is_claimed(height, hash)
    }

    /// Marks heights as unanswered. Returns those of the heights at which no filter is evidence.
    pub(super) fn reopen(&mut self, heights: &RangeInclusive<u32>) -> Vec<u32> {
        let mut ambiguous = Vec::new();
        let (first, last) = ((*heights.start()).max(self.first).max(1), *heights.end());
        let end = self.end_interval().min(interval_of(last).saturating_add(1));
        for number in interval_of(first)..end {
            let start = if number == interval_of(first) { place_of(first) } else { 0 };
            let end = if number == interval_of(last) { place_of(last) + 1 } else { SPAN };
            let Some(interval) = self.interval_mut(number) else { continue };
            let places = interval.reopen(start..end).into_iter();
            let height = |place| first_of(number) + u32::try_from(place).expect("1,000 at most");
            ambiguous.extend(places.map(height));
        }
        self.reach_back(first);
        ambiguous
    }

    /// Extends the wanted heights down to `first`. Returns ranges of heights whose answers by
    /// filters are withdrawn, because no peer vouches for them now.
    pub(super) fn extend(&mut self, first: u32) -> Vec<RangeInclusive<u32>> {
        let before = self.first_interval;
        self.first = first.min(self.first);
        self.first_interval = interval_of(self.first.max(1));
        // Empty intervals fill the gap, because intervals must be consecutive.
        if !self.intervals.is_empty() {
            let new = (self.first_interval..before).map(|_| Interval::default());
            drop(self.intervals.splice(..0, new));
        }
        self.frontier = self.frontier.min(self.first_interval);
        // Of the old intervals, only the first one can contain heights that were not wanted.
        let place = if before == self.first_interval { place_of(self.first.max(1)) } else { 0 };
        let mut is_new = false;
        let reopened = self.change(before, |interval| is_new = interval.extend(place));
        // If every height was wanted before, the claims about each height were compared.
        if is_new {
            self.differing.retain(|&(height, _), _| interval_of(height) != before);
        }
        reopened
    }

    /// Finds the intervals whose hashes a trusted filter header commits to. Returns the numbers of
    /// the intervals that are found for the first time.
    pub(super) fn commit(&mut self, trusted: &BTreeMap<u32, FilterHeader>) -> Vec<u32> {
        let mut committed = Vec::new();
        // Without checkpoints, no header is trusted.
        if trusted.is_empty() {
            return committed;
        }
        let mut above: Option<[FilterHeader; 2]> = None;
        // From the top down: if an interval is committed, the header before it is trusted too, and
        // can commit the interval below.
        for number in (self.first_interval..self.end_interval()).rev() {
            let interval = self.interval_mut(number).expect("counted");
            let header = trusted.get(&(number * CHECKPOINT_INTERVAL)).copied();
            let header = header.or_else(|| above.map(|[before, _]| before));
            let leads = interval.ends().filter(|&[_, end]| Some(end) == header);
            if leads.is_some() && interval.commit() {
                committed.push(number);
            }
            above = leads;
        }
        committed
    }

    /// Returns ranges of the heights of an interval that were answered by undisputed filters.
    pub(super) fn answered_by_filter(&self, number: u32, from: u32) -> Vec<RangeInclusive<u32>> {
        let Some(interval) = self.interval(number) else { return Vec::new() };
        let heights = (first_of(number)..).zip(&interval.heights);
        let answered =
            heights.filter(|(height, at)| *height >= from && at.answer == HeightAnswer::Filter);
        let heights = answered.map(|(height, _)| height);
        runs(heights.filter(|&height| self.differing_at(height).next().is_none()))
    }

    /// Drops all claims of liars. Returns ranges of heights whose answers were given by filters and
    /// are withdrawn. If `earlier` is `true`, the claims of peers that are not known individually
    /// are dropped too.
    pub(super) fn convict(&mut self, liars: &[PeerId], earlier: bool) -> Vec<RangeInclusive<u32>> {
        self.differing.retain(|(_, peer), _| !liars.contains(peer));
        self.withdraw(|_, interval| interval.drop_vouchers(liars, earlier))
    }

    /// Applies `take`, which removes vouchers, to each interval. Returns ranges of heights whose
    /// answers by filters are withdrawn.
    fn withdraw(&mut self, take: impl Fn(u32, &mut Interval)) -> Vec<RangeInclusive<u32>> {
        let mut reopened = Vec::new();
        for number in self.first_interval..self.end_interval() {
            reopened.extend(self.change(number, |interval| take(number, interval)));
        }
        reopened.extend(self.promote());
        reopened
    }

    /// Accepts another claim for each disputed height if no peer vouches for the accepted hash any
    /// longer. Returns the heights whose answers were given by a filter and are withdrawn.
    fn promote(&mut self) -> Vec<RangeInclusive<u32>> {
        let keys: Vec<_> = self.differing.keys().copied().collect();
        let mut reopened = Vec::new();
        for (height, peer) in keys {
            let place = place_of(height);
            let stays = self.interval(interval_of(height)).is_some_and(|interval| {
                let mut vouchers = interval.vouchers.iter();
                vouchers.any(|voucher| voucher.peer == peer && voucher.heights > place)
            });
            // Only a peer that still vouches for the height can replace the accepted hash. A
            // departed peer whose voucher ends below this height cannot replace the hash.
            if self.is_vouched(height) || !stays {
                continue;
            }
            let Some(hash) = self.differing.remove(&(height, peer)) else { continue };
            self.differing.retain(|&(at, _), other| at != height || *other != hash);
            let interval = self.interval_mut(interval_of(height)).expect("differs there");
            interval.set_hash(place, hash);
            // An answer by the filter of the old hash is withdrawn.
            if interval.at(place).is_some_and(|at| at.answer == HeightAnswer::Filter) {
                self.answer(height, HeightAnswer::None);
                reopened.push(height..=height);
            }
        }
        reopened
    }

    /// Removes the claims of a departed peer for which it has sent no filter, so that a peer cannot
    /// make claims, leave, and still be counted.
    ///
    /// In each interval, the peer still vouches for the heights below the first unanswered height
    /// and below the first height at which a differing claim of the peer was removed. Claims for
    /// which `keep` returns `true` stay too. Returns ranges of heights whose answers were given by
    /// filters and are withdrawn.
    pub(super) fn depart(
        &mut self,
        peer: PeerId,
        keep: impl Fn(u32, FilterHash) -> bool,
    ) -> Vec<RangeInclusive<u32>> {
        let mut dropped = Vec::new();
        self.differing.retain(|&(height, claimant), &mut hash| {
            let stays = claimant != peer || keep(height, hash);
            dropped.extend((!stays).then_some(height));
            stays
        });
        for number in self.first_interval..self.end_interval() {
            let interval = self.interval(number).expect("counted");
            // Every filter of this interval has arrived, so the peer keeps its claims.
            if interval.open == 0 {
                continue;
            }
            let claimed = (first_of(number)..).zip(&interval.heights);
            let open = claimed.filter(|(_, at)| at.answer == HeightAnswer::None);
            // These claims stay, although the voucher that covers them is limited, because their
            // filter is at hand.
            let kept = open.map(|(height, at)| (height, at.hash)).filter(|&(height, hash)| {
                let is_claimed = self.is_claimed(height, hash);
                is_claimed && keep(height, hash) && self.vouchers(height).any(|it| it == peer)
            });
            let kept: Vec<_> = kept.collect();
            self.differing.extend(kept.into_iter().map(|(height, hash)| ((height, peer), hash)));
        }
        let reopened = self.withdraw(|number, interval| {
            let open = interval.heights.iter().take_while(|_| interval.open > 0);
            let first_open = open.clone().position(|at| at.answer == HeightAnswer::None);
            // Limit the voucher to the heights below the first unanswered height and the first
            // dropped claim. Otherwise the peer, without its differing claim, would be counted as a
            // voucher for the accepted hash.
            let differed = dropped.iter().find(|&&height| interval_of(height) == number);
            let end = first_open.into_iter().chain(differed.map(|&height| place_of(height))).min();
            if let Some(end) = end {
                interval.limit_voucher(peer, end);
            }
        });
        let differing = self.differing.keys().map(|&(height, peer)| (interval_of(height), peer));
        let differing: BTreeSet<_> = differing.collect();
        for (number, interval) in (self.first_interval..).zip(&mut self.intervals) {
            interval.part(peer, |peer| differing.contains(&(number, peer)));
        }
        // Peers with differing claims are kept individually, because a block may still convict them.
        let kept: BTreeSet<_> = self.differing.keys().map(|&(_, claimant)| claimant).collect();
        for interval in &mut self.intervals {
            interval.count_together(|peer| !kept.contains(&peer));
        }
        reopened
    }

    /// Drops the claims about a height that differ from its accepted hash, if `has_left` returns
    /// `true` for the peer that made them.
    pub(super) fn drop_differing(&mut self, height: u32, has_left: impl Fn(PeerId) -> bool) {
        let place = place_of(height);
        let Some(at) = self.at(height).copied() else { return };
        let Some(interval) = self.interval(interval_of(height)) else { return };
        let vouches = |peer| {
            interval.vouchers.iter().any(|voucher| voucher.peer == peer && voucher.heights > place)
        };
        let dropped = self.differing_at(height).filter(|(peer, _)| has_left(*peer));
        let lost = dropped.filter(|&(peer, hash)| hash != at.hash && vouches(peer)).count() > 0;
        self.differing.retain(|&(at, peer), _| at != height || !has_left(peer));
        if let Some(interval) = self.interval_mut(interval_of(height)) {
            interval.set_lost_claims(place, at.lost_claims || lost);
        }
    }

    /// Drops all records about heights above `height`. Returns ranges of the other heights whose
    /// answers were given by filters and are withdrawn.
    pub(super) fn truncate(&mut self, height: u32) -> Vec<RangeInclusive<u32>> {
        self.differing.retain(|&(at, _), _| at <= height);
        self.refuted.retain(|&(at, _)| at <= height);
        let last = interval_of(height);
        let intervals = (last + 1).saturating_sub(self.first_interval) as usize;
        self.intervals.truncate(intervals);
        self.frontier = self.frontier.min(last.max(self.first_interval));
        // The genesis block is in no interval.
        if height == 0 {
            return Vec::new();
        }
        let mut reopened = self.change(last, |interval| interval.truncate(place_of(height) + 1));
        reopened.extend(self.promote());
        reopened
    }
}
