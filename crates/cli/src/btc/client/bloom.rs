//! BIP37: one peer filters blocks and relays transactions, and another takes its place if it fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::{BlockHash, Txid};
use chainsieve::btc::bip37::wallet::{Action, Event, Finding, Label, Session, Watched};
use chainsieve::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use chainsieve::btc::peer::{Grade, PeerId};

use super::announcer::Announcer;
use super::bloom_state::BloomState;
use super::follower::{Follower, Order, Told, World, disconnected};
use super::summary::Graded;
use super::wallet::{Coins, Wallet};
use crate::output::print_log;

/// Requests that wait in the session: the chain has the others.
const MAX_PENDING: usize = 2_000;
/// Announced transactions that are remembered as asked for.
const MAX_ASKED: usize = 10_000;
/// Transactions asked for in one message.
const MAX_GETDATA: usize = 1_000;

/// A peer that offers bloom filters.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: String,
    /// The height that it has shown, or claimed.
    height: u32,
}

/// A wallet's session, with whichever peer serves it.
#[derive(Debug)]
pub(crate) struct Bloom {
    pub(super) session: Session,
    pub(super) wallet: Wallet,
    pub(super) coins: Coins,
    pub(crate) announcer: Announcer,
    pub(super) state: BloomState,
    pub(super) first: u32,
    pub(super) last: Option<u32>,
    pub(super) peers: BTreeMap<PeerId, Peer>,
    pub(super) serving: Option<PeerId>,
    /// All blocks below are answered.
    pub(super) next: u32,
    /// Answered blocks above.
    pub(super) answered: BTreeSet<u32>,
    /// Blocks below have been requested.
    pub(super) requested: u32,
    /// Blocks asked for on this connection and not closed; whether the answer counts no more,
    /// since the block will be asked for again.
    pub(super) sent: BTreeMap<BlockHash, bool>,
    /// The block of which a transaction was not delivered, until it is closed.
    pub(super) lacking: Option<(BlockHash, Txid)>,
    /// How often blocks were not answered, or not wholly.
    pub(super) tries: BTreeMap<BlockHash, u32>,
    /// The first height that no `graded` line has named.
    pub(super) ungraded: u32,
    pub(super) asked: VecDeque<Txid>,
    pub(super) asked_mempool: bool,
    /// That unconfirmed transactions are passed over has been said.
    pub(super) unconfirmed_told: bool,
    pub(super) progress: u64,
}

impl Bloom {
    pub(crate) fn new(
        mut session: Session,
        wallet: Wallet,
        announcer: Announcer,
        state: BloomState,
        heights: (u32, Option<u32>),
        chain: &HeaderChain,
    ) -> anyhow::Result<Self> {
        let (first, last) = heights;
        let now = Duration::ZERO;
        session.handle(Event::Tip(chain.tip().height), now);
        let next = state.resume_from(chain).map_or(first, |height| height + 1);
        let lost = announcer.ledger().lost_since(state.hits).unwrap_or(next);
        let next = next.min(lost).max(first);
        let mut bloom = Self {
            coins: Coins::of(&wallet),
            session,
            wallet,
            announcer,
            state,
            first,
            last,
            peers: BTreeMap::new(),
            serving: None,
            next,
            answered: BTreeSet::new(),
            requested: next,
            sent: BTreeMap::new(),
            lacking: None,
            tries: BTreeMap::new(),
            ungraded: first,
            asked: VecDeque::new(),
            asked_mempool: false,
            unconfirmed_told: false,
            progress: 0,
        };
        bloom.announcer.resume(chain)?;
        bloom.restore()?;
        Ok(bloom)
    }

