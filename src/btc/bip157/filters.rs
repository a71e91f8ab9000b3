//! Requests the filter hashes that each peer claims, compares these claims, and then requests the
//! filters. A filter is handed over once its hash equals the claims.
//!
//! Every peer is asked about all intervals of 1,000 blocks in ascending order, from the interval of
//! the first wanted height on, no matter when the peer connects. If the known hashes lead from the
//! peer's filter header before an interval to the peer's filter header at the end of the interval,
//! the peer claims the same hashes. The hashes of such an interval are not requested from this
//! peer.

use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders};
use chainsieve_lanes::hash::{SipKey, siphash_2_4};

use super::claims::Reported;
use super::dispute::{Parts, hand_over};
use super::interval::{HeightAnswer, first_of, interval_of, runs};
use super::peers::{Asked, Peer, Turn, Verdict, is_stale};
use super::{
    Action, BASIC_FILTER, CHECKPOINT_INTERVAL, FalseFilter, MAX_FILTER_SIZE, MAX_FILTERS, Reason,
    ScanReason,
};
use crate::btc::bip158::{filter_hash, filter_header};
use crate::btc::headers::BlockAt;
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
        let known = peer.checkpoints.len();
        let first = self.claims.first_interval as usize;
        let checkpoints = (height / CHECKPOINT_INTERVAL) as usize;
        // Below the first wanted interval, no hashes are requested, so the checkpoints there are
        // needed: the last of these checkpoints is the header before the first wanted interval.
        // From the first wanted interval on, the last checkpoint also follows from the hashes of
        // its interval, which are requested anyway.
        if checkpoints > known && (known + 1 < first || checkpoints > known + 1) {
            let stop = turn.block_at(height).expect("at or below the tip");
            let message = GetCFCheckpt { filter_type: BASIC_FILTER, stop_hash: stop.hash };
            peer.requests.ask(Asked::Checkpoints, stop, turn.now);
            turn.send(id, NetworkMessage::GetCFCheckpt(message));
            return false;
        }
        let interval = peer.next;
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
        peer.requests.ask(Asked::Headers { start }, stop, turn.now);
        turn.send(id, NetworkMessage::GetCFHeaders(message));
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
        let known = self.claims.interval(interval).map_or(0, |known| known.heights.len());
        // All hashes are known, and they do not fit this peer's headers. The peer needs a request
        // of its own.
        if known == CHECKPOINT_INTERVAL as usize {
            return false;
        }
        let ends_with = |peer: &Peer| (peer.checkpoint(interval - 1), peer.checkpoint(interval));
        let Some(own) = self.peers.get(id).map(ends_with) else { return false };
        let mut others = self.peers.iter().filter(|(other, _)| *other != id);
        others.any(|(_, peer)| {
            peer.next == interval
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
        let stop =
            peer.requests.take_checkpoints().ok_or(Verdict::Disconnect(Reason::Unsolicited))?;
        // BIP157: an answer repeats the filter type and the stop hash of its request.
        if message.filter_type != BASIC_FILTER {
            return Err(Verdict::Disconnect(Reason::FilterType(message.filter_type)));
        }
        if message.stop_hash != stop.hash {
            return Err(Verdict::Disconnect(Reason::WrongBlock(message.stop_hash)));
        }
        let expected = (stop.height / CHECKPOINT_INTERVAL) as usize;
        let sent = message.filter_headers.len();
        // BIP157: one header for each multiple of 1,000 up to the stop.
        if sent != expected {
            return Err(Verdict::Disconnect(Reason::Count { sent, expected }));
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
                Err(Verdict::Convict(Reason::OtherHeader { height, claimed, sent: header }))
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
        let (start, stop) =
            peer.requests.take_headers().ok_or(Verdict::Disconnect(Reason::Unsolicited))?;
        // BIP157: an answer repeats the filter type and the stop hash of its request.
        if message.filter_type != BASIC_FILTER {
            return Err(Verdict::Disconnect(Reason::FilterType(message.filter_type)));
        }
        if message.stop_hash != stop.hash {
            return Err(Verdict::Disconnect(Reason::WrongBlock(message.stop_hash)));
        }
        let (sent, expected) = (message.filter_hashes.len(), (stop.height + 1 - start) as usize);
        // BIP157: one hash for each requested height.
        if sent != expected {
            return Err(Verdict::Disconnect(Reason::Count { sent, expected }));
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
        let end = self.peers.get(id).and_then(|peer| peer.end);
        let claimed = end.or_else(|| self.header_before(id, interval)).unwrap_or(sent);
        if sent != claimed {
            let height = start - 1;
            // The filter header of the genesis block is known. A wrong header at height 0
            // contradicts this known header, not an earlier claim of the peer.
            return Err(Verdict::Convict(if height == 0 {
                Reason::ContradictsCheckpoint { height, claimed: sent, trusted: claimed }
            } else {
                Reason::OtherHeader { height, claimed, sent }
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
        if let Some(peer) = self.peers.get(id).filter(|peer| peer.next > interval) {
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
            let graded = run.filter_map(|height| Some((height, self.claims.grade(height)?)));
            let graded: Vec<_> = graded.collect();
            for alike in
                graded.chunk_by(|(low, one), (high, other)| low + 1 == *high && one == other)
            {
                if let [(first, grade), ..] = *alike {
                    let last = first + u32::try_from(alike.len()).expect("1,000 at most") - 1;
                    turn.act(Action::Graded(first, last, grade));
                }
            }
        }
    }
}

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
                Some(known) if known.open == 0 => continue,
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
        if turn.now.saturating_sub(since) > self.peers.pace.timeout {
            return true;
        }
        let first = first_of(interval);
        let known = self.claims.interval(interval).map_or(0, |known| known.heights.len());
        let known = u32::try_from(known).expect("1,000 at most");
        self.peers.iter().all(|(_, peer)| {
            let height = peer.height(turn.chain).unwrap_or(0);
            // The number of heights in this interval whose claims are known and whose blocks the
            // peer has shown.
            let due = (height + 1).saturating_sub(first).min(known);
            peer.next_height() >= first.saturating_add(due)
                || due == 0
                || peer.next < frontier
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
            return Err(Verdict::Disconnect(Reason::Unsolicited));
        }
        // BIP157: the response has the filter type of the request, and only basic filters are
        // requested.
        if message.filter_type != BASIC_FILTER {
            return Err(Verdict::Disconnect(Reason::FilterType(message.filter_type)));
        }
        let bytes = message.filter.len();
        // The filter of a valid block never exceeds this size.
        if bytes > MAX_FILTER_SIZE {
            return Err(Verdict::Disconnect(Reason::OversizedFilter {
                bytes,
                limit: MAX_FILTER_SIZE,
            }));
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
                Err(Verdict::Convict(Reason::OtherFilter { at, claimed, sent }))
            }
            (Err(_), _) => Err(Verdict::Disconnect(Reason::WrongBlock(message.block_hash))),
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
        let is_open = known.answer == HeightAnswer::None && !known.ambiguous && known.hash == hash;
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
