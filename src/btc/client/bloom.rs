//! The BIP37 follower. One peer at a time filters blocks and relays transactions; if the serving
//! peer fails, another peer takes over.
//!
//! [`Session`] decides which requests are pending and which answers are valid. The follower only
//! decides which peer serves. It records, across all connections, the answered blocks, and the
//! scripts and coins for which each block was answered ([`Searched`]).
//!
//! Blocks are requested in the order of the chain. A node answers with the scripts that its filter
//! has at that time. If scripts are added or coins are found later, the blocks that were answered
//! without them are requested again. This happens in another pass, once the last block is answered.

use core::ops::RangeInclusive;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{BlockHash, OutPoint, ScriptBuf, Txid, Weight};

use super::follower::Searched;
use super::follower::{Action, Event, Turn, blocks_that_left, group};
use super::hits::Unconfirmed;
use super::{Finding, Graded, HitReason, InclusionEvidence, Reason};
use crate::btc::bip37::session::{self, Message, Session};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::wallet::{Label, RelevantTransaction, WatchItem};

/// Maximum number of pending requests in the session. The follower derives further requests from
/// the chain later. The value is an estimate: 20 times the default
/// [`Config::in_flight`](super::Config::in_flight), so that a request is always ready to send, and
/// few requests are lost when the session restarts.
const MAX_PENDING: usize = 2_000;
/// Maximum number of announced transactions that are remembered as requested. The value is an
/// estimate. The limit bounds the memory, and the search through the list on each announcement.
const MAX_ASKED: usize = 10_000;
/// Maximum number of stored unconfirmed transactions of all wallets. The value is an estimate: a
/// wallet has fewer unconfirmed transactions than this at a time.
const MAX_UNCONFIRMED: usize = 1_000;
/// Maximum total size in bytes of the stored unconfirmed transactions. The value is an estimate,
/// like [`MAX_UNCONFIRMED`].
const MAX_UNCONFIRMED_BYTES: usize = 16 << 20;
/// Largest weight of a transaction that nodes relay (`MAX_STANDARD_TX_WEIGHT` in Bitcoin Core 28.1,
/// `policy/policy.h`).
const MAX_STANDARD_TX_WEIGHT: Weight = Weight::from_wu(400_000);
/// Maximum number of items of one `inv` that are processed; further items are ignored. The value is
/// an estimate. The limit bounds the work that one message of a peer causes, since an `inv` may
/// have 50,000 items.
const MAX_GETDATA: usize = 1_000;
/// Number of failed requests after which a block is reported as unavailable. The requests continue.
/// The value is an estimate. Each failure disconnects the serving peer, so one faulty peer alone
/// causes no report.
const REPORT_AFTER: u32 = 4;

/// The BIP37 follower: a session with the serving peer.
#[derive(Debug)]
pub(super) struct BloomFollower {
    pub(super) session: Session,
    /// First height to scan.
    pub(super) first: u32,
    /// Last height to scan; `None` for no limit.
    last: Option<u32>,
    /// The connected peers that offer Bloom filters, each with its height: the height that the peer
    /// claimed when it connected, or a greater height of a block that it has shown since.
    peers: BTreeMap<PeerId, u32>,
    /// The peer that the session talks to.
    serving: Option<PeerId>,
    /// The scripts and coins for which each block was answered.
    pub(super) searched: Searched,
    /// The coins that were found in blocks.
    coins: BTreeSet<OutPoint>,
    /// The lowest height that was answered in this run.
    pub(super) answered_from: u32,
    /// In the current pass, every unanswered block below this height was passed to the session.
    requested: u32,
    /// Number of failed or incomplete answers per block.
    tries: BTreeMap<BlockHash, u32>,
    /// The first height that no [`Action::Graded`] has covered.
    ungraded: u32,
    /// Announced transactions that were requested from the serving peer, oldest first.
    asked: VecDeque<Txid>,
    /// `true` if `mempool` was sent to the serving peer.
    asked_mempool: bool,
    /// `true` if the limit of unconfirmed transactions was reported.
    unconfirmed_reported: bool,
    /// `true` if no filter fits the watched elements. The old filter lacks some of these elements,
    /// so no answer to it is valid.
    has_no_filter: bool,
    /// A counter that grows with each step of progress.
    pub(super) progress: u64,
}

