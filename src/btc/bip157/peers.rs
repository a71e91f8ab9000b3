//! The connected peers: the blocks that each has shown, its claims, and its open requests with the
//! times at which their answers are overdue. Also the messages and other actions that result from
//! one event.

use core::time::Duration;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_filter::GetCFilters;

use super::interval::{first_of, interval_of};
use super::{Action, BASIC_FILTER, CHECKPOINT_INTERVAL, Finding, Limits, Reason};
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::pace::{BlockRequests, Overdue, Pace, SILENT_TIMEOUTS};
use crate::btc::peer::PeerId;

/// The chain and the time at one event, with the actions that were decided so far.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) now: Duration,
    pub(super) actions: Vec<Action>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(chain: &'a HeaderChain, now: Duration) -> Self {
        Self { chain, now, actions: Vec::new() }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn send(&mut self, peer: PeerId, message: NetworkMessage) {
        self.act(Action::Send(peer, message));
    }

    pub(super) fn report(&mut self, finding: Finding) {
        self.act(Action::Report(finding));
    }

    pub(super) fn reopen(&mut self, runs: Vec<RangeInclusive<u32>>) {
        let actions = runs.into_iter().map(|run| Action::Reopened(*run.start(), *run.end()));
        self.actions.extend(actions);
    }

    pub(super) fn block_at(&self, height: u32) -> Option<BlockAt> {
        self.chain.hash_at(height).map(|hash| BlockAt { height, hash })
    }
}

/// The way in which a peer is disconnected because of its message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Disconnect the peer. Its claims about filters that it has sent stay valid: a protocol
    /// violation is not a lie about filters, and the connection of an honest peer may also end in
    /// this way.
    Disconnect(Reason),
    /// Disconnect the peer as a liar, and drop all claims for which only this peer vouched.
    Convict(Reason),
}

/// Maximum number of stale requests for filters that are remembered, because their answers may
/// still arrive.
const MAX_STALE: usize = 64;
/// Number of filters of a request that together may take one timeout. An estimate: about 65 kB/s
/// with filters of 20 kB and a timeout of 30 s.
const FILTERS_PER_TIMEOUT: usize = 100;

/// The range of filters of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filters {
    pub(super) start: u32,
    /// The hashes that the peer claims, from `start` on.
    pub(super) expected: Vec<FilterHash>,
    /// `true` if a dispute waits for the filters.
    pub(super) for_dispute: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// Filter headers up to the stop, one for each 1,000 blocks.
    Checkpoints,
    /// Filter hashes from `start` up to the stop.
    Headers { start: u32 },
    /// Filters up to the stop. The first `done` of them have arrived. `stale` is set once the stop
    /// has left the chain.
    Filters { filters: Filters, done: usize, stale: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    asked: Asked,
    stop: BlockAt,
    sent: Duration,
    progress: Duration,
    /// The number of blocks in flight at the time of the request. The peer sends these blocks
    /// before it answers the request.
    before: usize,
    reported: bool,
}

impl Request {
    fn is_for_filters(&self) -> bool {
        matches!(self.asked, Asked::Filters { .. })
    }

    fn is_stale(&self) -> bool {
        matches!(self.asked, Asked::Filters { stale: true, .. })
    }

    fn is_urgent(&self) -> bool {
        matches!(&self.asked, Asked::Filters { filters, stale: false, .. } if filters.for_dispute)
    }

    /// Returns `true` if a filter may be the answer to this request, which must be stale: a filter
    /// of a block that has left the chain, or the expected filter of a block that is still in the
    /// chain. A node either answers a stale request for the blocks of the old chain, or skips the
    /// request.
    fn may_explain(&self, height: Option<u32>, hash: FilterHash) -> bool {
        let Asked::Filters { filters, stale: true, .. } = &self.asked else { return false };
        // A block outside the chain has no height to compare.
        let Some(height) = height else { return true };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.and_then(|place| filters.expected.get(place)) == Some(&hash)
    }

    /// Returns the height and the hash of the next filter that is expected from a current request.
    fn next_filter(&self) -> Option<(u32, FilterHash)> {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return None };
        let height = filters.start.checked_add(u32::try_from(*done).ok()?)?;
        Some((height, *filters.expected.get(*done)?))
    }

    /// Returns `true` if the filter of this height is still expected. Returns `false` for a stale
    /// request: a node need not answer it, and its filters are requested again.
    fn brings_filter(&self, height: u32) -> bool {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return false };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.is_some_and(|place| (*done..filters.expected.len()).contains(&place))
    }

    /// Returns the time at which the request is overdue; `None` for a stale request, which is never
    /// overdue. The timeout is extended for the blocks that were requested before this request.
    fn due(&self, pace: Pace) -> Option<Duration> {
        let parts = match &self.asked {
            Asked::Filters { stale: true, .. } => return None,
            Asked::Filters { filters, .. } => 1 + filters.expected.len() / FILTERS_PER_TIMEOUT,
            Asked::Checkpoints | Asked::Headers { .. } => 1,
        };
        let next = self.progress.saturating_add(pace.timeout);
        let all = self.sent.saturating_add(pace.times(parts));
        Some(next.min(all).saturating_add(pace.of(self.before)))
    }
}

