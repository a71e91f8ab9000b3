//! Asking for filters, and handing over those whose hash meets the claims.

use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::p2p::message_filter::{CFilter, GetCFilters};

use super::interval::{Answer, first_of, runs};
use super::peers::{Asked, Request};
use super::sync::{FilterSync, Look, Turn};
use super::{
    Action, BASIC_FILTER, CHECKPOINT_INTERVAL, Contradiction, MAX_FILTER_SIZE, MAX_FILTERS,
    Message, Reason, VerifiedFilter, Violation, Why,
};
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

impl FilterSync {
    /// Asks for filters that nobody disputes, the lowest first.
    pub(super) fn ask_for_filters(&mut self, turn: &mut Turn<'_>) {
        let frontier = self.claims.frontier();
        let window = u32::try_from(self.config.limits.intervals).unwrap_or(u32::MAX).max(1);
        for interval in frontier..frontier.saturating_add(window) {
            match self.claims.interval(interval) {
                None => break,
                Some(known) if known.open == 0 => continue,
                Some(_) => {}
            }
            if self.peers.values().all(super::peers::Peer::is_asked_for_filters) {
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

    /// Whether everyone was heard about an interval who is worth waiting for: who is not still
    /// busy with those below, and not overdue with an answer; and that no longer than the
    /// patience lasts.
    fn is_heard(&mut self, interval: u32, turn: &Turn<'_>) -> bool {
        let frontier = self.claims.frontier();
        let pace = self.pace();
        let Some(known) = self.claims.interval_mut(interval) else { return false };
        let since = *known.waits_since.get_or_insert(turn.now);
        let first = first_of(interval);
        let heights = u32::try_from(known.heights.len()).expect("1,000 at most");
        if turn.now.saturating_sub(since) > pace.patience {
            return true;
        }
        self.peers.values().all(|peer| {
            let height = peer.height(turn.chain).unwrap_or(0);
            let due = (height + 1).saturating_sub(first).min(heights);
            peer.next > interval
                || (peer.next == interval && peer.reported >= due)
                || due == 0
                || peer.next < frontier
                || peer.is_slow(turn.now, pace)
        })
    }

    /// The heights of an interval that can be asked for, in runs.
    fn heights_to_ask(&self, interval: u32, turn: &Turn<'_>) -> Vec<RangeInclusive<u32>> {
        let Some(known) = self.claims.interval(interval) else { return Vec::new() };
        let pace = self.pace();
        let requests = self.peers.values().filter(|peer| !peer.is_slow(turn.now, pace));
        let requests: Vec<_> = requests.flat_map(|peer| &peer.requests).collect();
        let heights = (first_of(interval)..).zip(&known.heights);
        let open = heights.filter(|(_, at)| at.answer == Answer::None && !at.ambiguous);
        runs(open.map(|(height, _)| height).filter(|height| {
            !self.is_wanted(*height)
                && !requests.iter().any(|request| request.brings_filter(*height))
                && self.claims.differing_at(*height).next().is_none()
        }))
    }

    /// Asks the peers that are free for filters of a run of heights, all of one interval.
    fn ask_for_run(&mut self, run: &RangeInclusive<u32>, turn: &mut Turn<'_>) {
        let pace = self.pace();
        let mut start = *run.start();
        while start <= *run.end() {
            let claimants: Vec<_> = self.claims.vouchers(start).collect();
            let free = self.peers.iter().filter(|(id, peer)| {
                claimants.contains(id)
                    && !peer.is_asked_for_filters()
                    && peer.height(turn.chain).is_some_and(|height| height >= start)
            });
            let Some((&id, peer)) = free.min_by_key(|(_, peer)| peer.rests(turn.now, pace)) else {
                return;
            };
            let height = peer.height(turn.chain).expect("checked above");
            let stop = (*run.end()).min(height).min(start + MAX_FILTERS - 1);
            let expected: Vec<_> =
                (start..=stop).map_while(|height| self.claims.claim(id, height)).collect();
            if expected.is_empty() {
                return;
            }
            start = self.ask_peer_for_filters(id, start, expected, false, turn) + 1;
        }
    }

    /// Returns the last height asked for.
    pub(super) fn ask_peer_for_filters(
        &mut self,
        id: PeerId,
        start: u32,
        expected: Vec<FilterHash>,
        for_dispute: bool,
        turn: &mut Turn<'_>,
    ) -> u32 {
        let last = start + u32::try_from(expected.len()).expect("1,000 at most") - 1;
        let stop = turn.block_at(last).expect("peers have shown it in the chain");
        let message =
            GetCFilters { filter_type: BASIC_FILTER, start_height: start, stop_hash: stop.hash };
        let asked = Asked::Filters { start, expected, done: 0, for_dispute, holds_to: None };
        self.peers.get_mut(&id).expect("it is connected").ask(asked, stop, turn.now);
        turn.actions.push(Action::Send(id, Message::GetCFilters(message)));
        last
    }

    pub(super) fn take_filter(&mut self, id: PeerId, message: CFilter, turn: &mut Turn<'_>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let bytes = message.filter.len();
        if !peer.requests.iter().any(Request::is_for_filters) {
            return self.violate(id, Violation::Unsolicited, turn);
        }
        if message.filter_type != BASIC_FILTER {
            return self.violate(id, Violation::FilterType(message.filter_type), turn);
        }
        if bytes > MAX_FILTER_SIZE {
            let violation = Violation::OversizedFilter { bytes, limit: MAX_FILTER_SIZE };
            return self.violate(id, violation, turn);
        }
        let sent = filter_hash(&message.filter);
        let height = turn.chain.height_of(&message.block_hash);
        let answered = match peer.explain_filter(height, sent) {
            Ok(request) => request,
            Err(None) => {
                return self.violate(id, Violation::WrongBlock(message.block_hash), turn);
            }
            Err(Some((height, claimed))) => {
                let at = BlockAt { height, hash: message.block_hash };
                let contradiction = Contradiction::Filter { at, claimed, sent };
                let reason = Reason::ContradictsItself(contradiction);
                return self.convict(&[id], false, &reason, turn);
            }
        };
        peer.count_filter(answered, turn.now);
        // A filter is worth its hash, whatever it was asked for.
        if let Some(height) = height {
            let at = BlockAt { height, hash: message.block_hash };
            self.take_content(at, sent, message.filter, turn);
        }
    }

    /// Takes a filter whose hash is the one that its sender claims.
    fn take_content(
        &mut self,
        at: BlockAt,
        hash: FilterHash,
        content: Vec<u8>,
        turn: &mut Turn<'_>,
    ) {
        let height = at.height;
        if let Some(inspection) = self.inspections.get_mut(&height) {
            turn.look = Look::All;
            if self.claims.hashes(height).contains(&hash) {
                inspection.contents.entry(hash).or_insert(content);
            }
            return;
        }
        let Some(known) = self.claims.at(height) else { return };
        let is_open = known.answer == Answer::None && !known.ambiguous && known.hash == hash;
        if !is_open || self.claims.differing_at(height).next().is_some() {
            return;
        }
        if self.is_spot(at) {
            return self.want_with(at, Why::SpotAudit, Some((hash, content)));
        }
        self.hand_over(at, content, turn);
    }

    /// Answers a height by its filter.
    pub(super) fn hand_over(&mut self, at: BlockAt, content: Vec<u8>, turn: &mut Turn<'_>) {
        let Some(grade) = self.grade_of_claim(at.height) else { return };
        self.claims.answer(at.height, Answer::Filter);
        let filter = BlockFilter { block_hash: at.hash, content };
        turn.actions.push(Action::Filter(Box::new(VerifiedFilter { at, filter, grade })));
    }
}

/// A bulk request stays inside its interval, and so inside what one request may ask for.
const _: () = assert!(MAX_FILTERS >= CHECKPOINT_INTERVAL && MAX_FILTERS > 0);
