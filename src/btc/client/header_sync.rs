//! Header sync with several peers: decides which peer to ask and processes the answers.
//!
//! Until one peer has sent all its headers, only one peer is asked at a time, so that the headers
//! are downloaded once and not once per peer. After that, every peer is asked for headers beyond
//! the known headers. A slow peer is skipped, and disconnected after twice the timeout.
//!
//! # When the headers are caught up
//! The headers are caught up when at least one peer has sent all its headers, and every other
//! connected peer has done so too or has used up its time. This time is twice the timeout: it
//! starts with the first request to the peer, and restarts with each of its messages that changes
//! the chain. The client does not wait for three kinds of peers: peers that are not ready, peers
//! that keep repeating known headers, and peers whose headers are ahead of the clock.
//!
//! A peer that claims a greater height than that of the chain, and answers without any header, is
//! not ready: Bitcoin Core answers in this way while its own chain has too little work. It is asked
//! again later, and its answer does not count as "no more headers".

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::block::Header;
use bitcoin::{BlockHash, Network, Work};

use super::Reason;
use crate::btc::headers::{Candidate, ChainEvent, HeaderChain, HeaderError, MAX_HEADERS};
use crate::btc::peer::PeerId;
use crate::steady_clock::SteadyClock;

/// Maximum number of headers of one branch that are collected outside the chain: 96 MB, the headers of more
/// than twenty years. A branch that does not fit among the side branches can only be added in one piece, so it
/// must be collected first. Its headers are checked as they arrive. The branch is given up if it has less than
/// a quarter of the work that the chain has from the fork to the same height.
const MAX_BRANCH: usize = 1_200_000;
/// Maximum number of full `headers` messages in a row that do not change the chain. This number of
/// full messages contains [`MAX_BRANCH`] headers.
const MAX_FRUITLESS: u32 = 600;
/// Limit that replaces [`MAX_FRUITLESS`] if the last header of the message is not above the highest
/// block that the peer showed before. An honest peer repeats headers only after a reorganisation.
const MAX_REPEATED: u32 = 10;
/// Number of messages with known headers after which [`HeaderSync::is_caught_up`] and the other
/// peers no longer wait for the peer, since the peer may repeat known headers for ever. One or two
/// such messages are usual if another peer was asked for the same headers.
const MAX_AWAITED: u32 = 3;
/// Time after which a peer that is not ready is asked again. An estimate: a node needs hours for its
/// initial download, and its user wants to see the wallet soon afterwards.
const READY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Time after which a peer whose headers are ahead of the clock is asked again. An estimate: half
/// the mean time between two blocks.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5 * 60);

/// Input of [`HeaderSync::handle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A connection to a peer is ready. The peer claims to have blocks up to this height.
    Connected(PeerId, u32),
    /// The connection to the peer has closed.
    Disconnected(PeerId),
    /// The peer announced this block in an `inv`.
    Announced(PeerId, BlockHash),
    /// The peer sent these headers in a `headers` message.
    Headers(PeerId, &'a [Header]),
    /// The caller read no messages of peers for this time. The pause does not count towards the
    /// timeouts of peers.
    Paused(Duration),
    /// Time has passed: timeouts are checked.
    Tick,
}

/// Output of [`HeaderSync::handle`]: what the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Send `getheaders` with this block locator to the peer.
    Ask(PeerId, Vec<BlockHash>),
    /// Close the connection. The caller need not pass in [`Event::Disconnected`] for this peer.
    Disconnect(PeerId, Reason),
    /// The chain has changed. Contains all events of one change.
    Changed(Vec<ChainEvent>),
    /// The peer has shown that it has this block. The header of the block is known.
    Shown(PeerId, BlockHash),
    /// The peer claims a greater height than that of the chain, but sends no headers: it is probably
    /// in its initial download. Reported once for each connection.
    NotReady(PeerId),
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Peer {
    /// The height that the peer claimed when it connected, unverified.
    claimed: u32,
    /// Time at which the pending `getheaders` was sent; `None` if no request is pending.
    asked: Option<Duration>,
    /// Start of the time for which the client waits for the peer: the first request after the peer
    /// had last sent all its headers, or its last message that changed the chain. `None` if there
    /// was no such request.
    since: Option<Duration>,
    /// Time at which the peer was found not to be ready, or was last asked again; `None` if it is
    /// ready.
    not_ready: Option<Duration>,
    /// `true` if it was reported that the peer is not ready.
    is_reported: bool,
    /// `true` if the peer is not asked again for now: it has sent all its headers, has not answered
    /// in time, or must wait until the branch of another peer is collected.
    done: bool,
    /// `true` if the peer has named a block whose header is unknown.
    wants: bool,
    /// `true` if the last message of the peer was full, so that the peer has more headers.
    full: bool,
    /// The last block that the peer has shown.
    last: Option<BlockHash>,
    /// Height of the highest block of the chain that the peer has sent.
    highest: u32,
    /// Number of full messages in a row that did not change the chain.
    fruitless: u32,
    /// Number of those messages among `fruitless` whose last header was known and not higher than
    /// earlier headers of the peer.
    repeated: u32,
    /// Time that the last answer of the peer took.
    took: Duration,
    /// The time at which a header of the peer was found to be too far ahead of the clock. If the
    /// peer was asked again after that, the time at which it was last asked again. `None` if the
    /// last header was not ahead of the clock.
    ahead: Option<Duration>,
}

