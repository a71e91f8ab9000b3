//! What peers claim about filters, height by height.
//!
//! Headers of filters commit to all filters before them: once two peers differ, their headers
//! differ for ever, and their filters need not. So what is kept and compared is the *hash* of each
//! filter; headers serve to learn that two peers agree on a whole interval.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;

use super::CHECKPOINT_INTERVAL;
use super::interval::{
    Answer, Height, Interval, SPAN, Voucher, first_of, interval_of, place_of, runs,
};
use crate::btc::peer::PeerId;

/// Heights are `int` in Core: from here on no height is wanted, and no number overflows.
const MAX_FIRST: u32 = i32::MAX as u32;
/// So many that have left are remembered one by one for each interval. More are counted together.
pub(super) const MAX_VOUCHERS: usize = 32;
/// Refuted hashes that are remembered for each height.
const MAX_REFUTED: usize = 16;

/// What follows from a peer's hashes.
#[derive(Debug)]
pub(super) struct Reported {
    /// A claim among them that is known to be false.
    pub(super) refuted: Option<(u32, FilterHash)>,
    /// Heights that were answered by filters for which nobody vouches now, in runs.
    pub(super) reopened: Vec<RangeInclusive<u32>>,
}

/// All claims.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    /// The number of the first interval.
    pub(super) first_interval: u32,
    /// The first height wanted.
    pub(super) first: u32,
    pub(super) intervals: Vec<Interval>,
    /// Claims of other hashes than that of the height, while that is not settled.
    pub(super) differing: BTreeMap<(u32, PeerId), FilterHash>,
    /// Hashes that blocks have refuted.
    pub(super) refuted: BTreeSet<(u32, FilterHash)>,
    /// No interval before this one is unfinished.
    pub(super) frontier: u32,
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

    pub(super) fn interval(&self, interval: u32) -> Option<&Interval> {
        self.intervals.get(interval.checked_sub(self.first_interval)? as usize)
    }

    pub(super) fn interval_mut(&mut self, interval: u32) -> Option<&mut Interval> {
        self.intervals.get_mut(interval.checked_sub(self.first_interval)? as usize)
    }

    pub(super) fn at(&self, height: u32) -> Option<&Height> {
        self.interval(interval_of(height))?.heights.get(place_of(height))
    }

    /// The lowest interval that is not finished.
    pub(super) fn frontier(&mut self) -> u32 {
        while self.interval(self.frontier).is_some_and(Interval::is_finished) {
            self.frontier += 1;
        }
        self.frontier
    }

    pub(super) fn reach_back(&mut self, height: u32) {
        self.frontier = self.frontier.min(interval_of(height));
    }

    /// The height up to which everything wanted above the genesis block is answered.
    pub(super) fn answered_to(&self) -> Option<u32> {
        let mut number = self.frontier;
        while self.interval(number).is_some_and(Interval::is_finished) {
            number += 1;
        }
        let answered = |height: &u32| match self.at(*height).map(|at| at.answer) {
            None | Some(Answer::None) => false,
            Some(Answer::Block | Answer::Unwanted) => true,
            Some(Answer::Filter) => self.num_vouchers(*height) > 0,
        };
        let from = first_of(number);
        let known = self.interval(number).map_or(0, |known| known.heights.len());
        let answered = (from..).take(known).take_while(answered).last();
        let last = answered.or_else(|| from.checked_sub(1))?;
        (last >= self.first.max(1)).then_some(last)
    }

    /// The height behind the highest that anyone was heard about.
    pub(super) fn end(&self) -> u32 {
        let number = self.first_interval + self.num_intervals().saturating_sub(1);
        let known = self.interval(number).map_or(0, |known| known.heights.len());
        first_of(number) + u32::try_from(known).expect("1,000 at most")
    }

    /// How many peers vouch for the hash of this height.
    pub(super) fn num_vouchers(&self, height: u32) -> u32 {
        let Some(interval) = self.interval(interval_of(height)) else { return 0 };
        let earlier = interval.earlier;
        let earlier = if place_of(height) < earlier.heights { earlier.peers } else { 0 };
        u32::try_from(self.vouchers(height).count()).unwrap_or(u32::MAX).saturating_add(earlier)
    }

    /// How many peers vouch for all of the first heights of an interval, for as many heights as
    /// anyone does: those who differ somewhere, for the heights below.
    pub(super) fn agreement(&self, number: u32) -> (usize, usize) {
        let Some(interval) = self.interval(number) else { return (0, 0) };
        let range = (first_of(number), PeerId(0))..(first_of(number + 1), PeerId(0));
        let differing: Vec<_> = self.differing.range(range).map(|(key, _)| *key).collect();
        let vouched = interval.vouchers.iter().map(|voucher| {
            let differs = differing.iter().find(|(_, peer)| *peer == voucher.peer);
            voucher.heights.min(differs.map_or(usize::MAX, |&(height, _)| place_of(height)))
        });
        let vouched: Vec<_> = vouched.collect();
        let heights = vouched.iter().copied().max().unwrap_or(0).max(interval.earlier.heights);
        let peers = vouched.iter().filter(|&&vouched| vouched >= heights).count();
        let before = interval.earlier;
        let earlier = if before.heights >= heights { before.peers as usize } else { 0 };
        (peers + earlier, heights)
    }

    /// Whether another than `peer` vouches for the hash of this height.
    fn is_vouched_by_others(&self, height: u32, peer: PeerId) -> bool {
        let earlier = self.interval(interval_of(height)).map_or(0, |known| known.earlier.heights);
        place_of(height) < earlier || self.vouchers(height).any(|voucher| voucher != peer)
    }

    /// The peers, connected or not, that claim the hash of this height.
    pub(super) fn vouchers(&self, height: u32) -> impl Iterator<Item = PeerId> {
        let place = place_of(height);
        let interval = self.interval(interval_of(height));
        let vouchers = interval.into_iter().flat_map(|interval| &interval.vouchers);
        vouchers
            .filter(move |voucher| voucher.heights > place)
            .map(|voucher| voucher.peer)
            .filter(move |&peer| !self.differing.contains_key(&(height, peer)))
    }

    /// Who claims something else about this height.
    pub(super) fn differing_at(
        &self,
        height: u32,
    ) -> impl Iterator<Item = (PeerId, FilterHash)> + '_ {
        let range = (height, PeerId(u64::MIN))..=(height, PeerId(u64::MAX));
        self.differing.range(range).map(|(&(_, peer), &hash)| (peer, hash))
    }

    /// The peers, connected or not, that claim `hash` for this height.
    pub(super) fn claimants(&self, height: u32, hash: FilterHash) -> Vec<PeerId> {
        let is_accepted = self.at(height).is_some_and(|at| at.hash == hash);
        let vouchers = self.vouchers(height).filter(|_| is_accepted);
        let differing = self.differing_at(height).filter(|&(_, claimed)| claimed == hash);
        vouchers.chain(differing.map(|(peer, _)| peer)).collect()
    }

    /// The hashes claimed for a height that its block has not settled.
    pub(super) fn hashes(&self, height: u32) -> BTreeSet<FilterHash> {
        let at = self.at(height).filter(|at| !at.ambiguous);
        let accepted = at.map(|at| at.hash).filter(|_| self.num_vouchers(height) > 0);
        accepted.into_iter().chain(self.differing_at(height).map(|(_, hash)| hash)).collect()
    }

    /// The hash that a peer claims, if it was heard about this height.
    pub(super) fn claim(&self, peer: PeerId, height: u32) -> Option<FilterHash> {
        let differing = self.differing.get(&(height, peer)).copied();
        differing.or_else(|| {
            let place = place_of(height);
            let interval = self.interval(interval_of(height))?;
            let voucher = interval.vouchers.iter().find(|voucher| voucher.peer == peer)?;
            let hash = interval.heights.get(place)?.hash;
            (voucher.heights > place).then_some(hash)
        })
    }

    /// Whether a peer whose headers these are claims the hashes of a complete interval. It
    /// vouches for them then.
    pub(super) fn agrees(&mut self, peer: PeerId, interval: u32, ends: [FilterHeader; 2]) -> bool {
        let agrees = self.interval_mut(interval).is_some_and(|interval| interval.leads(ends));
        if agrees {
            self.vouch(peer, interval, SPAN);
        }
        agrees
    }

    fn vouch(&mut self, peer: PeerId, interval: u32, heights: usize) {
        let Some(interval) = self.interval_mut(interval) else { return };
        match interval.vouchers.iter_mut().find(|voucher| voucher.peer == peer) {
            Some(voucher) => voucher.heights = heights,
            None => interval.vouchers.push(Voucher { peer, heights }),
        }
    }

    /// Takes a peer's hashes of consecutive heights of one interval, which follow what it has
    /// reported before.
    pub(super) fn report(&mut self, peer: PeerId, start: u32, hashes: &[FilterHash]) -> Reported {
        let (mut refuted, mut reopened) = (None, Vec::new());
        let number = interval_of(start);
        while self.interval(number).is_none() {
            self.intervals.push(Interval::default());
        }
        for (height, &hash) in (start..).zip(hashes) {
            if self.refuted.contains(&(height, hash)) {
                refuted.get_or_insert((height, hash));
            }
            // What the peer itself claimed before it takes back.
            let is_vouched = self.is_vouched_by_others(height, peer);
            let wanted = height >= self.first;
            let interval = self.interval_mut(number).expect("made above");
            let Some(at) = interval.heights.get_mut(place_of(height)) else {
                let answer = if wanted { Answer::None } else { Answer::Unwanted };
                interval.open += usize::from(wanted);
                interval.heights.push(Height { hash, answer, ambiguous: false, audited: false });
                continue;
            };
            if at.hash == hash {
                continue;
            }
            match at.answer {
                Answer::Unwanted if is_vouched => {}
                _ if at.audited => {
                    refuted.get_or_insert((height, hash));
                }
                _ if !is_vouched => {
                    at.hash = hash;
                    at.ambiguous &= at.answer != Answer::Block;
                    if at.answer == Answer::Filter {
                        at.answer = Answer::None;
                        interval.open += 1;
                        reopened.push(height);
                    }
                    interval.change();
                }
                Answer::Block => at.ambiguous = true,
                Answer::None | Answer::Filter | Answer::Unwanted => {
                    if !at.ambiguous {
                        self.differing.insert((height, peer), hash);
                    }
                }
            }
        }
        let end = start as usize - first_of(number) as usize + hashes.len();
        self.vouch(peer, number, end);
        self.reach_back(start);
        Reported { refuted, reopened: runs(reopened.into_iter()) }
    }

    /// Notes how a height was answered.
    pub(super) fn answer(&mut self, height: u32, answer: Answer) {
        let Some(interval) = self.interval_mut(interval_of(height)) else { return };
        let Some(at) = interval.heights.get_mut(place_of(height)) else { return };
        let open = |answer| usize::from(answer == Answer::None);
        interval.open = interval.open + open(answer) - open(at.answer);
        at.answer = answer;
        interval.waits_since = interval.waits_since.filter(|_| interval.open > 0);
        if answer == Answer::None {
            self.reach_back(height);
        }
    }

    /// Ends what is open about a height: its block was scanned, refuted these hashes, and has a
    /// filter with the hash `valid`, if that was found. Who claimed that may be gone.
    pub(super) fn settle(
        &mut self,
        height: u32,
        refuted: &[FilterHash],
        valid: Option<FilterHash>,
    ) {
        let mut left = self.hashes(height);
        left.retain(|hash| !refuted.contains(hash));
        let differing: Vec<_> = self.differing_at(height).map(|(peer, _)| (height, peer)).collect();
        for key in differing {
            self.differing.remove(&key);
        }
        self.answer(height, Answer::Block);
        let Some(interval) = self.interval_mut(interval_of(height)) else { return };
        let Some(at) = interval.heights.get_mut(place_of(height)) else { return };
        at.ambiguous |= left.len() > 1;
        if let Some(valid) = valid {
            at.audited = true;
            at.ambiguous = false;
            if at.hash != valid {
                at.hash = valid;
                interval.change();
            }
        } else if refuted.contains(&at.hash) {
            at.hash = left.first().copied().unwrap_or_else(FilterHash::all_zeros);
            at.ambiguous |= left.is_empty();
            interval.change();
        }
    }

    /// Remembers that a block refutes this; returns false where that is too much.
    pub(super) fn refute(&mut self, height: u32, hash: FilterHash) -> bool {
        let all =
            (height, FilterHash::all_zeros())..=(height, FilterHash::from_byte_array([0xff; 32]));
        if self.refuted.range(all).count() < MAX_REFUTED {
            self.refuted.insert((height, hash));
        }
        self.refuted.contains(&(height, hash))
    }

    /// No filter is evidence about this height: it takes the block.
    pub(super) fn doubt(&mut self, height: u32) {
        let Some(interval) = self.interval_mut(interval_of(height)) else { return };
        if let Some(at) = interval.heights.get_mut(place_of(height)) {
            at.ambiguous = true;
        }
    }

    /// Whether peers of an earlier run claim this.
    pub(super) fn is_claimed_earlier(&self, height: u32, hash: FilterHash) -> bool {
        let covers = |interval: &Interval| place_of(height) < interval.earlier.heights;
        self.interval(interval_of(height)).is_some_and(covers)
            && self.at(height).is_some_and(|at| at.hash == hash && !at.ambiguous)
    }

    /// Has all heights from `from` on answered again. Returns those whose filter is not known.
    pub(super) fn reopen(&mut self, from: u32) -> Vec<u32> {
        let mut ambiguous = Vec::new();
        let first = from.max(self.first).max(1);
        for number in interval_of(first)..self.first_interval + self.num_intervals() {
            let Some(interval) = self.interval_mut(number) else { continue };
            for (height, at) in (first_of(number)..).zip(&mut interval.heights) {
                if height < first {
                    continue;
                }
                interval.open += usize::from(at.answer != Answer::None);
                at.answer = Answer::None;
                ambiguous.extend(at.ambiguous.then_some(height));
            }
        }
        self.reach_back(first);
        ambiguous
    }

    pub(super) fn num_intervals(&self) -> u32 {
        u32::try_from(self.intervals.len()).expect("fewer than heights")
    }

    /// Whether a header that is trusted commits to the hash of this height.
    pub(super) fn is_committed(&self, height: u32) -> bool {
        let interval = self.interval(interval_of(height));
        let differs = self.differing_at(height).next().is_some();
        interval.is_some_and(|interval| interval.committed) && !differs
    }

    /// The headers at the end of these intervals are trusted. Returns the intervals whose hashes
    /// they turn out to commit to.
    pub(super) fn commit(&mut self, trusted: &BTreeMap<u32, FilterHeader>) -> Vec<u32> {
        let mut committed = Vec::new();
        if trusted.is_empty() {
            return committed;
        }
        let mut above: Option<[FilterHeader; 2]> = None;
        for number in (self.first_interval..self.first_interval + self.num_intervals()).rev() {
            let interval = self.interval_mut(number).expect("counted");
            let header = trusted.get(&(number * CHECKPOINT_INTERVAL)).copied();
            let header = header.or_else(|| above.map(|[before, _]| before));
            let leads = interval.ends.filter(|&[_, end]| Some(end) == header);
            if leads.is_some() && !interval.committed {
                committed.push(number);
            }
            interval.committed |= leads.is_some();
            above = leads;
        }
        committed
    }

    /// The heights of an interval, in runs, that filters answered and nobody disputes.
    pub(super) fn answered_by_filter(&self, number: u32, from: u32) -> Vec<RangeInclusive<u32>> {
        let Some(interval) = self.interval(number) else { return Vec::new() };
        let heights = (first_of(number)..).zip(&interval.heights);
        let answered =
            heights.filter(|(height, at)| *height >= from && at.answer == Answer::Filter);
        let heights = answered.map(|(height, _)| height);
        runs(heights.filter(|&height| self.differing_at(height).next().is_none()))
    }
}
