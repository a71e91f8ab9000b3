//! A pool of peers. The pool dials addresses of the address book, receives and sends messages,
//! dials again after a back-off, and bans peers that break the protocol.
//!
//! Memory is bounded. For each peer, at most 4 MB of received messages are queued, one more message
//! (4 MB) is being read, and 8 MB are queued to be sent. For eight peers, and one more while no new
//! block arrives, these limits add up to 144 MB. At most 1,024 events of all peers are queued. If the owner does not call [`Pool::wait`],
//! TCP slows the peers down.
//!
//! An attacker who owns all peers of a pool could withhold blocks for ever. So the pool connects to one
//! more peer while no new block arrives ([`Pool::set_tip_is_stale`]), dials peers that served well in the
//! last run first, and tests untried addresses by short connections (Core's feelers). When the additional
//! peer has had time to send headers, the peer whose last new block is the oldest is disconnected, as in
//! Core. So an honest new peer stays, and a new peer that shows no block is disconnected. If the user named
//! the peers and allowed no others, no other peer is dialled.
//!
//! A pool has two threads for each connection, and one for each connection that is being opened.
//! One more thread resolves the names of seeds, or up to three threads ask the seeds through the
//! proxy. All threads end after the pool is dropped. A thread that is opening a connection ends
//! after its timeout at the latest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::peer::{PeerId, service_names};
use chainsieve::btc::protocol::USER_AGENT;

use super::address::{Allowance, Group, Heard, Host, NetworkParams, Target, heard};
use super::book::{
    AddressBook, AddressId, AddressState, GOOD_AFTER, MAX_ANCHORS, Moment, Random, Wish,
};
use super::connection::{Connection, EndReason, Received};
use super::dial::{CallError, Dialled, Route, ask_seed, call, fetch};
use super::handshake::{HandshakeError, Ours, Theirs};
use crate::driver::unix_time;
use crate::error::StartError;

/// A peer that has sent nothing for this time is pinged.
const PING_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of queued events of all peers.
const MAX_EVENTS: usize = 1_024;
/// Interval at which seeds are asked again while addresses are needed.
const SEEDS_AGAIN: Duration = Duration::from_secs(60);
/// Time for which only addresses of an earlier run are dialled before seeds are asked (Core's
/// `DNSSEEDS_DELAY_FEW_PEERS`).
const SEEDS_LATER: Duration = Duration::from_secs(11);
/// Maximum number of seeds that are asked through a proxy at the same time.
const MAX_FETCHES: usize = 3;
/// Maximum number of connected peers that are asked for addresses.
const MAX_ASKED: usize = 3;
/// Minimum time between two attempts to connect to addresses that the user did not name. While our
/// own network is down, attempts fail at once; without this limit they would use up the whole book
/// within a second.
const CALL_EVERY: Duration = Duration::from_millis(100);
/// Minimum time between two rounds of searches of the book for an address to dial. A search reads
/// the whole book, so without this limit, peers that send many messages would cause as many searches.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Minimum and maximum time between two short connections that test an untried address: 2 minutes
/// on average (Core's `FEELER_INTERVAL`).
const TEST_EVERY: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3 * 60)];
/// Maximum wait for an event before timers are checked.
const STEP: Duration = Duration::from_millis(50);
/// Number of dialled addresses from which on [`Pool::all_tried`] returns `true`.
const ENOUGH_CALLED: usize = 256;
/// Number of recent nonces that are compared with the nonces of peers: more than the connections
/// that are opened at the same time.
const MAX_NONCES: usize = 64;
/// Maximum number of reasons for bans that are kept: more addresses than a person reads through.
const MAX_REASONS: usize = 1_000;

/// An event of a pool.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A connection is open and its handshake is done.
    Connected(PeerId, Theirs),
    /// The peer sent this message. The pool has already answered pings.
    Message(PeerId, NetworkMessage),
    /// The connection has ended. This event is not reported for connections that the owner closes.
    Disconnected(PeerId),
    /// A note for a log. The owner need not act on the note.
    Note(PeerNote),
}

