//! Headers of several peers: which peer is asked, and what becomes of its answers.
//!
//! Until one peer has told all it has, one peer is asked at a time, so that the headers are
//! downloaded once and not once from each. Then every peer is asked for what it has beyond them. A
//! peer that is slow is passed over, and dropped after twice the timeout. Nobody waits for a peer
//! whose full messages do not change the chain, or whose headers are ahead of the clock.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::block::Header;
use thiserror::Error;

use crate::btc::headers::{ChainEvent, HeaderChain, HeaderError, MAX_HEADERS};
use crate::btc::peer::PeerId;

/// Most headers of one branch that are collected beside the chain: more than twenty years of
/// blocks, 94 MB. A branch that has no room among the side branches gets in only in one piece.
const MAX_BRANCH: usize = 1_200_000;
/// Most full messages in a row that do not change the chain: as many headers as [`MAX_BRANCH`].
const MAX_FRUITLESS: u32 = 600;
/// Most of them where the last repeats what the peer has shown before, as no honest peer does but
/// for a reorganization.
const MAX_REPEATED: u32 = 10;
/// After more messages than this that repeat what is known, nobody waits for the peer: it may go on
/// for ever. One or two are usual where another peer was asked for the same.
const MAX_AWAITED: u32 = 3;
/// Most messages in a row that build on nothing known: Core's `MAX_NUM_UNCONNECTING_HEADERS_MSGS`.
const MAX_UNCONNECTED: u32 = 10;
/// When a peer whose headers are ahead of the clock is asked again. An estimate: half the time
/// between two blocks.
const ASK_AGAIN_AFTER: Duration = Duration::from_mins(5);

/// What the machine is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A connection is ready, to a peer that claims this height.
    Connected(PeerId, u32),
    /// The connection is gone.
    Disconnected(PeerId),
    /// The peer announced this block by `inv`.
    Announced(PeerId, BlockHash),
    /// The peer sent `headers`.
    Headers(PeerId, &'a [Header]),
    /// Nothing was taken from peers for so long: that is no fault of theirs.
    Paused(Duration),
    /// Time has passed.
    Tick,
}

/// What the machine wants done or known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send `getheaders` with this locator to the peer.
    Ask(PeerId, Vec<BlockHash>),
    /// Close the connection. No [`Event::Disconnected`] is needed.
    Disconnect(PeerId, Reason),
    /// The chain has changed: all events of one change.
    Changed(Vec<ChainEvent>),
    /// The peer has shown that it has this block, which is known.
    Shown(PeerId, BlockHash),
}

/// Why a peer is disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// More headers in one message than the protocol allows.
    #[error("{0} headers in one message, the limit is {MAX_HEADERS}")]
    TooMany(usize),
    /// Headers of one message that do not build on each other.
    #[error("headers that do not build on each other")]
    NotLinked,
    /// Too many messages in a row that build on nothing known.
    #[error(
        "{count} messages of headers in a row that build on nothing known, the last on {parent}"
    )]
    Unconnected {
        /// The number of messages.
        count: u32,
        /// The parent of the last one's first header.
        parent: BlockHash,
    },
    /// A header that breaks a rule of consensus.
    #[error("invalid header: {0}")]
    Invalid(HeaderError),
    /// A header that is refused, though the peer need not be at fault.
    #[error("header: {0}")]
    Refused(HeaderError),
    /// A branch of this many headers with less work than the chain.
    #[error("a branch of {0} headers with less work than the chain")]
    LessWork(usize),
    /// This many full messages of headers in a row that do not change the chain.
    #[error("{0} full messages of headers in a row that do not change the chain")]
    Fruitless(u32),
    /// No headers for this long.
    #[error("no headers for {} seconds", .0.as_secs())]
    Stalled(Duration),
}

impl Reason {
    /// Returns `true` if the peer broke the protocol, so that it is to be banned.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::TooMany(_) | Self::NotLinked | Self::Unconnected { .. } | Self::Invalid(_) => {
                true
            }
            Self::Refused(_) | Self::LessWork(_) | Self::Fruitless(_) | Self::Stalled(_) => false,
        }
    }
}

