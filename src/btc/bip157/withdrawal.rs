//! Claims that are taken back: of liars, of peers that leave, of blocks that leave the chain.

use core::cmp::Ordering;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;

use super::claims::{Claims, MAX_VOUCHERS};
use super::interval::{Answer, Earlier, Interval, first_of, interval_of, place_of, runs};
use crate::btc::peer::PeerId;

impl Claims {
    /// Drops everything that liars claim. Returns the heights that were answered and for which
    /// nobody vouches now. Peers of an earlier run may be among the liars if `earlier`.
    pub(super) fn convict(&mut self, liars: &[PeerId], earlier: bool) -> Vec<RangeInclusive<u32>> {
        self.differing.retain(|(_, peer), _| !liars.contains(peer));
        self.withdraw(|_, interval| {
            interval.vouchers.retain(|voucher| !liars.contains(&voucher.peer));
            if earlier {
                interval.earlier = Earlier::default();
            }
        })
    }

    /// Takes vouchers from intervals.
    fn withdraw(&mut self, take: impl Fn(u32, &mut Interval)) -> Vec<RangeInclusive<u32>> {
        let mut reopened = Vec::new();
        for number in self.first_interval..self.first_interval + self.num_intervals() {
            let interval = self.interval_mut(number).expect("counted");
            let before = interval.vouched();
            take(number, interval);
            if interval.vouched() < before {
                self.reach_back(first_of(number));
                reopened.extend(self.doubtful(number, before));
            }
        }
        reopened.extend(self.promote());
        reopened
    }

    /// Where nobody vouches for the hash of a height any more and someone claims another, that
    /// takes its place.
    fn promote(&mut self) -> Vec<RangeInclusive<u32>> {
        let keys: Vec<_> = self.differing.keys().copied().collect();
        let mut reopened = Vec::new();
        for (height, peer) in keys {
            let place = place_of(height);
            let stays = self.interval(interval_of(height)).is_some_and(|interval| {
                let mut vouchers = interval.vouchers.iter();
                vouchers.any(|voucher| voucher.peer == peer && voucher.heights > place)
            });
            if self.num_vouchers(height) > 0 || !stays {
                continue;
            }
            let Some(hash) = self.differing.remove(&(height, peer)) else { continue };
            let same: Vec<_> =
                self.differing_at(height).filter(|(_, other)| *other == hash).collect();
            for (peer, _) in same {
                self.differing.remove(&(height, peer));
            }
            let interval = self.interval_mut(interval_of(height)).expect("differs there");
            interval.change();
            let at = interval.heights.get_mut(place_of(height)).expect("differs there");
            at.hash = hash;
            if at.answer == Answer::Filter {
                self.answer(height, Answer::None);
                reopened.push(height..=height);
            }
        }
        reopened
    }

    /// A peer is gone. What it claimed goes too, but where `keep`, and where it was answered with:
    /// up to the first height that is open, or where it differed. Returns the heights that were
    /// answered and for which nobody vouches now.
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
        for number in self.first_interval..self.first_interval + self.num_intervals() {
            let interval = self.interval(number).expect("counted");
            if interval.open == 0 {
                continue;
            }
            let claimed = (first_of(number)..).zip(&interval.heights);
            let open = claimed.filter(|(_, at)| at.answer == Answer::None);
            let kept = open.map(|(height, at)| (height, at.hash)).filter(|&(height, hash)| {
                keep(height, hash) && self.vouchers(height).any(|voucher| voucher == peer)
            });
            let kept: Vec<_> = kept.collect();
            self.differing.extend(kept.into_iter().map(|(height, hash)| ((height, peer), hash)));
        }
        let reopened = self.withdraw(|number, interval| {
            let open = interval.heights.iter().take_while(|_| interval.open > 0);
            let first_open = open.clone().position(|at| at.answer == Answer::None);
            // Without its claim there it would count for that of others.
            let differed = dropped.iter().find(|&&height| interval_of(height) == number);
            let end = first_open.into_iter().chain(differed.map(|&height| place_of(height))).min();
            let Some(end) = end else { return };
            for voucher in interval.vouchers.iter_mut().filter(|voucher| voucher.peer == peer) {
                voucher.heights = voucher.heights.min(end);
            }
            interval.vouchers.retain(|voucher| voucher.heights > 0);
        });
        self.count_together(peer);
        reopened
    }

    /// Counts a peer that has left together with others where too many are remembered: if one of
    /// them is convicted, all of them are. Where they vouch for different heights, fewer are
    /// counted than there were.
    fn count_together(&mut self, peer: PeerId) {
        // Who differs is not as easily one of them; there are few.
        if self.differing.keys().any(|&(_, claimant)| claimant == peer) {
            return;
        }
        for interval in self.intervals.iter_mut().filter(|i| i.vouchers.len() > MAX_VOUCHERS) {
            let place = interval.vouchers.iter().position(|voucher| voucher.peer == peer);
            let Some(heights) = place.map(|place| interval.vouchers.swap_remove(place).heights)
            else {
                continue;
            };
            let together = &mut interval.earlier;
            match heights.cmp(&together.heights) {
                Ordering::Less => {}
                Ordering::Equal => together.peers = together.peers.saturating_add(1),
                Ordering::Greater => *together = Earlier { peers: 1, heights },
            }
        }
    }

    /// Drops what peers that have left claim about a height.
    pub(super) fn drop_differing(&mut self, height: u32, has_left: impl Fn(PeerId) -> bool) {
        self.differing.retain(|&(at, peer), _| at != height || !has_left(peer));
    }

    /// Forgets everything above this height.
    pub(super) fn truncate(&mut self, height: u32) {
        self.differing.retain(|&(at, _), _| at <= height);
        self.refuted.retain(|&(at, _)| at <= height);
        let last = interval_of(height);
        let intervals = (last + 1).saturating_sub(self.first_interval) as usize;
        self.intervals.truncate(intervals);
        self.frontier = self.frontier.min(last.max(self.first_interval));
        if height == 0 {
            return;
        }
        let left = place_of(height) + 1;
        let Some(interval) = self.interval_mut(last) else { return };
        if left >= interval.heights.len() {
            return;
        }
        interval.heights.truncate(left);
        interval.change();
        interval.open = interval.heights.iter().filter(|at| at.answer == Answer::None).count();
        interval.earlier.heights = interval.earlier.heights.min(left);
        for voucher in &mut interval.vouchers {
            voucher.heights = voucher.heights.min(left);
        }
    }

    /// The heights, in runs, that only filters answered and that nobody vouches for, though
    /// someone did for so many.
    fn doubtful(&self, number: u32, before: usize) -> Vec<RangeInclusive<u32>> {
        let Some(interval) = self.interval(number) else { return Vec::new() };
        let heights = (first_of(number)..).zip(&interval.heights).take(before);
        let heights = heights.skip(interval.vouched());
        runs(heights.filter(|(_, at)| at.answer == Answer::Filter).map(|(height, _)| height))
    }
}