/// A note about an address or a seed. Its `Display` is a line for a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum PeerNote {
    /// A connection is open. All fields except the address are claims of the peer.
    Connected {
        /// The address that was dialled.
        address: String,
        /// The peer's user agent: printable ASCII.
        agent: String,
        /// Height of the peer's chain tip.
        height: u32,
        /// The services that the peer offers.
        services: ServiceFlags,
    },
    /// A short connection has shown that a node listens at the address. The connection is closed
    /// again.
    Tested {
        /// The address that was dialled.
        address: String,
    },
    /// An attempt to connect failed.
    NotConnected {
        /// The address that was dialled.
        address: String,
        /// Reason why the attempt failed.
        why: CallError,
        /// Back-off: the address is not dialled again before this time has passed.
        again: Duration,
    },
    /// A connection has ended.
    Disconnected {
        /// The address that was dialled.
        address: String,
        /// Reason why the connection ended.
        why: EndReason,
        /// Back-off: the address is not dialled again before this time has passed.
        again: Duration,
    },
    /// The peer has broken the protocol. The peer's address is not dialled again for 24 hours.
    Banned {
        /// The address that was dialled.
        address: String,
        /// The violation of the protocol.
        why: EndReason,
    },
    /// Seeds have answered: all of them by DNS, or one through a proxy.
    Seeds {
        /// Number of addresses in the answers, including duplicates.
        addresses: usize,
    },
    /// A seed could not be asked.
    SeedFailed {
        /// Name of the seed, or "seeds" if all of them failed.
        seed: String,
        /// Reason why the seed could not be asked.
        why: CallError,
    },
}

impl fmt::Display for PeerNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { address, agent, height, services } => {
                let services = service_names(*services).join("|");
                write!(
                    f,
                    "peer {address}: connected: {agent:?}, height {height}, services {services}"
                )
            }
            Self::Tested { address } => write!(f, "peer {address}: tested: a node listens"),
            Self::NotConnected { address, why, again } => {
                write!(f, "peer {address}: {why}; again in {:.0} s", again.as_secs_f64())
            }
            Self::Disconnected { address, why, again } => {
                let again = again.as_secs_f64();
                write!(f, "peer {address}: disconnected: {why}; again in {again:.0} s")
            }
            Self::Banned { address, why } => write!(f, "peer {address}: banned: {why}"),
            Self::SeedFailed { seed, why } => write!(f, "seed {seed}: {why}"),
            Self::Seeds { addresses } => write!(f, "seeds: {addresses} addresses"),
        }
    }
}

/// Reports of the threads to the pool.
#[derive(Debug)]
enum Told {
    /// The result of a connection to an address. The flag is `true` if the connection only tests
    /// the address.
    Called(AddressId, bool, Result<Dialled, CallError>),
    Received(PeerId, Received),
    Seeded(Vec<(Group, Vec<Heard>)>),
    Fetched(String, Result<Vec<Heard>, CallError>),
    Wake,
}

/// Makes [`Pool::wait`] return early, from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Waker {
    sender: SyncSender<Told>,
    set: Arc<AtomicBool>,
}

impl Waker {
    /// Makes the current call of [`Pool::wait`] return, or the next call if none is running.
    ///
    /// If this method is called several times before the return, the effect is the same as for one
    /// call.
    pub fn wake(&self) {
        if !self.set.swap(true, Ordering::AcqRel) {
            // If the queue is full, the pool has reports to process and wakes up anyway.
            drop(self.sender.try_send(Told::Wake));
        }
    }
}

/// A connected peer.
#[derive(Debug)]
struct Peer {
    place: AddressId,
    connection: Connection,
    theirs: Theirs,
    since: Instant,
    heard: Instant,
    pinged: bool,
    /// `true` if the peer was asked for addresses.
    asked: bool,
    allowance: Allowance,
    /// Time of the last new block that this peer was the first to show.
    last_block: Option<Duration>,
}

