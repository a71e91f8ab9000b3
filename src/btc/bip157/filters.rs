//! Requests for filters, and the hand-over of filters whose hash equals the claims.

use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message_filter::CFilter;
use chainsieve_lanes::hash::{SipKey, siphash_2_4};

use super::claims::Claims;
use super::interval::{Answer, first_of, runs};
use super::parts::Parts;
use super::turn::{Turn, Verdict};
use super::{
    Action, BASIC_FILTER, CHECKPOINT_INTERVAL, Contradiction, MAX_FILTER_SIZE, MAX_FILTERS, Reason,
    ScanReason, VerifiedFilter, Violation,
};
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// A bulk request covers at most one interval, which must not exceed the limit of one request.
const _: () = assert!(MAX_FILTERS >= CHECKPOINT_INTERVAL && MAX_FILTERS > 0);

impl Parts<'_> {
    /// Requests undisputed filters, lowest interval first.
    pub(super) fn ask_for_filters(&mut self, turn: &mut Turn<'_>) {
        let frontier = self.claims.frontier();
        let window = u32::try_from(self.config.limits.intervals).unwrap_or(u32::MAX).max(1);
        for interval in frontier..frontier.saturating_add(window) {
            match self.claims.interval(interval) {
                // No claims are known about this interval or any higher interval.
                None => break,
                // Every height of this interval is answered.
                Some(known) if known.num_open() == 0 => continue,
                Some(_) => {}
            }
            // Every peer is busy. Further intervals would have to wait anyway.
            if self.peers.iter().all(|(_, peer)| peer.requests.has_filters_in_bulk()) {
                break;
            }
            if !self.is_heard(interval, turn) {
                continue;
            }
            for run in self.heights_to_ask(interval, turn) {
                self.ask_for_run(&run, turn);
            }
        }
    }

    /// Returns `true` if the filters of an interval can be requested, because all peers worth
    /// waiting for have made their claims about it.
    ///
    /// The sync does not wait for peers that are still busy with intervals below the frontier, nor
    /// for peers whose answer is overdue. After one timeout, the sync does not wait for any peer.
    /// Waiting avoids needless work: if a late peer disputes a filter that was already handed over,
    /// this filter is withdrawn, and its height must be answered again.
    fn is_heard(&mut self, interval: u32, turn: &Turn<'_>) -> bool {
        let frontier = self.claims.frontier();
        let Some(since) = self.claims.waits_since(interval, turn.now) else { return false };
        // Without this limit, one silent peer could delay every interval.
        if turn.now.saturating_sub(since) > self.peers.timeout() {
            return true;
        }
        let first = first_of(interval);
        let known = self.claims.interval(interval).map_or(0, |known| known.heights().len());
        let known = u32::try_from(known).expect("1,000 at most");
        self.peers.iter().all(|(_, peer)| {
            let height = peer.height(turn.chain).unwrap_or(0);
            // The number of heights in this interval whose claims are known and whose blocks the
            // peer has shown.
            let due = (height + 1).saturating_sub(first).min(known);
            peer.next_height() >= first.saturating_add(due)
                || due == 0
                || peer.next_interval() < frontier
                || self.peers.is_slow(peer, turn.now)
        })
    }

    /// Returns the ranges of heights of an interval whose filters can be requested.
    fn heights_to_ask(&self, interval: u32, turn: &Turn<'_>) -> Vec<RangeInclusive<u32>> {
        let prompt = self.peers.iter().filter(|(_, peer)| !self.peers.is_slow(peer, turn.now));
        let prompt: Vec<_> = prompt.map(|(_, peer)| peer).collect();
        runs(self.claims.undisputed_open(interval).filter(|&height| {
            !self.inspections.contains(height)
                && !prompt.iter().any(|peer| peer.requests.brings_filter(height, false))
        }))
    }

    /// Requests the filters of a range of heights in one interval from peers that are not busy.
    fn ask_for_run(&mut self, run: &RangeInclusive<u32>, turn: &mut Turn<'_>) {
        let mut start = *run.start();
        while start <= *run.end() {
            // Only a peer that claims the hash is asked: if it cannot send that filter, it is a
            // liar, whichever claim is right.
            let claimants: Vec<_> = self.claims.vouchers(start).collect();
            let free = self.peers.iter().filter(|(id, peer)| {
                claimants.contains(id)
                    && !peer.requests.has_filters_in_bulk()
                    && peer.height(turn.chain).is_some_and(|height| height >= start)
            });
            let Some((id, peer)) = free.min_by_key(|(_, peer)| self.peers.rests(peer, turn.now))
            else {
                return;
            };
            let height = peer.height(turn.chain).expect("checked above");
            let stop = (*run.end()).min(height).min(start + MAX_FILTERS - 1);
            let expected: Vec<_> =
                (start..=stop).map_while(|height| self.claims.claim(id, height)).collect();
            // `claim` gives a hash for each height that the peer vouches for. Without any hash, no
            // filter is expected from the peer.
            if expected.is_empty() {
                return;
            }
            start = self.peers.ask_for_filters(id, start, expected, false, turn) + 1;
        }
    }

    /// Processes a `cfilter`.
    ///
    /// # Errors
    /// Returns a verdict on the peer if the message answers no request or contradicts earlier
    /// claims.
    pub(super) fn take_filter(
        &mut self,
        id: PeerId,
        message: CFilter,
        turn: &mut Turn<'_>,
    ) -> Result<(), Verdict> {
        let Some(peer) = self.peers.get_mut(id) else { return Ok(()) };
        // BIP157: `cfilter` is sent only in response to `getcfilters`.
        if !peer.requests.has_filters() {
            return Err(Violation::Unsolicited.into());
        }
        // BIP157: the response has the filter type of the request, and only basic filters are
        // requested.
        if message.filter_type != BASIC_FILTER {
            return Err(Violation::FilterType(message.filter_type).into());
        }
        let bytes = message.filter.len();
        // The filter of a valid block never exceeds this size.
        if bytes > MAX_FILTER_SIZE {
            return Err(Violation::OversizedFilter { bytes, limit: MAX_FILTER_SIZE }.into());
        }
        let sent = filter_hash(&message.filter);
        let height = turn.chain.height_of(&message.block_hash);
        let at = height.map(|height| BlockAt { height, hash: message.block_hash });
        match (peer.requests.take_filter(height, sent, turn.now), at) {
            (Ok(()), Some(at)) => {
                // The filter is used for its block and hash, whichever request it answers.
                self.take_content(at, sent, message.filter, turn);
                Ok(())
            }
            // The block of this filter has left the chain.
            (Ok(()), None) => Ok(()),
            // A filter of this block was expected, but its hash differs from the hash that the peer
            // claimed: the peer has contradicted its claim.
            (Err(Some(claimed)), Some(at)) => {
                let contradiction = Contradiction::Filter { at, claimed, sent };
                Err(Verdict::Convict(Reason::ContradictsItself(contradiction)))
            }
            (Err(_), _) => Err(Violation::WrongBlock(message.block_hash).into()),
        }
    }

    /// Stores or hands over a filter that a peer was asked for.
    fn take_content(
        &mut self,
        at: BlockAt,
        hash: FilterHash,
        content: Vec<u8>,
        turn: &mut Turn<'_>,
    ) {
        let height = at.height;
        // The height is being inspected. A filter whose hash a peer still claims is kept for the
        // audit. A filter that no peer claims would waste memory, because it could convict no peer.
        if let Some(inspection) = self.inspections.open_mut(height) {
            if self.claims.hashes(height).contains(&hash) {
                inspection.contents.entry(hash).or_insert(content);
            }
            return;
        }
        let Some(known) = self.claims.at(height) else { return };
        let is_open = known.answer == Answer::None && !known.ambiguous && known.hash == hash;
        // Only the accepted filter of an undisputed height is handed over. Otherwise the block is
        // being fetched, or the caller has the filter or the block of this height already.
        if !is_open || self.claims.differing_at(height).next().is_some() {
            return;
        }
        // In a spot audit, the filter is checked against its block before it is handed over.
        if self.is_spot(at) {
            return self.inspections.want_with(at, ScanReason::SpotAudit, Some((hash, content)));
        }
        hand_over(self.claims, at, content, turn);
    }

    /// Returns `true` if the block of this height was chosen for a spot audit. Peers do not know
    /// the seed, so they cannot be honest at these heights only.
    fn is_spot(&self, at: BlockAt) -> bool {
        let every = u64::from(self.config.spot_audits);
        let draw = siphash_2_4(SipKey::from_bytes(self.config.seed), at.hash.as_byte_array());
        draw.checked_rem(every) == Some(0)
    }
}

/// Hands the filter of a height to the caller, and records this as the answer of the height.
pub(super) fn hand_over(claims: &mut Claims, at: BlockAt, content: Vec<u8>, turn: &mut Turn<'_>) {
    // If the height has no grade, no peer vouches for the filter any longer.
    let Some(grade) = claims.grade(at.height) else { return };
    claims.answer(at.height, Answer::Filter);
    let filter = BlockFilter { block_hash: at.hash, content };
    turn.act(Action::Filter(Box::new(VerifiedFilter { at, filter, grade })));
}
