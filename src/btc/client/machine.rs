//! [`LightClient`]: one state machine composed of header sync, a follower (BIP157 or BIP37), the
//! wallets and the stored files. The client forwards events to these parts and maps their actions.

use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use bitcoin::{BlockHash, FeeRate, OutPoint, ScriptBuf, Transaction};

use super::blocks_asked::BlocksAsked;
use super::bloom::BloomFollower;
use super::broadcast::{self, BroadcastNews, Broadcasts};
use super::filter_cache::{self, FilterCache};
use super::filters::FilterFollower;
use super::follower::{self, Searched, Turn, blocks_that_left};
use super::header_sync::{self, HeaderSync, StaleTip};
use super::hits::{Hits, Novelty};
use super::journal::ItemRecord;
use super::outbox::{Outbox, Subject};
use super::state::{Saved, SavedBloom, SavedItems};
use super::wallets::{Birthday, Item, KnownItem, Wallet, Wallets};
use super::{
    Action, Config, Event, File, Finding, Graded, Hit, News, PeerInfo, Progress, Protocol, Reason,
    UpdateId, WalletId, WatchId, Write, WriteId,
};
use crate::btc::bip157;
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::PeerId;
use crate::btc::protocol::{MAX_INV_SIZE, PROTOCOL_VERSION};
use crate::steady_clock::SteadyClock;

/// Shortest interval between two writes of the scan state while the scan advances. An estimate: a
/// crash loses about this much of the scan and never a hit. A shorter interval costs more disk
/// writes, since each write contains the whole state: with BIP157 about 33 bytes per height.
const SAVE_EVERY: Duration = Duration::from_secs(15);
/// Shortest interval between two writes of the records of new items. A shorter interval costs a sync
/// of the disk for each address that a program adds.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// Shortest interval between two reports of progress, and between two reports that the client has
/// caught up if only items were added meanwhile.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The follower: the part that scans the blocks of the chain for the wallets.
#[derive(Debug)]
pub(super) enum Follower {
    Filters(Box<FilterFollower>),
    Bloom(Box<BloomFollower>),
}

impl Follower {
    fn handle(&mut self, event: follower::Event<'_>, turn: &mut Turn<'_>) {
        match self {
            Self::Filters(filters) => filters.handle(event, turn),
            Self::Bloom(bloom) => bloom.handle(event, turn),
        }
    }

    fn settled_to(&self) -> Option<u32> {
        match self {
            Self::Filters(filters) => filters.settled_to(),
            Self::Bloom(bloom) => bloom.settled_to(),
        }
    }

    fn is_caught_up(&self, chain: &HeaderChain, now: Duration) -> bool {
        match self {
            Self::Filters(filters) => filters.is_caught_up(chain, now),
            Self::Bloom(bloom) => bloom.is_caught_up(chain),
        }
    }

    fn progress(&self) -> u64 {
        match self {
            Self::Filters(filters) => filters.progress,
            Self::Bloom(bloom) => bloom.progress,
        }
    }

    pub(super) fn first(&self) -> u32 {
        match self {
            Self::Filters(filters) => filters.sync.first(),
            Self::Bloom(bloom) => bloom.first,
        }
    }

    pub(super) fn searched(&self) -> &Searched {
        match self {
            Self::Filters(filters) => &filters.searched,
            Self::Bloom(bloom) => &bloom.searched,
        }
    }

    /// Returns the lowest height that was answered or reopened in this run.
    pub(super) fn answered_from(&self) -> u32 {
        match self {
            Self::Filters(filters) => filters.answered_from,
            Self::Bloom(bloom) => bloom.answered_from,
        }
    }
}

/// Stage of the start, from the creation of the client to the creation of its follower.
#[derive(Debug)]
pub(super) enum Start {
    /// The header chain is not caught up yet. Contains the stored state.
    Headers(Option<Saved>),
    /// Waiting for the write that makes the tweak of the BIP37 filter durable.
    Tweak(WriteId),
    Done,
}

/// A light client as a state machine. The [module](super) describes how to drive it.
#[derive(Debug)]
pub struct LightClient {
    pub(super) config: Config,
    pub(super) headers: HeaderSync,
    pub(super) start: Start,
    pub(super) follower: Option<Follower>,
    pub(super) peers: BTreeMap<PeerId, PeerInfo>,
    pub(super) wallets: Wallets,
    pub(super) hits: Hits,
    /// Encoded journal records that no [`Action::Write`] contains yet.
    pub(super) journal: Vec<u8>,
    pub(super) outbox: Outbox,
    pub(super) cache: FilterCache,
    pub(super) blocks: BlocksAsked,
    pub(super) broadcasts: Broadcasts,
    pub(super) bloom: SavedBloom,
    /// Number of blocks that entered or left the chain.
    pub(super) steps: u64,
    pub(super) caught_up: bool,
    /// Number of changes of the watched wallets, and of rescans, so far.
    pub(super) changes: u64,
    /// The last call that added items, and the last call whose records are written.
    pub(super) watched: WatchId,
    pub(super) recorded: WatchId,
    /// Time at which records of items were last written.
    pub(super) recorded_at: Duration,
    /// The data about items in the stored state of an earlier run; `None` without such a state.
    pub(super) known: Option<SavedItems>,
    /// Value of `steps()` and time at the last write of the state.
    pub(super) saved: (u64, Duration),
    /// Value of `steps()` and time at the last report of progress.
    pub(super) reported: (u64, Duration),
    /// Values of `steps()`, `changes` and `watched` at the last [`News::CaughtUp`], and its time.
    pub(super) told: Option<((u64, u64, WatchId), Duration)>,
    /// `true` while [`Finding::ClockBehind`] applies, so that it is reported once and not with
    /// every event.
    pub(super) clock_reported: bool,
    pub(super) stale_tip: StaleTip,
    pub(super) clock: SteadyClock,
    pub(super) actions: Vec<Action>,
}

