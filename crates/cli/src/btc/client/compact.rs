//! BIP157: filters are compared between the peers and asked for the wallet's scripts, and the blocks
//! of hits fetched.
//!
//! A block shows a spend only of a coin that is known, so that blocks are looked at in the order of
//! the chain: one that comes early is held until those that were asked for before it have come.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use chainsieve::btc::bip157::{Action, Config, Event, FilterSync, VerifiedFilter};
use chainsieve::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use chainsieve::btc::peer::{Grade, PeerId};

use super::compact_state::{CompactState, Kept};
use super::compact_wallet::{CompactWallet, Wanted};
use super::compact_words as words;
use super::follower::{Follower, Order, Told, World, disconnected};
use super::summary::{Graded, runs};
use crate::output::print_log;

/// Bytes of blocks that are held; over them, blocks are looked at out of order, and what that may miss
/// is asked again.
const MAX_HELD: usize = 64 << 20;
/// How often many heights are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Heights that are not many.
const FEW: u32 = 2_000;
/// Disputes that are kept for the end.
const MAX_DISPUTES: usize = 1_000;

#[derive(Debug)]
struct Peer {
    name: String,
    /// The height that it has shown.
    height: Option<u32>,
}

/// The filters of several peers, and a wallet that asks them, if there is one.
#[derive(Debug)]
pub(crate) struct Compact {
    sync: FilterSync,
    state: CompactState,
    pub(crate) wallet: Option<CompactWallet>,
    first: u32,
    /// The last height that is wanted; `None` follows the tip.
    last: Option<u32>,
    /// The chain up to that height, once the chain has gone beyond it.
    limited: Option<HeaderChain>,
    peers: BTreeMap<PeerId, Peer>,
    held: BTreeMap<u32, Wanted>,
    held_bytes: usize,
    /// Heights answered in a row with one grade, not told yet.
    run: Option<Graded>,
    pub(crate) disputes: Vec<String>,
    /// When the state machine last wanted something.
    active: Duration,
    /// When to look again whether everyone was heard.
    look: Duration,
    /// When everyone had been heard: the progress, when something was last wanted, and up to where.
    settled: Option<(u64, Duration, u32)>,
    patience: Duration,
    progress: u64,
}

impl Compact {
    pub(crate) fn new(
        config: &Config,
        mut state: CompactState,
        mut wallet: Option<CompactWallet>,
        last: Option<u32>,
        chain: &HeaderChain,
    ) -> anyhow::Result<Self> {
        let limited = last.filter(|last| *last < chain.tip().height).map(|last| limit(chain, last));
        let known = limited.as_ref().unwrap_or(chain);
        let (sync, kept) = state.restore(config, known);
        let mut rescan = kept.as_ref().and_then(|kept| kept.again);
        if let Some(wallet) = &mut wallet {
            let ledger = wallet.announcer.ledger();
            let lost = kept.as_ref().and_then(|kept| ledger.lost_since(kept.hits));
            rescan = rescan.into_iter().chain(lost.map(|lost| lost.max(config.first))).min();
            let further = wallet.restore(kept.as_ref().map(|kept| &*kept.next), chain)?;
            rescan = rescan.into_iter().chain(further).min();
        }
        let mut compact = Self {
            sync,
            state,
            wallet,
            first: config.first,
            last,
            limited,
            peers: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
            run: None,
            disputes: Vec::new(),
            active: Duration::ZERO,
            look: Duration::ZERO,
            settled: None,
            patience: config.limits.patience,
            progress: 0,
        };
        if let Some(height) = rescan {
            compact.feed(Event::Rescan(height), World { chain, now: Duration::ZERO })?;
        }
        Ok(compact)
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn answered_to(&self) -> Option<u32> {
        self.sync.answered_to()
    }

    /// What a "no" is worth, of all heights that are answered.
    pub(crate) fn grades(&self, chain: &HeaderChain) -> Vec<Graded> {
        runs(self.first..=self.end(chain), |height| self.sync.grade(height))
    }

    fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    /// Tells the state machine, and does what it wants.
    fn feed(&mut self, event: Event, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        let mut orders = Vec::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let from = match &event {
                Event::Block(Some(peer), _) => Some(*peer),
                _ => None,
            };
            let chain = self.limited.as_ref().unwrap_or(world.chain);
            for action in self.sync.handle(chain, event, world.now) {
                self.active = world.now;
                self.act(action, from, &mut orders, &mut events)?;
            }
            // Only once the machine has been told of every match does it know which blocks come first.
            if events.is_empty() {
                events.extend(self.scan_ready(world)?);
            }
        }
        Ok(orders)
    }

