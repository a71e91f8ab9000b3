//! Several peers at a time: each is called, read from, called again after a wait, and banned after
//! misbehaviour.
//!
//! Of one peer, 4 MB of messages are queued at most and one more is being read; 8 MB at most are
//! queued to be sent, of which requests are a small part and transactions may be most: with eight
//! peers, 128 MB at most. At most 1,024 events of all peers are queued; an owner that does not call
//! [`Pool::wait`] slows the peers down by TCP.
//!
//! Threads: two for each connection, one for each call under way, at most one that resolves the
//! names of seeds or three that ask seeds through the proxy. All end after the pool is dropped, a
//! call under way when its timeout has passed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::peer::PeerId;
use chainsieve::btc::protocol::USER_AGENT;

use super::book::{AddressBook, AddressState, Moment, Place, Wish};
use super::chain::Chain;
use super::connection::{Connection, Incoming, SendError};
use super::dial::{Answered, Route, ask_seed, call, fetch};
use super::events::{CallError, EndReason, PeerNote, PoolEvent};
use super::gossip::{Allowance, Heard, heard};
use super::handshake::{Ours, Theirs};
use super::netgroup::Group;
use super::random::Random;
use super::target::{Host, Target};

/// A peer that has sent nothing for this long is pinged.
const PING_AFTER: Duration = Duration::from_mins(1);
/// Events of all peers that are queued.
const MAX_EVENTS: usize = 1_024;
/// Seeds are asked again after this time, while they are needed.
const SEEDS_AGAIN: Duration = Duration::from_mins(1);
/// How long the addresses of an earlier run are called before seeds are asked: Core's
/// `DNSSEEDS_DELAY_FEW_PEERS`.
const SEEDS_LATER: Duration = Duration::from_secs(11);
/// Seeds that are asked at a time through a proxy.
const MAX_FETCHES: usize = 3;
/// Connected peers that are asked for addresses.
const MAX_ASKED: usize = 3;
/// Between two calls of addresses that the user did not name: when our own network is down, calls
/// fail at once, and the book is not to be called through in a second.
const CALL_EVERY: Duration = Duration::from_millis(100);
/// Between two searches of the book for an address to call.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest wait for an event before timers are looked at.
const STEP: Duration = Duration::from_millis(50);
/// Once this many addresses were called, the owner need not wait for further ones.
const ENOUGH_CALLED: usize = 256;

/// What the threads report.
#[derive(Debug)]
enum Told {
    Called(Place, Result<Answered, CallError>),
    Incoming(PeerId, Incoming),
    Seeded(Vec<(Group, Vec<Heard>)>),
    Fetched(String, Result<Vec<Heard>, CallError>),
    Wake,
}

/// Makes [`Pool::wait`] return early. Cheap to clone; of use from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    sender: SyncSender<Told>,
    set: Arc<AtomicBool>,
}

impl Waker {
    /// Makes the wait under way return, or the next one if there is none. Wakes before that count
    /// as one.
    pub fn wake(&self) {
        if !self.set.swap(true, Ordering::AcqRel) {
            // A full queue wakes by itself.
            drop(self.sender.try_send(Told::Wake));
        }
    }
}

/// A peer that is connected.
#[derive(Debug)]
struct Peer {
    place: Place,
    connection: Connection,
    theirs: Theirs,
    since: Instant,
    heard: Instant,
    pinged: bool,
    /// Asked for addresses.
    asked: bool,
    allowance: Allowance,
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No peer is named, the book is empty and no seed is to be asked.
    #[error("nobody to call: no peers are named, and there are no seeds")]
    NobodyToCall,
    /// A peer named by the user is reached through a proxy only.
    #[error("{0} needs a proxy")]
    NeedsProxy(Target),
}

