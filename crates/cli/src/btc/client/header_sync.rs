//! Which peer is asked for headers, and what becomes of its answers. No sockets and no clock.
//!
//! Until one peer has told all it has, one is asked at a time: the headers come once, and not from
//! each. Then every peer is asked for what it has beyond. A peer that is slow is passed over, and
//! dropped after twice the patience.

use std::collections::BTreeMap;
use std::time::Duration;

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::block::Header;
use chainsieve::btc::headers::{ChainEvent, HeaderChain, HeaderError, MAX_HEADERS};
use chainsieve::btc::peer::PeerId;

/// Headers of a branch that is too long for the side branches and is collected in one piece:
/// more than twenty years of blocks, 94 MB.
const MAX_BRANCH: usize = 1_200_000;
/// Full messages in a row that do not change the chain: as many headers as `MAX_BRANCH`.
const MAX_FRUITLESS: u32 = 600;
/// Messages in a row that build on nothing known: Core's `MAX_NUM_UNCONNECTING_HEADERS_MSGS`.
const MAX_UNCONNECTED: u32 = 10;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send `getheaders` with this locator.
    Ask(PeerId, Vec<BlockHash>),
    /// Close the connection, for this reason.
    Drop(PeerId, String),
    /// The same, for a breach of the protocol.
    Ban(PeerId, String),
}

/// What a message did.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What became of the chain.
    pub(crate) events: Vec<ChainEvent>,
    /// A block that the peer has shown to have.
    pub(crate) shown: Option<BlockHash>,
    pub(crate) step: Option<Step>,
}

#[derive(Debug, Default)]
struct Peer {
    /// The height it claimed at first. Nothing shows that it is true.
    claimed: u32,
    asked: Option<Duration>,
    /// It has told all it has.
    done: bool,
    /// It has spoken of a block that is not known.
    wants: bool,
    /// Its last message was full.
    full: bool,
    /// The last header that it has sent.
    last: Option<BlockHash>,
    fruitless: u32,
    unconnected: u32,
}

/// The headers of several peers.
#[derive(Debug)]
pub(crate) struct HeaderSync {
    peers: BTreeMap<PeerId, Peer>,
    /// A branch that the chain has no room for on the side.
    branch: Option<(PeerId, Vec<Header>)>,
    patience: Duration,
}