    /// Watches what the items name, and what was found in earlier runs.
    fn restore(&mut self) -> anyhow::Result<()> {
        // What led to an index may have left the chain, so that no hit leads to it any more.
        self.wallet.derive_to(&self.state.next)?;
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        let mut found = Vec::new();
        for received in self.announcer.ledger().received() {
            // The indices kept may be older than the hit, which tells its own.
            if let Some((keychain, index)) = self.wallet.keychain(&received.owner) {
                let highest = used.entry(keychain).or_insert(index);
                *highest = index.max(*highest);
            }
            found.push((received.outpoint, received.owner));
        }
        for (&keychain, &index) in &used {
            self.wallet.advance(keychain, index, true)?;
        }
        let mut watched: Vec<_> =
            self.wallet.coins.iter().map(|coin| Watched::OutPoint(coin.outpoint)).collect();
        for (outpoint, owner) in found {
            watched.push(Watched::OutPoint(outpoint));
            self.coins.add(outpoint, owner);
        }
        let all: Vec<_> = (0..self.wallet.scripts().len()).collect();
        watched.extend(self.watched(&all));
        for (keychain, index) in used {
            self.session.handle(Event::Used(Label { keychain, index }), Duration::ZERO);
        }
        for action in self.session.handle(Event::Watch(watched), Duration::ZERO) {
            if let Action::Report(Finding::Unwatchable(script)) = action {
                print_log(&format!(
                    "script {}: BIP37 cannot watch it, since it pushes no data",
                    hex::encode(&script)
                ));
            }
        }
        Ok(())
    }

    pub(super) fn watched(&self, places: &[usize]) -> Vec<Watched> {
        let scripts = places.iter().filter_map(|&place| self.wallet.scripts().get(place));
        scripts
            .map(|watched| {
                let label = self.wallet.label(watched);
                let label = label.map(|(keychain, index)| Label { keychain, index });
                Watched::Script { script: watched.script.clone(), label }
            })
            .collect()
    }

    /// The last height that is wanted, as far as the chain goes.
    fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    pub(crate) fn answered_to(&self) -> Option<u32> {
        self.next.checked_sub(1).filter(|answered| *answered >= self.first)
    }

    /// What a "no" is worth.
    pub(crate) fn grades(&self) -> Vec<Graded> {
        let answered = self.answered_to().into_iter();
        answered.map(|to| Graded { from: self.first, to, grade: Grade::OnePeer }).collect()
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Everything from a height on is to be answered again.
    pub(super) fn roll_back(&mut self, height: u32) {
        self.next = self.next.min(height);
        self.requested = self.requested.min(height);
        self.answered.retain(|answered| *answered < height);
        self.ungraded = self.ungraded.min(height);
    }

    fn disconnected(&mut self, id: PeerId, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        self.peers.remove(&id);
        if self.serving != Some(id) {
            return Ok(Vec::new());
        }
        self.let_go(world)
    }

    /// Nobody serves. What was asked for is asked for again.
    fn let_go(&mut self, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        self.serving = None;
        self.lacking = None;
        self.sent.clear();
        self.asked.clear();
        self.asked_mempool = false;
        self.session(Event::Disconnected, world)
    }

    /// Has the peer serve that has shown most, if none does.
    fn choose(&mut self, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        if let Some(serving) = self.serving.and_then(|id| self.peers.get(&id)) {
            // One that is behind has answered all it can.
            let is_behind = serving.height < self.end(world.chain) && self.next > serving.height;
            let others = self.peers.values().any(|peer| peer.height > serving.height);
            if !(is_behind && others && self.session.pending_requests() == 0) {
                return Ok(Vec::new());
            }
            self.let_go(world)?;
        }
        // A peer that failed has come back under a later number.
        let best =
            self.peers.iter().max_by_key(|(id, peer)| (peer.height, std::cmp::Reverse(**id)));
        let Some((&id, _)) = best else { return Ok(Vec::new()) };
        self.serving = Some(id);
        self.session(Event::Connected, world)
    }

    /// Requests what is to be answered and has not been requested.
    fn request(&mut self, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        let Some(peer) = self.serving.and_then(|id| self.peers.get(&id)) else {
            return Ok(Vec::new());
        };
        let room = MAX_PENDING.saturating_sub(self.session.pending_requests());
        if room < MAX_PENDING / 2 {
            return Ok(Vec::new());
        }
        let end = self.end(world.chain).min(peer.height);
        let mut blocks = Vec::new();
        while self.requested <= end && blocks.len() < room {
            let Some(hash) = world.chain.hash_at(self.requested) else { break };
            blocks.push(BlockAt { hash, height: self.requested });
            self.requested += 1;
        }
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        self.session(Event::Request(blocks), world)
    }

    /// Once the past is answered, what is in no block yet is asked for.
    fn ask_mempool(&mut self, world: World<'_>) -> Vec<Order> {
        let Some(id) = self.serving else { return Vec::new() };
        let is_live = self.last.is_none() && self.next > self.end(world.chain);
        if !is_live || self.asked_mempool || self.session.mirrored_filter().is_none() {
            return Vec::new();
        }
        self.asked_mempool = true;
        vec![Order::Send(id, NetworkMessage::MemPool)]
    }

    /// Asks for the transactions that the serving peer announces.
    fn announced(&mut self, id: PeerId, items: &[Inventory]) -> Vec<Order> {
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
        if wanted.is_empty() || self.last.is_some() {
            return Vec::new();
        }
        vec![Order::Send(id, NetworkMessage::GetData(wanted))]
    }

    fn chain_changed(
        &mut self,
        events: &[ChainEvent],
        world: World<'_>,
    ) -> anyhow::Result<Vec<Order>> {
        let gone = disconnected(events);
        let mut orders = Vec::new();
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.announcer.roll_back(lowest.saturating_sub(1), &gone, world.chain)?;
            self.supersede(|hash| world.chain.height_of(hash).is_none());
            self.roll_back(lowest.max(self.first));
            orders.extend(self.session(Event::Reorganized(lowest), world)?);
        }
        orders.extend(self.session(Event::Tip(world.chain.tip().height), world)?);
        Ok(orders)
    }
}

