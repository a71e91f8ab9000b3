//! The client: headers, the follower of the chain, wallets and what is kept of them, as one
//! machine that forwards events to its parts and maps their actions.

use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::string::{String, ToString};
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::hex::DisplayHex as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use bitcoin::p2p::{Magic, ServiceFlags};
use bitcoin::{BlockHash, FeeRate, OutPoint, ScriptBuf, Transaction};
use thiserror::Error;

use super::blocks_asked::BlocksAsked;
use super::bloom::BloomFollower;
use super::broadcast::{self, BroadcastNews, Broadcasts};
use super::filter_cache::{self, FilterCache};
use super::filters::FilterFollower;
use super::follower::{self, Turn, blocks_that_left};
use super::header_sync::{self, HeaderSync};
use super::hits::{Hits, Novelty};
use super::outbox::{Outbox, Subject};
use super::state::{RestoreError, Saved, SavedBloom, SavedWallet};
use super::wallets::{Birthday, Item, Wallet, Wallets};
use super::{
    Action, Config, Event, File, Finding, Graded, Hit, Kept, News, PeerInfo, Progress, Protocol,
    Reason, UpdateId, WalletId, Write, WriteId,
};
use crate::btc::bip37::session::{self, FilterPolicy, Session};
use crate::btc::bip157::{self, FilterSync};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain, HeaderFileError};
use crate::btc::peer::PeerId;
use crate::btc::protocol::{MAX_INV_SIZE, PROTOCOL_VERSION};
use crate::btc::steady_clock::SteadyClock;

/// How often the state is written while it changes. An estimate: a kill costs at most this much of
/// the scan, and never a hit; each write has the whole state, with BIP157 some 33 bytes a height.
const SAVE_EVERY: Duration = Duration::from_secs(15);
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Why a client cannot go on from what its storage kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file of headers is not one.
    #[error("headers: {0}")]
    Headers(HeaderFileError),
    /// Headers of another network.
    #[error("headers of {kept}, not of {wanted}")]
    Network {
        /// The network of the headers.
        kept: bitcoin::Network,
        /// The network of the configuration.
        wanted: bitcoin::Network,
    },
    /// What another signet kept.
    #[error("of the network whose messages begin with {}, not with {wanted}", kept.to_lower_hex_string())]
    Magic {
        /// What began its messages.
        kept: Vec<u8>,
        /// What is configured.
        wanted: Magic,
    },
    /// BIP157: a checkpoint at a height that has none.
    #[error(transparent)]
    Config(#[from] bip157::ConfigError),
}

/// The follower of the chain.
#[derive(Debug)]
enum Follower {
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

    fn is_caught_up(&mut self, chain: &HeaderChain, now: Duration) -> bool {
        match self {
            Self::Filters(filters) => filters.is_caught_up(chain, now),
            Self::Bloom(bloom) => bloom.is_caught_up(chain),
        }
    }

    fn progress(&self) -> u64 {
        match self {
            Self::Filters(filters) => filters.progress(),
            Self::Bloom(bloom) => bloom.progress(),
        }
    }

    fn first(&self) -> u32 {
        match self {
            Self::Filters(filters) => filters.sync().first(),
            Self::Bloom(bloom) => bloom.first(),
        }
    }
}

/// What is under way before the follower is made.
#[derive(Debug)]
enum Start {
    /// Until the headers are there.
    Headers(Option<Saved>),
    /// Until the BIP37 filter's tweak is durable.
    Tweak(WriteId),
    Done,
}

/// A light client. The [module](super) says how to drive it.
#[derive(Debug)]
pub struct Client {
    config: Config,
    headers: HeaderSync,
    start: Start,
    follower: Option<Follower>,
    peers: BTreeMap<PeerId, PeerInfo>,
    wallets: Wallets,
    hits: Hits,
    /// Records of the journal that are not written yet.
    journal: Vec<u8>,
    outbox: Outbox,
    cache: FilterCache,
    blocks: BlocksAsked,
    broadcasts: Broadcasts,
    bloom: SavedBloom,
    /// Headers taken.
    steps: u64,
    caught_up: bool,
    /// How often the caller has changed what is watched.
    changes: u64,
    /// The progress at which, and when, the state was written and progress was reported.
    saved: (u64, Duration),
    reported: (u64, Duration),
    /// The progress and the changes with which everything was last told to be seen.
    told: Option<(u64, u64)>,
    /// That the clock is likely wrong was reported, and is so still.
    clock_reported: bool,
    /// What the caller's clock says, which headers are held against. All else is held against a
    /// clock that never goes back.
    unix: Duration,
    clock: SteadyClock,
    actions: Vec<Action>,
}

