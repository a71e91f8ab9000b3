//! The follower by BIP37: one peer filters blocks and relays transactions, and another takes its
//! place if it fails.
//!
//! [`Session`] is the one keeper of what is under way and which answer counts. What is kept here is
//! which peer serves, and which blocks are answered over all connections.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{BlockHash, OutPoint, ScriptBuf, Txid, Weight};
use thiserror::Error;

use super::follower::{Action, Event, Turn, blocks_that_left};
use super::hits::Unconfirmed;
use super::{Evidence, Finding, Graded, Why};
use crate::btc::bip37::ProofError;
use crate::btc::bip37::session::{self, FilterPolicy, Message, Session};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::wallet::{Label, RelevantTransaction, Watched};

/// Most requests that are pending in the session; the others follow from the chain. An estimate: 20
/// times the usual [`Config::in_flight`](super::Config::in_flight), so that there is always one to
/// send, and little is dropped when the session starts over.
const MAX_PENDING: usize = 2_000;
/// Most announced transactions that are remembered as asked for. An estimate that bounds the memory
/// and the search through them for each announcement.
const MAX_ASKED: usize = 10_000;
/// Most unconfirmed transactions that are kept, by number and by bytes: estimates of what no wallet
/// has at a time.
const MAX_UNCONFIRMED: usize = 1_000;
const MAX_UNCONFIRMED_BYTES: usize = 16 << 20;
/// The largest transaction that nodes relay (Bitcoin Core 28.1, `policy/policy.h`).
const MAX_STANDARD_TX_WEIGHT: Weight = Weight::from_wu(400_000);
/// Most items of one `inv` that are looked at; further ones are passed over. An estimate that
/// bounds what one message of a peer sets off: an `inv` may have 50,000 items.
const MAX_GETDATA: usize = 1_000;
/// After this many failed requests for a block it is reported as unavailable. Requests continue.
const REPORT_AFTER: u32 = 4;

/// Why a peer that filters is disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// No answer for this long.
    #[error("no answer for block {0} in {secs} s", secs = .1.as_secs())]
    Stalled(BlockHash, Duration),
    /// It answered later requests and not this one.
    #[error("block {0}: it does not answer for it")]
    Unanswered(BlockHash),
    /// A transaction of its merkle block did not come.
    #[error("block {0}: it does not deliver transaction {1} of it")]
    Undelivered(BlockHash, Txid),
    /// A merkle block that proves nothing.
    #[error("merkleblock of {0}: {1}")]
    InvalidMerkleBlock(BlockHash, ProofError),
    /// Transactions of one block that are larger together than a block can be.
    #[error("transactions of block {0} are larger than a block")]
    OversizedBlock(BlockHash),
}

impl Reason {
    /// Returns `true` if the peer broke the protocol.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            // Honest nodes meet these too: Core passes over what it has sent before.
            Self::Stalled(..) | Self::Unanswered(_) | Self::Undelivered(..) => false,
            Self::InvalidMerkleBlock(..) | Self::OversizedBlock(_) => true,
        }
    }
}

/// A session with whichever peer serves.
#[derive(Debug)]
pub(super) struct BloomFollower {
    session: Session,
    first: u32,
    last: Option<u32>,
    /// The connected peers that offer Bloom filters, each with the height that it has shown, or
    /// claimed.
    peers: BTreeMap<PeerId, u32>,
    serving: Option<PeerId>,
    /// Every block below is answered.
    next: u32,
    /// Answered blocks above.
    answered: BTreeSet<u32>,
    /// Every block below was handed to the session.
    requested: u32,
    /// How often blocks were not answered, or not completely.
    tries: BTreeMap<BlockHash, u32>,
    /// The first height that no [`Action::Graded`] has named.
    ungraded: u32,
    asked: VecDeque<Txid>,
    asked_mempool: bool,
    unconfirmed_reported: bool,
    /// No filter has room for what is watched. Answers to the filter before lack it, so that none
    /// counts any more.
    has_no_filter: bool,
    progress: u64,
}