impl BloomFollower {
    /// Creates a follower for the heights from `first` to `last`. The blocks `answered` were answered
    /// in an earlier run.
    pub(super) fn new(
        session: Session,
        first: u32,
        last: Option<u32>,
        answered: Option<RangeInclusive<u32>>,
    ) -> Self {
        let mut searched = Searched::default();
        if let Some(answered) = answered {
            searched.answer(answered, 0);
        }
        Self {
            session,
            first,
            last,
            peers: BTreeMap::new(),
            serving: None,
            searched,
            coins: BTreeSet::new(),
            answered_from: u32::MAX,
            requested: first,
            tries: BTreeMap::new(),
            ungraded: first,
            asked: VecDeque::new(),
            asked_mempool: false,
            unconfirmed_reported: false,
            has_no_filter: false,
            progress: 0,
        }
    }

    /// Starts with the coins and keychain indices that an earlier run found.
    fn start(
        &mut self,
        coins: Vec<(OutPoint, ScriptBuf)>,
        used: BTreeSet<Label>,
        late: Vec<(ScriptBuf, u32)>,
        turn: &mut Turn<'_>,
    ) {
        for label in used {
            self.feed(session::Event::Used(label), turn);
        }
        self.feed(session::Event::Tip(turn.chain.tip().height), turn);
        self.coins.extend(coins.iter().map(|(outpoint, _)| *outpoint));
        let mut watched = self.take_new(turn);
        watched.extend(given(coins));
        self.feed(session::Event::Watch(watched), turn);
        // The blocks above were answered without these coins.
        for (script, from) in late {
            self.searched.add(script, from);
        }
        self.requested = self.next();
        self.ungraded = self.requested;
    }

    /// Takes the new items of the wallets, in the form that a session accepts, and records the
    /// heights at which they are wanted.
    fn take_new(&mut self, turn: &mut Turn<'_>) -> Vec<WatchItem> {
        let mut watched = Vec::new();
        for group in group(core::mem::take(&mut turn.wallets.new), self.answered_from, turn.chain) {
            let mut scripts = Vec::new();
            for (new, from) in group.new {
                scripts.push((new.script.clone().unwrap_or_default(), from));
                // `Wallet::history` is dropped: a session treats every history as unknown.
                watched.extend(match (new.outpoint, new.script) {
                    (Some(outpoint), script) => Some(WatchItem::OutPoint { outpoint, script }),
                    (None, Some(script)) => Some(WatchItem::Script { script, label: new.label }),
                    (None, None) => None,
                });
                self.first = self.first.min(from);
            }
            self.searched.add_known(scripts, group.below);
        }
        watched
    }

    /// Returns the height up to which every block from the first block on is answered, whether or
    /// not it must be searched again.
    pub(super) fn answered_to(&self) -> Option<u32> {
        let answered = self.searched.unanswered(self.first).checked_sub(1);
        answered.filter(|answered| *answered >= self.first)
    }

    /// Returns the lowest height whose block must be requested.
    fn next(&self) -> u32 {
        self.next_from(self.first)
    }

    /// Returns the lowest height from this one on whose block must be requested.
    fn next_from(&self, height: u32) -> u32 {
        let unanswered = self.searched.unanswered(height);
        let open = unanswered.checked_sub(1).and_then(|last| self.searched.open(height..=last));
        open.unwrap_or(unanswered)
    }