impl Client {
    /// A client that goes on from what a storage kept.
    ///
    /// Headers that were not written whole are cut off, and a state that is of no use is dropped:
    /// an update says so. Hits that were not acknowledged come again once their wallet is watched.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(config: Config, kept: &Kept) -> Result<Self, OpenError> {
        // Refused now, and not once the headers are there.
        filter_config(&config, 0)?;
        let mut outbox = Outbox::default();
        let mut actions = Vec::new();
        let chain = open_headers(kept.headers.as_deref(), &config, &mut outbox, &mut actions)?;
        // Headers tell networks apart, with a plainer error, but not one signet from another.
        let magic = config.magic.to_bytes();
        match &kept.network {
            Some(kept) if **kept != magic => {
                return Err(OpenError::Magic { kept: kept.clone(), wanted: config.magic });
            }
            Some(_) => {}
            None => {
                let bytes = magic.to_vec();
                let (id, write) = outbox.write(Write::Replace { file: File::Network, bytes });
                actions.push(Action::Write(id, write));
            }
        }
        let mut hits = Hits::replay(kept.journal.as_deref().unwrap_or_default());
        if hits.is_wasteful() {
            let bytes = hits.rewrite();
            let (id, write) = outbox.write(Write::Replace { file: File::Journal, bytes });
            actions.push(Action::Write(id, write));
        }
        let saved = kept.state.as_deref().and_then(|bytes| {
            let saved = Saved::decode(bytes, config.protocol, config.network);
            saved
                .inspect_err(|error| {
                    outbox.push(None, false, News::Finding(Finding::StartedOver(*error)));
                })
                .ok()
        });
        Ok(Self {
            headers: HeaderSync::new(chain, config.timeout),
            start: Start::Headers(saved),
            follower: None,
            peers: BTreeMap::new(),
            wallets: Wallets::new(config.protocol),
            hits,
            journal: Vec::new(),
            outbox,
            cache: FilterCache::new(config.kept_filters, &kept.filters),
            blocks: BlocksAsked::new(config.timeout),
            broadcasts: Broadcasts::default(),
            bloom: SavedBloom::default(),
            steps: 0,
            caught_up: false,
            changes: 0,
            saved: (0, Duration::ZERO),
            reported: (0, Duration::ZERO),
            told: None,
            clock_reported: false,
            unix: Duration::ZERO,
            clock: SteadyClock::default(),
            actions,
            config,
        })
    }

    /// The chain of headers.
    pub fn chain(&self) -> &HeaderChain {
        self.headers.chain()
    }

    /// What the client was set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The first height that is looked at; `None` before the headers are there.
    pub fn first(&self) -> Option<u32> {
        self.follower.as_ref().map(Follower::first)
    }

    /// The height up to which everything is settled, from [`first`](Self::first) on: each height
    /// has a "no" that counts for everything watched, or its block was scanned and its hits were
    /// found. `None` if the first is not.
    pub fn settled_to(&self) -> Option<u32> {
        self.follower.as_ref()?.settled_to()
    }

    /// Returns `true` if everything that the connected peers have is seen.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// What a "no" is worth, in runs of heights with one grade, from the first height on.
    ///
    /// # Cost
    /// A look at each height.
    pub fn grades(&self) -> Vec<Graded> {
        match &self.follower {
            None => Vec::new(),
            Some(Follower::Filters(filters)) => {
                let sync = filters.sync();
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
                to.map(|to| Graded { from: bloom.first(), to, grade }).collect()
            }
        }
    }

    /// A wallet's hits; those in no block first.
    pub fn hits(&self, wallet: &WalletId) -> impl Iterator<Item = &Hit> {
        self.hits.of(wallet)
    }

    /// How far the client is.
    pub fn progress(&self) -> Progress {
        let tip = self.chain().tip();
        let end = self.config.last.unwrap_or(u32::MAX).min(tip.height);
        Progress { tip, work: self.chain().work(), end, settled_to: self.settled_to() }
    }

    /// How many updates wait until the storage is done. While they are many, hand over no more
    /// messages: the queue is as long as the storage is slow.
    pub fn waiting_updates(&self) -> usize {
        self.outbox.num_waiting()
    }

    /// A number that grows with each step forward.
    pub fn steps(&self) -> u64 {
        self.steps + self.follower.as_ref().map_or(0, Follower::progress)
    }

    /// The services that a peer must offer to be of use beyond headers.
    pub fn services(&self) -> ServiceFlags {
        services(self.config.protocol)
    }

    /// The number of the last update. All up to it are given out once what was written is durable,
    /// whatever else happens.
    pub fn last_update(&self) -> UpdateId {
        self.outbox.last()
    }

    /// Whether a connected peer offers what is needed.
    pub fn is_served(&self) -> bool {
        self.peers.values().any(|peer| peer.services.has(self.services()))
    }

    /// A connected peer that does not offer what is needed.
    pub fn unneeded_peer(&self) -> Option<PeerId> {
        let lacks = |peer: &&PeerInfo| !peer.services.has(self.services());
        let mut peers = self.peers.iter();
        peers.find(|(_, peer)| lacks(peer)).map(|(id, _)| *id)
    }

    /// Whether the headers are there, so that blocks are looked at.
    pub fn has_started(&self) -> bool {
        matches!(self.start, Start::Done)
    }

    /// Takes an event and returns what to do, in order. `now` is the time since the Unix epoch; it
    /// may be set back, and waiting goes on from there.
    ///
    /// # Cost
    /// That of the part that the event goes to.
    #[must_use]
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.unix = now;
        if let Event::Paused(time) = event {
            self.clock.pause(time);
        }
        let now = self.clock.read(now);
        match event {
            Event::Connected(id, info) => self.connected(id, info, now),
            Event::Disconnected(id) => self.forget_peer(id, now),
            Event::Message(id, message) => self.message(id, message, now),
            Event::Watch(id, _) if !id.is_valid() => {
                let finding = Finding::WalletRefused(id);
                self.outbox.push(None, false, News::Finding(finding));
            }
            Event::Watch(id, wallet) => self.watch(&id, *wallet, now),
            Event::Forget(id) if id.is_internal() => {}
            Event::Forget(id) => self.forget_wallet(&id, now),
            Event::Rescan(from) => {
                self.changes += 1;
                let first = self.follower.as_ref().map_or(0, Follower::first);
                self.follow(follower::Event::Rescan(from.max(first)), now);
            }
            Event::Stored(id) => self.stored(id, now),
            Event::Acknowledged(id) => {
                self.acknowledged(id);
                // While a reader is slow there may be no tick for long.
                self.flush_journal();
            }
            Event::Contents(File::Filters(file), bytes) => {
                self.contents(file, bytes.as_deref(), now);
            }
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
            }
        }
        self.start(now);
        self.serve(now);
        self.look_for_end(now);
        let updates = self.outbox.take_ready();
        self.actions.extend(updates.into_iter().map(Action::Update));
        core::mem::take(&mut self.actions)
    }

    fn connected(&mut self, id: PeerId, info: PeerInfo, now: Duration) {
        let needed = self.services();
        if !info.services.has(needed) {
            let missing = ServiceFlags::from(needed.to_u64() & !info.services.to_u64());
            let finding = Finding::LacksService(info.name.clone(), missing);
            self.outbox.push(None, false, News::Finding(finding));
        }
        self.actions.push(Action::Send(id, NetworkMessage::SendHeaders));
        let height = info.start_height;
        self.peers.insert(id, info);
        self.feed_headers(header_sync::Event::Connected(id, height), now);
        self.introduce(id, now);
    }

    /// Tells the follower of a peer that offers what is needed.
    fn introduce(&mut self, id: PeerId, now: Duration) {
        let needed = self.services();
        let Some(info) = self.peers.get(&id).filter(|info| info.services.has(needed)) else {
            return;
        };
        let height = info.start_height;
        self.follow(follower::Event::Connected(id, height), now);
    }

    fn forget_peer(&mut self, id: PeerId, now: Duration) {
        if self.peers.remove(&id).is_none() {
            return;
        }
        self.broadcasts.disconnected(id);
        self.feed_headers(header_sync::Event::Disconnected(id), now);
        self.follow(follower::Event::Disconnected(id), now);
    }

    fn disconnect(&mut self, id: PeerId, reason: Reason, now: Duration) {
        if self.peers.contains_key(&id) {
            self.actions.push(Action::Disconnect(id, reason));
            self.forget_peer(id, now);
        }
    }

    fn message(&mut self, id: PeerId, message: NetworkMessage, now: Duration) {
        if !self.peers.contains_key(&id) {
            return;
        }
        match &message {
            NetworkMessage::Headers(headers) => {
                self.feed_headers(header_sync::Event::Headers(id, headers), now);
            }
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
                match self.blocks.take(id, block, self.config.network) {
                    Some(Action::Disconnect(id, reason)) => {
                        return self.disconnect(id, reason, now);
                    }
                    action => self.actions.extend(action),
                }
            }
            NetworkMessage::NotFound(items) => {
                for item in items {
                    if let Inventory::Block(hash) | Inventory::WitnessBlock(hash) = item {
                        self.blocks.missing(id, hash);
                    }
                }
            }
            _ => {}
        }
        let steps = self.broadcasts.take(id, &message);
        self.take_steps(steps);
        if self.peers.contains_key(&id) {
            self.follow(follower::Event::Message(id, message), now);
        }
    }

    fn feed_headers(&mut self, event: header_sync::Event<'_>, now: Duration) {
        for action in self.headers.handle(event, self.unix) {
            match action {
                header_sync::Action::Ask(id, locator_hashes) => {
                    let (version, stop_hash) = (PROTOCOL_VERSION, BlockHash::all_zeros());
                    let message = GetHeadersMessage { version, locator_hashes, stop_hash };
                    self.actions.push(Action::Send(id, NetworkMessage::GetHeaders(message)));
                }
                header_sync::Action::Disconnect(id, reason) => {
                    self.disconnect(id, Reason::Headers(reason), now);
                }
                header_sync::Action::Changed(events) => self.chain_changed(&events, now),
                header_sync::Action::Shown(id, hash) => self.shown(id, hash, now),
            }
        }
        let is_behind = self.headers.is_clock_behind();
        if is_behind && !self.clock_reported {
            self.outbox.push(None, false, News::Finding(Finding::ClockBehind));
        }
        self.clock_reported = is_behind;
    }

    fn shown(&mut self, id: PeerId, hash: BlockHash, now: Duration) {
        if self.chain().height_of(&hash).is_some() {
            self.follow(follower::Event::Shows(id, hash), now);
        }
    }

    /// The chain has changed: to the storage first, then to the follower.
    fn chain_changed(&mut self, events: &[ChainEvent], now: Duration) {
        self.steps += events.len() as u64;
        let chain = self.headers.chain();
        let heights = events.iter().map(|event| match event {
            ChainEvent::Connected { at, .. } | ChainEvent::Disconnected { at } => at.height,
        });
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
        // A birthday that is a time may be at a lower height on another branch.
        let first = self.first_wanted();
        if is_reorganized && self.follower.as_ref().is_some_and(|it| first < it.first()) {
            self.follow(follower::Event::Rescan(first), now);
        }
        let shown: Vec<_> = self.headers.shown().collect();
        for (id, hash) in shown {
            self.shown(id, hash, now);
        }
    }

    /// The blocks above a height have left the chain, and their hits are withdrawn.
    fn roll_back(&mut self, height: u32, disconnected: Vec<BlockAt>) {
        let mut withdrawn = self.hits.roll_back(height, &mut self.journal);
        self.flush_journal();
        withdrawn.retain(|(key, _)| self.wallets.contains(&key.wallet));
        // Before blocks are looked at, the chain may change as it likes, but for hits.
        let disconnected = if self.follower.is_some() { disconnected } else { Vec::new() };
        if self.follower.is_some() || !withdrawn.is_empty() {
            self.push_reorganized(None, height, disconnected, withdrawn.len());
        }
        for (key, hit) in withdrawn {
            self.outbox.push(Some(key.wallet), false, News::Withdrawn(Box::new(hit)));
        }
        for txid in self.broadcasts.roll_back(height) {
            self.outbox.push(None, false, News::Broadcast(txid, BroadcastNews::Unmined));
        }
    }

    /// The update of a reorganisation down to a height; for one wallet if it is told again.
    fn push_reorganized(
        &mut self,
        again: Option<&WalletId>,
        height: u32,
        disconnected: Vec<BlockAt>,
        withdrawn: usize,
    ) {
        let chain = self.headers.chain();
        let hash = chain.hash_at(height);
        // The chain may be shorter than it was, or begin later.
        let fork = hash.map_or_else(|| chain.tip(), |hash| BlockAt { height, hash });
        let news = News::Reorganized { fork, disconnected, withdrawn };
        self.outbox.push(again.cloned(), again.is_some(), news);
    }

    fn follow(&mut self, event: follower::Event<'_>, now: Duration) {
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
        // A script that was paid before its keychain came to it shows that its index is used.
        for id in self.wallets.take_relabelled() {
            let from = self.advance_by_hits(&id);
            let coins = self.coins(&id);
            self.follow(follower::Event::Watch(from, coins), now);
        }
    }

    fn take_actions(&mut self, actions: Vec<follower::Action>, now: Duration) {
        for action in actions {
            match action {
                follower::Action::Send(id, message) => {
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
                    self.outbox.push(None, false, News::Reopened(from, to));
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

    fn name(&self, id: PeerId) -> String {
        self.peers.get(&id).map_or_else(|| id.0.to_string(), |info| info.name.clone())
    }

    /// Transactions of wallets: to the journal first, then to their readers.
    fn found(&mut self, from: Option<PeerId>, hits: Vec<(WalletId, Hit)>) {
        let peer = from.and_then(|id| self.peers.get(&id)).map(|info| info.name.clone());
        let mut news = Vec::new();
        for (wallet, mut hit) in hits {
            hit.peer.clone_from(&peer);
            if wallet.is_internal() {
                let Some((at, _)) = hit.place else { continue };
                // Another transaction may pay to the same script.
                if self.broadcasts.set_mined(&hit.txid, at) {
                    let what = BroadcastNews::Mined(at);
                    news.push((None, false, News::Broadcast(hit.txid, what)));
                }
                continue;
            }
            let again = match self.hits.add(&wallet, &mut hit, &mut self.journal) {
                Novelty::New => false,
                Novelty::More => true,
                Novelty::Known => continue,
            };
            news.push((Some(wallet), again, News::Hit(Box::new(hit))));
        }
        self.flush_journal();
        // A wallet knows of the transaction before it is told that the broadcast is done.
        news.sort_by_key(|(wallet, ..)| wallet.is_none());
        for (wallet, again, news) in news {
            self.outbox.push(wallet, again, news);
        }
    }

    fn watch(&mut self, id: &WalletId, wallet: Wallet, now: Duration) {
        let is_known = self.wallets.contains(id);
        let any = match self.wallets.add(id, wallet, self.headers.chain()) {
            Ok(any) => any,
            Err(error) => {
                let finding = Finding::ItemRefused(id.clone(), error);
                return self.outbox.push(None, false, News::Finding(finding));
            }
        };
        if !is_known {
            let (withdrawn, hits) = self.hits.open(id);
            let heights = withdrawn.iter().filter_map(|hit| hit.place);
            if let Some(lowest) = heights.map(|(at, _)| at.height).min() {
                let fork = lowest.saturating_sub(1);
                self.push_reorganized(Some(id), fork, Vec::new(), withdrawn.len());
            }
            for hit in withdrawn {
                self.outbox.push(Some(id.clone()), true, News::Withdrawn(Box::new(hit)));
            }
            for hit in hits {
                self.outbox.push(Some(id.clone()), true, News::Hit(Box::new(hit)));
            }
        }
        self.changes += u64::from(any);
        if self.follower.is_some() && any {
            self.advance_by_hits(id);
            let from = self.wallets.first(id, self.headers.chain()).unwrap_or(0);
            // Its coins are known before any block is looked at for it.
            let coins = self.coins(id);
            self.follow(follower::Event::Watch(Some(from), coins), now);
            self.caught_up = false;
        }
    }

    /// The coins that a wallet's hits paid to it.
    fn coins(&self, id: &WalletId) -> Vec<(OutPoint, ScriptBuf)> {
        let received = self.hits.of(id).flat_map(|hit| {
            hit.received.iter().map(|received| {
                let outpoint = OutPoint { txid: hit.txid, vout: received.vout };
                Some((outpoint, received.owner.script.clone()?))
            })
        });
        received.flatten().collect()
    }

    /// Watches the indices that follow from a wallet's hits. Returns the lowest height whose hit
    /// led to indices that were not watched.
    fn advance_by_hits(&mut self, id: &WalletId) -> Option<u32> {
        let mut lowest: Option<u32> = None;
        // Indices lead to scripts, and these to the hits of indices further on.
        loop {
            let mut advanced = false;
            let used: Vec<_> = self
                .hits
                .of(id)
                .flat_map(|hit| {
                    let height = hit.place.map(|(at, _)| at.height);
                    let scripts = hit.received.iter().filter_map(|it| it.owner.script.as_ref());
                    let labels = scripts.flat_map(|script| self.wallets.labels(script));
                    labels.map(move |label| (height, label))
                })
                .collect();
            for (height, label) in used {
                if self.wallets.advance(label) {
                    advanced = true;
                    lowest = height.into_iter().chain(lowest).min();
                }
            }
            if !advanced {
                return lowest;
            }
        }
    }

    fn forget_wallet(&mut self, id: &WalletId, now: Duration) {
        self.changes += 1;
        self.wallets.remove(id);
        self.outbox.forget(id);
        // Of an internal wallet there are none.
        if !id.is_internal() {
            self.hits.forget(id, &mut self.journal);
            self.flush_journal();
        }
        self.follow(follower::Event::Watch(None, Vec::new()), now);
    }

    /// Makes the follower once the headers are there.
    fn start(&mut self, now: Duration) {
        if !self.headers.is_caught_up() || self.config.protocol == Protocol::HeadersOnly {
            if self.config.protocol == Protocol::HeadersOnly && self.headers.is_caught_up() {
                self.start = Start::Done;
            }
            return;
        }
        let Start::Headers(saved) = &mut self.start else { return };
        let saved = saved.take();
        if self.config.protocol == Protocol::Bip37 {
            let Some(saved) = &saved else {
                let [a, b, c, d, ..] = self.config.seed;
                self.bloom.tweak = u32::from_le_bytes([a, b, c, d]);
                // A filter with another tweak after a crash would give the wallet away.
                let first = Saved { bloom: self.bloom.clone(), ..self.saved_now() };
                let bytes = first.encode(self.config.protocol, self.config.network);
                let id = self.write(Write::Replace { file: File::State, bytes });
                self.start = Start::Tweak(id);
                return;
            };
            self.bloom = saved.bloom.clone();
        }
        self.begin(saved.as_ref(), now);
    }

    fn stored(&mut self, id: WriteId, now: Duration) {
        self.outbox.stored(id);
        if let Start::Tweak(awaited) = self.start
            && id >= awaited
        {
            self.begin(None, now);
        }
    }

    fn begin(&mut self, saved: Option<&Saved>, now: Duration) {
        self.start = Start::Done;
        let first = self.first_wanted();
        if let Some(lowest) = self.hits.lowest_outside(self.headers.chain()) {
            self.roll_back(lowest.saturating_sub(1), Vec::new());
        }
        let mut again: Option<u32> = saved.and_then(|saved| saved.again);
        let lost = saved.and_then(|saved| self.hits.lost_since(saved.journal_events));
        again = again.into_iter().chain(lost).min();
        let ids: Vec<_> = self.wallets.ids().cloned().collect();
        for id in &ids {
            let kept = saved.and_then(|saved| saved.wallets.get(id));
            if let Some(kept) = kept {
                self.wallets.derive_to(id, &kept.next);
            }
            let digest = self.wallets.digest(id);
            let advanced = self.advance_by_hits(id);
            let since = self.wallets.first(id, self.headers.chain());
            let was_asked = kept.is_some_and(|kept| {
                Some(kept.digest) == digest && since.is_some_and(|since| kept.first <= since)
            });
            // A scan that was saved before the wallet was forgotten rests on hits that are gone.
            let is_forgotten =
                saved.is_some_and(|saved| self.hits.forgotten_since(id, saved.journal_events));
            let from = if was_asked && !is_forgotten { advanced } else { since };
            again = again.into_iter().chain(from).min();
        }
        // No wallet wants lower heights.
        let again = again.map(|again| again.max(first));
        let coins: Vec<_> = ids.iter().flat_map(|id| self.coins(id)).collect();
        let used: BTreeSet<_> = coins.iter().flat_map(|(_, s)| self.wallets.labels(s)).collect();
        let mut rescan = None;
        let follower = if self.config.protocol == Protocol::Bip37 {
            let answered = self.bloom.answered_to(self.headers.chain());
            let kept_first = saved.map_or(first, |saved| saved.first);
            let next = match answered {
                Some(answered) if saved.is_some() && kept_first <= first => answered + 1,
                _ => first,
            };
            let next = again.into_iter().chain([next]).min().unwrap_or(first).max(first);
            let policy = FilterPolicy {
                capacity: self.bloom.capacity,
                fpr: self.config.fpr,
                ..FilterPolicy::new(self.bloom.tweak)
            };
            let mut config = session::Config::new(self.config.network, policy);
            config.limits.timeout = self.config.timeout;
            config.limits.in_flight = self.config.in_flight;
            let session = Session::new(config);
            Follower::Bloom(Box::new(BloomFollower::new(session, first, self.config.last, next)))
        } else {
            let (sync, restored) = self.filter_sync(saved, first);
            // A sync that starts over asks everything anyway.
            rescan = again.filter(|_| restored);
            let config = self.filter_config(sync.first());
            Follower::Filters(Box::new(FilterFollower::new(sync, &config)))
        };
        let kept_first = follower.first();
        self.follower = Some(follower);
        self.follow(follower::Event::Start { coins, used }, now);
        let lower = (first < kept_first).then_some(first);
        if let Some(from) = rescan.into_iter().chain(lower).min() {
            self.follow(follower::Event::Rescan(from), now);
        }
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.introduce(id, now);
        }
        let shown: Vec<_> = self.headers.shown().collect();
        for (id, hash) in shown {
            self.shown(id, hash, now);
        }
    }

    /// What is known of the filters, and whether an earlier run's knowledge is of use.
    fn filter_sync(&mut self, saved: Option<&Saved>, first: u32) -> (FilterSync, bool) {
        if let Some(saved) = saved {
            let config = self.filter_config(saved.first);
            match FilterSync::restore(config, self.headers.chain(), &saved.filters) {
                Ok(sync) => return (sync, true),
                Err(error) => {
                    let finding = Finding::StartedOver(RestoreError::Filters(error));
                    self.outbox.push(None, false, News::Finding(finding));
                }
            }
        }
        (FilterSync::new(self.filter_config(first)), false)
    }

    fn filter_config(&self, first: u32) -> bip157::Config {
        filter_config(&self.config, first).expect("checked when the client was made")
    }

    /// The lowest height that anyone wants.
    fn first_wanted(&self) -> u32 {
        let chain = self.headers.chain();
        let own = self.config.first.map(|first| first.height(chain));
        let wallets = self.wallets.lowest(chain);
        own.into_iter().chain(wallets).min().unwrap_or(chain.tip().height)
    }

    fn contents(&mut self, file: u32, bytes: Option<&[u8]>, now: Duration) {
        match bytes {
            Some(bytes) => {
                let (_, whole) = filter_cache::decode(bytes);
                // A crash leaves part of the last filter, after which none would be found.
                if whole < bytes.len() {
                    self.cache.cut(file, whole as u64);
                }
            }
            None => self.cache.lose(file),
        }
        self.follow(follower::Event::Contents(file, bytes), now);
    }

    fn acknowledged(&mut self, id: UpdateId) {
        match self.outbox.acknowledged(id) {
            Some(Subject::Hit(key)) => self.hits.acknowledge(&key, &mut self.journal),
            Some(Subject::Withdrawal(key)) => {
                self.hits.acknowledge_withdrawal(&key, &mut self.journal);
            }
            None => {}
        }
    }

    fn broadcast(&mut self, tx: Transaction, fee_rate: Option<FeeRate>, now: Duration) {
        let wallet = WalletId::of_broadcast(&tx.compute_txid());
        if self.config.protocol != Protocol::HeadersOnly && !self.wallets.contains(&wallet) {
            // A block with it is found by the scripts that it pays to, of which one is enough. It
            // may be in the last block already.
            let birthday = Birthday::Height(self.chain().tip().height);
            let mut items = tx.output.iter().map(|it| Item::Script(it.script_pubkey.clone()));
            let watches = items.find_map(|item| {
                let watches = Wallet::new(birthday, std::vec![item]);
                watches.check(self.config.protocol).is_ok().then_some(watches)
            });
            if let Some(watches) = watches {
                self.watch(&wallet, watches, now);
            }
        }
        for dropped in self.broadcasts.add(tx, fee_rate, now) {
            self.forget_wallet(&WalletId::of_broadcast(&dropped), now);
        }
    }

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
                            BroadcastNews::FeeTooLow(self.name(id), rate)
                        }
                        broadcast::News::Seen(id) => BroadcastNews::Seen(self.name(id)),
                        broadcast::News::Rejected(id, why) => {
                            BroadcastNews::Rejected(self.name(id), why)
                        }
                    };
                    self.outbox.push(None, false, News::Broadcast(txid, news));
                }
            }
        }
    }

    /// Goes on with broadcasts and with blocks that the caller asked for.
    fn serve(&mut self, now: Duration) {
        let full = |info: &PeerInfo| info.services.has(ServiceFlags::NETWORK);
        let peers: BTreeSet<_> =
            self.peers.iter().filter(|(_, info)| full(info)).map(|(id, _)| *id).collect();
        let steps = self.broadcasts.next(&peers, now);
        self.take_steps(steps);
        for action in self.blocks.next(&peers, self.headers.chain(), now) {
            match action {
                Action::Disconnect(id, reason) => self.disconnect(id, reason, now),
                action => self.actions.push(action),
            }
        }
    }

    fn write(&mut self, write: Write) -> WriteId {
        let (id, write) = self.outbox.write(write);
        self.actions.push(Action::Write(id, write));
        id
    }

    fn flush_journal(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        let bytes = core::mem::take(&mut self.journal);
        let at = self.hits.length() - bytes.len() as u64;
        self.write(Write::Append { file: File::Journal, at, bytes });
    }

    /// What the state is now, but for what only the follower knows.
    fn saved_now(&self) -> Saved {
        let wallets = self.wallets.ids().filter(|id| !id.is_internal()).map(|id| {
            let digest = self.wallets.digest(id).unwrap_or_default();
            let first = self.wallets.first(id, self.chain()).unwrap_or_default();
            let next = self.wallets.next_indices(id);
            (id.clone(), SavedWallet { digest, first, next })
        });
        Saved {
            journal_events: self.hits.events(),
            first: self.follower.as_ref().map_or_else(|| self.first_wanted(), Follower::first),
            wallets: wallets.collect(),
            ..Saved::default()
        }
    }

    /// Writes the state. The hits that it rests on are written before.
    fn save(&mut self, now: Duration) {
        self.flush_journal();
        let Some(follower) = &self.follower else { return };
        let mut saved = self.saved_now();
        match follower {
            Follower::Filters(filters) => {
                saved.again = filters.again();
                saved.filters = filters.sync().encode(self.headers.chain());
            }
            Follower::Bloom(bloom) => {
                self.bloom.capacity = bloom.policy().capacity;
                self.bloom.set_answered(bloom.settled_to(), self.headers.chain());
                saved.bloom = self.bloom.clone();
            }
        }
        let bytes = saved.encode(self.config.protocol, self.config.network);
        self.write(Write::Replace { file: File::State, bytes });
        self.saved = (self.steps(), now);
    }

    /// Looks whether everything is seen, and writes and reports what is due.
    fn look_for_end(&mut self, now: Duration) {
        let chain = self.headers.chain();
        let follower_done = match &mut self.follower {
            Some(follower) => follower.is_caught_up(chain, now),
            None => self.config.protocol == Protocol::HeadersOnly,
        };
        let caught_up = self.headers.is_caught_up() && follower_done;
        let is_new = caught_up && !self.caught_up;
        self.caught_up = caught_up;
        let steps = self.steps();
        let is_due = now.saturating_sub(self.saved.1) >= SAVE_EVERY;
        // A peer can announce a block and then have none as often as it likes, and each write has
        // the whole state.
        if is_new && self.told != Some((steps, self.changes)) {
            self.follow(follower::Event::Flush, now);
            self.save(now);
            self.outbox.push(None, false, News::CaughtUp(self.progress()));
            self.reported = (steps, now);
            self.told = Some((steps, self.changes));
        } else if is_due && (is_new || self.saved.0 != steps) {
            self.save(now);
        }
        if self.reported.0 != steps && now.saturating_sub(self.reported.1) >= REPORT_EVERY {
            self.outbox.push(None, false, News::Progress(self.progress()));
            self.reported = (steps, now);
        }
    }
}

