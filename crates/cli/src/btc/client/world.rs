//! A core among test nodes: messages go back and forth in memory, and time passes when nothing else
//! happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{Network, Script};
use chainsieve::btc::bip37::wallet::{Config, FilterPolicy, Session};
use chainsieve::btc::bip157;
use chainsieve::btc::bip158::block_scan::History;
use chainsieve::btc::headers::HeaderChain;
use chainsieve::btc::peer::PeerId;
use clap::Parser as _;
use serde_json::Value;

use super::announcer::Announcer;
use super::bloom::Bloom;
use super::bloom_state::BloomState;
use super::compact::Compact;
use super::compact_state::CompactState;
use super::compact_wallet::CompactWallet;
use super::driver::{Core, Happening};
use super::follower::{Follower, Order};
use super::header_store::{HeaderStore, Stored};
use super::ledger::Ledger;
use super::mined::UNIX;
use super::node::Node;
use super::scratch::Scratch;
use super::wallet::Wallet;
use crate::args::client::Protocol;
use crate::args::{BtcCommand, Cli, Command};

const PATIENCE: Duration = Duration::from_secs(30);

/// A follower whose lines are kept.
pub(crate) trait Kept: Follower + Sized {
    const SERVICES: ServiceFlags;
    fn announcer(&mut self) -> &mut Announcer;
    fn make(
        scratch: &Scratch,
        items: &[String],
        heights: (u32, Option<u32>),
    ) -> super::driver::Make<Self>;
}

fn wallet(items: &[String], protocol: Protocol) -> Wallet {
    let fixed =
        ["chainsieve", "btc", "watch", "--network", "regtest", "--data", "x", "--range", "0-4"];
    let args = fixed.iter().map(|arg| (*arg).to_owned()).chain(items.iter().cloned());
    let Command::Btc(BtcCommand::Watch(args)) = Cli::try_parse_from(args).unwrap().command else {
        panic!("another command")
    };
    Wallet::read(&args.look.watch, 3, protocol).unwrap()
}

fn announcer(scratch: &Scratch) -> Announcer {
    let ledger = Ledger::open(&scratch.path().join("hits")).unwrap();
    let mut announcer = Announcer::new(ledger, Network::Regtest, true);
    announcer.lines.kept = Some(String::new());
    announcer
}

impl Kept for Bloom {
    const SERVICES: ServiceFlags = ServiceFlags::BLOOM;

    fn announcer(&mut self) -> &mut Announcer {
        &mut self.announcer
    }

    fn make(
        scratch: &Scratch,
        items: &[String],
        heights: (u32, Option<u32>),
    ) -> super::driver::Make<Self> {
        let state = BloomState::open(scratch.path().join("state")).unwrap();
        let policy = FilterPolicy { capacity: state.capacity, ..FilterPolicy::new(state.tweak) };
        let mut config = Config::new(Network::Regtest, policy);
        config.limits.in_flight = 4;
        let (session, announcer) = (Session::new(config), announcer(scratch));
        let wallet = wallet(items, Protocol::Bip37);
        Box::new(move |chain| Self::new(session, wallet, announcer, state, heights, chain))
    }
}

impl Kept for Compact {
    const SERVICES: ServiceFlags = ServiceFlags::COMPACT_FILTERS;

    fn announcer(&mut self) -> &mut Announcer {
        &mut self.wallet.as_mut().unwrap().announcer
    }

    fn make(
        scratch: &Scratch,
        items: &[String],
        heights: (u32, Option<u32>),
    ) -> super::driver::Make<Self> {
        let state = CompactState::open(&scratch.path().join("state")).unwrap();
        let announcer = announcer(scratch);
        let wallet = wallet(items, Protocol::Bip157);
        let mut config = bip157::Config::new(Network::Regtest, heights.0, [7; 16]);
        config.spot_audits = 0;
        config.limits.patience = PATIENCE;
        let wallet = CompactWallet::new(wallet, announcer, History::Complete);
        Box::new(move |chain: &HeaderChain| {
            Self::new(&config, state, Some(wallet), heights.1, chain)
        })
    }
}

/// A core, its nodes, and what is under way between them.
pub(crate) struct World<F> {
    pub(crate) core: Core<F>,
    pub(crate) nodes: Vec<Node>,
    /// The connection of each node.
    connected: BTreeMap<PeerId, usize>,
    next_id: u64,
    queue: VecDeque<(PeerId, NetworkMessage)>,
    pub(crate) now: Duration,
    /// The nodes that were let go, with the reason; those banned do not come back.
    pub(crate) dropped: Vec<(usize, String)>,
    pub(crate) banned: Vec<(usize, String)>,
    /// Messages that the core has taken.
    pub(crate) taken: usize,
}