impl Peer {
    /// Records an answer of the peer. `full` is `true` if the message was full, so that more
    /// headers follow.
    fn answered(&mut self, full: bool, now: Duration) {
        if let Some(asked) = self.asked.take() {
            self.took = now.saturating_sub(asked);
        }
        (self.done, self.wants, self.full, self.ahead) = (!full, false, full, None);
        self.not_ready = None;
        // A message that is not full ends the row of full messages.
        if !full {
            (self.fruitless, self.repeated) = (0, 0);
        }
    }

    /// Returns `true` if the peer has sent all headers that it has.
    fn has_told_all(&self) -> bool {
        // If `done` and `full` are both set, the peer has more headers and waits until it may send
        // a branch.
        let is_done = self.done && !self.full && !self.wants && self.asked.is_none();
        is_done && self.not_ready.is_none()
    }

    /// Returns `false` if [`HeaderSync::is_caught_up`] ignores the peer. Such a peer could keep the
    /// client from ever catching up.
    fn is_awaited(&self, now: Duration, wait: Duration) -> bool {
        let is_in_time = self.since.is_none_or(|since| now.saturating_sub(since) <= wait);
        let is_ready = self.ahead.is_none() && self.not_ready.is_none();
        is_in_time && is_ready && self.repeated <= MAX_AWAITED
    }

    /// Records that the peer names a block whose header is unknown, so that the client waits for
    /// the peer again.
    fn wants_more(&mut self) {
        if self.has_told_all() {
            self.since = None;
        }
        self.wants = true;
    }
}

/// The chain of headers, kept up to date from several untrusted peers.
#[derive(Debug)]
pub(super) struct HeaderSync {
    chain: HeaderChain,
    peers: BTreeMap<PeerId, Peer>,
    /// The branch being collected outside the chain, and the peer that sends it. `None` in the place
    /// of the branch before its first header.
    branch: Option<(PeerId, Option<Candidate>)>,
    timeout: Duration,
    /// The time with which timeouts are measured.
    clock: SteadyClock,
    /// The time of the last event.
    now: Duration,
}

impl HeaderSync {
    /// Creates a header sync that extends `chain`. If a peer has not answered after `timeout`,
    /// another peer is asked.
    pub(super) fn new(chain: HeaderChain, timeout: Duration) -> Self {
        Self {
            chain,
            peers: BTreeMap::new(),
            branch: None,
            timeout,
            clock: SteadyClock::default(),
            now: Duration::ZERO,
        }
    }

    /// Returns the current chain of headers.
    pub(super) fn chain(&self) -> &HeaderChain {
        &self.chain
    }

    /// Returns `true` if the headers are caught up: see the [module](self).
    pub(super) fn is_caught_up(&self) -> bool {
        let wait = self.timeout.saturating_mul(2);
        let is_awaited = |peer: &Peer| peer.is_awaited(self.now, wait);
        let mut peers = self.peers.values();
        let any = peers.any(|peer| {
            peer.has_told_all() && peer.ahead.is_none() && peer.repeated <= MAX_AWAITED
        });
        any && self.peers.values().all(|peer| peer.has_told_all() || !is_awaited(peer))
    }

    /// Returns `true` if the headers of more than half of the peers are over two hours ahead of the
    /// clock. The clock is then probably slow.
    pub(super) fn is_clock_behind(&self) -> bool {
        let ahead = self.peers.values().filter(|peer| peer.ahead.is_some()).count();
        2 * ahead > self.peers.len()
    }