impl LightClient {
    /// Returns the chain of headers.
    pub fn chain(&self) -> &HeaderChain {
        self.headers.chain()
    }

    /// Returns the configuration of the client.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the first height that the client scans; `None` until the headers are caught up.
    pub fn first(&self) -> Option<u32> {
        self.follower.as_ref().map(Follower::first)
    }

    /// Returns the height up to which every height from [`first`](Self::first) on is settled.
    ///
    /// A height is settled if a valid filter excludes everything watched, or if its block was
    /// scanned and its hits were found. `None` if the first height is not settled.
    pub fn settled_to(&self) -> Option<u32> {
        self.follower.as_ref()?.settled_to()
    }

    /// Returns `true` if the client has processed all blocks that the connected peers have.
    ///
    /// Each new connection has some time to answer, and the client is not caught up meanwhile. So if
    /// a peer keeps ending its connections, the caller should pause longer and longer before it
    /// connects to that peer again.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Returns the grades of the heights from the first height on, one entry per range of heights
    /// with equal grade.
    ///
    /// # Cost
    /// The cost is linear in the number of heights.
    pub fn grades(&self) -> Vec<Graded> {
        match &self.follower {
            None => Vec::new(),
            Some(Follower::Filters(filters)) => {
                let sync = &filters.sync;
                let mut runs: Vec<Graded> = Vec::new();
                for height in sync.first()..=filters.end(self.chain()) {
                    let Some(grade) = sync.grade(height) else { continue };
                    match runs.last_mut() {
                        Some(run) if run.grade == grade && run.to + 1 == height => run.to = height,
                        _ => runs.push(Graded { from: height, to: height, grade }),
                    }
                }
                runs
            }
            Some(Follower::Bloom(bloom)) => {
                let grade = crate::btc::peer::Grade::OnePeer;
                let to = bloom.settled_to().into_iter();
                to.map(|to| Graded { from: bloom.first, to, grade }).collect()
            }
        }
    }

    /// Returns the hits of a wallet: the unconfirmed hits first, then the confirmed hits grouped by
    /// block. The blocks are not ordered by height. Withdrawn hits are not included. For an unknown
    /// wallet, returns no hits.
    pub fn hits(&self, wallet: &WalletId) -> impl Iterator<Item = &Hit> {
        self.hits.of(wallet)
    }

    /// Returns the current progress of the client.
    pub fn progress(&self) -> Progress {
        let tip = self.chain().tip();
        let end = self.config.last.unwrap_or(u32::MAX).min(tip.height);
        let (settled_to, watched) = (self.settled_to(), self.watched);
        Progress { tip, work: self.chain().work(), end, settled_to, watched }
    }

    /// Returns the number of updates that wait for writes to become durable. While the number is
    /// large, pass in no more messages: with a slow storage, this queue would grow without a limit.
    pub fn waiting_updates(&self) -> usize {
        self.outbox.waiting.len()
    }

    /// Returns a number that increases whenever the client makes progress.
    pub fn steps(&self) -> u64 {
        self.steps + self.follower.as_ref().map_or(0, Follower::progress)
    }

    /// Returns the services that the protocol needs. A peer that lacks one of these services is
    /// used only for headers.
    pub fn services(&self) -> ServiceFlags {
        services(self.config.protocol)
    }

    /// Returns the number of the newest update. All updates up to this number are delivered once
    /// the writes so far are durable, whatever other events follow.
    pub fn last_update(&self) -> UpdateId {
        self.outbox.last()
    }

    /// Returns `true` if at least one connected peer offers the [`services`](Self::services).
    pub fn is_served(&self) -> bool {
        self.peers.values().any(|peer| peer.services.has(self.services()))
    }

    /// Returns a connected peer that does not offer the [`services`](Self::services), if there is
    /// one.
    pub fn unneeded_peer(&self) -> Option<PeerId> {
        let lacks = |peer: &&PeerInfo| !peer.services.has(self.services());
        let mut peers = self.peers.iter();
        peers.find(|(_, peer)| lacks(peer)).map(|(id, _)| *id)
    }

    /// Returns `true` once the headers were caught up for the first time and, unless the protocol
    /// is [`Protocol::HeadersOnly`], the scan of blocks has started.
    pub fn has_started(&self) -> bool {
        matches!(self.start, Start::Done)
    }

    /// Returns `true` if no new block has arrived for three block times, at least half an hour. The
    /// peers may withhold blocks, so the caller should connect to one more peer.
    pub fn is_tip_stale(&self) -> bool {
        self.stale_tip.is_stale
    }