    /// Last height to scan: the limit or the tip, whichever is lower.
    pub(super) fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    /// Height up to which every block is answered; `None` if the first block is not answered.
    pub(super) fn settled_to(&self) -> Option<u32> {
        self.next().checked_sub(1).filter(|answered| *answered >= self.first)
    }

    /// Returns `true` if every wanted block of the chain is answered, or if nothing is watched.
    pub(super) fn is_caught_up(&self, chain: &HeaderChain) -> bool {
        // No filter fits the watched elements, so they cannot be searched for.
        if self.has_no_filter {
            return false;
        }
        let watch = self.session.watch();
        // If nothing is watched, there is no filter. Then no node answers, and there is nothing to
        // find.
        let is_idle = watch.num_scripts() == 0 && watch.outputs().len() == 0;
        is_idle || self.next() > self.end(chain) && self.session.pending_requests() == 0
    }

    /// Reports the grade of the blocks answered since the last report. The grade is always
    /// `OnePeer`, since only one peer answers for a block.
    fn flush(&mut self, turn: &mut Turn<'_>) {
        let next = self.next();
        // If the two heights are equal, no block was answered since the last report. If the next
        // height is lower, blocks are to be searched again.
        if self.ungraded < next {
            let (from, to) = (self.ungraded, next - 1);
            turn.actions.push(Action::Graded(Graded { from, to, grade: Grade::OnePeer }));
        }
        self.ungraded = next;
    }

    pub(super) fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        match event {
            Event::Start { coins, used, late, .. } => self.start(coins, used, late, turn),
            // Answers to the old filter are invalid until fewer elements are watched.
            Event::Message(..) | Event::Tick if self.has_no_filter => return,
            // A claimed height above the chain is not worth more than one at its tip: the peer that
            // claims most would always serve.
            Event::Connected(id, height) => {
                self.peers.insert(id, height.min(turn.chain.tip().height));
            }
            Event::Disconnected(id) => {
                self.peers.remove(&id);
                // Another peer must take over.
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
            // The session talks to one peer. Messages of other peers do not answer requests of the
            // session.
            Event::Message(id, message) if self.serving == Some(id) => {
                if let NetworkMessage::Inv(items) = &message {
                    self.announced(id, items, turn);
                }
                self.feed(message.into(), turn);
            }
            Event::Watch(coins) => self.watch_new(coins, turn),
            Event::Rescan(from) => self.rescan(from, turn),
            // Messages of other peers are ignored, because these peers do not have the current
            // filter. `Contents` is ignored, because the BIP37 follower stores no files.
            Event::Message(..) | Event::Contents(..) => {}
            Event::Flush => self.flush(turn),
            Event::Tick => self.feed(session::Event::Tick, turn),
        }
        // Without a valid filter, no peer is asked.
        if self.has_no_filter {
            return;
        }
        self.choose(turn);
        self.request(turn);
        self.ask_mempool(turn);
    }

    /// Updates the session after the wallets changed.
    fn watch_new(&mut self, coins: Vec<(OutPoint, ScriptBuf)>, turn: &mut Turn<'_>) {
        // Remove the dropped scripts from the session. A script that is watched again later is then
        // new to the session.
        let watch = self.session.watch();
        let dropped = core::mem::take(&mut turn.wallets.dropped);
        let scripts: Vec<_> = dropped.iter().filter_map(|script| watch.index_of(script)).collect();
        if !dropped.is_empty() {
            self.searched.retain(|script| !dropped.contains(script));
        }
        if !scripts.is_empty() {
            let event = session::Event::Unwatch { scripts, outpoints: Vec::new() };
            self.feed(event, turn);
            // A coin that the session has dropped counts as new when it is found again.
            let watch = self.session.watch();
            self.coins.retain(|outpoint| watch.output(outpoint).is_some());
        }
        self.coins.extend(coins.iter().map(|(outpoint, _)| *outpoint));
        let mut watched = self.take_new(turn);
        watched.extend(given(coins));
        let had_no_filter = core::mem::take(&mut self.has_no_filter);
        self.feed(session::Event::Watch(watched), turn);
        // The watched elements fit into a filter again, so the session must send the filter.
        if had_no_filter && !self.has_no_filter {
            self.feed(session::Event::Refresh, turn);
        }
    }