    /// Returns the peers that have shown a block, each with the last block that it has shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = (PeerId, BlockHash)> + '_ {
        self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.last?)))
    }

    /// Takes an event and returns the actions to carry out, in order.
    ///
    /// `now` is the [current time](crate#time), with which the timestamps of headers are compared.
    #[must_use]
    pub(super) fn handle(&mut self, event: Event<'_>, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Event::Paused(time) = event {
            self.clock.pause(time);
        }
        let now = self.clock.read(now);
        self.now = now;
        match event {
            Event::Connected(id, claimed) => {
                self.peers.insert(id, Peer { claimed, ..Peer::default() });
            }
            Event::Disconnected(id) => self.forget(id),
            Event::Announced(id, hash) => actions.extend(self.announced(id, hash)),
            Event::Headers(id, headers) => self.take(id, headers, now, &mut actions),
            Event::Paused(_) | Event::Tick => {}
        }
        self.ask(now, &mut actions);
        actions
    }

    /// Removes a peer and the branch that is collected from it.
    fn forget(&mut self, id: PeerId) {
        self.peers.remove(&id);
        self.take_branch(id);
    }

    /// Ends the collection of a branch from this peer and returns the branch. Peers that waited to
    /// send a branch may be asked again.
    fn take_branch(&mut self, id: PeerId) -> Option<Candidate> {
        let (_, branch) = self.branch.take_if(|(peer, _)| *peer == id)?;
        for peer in self.peers.values_mut().filter(|peer| peer.full && peer.done) {
            peer.done = false;
        }
        branch
    }

    /// Removes a peer and requests that its connection is closed.
    fn disconnect(&mut self, id: PeerId, reason: Reason, actions: &mut Vec<Action>) {
        self.forget(id);
        actions.push(Action::Disconnect(id, reason));
    }

    /// Handles a block announced by `inv`. A known block shows that the peer has this block. If the
    /// block is unknown, the peer will be asked for headers.
    fn announced(&mut self, id: PeerId, hash: BlockHash) -> Option<Action> {
        let peer = self.peers.get_mut(&id)?;
        if self.chain.contains(&hash) {
            peer.last = Some(hash);
            return Some(Action::Shown(id, hash));
        }
        peer.wants_more();
        None
    }

    /// Handles a `headers` message.
    fn take(&mut self, id: PeerId, headers: &[Header], now: Duration, actions: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(last) = headers.last() else {
            // An unrequested empty message must not count as "no more headers".
            if peer.asked.is_none() {
                return;
            }
            peer.answered(false, now);
            if peer.claimed > self.chain.tip().height {
                peer.not_ready = Some(now);
                if !core::mem::replace(&mut peer.is_reported, true) {
                    actions.push(Action::NotReady(id));
                }
            }
            return self.end_branch(id, now, actions);
        };
        // Core treats too many headers, and headers that do not build on each other, as
        // misbehaviour.
        if headers.len() > MAX_HEADERS {
            return self.disconnect(id, Reason::TooManyHeaders(headers.len()), actions);
        }
        if headers.windows(2).any(|pair| pair[0].block_hash() != pair[1].prev_blockhash) {
            return self.disconnect(id, Reason::HeadersNotLinked, actions);
        }
        let full = headers.len() == MAX_HEADERS;
        let (parent, last) = (headers[0].prev_blockhash, last.block_hash());
        // The peer may be sending a branch that is collected outside the chain. The next headers of
        // the peer must continue the branch, or start it from a known header. Other headers, such
        // as an announced block, are handled below.
        if let Some((_, branch)) = self.branch.as_ref().filter(|(peer, _)| *peer == id) {
            let goes_on = match branch {
                Some(branch) => branch.tip() == parent,
                None => self.chain.contains(&parent),
            };
            if goes_on {
                peer.answered(full, now);
                peer.last = Some(last);
                peer.fruitless += u32::from(full);
                return self.collect(id, headers, full, now, actions);
            }
        }
        let known = self.chain.contains(&last);
        let (events, refused) = match self.chain.accept(headers, self.clock.unix()) {
            Ok(events) => (events, None),
            Err(error) => (error.events, Some((error.index, error.cause))),
        };
        let is_higher = self.chain.height_of(&last) > Some(peer.highest);
        // Progress resets the counters. Full messages without progress count towards the limits,
        // since a hostile peer could send known headers for ever.
        if !events.is_empty() {
            (peer.fruitless, peer.repeated, peer.since) = (0, 0, Some(now));
        } else if full {
            peer.fruitless += 1;
            peer.repeated += u32::from(known && !is_higher);
        }
        let fruitless = peer.fruitless;
        changed(events, actions);
        // All headers were accepted.
        let Some((index, cause)) = refused else {
            peer.answered(full, now);
            peer.last = Some(last);
            let height = self.chain.height_of(&last).unwrap_or(0);
            let repeats = full && (1..=peer.highest).contains(&height);
            peer.highest = peer.highest.max(height);
            actions.push(Action::Shown(id, last));
            // A peer that is far behind sends each height once, so the low limit applies to
            // repeated heights only.
            let most = if repeats { MAX_REPEATED } else { MAX_FRUITLESS };
            if fruitless > most {
                self.disconnect(id, Reason::Fruitless(fruitless), actions);
            } else if !full {
                self.end_branch(id, now, actions);
            }
            return;
        };
        match cause {
            // A peer that announces blocks while its answer is in flight, or that announces only the
            // last block of a branch, is honest. As in Bitcoin Core from version 28 on, the peer is
            // asked for the headers between. If it does not answer, it is disconnected as stalled.
            HeaderError::Orphan { .. } => {
                peer.wants_more();
                peer.full = false;
            }
            HeaderError::SideBranchesFull { .. } => {
                // The side branches are full. A branch that is passed in one piece is still
                // accepted if it has more work than the chain. The branch is therefore collected
                // first, one peer at a time: another peer waits until this collection ends.
                let waits = self.branch.as_ref().is_some_and(|(owner, _)| *owner != id);
                peer.answered(true, now);
                (peer.last, peer.done) = (None, waits);
                if fruitless > MAX_FRUITLESS {
                    self.disconnect(id, Reason::Fruitless(fruitless), actions);
                } else if !waits {
                    self.branch = Some((id, None));
                }
            }
            HeaderError::TimeTooNew { .. } => {
                self.put_off(id, headers.get(index), now, actions);
                self.end_branch(id, now, actions);
            }
            // The peer may be honest: a branch that forks off below the start of the chain cannot
            // be checked.
            cause @ HeaderError::BelowStart { .. } => {
                self.disconnect(id, Reason::RefusedHeader(cause), actions);
            }
            cause => self.disconnect(id, Reason::InvalidHeader(cause), actions),
        }
    }

    /// Postpones a peer whose header is too far ahead of the clock. The headers before that header
    /// are kept.
    ///
    /// The peer is not punished, as in Core: the clock may be wrong, and the header becomes valid
    /// later.
    fn put_off(
        &mut self,
        id: PeerId,
        header: Option<&Header>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.answered(false, now);
        peer.ahead = Some(now);
        // The chain has the parent; otherwise, the header would have been an orphan. The peer has
        // therefore shown the parent, and the next request starts after the parent.
        if let Some(header) = header {
            peer.last = Some(header.prev_blockhash);
            actions.push(Action::Shown(id, header.prev_blockhash));
        }
    }

    /// Adds headers to the branch that is collected. Gives the branch up if a header is invalid, or
    /// if the branch has too little work.
    fn collect(
        &mut self,
        id: PeerId,
        headers: &[Header],
        full: bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some((_, branch)) = &mut self.branch else { return };
        let parent = headers[0].prev_blockhash;
        let checked = match branch.take().map_or_else(|| self.chain.candidate(parent), Ok) {
            Ok(mut candidate) => {
                let checked = self.chain.extend(&mut candidate, headers, self.clock.unix());
                let count = candidate.headers.len();
                // Without these limits, cheap headers of an invented branch could fill the memory.
                if count > MAX_BRANCH || self.chain.is_weak(&candidate) {
                    return self.disconnect(id, Reason::LessWork(count), actions);
                }
                *branch = Some(candidate);
                checked
            }
            Err(error) => Err(error),
        };
        match checked {
            Ok(()) if full => {}
            Ok(()) => self.end_branch(id, now, actions),
            // The headers before the one that is ahead of the clock may be enough.
            Err(HeaderError::TimeTooNew { .. }) => {
                let tip = branch.as_ref().map(Candidate::tip);
                let ahead = headers.iter().find(|header| Some(header.prev_blockhash) == tip);
                let ahead = ahead.copied();
                self.end_branch(id, now, actions);
                self.put_off(id, ahead.as_ref(), now, actions);
            }
            Err(cause @ HeaderError::BelowStart { .. }) => {
                self.disconnect(id, Reason::RefusedHeader(cause), actions);
            }
            Err(cause) => self.disconnect(id, Reason::InvalidHeader(cause), actions),
        }
    }

    /// Passes the collected branch to the chain once the peer has sent all of it. The chain accepts
    /// a branch in one piece if the branch has more work.
    fn end_branch(&mut self, id: PeerId, now: Duration, actions: &mut Vec<Action>) {
        let Some(Candidate { headers: branch, .. }) = self.take_branch(id) else { return };
        // The branch is passed to the chain in one call, so that the limit on side branches does
        // not stop a branch with more work.
        match self.chain.accept(&branch, self.clock.unix()) {
            Ok(events) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.since = Some(now);
                }
                changed(events, actions);
            }
            Err(error) => {
                changed(error.events, actions);
                let reason = match error.cause {
                    HeaderError::TimeTooNew { .. } => {
                        return self.put_off(id, branch.get(error.index), now, actions);
                    }
                    // The whole branch has less work than the chain.
                    HeaderError::SideBranchesFull { .. } => Reason::LessWork(branch.len()),
                    cause @ HeaderError::BelowStart { .. } => Reason::RefusedHeader(cause),
                    cause => Reason::InvalidHeader(cause),
                };
                self.disconnect(id, reason, actions);
            }
        }
    }

    /// Sends the requests that are due, gives up on late answers and disconnects stalled peers.
    fn ask(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let (timeout, twice) = (self.timeout, self.timeout.saturating_mul(2));
        let waited = |peer: &Peer| peer.asked.map(|asked| now.saturating_sub(asked));
        let height = self.chain.tip().height;
        for peer in self.peers.values_mut() {
            // Ask again: by now, the headers may no longer be ahead of the clock.
            if let Some(ahead) = &mut peer.ahead
                && now.saturating_sub(*ahead) >= ASK_AGAIN_AFTER
            {
                (*ahead, peer.done) = (now, false);
            }
            if let Some(not_ready) = &mut peer.not_ready
                && now.saturating_sub(*not_ready) >= READY_AGAIN_AFTER
            {
                (*not_ready, peer.done) = (now, false);
            }
            // Silence means "no more headers" if the peer claims no greater height than that of the
            // chain: Core nodes that are still syncing send no empty answer.
            let nothing = peer.claimed <= height && !peer.wants && !peer.full;
            if nothing && waited(peer).is_some_and(|waited| waited > timeout) {
                (peer.asked, peer.done) = (None, true);
            }
        }
        let overdue = |peer: &Peer| waited(peer).is_some_and(|waited| waited > twice);
        let overdue: Vec<_> =
            self.peers.iter().filter(|(_, peer)| overdue(peer)).map(|(id, _)| *id).collect();
        // After one timeout, another peer was asked. After two timeouts, the peer is treated as
        // stalled.
        for id in overdue {
            self.disconnect(id, Reason::HeadersStalled(twice), actions);
        }
        let none_done = self.peers.values().all(|peer| !peer.done);
        // Only one peer at a time is asked for bulk headers: the others would send the same
        // headers. A peer that sent too many messages without effect is not asked for bulk headers.
        let may_lead = |peer: &Peer| (none_done || peer.full) && peer.fruitless <= MAX_AWAITED;
        let mut is_led = self
            .peers
            .values()
            .any(|peer| may_lead(peer) && waited(peer).is_some_and(|waited| waited <= timeout));
        // Slow peers are asked last. A peer that takes most of the timeout for each message could
        // otherwise delay the others for hours. Peers that take at most a quarter of the timeout
        // are treated as equally fast.
        let slowness = |peer: &Peer| peer.took.max(timeout / 4);
        let mut open: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.asked.is_none() && (peer.wants || !peer.done))
            .map(|(id, peer)| (slowness(peer), !peer.full, Reverse(peer.claimed), *id))
            .collect();
        open.sort_unstable();
        for (_, _, _, id) in open {
            let collects = self.branch.as_ref().is_some_and(|(peer, _)| *peer == id);
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            if may_lead(peer) {
                // The peer whose branch is being collected must be asked again, or the collection
                // never ends.
                if is_led && !collects {
                    continue;
                }
                is_led = true;
            }
            peer.asked = Some(now);
            peer.since.get_or_insert(now);
            // Only a full message shows that the peer has headers after the last one that it sent.
            let last = peer.last.filter(|_| peer.full);
            actions.push(Action::Ask(id, locator(&self.chain, last)));
        }
    }
}

