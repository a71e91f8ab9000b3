//! Asking each peer what it claims, and comparing that with what others claim.
//!
//! Every peer goes through the intervals of 1,000 blocks upwards, from that of the first height
//! wanted, whenever it came. Where the hashes known lead from its filter header before an interval
//! to the one behind, it claims the same, and need not be asked.

use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, GetCFCheckpt, GetCFHeaders};

use super::claims::Reported;
use super::interval::{first_of, interval_of};
use super::peers::{Asked, Peer};
use super::sync::{FilterSync, Turn};
use super::{
    Action, BASIC_FILTER, CHECKPOINT_INTERVAL, Contradiction, FalseFilter, Message, Reason,
    Violation,
};
use crate::btc::bip158::filter_header;
use crate::btc::peer::PeerId;

/// Disputed heights of one peer over which it is asked for no more claims.
const MAX_DIFFERING: usize = CHECKPOINT_INTERVAL as usize;

impl FilterSync {
    pub(super) fn ask_for_claims(&mut self, turn: &mut Turn<'_>) {
        if self.is_before_chain(turn) {
            return;
        }
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for id in ids {
            while self.ask_peer_for_claims(id, turn) {}
        }
    }

    /// Takes a step with one peer; returns whether there may be another.
    fn ask_peer_for_claims(&mut self, id: PeerId, turn: &mut Turn<'_>) -> bool {
        let frontier = self.claims.frontier();
        let window = u32::try_from(self.config.limits.intervals).unwrap_or(u32::MAX).max(1);
        let Some(peer) = self.peers.get_mut(&id) else { return false };
        let Some(height) = peer.height(turn.chain) else { return false };
        if peer.is_asked_for_claims() {
            return false;
        }
        let known = peer.checkpoints.len();
        let first = self.claims.first_interval as usize;
        let checkpoints = (height / CHECKPOINT_INTERVAL) as usize;
        if checkpoints > known && (known + 1 < first || checkpoints > known + 1) {
            let stop = turn.block_at(height).expect("at or below the tip");
            let message = GetCFCheckpt { filter_type: BASIC_FILTER, stop_hash: stop.hash };
            peer.ask(Asked::Checkpoints, stop, turn.now);
            turn.actions.push(Action::Send(id, Message::GetCFCheckpt(message)));
            return false;
        }
        let interval = peer.next;
        if interval >= frontier.saturating_add(window) {
            return false;
        }
        let (end, reported) = (peer.checkpoint(interval), peer.reported);
        let Some(before) = self.header_before(id, interval) else { return false };
        if let Some(end) = end.filter(|_| reported == 0) {
            if self.claims.agrees(id, interval, [before, end]) {
                self.peers.get_mut(&id).expect("found above").advance();
                self.grade_interval(interval, first_of(interval), turn);
                return true;
            }
            if self.is_asked_of_another(id, interval, turn) {
                return false;
            }
        }
        let differing = self.claims.differing.keys().filter(|(_, peer)| *peer == id);
        if differing.take(MAX_DIFFERING).count() == MAX_DIFFERING {
            return false;
        }
        let start = first_of(interval) + reported;
        let stop = height.min(interval * CHECKPOINT_INTERVAL);
        if start > stop {
            return false;
        }
        let stop = turn.block_at(stop).expect("at or below the tip");
        let message =
            GetCFHeaders { filter_type: BASIC_FILTER, start_height: start, stop_hash: stop.hash };
        let peer = self.peers.get_mut(&id).expect("found above");
        peer.ask(Asked::Headers { start }, stop, turn.now);
        turn.actions.push(Action::Send(id, Message::GetCFHeaders(message)));
        false
    }

    /// The header that a peer claims before an interval, once it has.
    fn header_before(&self, id: PeerId, interval: u32) -> Option<FilterHeader> {
        match interval - 1 {
            0 => Some(self.genesis_header()),
            before => self.peers.get(&id)?.checkpoint(before),
        }
    }

    /// Whether another peer's answer is on its way that may do for this one.
    fn is_asked_of_another(&self, id: PeerId, interval: u32, turn: &Turn<'_>) -> bool {
        let pace = self.pace();
        let known = self.claims.interval(interval).map_or(0, |known| known.heights.len());
        if known == CHECKPOINT_INTERVAL as usize {
            return false;
        }
        let ends_with = |peer: &Peer| (peer.checkpoint(interval - 1), peer.checkpoint(interval));
        let Some(own) = self.peers.get(&id).map(ends_with) else { return false };
        let mut others = self.peers.iter().filter(|(other, _)| **other != id);
        others.any(|(_, peer)| {
            let is_asked = |asked: &Asked| matches!(asked, Asked::Headers { .. });
            peer.next == interval
                && ends_with(peer) == own
                && peer.requests.iter().any(|request| is_asked(&request.asked))
                && !peer.is_slow(turn.now, pace)
        })
    }