/// The requests that one peer has not answered yet, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    asked: Vec<Request>,
    /// Number of filters that may still arrive for stale requests that are not remembered.
    forgotten: usize,
    pub(super) blocks: BlockRequests,
}

impl Requests {
    /// Records a request that is sent now.
    pub(super) fn ask(&mut self, asked: Asked, stop: BlockAt, now: Duration) {
        let before = self.blocks.len();
        let (sent, progress) = (now, now);
        self.asked.push(Request { asked, stop, sent, progress, before, reported: false });
    }

    /// Removes the request for checkpoints that was answered. Returns the stop block of the
    /// request.
    pub(super) fn take_checkpoints(&mut self) -> Option<BlockAt> {
        let is_it = |request: &Request| request.asked == Asked::Checkpoints;
        let place = self.asked.iter().position(is_it)?;
        Some(self.asked.remove(place).stop)
    }

    /// Removes the request for filter hashes that was answered. Returns the first height and the
    /// stop block of the request.
    pub(super) fn take_headers(&mut self) -> Option<(u32, BlockAt)> {
        let start = |request: &Request| match request.asked {
            Asked::Headers { start } => Some(start),
            _ => None,
        };
        let mut places = self.asked.iter().enumerate();
        let (place, start) = places.find_map(|(place, it)| Some((place, start(it)?)))?;
        Some((start, self.asked.remove(place).stop))
    }