    /// Takes an event and returns the actions to carry out, in order.
    ///
    /// `now` is the [current time](crate#time).
    ///
    /// # Cost
    /// There are three expensive kinds of events. A message with a block: its transactions are
    /// hashed and compared with everything watched. A message with a compact filter: the filter is
    /// matched against all scripts. [`Event::Watch`]: it derives the scripts of descriptors.
    #[must_use]
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        if let Event::Paused(time) = event {
            self.clock.pause(time);
        }
        let now = self.clock.read(now);
        match event {
            Event::Connected(id, info) => self.connected(id, info, now),
            Event::Disconnected(id) => self.forget_peer(id, now),
            Event::Message(id, message) => self.message(id, message, now),
            // Ids with a zero byte at the start are internal, and long ids would make the journal
            // large.
            Event::Watch(number, id, _) if !id.is_valid() => {
                self.watched = number.max(self.watched);
                let finding = Finding::WalletRefused(id);
                self.outbox.push(None, false, News::Finding(finding));
            }
            Event::Watch(number, id, wallet) => {
                self.watched = number.max(self.watched);
                self.watch(&id, *wallet, now);
            }
            // The caller must not remove the internal wallet of a broadcast.
            Event::Forget(id) if id.is_internal() => {}
            Event::Forget(id) => self.forget_wallet(&id, now),
            Event::Rescan(from) => {
                self.changes += 1;
                // No wallet needs a scan of the heights below the first height.
                let first = self.follower.as_ref().map_or(0, Follower::first);
                self.follow(follower::Event::Rescan(from.max(first)), now);
            }
            Event::Stored(id) => self.stored(id, now),
            Event::Acknowledged(id) => {
                self.acknowledged(id);
                // Write the acknowledgement at once: while a reader is slow, there may be no tick
                // for a long time.
                self.flush_journal();
            }
            Event::Contents(File::Filters(file), bytes) => {
                self.contents(file, bytes.as_deref(), now);
            }
            // The client reads no other files than filter files after the start.
            Event::Contents(..) => {}
            Event::Broadcast(tx, fee_rate) => self.broadcast(*tx, fee_rate, now),
            Event::GetBlock(hash) => {
                let actions = self.blocks.ask(hash, self.headers.chain(), now);
                self.actions.extend(actions);
            }
            Event::Save => self.save(now),
            Event::Paused(time) => self.feed_headers(header_sync::Event::Paused(time), now),
            Event::Tick => {
                self.feed_headers(header_sync::Event::Tick, now);
                self.follow(follower::Event::Tick, now);
                self.flush_journal();
                if let Some(passed) = self.stale_tip.check(now) {
                    let finding = Finding::StaleTip { seconds: passed.as_secs() };
                    self.outbox.push(None, false, News::Finding(finding));
                }
            }
        }
        if now.saturating_sub(self.recorded_at) >= RECORD_EVERY {
            self.record_items(now);
        }
        self.start(now);
        self.serve(now);
        self.look_for_end(now);
        let updates = self.outbox.take_ready();
        self.actions.extend(updates.into_iter().map(Action::Update));
        core::mem::take(&mut self.actions)
    }

    /// Adds a peer, and reports the needed services that the peer lacks.
    fn connected(&mut self, id: PeerId, info: PeerInfo, now: Duration) {
        let needed = self.services();
        if !info.services.has(needed) {
            let missing = ServiceFlags::from(needed.to_u64() & !info.services.to_u64());
            let finding = Finding::LacksService { peer: info.name.clone(), services: missing };
            self.outbox.push(None, false, News::Finding(finding));
        }
        // BIP130: the peer then announces blocks by `headers` and not by `inv`.
        self.actions.push(Action::Send(id, NetworkMessage::SendHeaders));
        let height = info.start_height;
        self.peers.insert(id, info);
        self.feed_headers(header_sync::Event::Connected(id, height), now);
        self.introduce(id, now);
    }

    /// Reports a peer to the follower if the peer offers the needed services.
    pub(super) fn introduce(&mut self, id: PeerId, now: Duration) {
        let needed = self.services();
        let Some(info) = self.peers.get(&id).filter(|info| info.services.has(needed)) else {
            return;
        };
        let height = info.start_height;
        self.follow(follower::Event::Connected(id, height), now);
    }

    /// Removes a peer from all parts of the client.
    fn forget_peer(&mut self, id: PeerId, now: Duration) {
        // The client has already disconnected this peer, or the peer never connected.
        if self.peers.remove(&id).is_none() {
            return;
        }
        self.broadcasts.disconnected(id);
        self.feed_headers(header_sync::Event::Disconnected(id), now);
        self.follow(follower::Event::Disconnected(id), now);
    }

    /// Disconnects a peer. Does nothing if the peer is disconnected already.
    fn disconnect(&mut self, id: PeerId, reason: Reason, now: Duration) {
        // Several parts may find a fault of the same peer. The caller gets one `Disconnect`.
        if self.peers.contains_key(&id) {
            if let Reason::Filters(bip157::Reason::FalseFilter(filter)) = &reason {
                let finding = Finding::FalseFilter { peer: self.name(id), filter: filter.clone() };
                self.outbox.push(None, false, News::Finding(finding));
            }
            self.actions.push(Action::Disconnect(id, reason));
            self.forget_peer(id, now);
        }
    }

    /// Passes a message of a peer to every part that may use it.
    fn message(&mut self, id: PeerId, message: NetworkMessage, now: Duration) {
        // A message that arrived before the caller closed the connection.
        if !self.peers.contains_key(&id) {
            return;
        }
        match &message {
            NetworkMessage::Headers(headers) => {
                self.feed_headers(header_sync::Event::Headers(id, headers), now);
            }
            // Bitcoin Core treats a larger message as misbehaviour too (`MAX_INV_SZ`).
            NetworkMessage::Inv(items)
            | NetworkMessage::GetData(items)
            | NetworkMessage::NotFound(items)
                if items.len() > MAX_INV_SIZE =>
            {
                return self.disconnect(id, Reason::Inventory(items.len()), now);
            }
            NetworkMessage::Inv(items) => {
                for hash in announced(items, self.chain()) {
                    self.feed_headers(header_sync::Event::Announced(id, hash), now);
                }
            }
            NetworkMessage::Block(block) => {
                match self.blocks.take(id, block, self.config.network, now) {
                    Some(Action::Disconnect(id, reason)) => {
                        return self.disconnect(id, reason, now);
                    }
                    action => self.actions.extend(action),
                }
            }
            NetworkMessage::NotFound(items) => {
                for item in items {
                    if let Inventory::Block(hash) | Inventory::WitnessBlock(hash) = item {
                        self.blocks.missing(id, hash, now);
                    }
                }
            }
            _ => {}
        }
        let steps = self.broadcasts.take(id, &message);
        self.take_steps(steps);
        // The header sync may have disconnected the peer because of this message.
        if self.peers.contains_key(&id) {
            self.follow(follower::Event::Message(id, message), now);
        }
    }

    /// Passes an event to the header sync and carries out its actions.
    fn feed_headers(&mut self, event: header_sync::Event<'_>, now: Duration) {
        // Headers are compared with the caller's clock, since the consensus rules limit how far a
        // timestamp may be ahead of the clock.
        for action in self.headers.handle(event, self.clock.unix()) {
            match action {
                header_sync::Action::Ask(id, locator_hashes) => {
                    // A stop hash of zeros asks for as many headers as one message may contain.
                    let (version, stop_hash) = (PROTOCOL_VERSION, BlockHash::all_zeros());
                    let message = GetHeadersMessage { version, locator_hashes, stop_hash };
                    self.actions.push(Action::Send(id, NetworkMessage::GetHeaders(message)));
                }
                header_sync::Action::Disconnect(id, reason) => {
                    self.disconnect(id, reason, now);
                }
                header_sync::Action::Changed(events) => self.chain_changed(&events, now),
                header_sync::Action::Shown(id, hash) => self.shown(id, hash, now),
                header_sync::Action::NotReady(id) => {
                    let (peer, info) = (self.name(id), self.peers.get(&id));
                    let height = info.map_or(0, |info| info.start_height);
                    let finding = Finding::NotReady { peer, height };
                    self.outbox.push(None, false, News::Finding(finding));
                }
            }
        }
        let is_behind = self.headers.is_clock_behind();
        // The finding is reported once each time the condition begins, and not with every event.
        if is_behind && !self.clock_reported {
            self.outbox.push(None, false, News::Finding(Finding::ClockBehind));
        }
        self.clock_reported = is_behind;
    }

    /// Tells the follower that a peer has a block. A block outside the best chain does not show
    /// that the peer has the blocks that the follower asks for.
    pub(super) fn shown(&mut self, id: PeerId, hash: BlockHash, now: Duration) {
        if self.chain().height_of(&hash).is_some() {
            self.follow(follower::Event::Shows(id, hash), now);
        }
    }

    /// Stores a change of the chain first, then forwards it to the follower.
    fn chain_changed(&mut self, events: &[ChainEvent], now: Duration) {
        self.steps += events.len() as u64;
        if events.iter().any(|event| matches!(event, ChainEvent::Connected { .. })) {
            self.stale_tip.extended(now);
        }
        let chain = self.headers.chain();
        let heights = events.iter().map(|event| match event {
            ChainEvent::Connected { at, .. } | ChainEvent::Disconnected { at } => at.height,
        });
        // The file contains the best chain only: everything from the lowest changed height is
        // rewritten.
        if let Some(lowest) = heights.min() {
            let (at, bytes) = (chain.record_offset(lowest), chain.encode_from(lowest));
            self.write(Write::Append { file: File::Headers, at, bytes });
        }
        let gone = blocks_that_left(events);
        let is_reorganized = !gone.is_empty();
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.roll_back(lowest.saturating_sub(1), gone);
        }
        self.follow(follower::Event::Chain(events), now);
        self.withdraw_unconfirmed(&[]);
        // A birthday given as a time may be at a lower height on the new branch.
        if is_reorganized && self.follower.is_some() {
            self.wallets.watch_times_again(self.headers.chain());
            self.follow(follower::Event::Watch(Vec::new()), now);
        }
        // A block that a peer showed on a side branch may be in the best chain now.
        let shown: Vec<_> = self.headers.shown().collect();
        for (id, hash) in shown {
            self.shown(id, hash, now);
        }
    }

    /// Withdraws the hits in the blocks above `height`, because these blocks have left the chain.
    pub(super) fn roll_back(&mut self, height: u32, disconnected: Vec<BlockAt>) {
        let mut withdrawn = self.hits.roll_back(height, &mut self.journal);
        self.flush_journal();
        withdrawn.retain(|(key, _)| self.wallets.contains(&key.wallet));
        // Before the follower starts, no update has reported a block. A reorganisation is then
        // reported only if it withdraws hits of an earlier run, and the update lists no blocks.
        let disconnected = if self.follower.is_some() { disconnected } else { Vec::new() };
        if self.follower.is_some() || !withdrawn.is_empty() {
            self.push_reorganized(None, height, disconnected, withdrawn.len());
        }
        for (key, hit) in withdrawn {
            self.outbox.push(Some(key.wallet), false, News::Withdrawn(Box::new(hit)));
        }
        for txid in self.broadcasts.roll_back(height) {
            self.outbox.push(None, false, News::Broadcast { txid, news: BroadcastNews::Unmined });
        }
    }

    /// Queues the update of a reorganisation whose last common block is at `height`. If `again`
    /// names a wallet, the update repeats an earlier update for that wallet only.
    fn push_reorganized(
        &mut self,
        again: Option<&WalletId>,
        height: u32,
        disconnected: Vec<BlockAt>,
        withdrawn: usize,
    ) {
        let chain = self.headers.chain();
        let hash = chain.hash_at(height);
        // After a loss of the header file, the chain may be shorter or begin above this height.
        let fork = hash.map_or_else(|| chain.tip(), |hash| BlockAt { height, hash });
        let news = News::Reorganized { fork, disconnected, withdrawn };
        self.outbox.push(again.cloned(), again.is_some(), news);
    }

    /// Passes an event to the follower and carries out its actions. Does nothing before the
    /// follower exists.
    pub(super) fn follow(&mut self, event: follower::Event<'_>, now: Duration) {
        let Some(follower) = &mut self.follower else { return };
        let mut turn = Turn {
            chain: self.headers.chain(),
            wallets: &mut self.wallets,
            cache: &self.cache,
            hits: &self.hits,
            now,
            actions: Vec::new(),
        };
        follower.handle(event, &mut turn);
        let actions = turn.actions;
        self.take_actions(actions, now);
        // A keychain has derived a script that the wallet already watched through another item.
        // Earlier hits of this script show that its index is used, so the keychain must look
        // further ahead.
        for id in core::mem::take(&mut self.wallets.relabelled) {
            self.advance_by_hits(&id);
            self.follow(follower::Event::Watch(Vec::new()), now);
        }
    }

    /// Carries out the actions of the follower.
    fn take_actions(&mut self, actions: Vec<follower::Action>, now: Duration) {
        for action in actions {
            match action {
                follower::Action::Send(id, message) => {
                    // An earlier action of the same list may have disconnected the peer.
                    if self.peers.contains_key(&id) {
                        self.actions.push(Action::Send(id, message));
                    }
                }
                follower::Action::Disconnect(id, reason) => self.disconnect(id, reason, now),
                follower::Action::Found(from, hits) => self.found(from, hits),
                follower::Action::Graded(graded) => {
                    self.outbox.push(None, false, News::Graded(graded));
                }
                follower::Action::Reopened(from, to) => {
                    self.outbox.push(None, false, News::Reopened { from, to });
                }
                follower::Action::Report(finding) => {
                    self.outbox.push(None, false, News::Finding(finding));
                }
                follower::Action::Disputed(at, claims) => {
                    let names =
                        |peers: Vec<PeerId>| peers.iter().map(|id| self.name(*id)).collect();
                    let claims = claims.into_iter().map(|(hash, peers)| (hash, names(peers)));
                    let finding = Finding::Disputed { at, claims: claims.collect() };
                    self.outbox.push(None, false, News::Finding(finding));
                }
                follower::Action::Keep(at, content) => {
                    for write in self.cache.keep(at, &content) {
                        self.write(write);
                    }
                }
                follower::Action::Read(file) => {
                    self.actions.push(Action::Read(File::Filters(file)));
                }
            }
        }
    }

    /// Returns the printable name of a peer, or its number once the peer has disconnected.
    fn name(&self, id: PeerId) -> String {
        self.peers.get(&id).map_or_else(|| id.0.to_string(), |info| info.name.clone())
    }

    /// Writes found transactions to the journal first, then queues the updates for their readers.
    fn found(&mut self, from: Option<PeerId>, hits: Vec<(WalletId, Hit)>) {
        let peer = from.and_then(|id| self.peers.get(&id)).map(|info| info.name.clone());
        let mut news = Vec::new();
        let mut confirmed = Vec::new();
        for (wallet, mut hit) in hits {
            hit.peer.clone_from(&peer);
            let chain = self.headers.chain();
            hit.header = hit.place.and_then(|place| chain.header_at(place.block.height)).copied();
            // Internal wallets watch broadcast transactions. An internal wallet has neither a
            // reader nor stored hits.
            if wallet.is_internal() {
                let Some(at) = hit.place.map(|place| place.block) else { continue };
                // Another transaction may pay to the same script. Only the broadcast transaction is
                // reported as mined.
                if self.broadcasts.set_mined(&hit.txid, at) {
                    let what = BroadcastNews::Mined(at);
                    news.push((None, false, News::Broadcast { txid: hit.txid, news: what }));
                }
                continue;
            }
            let tip = self.chain().tip().height;
            if hit.place.is_some() {
                confirmed.push(hit.transaction.clone());
            }
            let again = match self.hits.add(&wallet, &mut hit, tip, &mut self.journal) {
                Novelty::New => self.hits.may_be_repeated(&hit),
                Novelty::More => true,
                Novelty::Known => continue,
            };
            news.push((Some(wallet), again, News::Hit(Box::new(hit))));
        }
        self.flush_journal();
        // Updates for wallets come first: a wallet then knows the transaction before
        // [`BroadcastNews::Mined`] reports its block.
        news.sort_by_key(|(wallet, ..)| wallet.is_none());
        for (wallet, again, news) in news {
            self.outbox.push(wallet, again, news);
        }
        self.withdraw_unconfirmed(&confirmed);
    }

    /// Withdraws old unconfirmed hits, and unconfirmed hits that conflict with confirmed
    /// transactions.
    fn withdraw_unconfirmed(&mut self, confirmed: &[Transaction]) {
        let tip = self.chain().tip().height;
        let withdrawn = self.hits.withdraw_unconfirmed(confirmed, tip, &mut self.journal);
        if !withdrawn.is_empty() {
            self.flush_journal();
        }
        for (key, hit) in withdrawn {
            if self.wallets.contains(&key.wallet) {
                let news = News::Withdrawn(Box::new(hit));
                self.outbox.push(Some(key.wallet), false, news);
            }
        }
    }

    /// Adds a wallet, or adds items to a wallet. Redelivers the wallet's unacknowledged updates of
    /// earlier runs. Starts a search for the new items.
    fn watch(&mut self, id: &WalletId, wallet: Wallet, now: Duration) {
        let is_known = self.wallets.contains(id);
        // What an earlier search has left does not count as a change of this call's items.
        self.wallets.further.clear();
        let (hits, stored) = (&self.hits, self.known.as_ref());
        // Blocks above a coin that was found after the state was stored may spend it. At the start,
        // the follower gets these coins itself.
        let late = stored.filter(|_| self.follower.is_some());
        let late = late.and_then(|stored| hits.late_from(id, stored.journal_events));
        let known = |key: &[u8; 32]| {
            let known = stored?.known(hits, id, key)?;
            Some(KnownItem { todo: known.todo.into_iter().chain(late).min(), ..known })
        };
        let added = match self.wallets.add(id, wallet, self.headers.chain(), known) {
            Ok(added) => added,
            Err(error) => {
                let finding = Finding::ItemRefused { wallet: id.clone(), error };
                return self.outbox.push(None, false, News::Finding(finding));
            }
        };
        // A wallet that is already watched has received its unacknowledged updates in this run.
        if !is_known {
            let wallets = &self.wallets;
            self.hits.relabel(id, |script, outpoint| wallets.owner_in(id, script, outpoint));
            let (mut withdrawn, hits) = self.hits.open(id);
            let heights = withdrawn.iter().filter_map(|hit| Some(hit.place?.block.height));
            if let Some(lowest) = heights.clone().min() {
                let (fork, count) = (lowest.saturating_sub(1), heights.count());
                self.push_reorganized(Some(id), fork, Vec::new(), count);
            }
            // The withdrawals that the reorganisation announces follow it directly.
            withdrawn.sort_by_key(|hit| hit.place.is_none());
            for hit in withdrawn {
                self.outbox.push(Some(id.clone()), true, News::Withdrawn(Box::new(hit)));
            }
            for hit in hits {
                self.outbox.push(Some(id.clone()), true, News::Hit(Box::new(hit)));
            }
        }
        self.changes += u64::from(added.is_new);
        if added.has_derived {
            // Earlier hits of the wallet show which indices are used.
            self.advance_by_hits(id);
        }
        if self.follower.is_some() {
            self.wallets.resolve(self.headers.chain());
        }
        for (wallet, item) in core::mem::take(&mut self.wallets.further) {
            let finding = Finding::FurtherIndices { wallet, item };
            self.outbox.push(None, false, News::Finding(finding));
        }
        if self.follower.is_some() && added.is_new {
            // The follower must know the coins of the wallet before it scans a block for the
            // wallet: a spend is recognised only if its coin is known.
            let coins = if is_known { Vec::new() } else { self.coins(id) };
            self.follow(follower::Event::Watch(coins), now);
        }
    }

    /// Writes the records of new items, unless their birthdays are not resolved yet.
    pub(super) fn record_items(&mut self, now: Duration) {
        let is_told = self.recorded == self.watched;
        if !self.has_started() || is_told && self.wallets.unrecorded.is_empty() {
            return;
        }
        for (id, item) in self.wallets.take_unrecorded(self.headers.chain()) {
            let (from, first_index) = (item.from, item.indices.0);
            let record = ItemRecord { key: item.key, from, first_index };
            self.hits.add_item(&id, record, &mut self.journal);
        }
        self.flush_journal();
        (self.recorded, self.recorded_at) = (self.watched, now);
        if !is_told {
            self.outbox.push(None, false, News::Watched(self.watched));
        }
    }

    /// Returns the coins that the hits of a wallet paid to the wallet, spent ones included.
    pub(super) fn coins(&self, id: &WalletId) -> Vec<(OutPoint, ScriptBuf)> {
        let received = self.hits.of(id).flat_map(|hit| {
            hit.received.iter().map(|received| {
                let outpoint = OutPoint { txid: hit.txid, vout: received.vout };
                Some((outpoint, received.owner.script.clone()?))
            })
        });
        received.flatten().collect()
    }

    /// Advances the keychains of a wallet past all indices that its hits use.
    fn advance_by_hits(&mut self, id: &WalletId) {
        // Repeat until nothing changes: a newly derived script may occur in a stored hit, and so
        // show that a further index is used.
        loop {
            let received = self.hits.of(id).flat_map(|hit| &hit.received);
            let scripts = received.filter_map(|it| it.owner.script.as_ref());
            let used: Vec<_> = scripts.flat_map(|script| self.wallets.labels(script)).collect();
            let mut advanced = false;
            for label in used {
                advanced |= self.wallets.advance(label);
            }
            if !advanced {
                return;
            }
        }
    }

    /// Removes a wallet with its hits and its pending updates.
    fn forget_wallet(&mut self, id: &WalletId, now: Duration) {
        self.changes += 1;
        self.wallets.remove(id);
        self.outbox.forget(id);
        // An internal wallet has no stored hits.
        if !id.is_internal() {
            self.hits.forget(id, &mut self.journal);
            self.flush_journal();
        }
        self.follow(follower::Event::Watch(Vec::new()), now);
    }

    /// Returns `true` if the headers are caught up and have the work of the network's chain.
    pub(super) fn has_headers(&self) -> bool {
        // A custom signet has a chain of its own.
        let is_custom = self.config.magic != self.config.network.magic();
        let has_work = is_custom || self.chain().work() >= self.config.minimum_work;
        has_work && self.headers.is_caught_up()
    }

    /// Records that writes are durable. Starts the follower if it waits for the write of its tweak.
    fn stored(&mut self, id: WriteId, now: Duration) {
        self.outbox.stored(id);
        if let Start::Tweak(awaited) = self.start
            && id >= awaited
        {
            self.begin(None, now);
        }
    }

    /// Takes the contents of a filter file, repairs the record of its length and forwards the
    /// filters to the follower.
    fn contents(&mut self, file: u32, bytes: Option<&[u8]>, now: Duration) {
        match bytes {
            Some(bytes) => {
                let (_, whole) = filter_cache::decode(bytes);
                // A crash can leave an incomplete filter at the end of the file. A filter that is
                // appended after the incomplete one would never be found, so the incomplete filter
                // is cut off.
                if whole < bytes.len() {
                    self.cache.cut(file, whole as u64);
                }
            }
            // The storage has lost the file.
            None => self.cache.lose(file),
        }
        self.follow(follower::Event::Contents(file, bytes), now);
    }

    /// Records an acknowledgement in the journal.
    fn acknowledged(&mut self, id: UpdateId) {
        match self.outbox.acknowledged(id) {
            Some(Subject::Hit(key)) => self.hits.acknowledge(&key, &mut self.journal),
            Some(Subject::Withdrawal(key)) => {
                self.hits.acknowledge_withdrawal(&key, &mut self.journal);
            }
            None => {}
        }
    }

    /// Offers a transaction to the peers. An internal wallet watches for the block that contains
    /// the transaction.
    fn broadcast(&mut self, tx: Transaction, fee_rate: Option<FeeRate>, now: Duration) {
        let wallet = WalletId::of_broadcast(&tx.compute_txid());
        if self.config.protocol != Protocol::HeadersOnly && !self.wallets.contains(&wallet) {
            // The block is found by an output script of the transaction: the first script that the
            // protocol can watch. The birthday is the tip, because the last block may already
            // contain the transaction.
            let birthday = Birthday::Height(self.chain().tip().height);
            let mut items = tx.output.iter().map(|it| Item::Script(it.script_pubkey.clone()));
            let watches = items.find_map(|item| {
                let watches = Wallet::new(birthday, std::vec![item]);
                watches.check(self.config.protocol).is_ok().then_some(watches)
            });
            // Without an output that the protocol can watch, the block cannot be found. The
            // transaction is broadcast all the same.
            if let Some(watches) = watches {
                self.watch(&wallet, watches, now);
            }
        }
        // The limit on broadcasts drops the oldest broadcasts. The internal wallet of a dropped
        // broadcast is no longer needed.
        for dropped in self.broadcasts.add(tx, fee_rate, now) {
            self.forget_wallet(&WalletId::of_broadcast(&dropped), now);
        }
    }

    /// Carries out the steps of broadcasts and replaces the ids of peers by their names.
    fn take_steps(&mut self, steps: Vec<broadcast::Step>) {
        for step in steps {
            match step {
                broadcast::Step::Send(id, message) => {
                    self.actions.push(Action::Send(id, message));
                }
                broadcast::Step::News(txid, news) => {
                    let news = match news {
                        broadcast::News::Offered(id) => BroadcastNews::Offered(self.name(id)),
                        broadcast::News::Requested(id) => BroadcastNews::Requested(self.name(id)),
                        broadcast::News::FeeTooLow(id, rate) => {
                            BroadcastNews::FeeTooLow { peer: self.name(id), fee_rate: rate }
                        }
                        broadcast::News::Seen(id) => BroadcastNews::Seen(self.name(id)),
                        broadcast::News::Rejected(id, why) => {
                            BroadcastNews::Rejected { peer: self.name(id), reason: why }
                        }
                    };
                    self.outbox.push(None, false, News::Broadcast { txid, news });
                }
            }
        }
    }

    /// Continues the broadcasts and the block downloads that the caller asked for. Only peers with
    /// `NODE_NETWORK` take part, since they serve every block.
    fn serve(&mut self, now: Duration) {
        let services = self.peers.iter().map(|(id, info)| (*id, info.services));
        let peers: BTreeMap<_, _> =
            services.filter(|(_, services)| services.has(ServiceFlags::NETWORK)).collect();
        let steps = self.broadcasts.next(&peers, now);
        self.take_steps(steps);
        let in_flight = |id| match &self.follower {
            Some(Follower::Filters(filters)) => filters.sync.blocks_in_flight(id),
            _ => 0,
        };
        let peers = peers.into_keys().map(|id| (id, in_flight(id))).collect();
        for action in self.blocks.next(&peers, self.headers.chain(), now) {
            match action {
                Action::Disconnect(id, reason) => self.disconnect(id, reason, now),
                action => self.actions.push(action),
            }
        }
    }

    /// Queues a write and returns its id.
    pub(super) fn write(&mut self, write: Write) -> WriteId {
        let (id, write) = self.outbox.write(write);
        self.actions.push(Action::Write(id, write));
        id
    }

    /// Writes the new journal records in one append.
    pub(super) fn flush_journal(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        let bytes = core::mem::take(&mut self.journal);
        let at = self.hits.length - bytes.len() as u64;
        self.write(Write::Append { file: File::Journal, at, bytes });
    }

    /// Checks whether the client has caught up. Writes the state and reports progress when they are
    /// due.
    fn look_for_end(&mut self, now: Duration) {
        let chain = self.headers.chain();
        let follower_done = match &self.follower {
            Some(follower) => follower.is_caught_up(chain, now),
            // The protocol `HeadersOnly` has no follower to wait for.
            None => self.config.protocol == Protocol::HeadersOnly,
        };
        let caught_up = self.has_headers() && follower_done;
        let is_new = caught_up && !self.caught_up;
        self.caught_up = caught_up;
        let steps = self.steps();
        let key = (steps, self.changes, self.watched);
        // Catching up is reported only after a change. If only items were added, it is reported at
        // intervals.
        let is_told = self.told.is_some_and(|((steps, ..), at)| {
            steps == key.0 && now.saturating_sub(at) < REPORT_EVERY
        });
        if caught_up && (is_new || !is_told) && self.told.is_none_or(|(told, _)| told != key) {
            self.follow(follower::Event::Flush, now);
            self.outbox.push(None, false, News::CaughtUp(self.progress()));
            self.reported = (steps, now);
            self.told = Some((key, now));
        }
        // The state is written at intervals while the scan advances, and when it has caught up. The
        // state is written only after progress, because a hostile peer could otherwise cause many
        // writes of the whole state by announcing blocks that it never delivers.
        let since = now.saturating_sub(self.saved.1);
        let is_due = since >= SAVE_EVERY || caught_up && since >= REPORT_EVERY;
        if is_due && self.saved.0 != steps {
            self.save(now);
        }
        // There is at most one report per interval, and no report without progress.
        if self.reported.0 != steps && now.saturating_sub(self.reported.1) >= REPORT_EVERY {
            self.outbox.push(None, false, News::Progress(self.progress()));
            self.reported = (steps, now);
        }
    }
}

