//! The connected peers: what each has shown and claimed, its open requests, and whether it delays
//! others.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message_filter::GetCFilters;
use core::time::Duration;

use super::interval::{first_of, interval_of};
use super::requests::{Filters, Requests};
use super::turn::Turn;
use super::{BASIC_FILTER, CHECKPOINT_INTERVAL, Limits, Message, Reason};
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::pace::Pace;
use crate::btc::peer::PeerId;

/// Maximum number of blocks outside the chain that are remembered for each peer that has shown
/// them. Such blocks may join the chain later.
const STRANGE_TIPS: usize = 4;
/// A connected peer.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    tips: Vec<BlockHash>,
    /// The highest wanted height. No block above this height is requested.
    last: u32,
    /// The filter headers that the peer claims at heights 1,000, 2,000, ….
    checkpoints: Vec<FilterHeader>,
    /// The lowest interval whose hashes the peer has not claimed completely.
    next: u32,
    /// The number of hashes that the peer has claimed in interval `next`. `end` is the filter
    /// header after these hashes.
    reported: u32,
    end: Option<FilterHeader>,
    pub(super) requests: Requests,
    /// Until this time, other peers are asked first.
    rests_until: Duration,
    strikes: u32,
}

impl Peer {
    fn new(first_interval: u32, last: u32) -> Self {
        Self {
            tips: Vec::new(),
            last,
            checkpoints: Vec::new(),
            next: first_interval,
            reported: 0,
            end: None,
            requests: Requests::default(),
            rests_until: Duration::ZERO,
            strikes: 0,
        }
    }

    /// Returns the height of the highest block of the chain that the peer has shown, but at most
    /// the last height wanted.
    pub(super) fn height(&self, chain: &HeaderChain) -> Option<u32> {
        let shown = self.tips.iter().filter_map(|hash| chain.height_of(hash)).max();
        shown.map(|height| height.min(self.last))
    }

    fn show_tip(&mut self, hash: BlockHash, chain: &HeaderChain) {
        match chain.height_of(&hash) {
            // The peer has shown a higher block before, so the new block adds nothing.
            Some(height) if self.height(chain).is_some_and(|highest| highest > height) => {}
            Some(_) => self.tips = vec![hash],
            None => {
                self.tips.retain(|tip| *tip != hash);
                self.tips.push(hash);
                // A peer could announce unknown blocks without end.
                if self.tips.len() > STRANGE_TIPS {
                    let strange = self.tips.iter().position(|tip| chain.height_of(tip).is_none());
                    self.tips.remove(strange.expect("only one tip of the chain is kept"));
                }
            }
        }
    }

    /// Returns the number of filter headers that the peer has claimed at multiples of 1,000.
    pub(super) fn num_checkpoints(&self) -> usize {
        self.checkpoints.len()
    }

    /// Returns the filter header that the peer claims at the end of an interval.
    pub(super) fn checkpoint(&self, interval: u32) -> Option<FilterHeader> {
        self.checkpoints.get(interval.checked_sub(1)? as usize).copied()
    }

    /// Records the peer's filter header at the end of an interval. Returns the header that the peer
    /// claimed before, if the two headers differ.
    pub(super) fn learn(&mut self, interval: u32, header: FilterHeader) -> Option<FilterHeader> {
        // A `cfcheckpt` answer starts with the filter headers that the peer has already sent. Only
        // the next header is new.
        if self.checkpoints.len() + 1 == interval as usize {
            self.checkpoints.push(header);
        }
        self.checkpoint(interval).filter(|claimed| *claimed != header)
    }

    /// Returns the lowest interval whose hashes the peer has not claimed completely.
    pub(super) fn next_interval(&self) -> u32 {
        self.next
    }

    /// Returns the first height whose hash the peer has not claimed.
    pub(super) fn next_height(&self) -> u32 {
        first_of(self.next) + self.reported
    }

    /// Returns the filter header after the hashes that the peer has claimed; `None` if the peer has
    /// claimed no hash of the current interval.
    pub(super) fn end(&self) -> Option<FilterHeader> {
        self.end
    }

    /// Records that the peer has claimed more hashes, which lead to the header `end`. Returns
    /// `true` if this completes the interval; the peer then advances to the next interval.
    pub(super) fn claim(&mut self, hashes: u32, end: FilterHeader) -> bool {
        self.reported += hashes;
        self.end = Some(end);
        let is_complete = self.reported == CHECKPOINT_INTERVAL;
        // The peer's claims about the interval are complete. No request crosses the end of an
        // interval, so `reported` never exceeds the length of an interval.
        if is_complete {
            self.advance();
        }
        is_complete
    }

    /// Advances the peer to the next interval.
    pub(super) fn advance(&mut self) {
        self.go_to(self.next + 1);
    }

    fn go_to(&mut self, interval: u32) {
        self.next = interval;
        self.reported = 0;
        self.end = None;
    }

    /// Drops the peer's claims above a height, and restarts the interval that contains the next
    /// height from its beginning, because headers between checkpoints are not stored.
    fn truncate(&mut self, height: u32, first_interval: u32) {
        self.checkpoints.truncate((height / CHECKPOINT_INTERVAL) as usize);
        let interval = interval_of(height + 1).max(first_interval);
        if interval <= self.next {
            self.go_to(interval);
        }
        self.requests.truncate(height);
    }