impl Follower for Bloom {
    fn handle(&mut self, told: Told<'_>, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        let mut orders = Vec::new();
        match told {
            Told::Connected(id, theirs, name) => {
                let height = theirs.start_height;
                self.peers.insert(id, Peer { name: name.to_owned(), height });
            }
            Told::Disconnected(id) => orders.extend(self.disconnected(id, world)?),
            Told::Shows(id, hash) => {
                if let (Some(peer), Some(height)) =
                    (self.peers.get_mut(&id), world.chain.height_of(&hash))
                {
                    peer.height = height.max(peer.height);
                }
            }
            Told::Chain(events) => orders.extend(self.chain_changed(events, world)?),
            Told::Message(id, message) if self.serving == Some(id) => {
                if let NetworkMessage::Inv(items) = &message {
                    orders.extend(self.announced(id, items));
                }
                orders.extend(self.session(message.into(), world)?);
            }
            Told::Message(..) => {}
            Told::Tick => orders.extend(self.session(Event::Tick, world)?),
        }
        orders.extend(self.choose(world)?);
        orders.extend(self.request(world)?);
        orders.extend(self.ask_mempool(world));
        Ok(orders)
    }

    fn is_caught_up(&mut self, world: World<'_>) -> bool {
        self.next > self.end(world.chain) && self.session.pending_requests() == 0
    }

    fn caught_up(&mut self, world: World<'_>) -> anyhow::Result<()> {
        if self.ungraded < self.next {
            let (from, to) = (self.ungraded, self.next - 1);
            self.announcer.graded(Graded { from, to, grade: Grade::OnePeer })?;
            self.ungraded = self.next;
        }
        self.announcer.caught_up(world.chain, self.answered_to())
    }

    fn progress(&self) -> u64 {
        self.progress
    }

    fn save(&mut self, chain: &HeaderChain) -> anyhow::Result<()> {
        let policy = self.session.filter_policy();
        (self.state.tweak, self.state.capacity) = (policy.tweak, policy.capacity);
        self.state.hits = self.announcer.ledger().written();
        self.state.next = self.wallet.next_indices();
        self.state.save(self.answered_to(), chain)
    }

    fn is_closed(&self) -> bool {
        self.announcer.is_closed()
    }

    fn status(&self, chain: &HeaderChain) -> String {
        format!("blocks {} of {}", self.next.saturating_sub(1), self.end(chain))
    }
}