/// Returns the minimum work of a network's chain: the work of a block some time before this version
/// (`nMinimumChainWork` in Bitcoin Core, `kernel/chainparams.cpp`). Zero for regtest.
pub fn minimum_work(network: Network) -> Work {
    let work = match network {
        // Height 886,157, as in Bitcoin Core 29.
        Network::Bitcoin => 0xb1f3_b93b_65b1_6d03_5a82_be84,
        // Height 2,873,500.
        Network::Testnet => 0xf20_9695_166b_e8b6_1fa9,
        // Height 123,613.
        Network::Testnet4 => 0x9a0_fe15_d017_7d08_6304,
        // Height 293,175.
        Network::Signet => 0x0b46_3ea0_a4b8,
        Network::Regtest => 0_u128,
    };
    let mut bytes = [0; 32];
    bytes[16..].copy_from_slice(&work.to_be_bytes());
    Work::from_be_bytes(bytes)
}

/// Builds the block locator for `getheaders`. `last` is the last header that the peer has shown if
/// the peer has more headers after it, and otherwise `None`.
fn locator(chain: &HeaderChain, last: Option<BlockHash>) -> Vec<BlockHash> {
    let mut locator = chain.locator();
    // Start at the block before the tip. A peer that has the tip then answers with the header of
    // the tip, which shows that the peer has this block.
    if locator.len() > 1 {
        locator.remove(0);
    }
    let Some(last) = last.filter(|last| *last != chain.tip().hash) else { return locator };
    // Insert `last`, so that the peer continues after it. The entries of a locator are far apart at
    // low heights. Without `last`, a peer that is far behind, or on a branch that forks off far
    // below, would send the same headers again.
    let place = match chain.height_of(&last) {
        Some(height) => locator.iter().position(|hash| chain.height_of(hash) <= Some(height)),
        None => Some(0),
    };
    let place = place.unwrap_or(locator.len());
    // The locator may contain the hash already. A second copy of this hash would be useless.
    if locator.get(place) != Some(&last) {
        locator.insert(place, last);
    }
    locator
}