impl HeaderSync {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { peers: BTreeMap::new(), branch: None, patience }
    }

    pub(crate) fn connected(&mut self, id: PeerId, claimed: u32) {
        self.peers.insert(id, Peer { claimed, ..Peer::default() });
    }

    pub(crate) fn disconnected(&mut self, id: PeerId) {
        self.peers.remove(&id);
        self.branch.take_if(|(peer, _)| *peer == id);
    }

    /// Whether every peer has told all it has, and there is one.
    pub(crate) fn is_caught_up(&self) -> bool {
        let told_all = |peer: &Peer| peer.done && !peer.wants && peer.asked.is_none();
        !self.peers.is_empty() && self.peers.values().all(told_all)
    }

    /// The peers, each with the last block that it has shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (PeerId, BlockHash)> + '_ {
        self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.last?)))
    }

    /// The peer has announced a block.
    pub(crate) fn announced(
        &mut self,
        chain: &HeaderChain,
        id: PeerId,
        hash: BlockHash,
    ) -> Option<BlockHash> {
        let peer = self.peers.get_mut(&id)?;
        if chain.contains(&hash) {
            peer.last = Some(hash);
            return Some(hash);
        }
        peer.wants = true;
        None
    }

    /// Takes a `headers` message.
    pub(crate) fn take(
        &mut self,
        chain: &mut HeaderChain,
        id: PeerId,
        headers: &[Header],
        unix: u32,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(peer) = self.peers.get_mut(&id) else { return outcome };
        let Some(last) = headers.last() else {
            (peer.asked, peer.done, peer.wants, peer.full) = (None, true, false, false);
            outcome.step = self.end_branch(chain, id, unix, &mut outcome.events);
            return outcome;
        };
        let ban = |why: String| Some(Step::Ban(id, why));
        if headers.len() > MAX_HEADERS {
            let count = headers.len();
            outcome.step =
                ban(format!("{count} headers in one message, the limit is {MAX_HEADERS}"));
            return outcome;
        }
        if headers.windows(2).any(|pair| pair[0].block_hash() != pair[1].prev_blockhash) {
            outcome.step = ban("headers that do not build on each other".into());
            return outcome;
        }
        let full = headers.len() == MAX_HEADERS;
        let first = &headers[0].prev_blockhash;
        if let Some((_, branch)) = self.branch.as_mut().filter(|(peer, _)| *peer == id) {
            let end = branch.last().map(Header::block_hash);
            if end.is_none_or(|end| end == *first) {
                peer.asked = None;
                peer.last = Some(last.block_hash());
                (peer.done, peer.wants, peer.full) = (!full, false, full);
                branch.extend(headers);
                if branch.len() > MAX_BRANCH {
                    self.branch = None;
                    let why = format!("a branch of more than {MAX_BRANCH} headers with less work");
                    outcome.step = Some(Step::Drop(id, why));
                } else if !full {
                    outcome.step = self.end_branch(chain, id, unix, &mut outcome.events);
                }
                return outcome;
            }
        }
        let refused = match chain.accept(headers, unix) {
            Ok(events) => {
                outcome.events = events;
                None
            }
            Err(error) => {
                outcome.events = error.events;
                Some(error.cause)
            }
        };
        match refused {
            None => {
                let hash = last.block_hash();
                (peer.asked, peer.last, peer.unconnected) = (None, Some(hash), 0);
                (peer.done, peer.wants, peer.full) = (!full, false, full);
                let fruitless = outcome.events.is_empty() && chain.height_of(&hash).is_none();
                peer.fruitless = if fruitless { peer.fruitless + 1 } else { 0 };
                outcome.shown = Some(hash);
                if peer.fruitless > MAX_FRUITLESS {
                    let count = peer.fruitless as usize * MAX_HEADERS;
                    let why = format!("a branch of {count} headers with less work than the chain");
                    outcome.step = Some(Step::Drop(id, why));
                }
            }
            Some(HeaderError::Orphan { parent }) => {
                // An announcement, while the answer is under way.
                peer.unconnected += 1;
                (peer.wants, peer.full) = (true, false);
                if peer.unconnected > MAX_UNCONNECTED {
                    let count = peer.unconnected;
                    outcome.step = ban(format!(
                        "{count} messages of headers in a row that build on nothing known, the last \
                         on {parent}"
                    ));
                }
            }
            Some(HeaderError::SideBranchesFull { .. }) if self.branch.is_none() => {
                (peer.asked, peer.last, peer.full, peer.done) = (None, None, true, false);
                self.branch = Some((id, Vec::new()));
            }
            Some(HeaderError::SideBranchesFull { .. }) => {
                // Its turn comes when the other's is collected.
                (peer.asked, peer.last, peer.full, peer.done) = (None, None, true, true);
            }
            Some(cause @ HeaderError::TimeTooNew { .. }) => {
                outcome.step =
                    Some(Step::Drop(id, format!("header: {cause}; is the clock right?")));
            }
            Some(cause @ HeaderError::BelowStart { .. }) => {
                outcome.step = Some(Step::Drop(id, format!("header: {cause}")));
            }
            Some(cause) => outcome.step = ban(format!("invalid header: {cause}")),
        }
        outcome
    }

    /// The branch collected from this peer is all it has: in one piece it gets in if it has more
    /// work than the chain.
    fn end_branch(
        &mut self,
        chain: &mut HeaderChain,
        id: PeerId,
        unix: u32,
        events: &mut Vec<ChainEvent>,
    ) -> Option<Step> {
        let (_, branch) = self.branch.take_if(|(peer, _)| *peer == id)?;
        // Others may have waited for this one's end.
        for peer in self.peers.values_mut().filter(|peer| peer.full && peer.done) {
            peer.done = false;
        }
        match chain.accept(&branch, unix) {
            Ok(new) => {
                *events = new;
                None
            }
            Err(error) => {
                *events = error.events;
                match error.cause {
                    HeaderError::SideBranchesFull { .. } => {
                        let count = branch.len();
                        let why = format!("a branch of {count} headers with less work");
                        Some(Step::Drop(id, why))
                    }
                    cause => Some(Step::Ban(id, format!("invalid header: {cause}"))),
                }
            }
        }
    }

    /// Whom to ask now, and whom to wait for no longer.
    pub(crate) fn next(&mut self, chain: &HeaderChain, now: Duration) -> Vec<Step> {
        let mut steps = Vec::new();
        let patience = self.patience;
        let waited = |peer: &Peer| peer.asked.map(|asked| now.saturating_sub(asked));
        let height = chain.tip().height;
        for peer in self.peers.values_mut() {
            // Who has nothing beyond ours need not say so: nodes that are still syncing do not.
            let nothing = peer.claimed <= height && !peer.wants && !peer.full;
            if nothing && waited(peer).is_some_and(|waited| waited > patience) {
                (peer.asked, peer.done) = (None, true);
            }
        }
        let dropped: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| waited(peer).is_some_and(|waited| waited > 2 * patience))
            .map(|(id, _)| *id)
            .collect();
        for id in dropped {
            let why = format!("no headers for {} seconds", (2 * patience).as_secs());
            steps.push(Step::Drop(id, why));
            self.disconnected(id);
        }
        let none_done = self.peers.values().all(|peer| !peer.done);
        let mut is_led = self.peers.values().any(|peer| {
            (none_done || peer.full) && waited(peer).is_some_and(|waited| waited <= patience)
        });
        let mut open: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.asked.is_none() && (peer.wants || !peer.done))
            .map(|(id, peer)| (!peer.full, std::cmp::Reverse(peer.claimed), *id))
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
            let mut locator = chain.locator();
            // From the block before the tip: who has the tip shows it.
            if locator.len() > 1 {
                locator.remove(0);
            }
            let is_behind = |last: &BlockHash| chain.height_of(last).is_none();
            if peer.full
                && let Some(last) = peer.last.filter(is_behind)
            {
                locator.insert(0, last);
            }
            steps.push(Step::Ask(id, locator));
        }
        steps
    }
}

#[cfg(test)]
#[path = "header_sync_tests.rs"]
mod tests;