impl<F: Kept> World<F> {
    pub(crate) fn new(
        scratch: &Scratch,
        items: &[String],
        heights: (u32, Option<u32>),
        nodes: &[Node],
    ) -> Self {
        let path = scratch.path().join("headers");
        let Stored { store, chain, .. } = HeaderStore::open(&path, Network::Regtest).unwrap();
        let make = F::make(scratch, items, heights);
        let core = Core::new(chain, store, PATIENCE, F::SERVICES, make);
        let mut world = Self {
            core,
            nodes: nodes.to_vec(),
            connected: BTreeMap::new(),
            next_id: 0,
            queue: VecDeque::new(),
            now: Duration::ZERO,
            dropped: Vec::new(),
            banned: Vec::new(),
            taken: 0,
        };
        for place in 0..nodes.len() {
            world.connect(place);
        }
        world
    }

    fn connect(&mut self, place: usize) {
        self.next_id += 1;
        let id = PeerId(self.next_id);
        self.connected.insert(id, place);
        self.nodes[place].connected();
        let theirs = self.nodes[place].theirs();
        self.handle(Happening::Connected(id, theirs, format!("node {place}")));
    }

    fn handle(&mut self, happening: Happening) {
        let orders = self.core.handle(happening, self.now, UNIX).unwrap();
        self.obey(orders);
    }

    /// Steps until a line with this text was to be printed, and could not be.
    pub(crate) fn run_until_print_fails(&mut self, part: &'static str) {
        for _ in 0..20_000 {
            if let Some(follower) = &mut self.core.follower {
                follower.announcer().lines.fails_at = Some(part);
            }
            let Some((id, message)) = self.queue.pop_front() else {
                self.step();
                continue;
            };
            match self.core.handle(Happening::Message(id, message), self.now, UNIX) {
                Ok(orders) => self.obey(orders),
                Err(_) => return,
            }
        }
        panic!("nothing with {part} was to be printed");
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Send(id, message) => {
                    let Some(place) = self.connected.get(&id) else { continue };
                    let answers = self.nodes[*place].answer(&message);
                    self.queue.extend(answers.into_iter().map(|answer| (id, answer)));
                }
                Order::Drop(id, why) => {
                    let place = self.connected.remove(&id).unwrap();
                    self.dropped.push((place, why));
                }
                Order::Ban(id, why) => {
                    let place = self.connected.remove(&id).unwrap();
                    self.banned.push((place, why));
                }
            }
        }
    }

    /// One message, or some time. Peers that were dropped come back.
    pub(crate) fn step(&mut self) {
        if let Some((id, message)) = self.queue.pop_front() {
            if self.connected.contains_key(&id) {
                self.taken += 1;
                self.handle(Happening::Message(id, message));
            }
            return;
        }
        self.now += Duration::from_secs(5);
        for place in 0..self.nodes.len() {
            let is_banned = self.banned.iter().any(|(banned, _)| *banned == place);
            if !is_banned && self.connected.values().all(|up| *up != place) {
                self.connect(place);
            }
        }
        self.handle(Happening::Tick);
    }

    pub(crate) fn is_done(&mut self) -> bool {
        self.queue.is_empty() && self.core.look_for_end(self.now).unwrap()
    }

    /// Steps until all is answered.
    pub(crate) fn run(&mut self) {
        for _ in 0..20_000 {
            if self.is_done() {
                return;
            }
            self.step();
        }
        let (dropped, banned) = (self.dropped.last(), self.banned.last());
        panic!("it does not come to an end: {dropped:?} {banned:?}");
    }

    /// A node has other blocks now, and announces the last.
    pub(crate) fn announce(&mut self, place: usize, node: Node) {
        self.nodes[place] = node;
        let message = self.nodes[place].announcement();
        let up = self.connected.iter().find(|(_, up)| **up == place);
        let id = *up.unwrap().0;
        self.queue.push_back((id, message));
        self.step();
    }

    /// The lines so far, which are forgotten.
    pub(crate) fn lines(&mut self) -> Vec<Value> {
        let Some(follower) = &mut self.core.follower else { return Vec::new() };
        let text = follower.announcer().lines.kept.replace(String::new()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// `script:HEX`.
pub(crate) fn item(script: &Script) -> String {
    format!("script:{}", hex::encode(script))
}

/// The lines of one kind.
pub(crate) fn of<'a>(lines: &'a [Value], event: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["event"] == event)
}