/// Queues an action that contains the events, unless there are no events.
fn changed(events: Vec<ChainEvent>, actions: &mut Vec<Action>) {
    if !events.is_empty() {
        actions.push(Action::Changed(events));
    }
}

/// Number of block times without a new block after which the tip is stale, as in Core
/// (`TipMayBeStale`).
const BLOCK_TIMES: u32 = 3;
/// Minimum time after which the tip is stale: three block times of the well-known networks. A
/// custom signet with shorter block times has few nodes and one miner, whose pause of a few minutes
/// is not a reason to connect to more nodes.
const LEAST_STALE: Duration = Duration::from_secs(30 * 60);

/// The time since the last new block.
#[derive(Debug)]
pub(super) struct StaleTip {
    /// Time without a new block after which the tip is stale. `None` on regtest, where blocks are
    /// mined only on request.
    limit: Option<Duration>,
    /// Time of the last new block. Before the first message, the time of the first check.
    since: Option<Duration>,
    pub(super) is_stale: bool,
    /// Time without a new block after which the next report is due.
    next_report: Duration,
}

impl StaleTip {
    /// `block_time` is the mean time between two blocks in seconds.
    pub(super) fn new(network: Network, block_time: u32) -> Self {
        let usual = Duration::from_secs(block_time.into()).saturating_mul(BLOCK_TIMES);
        let limit = (network != Network::Regtest).then(|| usual.max(LEAST_STALE));
        let next_report = limit.unwrap_or_default();
        Self { limit, since: None, is_stale: false, next_report }
    }

    /// Records that a new block has joined the chain.
    pub(super) fn extended(&mut self, now: Duration) {
        self.since = Some(now);
        self.is_stale = false;
        self.next_report = self.limit.unwrap_or_default();
    }

    /// Checks the tip. Returns the time without a new block if it must be reported.
    ///
    /// The time is reported when the tip becomes stale, and again whenever it has doubled: one
    /// block in twenty takes three block times, but hardly any block takes twelve.
    pub(super) fn check(&mut self, now: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_sub(since);
        self.is_stale = passed > self.limit?;
        if !self.is_stale || passed <= self.next_report {
            return None;
        }
        self.next_report = passed.saturating_mul(2);
        Some(passed)
    }
}

#[cfg(test)]
mod tests;
