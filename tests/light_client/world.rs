//! A client among test nodes. Messages are exchanged in memory, and time passes when nothing else
//! happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{BlockHash, Network, Txid};
use chainsieve::btc::client::{
    Action, Config, Event, File, Hit, LightClient, News, Protocol, Update, Wallet, WalletId,
    WatchId, Write,
};
use chainsieve::btc::peer::PeerId;

use super::mined::{Chain, UNIX};
use super::node::Node;
use super::storage::Storage;
use testkit::Rng;

/// Returns the configuration of most tests.
pub(crate) fn config(protocol: Protocol) -> Config {
    let mut config = Config::new(Network::Regtest, [7; 16]);
    config.protocol = protocol;
    config.spot_audits = 0;
    config.in_flight = 4;
    config
}

/// A client, its storage, its nodes, and the messages in flight between them.
pub(crate) struct World {
    pub(crate) client: LightClient,
    config: Config,
    pub(crate) wallets: BTreeMap<WalletId, Wallet>,
    pub(crate) storage: Storage,
    /// Number of calls that added items.
    pub(crate) watched: u64,
    /// `true` if writes are durable at once. Otherwise [`store`](Self::store) makes them durable.
    pub(crate) stores_at_once: bool,
    pub(crate) nodes: Vec<Node>,
    /// The node of each connection.
    connected: BTreeMap<PeerId, usize>,
    next_id: u64,
    queues: VecDeque<(PeerId, NetworkMessage)>,
    reads: VecDeque<File>,
    pub(crate) now: Duration,
    /// The nodes that were disconnected, with the reason. Banned nodes are not connected again.
    pub(crate) dropped: Vec<(usize, String)>,
    pub(crate) banned: Vec<(usize, String)>,
    /// Number of messages that the client has taken.
    pub(crate) taken: usize,
    /// Updates that no test has taken yet.
    updates: Vec<Update>,
    /// The requested blocks, with `true` if the block was found.
    pub(crate) blocks: Vec<(BlockHash, bool)>,
    /// Number of writes of the state, and of all other writes.
    pub(crate) writes: (usize, usize),
    /// The last block whose header each connection has sent.
    shown: BTreeMap<PeerId, BlockHash>,
    /// Connections that have left a request without an answer.
    owing: BTreeSet<PeerId>,
    /// Time that has passed while messages of a connection were waiting.
    delays: BTreeMap<PeerId, Duration>,
}

impl World {
    pub(crate) fn new(config: Config, wallets: &[(&str, Wallet)], nodes: &[Node]) -> Self {
        let wallets = wallets.iter().map(|(id, wallet)| ((*id).into(), wallet.clone()));
        Self::resume(config, wallets.collect(), nodes, Storage::default())
    }

    /// Starts another run with the same storage.
    pub(crate) fn resume(
        config: Config,
        wallets: BTreeMap<WalletId, Wallet>,
        nodes: &[Node],
        storage: Storage,
    ) -> Self {
        let mut world = Self {
            client: LightClient::new(config.clone(), &storage.kept()).unwrap(),
            config,
            wallets,
            storage,
            watched: 0,
            stores_at_once: true,
            nodes: nodes.to_vec(),
            connected: BTreeMap::new(),
            next_id: 0,
            queues: VecDeque::new(),
            reads: VecDeque::new(),
            now: Duration::from_secs(UNIX),
            dropped: Vec::new(),
            banned: Vec::new(),
            taken: 0,
            updates: Vec::new(),
            blocks: Vec::new(),
            writes: (0, 0),
            shown: BTreeMap::new(),
            owing: BTreeSet::new(),
            delays: BTreeMap::new(),
        };
        world.begin();
        world
    }

    /// Gives the wallets to the client, and connects every node.
    fn begin(&mut self) {
        for (id, wallet) in self.wallets.clone() {
            self.watched += 1;
            self.handle(Event::Watch(WatchId(self.watched), id, Box::new(wallet)));
        }
        for place in 0..self.nodes.len() {
            self.call(place);
        }
    }