/// The blocks of an `inv` that tell all it has to say about the chain: one that is unknown, and the
/// highest that is known. Each costs a look at everything that is under way.
fn announced(items: &[Inventory], chain: &HeaderChain) -> Vec<BlockHash> {
    let hashes = items.iter().filter_map(|item| match item {
        Inventory::Block(hash) | Inventory::WitnessBlock(hash) => Some(*hash),
        _ => None,
    });
    let unknown = hashes.clone().find(|hash| !chain.contains(hash));
    let known = hashes.filter(|hash| chain.contains(hash));
    unknown.into_iter().chain(known.max_by_key(|hash| chain.height_of(hash))).collect()
}

fn services(protocol: Protocol) -> ServiceFlags {
    match protocol {
        Protocol::Bip157 => ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS,
        Protocol::Bip37 => ServiceFlags::NETWORK | ServiceFlags::BLOOM,
        Protocol::HeadersOnly => ServiceFlags::NONE,
    }
}

fn filter_config(config: &Config, first: u32) -> Result<bip157::Config, bip157::ConfigError> {
    let mut filters = bip157::Config::new(config.network, first, config.seed);
    filters.last = config.last;
    filters.spot_audits = config.spot_audits;
    filters.limits = bip157::Limits { timeout: config.timeout, ..config.filter_limits };
    for (height, header) in &config.checkpoints {
        filters.trust(*height, *header)?;
    }
    Ok(filters)
}