/// Whom to call, and what to claim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The chain.
    pub chain: Chain,
    /// Peers that the user names: always called, never evicted from the book. The first 256 count.
    pub peers: Vec<Target>,
    /// Whether others than `peers` are called too. Without any `peers` they always are.
    pub others: bool,
    /// Whether seeds are asked when addresses are needed.
    pub use_seeds: bool,
    /// Connections at a time, calls under way included.
    pub max_peers: usize,
    /// What peers should serve: addresses with it are called first. See [`Pool::want`].
    pub services: ServiceFlags,
    /// A SOCKS5 proxy for all connections. With one, no name is resolved here.
    pub proxy: Option<SocketAddr>,
    /// What we claim to be (BIP14).
    pub user_agent: String,
    /// Whether peers are to announce transactions before a filter is loaded (BIP37).
    pub relay: bool,
    /// The height of our chain. See [`Pool::set_height`].
    pub start_height: u32,
}

impl PoolConfig {
    /// Four peers of a chain, found by its seeds; no proxy.
    pub fn new(chain: Chain) -> Self {
        Self {
            chain,
            peers: Vec::new(),
            others: false,
            use_seeds: true,
            max_peers: 4,
            services: ServiceFlags::NETWORK | ServiceFlags::WITNESS,
            proxy: None,
            user_agent: USER_AGENT.into(),
            relay: false,
            start_height: 0,
        }
    }

    fn is_automatic(&self) -> bool {
        self.others || self.peers.is_empty()
    }
}

/// An address that was called in this run, for a list.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AddressStatus<'a> {
    /// The address.
    pub target: &'a Target,
    /// Where it stands.
    pub state: AddressState,
    /// What the peer claims, while it is connected.
    pub theirs: Option<&'a Theirs>,
}

/// All peers.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    book: AddressBook,
    random: Random,
    peers: BTreeMap<PeerId, Peer>,
    next_id: u64,
    /// Calls under way.
    calling: usize,
    /// Seeds that are asked through the proxy.
    fetching: usize,
    nonce: u64,
    sender: SyncSender<Told>,
    told: Receiver<Told>,
    woken: Arc<AtomicBool>,
    ready: VecDeque<PoolEvent>,
    start: Instant,
    /// When seeds are asked next; `None` if never.
    seeds_due: Option<Duration>,
    /// The next automatic call is not before this.
    call_after: Duration,
    /// The book is not looked through before this.
    look_after: Duration,
}

impl Pool {
    /// A pool that calls the peers of `config`, and others by `book`. Nobody is called before the
    /// first [`wait`](Self::wait). `seed` has to be random: [`Random::seed`].
    ///
    /// # Errors
    /// [`PoolError`]: there is no address to call, or one that needs a proxy and there is none.
    pub fn new(config: PoolConfig, book: AddressBook, seed: [u8; 16]) -> Result<Self, PoolError> {
        let mut book = book;
        for target in &config.peers {
            if config.proxy.is_none() && matches!(target.host, Host::Onion(_)) {
                return Err(PoolError::NeedsProxy(target.clone()));
            }
            book.add_named(target.clone());
        }
        let asks_seeds =
            config.use_seeds && config.is_automatic() && !config.chain.seeds.is_empty();
        if !asks_seeds && book.places(config.is_automatic()).next().is_none() {
            return Err(PoolError::NobodyToCall);
        }
        let first = if book.is_empty() { Duration::ZERO } else { SEEDS_LATER };
        let mut random = Random::new(seed);
        let (sender, told) = sync_channel(MAX_EVENTS);
        Ok(Self {
            config,
            book,
            peers: BTreeMap::new(),
            next_id: 0,
            calling: 0,
            fetching: 0,
            // Zero stands for none in a version message.
            nonce: random.number().max(1),
            random,
            sender,
            told,
            woken: Arc::default(),
            ready: VecDeque::new(),
            start: Instant::now(),
            seeds_due: asks_seeds.then_some(first),
            call_after: Duration::ZERO,
            look_after: Duration::ZERO,
        })
    }