    /// Kills the process and starts it again.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        self.storage.crash(rng);
        self.start_over();
    }

    /// Ends the process in order and starts it again.
    pub(crate) fn restart(&mut self) {
        self.handle(Event::Save);
        self.store(usize::MAX);
        self.start_over();
    }

    fn start_over(&mut self) {
        self.client = LightClient::new(self.config.clone(), &self.storage.kept()).unwrap();
        self.connected.clear();
        self.queues.clear();
        self.reads.clear();
        self.updates.clear();
        self.begin();
    }

    pub(crate) fn watch(&mut self, id: &str, wallet: &Wallet) {
        self.wallets.insert(id.into(), wallet.clone());
        self.watched += 1;
        self.handle(Event::Watch(WatchId(self.watched), id.into(), Box::new(wallet.clone())));
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.wallets.remove(&id.into());
        self.handle(Event::Forget(id.into()));
    }

    pub(crate) fn handle(&mut self, event: Event) {
        let actions = self.client.handle(event, self.now);
        self.obey(actions);
        if self.stores_at_once {
            self.store(usize::MAX);
        }
    }

    /// Makes this many writes durable, and tells the client.
    pub(crate) fn store(&mut self, count: usize) {
        while let Some(id) = self.storage.store(count) {
            let actions = self.client.handle(Event::Stored(id), self.now);
            self.obey(actions);
            // With a limit, writes that follow from this one stay pending.
            if count != usize::MAX {
                break;
            }
        }
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(id, message) => {
                    let Some(place) = self.connected.get(&id) else { continue };
                    let answers = self.nodes[*place].answer(&message);
                    let is_question = matches!(
                        message,
                        NetworkMessage::GetHeaders(_)
                            | NetworkMessage::GetCFCheckpt(_)
                            | NetworkMessage::GetCFHeaders(_)
                            | NetworkMessage::GetCFilters(_)
                            | NetworkMessage::GetData(_)
                    );
                    if is_question && answers.is_empty() {
                        self.owing.insert(id);
                    }
                    self.queues.extend(answers.into_iter().map(|answer| (id, answer)));
                }
                Action::Disconnect(id, why) => {
                    let place = self.connected.remove(&id).unwrap();
                    self.queues.retain(|(of, _)| *of != id);
                    let list =
                        if why.is_misbehaviour() { &mut self.banned } else { &mut self.dropped };
                    list.push((place, why.to_string()));
                }
                Action::Write(id, write) => {
                    let is_state = matches!(write, Write::Replace { file: File::State, .. });
                    let count = if is_state { &mut self.writes.0 } else { &mut self.writes.1 };
                    *count += 1;
                    self.storage.write(id, write);
                }
                Action::Read(file) => self.reads.push_back(file),
                Action::Update(update) => self.updates.push(update),
                Action::Block(hash, result) => {
                    if let Ok(block) = &result {
                        assert_eq!(block.block_hash(), hash);
                    }
                    self.blocks.push((hash, result.is_ok()));
                }
                other => panic!("an unknown action: {other:?}"),
            }
        }
    }

    fn is_banned(&self, place: usize) -> bool {
        self.banned.iter().any(|(banned, _)| *banned == place)
    }

    pub(crate) fn is_up(&self, place: usize) -> bool {
        self.connected.values().any(|up| *up == place)
    }

    fn connection(&self, place: usize) -> Option<PeerId> {
        self.connected.iter().find(|(_, up)| **up == place).map(|(id, _)| *id)
    }

    /// Connects a node, unless it is connected or banned.
    pub(crate) fn call(&mut self, place: usize) {
        if self.is_banned(place) || self.is_up(place) {
            return;
        }
        self.next_id += 1;
        let id = PeerId(self.next_id);
        self.connected.insert(id, place);
        self.nodes[place].connected();
        let info = self.nodes[place].info(&format!("node {place}"));
        self.handle(Event::Connected(id, info));
    }

    pub(crate) fn hang_up(&mut self, place: usize) {
        let Some(id) = self.connection(place) else { return };
        self.connected.remove(&id);
        self.queues.retain(|(of, _)| *of != id);
        self.handle(Event::Disconnected(id));
    }

    /// Queues a message that a node sends unasked.
    pub(crate) fn push(&mut self, place: usize, message: NetworkMessage) {
        if let Some(id) = self.connection(place) {
            self.queues.push_back((id, message));
        }
    }

    /// Puts a node on another chain, and announces the chain if `tell` is true.
    pub(crate) fn switch(&mut self, place: usize, chain: &Chain, tell: bool) {
        self.nodes[place].switch(chain);
        if tell {
            let announcement = self.nodes[place].announcement();
            self.push(place, announcement);
        }
    }

    fn deliver(&mut self, at: usize) {
        let Some((id, message)) = self.queues.remove(at) else { return };
        if self.connected.contains_key(&id) {
            if let NetworkMessage::Headers(headers) = &message
                && let Some(last) = headers.last()
            {
                self.shown.insert(id, last.block_hash());
            }
            self.taken += 1;
            self.handle(Event::Message(id, message));
        }
    }

    fn read(&mut self) -> bool {
        let Some(file) = self.reads.pop_front() else { return false };
        let bytes = self.storage.read(file);
        self.handle(Event::Contents(file, bytes));
        true
    }

    /// Handles one message or file, or lets 5 s pass and connects dropped peers again.
    pub(crate) fn step(&mut self) {
        if self.read() {
            return;
        }
        if !self.queues.is_empty() {
            return self.deliver(0);
        }
        for place in 0..self.nodes.len() {
            self.call(place);
        }
        self.tick(5_000);
    }

    /// Handles the next message of a random peer, or a requested file.
    pub(crate) fn step_any(&mut self, rng: &mut Rng) {
        if rng.one_in(3) && self.read() {
            return;
        }
        let ids: BTreeSet<_> = self.queues.iter().map(|(id, _)| *id).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        if ids.is_empty() {
            return self.step();
        }
        let id = *rng.pick(&ids);
        let at = self.queues.iter().position(|(of, _)| *of == id).unwrap();
        self.deliver(at);
    }

    /// Returns `true` if an honest node has shown the client's last block, has left no request
    /// without an answer, and had its messages delivered in time. The client must then wait for the
    /// node, and believe no liar instead.
    pub(crate) fn has_honest_voice(&self) -> bool {
        let tip = self.client.chain().tip().hash;
        self.connected.iter().any(|(id, place)| {
            let node = &self.nodes[*place];
            let is_prompt = self.delays.get(id).is_none_or(|it| *it < Duration::from_secs(20));
            node.fault.is_none()
                && node.is_ready
                && node.chain.tip().hash == tip
                && self.shown.get(id) == Some(&tip)
                && !self.owing.contains(id)
                && is_prompt
        })
    }

    pub(crate) fn tick(&mut self, millis: u64) {
        let time = Duration::from_millis(millis);
        let waiting: BTreeSet<_> = self.queues.iter().map(|(id, _)| *id).collect();
        for id in waiting {
            *self.delays.entry(id).or_default() += time;
        }
        self.now += Duration::from_millis(millis);
        self.handle(Event::Tick);
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.queues.is_empty()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.queues.is_empty() && self.reads.is_empty() && self.client.is_caught_up()
    }

    /// Steps until everything is answered.
    pub(crate) fn run(&mut self) {
        for _ in 0..20_000 {
            if self.is_done() {
                return;
            }
            self.step();
        }
        let (dropped, banned) = (self.dropped.last(), self.banned.last());
        panic!("the run does not end: {dropped:?} {banned:?}");
    }

    /// Puts a node on another chain, announces the chain's last block, and runs until everything is
    /// answered.
    pub(crate) fn announce(&mut self, place: usize, chain: &Chain) {
        self.switch(place, chain, true);
        self.step();
        self.run();
    }

    /// Returns the updates so far, and removes them.
    pub(crate) fn updates(&mut self) -> Vec<Update> {
        core::mem::take(&mut self.updates)
    }
}

/// Returns height and txid of the hits in blocks, in the order of the updates.
pub(crate) fn hits(updates: &[Update]) -> Vec<(u32, Txid)> {
    let placed = all_hits(updates).into_iter();
    placed.filter_map(|hit| Some((hit.place?.block.height, hit.txid))).collect()
}

/// Returns all hits, unconfirmed ones included.
pub(crate) fn all_hits(updates: &[Update]) -> Vec<Hit> {
    let hits = updates.iter().filter_map(|update| match &update.news {
        News::Hit(hit) => Some((**hit).clone()),
        _ => None,
    });
    hits.collect()
}

/// Returns height and txid of the withdrawn hits.
pub(crate) fn withdrawn(updates: &[Update]) -> Vec<(u32, Txid)> {
    let gone = updates.iter().filter_map(|update| match &update.news {
        News::Withdrawn(hit) => Some((hit.place?.block.height, hit.txid)),
        _ => None,
    });
    gone.collect()
}