    fn act(
        &mut self,
        action: Action,
        from: Option<PeerId>,
        orders: &mut Vec<Order>,
        events: &mut VecDeque<Event>,
    ) -> anyhow::Result<()> {
        match action {
            Action::Send(peer, message) => orders.push(Order::Send(peer, message.into())),
            Action::Disconnect(peer, reason) => {
                let (text, misbehaved) = words::reason(&reason);
                orders.push(if misbehaved {
                    Order::Ban(peer, text)
                } else {
                    Order::Drop(peer, text)
                });
            }
            Action::Filter(filter) => {
                self.progress += 1;
                events.extend(self.ask(*filter)?.map(Event::Matched));
            }
            Action::Block(block) => {
                self.progress += 1;
                let height = block.at.height;
                self.note(height, Grade::Scanned)?;
                let peer = from.and_then(|id| self.peers.get(&id)).map(|peer| peer.name.clone());
                if self.wallet.is_some() {
                    self.hold(
                        height,
                        Wanted { bytes: block.block.total_size(), block: *block, peer },
                    );
                }
            }
            Action::Reopened(from, to) => {
                self.flush()?;
                if let Some(wallet) = &mut self.wallet {
                    wallet.announcer.reopened(from, to)?;
                }
            }
            Action::Graded(from, to, grade) => {
                self.flush()?;
                if let Some(wallet) = &mut self.wallet {
                    wallet.announcer.graded(Graded { from, to, grade })?;
                }
            }
            Action::Report(finding) => {
                let name = |id| {
                    let known = self.peers.get(&id);
                    known.map_or_else(|| format!("peer {}", id.0), |peer| peer.name.clone())
                };
                if let Some((kind, at, text)) = words::finding(&finding, name) {
                    self.find(kind, at, text)?;
                }
            }
            // What a rollback takes along is gone since the chain changed.
            _ => {}
        }
        Ok(())
    }

    fn find(
        &mut self,
        kind: &'static str,
        at: Option<BlockAt>,
        text: String,
    ) -> anyhow::Result<()> {
        match &mut self.wallet {
            Some(wallet) => wallet.announcer.finding(kind, at, &text)?,
            None => print_log(&text),
        }
        if self.disputes.len() < MAX_DISPUTES {
            self.disputes.push(text);
        }
        Ok(())
    }

    /// Asks a filter. Returns it if its block is wanted.
    fn ask(&mut self, filter: VerifiedFilter) -> anyhow::Result<Option<Box<VerifiedFilter>>> {
        let (height, grade) = (filter.at.height, filter.grade);
        if self.wallet.as_mut().is_some_and(|wallet| wallet.may_concern(&filter.filter)) {
            return Ok(Some(Box::new(filter)));
        }
        self.note(height, grade)?;
        Ok(None)
    }

    /// Looks at the blocks that nothing before them is awaited for. Returns what is to be asked
    /// again.
    fn scan_ready(&mut self, world: World<'_>) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        let reached = self.answered_to().map_or(self.first, |answered| answered.saturating_add(1));
        while let Some((&height, _)) = self.held.first_key_value() {
            let waits = self.sync.first_awaited().is_some_and(|awaited| awaited < height);
            if (waits || height > reached) && self.held_bytes <= MAX_HELD {
                break;
            }
            let Some(wanted) = self.release(height) else { break };
            let Some(wallet) = &mut self.wallet else { break };
            let again = wallet.scan(&wanted, world.chain)?;
            events.extend(again.map(Event::Rescan));
        }
        Ok(events)
    }

    fn hold(&mut self, height: u32, wanted: Wanted) {
        self.release(height);
        self.held_bytes += wanted.bytes;
        self.held.insert(height, wanted);
    }

    fn release(&mut self, height: u32) -> Option<Wanted> {
        let wanted = self.held.remove(&height)?;
        self.held_bytes -= wanted.bytes;
        Some(wanted)
    }

    /// A height is answered.
    fn note(&mut self, height: u32, grade: Grade) -> anyhow::Result<()> {
        match &mut self.run {
            Some(run) if run.grade == grade && run.to.checked_add(1) == Some(height) => {
                run.to = height;
            }
            _ => {
                self.flush()?;
                self.run = Some(Graded { from: height, to: height, grade });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        match (self.run.take(), &mut self.wallet) {
            (Some(run), Some(wallet)) => wallet.announcer.graded(run),
            _ => Ok(()),
        }
    }

    fn chain_changed(
        &mut self,
        events: &[ChainEvent],
        world: World<'_>,
    ) -> anyhow::Result<Vec<Order>> {
        let gone = disconnected(events);
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.flush()?;
            while let Some((&height, _)) = self.held.range(lowest..).next() {
                self.release(height);
            }
            if let Some(wallet) = &mut self.wallet {
                wallet.roll_back(lowest.saturating_sub(1), &gone, world.chain)?;
            }
        }
        let is_beyond = |last: &u32| self.limited.is_some() || *last < world.chain.tip().height;
        let Some(last) = self.last.filter(is_beyond) else {
            return self.feed(Event::Chain(events.to_vec()), world);
        };
        // Only what is up to the last height wanted matters.
        let lowest = gone.iter().filter(|at| at.height <= last).min_by_key(|at| at.height);
        let reaches = |limited: &HeaderChain| limited.tip().height >= last;
        if lowest.is_none() && self.limited.as_ref().is_some_and(reaches) {
            return Ok(Vec::new());
        }
        self.limited = Some(limit(world.chain, last));
        let gone = lowest.map(|at| ChainEvent::Disconnected { at: *at });
        self.feed(Event::Chain(gone.into_iter().collect()), world)
    }

    fn shows(
        &mut self,
        id: PeerId,
        hash: chainsieve::bitcoin::BlockHash,
        world: World<'_>,
    ) -> anyhow::Result<Vec<Order>> {
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(Vec::new()) };
        let Some(height) = world.chain.height_of(&hash) else { return Ok(Vec::new()) };
        peer.height = Some(height);
        // Who has a block has those below.
        let hash = match &self.limited {
            Some(limited) if height > limited.tip().height => limited.tip().hash,
            _ => hash,
        };
        self.feed(Event::PeerTip(id, hash), world)
    }