/// The chain of the headers kept, and what is to be written so that the file is it.
fn open_headers(
    bytes: Option<&[u8]>,
    config: &Config,
    outbox: &mut Outbox,
    actions: &mut Vec<Action>,
) -> Result<HeaderChain, OpenError> {
    let fresh = HeaderChain::new(config.network);
    let bytes = bytes.unwrap_or_default();
    let mut write = |write| {
        let (id, write) = outbox.write(write);
        actions.push(Action::Write(id, write));
    };
    // A kill while the file was made leaves part of what every such file begins with.
    if fresh.encode().starts_with(bytes) {
        write(Write::Replace { file: File::Headers, bytes: fresh.encode() });
        return Ok(fresh);
    }
    let chain = match HeaderChain::decode(bytes) {
        Ok(chain) => chain,
        Err(error) => {
            let intact = error.intact_len().ok_or(OpenError::Headers(error))?;
            let length = usize::try_from(intact).unwrap_or(bytes.len()).min(bytes.len());
            let prefix = bytes.get(..length).unwrap_or_default();
            let chain = HeaderChain::decode(prefix).map_err(OpenError::Headers)?;
            write(Write::Append { file: File::Headers, at: intact, bytes: Vec::new() });
            let cut = (bytes.len() - length) as u64;
            outbox.push(None, false, News::Finding(Finding::HeadersCut(cut)));
            chain
        }
    };
    if chain.network() != config.network {
        return Err(OpenError::Network { kept: chain.network(), wanted: config.network });
    }
    Ok(chain)
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
            chain.accept(headers, 1_700_000_000).unwrap();
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