/// Configuration of a pool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The chain whose peers are dialled.
    pub chain: NetworkParams,
    /// Peers that the user names: always dialled, never evicted from the book. Only the first 256
    /// of these peers are used.
    pub peers: Vec<Target>,
    /// `true` if the pool also dials peers that are not in `peers`. If `peers` is empty, the pool
    /// always dials such peers.
    pub others: bool,
    /// `true` if seeds are asked when addresses are needed.
    pub use_seeds: bool,
    /// Maximum number of connections, including those that are being opened.
    pub max_peers: usize,
    /// Services that peers should offer: addresses that claim them are preferred. Peers that lack
    /// them stay connected: see [`Pool::is_full_before_others`].
    pub services: ServiceFlags,
    /// A SOCKS5 proxy for all connections. With a proxy, the local system resolves no names.
    pub proxy: Option<SocketAddr>,
    /// Our user agent (BIP14).
    pub user_agent: String,
    /// `true` if peers should announce transactions before a filter is loaded (BIP37).
    pub relay: bool,
    /// Height of our chain tip, sent in handshakes. See [`Pool::set_height`].
    pub start_height: u32,
}

impl PoolConfig {
    /// Creates a configuration with defaults: four peers, found through seeds, and no proxy.
    pub fn new(chain: NetworkParams) -> Self {
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

/// An address that was dialled in this run, with its state.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AddressStatus<'a> {
    /// Host and port of the address.
    pub target: &'a Target,
    /// The state of the address.
    pub state: AddressState,
    /// The peer's claims; `None` unless the peer is connected.
    pub theirs: Option<&'a Theirs>,
    /// Reason why the peer was banned. `None` if this address was not banned in this run: another
    /// port of its host may have been banned, or the ban is older. At most 1,000 reasons are kept.
    pub banned_for: Option<&'a str>,
}

/// A pool of connections to peers.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    book: AddressBook,
    random: Random,
    peers: BTreeMap<PeerId, Peer>,
    /// Reasons for the bans of this run, by address.
    banned_for: BTreeMap<String, String>,
    next_id: u64,
    /// Number of connections that are being opened.
    calling: usize,
    /// Number of seeds that are being asked through the proxy.
    fetching: usize,
    /// The nonces of the latest connections, in the order in which they were dialled.
    nonces: VecDeque<u64>,
    sender: SyncSender<Told>,
    told: Receiver<Told>,
    woken: Arc<AtomicBool>,
    ready: VecDeque<PoolEvent>,
    start: Instant,
    /// Time before which seeds are not asked; `None` if seeds are never asked.
    seeds_due: Option<Duration>,
    /// Time before which only addresses that the user named are dialled.
    call_after: Duration,
    /// Time before which the book is not searched for an address to dial.
    look_after: Duration,
    /// `true` while no new block arrives: see [`Pool::set_tip_is_stale`].
    tip_is_stale: bool,
    extra: ExtraPeer,
    /// Time before which no address is tested.
    test_after: Duration,
    /// `true` while an address is tested.
    is_testing: bool,
}

impl Pool {
    /// Creates a pool that dials the peers of `config` and, if allowed, other addresses of `book`.
    ///
    /// No address is dialled before the first call of [`wait`](Self::wait). `seed` must be random:
    /// see [`Random::seed`].
    ///
    /// # Errors
    /// Returns a [`StartError`] if there is no address to dial, or if a named peer needs a proxy and
    /// there is none.
    pub fn new(config: PoolConfig, book: AddressBook, seed: [u8; 16]) -> Result<Self, StartError> {
        let mut book = book;
        for target in &config.peers {
            if config.proxy.is_none() && matches!(target.host, Host::Onion(_)) {
                return Err(StartError::NeedsProxy(target.clone()));
            }
            book.add_named(target.clone());
        }
        let asks_seeds =
            config.use_seeds && config.is_automatic() && !config.chain.seeds.is_empty();
        if !asks_seeds && book.places(config.is_automatic()).next().is_none() {
            return Err(StartError::NobodyToCall);
        }
        // As in Core, stored addresses are dialled before seeds are asked. The stored addresses may
        // make a request to seeds unnecessary.
        let first = if book.is_empty() { Duration::ZERO } else { SEEDS_LATER };
        let (sender, told) = sync_channel(MAX_EVENTS);
        let mut random = Random::new(seed);
        let test_after = between(TEST_EVERY, &mut random);
        Ok(Self {
            config,
            book,
            peers: BTreeMap::new(),
            banned_for: BTreeMap::new(),
            next_id: 0,
            calling: 0,
            fetching: 0,
            nonces: VecDeque::new(),
            random,
            sender,
            told,
            woken: Arc::default(),
            ready: VecDeque::new(),
            start: Instant::now(),
            seeds_due: asks_seeds.then_some(first),
            call_after: Duration::ZERO,
            look_after: Duration::ZERO,
            tip_is_stale: false,
            extra: ExtraPeer::default(),
            test_after,
            is_testing: false,
        })
    }

