//! Several peers: called, listened to, called again after a wait, and left alone after misbehaviour.
//!
//! Each event is one line on standard error: connected (with what the peer says of itself),
//! disconnected and why, banned and why. Of a peer, 4 MB of messages wait at most, one more is
//! being read, and 64 short ones wait to be sent: with the limit of eight peers, 80 MB in all.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::peer::PeerId;

use super::addresses::{AddressBook, Entry, State, Target, ask_seed, default_port, seeds};
use super::connection::{Connection, Incoming, SendError};
use super::handshake::{HandshakeError, Ours, Side, Theirs, shake_hands};
use crate::output::print_log;

/// How long a call may take until there is a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long the handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
/// A peer that has said nothing for so long is pinged.
const PING_AFTER: Duration = Duration::from_mins(1);
/// Events that wait to be looked at, of all peers.
const MAX_EVENTS: usize = 1_024;
/// How long seeds are left alone that named nobody, or nobody good.
const SEEDS_AGAIN: Duration = Duration::from_mins(1);

/// What happened.
#[derive(Debug)]
pub(crate) enum PoolEvent {
    Connected(PeerId, Theirs),
    /// The peer sent this. Pings are answered already.
    Message(PeerId, NetworkMessage),
    /// The connection is gone. Not told of those that [`Pool::drop_peer`] and [`Pool::ban`] end.
    Disconnected(PeerId),
}

/// What the threads tell.
enum Told {
    Called(usize, Result<(TcpStream, Theirs), CallError>),
    Incoming(PeerId, Incoming),
    Seeded(Vec<SocketAddr>),
}

enum CallError {
    Connect(String),
    Handshake(HandshakeError),
}

/// A peer that is connected.
#[derive(Debug)]
struct Peer {
    place: usize,
    connection: Connection,
    theirs: Theirs,
    since: Instant,
    heard: Instant,
    pinged: bool,
}

/// Whom to call.
#[derive(Debug)]
pub(crate) struct PoolConfig {
    pub(crate) network: Network,
    /// Peers that the user has named; without any, those of seeds.
    pub(crate) peers: Vec<String>,
    pub(crate) max_peers: usize,
    /// What is asked of seeds.
    pub(crate) services: ServiceFlags,
    /// The height of our chain, for the handshake.
    pub(crate) start_height: u32,
}

/// All peers.
#[derive(Debug)]
pub(crate) struct Pool {
    config: PoolConfig,
    book: AddressBook,
    peers: BTreeMap<PeerId, Peer>,
    next_id: u64,
    calling: usize,
    nonce: u64,
    sender: SyncSender<Told>,
    events: Receiver<Told>,
    start: Instant,
    seeds_due: Option<Duration>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> anyhow::Result<Self> {
        let port = default_port(config.network);
        let target = |text: &String| {
            Target::parse(text, port)
                .map_err(|why| anyhow!("--peer {}: {why}", crate::input::shorten(text)))
        };
        let targets = config.peers.iter().map(target).collect::<anyhow::Result<Vec<_>>>()?;
        if targets.is_empty() && seeds(config.network).is_empty() {
            let network = config.network;
            return Err(crate::args::UsageError("this network has no seeds: name a --peer"))
                .with_context(|| format!("{network}"));
        }
        let random = || getrandom::u64().map_err(|error| anyhow!("no random number: {error}"));
        let (sender, events) = sync_channel(MAX_EVENTS);
        let seeds_due = targets.is_empty().then_some(Duration::ZERO);
        Ok(Self {
            book: AddressBook::new(targets, random()?),
            config,
            peers: BTreeMap::new(),
            next_id: 0,
            calling: 0,
            nonce: random()?,
            sender,
            events,
            start: Instant::now(),
            seeds_due,
        })
    }