    /// Returns the number of open requests.
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.blocks.len()
    }

    pub(super) fn has_headers(&self) -> bool {
        self.asked.iter().any(|request| matches!(request.asked, Asked::Headers { .. }))
    }

    pub(super) fn has_claims(&self) -> bool {
        self.has_headers() || self.asked.iter().any(|it| it.asked == Asked::Checkpoints)
    }

    /// Returns `true` if there is a current request for filters that no dispute waits for.
    pub(super) fn has_filters_in_bulk(&self) -> bool {
        self.asked.iter().any(|request| {
            let Asked::Filters { filters, stale: false, .. } = &request.asked else { return false };
            !filters.for_dispute
        })
    }

    /// Returns `true` if the peer was asked for filters that may still arrive.
    pub(super) fn has_filters(&self) -> bool {
        self.forgotten > 0 || self.asked.iter().any(Request::is_for_filters)
    }

    /// Returns `true` if the filter of a height is expected. From a slow peer, only filters for
    /// disputes are expected, because the peer is disconnected if such a filter does not arrive.
    pub(super) fn brings_filter(&self, height: u32, is_slow: bool) -> bool {
        let mut requests = self.asked.iter();
        requests.any(|request| request.brings_filter(height) && (!is_slow || request.is_urgent()))
    }

    /// Returns the index of the request that a filter answers. `height` is the height of the
    /// filter's block, or `None` if that block is not in the chain.
    ///
    /// Nodes answer requests in order. A node skips a stale request, or answers it for the blocks
    /// of the old chain. An arriving filter is therefore assigned to a current request that expects
    /// this filter next, and only otherwise to a stale request. If a stale request and a current
    /// request include the same block, the filter of this block can arrive twice. The first copy
    /// completes the current request, and the second copy is assigned to the stale request. Nothing
    /// about a stale request is evidence against the peer, because the peer's claims were about
    /// other blocks when it got the request.
    ///
    /// # Errors
    /// Returns an error if no request explains the filter. The error contains the hash that was
    /// expected, if a filter of this block was expected next.
    fn explain_filter(
        &self,
        height: Option<u32>,
        hash: FilterHash,
    ) -> Result<usize, Option<FilterHash>> {
        let next = |request: &Request| request.next_filter();
        let due = height.map(|height| (height, hash));
        let in_force = || self.asked.iter().position(|it| due.is_some() && next(it) == due);
        let stale = || self.asked.iter().position(|it| it.may_explain(height, hash));
        if let Some(place) = in_force().or_else(stale) {
            return Ok(place);
        }
        let mut expected = self.asked.iter().filter_map(next);
        let expected = expected.find(|&(due, _)| Some(due) == height).map(|(_, hash)| hash);
        // No current request expects a filter of this block. If there is a stale request, the
        // filter may answer it, so the peer is not blamed.
        match (expected, self.asked.iter().position(Request::is_stale)) {
            (None, Some(place)) => Ok(place),
            (expected, _) => Err(expected),
        }
    }

    /// Records that a filter has arrived. `height` is the height of the filter's block, or `None`
    /// if that block is not in the chain. Removes the request if this was its last filter.
    ///
    /// # Errors
    /// Returns an error if no request explains the filter. The error contains the hash that was
    /// expected, if a filter of this block was expected next.
    pub(super) fn take_filter(
        &mut self,
        height: Option<u32>,
        hash: FilterHash,
        now: Duration,
    ) -> Result<(), Option<FilterHash>> {
        let place = match self.explain_filter(height, hash) {
            // It may answer a stale request that is not remembered.
            Err(None) if self.forgotten > 0 => {
                self.forgotten -= 1;
                return Ok(());
            }
            explained => explained?,
        };
        let Some(request) = self.asked.get_mut(place) else { return Ok(()) };
        request.progress = now;
        if let Asked::Filters { filters, done, .. } = &mut request.asked {
            *done += 1;
            // BIP157: one `cfilter` answers each block of the range, so the last `cfilter`
            // completes the request.
            if *done >= filters.expected.len() {
                self.asked.remove(place);
            }
        }
        Ok(())
    }

    /// Marks the requests whose stop is above `height` as stale, because the blocks above `height`
    /// have left the chain.
    pub(super) fn truncate(&mut self, height: u32) {
        for request in self.asked.iter_mut().filter(|request| request.stop.height > height) {
            if let Asked::Filters { stale, .. } = &mut request.asked {
                *stale = true;
            }
        }
        // A node that never answers stale requests must not fill the memory.
        let stale = self.asked.iter().filter(|request| request.is_stale()).count();
        let mut over = stale.saturating_sub(MAX_STALE);
        self.asked.retain(|request| {
            let drop = over > 0 && request.is_stale();
            over -= usize::from(drop);
            if let Asked::Filters { filters, done, .. } = &request.asked
                && drop
            {
                self.forgotten += filters.expected.len() - done;
            }
            !drop
        });
    }

    /// Returns `true` if an answer is overdue.
    pub(super) fn is_slow(&self, now: Duration, pace: Pace) -> bool {
        let mut due = self.asked.iter().filter_map(|request| request.due(pace));
        due.any(|due| due < now) || self.blocks.is_slow(now, pace)
    }

    /// Checks all requests against the clock.
    pub(super) fn check(&mut self, now: Duration, pace: Pace) -> Overdue {
        let mut found = Overdue::default();
        let last = pace.timeout.saturating_mul(SILENT_TIMEOUTS - 1);
        self.blocks.check(now, pace, &mut found);
        // The clock may have been set back, as for blocks.
        for request in &mut self.asked {
            request.sent = request.sent.min(now);
            request.progress = request.progress.min(now);
            let Some(due) = request.due(pace) else { continue };
            let next = request.progress.saturating_add(pace.timeout);
            let next = next.saturating_add(pace.of(request.before));
            // A peer that owes a filter in a dispute is not given more time. Otherwise it could
            // delay the dispute as long as it likes.
            let is_gone = request.is_urgent() || now.saturating_sub(next) > last;
            found.note(now.saturating_sub(due), is_gone, &mut request.reported);
        }
        found
    }
}

/// Returns `true` if the stop of a request has left the chain since the request. The answer then
/// says nothing about the current chain.
pub(super) fn is_stale(stop: BlockAt, chain: &HeaderChain) -> bool {
    chain.hash_at(stop.height) != Some(stop.hash)
}

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
    pub(super) checkpoints: Vec<FilterHeader>,
    /// The lowest interval whose hashes the peer has not claimed completely.
    pub(super) next: u32,
    /// The number of hashes that the peer has claimed in interval `next`. `end` is the filter
    /// header after these hashes.
    reported: u32,
    pub(super) end: Option<FilterHeader>,
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

    /// Returns the first height whose hash the peer has not claimed.
    pub(super) fn next_height(&self) -> u32 {
        first_of(self.next) + self.reported
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
    pub(super) pace: Pace,
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
        let filters = Filters { start, expected, for_dispute };
        peer.requests.ask(Asked::Filters { filters, done: 0, stale: false }, stop, turn.now);
        turn.send(id, NetworkMessage::GetCFilters(message));
        last
    }

    /// Checks the requests of all peers against the clock.
    pub(super) fn check(&mut self, now: Duration) -> Vec<(PeerId, Lateness)> {
        let pace = self.pace;
        self.connected.iter_mut().map(|(id, peer)| (*id, peer.check(now, pace))).collect()
    }
}