    /// Returns the time since the pool was created, for state machines that need a clock.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn moment(&self) -> Moment {
        Moment { elapsed: self.now(), unix: unix_time().as_secs() }
    }

    /// Waits for an event. Meanwhile the pool dials due addresses and pings silent peers.
    ///
    /// Returns `None` after `timeout`, or earlier if a [`Waker`] wakes it.
    pub fn wait(&mut self, timeout: Duration) -> Option<PoolEvent> {
        let begun = Instant::now();
        loop {
            self.replace_worst(self.now());
            self.call_due();
            self.test_untried(self.now());
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
            // Reports that lead to no event must not extend the wait beyond the timeout.
            if begun.elapsed() >= timeout {
                return self.ready.pop_front();
            }
        }
    }

    /// Returns an event that has already happened, without waiting.
    ///
    /// Unlike [`wait`](Self::wait), this method dials no address and pings no peer.
    pub fn try_next(&mut self) -> Option<PoolEvent> {
        while self.ready.is_empty() {
            self.take(self.told.try_recv().ok()?);
        }
        self.ready.pop_front()
    }

    /// Returns a queued event or note, without processing further messages of peers.
    ///
    /// At the end of a run, this returns the notes about the last calls of the owner.
    pub fn ready(&mut self) -> Option<PoolEvent> {
        self.ready.pop_front()
    }

    /// Returns a handle that makes [`wait`](Self::wait) return early.
    pub fn waker(&self) -> Waker {
        Waker { sender: self.sender.clone(), set: self.woken.clone() }
    }

    /// Returns the address book.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// Encodes the address book, to store it. The peers that have served best so far become the
    /// anchors of the next run, which dials them first.
    pub fn encode_book(&mut self) -> Vec<u8> {
        self.choose_anchors(self.now());
        self.book.encode(self.config.chain.magic)
    }

    /// Chooses the anchors: the peers that offer the wanted services and have been connected for
    /// the longest time.
    fn choose_anchors(&mut self, now: Duration) {
        let lasted = |peer: &Peer| now.saturating_sub(peer.since.duration_since(self.start));
        let good = self.peers.values().filter(|peer| {
            lasted(peer) >= GOOD_AFTER
                && peer.theirs.services.has(self.config.services)
                && !self.book.is_named(peer.place)
        });
        // Ids ascend with time, so the first peers are the oldest.
        let good: Vec<AddressId> = good.map(|peer| peer.place).take(MAX_ANCHORS).collect();
        // While our own network is down, the anchors of the last run are the best ones known.
        if !good.is_empty() {
            self.book.set_anchors(&good);
        }
    }

    /// Sets the tip as stale or not stale. It is stale if no new block has arrived for so long that
    /// the peers may withhold blocks.
    ///
    /// While the tip is stale, the pool connects to one peer more than the maximum, and repeats
    /// this every ten minutes. 45 seconds after the newest connection, the peer whose last new
    /// block is the oldest is disconnected: see [`brought_block`](Self::brought_block).
    pub fn set_tip_is_stale(&mut self, is_stale: bool) {
        self.tip_is_stale = is_stale;
    }

    /// Records that this peer was the first to show a new block.
    pub fn brought_block(&mut self, id: PeerId) {
        let now = self.now();
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.last_block = Some(now);
        }
    }

    /// Sets the height of our chain tip, which later handshakes send.
    pub fn set_height(&mut self, height: u32) {
        self.config.start_height = height;
    }

    /// Returns the address of a connected peer as text; `None` if the peer is not connected.
    pub fn name(&self, id: PeerId) -> Option<String> {
        let peer = self.peers.get(&id)?;
        Some(self.book.target(peer.place)?.to_string())
    }

    /// Returns the connected peers with their claims.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, &Theirs)> {
        self.peers.iter().map(|(id, peer)| (*id, &peer.theirs))
    }

    /// Returns the addresses that were dialled in this run, in the order in which they were added
    /// to the book.
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
            let is_banned = state == AddressState::Banned;
            let banned_for = self.banned_for.get(&target.to_string()).filter(|_| is_banned);
            Some(AddressStatus {
                target,
                state,
                theirs: up.map(|peer| &peer.theirs),
                banned_for: banned_for.map(String::as_str),
            })
        })
    }

    /// Returns `true` if waiting longer is unlikely to add peers.
    ///
    /// Waiting is unlikely to help if the maximum number of peers is connected, or if no connection
    /// is being opened and all addresses, or at least 256, were dialled in this run.
    pub fn all_tried(&self) -> bool {
        if self.peers.len() >= self.config.max_peers {
            return true;
        }
        let called = self.places().filter(|place| self.book.was_called(*place)).count();
        let all = self.places().count();
        self.calling == 0 && all > 0 && called >= all.min(ENOUGH_CALLED)
    }

    /// Returns `true` if every address that may be dialled is connected or banned, and no seed will
    /// be asked. In this case no other peer can be connected.
    pub fn all_up(&self) -> bool {
        self.all_banned_or(|place| self.peers.values().any(|peer| peer.place == place))
    }

    /// Returns `true` if the maximum number of peers is connected and a further address could be
    /// dialled in place of a connected peer.
    ///
    /// `of_use` is `true` if a connected peer offers the needed services. If `of_use` is `true`,
    /// only addresses that were not dialled in this run are considered. If `of_use` is `false`,
    /// seeds and addresses that were already dialled are considered too.
    pub fn is_full_before_others(&self, of_use: bool) -> bool {
        self.peers.len() >= self.config.max_peers
            && ((!of_use && self.seeds_due.is_some())
                || self.book.has_other(self.moment(), self.wish(), !of_use))
    }

    /// Returns `true` if every address that may be dialled is banned, and no seed will be asked.
    pub fn all_banned(&self) -> bool {
        self.all_banned_or(|_| false)
    }

    fn all_banned_or(&self, is_other: impl Fn(AddressId) -> bool) -> bool {
        let unix = self.moment().unix;
        let is_banned = |place| self.book.state(place, unix) == AddressState::Banned;
        self.seeds_due.is_none() && self.places().all(|place| is_banned(place) || is_other(place))
    }

    fn places(&self) -> impl Iterator<Item = AddressId> {
        self.book.places(self.config.is_automatic())
    }

    fn wish(&self) -> Wish {
        Wish {
            services: self.config.services,
            automatic: self.config.is_automatic(),
            onion: self.config.proxy.is_some(),
            // At least one peer is none of the anchors: whoever owned all peers of the last run
            // must not own all peers of this run.
            anchors: MAX_ANCHORS.min(self.config.max_peers.saturating_sub(1)),
        }
    }

    /// Returns the maximum number of connections at this time.
    fn limit(&self) -> usize {
        self.config.max_peers + usize::from(self.extra.is_allowed)
    }

    /// Queues a message to a peer. Does nothing if the peer is not connected.
    ///
    /// If the queue is full because the peer does not read its messages, the peer is disconnected
    /// and the event [`PoolEvent::Disconnected`] follows.
    pub fn send(&mut self, id: PeerId, message: NetworkMessage) {
        let Some(peer) = self.peers.get(&id) else { return };
        if !peer.connection.send(message) {
            self.end(id, EndReason::NotReading);
            self.ready.push_back(PoolEvent::Disconnected(id));
        }
    }

    /// Closes a connection for the reason `why`. The address is dialled again after a back-off.
    pub fn drop_peer(&mut self, id: PeerId, why: &str) {
        self.end(id, EndReason::Owner(why.into()));
    }

    /// Closes a connection and bans the peer for 24 hours, for the reason `why`.
    ///
    /// The ban covers one port if the user named the peer, and otherwise the whole host.
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

    fn ban_place(&mut self, place: AddressId, why: EndReason) {
        self.book.ban(place, self.moment().unix);
        let address = self.address(place);
        if self.banned_for.len() < MAX_REASONS || self.banned_for.contains_key(&address) {
            self.banned_for.insert(address, why.to_string());
        }
        self.note(place, |address| PeerNote::Banned { address, why });
    }

    fn address(&self, place: AddressId) -> String {
        self.book.target(place).map(ToString::to_string).unwrap_or_default()
    }

    fn note(&mut self, place: AddressId, note: impl FnOnce(String) -> PeerNote) {
        let address = self.address(place);
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
            Told::Called(place, is_test, result) => {
                let taken = if is_test {
                    self.is_testing = false;
                    result.and_then(|answered| self.tested(place, &answered))
                } else {
                    self.calling = self.calling.saturating_sub(1);
                    result.and_then(|answered| self.connected(place, answered))
                };
                if let Err(why) = taken {
                    self.call_failed(place, why);
                }
            }
            Told::Received(id, Ok((frame, credit))) => {
                let Some(peer) = self.peers.get_mut(&id) else { return };
                (peer.heard, peer.pinged) = (Instant::now(), false);
                let decoded = frame.decode();
                // The peer's room in the queue is free again as soon as the frame is decoded.
                drop((frame, credit));
                match decoded {
                    Ok(message) => self.message(id, message),
                    Err(error) => self.misbehaved(id, error.into()),
                }
            }
            Told::Received(id, Err(error)) => {
                if !self.peers.contains_key(&id) {
                    return;
                }
                // An end of the stream or a timeout is no reason for a ban: the network may be the
                // cause.
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
            // Sending the pong may have ended the connection.
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
        // If only named peers are dialled, other addresses are not needed.
        if !self.config.is_automatic() {
            return;
        }
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let allowed = peer.allowance.take(found.len(), now);
        let source = self.book.source(peer.place);
        // Only `allowed` addresses are accepted. The random order prevents the peer from choosing
        // the addresses that are accepted.
        self.random.shuffle(&mut found);
        found.truncate(allowed);
        self.hear(found, source);
    }

    fn hear(&mut self, mut found: Vec<Heard>, source: Group) {
        let unix = self.moment().unix;
        self.random.shuffle(&mut found);
        for heard in found {
            // Onion addresses cannot be reached without a proxy, and must take no room in the book.
            if self.config.proxy.is_none() && matches!(heard.target.host, Host::Onion(_)) {
                continue;
            }
            self.book.hear(heard, source, unix, &mut self.random);
        }
    }

    fn call_failed(&mut self, place: AddressId, why: CallError) {
        match why {
            CallError::Handshake(error) if error.is_misbehaviour() => {
                self.ban_place(place, EndReason::Handshake(error));
            }
            why => {
                // If no peer is connected, our own network may be the cause of the failure.
                let blame = why.is_about_the_peer() && !self.peers.is_empty();
                let (at, random) = (self.moment(), &mut self.random);
                let again = self.book.ended(place, Duration::ZERO, blame, at, random);
                self.note(place, |address| PeerNote::NotConnected { address, why, again });
            }
        }
    }

    /// Fails if a connection leads to this client itself.
    ///
    /// The handshake has compared the peer's nonce with that of the same connection only. If an
    /// attacker connects two connections of this client to each other, each receives the nonce of
    /// the other.
    fn check_nonce(&self, theirs: &Theirs) -> Result<(), CallError> {
        if self.nonces.contains(&theirs.nonce) {
            return Err(CallError::Handshake(HandshakeError::SelfConnection));
        }
        Ok(())
    }

    /// Records that a tested address has answered. The connection ends when the caller drops it.
    fn tested(&mut self, place: AddressId, answered: &Dialled) -> Result<(), CallError> {
        self.check_nonce(&answered.theirs)?;
        self.book.tested(place, answered.theirs.services, self.moment().unix);
        self.note(place, |address| PeerNote::Tested { address });
        Ok(())
    }

    fn connected(&mut self, place: AddressId, answered: Dialled) -> Result<(), CallError> {
        let Dialled { stream, theirs, address } = answered;
        self.check_nonce(&theirs)?;
        let at = self.moment();
        // While this connection was opened, a peer at another port may have caused a ban of the
        // whole host.
        if self.book.state(place, at.unix) == AddressState::Banned {
            self.book.ended(place, Duration::ZERO, false, at, &mut self.random);
            return Ok(());
        }
        self.next_id += 1;
        let id = PeerId(self.next_id);
        let sender = self.sender.clone();
        let deliver = Box::new(move |received| sender.send(Told::Received(id, received)).is_ok());
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
            // Sending cannot fail: `getaddr` is the first message in the queue.
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
            last_block: None,
        };
        self.peers.insert(id, peer);
        Ok(())
    }

    /// Returns our `version` message for a new connection, with a nonce of its own: a nonce that
    /// connections share would show peers that they are connected to the same client.
    fn ours(&mut self) -> Ours {
        // 0 in a `version` message means that there is no nonce.
        let nonce = self.random.number().max(1);
        self.nonces.push_back(nonce);
        if self.nonces.len() > MAX_NONCES {
            self.nonces.pop_front();
        }
        Ours {
            magic: self.config.chain.magic,
            services: ServiceFlags::NONE,
            start_height: self.config.start_height,
            user_agent: self.config.user_agent.clone(),
            relay: self.config.relay,
            nonce,
        }
    }

    fn route(&mut self) -> Route {
        Route { proxy: self.config.proxy, isolation: self.random.number() }
    }

    fn call_due(&mut self) {
        let now = self.now();
        self.extra.check(self.tip_is_stale, now);
        if now < self.look_after || self.peers.len() + self.calling >= self.limit() {
            return;
        }
        self.look_after = now + LOOK_EVERY;
        let at = self.moment();
        let mut lacks_addresses = self.peers.is_empty();
        while self.peers.len() + self.calling < self.limit() {
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
            self.call(place, false);
        }
        // Seeds are asked if no peer is connected, or if the book has no address that is due.
        if lacks_addresses && self.seeds_due.is_some_and(|due| due <= now) {
            self.seeds_due = Some(now + SEEDS_AGAIN);
            self.ask_seeds(at.unix);
        }
    }

    /// Returns `true` if the free connections are reserved for named peers that are not connected.
    ///
    /// Up to half of all connections are reserved, so that automatic peers do not occupy them
    /// during the back-off of a named peer.
    fn waits_for_named(&self, at: Moment) -> bool {
        let is_out = |place: &AddressId| {
            self.book.is_named(*place) && self.book.state(*place, at.unix) == AddressState::Idle
        };
        let out = self.book.places(false).filter(is_out).count();
        let kept = out.min(self.config.max_peers / 2);
        self.peers.len() + self.calling + kept >= self.limit()
    }

    /// Disconnects a peer if more peers than the maximum are connected, and the newest peer has had
    /// time to show a block.
    fn replace_worst(&mut self, now: Duration) {
        if self.peers.len() <= self.config.max_peers {
            return;
        }
        let newest = self.peers.values().map(|peer| peer.since.duration_since(self.start)).max();
        if newest.is_none_or(|newest| now.saturating_sub(newest) < TIME_TO_SHOW) {
            return;
        }
        let candidate = |(id, peer): (&PeerId, &Peer)| Candidate {
            id: *id,
            is_named: self.book.is_named(peer.place),
            last_block: peer.last_block,
        };
        if let Some(id) = worst(self.peers.iter().map(candidate)) {
            // The next one too many is allowed after a while.
            self.extra.is_allowed = false;
            self.end(id, EndReason::Replaced);
            self.ready.push_back(PoolEvent::Disconnected(id));
        }
    }

    /// Tests an untried address from time to time, by a connection that is closed after the
    /// handshake. So the book has working addresses when a peer is needed, and not only addresses
    /// of the source that sent the most.
    fn test_untried(&mut self, now: Duration) {
        // As in Core, connections to stay come first.
        if self.is_testing
            || now < self.test_after
            || !self.config.is_automatic()
            || self.peers.len() < self.config.max_peers
        {
            return;
        }
        self.test_after = now + between(TEST_EVERY, &mut self.random);
        let (at, wish) = (self.moment(), self.wish());
        let Some(place) = self.book.untried(at, wish, &mut self.random) else { return };
        self.call(place, true);
    }

    fn call(&mut self, place: AddressId, is_test: bool) {
        let Some(target) = self.book.target(place).cloned() else { return };
        self.book.calls(place);
        self.is_testing |= is_test;
        self.calling += usize::from(!is_test);
        let (sender, ours, route) = (self.sender.clone(), self.ours(), self.route());
        let told = move |result| Told::Called(place, is_test, result);
        let run = move || drop(sender.send(told(call(&target, &ours, route))));
        if let Err(error) = spawn(if is_test { "peer test" } else { "peer call" }, run) {
            self.take(told(Err(CallError::Thread(error))));
        }
    }

    fn ask_seeds(&mut self, unix: u64) {
        let NetworkParams { port, mut seeds, .. } = self.config.chain.clone();
        self.random.shuffle(&mut seeds);
        let (sender, services) = (self.sender.clone(), self.config.services);
        if self.config.proxy.is_none() {
            let run = move || {
                let mut all: Vec<(Group, Vec<Heard>)> = Vec::new();
                for seed in seeds {
                    // Nodes with unknown services are accepted only if no seed has returned a node
                    // so far.
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
                // With a proxy, a seed may have a port and may be an onion address.
                let result = Target::parse(&name, port)
                    .map_err(|_| CallError::NoAddress)
                    .and_then(|target| fetch(&target, &ours, route));
                drop(sender.send(Told::Fetched(name, result)));
            };
            self.fetching += 1;
            if let Err(error) = spawn("seed", run) {
                self.take(Told::Fetched(seed, Err(CallError::Thread(error))));
            }
        }
    }

    fn ping_silent(&mut self) {
        let silent = self.peers.values_mut();
        for peer in silent.filter(|peer| !peer.pinged && peer.heard.elapsed() >= PING_AFTER) {
            peer.pinged = true;
            // A random nonce: the BIP37 session recognises its own pings by their nonces, and must
            // not mistake the answer to this ping for an answer to a ping of its own.
            let nonce = self.random.number();
            // A full queue is ignored here: the connection ends when the owner sends its next
            // message and the queue is still full.
            let _sent = peer.connection.send(NetworkMessage::Ping(nonce));
        }
    }
}