#[derive(Debug, Default)]
struct Peer {
    /// The height that it claimed at first. Nothing shows that it is true.
    claimed: u32,
    asked: Option<Duration>,
    /// It has told all it has.
    done: bool,
    /// It has named a block that is unknown here.
    wants: bool,
    /// Its last message was full, so that more follows.
    full: bool,
    /// The last header that it has sent.
    last: Option<BlockHash>,
    /// The highest block of the chain that its headers have led to.
    highest: u32,
    /// Full messages in a row that do not change the chain.
    fruitless: u32,
    /// Those among them that end with a header known before, no higher than earlier ones.
    repeated: u32,
    unconnected: u32,
    /// How long its last answer took.
    took: Duration,
    /// Its last header was too far ahead of the clock: since when, or when it was asked again.
    ahead: Option<Duration>,
}

impl Peer {
    /// It has sent headers, or has none; after a full message more follow.
    fn answered(&mut self, full: bool, now: Duration) {
        if let Some(asked) = self.asked.take() {
            self.took = now.saturating_sub(asked);
        }
        (self.done, self.wants, self.full, self.ahead) = (!full, false, full, None);
        if !full {
            (self.fruitless, self.repeated) = (0, 0);
        }
    }

    fn has_told_all(&self) -> bool {
        // One that is done after a full message waits for its turn to give a branch.
        self.done && !self.full && !self.wants && self.asked.is_none()
    }

    fn is_awaited(&self) -> bool {
        self.repeated <= MAX_AWAITED && self.ahead.is_none()
    }
}

/// The chain of headers, brought up to date from several peers nobody trusts.
#[derive(Debug)]
pub struct HeaderSync {
    chain: HeaderChain,
    peers: BTreeMap<PeerId, Peer>,
    /// A branch that has no room among the side branches of the chain, and whose it is.
    branch: Option<(PeerId, Vec<Header>)>,
    timeout: Duration,
}

impl HeaderSync {
    /// Goes on from `chain`. An answer may take as long as `timeout` until another peer is asked.
    pub fn new(chain: HeaderChain, timeout: Duration) -> Self {
        Self { chain, peers: BTreeMap::new(), branch: None, timeout }
    }

    /// The chain as it is now.
    pub fn chain(&self) -> &HeaderChain {
        &self.chain
    }

    /// Returns `true` if at least one peer has told all it has, and so has every other that gets
    /// anywhere: one that repeats what is known, or whose headers are ahead of the clock, is not
    /// waited for.
    pub fn is_caught_up(&self) -> bool {
        let mut peers = self.peers.values();
        let any = peers.any(|peer| peer.has_told_all() && peer.is_awaited());
        any && self.peers.values().all(|peer| peer.has_told_all() || !peer.is_awaited())
    }

    /// Returns `true` if the headers of most peers are more than two hours ahead of the clock. It
    /// is likely wrong then.
    pub fn is_clock_behind(&self) -> bool {
        let ahead = self.peers.values().filter(|peer| peer.ahead.is_some()).count();
        2 * ahead > self.peers.len()
    }