    /// Time since the pool began, which everything here counts by.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits so long for something to happen, and calls whoever is due.
    pub(crate) fn wait(&mut self, timeout: Duration) -> anyhow::Result<Option<PoolEvent>> {
        self.call_due()?;
        self.ping_silent();
        match self.events.recv_timeout(timeout) {
            Ok(told) => self.take(told),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// The name of a connected peer's address.
    pub(crate) fn name(&self, id: PeerId) -> Option<String> {
        let peer = self.peers.get(&id)?;
        Some(self.book.entries.get(peer.place)?.target.to_string())
    }

    /// Whether every address has been called and the call is over, or as many peers are connected
    /// as wanted.
    pub(crate) fn all_tried(&self) -> bool {
        let tried = self.book.entries.iter().all(|entry| entry.tried);
        self.peers.len() >= self.config.max_peers
            || (tried && self.calling == 0 && !self.book.entries.is_empty())
    }

    /// Whether every peer that the user named is connected, or banned: no other will come.
    pub(crate) fn all_up(&self) -> bool {
        let settled = |(place, entry): (usize, &Entry)| {
            entry.state == State::Banned || self.peers.values().any(|peer| peer.place == place)
        };
        self.seeds_due.is_none() && self.book.entries.iter().enumerate().all(settled)
    }

    /// Whether as many peers are connected as wanted, and there are others: to be called for the first
    /// time, or at all if those connected are of no use.
    pub(crate) fn is_full_before_others(&self, of_use: bool) -> bool {
        let is_other = |entry: &Entry| entry.state == State::Idle && !(of_use && entry.tried);
        let seeds = !of_use && self.seeds_due.is_some();
        self.peers.len() >= self.config.max_peers
            && (seeds || self.book.entries.iter().any(is_other))
    }

    /// Whether nobody is left to call: every peer that the user named is banned.
    pub(crate) fn all_banned(&self) -> bool {
        let banned = self.book.entries.iter().all(|entry| entry.state == State::Banned);
        self.seeds_due.is_none() && banned
    }

    /// The addresses that were called: name, state and what the peer says of itself if it is
    /// connected.
    pub(crate) fn addresses(
        &self,
    ) -> impl Iterator<Item = (String, &'static str, Option<&Theirs>)> {
        (0..).zip(&self.book.entries).filter_map(|(place, entry)| {
            let up = self.peers.values().find(|peer: &&Peer| peer.place == place);
            let state = match (up, entry.state) {
                (Some(_), _) => "connected",
                (None, State::Banned) => "banned",
                (None, State::Busy) => "calling",
                (None, State::Idle) if entry.tried => "disconnected",
                (None, State::Idle) => return None,
            };
            Some((entry.target.to_string(), state, up.map(|peer| &peer.theirs)))
        })
    }

    pub(crate) fn set_height(&mut self, height: u32) {
        self.config.start_height = height;
    }

    /// Sends a message, and drops a peer that does not read what it is sent.
    pub(crate) fn send(&mut self, id: PeerId, message: NetworkMessage) -> Option<PoolEvent> {
        match self.peers.get(&id)?.connection.send(message) {
            Ok(()) | Err(SendError::Gone) => None,
            Err(SendError::Full) => {
                self.drop_peer(id, "it does not read what it is sent");
                Some(PoolEvent::Disconnected(id))
            }
        }
    }

    /// Closes a connection, to be called again.
    pub(crate) fn drop_peer(&mut self, id: PeerId, why: &str) {
        let Some(peer) = self.peers.remove(&id) else { return };
        self.ended(peer.place, peer.since.elapsed(), &format!("disconnected: {why}"));
    }

    /// Closes a connection for good.
    pub(crate) fn ban(&mut self, id: PeerId, why: &str) {
        let Some(peer) = self.peers.remove(&id) else { return };
        self.ban_place(peer.place, why);
    }

    fn ban_place(&mut self, place: usize, why: &str) {
        let Some(entry) = self.book.entries.get_mut(place) else { return };
        (entry.state, entry.tried) = (State::Banned, true);
        print_log(&format!("peer {}: banned: {why}", entry.target));
    }

    fn ended(&mut self, place: usize, lasted: Duration, what: &str) {
        let wait = self.book.ended(place, lasted, self.start.elapsed());
        let Some(entry) = self.book.entries.get(place) else { return };
        let again = wait.as_secs_f64();
        print_log(&format!("peer {}: {what}; again in {again:.0} s", entry.target));
    }

    fn take(&mut self, told: Told) -> anyhow::Result<Option<PoolEvent>> {
        match told {
            Told::Seeded(found) => {
                print_log(&format!("seeds: {} addresses", found.len()));
                self.book.add_shuffled(found);
                Ok(None)
            }
            Told::Called(place, Ok((stream, theirs))) => {
                self.calling -= 1;
                self.connect(place, stream, theirs).map(Some)
            }
            Told::Called(place, Err(error)) => {
                self.calling -= 1;
                match error {
                    CallError::Handshake(error) if error.is_misbehaviour() => {
                        self.ban_place(place, &error.to_string());
                    }
                    CallError::Handshake(error) => {
                        self.ended(place, Duration::ZERO, &error.to_string());
                    }
                    CallError::Connect(why) => {
                        self.ended(place, Duration::ZERO, &format!("no connection: {why}"));
                    }
                }
                Ok(None)
            }
            Told::Incoming(id, Incoming::Frame(frame, credit)) => {
                let Some(peer) = self.peers.get_mut(&id) else { return Ok(None) };
                (peer.heard, peer.pinged) = (Instant::now(), false);
                let decoded = frame.decode();
                drop((frame, credit));
                match decoded {
                    Ok(NetworkMessage::Ping(nonce)) => {
                        if let Some(event) = self.send(id, NetworkMessage::Pong(nonce)) {
                            return Ok(Some(event));
                        }
                        Ok(Some(PoolEvent::Message(id, NetworkMessage::Ping(nonce))))
                    }
                    Ok(message) => Ok(Some(PoolEvent::Message(id, message))),
                    Err(error) => {
                        self.ban(id, &error.to_string());
                        Ok(Some(PoolEvent::Disconnected(id)))
                    }
                }
            }
            Told::Incoming(id, Incoming::Closed(error)) => {
                if !self.peers.contains_key(&id) {
                    return Ok(None);
                }
                if error.is_misbehaviour() {
                    self.ban(id, &error.to_string());
                } else {
                    self.drop_peer(id, &error.to_string());
                }
                Ok(Some(PoolEvent::Disconnected(id)))
            }
        }
    }

    fn connect(
        &mut self,
        place: usize,
        stream: TcpStream,
        theirs: Theirs,
    ) -> anyhow::Result<PoolEvent> {
        self.next_id += 1;
        let id = PeerId(self.next_id);
        let sender = self.sender.clone();
        let deliver = Box::new(move |incoming| sender.send(Told::Incoming(id, incoming)).is_ok());
        let magic = self.config.network.magic();
        let connection =
            Connection::start(stream, magic, deliver).context("cannot start a thread")?;
        if let Some(entry) = self.book.entries.get_mut(place) {
            entry.tried = true;
            print_log(&format!(
                "peer {}: connected: {}, height {}, services {}",
                entry.target,
                theirs.user_agent,
                theirs.start_height,
                service_names(theirs.services).join("|")
            ));
        }
        let (since, event) = (Instant::now(), PoolEvent::Connected(id, theirs.clone()));
        let peer = Peer { place, connection, theirs, since, heard: since, pinged: false };
        self.peers.insert(id, peer);
        Ok(event)
    }

    fn call_due(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        while self.peers.len() + self.calling < self.config.max_peers {
            let Some(place) = self.book.due(now) else { break };
            let Some(entry) = self.book.entries.get_mut(place) else { break };
            entry.state = State::Busy;
            self.calling += 1;
            let (target, sender) = (entry.target.clone(), self.sender.clone());
            let ours = Ours {
                network: self.config.network,
                services: ServiceFlags::NONE,
                start_height: self.config.start_height,
                relay: false,
                nonce: self.nonce,
            };
            let call = move || drop(sender.send(Told::Called(place, call(&target, &ours))));
            spawn("peer call", call)?;
        }
        let wants_seeds = self.peers.len() + self.calling < self.config.max_peers
            && self.seeds_due.is_some_and(|due| due <= now);
        if wants_seeds {
            self.seeds_due = Some(now + SEEDS_AGAIN);
            let (network, services) = (self.config.network, self.config.services);
            let sender = self.sender.clone();
            spawn("seeds", move || {
                let mut found = Vec::new();
                for seed in seeds(network) {
                    let port = default_port(network);
                    found.extend(ask_seed(seed, port, services, found.is_empty()));
                }
                drop(sender.send(Told::Seeded(found)));
            })?;
        }
        Ok(())
    }

    fn ping_silent(&mut self) {
        let silent = self.peers.values_mut();
        for peer in silent.filter(|peer| !peer.pinged && peer.heard.elapsed() >= PING_AFTER) {
            peer.pinged = true;
            // A nonce that no fence of a session has, but by chance.
            let nonce = self.nonce.wrapping_add(peer.since.elapsed().subsec_nanos().into());
            // Who does not read is noticed by what is sent for a reason.
            let _sent = peer.connection.send(NetworkMessage::Ping(nonce));
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).context("cannot start a thread")?;
    Ok(())
}

fn call(target: &Target, ours: &Ours) -> Result<(TcpStream, Theirs), CallError> {
    let connect = |error: std::io::Error| CallError::Connect(error.to_string());
    let mut last = CallError::Connect("no address of that name".into());
    for address in target.resolve().map_err(connect)? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(mut stream) => {
                // Requests are small and waited for.
                stream.set_nodelay(true).map_err(connect)?;
                stream.set_read_timeout(Some(HANDSHAKE_TIME)).map_err(connect)?;
                let theirs = shake_hands(&mut stream, ours, Side::Dialled);
                return theirs.map(|theirs| (stream, theirs)).map_err(CallError::Handshake);
            }
            Err(error) => last = connect(error),
        }
    }
    Err(last)
}

/// The services that matter here, in words.
pub(crate) fn service_names(services: ServiceFlags) -> Vec<&'static str> {
    let names = [
        (ServiceFlags::NETWORK, "network"),
        (ServiceFlags::BLOOM, "bloom"),
        (ServiceFlags::WITNESS, "witness"),
        (ServiceFlags::COMPACT_FILTERS, "compact_filters"),
        (ServiceFlags::NETWORK_LIMITED, "network_limited"),
    ];
    names.into_iter().filter(|(flag, _)| services.has(*flag)).map(|(_, name)| name).collect()
}
