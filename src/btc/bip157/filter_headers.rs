//! Requests for the claims of each peer, and the comparison of these claims.
//!
//! Every peer is asked about all intervals of 1,000 blocks in ascending order, from the interval of
//! the first wanted height on, no matter when the peer connects. If the known hashes lead from the
//! peer's filter header before an interval to the peer's filter header at the end of the interval,
//! the peer claims the same hashes. The hashes of such an interval are not requested from this
//! peer.

use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, GetCFCheckpt, GetCFHeaders};

use super::claims::Reported;
use super::interval::{first_of, interval_of};
use super::parts::Parts;
use super::peers::Peer;
use super::requests::is_stale;
use super::turn::{Turn, Verdict};
use super::{
    Action, BASIC_FILTER, CHECKPOINT_INTERVAL, Contradiction, FalseFilter, Message, Reason,
    Violation,
};
use crate::btc::bip158::filter_header;
use crate::btc::peer::PeerId;

/// With at least this number of disputed heights, a peer is asked for no further filter hashes.
pub(super) const MAX_DIFFERING: usize = CHECKPOINT_INTERVAL as usize;

impl Parts<'_> {
    /// Requests from each peer the claims that are to be compared next.
    pub(super) fn ask_for_claims(&mut self, turn: &mut Turn<'_>) {
        let ids: Vec<_> = self.peers.ids().collect();
        for id in ids {
            // If the peer's headers agree with the known hashes, the interval needs no request, and
            // the next interval is compared at once. Each comparison without a request advances the
            // peer, so the loop ends.
            while self.ask_peer(id, turn) {}
        }
    }

    /// Compares one interval of a peer without a request, or sends the peer its next request if it
    /// is due. Returns `true` if the interval needed no request, so that the next interval can be
    /// compared at once.
    fn ask_peer(&mut self, id: PeerId, turn: &mut Turn<'_>) -> bool {
        let frontier = self.claims.frontier();
        let window = u32::try_from(self.config.limits.intervals).unwrap_or(u32::MAX).max(1);
        let Some(peer) = self.peers.get_mut(id) else { return false };
        // A peer without a known tip gets no requests: Core disconnects peers that ask for an
        // unknown block.
        let Some(height) = peer.height(turn.chain) else { return false };
        // A peer has at most one open request for claims, because the next request depends on the
        // answer.
        if peer.requests.has_claims() {
            return false;
        }
        let known = peer.num_checkpoints();
        let first = self.claims.first_interval() as usize;
        let checkpoints = (height / CHECKPOINT_INTERVAL) as usize;
        // Below the first wanted interval, no hashes are requested, so the checkpoints there are
        // needed: the last of these checkpoints is the header before the first wanted interval.
        // From the first wanted interval on, the last checkpoint also follows from the hashes of
        // its interval, which are requested anyway.
        if checkpoints > known && (known + 1 < first || checkpoints > known + 1) {
            let stop = turn.block_at(height).expect("at or below the tip");
            let message = GetCFCheckpt { filter_type: BASIC_FILTER, stop_hash: stop.hash };
            peer.requests.ask_for_checkpoints(stop, turn.now);
            turn.send(id, Message::GetCFCheckpt(message));
            return false;
        }
        let interval = peer.next_interval();
        // Claims far above the answered heights would only fill the memory.
        if interval >= frontier.saturating_add(window) {
            return false;
        }
        let (end, start) = (peer.checkpoint(interval), peer.next_height());
        // Without the header before the interval, the hashes could not be checked.
        let Some(before) = self.header_before(id, interval) else { return false };
        // Compare headers before requesting hashes. A comparison works only for whole intervals,
        // because headers are known only at the ends of intervals.
        if let Some(end) = end.filter(|_| start == first_of(interval)) {
            if self.claims.vouch_if_agrees(id, interval, [before, end]) {
                self.peers.get_mut(id).expect("found above").advance();
                self.grade_interval(interval, first_of(interval), turn);
                return true;
            }
            // The hashes may already be requested from a second peer with the same headers. If the
            // second peer's hashes lead to these headers, the first peer needs no request.
            if self.is_asked_of_another(id, interval, turn) {
                return false;
            }
        }
        // A peer that lies about every height would cause the download of every block.
        if self.claims.differs_at_many(id, MAX_DIFFERING) {
            return false;
        }
        let stop = height.min(interval * CHECKPOINT_INTERVAL);
        // The peer has made claims about all blocks that it has shown.
        if start > stop {
            return false;
        }
        let stop = turn.block_at(stop).expect("at or below the tip");
        let message =
            GetCFHeaders { filter_type: BASIC_FILTER, start_height: start, stop_hash: stop.hash };
        let peer = self.peers.get_mut(id).expect("found above");
        peer.requests.ask_for_headers(start, stop, turn.now);
        turn.send(id, Message::GetCFHeaders(message));
        false
    }

    /// Returns the filter header that a peer claims for the last height before an interval, if this
    /// header is known.
    fn header_before(&self, id: PeerId, interval: u32) -> Option<FilterHeader> {
        match interval - 1 {
            0 => Some(self.genesis),
            before => self.peers.get(id)?.checkpoint(before),
        }
    }

    /// Returns `true` if another peer with the same filter headers has been asked for the hashes of
    /// this interval, and the answer may make a request to this peer needless.
    fn is_asked_of_another(&self, id: PeerId, interval: u32, turn: &Turn<'_>) -> bool {
        let known = self.claims.interval(interval).map_or(0, |known| known.heights().len());
        // All hashes are known, and they do not fit this peer's headers. The peer needs a request
        // of its own.
        if known == CHECKPOINT_INTERVAL as usize {
            return false;
        }
        let ends_with = |peer: &Peer| (peer.checkpoint(interval - 1), peer.checkpoint(interval));
        let Some(own) = self.peers.get(id).map(ends_with) else { return false };
        let mut others = self.peers.iter().filter(|(other, _)| *other != id);
        others.any(|(_, peer)| {
            peer.next_interval() == interval
                && ends_with(peer) == own
                && peer.requests.has_headers()
                && !self.peers.is_slow(peer, turn.now)
        })
    }

    /// Processes a `cfcheckpt`: the filter headers at the multiples of 1,000.
    ///
    /// # Errors
    /// Returns a verdict on the peer if the message answers no request, or contradicts earlier
    /// claims or a trusted header.
    pub(super) fn take_checkpoints(
        &mut self,
        id: PeerId,
        message: &CFCheckpt,
        turn: &Turn<'_>,
    ) -> Result<(), Verdict> {
        let Some(peer) = self.peers.get_mut(id) else { return Ok(()) };
        let stop = peer.requests.take_checkpoints().ok_or(Violation::Unsolicited)?;
        // BIP157: an answer repeats the filter type and the stop hash of its request.
        if message.filter_type != BASIC_FILTER {
            return Err(Violation::FilterType(message.filter_type).into());
        }
        if message.stop_hash != stop.hash {
            return Err(Violation::WrongBlock(message.stop_hash).into());
        }
        let expected = (stop.height / CHECKPOINT_INTERVAL) as usize;
        let sent = message.filter_headers.len();
        // BIP157: one header for each multiple of 1,000 up to the stop.
        if sent != expected {
            return Err(Violation::Count { sent, expected }.into());
        }
        // The header chain was reorganised after the request. The answer is about the blocks of the
        // old chain.
        if is_stale(stop, turn.chain) {
            return Ok(());
        }
        for (interval, &header) in (1..).zip(&message.filter_headers) {
            self.learn(id, interval, header)?;
        }
        Ok(())
    }

    /// Records a peer's filter header at the end of an interval.
    fn learn(&mut self, id: PeerId, interval: u32, header: FilterHeader) -> Result<(), Verdict> {
        let height = interval * CHECKPOINT_INTERVAL;
        // A peer that contradicts a trusted header is convicted without a comparison with others.
        if let Some(&trusted) = self.config.checkpoints.get(&height).filter(|t| **t != header) {
            let reason = Reason::ContradictsCheckpoint { height, claimed: header, trusted };
            return Err(Verdict::Convict(reason));
        }
        let claimed = self.peers.get_mut(id).and_then(|peer| peer.learn(interval, header));
        match claimed {
            Some(claimed) => {
                let contradiction = Contradiction::Headers { height, claimed, sent: header };
                Err(Verdict::Convict(Reason::ContradictsItself(contradiction)))
            }
            None => Ok(()),
        }
    }

    /// Processes a `cfheaders`: the filter hashes of a range of heights.
    ///
    /// # Errors
    /// Returns a verdict on the peer if the message answers no request, contradicts earlier claims
    /// or a trusted header, or claims a hash that an audit has refuted.
    pub(super) fn take_headers(
        &mut self,
        id: PeerId,
        message: &CFHeaders,
        turn: &mut Turn<'_>,
    ) -> Result<(), Verdict> {
        let Some(peer) = self.peers.get_mut(id) else { return Ok(()) };
        let (start, stop) = peer.requests.take_headers().ok_or(Violation::Unsolicited)?;
        // BIP157: an answer repeats the filter type and the stop hash of its request.
        if message.filter_type != BASIC_FILTER {
            return Err(Violation::FilterType(message.filter_type).into());
        }
        if message.stop_hash != stop.hash {
            return Err(Violation::WrongBlock(message.stop_hash).into());
        }
        let (sent, expected) = (message.filter_hashes.len(), (stop.height + 1 - start) as usize);
        // BIP157: one hash for each requested height.
        if sent != expected {
            return Err(Violation::Count { sent, expected }.into());
        }
        // The request was made before a reorganisation, or before lower heights were wanted.
        if is_stale(stop, turn.chain) || start != peer.next_height() {
            return Ok(());
        }
        self.follow(id, start, message)?;
        self.take_hashes(id, start, &message.filter_hashes, turn)
    }

    /// Computes a peer's filter headers from its hashes, and compares them with the headers that it
    /// has claimed.
    fn follow(&mut self, id: PeerId, start: u32, message: &CFHeaders) -> Result<(), Verdict> {
        let interval = interval_of(start);
        let sent = message.previous_filter_header;
        let end = self.peers.get(id).and_then(Peer::end);
        let claimed = end.or_else(|| self.header_before(id, interval)).unwrap_or(sent);
        if sent != claimed {
            let height = start - 1;
            // The filter header of the genesis block is known. A wrong header at height 0
            // contradicts this known header, not an earlier claim of the peer.
            return Err(Verdict::Convict(if height == 0 {
                Reason::ContradictsCheckpoint { height, claimed: sent, trusted: claimed }
            } else {
                Reason::ContradictsItself(Contradiction::Headers { height, claimed, sent })
            }));
        }
        let hashes = &message.filter_hashes;
        let end = hashes.iter().fold(sent, |header, hash| filter_header(hash, &header));
        let peer = self.peers.get_mut(id).expect("it sent this");
        // The interval is complete. The last header of the interval must equal the header from
        // `cfcheckpt`.
        if peer.claim(u32::try_from(hashes.len()).expect("counted before"), end) {
            self.learn(id, interval, end)?;
        }
        Ok(())
    }

    fn take_hashes(
        &mut self,
        id: PeerId,
        start: u32,
        hashes: &[FilterHash],
        turn: &mut Turn<'_>,
    ) -> Result<(), Verdict> {
        let interval = interval_of(start);
        let Reported { refuted, reopened } = self.claims.report(id, start, hashes);
        turn.reopen(reopened);
        // The interval is complete, so the two headers around it are remembered for other peers.
        if let Some(peer) = self.peers.get(id).filter(|peer| peer.next_interval() > interval) {
            let ends = self.header_before(id, interval).zip(peer.checkpoint(interval));
            if let Some((before, end)) = ends {
                self.claims.vouch_if_agrees(id, interval, [before, end]);
            }
        }
        if let Some((height, hash)) = refuted {
            let at = turn.block_at(height).expect("not above the stop, which is in the chain");
            let reason = Reason::FalseFilter(Box::new(FalseFilter { at, hash, proof: None }));
            return Err(Verdict::Convict(reason));
        }
        self.grade_interval(interval, start, turn);
        Ok(())
    }

    /// Reports the grades of the answers in an interval from height `from` on. Also reports the
    /// grades in other intervals that a trusted header now confirms.
    fn grade_interval(&mut self, interval: u32, from: u32, turn: &mut Turn<'_>) {
        for number in self.claims.commit(&self.config.checkpoints) {
            // The grades of the given interval are reported below.
            if number != interval {
                self.report_grades(number, first_of(number), turn);
            }
        }
        self.report_grades(interval, from, turn);
    }

    fn report_grades(&self, interval: u32, from: u32, turn: &mut Turn<'_>) {
        for run in self.claims.answered_by_filter(interval, from) {
            // Each peer vouches for the first heights of an interval, up to some height. So the
            // last of several consecutive heights has the lowest grade.
            if let Some(grade) = self.claims.grade(*run.end()) {
                turn.act(Action::Graded(*run.start(), *run.end(), grade));
            }
        }
    }
}