    pub(super) fn take_checkpoints(
        &mut self,
        id: PeerId,
        message: &CFCheckpt,
        turn: &mut Turn<'_>,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(request) = peer.take(|request| request.asked == Asked::Checkpoints) else {
            return self.violate(id, Violation::Unsolicited, turn);
        };
        if message.filter_type != BASIC_FILTER {
            return self.violate(id, Violation::FilterType(message.filter_type), turn);
        }
        if message.stop_hash != request.stop.hash {
            return self.violate(id, Violation::WrongBlock(message.stop_hash), turn);
        }
        let expected = (request.stop.height / CHECKPOINT_INTERVAL) as usize;
        let sent = message.filter_headers.len();
        if sent != expected {
            return self.violate(id, Violation::Count { sent, expected }, turn);
        }
        if request.is_stale(turn.chain) {
            return;
        }
        for (interval, &header) in (1..).zip(&message.filter_headers) {
            if let Err(reason) = self.learn(id, interval, header) {
                return self.convict(&[id], false, &reason, turn);
            }
        }
    }

    /// A peer claims the header at the end of an interval.
    fn learn(&mut self, id: PeerId, interval: u32, header: FilterHeader) -> Result<(), Reason> {
        let height = interval * CHECKPOINT_INTERVAL;
        if let Some(&trusted) = self.config.checkpoints.get(&height).filter(|t| **t != header) {
            return Err(Reason::ContradictsCheckpoint { height, claimed: header, trusted });
        }
        let claimed = self.peers.get_mut(&id).and_then(|peer| peer.learn(interval, header));
        match claimed {
            Some(claimed) => {
                let contradiction = Contradiction::Headers { height, claimed, sent: header };
                Err(Reason::ContradictsItself(contradiction))
            }
            None => Ok(()),
        }
    }

    pub(super) fn take_headers(&mut self, id: PeerId, message: &CFHeaders, turn: &mut Turn<'_>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let is_headers = |asked: &Asked| matches!(asked, Asked::Headers { .. });
        let request = peer.take(|request| is_headers(&request.asked));
        let Some((start, request)) = request.and_then(|request| match request.asked {
            Asked::Headers { start } => Some((start, request)),
            _ => None,
        }) else {
            return self.violate(id, Violation::Unsolicited, turn);
        };
        if message.filter_type != BASIC_FILTER {
            return self.violate(id, Violation::FilterType(message.filter_type), turn);
        }
        if message.stop_hash != request.stop.hash {
            return self.violate(id, Violation::WrongBlock(message.stop_hash), turn);
        }
        let (sent, expected) = (message.filter_hashes.len(), request.stop.height + 1 - start);
        if sent != expected as usize {
            return self.violate(id, Violation::Count { sent, expected: expected as usize }, turn);
        }
        let interval = peer.next;
        let is_due = start == first_of(interval) + peer.reported;
        if request.is_stale(turn.chain) || !is_due {
            return;
        }
        if let Err(reason) = self.follow(id, interval, start, message) {
            return self.convict(&[id], false, &reason, turn);
        }
        self.take_hashes(id, start, &message.filter_hashes, turn);
    }

    /// Follows a peer's headers along its hashes.
    fn follow(
        &mut self,
        id: PeerId,
        interval: u32,
        start: u32,
        message: &CFHeaders,
    ) -> Result<(), Reason> {
        let sent = message.previous_filter_header;
        let end = self.peers.get(&id).and_then(|peer| peer.end);
        let claimed = end.or_else(|| self.header_before(id, interval)).unwrap_or(sent);
        if sent != claimed {
            let height = start - 1;
            return Err(if height == 0 {
                Reason::ContradictsCheckpoint { height, claimed: sent, trusted: claimed }
            } else {
                Reason::ContradictsItself(Contradiction::Headers { height, claimed, sent })
            });
        }
        let hashes = &message.filter_hashes;
        let end = hashes.iter().fold(sent, |header, hash| filter_header(hash, &header));
        let peer = self.peers.get_mut(&id).expect("it sent this");
        peer.reported += u32::try_from(hashes.len()).expect("counted before");
        peer.end = Some(end);
        if peer.reported == CHECKPOINT_INTERVAL {
            peer.advance();
            self.learn(id, interval, end)?;
        }
        Ok(())
    }

    fn take_hashes(&mut self, id: PeerId, start: u32, hashes: &[FilterHash], turn: &mut Turn<'_>) {
        let interval = interval_of(start);
        let Reported { refuted, reopened } = self.claims.report(id, start, hashes);
        turn.reopen(reopened);
        if let Some(peer) = self.peers.get(&id).filter(|peer| peer.next > interval) {
            let ends = self.header_before(id, interval).zip(peer.checkpoint(interval));
            if let Some((before, end)) = ends {
                self.claims.agrees(id, interval, [before, end]);
            }
        }
        if let Some((height, hash)) = refuted {
            let at = turn.block_at(height).expect("in the chain, as the stop is");
            let reason = Reason::FalseFilter(Box::new(FalseFilter { at, hash, proof: None }));
            return self.convict(&[id], false, &reason, turn);
        }
        self.grade_interval(interval, start, turn);
    }

    /// Says what answers given before are worth now.
    fn grade_interval(&mut self, interval: u32, from: u32, turn: &mut Turn<'_>) {
        for number in self.claims.commit(&self.config.checkpoints) {
            if number != interval {
                self.report_grades(number, first_of(number), turn);
            }
        }
        self.report_grades(interval, from, turn);
    }

    fn report_grades(&self, interval: u32, from: u32, turn: &mut Turn<'_>) {
        for run in self.claims.answered_by_filter(interval, from) {
            // Peers vouch for heights from the first on: the last has the fewest.
            if let Some(grade) = self.grade_of_claim(*run.end()) {
                turn.actions.push(Action::Graded(*run.start(), *run.end(), grade));
            }
        }
    }

    pub(super) fn violate(&mut self, id: PeerId, violation: Violation, turn: &mut Turn<'_>) {
        self.disconnect(id, Reason::Violation(violation), turn);
    }
}