impl BloomFollower {
    pub(super) fn new(session: Session, first: u32, last: Option<u32>, next: u32) -> Self {
        Self {
            session,
            first,
            last,
            peers: BTreeMap::new(),
            serving: None,
            next,
            answered: BTreeSet::new(),
            requested: next,
            tries: BTreeMap::new(),
            ungraded: first,
            asked: VecDeque::new(),
            asked_mempool: false,
            unconfirmed_reported: false,
            has_no_filter: false,
            progress: 0,
        }
    }

    /// Coins and indices that an earlier run found.
    fn start(
        &mut self,
        coins: Vec<(OutPoint, ScriptBuf)>,
        used: BTreeSet<Label>,
        turn: &mut Turn<'_>,
    ) {
        for label in used {
            self.feed(session::Event::Used(label), turn);
        }
        let mut watched = new_items(turn);
        watched.extend(given(coins));
        self.feed(session::Event::Tip(turn.chain.tip().height), turn);
        self.feed(session::Event::Watch(watched), turn);
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn policy(&self) -> &FilterPolicy {
        self.session.filter_policy()
    }

    /// The last height wanted, as far as the chain goes.
    pub(super) fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    /// The height up to which every block is answered.
    pub(super) fn settled_to(&self) -> Option<u32> {
        self.next.checked_sub(1).filter(|answered| *answered >= self.first)
    }

    pub(super) fn is_caught_up(&self, chain: &HeaderChain) -> bool {
        if self.has_no_filter {
            return false;
        }
        let watch = self.session.watch();
        // Without a filter no node answers, and there is nothing to find.
        let is_idle = watch.num_scripts() == 0 && watch.outputs().len() == 0;
        is_idle || self.next > self.end(chain) && self.session.pending_requests() == 0
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Reports what a "no" is worth in the blocks answered since the last time.
    fn flush(&mut self, turn: &mut Turn<'_>) {
        if self.ungraded < self.next {
            let (from, to) = (self.ungraded, self.next - 1);
            turn.actions.push(Action::Graded(Graded { from, to, grade: Grade::OnePeer }));
            self.ungraded = self.next;
        }
    }

    pub(super) fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        match event {
            Event::Start { coins, used } => self.start(coins, used, turn),
            // Nothing that a node filters counts, until less is watched.
            Event::Message(..) | Event::Tick if self.has_no_filter => return,
            Event::Connected(id, height) => {
                self.peers.insert(id, height);
            }
            Event::Disconnected(id) => {
                self.peers.remove(&id);
                if self.serving == Some(id) {
                    self.let_go(turn);
                }
            }
            Event::Shows(id, hash) => {
                if let (Some(peer), Some(height)) =
                    (self.peers.get_mut(&id), turn.chain.height_of(&hash))
                {
                    *peer = height.max(*peer);
                }
            }
            Event::Chain(events) => self.chain_changed(events, turn),
            // The session has one connection: what other peers send answers none of its requests.
            Event::Message(id, message) if self.serving == Some(id) => {
                if let NetworkMessage::Inv(items) = &message {
                    self.announced(id, items, turn);
                }
                self.feed(message.into(), turn);
            }
            Event::Watch(from, coins) => self.watch_new(from, coins, turn),
            Event::Rescan(from) => self.rescan(from, turn),
            // Only the serving peer's answers are to the filter. Nothing of what a node filters is
            // kept in files.
            Event::Message(..) | Event::Contents(..) => {}
            Event::Flush => self.flush(turn),
            Event::Tick => self.feed(session::Event::Tick, turn),
        }
        if self.has_no_filter {
            return;
        }
        self.choose(turn);
        self.request(turn);
        self.ask_mempool(turn);
    }

    fn watch_new(
        &mut self,
        from: Option<u32>,
        coins: Vec<(OutPoint, ScriptBuf)>,
        turn: &mut Turn<'_>,
    ) {
        // A script that is watched again later must be new to the session then: only for what is new
        // does it ask again for the blocks that were answered without it.
        let watch = self.session.watch();
        let dropped = turn.wallets.take_dropped();
        let scripts: Vec<_> = dropped.iter().filter_map(|script| watch.index_of(script)).collect();
        if !scripts.is_empty() {
            let event = session::Event::Unwatch { scripts, outpoints: Vec::new() };
            self.feed(event, turn);
        }
        let mut watched = new_items(turn);
        watched.extend(given(coins));
        let had_no_filter = core::mem::take(&mut self.has_no_filter);
        self.feed(session::Event::Watch(watched), turn);
        if had_no_filter && !self.has_no_filter {
            self.feed(session::Event::Refresh, turn);
        }
        self.first = self.first.min(from.unwrap_or(u32::MAX));
        if self.has_no_filter {
            // The new items were asked for in no block: nothing may be kept as answered with them.
            self.roll_back(from.unwrap_or(u32::MAX));
            return;
        }
        // What was answered meanwhile was answered without the items that had no room.
        let from = if had_no_filter { Some(self.first) } else { from };
        if let Some(from) = from {
            self.rescan(from, turn);
        }
    }

    /// Has every block from a height on answered again.
    fn rescan(&mut self, from: u32, turn: &mut Turn<'_>) {
        self.first = self.first.min(from);
        self.roll_back(from);
        // The session forgets its requests from there on.
        self.feed(session::Event::Reorganized(from), turn);
    }

    fn roll_back(&mut self, height: u32) {
        self.next = self.next.min(height);
        self.requested = self.requested.min(height);
        self.answered.retain(|answered| *answered < height);
        self.ungraded = self.ungraded.min(height);
    }

    /// Nobody serves. What was asked for is asked for again, and with it the blocks above one that
    /// was passed over: they were answered without its coins, which they may spend.
    fn let_go(&mut self, turn: &mut Turn<'_>) {
        self.serving = None;
        self.asked.clear();
        self.asked_mempool = false;
        self.feed(session::Event::Disconnected, turn);
        self.roll_back(self.next);
        self.feed(session::Event::Reorganized(self.next), turn);
    }

    /// Has the peer serve that has shown most, if none does.
    fn choose(&mut self, turn: &mut Turn<'_>) {
        if let Some(height) = self.serving.and_then(|id| self.peers.get(&id)).copied() {
            // One that is behind the chain has answered all it can.
            let is_behind = height < self.end(turn.chain) && self.next > height;
            let others = self.peers.values().any(|other| *other > height);
            if !(is_behind && others && self.session.pending_requests() == 0) {
                return;
            }
            self.let_go(turn);
        }
        // Of several, the one that connected first: a peer that failed has come back under a later
        // number.
        let best =
            self.peers.iter().max_by_key(|(id, height)| (**height, core::cmp::Reverse(**id)));
        let Some((&id, _)) = best else { return };
        self.serving = Some(id);
        self.feed(session::Event::Connected, turn);
    }

    /// Hands the session the blocks that are to be answered.
    fn request(&mut self, turn: &mut Turn<'_>) {
        let Some(height) = self.serving.and_then(|id| self.peers.get(&id)).copied() else { return };
        let room = MAX_PENDING.saturating_sub(self.session.pending_requests());
        // In batches: one block for each answer would cost the session an event each.
        if room < MAX_PENDING / 2 {
            return;
        }
        let end = self.end(turn.chain).min(height);
        let mut blocks = Vec::new();
        while self.requested <= end && blocks.len() < room {
            let Some(hash) = turn.chain.hash_at(self.requested) else { break };
            blocks.push(BlockAt { hash, height: self.requested });
            self.requested += 1;
        }
        if !blocks.is_empty() {
            self.feed(session::Event::Request(blocks), turn);
        }
    }

    /// Once the past is answered, asks for what is in no block yet (BIP35).
    fn ask_mempool(&mut self, turn: &mut Turn<'_>) {
        let Some(id) = self.serving else { return };
        let is_live = self.last.is_none() && self.next > self.end(turn.chain);
        if !is_live || self.asked_mempool || self.session.mirrored_filter().is_none() {
            return;
        }
        self.asked_mempool = true;
        turn.actions.push(Action::Send(id, NetworkMessage::MemPool));
    }

    /// Asks for the transactions that the serving peer announces.
    fn announced(&mut self, id: PeerId, items: &[Inventory], turn: &mut Turn<'_>) {
        let mut wanted = Vec::new();
        for item in items.iter().take(MAX_GETDATA) {
            let (Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid)) = item else {
                continue;
            };
            if self.asked.contains(txid) {
                continue;
            }
            self.asked.push_back(*txid);
            wanted.push(Inventory::Transaction(*txid));
        }
        while self.asked.len() > MAX_ASKED {
            self.asked.pop_front();
        }
        if !wanted.is_empty() && self.last.is_none() {
            turn.actions.push(Action::Send(id, NetworkMessage::GetData(wanted)));
        }
    }