/// Picks at most two blocks of an `inv`: the first unknown block and the highest known block. These
/// two blocks show everything that the `inv` reveals about the chain of the peer. Every further
/// block would cost a pass over the pending requests, and an `inv` may contain 50,000 blocks.
fn announced(items: &[Inventory], chain: &HeaderChain) -> Vec<BlockHash> {
    let hashes = items.iter().filter_map(|item| match item {
        Inventory::Block(hash) | Inventory::WitnessBlock(hash) => Some(*hash),
        _ => None,
    });
    let unknown = hashes.clone().find(|hash| !chain.contains(hash));
    let known = hashes.filter(|hash| chain.contains(hash));
    unknown.into_iter().chain(known.max_by_key(|hash| chain.height_of(hash))).collect()
}

/// Returns the services that a peer must offer for this protocol. A peer needs none of these
/// services to send headers.
fn services(protocol: Protocol) -> ServiceFlags {
    match protocol {
        Protocol::Bip157 => ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS,
        Protocol::Bip37 => ServiceFlags::NETWORK | ServiceFlags::BLOOM,
        Protocol::HeadersOnly => ServiceFlags::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btc::tests::{genesis, mine_headers};

    #[test]
    fn an_inv_says_which_block_is_unknown_and_which_known_one_is_the_highest() {
        let mut chain = HeaderChain::new(bitcoin::Network::Regtest);
        let (all, side) = (mine_headers(&genesis(), 6, 1, 1), mine_headers(&genesis(), 2, 2, 1));
        for headers in [&all[..5], &side] {
            chain.accept(headers, Duration::from_secs(1_700_000_000)).unwrap();
        }
        let inv = |headers: &[bitcoin::block::Header]| -> Vec<_> {
            headers.iter().map(|header| Inventory::WitnessBlock(header.block_hash())).collect()
        };
        let (best, unknown) = (all[4].block_hash(), all[5].block_hash());
        let mut many = inv(&all[..5]).repeat(MAX_INV_SIZE / 5);
        many.rotate_left(2);
        assert_eq!(announced(&many, &chain), [best]);
        many.extend([inv(&side), inv(&all[5..])].concat());
        assert_eq!(announced(&many, &chain), [unknown, best]);
        assert_eq!(announced(&inv(&side[..1]), &chain), [side[0].block_hash()]);
        assert_eq!(announced(&[Inventory::Error], &chain), []);
    }
}