    /// The peers, each with the last block that it has shown.
    pub fn shown(&self) -> impl Iterator<Item = (PeerId, BlockHash)> + '_ {
        self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.last?)))
    }

    /// Takes an event and returns what to do, in order.
    ///
    /// `now` is the time since the Unix epoch: headers are held against the clock. It may be set
    /// back, and waiting counts from there.
    #[must_use]
    pub fn handle(&mut self, event: Event<'_>, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Connected(id, claimed) => {
                self.peers.insert(id, Peer { claimed, ..Peer::default() });
            }
            Event::Disconnected(id) => self.forget(id),
            Event::Announced(id, hash) => actions.extend(self.announced(id, hash)),
            Event::Headers(id, headers) => self.take(id, headers, now, &mut actions),
            Event::Paused(time) => {
                for peer in self.peers.values_mut() {
                    peer.asked = peer.asked.map(|asked| asked.saturating_add(time));
                }
            }
            Event::Tick => {}
        }
        self.ask(now, &mut actions);
        actions
    }

    fn forget(&mut self, id: PeerId) {
        self.peers.remove(&id);
        self.take_branch(id);
    }

    /// The branch that was collected from this peer; another peer's may be collected next.
    fn take_branch(&mut self, id: PeerId) -> Option<Vec<Header>> {
        let (_, branch) = self.branch.take_if(|(peer, _)| *peer == id)?;
        for peer in self.peers.values_mut().filter(|peer| peer.full && peer.done) {
            peer.done = false;
        }
        Some(branch)
    }

    fn disconnect(&mut self, id: PeerId, reason: Reason, actions: &mut Vec<Action>) {
        self.forget(id);
        actions.push(Action::Disconnect(id, reason));
    }

    fn announced(&mut self, id: PeerId, hash: BlockHash) -> Option<Action> {
        let peer = self.peers.get_mut(&id)?;
        if self.chain.contains(&hash) {
            peer.last = Some(hash);
            return Some(Action::Shown(id, hash));
        }
        peer.wants = true;
        None
    }

    fn take(&mut self, id: PeerId, headers: &[Header], now: Duration, actions: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(last) = headers.last() else {
            // What nobody asked for is no answer.
            if peer.asked.is_none() {
                return;
            }
            peer.answered(false, now);
            return self.end_branch(id, now, actions);
        };
        if headers.len() > MAX_HEADERS {
            return self.disconnect(id, Reason::TooMany(headers.len()), actions);
        }
        if headers.windows(2).any(|pair| pair[0].block_hash() != pair[1].prev_blockhash) {
            return self.disconnect(id, Reason::NotLinked, actions);
        }
        let full = headers.len() == MAX_HEADERS;
        let (parent, last) = (headers[0].prev_blockhash, last.block_hash());
        if let Some((_, branch)) = self.branch.as_mut().filter(|(peer, _)| *peer == id) {
            let goes_on = match branch.last() {
                Some(end) => end.block_hash() == parent,
                None => self.chain.contains(&parent),
            };
            if goes_on {
                peer.answered(full, now);
                peer.last = Some(last);
                peer.fruitless += u32::from(full);
                branch.extend(headers);
                // Without a limit, cheap headers of a made-up branch would fill the memory.
                if branch.len() > MAX_BRANCH {
                    self.disconnect(id, Reason::LessWork(MAX_BRANCH), actions);
                } else if !full {
                    self.end_branch(id, now, actions);
                }
                return;
            }
        }
        let known = self.chain.contains(&last);
        let (events, refused) = match self.chain.accept(headers, unix(now)) {
            Ok(events) => (events, None),
            Err(error) => (error.events, Some((error.index, error.cause))),
        };
        let is_higher = self.chain.height_of(&last) > Some(peer.highest);
        if !events.is_empty() {
            (peer.fruitless, peer.repeated) = (0, 0);
        } else if full {
            peer.fruitless += 1;
            peer.repeated += u32::from(known && !is_higher);
        }
        let fruitless = peer.fruitless;
        changed(events, actions);
        let Some((index, cause)) = refused else {
            peer.answered(full, now);
            (peer.last, peer.unconnected) = (Some(last), 0);
            let height = self.chain.height_of(&last).unwrap_or(0);
            let repeats = full && (1..=peer.highest).contains(&height);
            peer.highest = peer.highest.max(height);
            actions.push(Action::Shown(id, last));
            let most = if repeats { MAX_REPEATED } else { MAX_FRUITLESS };
            if fruitless > most {
                self.disconnect(id, Reason::Fruitless(fruitless), actions);
            } else if !full {
                self.end_branch(id, now, actions);
            }
            return;
        };
        match cause {
            HeaderError::Orphan { parent } => {
                // Honest where a block was announced while the answer was on its way: Core counts
                // such messages too, and lets a few pass.
                peer.unconnected += 1;
                (peer.wants, peer.full) = (true, false);
                let count = peer.unconnected;
                if count > MAX_UNCONNECTED {
                    self.disconnect(id, Reason::Unconnected { count, parent }, actions);
                }
            }
            HeaderError::SideBranchesFull { .. } => {
                // The side branches have no room for it, but one that comes in one piece with more
                // work than the chain always gets in. One branch is collected at a time; another
                // peer's turn comes after that.
                let waits = self.branch.as_ref().is_some_and(|(owner, _)| *owner != id);
                peer.answered(true, now);
                (peer.last, peer.done) = (None, waits);
                if fruitless > MAX_FRUITLESS {
                    self.disconnect(id, Reason::Fruitless(fruitless), actions);
                } else if !waits {
                    self.branch = Some((id, Vec::new()));
                }
            }
            HeaderError::TimeTooNew { .. } => {
                self.put_off(id, headers.get(index), now, actions);
                self.end_branch(id, now, actions);
            }
            // What is below an anchor may be honest.
            cause @ HeaderError::BelowStart { .. } => {
                self.disconnect(id, Reason::Refused(cause), actions);
            }
            cause => self.disconnect(id, Reason::Invalid(cause), actions),
        }
    }

    /// This header of the peer is too far ahead of the clock. The clock may be wrong, and the
    /// header is good later: Core does not punish it either. Those before it are taken.
    fn put_off(
        &mut self,
        id: PeerId,
        header: Option<&Header>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.answered(false, now);
        (peer.ahead, peer.unconnected) = (Some(now), 0);
        if let Some(header) = header {
            peer.last = Some(header.prev_blockhash);
            actions.push(Action::Shown(id, header.prev_blockhash));
        }
    }

    /// The branch that was collected from this peer is all it has: given in one piece, it gets in
    /// if it has more work than the chain.
    fn end_branch(&mut self, id: PeerId, now: Duration, actions: &mut Vec<Action>) {
        let Some(branch) = self.take_branch(id) else { return };
        match self.chain.accept(&branch, unix(now)) {
            Ok(events) => changed(events, actions),
            Err(error) => {
                changed(error.events, actions);
                let reason = match error.cause {
                    HeaderError::TimeTooNew { .. } => {
                        return self.put_off(id, branch.get(error.index), now, actions);
                    }
                    HeaderError::SideBranchesFull { .. } => Reason::LessWork(branch.len()),
                    cause @ HeaderError::BelowStart { .. } => Reason::Refused(cause),
                    cause => Reason::Invalid(cause),
                };
                self.disconnect(id, reason, actions);
            }
        }
    }

    /// Asks whom it is time to ask, and waits for nobody any longer than it may take.
    fn ask(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let (timeout, twice) = (self.timeout, self.timeout.saturating_mul(2));
        let waited = |peer: &Peer| peer.asked.map(|asked| now.saturating_sub(asked));
        let height = self.chain.tip().height;
        for peer in self.peers.values_mut() {
            // The clock may have been set back.
            peer.asked = peer.asked.map(|asked| asked.min(now));
            peer.ahead = peer.ahead.map(|ahead| ahead.min(now));
            if let Some(ahead) = &mut peer.ahead
                && now.saturating_sub(*ahead) >= ASK_AGAIN_AFTER
            {
                (*ahead, peer.done) = (now, false);
            }
            // A peer without anything beyond ours need not say so: nodes that are still syncing
            // send no empty answer.
            let nothing = peer.claimed <= height && !peer.wants && !peer.full;
            if nothing && waited(peer).is_some_and(|waited| waited > timeout) {
                (peer.asked, peer.done) = (None, true);
            }
        }
        let overdue = |peer: &Peer| waited(peer).is_some_and(|waited| waited > twice);
        let overdue: Vec<_> =
            self.peers.iter().filter(|(_, peer)| overdue(peer)).map(|(id, _)| *id).collect();
        for id in overdue {
            self.disconnect(id, Reason::Stalled(twice), actions);
        }
        let none_done = self.peers.values().all(|peer| !peer.done);
        // One peer leads while headers come in bulk; the others would send the same again.
        let may_lead = |peer: &Peer| (none_done || peer.full) && peer.fruitless <= MAX_AWAITED;
        let mut is_led = self
            .peers
            .values()
            .any(|peer| may_lead(peer) && waited(peer).is_some_and(|waited| waited <= timeout));
        // Who takes most of the timeout for each message comes last: it would keep the others from
        // being asked for hours.
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
                if is_led && !collects {
                    continue;
                }
                is_led = true;
            }
            peer.asked = Some(now);
            let last = peer.last.filter(|_| peer.full);
            actions.push(Action::Ask(id, locator(&self.chain, last)));
        }
    }
}

/// The locator for a peer whose last header was this one, if more follows it.
fn locator(chain: &HeaderChain, last: Option<BlockHash>) -> Vec<BlockHash> {
    let mut locator = chain.locator();
    // From the block before the tip: a peer that has the tip shows it by its answer.
    if locator.len() > 1 {
        locator.remove(0);
    }
    let Some(last) = last.filter(|last| *last != chain.tip().hash) else { return locator };
    // A peer that has none of the last blocks goes on from there. Without it, one that is behind,
    // or on a branch from far below, would send the same again: the steps of a locator are large
    // there.
    let place = match chain.height_of(&last) {
        Some(height) => locator.iter().position(|hash| chain.height_of(hash) <= Some(height)),
        None => Some(0),
    };
    let place = place.unwrap_or(locator.len());
    if locator.get(place) != Some(&last) {
        locator.insert(place, last);
    }
    locator
}

fn changed(events: Vec<ChainEvent>, actions: &mut Vec<Action>) {
    if !events.is_empty() {
        actions.push(Action::Changed(events));
    }
}

/// Unix time in seconds.
fn unix(now: Duration) -> u32 {
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