    /// Time since the pool began: the `now` of machines that it drives.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn moment(&self) -> Moment {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Moment { elapsed: self.now(), unix: unix.map_or(0, |since| since.as_secs()) }
    }

    /// Waits for an event, and calls whoever is due meanwhile. Returns `None` after `timeout`, or
    /// earlier if a [`Waker`] wakes it.
    pub fn wait(&mut self, timeout: Duration) -> Option<PoolEvent> {
        let begun = Instant::now();
        loop {
            self.call_due();
            self.ping_silent();
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.woken.swap(false, Ordering::AcqRel) {
                return None;
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if let Ok(told) = self.told.recv_timeout(left.min(STEP)) {
                self.take(told);
            }
            // What leads to no event must not keep the caller beyond its timeout.
            if begun.elapsed() >= timeout {
                return self.ready.pop_front();
            }
        }
    }

    /// An event that has happened already, without waiting. Nobody is called and no timer is looked
    /// at: that is [`wait`](Self::wait)'s part.
    pub fn try_next(&mut self) -> Option<PoolEvent> {
        while self.ready.is_empty() {
            self.take(self.told.try_recv().ok()?);
        }
        self.ready.pop_front()
    }

    /// A note or event that the owner's own calls have led to, without looking at what peers sent.
    /// At the end of a run, this takes the last notes.
    pub fn ready(&mut self) -> Option<PoolEvent> {
        self.ready.pop_front()
    }

    /// What makes [`wait`](Self::wait) return early.
    pub fn waker(&self) -> Waker {
        Waker { sender: self.sender.clone(), set: self.woken.clone() }
    }

    /// The address book, to be kept.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// The chain.
    pub fn chain(&self) -> &Chain {
        &self.config.chain
    }

    /// The services that are wanted of peers.
    pub fn wanted(&self) -> ServiceFlags {
        self.config.services
    }

    /// Wants these services too: addresses that are said to have them are called first. Peers that
    /// lack them stay connected; [`is_full_before_others`](Self::is_full_before_others) tells when
    /// one is in the way.
    pub fn want(&mut self, services: ServiceFlags) {
        self.config.services |= services;
    }

    /// Wants these services no longer.
    pub fn unwant(&mut self, services: ServiceFlags) {
        self.config.services.remove(services);
    }

    /// Sets the height that is claimed in handshakes.
    pub fn set_height(&mut self, height: u32) {
        self.config.start_height = height;
    }

    /// The name of a connected peer's address.
    pub fn name(&self, id: PeerId) -> Option<String> {
        let peer = self.peers.get(&id)?;
        Some(self.book.target(peer.place)?.to_string())
    }

    /// The connected peers.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, &Theirs)> {
        self.peers.iter().map(|(id, peer)| (*id, &peer.theirs))
    }

    /// The addresses that were called in this run, by when they came into the book.
    pub fn addresses(&self) -> impl Iterator<Item = AddressStatus<'_>> {
        let unix = self.moment().unix;
        self.places().filter_map(move |place| {
            let up = self.peers.values().find(|peer| peer.place == place);
            let state = match up {
                Some(_) => AddressState::Connected,
                None => self.book.state(place, unix),
            };
            if state == AddressState::Idle && !self.book.was_called(place) {
                return None;
            }
            let target = self.book.target(place)?;
            Some(AddressStatus { target, state, theirs: up.map(|peer| &peer.theirs) })
        })
    }

    /// Returns `true` if every address was called and the call is over, or 256 were, or as many
    /// peers are connected as wanted: it is of no use to wait for more.
    pub fn all_tried(&self) -> bool {
        if self.peers.len() >= self.config.max_peers {
            return true;
        }
        let called = self.places().filter(|place| self.book.was_called(*place)).count();
        let all = self.places().count();
        self.calling == 0 && all > 0 && called >= all.min(ENOUGH_CALLED)
    }

    /// Returns `true` if every peer that may be called is connected or banned: no other will come.
    pub fn all_up(&self) -> bool {
        let unix = self.moment().unix;
        self.seeds_due.is_none()
            && self.places().all(|place| {
                self.book.state(place, unix) == AddressState::Banned
                    || self.peers.values().any(|peer| peer.place == place)
            })
    }

    /// Returns `true` if as many peers are connected as wanted, and there are others to be called:
    /// for the first time in this run, or at all if those connected are not `of_use`.
    pub fn is_full_before_others(&self, of_use: bool) -> bool {
        self.peers.len() >= self.config.max_peers
            && ((!of_use && self.seeds_due.is_some())
                || self.book.has_other(self.moment(), self.wish(), !of_use))
    }

    /// Returns `true` if every peer that may be called is banned, and no seeds are to be asked.
    pub fn all_banned(&self) -> bool {
        let unix = self.moment().unix;
        self.seeds_due.is_none()
            && self.places().all(|place| self.book.state(place, unix) == AddressState::Banned)
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.book.places(self.config.is_automatic())
    }

    fn wish(&self) -> Wish {
        Wish {
            services: self.config.services,
            automatic: self.config.is_automatic(),
            onion: self.config.proxy.is_some(),
        }
    }

    /// Queues a message to a peer. One that does not read what it is sent is disconnected, and the
    /// event [`PoolEvent::Disconnected`] follows.
    pub fn send(&mut self, id: PeerId, message: NetworkMessage) {
        let Some(peer) = self.peers.get(&id) else { return };
        if peer.connection.send(message) == Err(SendError::Full) {
            self.end(id, EndReason::NotReading);
            self.ready.push_back(PoolEvent::Disconnected(id));
        }
    }

    /// Closes a connection. The address is called again after a while.
    pub fn drop_peer(&mut self, id: PeerId, why: &str) {
        self.end(id, EndReason::Owner(why.into()));
    }

    /// Closes a connection and bans the address for 24 hours: one that the user named with its
    /// port, else the whole host.
    pub fn ban(&mut self, id: PeerId, why: &str) {
        self.ban_peer(id, EndReason::Owner(why.into()));
    }

    fn end(&mut self, id: PeerId, why: EndReason) {
        let Some(peer) = self.peers.remove(&id) else { return };
        let (place, lasted) = (peer.place, peer.since.elapsed());
        let again = self.book.ended(place, lasted, false, self.moment(), &mut self.random);
        self.note(place, |address| PeerNote::Disconnected { address, why, again });
    }

    fn ban_peer(&mut self, id: PeerId, why: EndReason) {
        let Some(peer) = self.peers.remove(&id) else { return };
        self.ban_place(peer.place, why);
    }

    fn ban_place(&mut self, place: Place, why: EndReason) {
        self.book.ban(place, self.moment().unix);
        self.note(place, |address| PeerNote::Banned { address, why });
    }

    fn note(&mut self, place: Place, note: impl FnOnce(String) -> PeerNote) {
        let address = self.book.target(place).map(ToString::to_string).unwrap_or_default();
        self.ready.push_back(PoolEvent::Note(note(address)));
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Wake => {}
            Told::Seeded(all) => {
                let addresses = all.iter().map(|(_, found)| found.len()).sum();
                for (source, found) in all {
                    self.hear(found, source);
                }
                self.ready.push_back(PoolEvent::Note(PeerNote::Seeds { addresses }));
            }
            Told::Fetched(seed, result) => {
                self.fetching = self.fetching.saturating_sub(1);
                let note = match result {
                    Ok(found) => {
                        let addresses = found.len();
                        self.hear(found, Group::of_seed(&seed));
                        PeerNote::Seeds { addresses }
                    }
                    Err(why) => PeerNote::SeedFailed { seed, why },
                };
                self.ready.push_back(PoolEvent::Note(note));
            }
            Told::Called(place, result) => {
                self.calling = self.calling.saturating_sub(1);
                match result.and_then(|answered| self.connected(place, answered)) {
                    Ok(()) => {}
                    Err(why) => self.call_failed(place, why),
                }
            }
            Told::Incoming(id, Incoming::Frame(frame, credit)) => {
                let Some(peer) = self.peers.get_mut(&id) else { return };
                (peer.heard, peer.pinged) = (Instant::now(), false);
                let decoded = frame.decode();
                drop((frame, credit));
                match decoded {
                    Ok(message) => self.message(id, message),
                    Err(error) => self.misbehaved(id, error.into()),
                }
            }
            Told::Incoming(id, Incoming::Closed(error)) => {
                if !self.peers.contains_key(&id) {
                    return;
                }
                if error.is_misbehaviour() {
                    self.misbehaved(id, error.into());
                } else {
                    self.end(id, error.into());
                    self.ready.push_back(PoolEvent::Disconnected(id));
                }
            }
        }
    }

    fn message(&mut self, id: PeerId, message: NetworkMessage) {
        if let NetworkMessage::Ping(nonce) = message {
            self.send(id, NetworkMessage::Pong(nonce));
        }
        match heard(&message) {
            Some(Ok(found)) => self.told_addresses(id, found),
            Some(Err(error)) => self.misbehaved(id, error.into()),
            None if self.peers.contains_key(&id) => {
                self.ready.push_back(PoolEvent::Message(id, message));
            }
            None => {}
        }
    }

    fn misbehaved(&mut self, id: PeerId, why: EndReason) {
        self.ban_peer(id, why);
        self.ready.push_back(PoolEvent::Disconnected(id));
    }

    fn told_addresses(&mut self, id: PeerId, mut found: Vec<Heard>) {
        if !self.config.is_automatic() {
            return;
        }
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let allowed = peer.allowance.take(found.len(), now);
        let source = self.book.source(peer.place);
        // Which are taken is not for the peer to choose.
        self.random.shuffle(&mut found);
        found.truncate(allowed);
        self.hear(found, source);
    }

    fn hear(&mut self, mut found: Vec<Heard>, source: Group) {
        let unix = self.moment().unix;
        self.random.shuffle(&mut found);
        for heard in found {
            // What cannot be reached has no claim to a place.
            if self.config.proxy.is_none() && matches!(heard.target.host, Host::Onion(_)) {
                continue;
            }
            self.book.hear(heard, source, unix, &mut self.random);
        }
    }

    fn call_failed(&mut self, place: Place, why: CallError) {
        match why {
            CallError::Handshake(error) if error.is_misbehaviour() => {
                self.ban_place(place, EndReason::Handshake(error));
            }
            why => {
                // Without any connection, the fault may be our network's.
                let blame = why.is_about_the_peer() && !self.peers.is_empty();
                let (at, random) = (self.moment(), &mut self.random);
                let again = self.book.ended(place, Duration::ZERO, blame, at, random);
                self.note(place, |address| PeerNote::NotConnected { address, why, again });
            }
        }
    }

    fn connected(&mut self, place: Place, answered: Answered) -> Result<(), CallError> {
        let Answered { stream, theirs, address } = answered;
        let at = self.moment();
        // The host may have been banned by another of its ports meanwhile.
        if self.book.state(place, at.unix) == AddressState::Banned {
            self.book.ended(place, Duration::ZERO, false, at, &mut self.random);
            return Ok(());
        }
        self.next_id += 1;
        let id = PeerId(self.next_id);
        let sender = self.sender.clone();
        let deliver = Box::new(move |incoming| sender.send(Told::Incoming(id, incoming)).is_ok());
        let connection = Connection::start(stream, self.config.chain.magic, deliver)
            .map_err(CallError::Thread)?;
        let group = address.and_then(|address| Group::of(&Host::Ip(address.ip())));
        self.book.succeeded(place, theirs.services, group, at.unix);
        self.note(place, |address| PeerNote::Connected {
            address,
            agent: theirs.user_agent.clone(),
            height: theirs.start_height,
            services: theirs.services,
        });
        let mut allowance = Allowance::new(self.now());
        let asked = self.peers.values().filter(|peer| peer.asked).count();
        let ask = self.config.is_automatic() && asked < MAX_ASKED && self.book.wants_more();
        if ask {
            allowance.asked();
            // Nothing is queued before it.
            let _sent = connection.send(NetworkMessage::GetAddr);
        }
        self.ready.push_back(PoolEvent::Connected(id, theirs.clone()));
        let since = Instant::now();
        let peer = Peer {
            place,
            connection,
            theirs,
            since,
            heard: since,
            pinged: false,
            asked: ask,
            allowance,
        };
        self.peers.insert(id, peer);
        Ok(())
    }

    fn ours(&self) -> Ours {
        Ours {
            magic: self.config.chain.magic,
            services: ServiceFlags::NONE,
            start_height: self.config.start_height,
            user_agent: self.config.user_agent.clone(),
            relay: self.config.relay,
            nonce: self.nonce,
        }
    }

    fn route(&mut self) -> Route {
        Route { proxy: self.config.proxy, isolation: self.random.number() }
    }

    fn call_due(&mut self) {
        let now = self.now();
        if now < self.look_after || self.peers.len() + self.calling >= self.config.max_peers {
            return;
        }
        self.look_after = now + LOOK_EVERY;
        let at = self.moment();
        let mut lacks_addresses = self.peers.is_empty();
        while self.peers.len() + self.calling < self.config.max_peers {
            let automatic =
                self.config.is_automatic() && now >= self.call_after && !self.waits_for_named(at);
            let wish = Wish { automatic, ..self.wish() };
            let Some(place) = self.book.due(at, wish, &mut self.random) else {
                lacks_addresses |= automatic;
                break;
            };
            if !self.book.is_named(place) {
                self.call_after = now + CALL_EVERY;
            }
            self.call(place);
        }
        if lacks_addresses && self.seeds_due.is_some_and(|due| due <= now) {
            self.seeds_due = Some(now + SEEDS_AGAIN);
            self.ask_seeds(at.unix);
        }
    }

    /// Whether the free connections are kept for named peers that are called again later: they get
    /// up to half of all.
    fn waits_for_named(&self, at: Moment) -> bool {
        let is_out = |place: &Place| {
            self.book.is_named(*place) && self.book.state(*place, at.unix) == AddressState::Idle
        };
        let out = self.book.places(false).filter(is_out).count();
        let kept = out.min(self.config.max_peers / 2);
        self.peers.len() + self.calling + kept >= self.config.max_peers
    }

    fn call(&mut self, place: Place) {
        let Some(target) = self.book.target(place).cloned() else { return };
        self.book.calls(place);
        self.calling += 1;
        let (sender, ours, route) = (self.sender.clone(), self.ours(), self.route());
        let run = move || drop(sender.send(Told::Called(place, call(&target, &ours, route))));
        if let Err(error) = spawn("peer call", run) {
            self.calling -= 1;
            self.call_failed(place, CallError::Thread(error));
        }
    }

    fn ask_seeds(&mut self, unix: u64) {
        let Chain { port, mut seeds, .. } = self.config.chain.clone();
        self.random.shuffle(&mut seeds);
        let (sender, services) = (self.sender.clone(), self.config.services);
        if self.config.proxy.is_none() {
            let run = move || {
                let mut all: Vec<(Group, Vec<Heard>)> = Vec::new();
                for seed in seeds {
                    let needed = all.iter().all(|(_, found)| found.is_empty());
                    let found = ask_seed(&seed, port, services, needed, unix);
                    all.push((Group::of_seed(&seed), found));
                }
                drop(sender.send(Told::Seeded(all)));
            };
            if let Err(error) = spawn("seeds", run) {
                let (seed, why) = ("seeds".to_owned(), CallError::Thread(error));
                self.ready.push_back(PoolEvent::Note(PeerNote::SeedFailed { seed, why }));
            }
            return;
        }
        for seed in seeds.into_iter().take(MAX_FETCHES.saturating_sub(self.fetching)) {
            let (sender, ours, route) = (sender.clone(), self.ours(), self.route());
            let name = seed.clone();
            let run = move || {
                // A seed may be given with a port, and as an onion service.
                let result = Target::parse(&name, port)
                    .map_err(|_| CallError::NoAddress)
                    .and_then(|target| fetch(&target, &ours, route));
                drop(sender.send(Told::Fetched(name, result)));
            };
            match spawn("seed", run) {
                Ok(()) => self.fetching += 1,
                Err(error) => {
                    let why = CallError::Thread(error);
                    self.ready.push_back(PoolEvent::Note(PeerNote::SeedFailed { seed, why }));
                }
            }
        }
    }

    fn ping_silent(&mut self) {
        let silent = self.peers.values_mut();
        for peer in silent.filter(|peer| !peer.pinged && peer.heard.elapsed() >= PING_AFTER) {
            peer.pinged = true;
            // A nonce that no fence of a session has, but by chance.
            let nonce = self.random.number();
            // A peer that does not read is noticed by what is sent for a reason.
            let _sent = peer.connection.send(NetworkMessage::Ping(nonce));
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests;