    fn chain_changed(&mut self, events: &[ChainEvent], turn: &mut Turn<'_>) {
        let gone = blocks_that_left(events);
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.roll_back(lowest.max(self.first));
            self.feed(session::Event::Reorganized(lowest), turn);
        }
        self.feed(session::Event::Tip(turn.chain.tip().height), turn);
    }

    /// Tells the session, and does what it wants.
    fn feed(&mut self, event: session::Event, turn: &mut Turn<'_>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.session.handle(event, turn.now) {
                match action {
                    session::Action::Send(message) => self.send(message, turn),
                    session::Action::Report(finding) => {
                        events.extend(self.find(finding, turn));
                    }
                }
            }
        }
    }

    fn send(&mut self, message: Message, turn: &mut Turn<'_>) {
        // It fails for reserved flags alone, which the session's own policy never sets.
        if let (Some(id), Ok(message)) = (self.serving, message.try_into()) {
            turn.actions.push(Action::Send(id, message));
        }
    }

    /// Takes a finding of the session. Returns what it is to be told.
    fn find(&mut self, finding: session::Finding, turn: &mut Turn<'_>) -> Option<session::Event> {
        match finding {
            session::Finding::Relevant(found) => return self.relevant(&found, turn),
            session::Finding::Block(closed) => {
                self.progress += 1;
                let hash = closed.proof().block_hash;
                // Superseded: the height is requested again, so this answer does not count.
                if !closed.counts() {
                    return None;
                }
                if let Some(txid) = closed.undelivered() {
                    return self.ask_again(hash, Reason::Undelivered(hash, txid), turn);
                }
                if let Some(height) = turn.chain.height_of(&hash) {
                    self.tries.remove(&hash);
                    self.answered.insert(height);
                    while self.answered.remove(&self.next) {
                        self.next += 1;
                    }
                }
            }
            session::Finding::Unanswered(hash) => {
                return self.ask_again(hash, Reason::Unanswered(hash), turn);
            }
            session::Finding::Stalled(hash, waited) => {
                self.fail(Reason::Stalled(hash, waited), turn);
            }
            session::Finding::InvalidMerkleBlock(hash, error) => {
                return self.ask_again(hash, Reason::InvalidMerkleBlock(hash, error), turn);
            }
            session::Finding::OversizedBlock(hash) => {
                return self.ask_again(hash, Reason::OversizedBlock(hash), turn);
            }
            session::Finding::Refused { block, txid, .. } => {
                let height = turn.chain.height_of(&block);
                let at = height.map(|height| BlockAt { height, hash: block });
                let finding = at.map(|at| Finding::Refused(at, txid));
                turn.actions.extend(finding.map(Action::Report));
            }
            session::Finding::KeychainAdvanced { label, .. } => {
                turn.wallets.advance(label);
                return Some(session::Event::Watch(new_items(turn)));
            }
            session::Finding::Refilter(from) => self.roll_back(from.height.max(self.first)),
            session::Finding::RefreshAdvised(reason) => {
                turn.actions.push(Action::Report(Finding::FilterRefreshed(reason)));
                return Some(session::Event::Refresh);
            }
            session::Finding::Privacy(report) => {
                turn.actions.push(Action::Report(Finding::Privacy(report)));
            }
            session::Finding::NoFilter(error) => {
                self.has_no_filter = true;
                turn.actions.push(Action::Report(Finding::NoFilter(error)));
            }
            session::Finding::LimitReached(count) => {
                turn.actions.push(Action::Report(Finding::CoinLimit(count)));
            }
            // Honest peers cause the first four too; `Wallet::check` has refused what cannot be
            // watched; the client sends no claims, so that the last three do not come.
            session::Finding::FalsePositive(..)
            | session::Finding::NotInTree { .. }
            | session::Finding::NotDelivered { .. }
            | session::Finding::Unrequested(_)
            | session::Finding::Unwatchable(_)
            | session::Finding::Omission { .. }
            | session::Finding::FalseHeight { .. }
            | session::Finding::NoEvidence(..) => {}
        }
        None
    }

    fn relevant(
        &mut self,
        found: &RelevantTransaction,
        turn: &mut Turn<'_>,
    ) -> Option<session::Event> {
        let (why, evidence) = match found.place {
            // Of a block that has left the chain.
            Some(place) if turn.chain.height_of(&place.block.hash).is_none() => return None,
            Some(_) => (Why::FilteredBlock, Evidence::MerkleProof),
            // Nodes relay none that is larger.
            None if found.transaction.weight() > MAX_STANDARD_TX_WEIGHT => return None,
            // They cost nothing to make up.
            None if is_full(turn.unconfirmed()) => {
                if !self.unconfirmed_reported {
                    self.unconfirmed_reported = true;
                    let finding = Finding::UnconfirmedLimit(MAX_UNCONFIRMED);
                    turn.actions.push(Action::Report(finding));
                }
                return None;
            }
            None => (Why::Relayed, Evidence::Unconfirmed),
        };
        self.progress += 1;
        let watch = self.session.watch();
        let hits = turn.wallets.hits(found, watch, evidence, why);
        turn.actions.push(Action::Found(self.serving, hits));
        // A script of several wallets has a label in each; the session knows one of them.
        let mut is_ahead = false;
        for received in &found.relevance.received {
            let Some(script) = watch.script(received.script) else { continue };
            let labels: Vec<_> = turn.wallets.labels(script.script()).collect();
            for label in labels.into_iter().filter(|label| Some(*label) != received.label) {
                is_ahead |= turn.wallets.advance(label);
            }
        }
        if !is_ahead {
            return None;
        }
        if let Some(place) = found.place {
            // No Reorganized: loading the new scripts makes the session supersede what is in flight
            // (Finding::Refilter).
            self.roll_back(place.block.height);
        }
        Some(session::Event::Watch(new_items(turn)))
    }

    /// The serving peer has failed at a block: on another connection it, or another peer, may not.
    /// Every block after it is asked for again too, since it may spend what this one holds.
    fn ask_again(
        &mut self,
        hash: BlockHash,
        reason: Reason,
        turn: &mut Turn<'_>,
    ) -> Option<session::Event> {
        self.fail(reason, turn);
        let height = turn.chain.height_of(&hash)?;
        let tries = self.tries.entry(hash).or_insert(0);
        *tries += 1;
        if *tries == REPORT_AFTER {
            let at = BlockAt { height, hash };
            turn.actions.push(Action::Report(Finding::BlockUnavailable(at)));
        }
        self.roll_back(height);
        // The session forgets its requests from there on.
        Some(session::Event::Reorganized(height))
    }

    /// The serving peer has failed: another may do better.
    fn fail(&mut self, reason: Reason, turn: &mut Turn<'_>) {
        if let Some(id) = self.serving {
            turn.actions.push(Action::Disconnect(id, super::Reason::Bloom(reason)));
        }
    }
}

/// Whether no more unconfirmed transactions are kept.
fn is_full(kept: Unconfirmed) -> bool {
    kept.count >= MAX_UNCONFIRMED || kept.bytes >= MAX_UNCONFIRMED_BYTES
}

/// Coins that are known, as a session takes them.
fn given(coins: Vec<(OutPoint, ScriptBuf)>) -> impl Iterator<Item = Watched> {
    let coin = |(outpoint, script)| Watched::OutPoint { outpoint, script: Some(script) };
    coins.into_iter().map(coin)
}

/// What the wallets have added, as a session takes it.
fn new_items(turn: &mut Turn<'_>) -> Vec<Watched> {
    let new = turn.wallets.take_new().into_iter();
    // `Wallet::history` is dropped: a session counts every history as unknown.
    let watched = new.filter_map(|new| match (new.outpoint, new.script) {
        (Some(outpoint), script) => Some(Watched::OutPoint { outpoint, script }),
        (None, Some(script)) => Some(Watched::Script { script, label: new.label }),
        (None, None) => None,
    });
    watched.collect()
}