/// Interval at which one more peer is connected while the tip is stale (Core's
/// `STALE_CHECK_INTERVAL`).
const EXTRA_AGAIN: Duration = Duration::from_secs(10 * 60);
/// Time that the newest peer has to show a block, before a surplus peer is disconnected (Core's
/// `EXTRA_PEER_CHECK_INTERVAL`).
const TIME_TO_SHOW: Duration = Duration::from_secs(45);

/// Decides when one peer more than the maximum may be connected.
#[derive(Debug, Default)]
struct ExtraPeer {
    /// `true` if one peer more than the maximum may be connected.
    is_allowed: bool,
    /// Time before which no further peer is allowed.
    next: Duration,
}

impl ExtraPeer {
    /// Updates the decision. `is_stale` is `true` while no new block arrives.
    fn check(&mut self, is_stale: bool, now: Duration) {
        if !is_stale {
            *self = Self::default();
        } else if now >= self.next {
            *self = Self { is_allowed: true, next: now + EXTRA_AGAIN };
        }
    }
}

/// The facts about a connected peer that decide whether it must leave.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: PeerId,
    /// `true` if the user named the peer.
    is_named: bool,
    /// Time of the last new block that the peer was the first to show; `None` if there is none.
    last_block: Option<Duration>,
}

/// Returns the peer to disconnect if there is one peer too many: the newest peer among those
/// without a new block, otherwise the peer whose last new block is the oldest. Peers that the user
/// named are chosen last.
fn worst(peers: impl Iterator<Item = Candidate>) -> Option<PeerId> {
    // Ids ascend, so the newest peer has the highest id.
    peers.min_by_key(|peer| (peer.is_named, peer.last_block, Reverse(peer.id))).map(|peer| peer.id)
}

/// Returns a random time in a range, to the second.
fn between([least, most]: [Duration; 2], random: &mut Random) -> Duration {
    let seconds = usize::try_from(most.saturating_sub(least).as_secs() + 1).unwrap_or(usize::MAX);
    least + Duration::from_secs(random.below(seconds) as u64)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests;