    /// Requests again every block from a height on.
    fn rescan(&mut self, from: u32, turn: &mut Turn<'_>) {
        self.first = self.first.min(from);
        self.answered_from = self.answered_from.min(from);
        self.searched.forget(&(from..=u32::MAX));
        self.go_back(from, turn);
    }

    /// Restarts the requests from a height on. The session drops its pending requests from this
    /// height on.
    fn go_back(&mut self, height: u32, turn: &mut Turn<'_>) {
        self.requested = self.requested.min(height.max(self.first));
        self.feed(session::Event::Reorganized(height), turn);
    }

    /// Ends the session with the serving peer. The unanswered blocks are requested from another
    /// peer.
    fn let_go(&mut self, turn: &mut Turn<'_>) {
        self.serving = None;
        self.asked.clear();
        self.asked_mempool = false;
        self.feed(session::Event::Disconnected, turn);
        self.go_back(self.next(), turn);
    }

    /// Chooses the peer with the greatest height as the serving peer, unless a suitable peer
    /// already serves.
    fn choose(&mut self, turn: &mut Turn<'_>) {
        if let Some(height) = self.serving.and_then(|id| self.peers.get(&id)).copied() {
            // If another peer has a greater height, replace a serving peer that is behind the chain
            // and has answered everything that it can.
            let is_behind = height < self.end(turn.chain) && self.next() > height;
            let others = self.peers.values().any(|other| *other > height);
            if !(is_behind && others && self.session.pending_requests() == 0) {
                return;
            }
            self.let_go(turn);
        }
        // Among equal heights, take the peer that connected first. A peer that failed and
        // reconnected has a higher number, so it is chosen last.
        let best =
            self.peers.iter().max_by_key(|(id, height)| (**height, core::cmp::Reverse(**id)));
        let Some((&id, _)) = best else { return };
        self.serving = Some(id);
        self.feed(session::Event::Connected, turn);
    }

    /// Passes the next blocks to the session, up to the height of the serving peer.
    fn request(&mut self, turn: &mut Turn<'_>) {
        let Some(height) = self.serving.and_then(|id| self.peers.get(&id)).copied() else { return };
        let room = MAX_PENDING.saturating_sub(self.session.pending_requests());
        // Blocks are passed to the session in batches. Otherwise, each answer would cause a session
        // event for a single block.
        if room < MAX_PENDING / 2 {
            return;
        }
        // The peer cannot answer for blocks above its height.
        let end = self.end(turn.chain).min(height);
        // Blocks that were answered without scripts of now are requested in another pass, when all
        // others are answered.
        if self.requested > end && room == MAX_PENDING {
            self.searched.tidy();
            self.requested = self.next();
        }
        let mut blocks = Vec::new();
        while blocks.len() < room {
            self.requested = self.next_from(self.requested);
            let Some(hash) = turn.chain.hash_at(self.requested) else { break };
            if self.requested > end {
                break;
            }
            blocks.push(BlockAt { hash, height: self.requested });
            self.requested += 1;
        }
        if !blocks.is_empty() {
            self.feed(session::Event::Request(blocks), turn);
        }
    }

    /// Sends `mempool` (BIP35) once all blocks are answered, to learn of unconfirmed transactions.
    fn ask_mempool(&mut self, turn: &mut Turn<'_>) {
        let Some(id) = self.serving else { return };
        let is_live = self.last.is_none() && self.next() > self.end(turn.chain);
        // Send `mempool` once per serving peer, and only with a loaded filter, which limits what
        // the node announces.
        if !is_live || self.asked_mempool || self.session.mirrored_filter().is_none() {
            return;
        }
        self.asked_mempool = true;
        turn.actions.push(Action::Send(id, NetworkMessage::MemPool));
    }