    /// Whether all peers that could were heard about all heights.
    fn is_settled(&self, chain: &HeaderChain) -> bool {
        let end = self.end(chain);
        let able = self.peers.values().filter(|peer| peer.height.is_some_and(|at| at >= end));
        let able = u32::try_from(able.count()).unwrap_or(u32::MAX);
        (self.first..=end).all(|height| match self.sync.grade(height) {
            Some(Grade::OnePeer) => able <= 1,
            Some(Grade::Peers(peers)) => peers >= able,
            Some(_) => true,
            None => false,
        })
    }
}

/// The chain up to a height.
fn limit(chain: &HeaderChain, last: u32) -> HeaderChain {
    let mut limited = HeaderChain::new(chain.network());
    let headers = chain.headers_from(1);
    let headers = headers.get(..last as usize).unwrap_or(headers);
    // They were accepted before.
    drop(limited.accept(headers, u32::MAX));
    limited
}

impl Follower for Compact {
    fn handle(&mut self, told: Told<'_>, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        match told {
            Told::Connected(id, _, name) => {
                self.peers.insert(id, Peer { name: name.to_owned(), height: None });
                self.feed(Event::PeerConnected(id), world)
            }
            Told::Disconnected(id) => {
                let orders = self.feed(Event::PeerDisconnected(id), world);
                self.peers.remove(&id);
                orders
            }
            Told::Shows(id, hash) => self.shows(id, hash, world),
            Told::Chain(events) => self.chain_changed(events, world),
            Told::Message(id, _) if !self.peers.contains_key(&id) => Ok(Vec::new()),
            Told::Message(id, message) => {
                let mut orders = Vec::new();
                for event in Event::from_message(id, message) {
                    orders.extend(self.feed(event, world)?);
                }
                Ok(orders)
            }
            Told::Tick => self.feed(Event::Tick, world),
        }
    }

    fn is_caught_up(&mut self, world: World<'_>) -> bool {
        let end = self.end(world.chain);
        let is_settled = end < self.first || self.sync.settled_to().is_some_and(|to| to >= end);
        if !is_settled || !self.held.is_empty() {
            return false;
        }
        if world.now.saturating_sub(self.active) > self.patience {
            return true;
        }
        // A look at each height.
        if world.now < self.look && end.saturating_sub(self.first) > FEW {
            return false;
        }
        let key = (self.progress, self.active, end);
        if self.settled != Some(key) {
            self.look = world.now + LOOK_EVERY;
            self.settled = self.is_settled(world.chain).then_some(key);
        }
        self.settled.is_some()
    }

    fn caught_up(&mut self, world: World<'_>) -> anyhow::Result<()> {
        self.flush()?;
        let answered = self.answered_to();
        match &mut self.wallet {
            Some(wallet) => wallet.announcer.caught_up(world.chain, answered),
            None => Ok(()),
        }
    }

    fn progress(&self) -> u64 {
        self.progress
    }

    fn save(&mut self, chain: &HeaderChain) -> anyhow::Result<()> {
        let next = self.wallet.as_ref().map(CompactWallet::next_indices).unwrap_or_default();
        let chain = self.limited.as_ref().unwrap_or(chain);
        let again = self.held.first_key_value().map(|(height, _)| *height);
        let hits = self.wallet.as_ref().map_or(0, |wallet| wallet.announcer.ledger().written());
        self.state.save(&Kept { next, again, hits }, &self.sync, chain)
    }

    fn is_closed(&self) -> bool {
        self.wallet.as_ref().is_some_and(|wallet| wallet.announcer.is_closed())
    }

    fn status(&self, chain: &HeaderChain) -> String {
        let answered = self.answered_to().unwrap_or(self.first);
        format!("filters {answered} of {}", self.end(chain))
    }
}