    fn check(&mut self, now: Duration, pace: Pace) -> Lateness {
        let overdue = self.requests.check(now, pace);
        if overdue.slow.is_some() {
            // Each time, the peer rests twice as long, up to 1,024 timeouts (8.5 hours at 30 s). A
            // peer that was slow for a while gets another chance.
            self.strikes = (self.strikes + 1).min(10);
            let rest = pace.timeout.saturating_mul(1 << self.strikes);
            self.rests_until = now.saturating_add(rest);
        }
        match (overdue.gone, overdue.slow) {
            (Some(gone), _) => Lateness::Gone(Reason::Stalled(gone)),
            (None, Some(slow)) => Lateness::Slow(slow),
            (None, None) => Lateness::InTime,
        }
    }
}

/// Lateness of a peer's answers.
#[derive(Debug)]
pub(super) enum Lateness {
    InTime,
    /// An answer has become overdue since the last check, by this duration.
    Slow(Duration),
    Gone(Reason),
}

/// All connected peers, at most as many as the limit.
#[derive(Debug, Clone)]
pub(super) struct Peers {
    connected: BTreeMap<PeerId, Peer>,
    limit: usize,
    /// The last height wanted.
    last: u32,
    pace: Pace,
}

impl Peers {
    pub(super) fn new(limits: Limits, last: Option<u32>) -> Self {
        let pace = Pace::new(limits.timeout);
        let (limit, last) = (limits.peers, last.unwrap_or(u32::MAX));
        Self { connected: BTreeMap::new(), limit, last, pace }
    }

    /// Adds a peer, unless it is already connected. The comparison of the peer starts at interval
    /// `first_interval`. Returns `false` if the limit is reached.
    pub(super) fn connect(&mut self, id: PeerId, first_interval: u32) -> bool {
        if self.connected.len() >= self.limit && !self.contains(id) {
            return false;
        }
        self.connected.entry(id).or_insert_with(|| Peer::new(first_interval, self.last));
        true
    }

    /// Removes a peer. Returns `true` if the peer was connected.
    pub(super) fn remove(&mut self, id: PeerId) -> bool {
        self.connected.remove(&id).is_some()
    }

    pub(super) fn contains(&self, id: PeerId) -> bool {
        self.connected.contains_key(&id)
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.connected.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.connected.get_mut(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.connected.keys().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.connected.iter().map(|(id, peer)| (*id, peer))
    }

    pub(super) fn show_tip(&mut self, id: PeerId, hash: BlockHash, chain: &HeaderChain) {
        if let Some(peer) = self.get_mut(id) {
            peer.show_tip(hash, chain);
        }
    }

    pub(super) fn truncate(&mut self, height: u32, first_interval: u32) {
        for peer in self.connected.values_mut() {
            peer.truncate(height, first_interval);
        }
    }

    /// Restarts the comparison of each peer at an interval.
    pub(super) fn begin_at(&mut self, interval: u32) {
        for peer in self.connected.values_mut() {
            peer.go_to(interval);
        }
    }

    /// Returns the time that an answer may take if nothing was requested before it.
    pub(super) fn timeout(&self) -> Duration {
        self.pace.timeout
    }

    /// Updates the estimated block size with a block that has arrived.
    pub(super) fn saw_block(&mut self, bytes: usize) {
        self.pace.saw_block(bytes);
    }

    /// Returns `true` if an answer of the peer is overdue.
    pub(super) fn is_slow(&self, peer: &Peer, now: Duration) -> bool {
        peer.requests.is_slow(now, self.pace)
    }

    /// Returns `true` if other peers should be asked first: the peer is slow, or was slow recently.
    pub(super) fn rests(&self, peer: &Peer, now: Duration) -> bool {
        peer.rests_until > now || self.is_slow(peer, now)
    }

    /// Returns `true` if a block was requested from any peer and is not overdue.
    pub(super) fn brings_block(&self, hash: BlockHash, now: Duration) -> bool {
        self.connected.values().any(|peer| peer.requests.blocks.brings(hash, now, self.pace))
    }

    pub(super) fn has_room_for_block(&self, peer: &Peer) -> bool {
        peer.requests.blocks.has_room(0, self.pace)
    }

    pub(super) fn ask_for_block(&mut self, id: PeerId, at: BlockAt, now: Duration) {
        let pace = self.pace;
        // The caller chooses among the connected peers, so the peer is always found.
        if let Some(peer) = self.get_mut(id) {
            peer.requests.blocks.ask(at, 0, now, pace);
        }
    }

    /// Requests filters from a peer: one for each hash in `expected`, from height `start` on.
    /// Returns the last height requested.
    pub(super) fn ask_for_filters(
        &mut self,
        id: PeerId,
        start: u32,
        expected: Vec<FilterHash>,
        for_dispute: bool,
        turn: &mut Turn<'_>,
    ) -> u32 {
        let last = start + u32::try_from(expected.len()).expect("1,000 at most") - 1;
        let stop = turn.block_at(last).expect("the peer has shown this height");
        let message =
            GetCFilters { filter_type: BASIC_FILTER, start_height: start, stop_hash: stop.hash };
        let peer = self.get_mut(id).expect("it is connected");
        peer.requests.ask_for_filters(Filters { start, expected, for_dispute }, stop, turn.now);
        turn.send(id, Message::GetCFilters(message));
        last
    }

    /// Checks the requests of all peers against the clock.
    pub(super) fn check(&mut self, now: Duration) -> Vec<(PeerId, Lateness)> {
        let pace = self.pace;
        self.connected.iter_mut().map(|(id, peer)| (*id, peer.check(now, pace))).collect()
    }
}