    /// Requests the transactions that the serving peer announces.
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
        // A peer can announce invented txids without end. At worst, a forgotten transaction is
        // requested again.
        while self.asked.len() > MAX_ASKED {
            self.asked.pop_front();
        }
        // If a last height is configured, unconfirmed transactions are not wanted.
        if !wanted.is_empty() && self.last.is_none() {
            turn.actions.push(Action::Send(id, NetworkMessage::GetData(wanted)));
        }
    }

    /// Applies a change of the chain: blocks above a fork are requested again.
    fn chain_changed(&mut self, events: &[ChainEvent], turn: &mut Turn<'_>) {
        let gone = blocks_that_left(events);
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.searched.truncate(lowest);
            self.go_back(lowest, turn);
        }
        self.feed(session::Event::Tip(turn.chain.tip().height), turn);
    }

    /// Passes an event to the session and carries out its actions.
    fn feed(&mut self, event: session::Event, turn: &mut Turn<'_>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            // Scripts that the answer itself leads to are not among those that it was given for.
            let count = self.searched.len();
            for action in self.session.handle(event, turn.now) {
                match action {
                    session::Action::Send(message) => self.send(message, turn),
                    session::Action::Report(finding) => {
                        events.extend(self.find(finding, count, turn));
                    }
                }
            }
        }
    }

    fn send(&mut self, message: Message, turn: &mut Turn<'_>) {
        // The conversion fails only for reserved flags, which the policy of the session never sets.
        if let (Some(id), Ok(message)) = (self.serving, message.try_into()) {
            turn.actions.push(Action::Send(id, message));
        }
    }

    /// Handles a finding of the session. `count` is the number of scripts and coins before it.
    /// Returns an event for the session, if one follows.
    fn find(
        &mut self,
        finding: session::Finding,
        count: usize,
        turn: &mut Turn<'_>,
    ) -> Option<session::Event> {
        match finding {
            session::Finding::Relevant(found) => return self.relevant(&found, turn),
            session::Finding::Block {
                block: BlockAt { hash, .. }, counts, undelivered, ..
            } => {
                self.progress += 1;
                // Superseded: the height is requested again, so this answer is not valid.
                if !counts {
                    return None;
                }
                // An incomplete answer may hide a transaction of a wallet.
                if let Some(txid) = undelivered {
                    return self.ask_again(hash, Reason::Undelivered(hash, txid), turn);
                }
                // The block may have left the chain while the answer was in flight.
                if let Some(height) = turn.chain.height_of(&hash) {
                    self.tries.remove(&hash);
                    self.answered_from = self.answered_from.min(height);
                    self.searched.answer(height..=height, count);
                }
            }
            session::Finding::Unanswered(hash) => {
                return self.ask_again(hash, Reason::Unanswered(hash), turn);
            }
            session::Finding::Stalled(hash, waited) => {
                // The disconnect makes `let_go` request the unanswered blocks again.
                self.fail(Reason::BlockStalled(hash, waited), turn);
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
                let finding = at.map(|at| Finding::Refused { at, txid });
                turn.actions.extend(finding.map(Action::Report));
            }
            session::Finding::KeychainAdvanced { label, .. } => {
                turn.wallets.advance(label);
                return Some(session::Event::Watch(self.take_new(turn)));
            }
            // The blocks from here on, up to the last one requested, were filtered without an
            // element that the wallet has learnt only afterwards.
            session::Finding::Refilter(from) => {
                if let Some(last) = self.requested.checked_sub(1) {
                    self.searched.forget(&(from.height..=last));
                }
                self.requested = self.requested.min(from.height);
            }
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
            // These findings need no action. The follower knows itself which blocks lack scripts, and
            // not only those of this session (`RefilterEarlier`). Honest peers cause the first four of these findings
            // too. `Wallet::check` has refused all unwatchable scripts.
            session::Finding::RefilterEarlier(_)
            | session::Finding::FalsePositive(..)
            | session::Finding::NotInTree { .. }
            | session::Finding::NotDelivered { .. }
            | session::Finding::Unrequested(_)
            | session::Finding::Unwatchable(_) => {}
        }
        None
    }

    /// Reports a transaction as a hit of each wallet that it concerns. Returns an event for the
    /// session if the transaction has led to new watched scripts.
    fn relevant(
        &mut self,
        found: &RelevantTransaction,
        turn: &mut Turn<'_>,
    ) -> Option<session::Event> {
        let (why, evidence) = match found.place {
            // The block has left the chain.
            Some(place) if turn.chain.height_of(&place.block.hash).is_none() => return None,
            Some(_) => (HitReason::FilteredBlock, InclusionEvidence::MerkleProof),
            // Honest nodes do not relay larger transactions.
            None if found.transaction.weight() > MAX_STANDARD_TX_WEIGHT => return None,
            // A peer can invent unconfirmed transactions at no cost, so their number is limited.
            None if is_full(turn.unconfirmed()) => {
                if !self.unconfirmed_reported {
                    self.unconfirmed_reported = true;
                    let finding = Finding::UnconfirmedLimit(MAX_UNCONFIRMED);
                    turn.actions.push(Action::Report(finding));
                }
                return None;
            }
            None => (HitReason::Relayed, InclusionEvidence::Unconfirmed),
        };
        self.progress += 1;
        let watch = self.session.watch();
        let hits = turn.wallets.hits(found, watch, evidence, why);
        turn.actions.push(Action::Found(self.serving, hits));
        // A script that several wallets watch has a label in each of them. The session knows one
        // label and has advanced the keychain of this label. The keychains of the other labels are
        // advanced here.
        let mut is_ahead = false;
        for received in &found.relevance.received {
            let Some(script) = watch.script(received.script) else { continue };
            let labels: Vec<_> = turn.wallets.labels(&script.script).collect();
            for label in labels.into_iter().filter(|label| Some(*label) != received.label) {
                is_ahead |= turn.wallets.advance(label);
            }
        }
        // Blocks above may have been answered without these coins. The node's filter has them from
        // this block on, so that the blocks of the present pass are not concerned.
        if let Some(place) = found.place {
            for received in &found.relevance.received {
                let outpoint = OutPoint { txid: found.txid, vout: received.vout };
                let Some(script) = watch.script(received.script) else { continue };
                if self.coins.insert(outpoint) {
                    let from = place.block.height.saturating_add(1);
                    self.searched.add(script.script.clone(), from);
                }
            }
        }
        // Without further scripts, the session has nothing new to watch.
        is_ahead.then(|| session::Event::Watch(self.take_new(turn)))
    }

    /// Disconnects the serving peer, which failed to answer for a block, and requests this block
    /// and all other unanswered blocks again.
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
        self.searched.forget(&(height..=height));
        self.requested = self.requested.min(height);
        // The session then drops its pending requests from this height on.
        Some(session::Event::Reorganized(height))
    }

    /// Disconnects the serving peer, so that another peer takes over.
    fn fail(&mut self, reason: Reason, turn: &mut Turn<'_>) {
        if let Some(id) = self.serving {
            turn.actions.push(Action::Disconnect(id, reason));
        }
    }
}

/// Returns `true` if the limit of stored unconfirmed transactions is reached.
fn is_full(kept: Unconfirmed) -> bool {
    kept.count >= MAX_UNCONFIRMED || kept.bytes >= MAX_UNCONFIRMED_BYTES
}

/// Converts known coins to the form that a session accepts.
fn given(coins: Vec<(OutPoint, ScriptBuf)>) -> impl Iterator<Item = WatchItem> {
    let coin = |(outpoint, script)| WatchItem::OutPoint { outpoint, script: Some(script) };
    coins.into_iter().map(coin)
}
