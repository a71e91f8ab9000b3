//! Headers of several peers: which peer is asked, and what becomes of its answers.
//!
//! Until one peer has told all it has, one peer is asked at a time, so that the headers are
//! downloaded once and not once from each. Then every peer is asked for what it has beyond them. A
//! peer that is slow is passed over, and dropped after twice the timeout.

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
/// Most messages in a row that build on nothing known: Core's `MAX_NUM_UNCONNECTING_HEADERS_MSGS`.
const MAX_UNCONNECTED: u32 = 10;

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
            Self::Refused(_) | Self::LessWork(_) | Self::Stalled(_) => false,
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
    fruitless: u32,
    unconnected: u32,
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

    /// Returns `true` if at least one peer is connected and every one has told all it has.
    pub fn is_caught_up(&self) -> bool {
        let told_all = |peer: &Peer| peer.done && !peer.wants && peer.asked.is_none();
        !self.peers.is_empty() && self.peers.values().all(told_all)
    }

    /// The peers, each with the last block that it has shown.
    pub fn shown(&self) -> impl Iterator<Item = (PeerId, BlockHash)> + '_ {
        self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.last?)))
    }

    /// Takes an event and returns what to do, in order.
    ///
    /// `now` is the time since the Unix epoch: headers are held against the clock.
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
            Event::Tick => {}
        }
        self.ask(now, &mut actions);
        actions
    }

    fn forget(&mut self, id: PeerId) {
        self.peers.remove(&id);
        self.branch.take_if(|(peer, _)| *peer == id);
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
            (peer.asked, peer.done, peer.wants, peer.full) = (None, true, false, false);
            return self.end_branch(id, now, actions);
        };
        if headers.len() > MAX_HEADERS {
            return self.disconnect(id, Reason::TooMany(headers.len()), actions);
        }
        if headers.windows(2).any(|pair| pair[0].block_hash() != pair[1].prev_blockhash) {
            return self.disconnect(id, Reason::NotLinked, actions);
        }
        let full = headers.len() == MAX_HEADERS;
        let last = last.block_hash();
        if let Some((_, branch)) = self.branch.as_mut().filter(|(peer, _)| *peer == id) {
            let end = branch.last().map(Header::block_hash);
            if end.is_none_or(|end| end == headers[0].prev_blockhash) {
                (peer.asked, peer.last) = (None, Some(last));
                (peer.done, peer.wants, peer.full) = (!full, false, full);
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
        let (events, refused) = match self.chain.accept(headers, unix(now)) {
            Ok(events) => (events, None),
            Err(error) => (error.events, Some(error.cause)),
        };
        let is_fruitless = events.is_empty();
        changed(events, actions);
        let Some(cause) = refused else {
            (peer.asked, peer.last, peer.unconnected) = (None, Some(last), 0);
            (peer.done, peer.wants, peer.full) = (!full, false, full);
            let is_fruitless = is_fruitless && self.chain.height_of(&last).is_none();
            peer.fruitless = if is_fruitless { peer.fruitless + 1 } else { 0 };
            let fruitless = peer.fruitless;
            actions.push(Action::Shown(id, last));
            if fruitless > MAX_FRUITLESS {
                let headers = fruitless as usize * MAX_HEADERS;
                self.disconnect(id, Reason::LessWork(headers), actions);
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
                let waits = self.branch.is_some();
                (peer.asked, peer.last, peer.full, peer.done) = (None, None, true, waits);
                if !waits {
                    self.branch = Some((id, Vec::new()));
                }
            }
            // Our clock may be wrong, and what is below an anchor may be honest.
            cause @ (HeaderError::TimeTooNew { .. } | HeaderError::BelowStart { .. }) => {
                self.disconnect(id, Reason::Refused(cause), actions);
            }
            cause => self.disconnect(id, Reason::Invalid(cause), actions),
        }
    }

    /// The branch that was collected from this peer is all it has: given in one piece, it gets in
    /// if it has more work than the chain.
    fn end_branch(&mut self, id: PeerId, now: Duration, actions: &mut Vec<Action>) {
        let Some((_, branch)) = self.branch.take_if(|(peer, _)| *peer == id) else { return };
        // Others may have waited for this one's end.
        for peer in self.peers.values_mut().filter(|peer| peer.full && peer.done) {
            peer.done = false;
        }
        match self.chain.accept(&branch, unix(now)) {
            Ok(events) => changed(events, actions),
            Err(error) => {
                changed(error.events, actions);
                let reason = match error.cause {
                    HeaderError::SideBranchesFull { .. } => Reason::LessWork(branch.len()),
                    cause => Reason::Invalid(cause),
                };
                self.disconnect(id, reason, actions);
            }
        }
    }

    /// Asks whom it is time to ask, and waits for nobody any longer than it may take.
    fn ask(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let timeout = self.timeout;
        let waited = |peer: &Peer| peer.asked.map(|asked| now.saturating_sub(asked));
        let height = self.chain.tip().height;
        for peer in self.peers.values_mut() {
            // The clock may have been set back.
            peer.asked = peer.asked.map(|asked| asked.min(now));
            // A peer without anything beyond ours need not say so: nodes that are still syncing
            // send no empty answer.
            let nothing = peer.claimed <= height && !peer.wants && !peer.full;
            if nothing && waited(peer).is_some_and(|waited| waited > timeout) {
                (peer.asked, peer.done) = (None, true);
            }
        }
        let overdue = |peer: &Peer| waited(peer).is_some_and(|waited| waited > 2 * timeout);
        let overdue: Vec<_> =
            self.peers.iter().filter(|(_, peer)| overdue(peer)).map(|(id, _)| *id).collect();
        for id in overdue {
            self.disconnect(id, Reason::Stalled(2 * timeout), actions);
        }
        let none_done = self.peers.values().all(|peer| !peer.done);
        // One peer leads while headers come in bulk; the others would send the same again.
        let mut is_led = self.peers.values().any(|peer| {
            (none_done || peer.full) && waited(peer).is_some_and(|waited| waited <= timeout)
        });
        let mut open: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.asked.is_none() && (peer.wants || !peer.done))
            .map(|(id, peer)| (!peer.full, core::cmp::Reverse(peer.claimed), *id))
            .collect();
        open.sort_unstable();
        for (_, _, id) in open {
            let collects = self.branch.as_ref().is_some_and(|(peer, _)| *peer == id);
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            if none_done || peer.full {
                if is_led && !collects {
                    continue;
                }
                is_led = true;
            }
            peer.asked = Some(now);
            let mut locator = self.chain.locator();
            // From the block before the tip: a peer that has the tip shows it by its answer.
            if locator.len() > 1 {
                locator.remove(0);
            }
            let is_beside = |last: &BlockHash| self.chain.height_of(last).is_none();
            if peer.full
                && let Some(last) = peer.last.filter(is_beside)
            {
                locator.insert(0, last);
            }
            actions.push(Action::Ask(id, locator));
        }
    }
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
#[path = "header_sync_tests.rs"]
mod tests;
