//! One connection of the server: the handshake and the answers to messages.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use bitcoin::block::Header;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::address::Address;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::{GetBlocksMessage, GetHeadersMessage, Inventory};
use bitcoin::p2p::message_network::VersionMessage;
use bitcoin::{BlockHash, Transaction};

use super::filters::FilterResponse;
use super::inventory::{Announcer, Offered, TxName};
use super::outbox::Outbox;
use super::{Action, Config, Event, Reason, ServedChain};
use crate::btc::bip37::{AddedData, BloomFilter, PayloadError};
use crate::btc::protocol::{
    FEEFILTER_VERSION, MAX_INV_SIZE, MAX_LOCATOR_SIZE, MAX_SUBVERSION_LENGTH,
    MIN_PEER_PROTO_VERSION, PEER_CONNECT_TIMEOUT, PING_INTERVAL, PROTOCOL_VERSION,
    TIMEOUT_INTERVAL, USER_AGENT,
};
use crate::steady_clock::SteadyClock;

/// Maximum number of blocks in the answer to `getblocks` (`ProcessMessage`, `nLimit`).
const MAX_BLOCKS: u32 = 500;
/// Maximum number of answers that wait while another answer is being written. If the caller waits
/// until the peer is idle, only the few answers to one message wait.
const MAX_BACKLOG: usize = 16;

/// Stage of the handshake: the message that is expected next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Version,
    Verack,
    Done,
    /// The caller was told to disconnect.
    Closed,
}

/// The unverified claims of the peer about itself, from its `version` message.
#[derive(Debug)]
struct Remote {
    user_agent: String,
    protocol: u32,
    services: ServiceFlags,
}

/// The server side of one connection.
#[derive(Debug)]
pub struct Peer {
    config: Config,
    /// The services offered to this peer, determined when the peer connects.
    services: ServiceFlags,
    /// Nonce of the node's own `version`.
    nonce: u64,
    stage: Stage,
    remote: Remote,
    /// The clock that measures timeouts.
    steady: SteadyClock,
    clock: Clock,
    /// The Bloom filter that the peer has loaded.
    filter: Option<BloomFilter>,
    announcer: Announcer,
    /// `true` if the peer may request transactions: it wants announcements, or may load a filter
    /// later, which turns announcements on.
    serves_transactions: bool,
    offered: Offered,
    outbox: Outbox,
    /// `true` while an [`Action::Send`] waits for its [`Event::Sent`].
    is_sending: bool,
}

impl Peer {
    /// Creates the state for a peer that connects at `now`.
    ///
    /// `now` is the [current time](crate#time). `nonce` must be random. The node's own `version`
    /// contains `nonce`, and pings contain the numbers after `nonce`. A random nonce prevents the
    /// peer from answering pings in advance; nothing else depends on the nonce.
    pub fn new(config: Config, chain: &ServedChain, nonce: u64, now: Duration) -> Self {
        let mut steady = SteadyClock::default();
        let connected = steady.read(now);
        let remote =
            Remote { user_agent: String::new(), protocol: 0, services: ServiceFlags::NONE };
        Self {
            config,
            services: config.services(chain),
            nonce,
            stage: Stage::Version,
            remote,
            steady,
            clock: Clock::new(nonce.wrapping_add(1), connected),
            filter: None,
            announcer: Announcer::new(chain, false),
            serves_transactions: false,
            offered: Offered::default(),
            outbox: Outbox::default(),
            is_sending: false,
        }
    }

    /// Returns `true` from the end of the handshake until the peer is disconnected.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Returns `true` if there is nothing to write, so that the caller may read the peer's next
    /// message.
    pub fn is_idle(&self) -> bool {
        !self.is_sending
    }

    /// Returns the user agent of the peer's `version`, of at most 256 bytes. The text is untrusted
    /// and may contain any characters. The text is empty until the `version` is received.
    pub fn user_agent(&self) -> &str {
        &self.remote.user_agent
    }

    /// Returns the protocol version in the peer's `version`; 0 until the `version` is received.
    pub fn protocol(&self) -> u32 {
        self.remote.protocol
    }

    /// Handles an event and returns the actions to carry out, in order, with at most one
    /// [`Action::Send`].
    ///
    /// `now` is the [current time](crate#time). `chain` is the node's chain after the event.
    ///
    /// # Cost
    /// The cost is proportional to the sizes of the received message and of the next message to
    /// send. A filtered block must be matched against the filter. After a change of the chain, the
    /// whole mempool is read.
    #[must_use]
    pub fn handle(&mut self, chain: &ServedChain, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        let now = self.steady.read(now);
        // After a disconnect, all events are ignored.
        if self.stage == Stage::Closed {
            return actions;
        }
        if let Err(reason) = self.take(chain, event, now, &mut actions) {
            self.close();
            actions.push(Action::Disconnect(reason));
            return actions;
        }
        // The next message is created only after the last one was written.
        if self.is_sending {
            return actions;
        }
        match self.next_message(chain, now) {
            Some(message) => {
                self.is_sending = true;
                self.clock.busy.get_or_insert(now);
                actions.push(Action::Send(message));
            }
            None => self.clock.idle(now),
        }
        actions
    }

    /// Handles an event: queues answers, updates the clock and checks timeouts.
    fn take(
        &mut self,
        chain: &ServedChain,
        event: Event,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        if matches!(event, Event::Message(_) | Event::FilterLoad(_)) {
            self.clock.heard = now;
            // Each answer has a limited size. This check bounds the number of answers if the caller
            // does not wait until the peer is idle.
            if self.is_sending && self.outbox.len() >= MAX_BACKLOG {
                return Err(Reason::Backlog(self.outbox.len()));
            }
        }
        match event {
            Event::Message(message) => self.message(message, chain, actions)?,
            Event::FilterLoad(payload) => {
                // Core ignores messages before the end of the handshake.
                if self.is_ready() {
                    self.load(BloomFilter::decode_prefix(&payload).map(|(filter, _)| filter))?;
                }
            }
            Event::Sent => self.is_sending = false,
            Event::ChainChanged => {}
            Event::Tick => self.clock.check(self.is_ready(), now)?,
        }
        Ok(())
    }

    /// Frees the memory of a closed connection.
    fn close(&mut self) {
        self.stage = Stage::Closed;
        self.filter = None;
        self.offered = Offered::default();
        self.outbox = Outbox::default();
        self.is_sending = false;
    }

    /// Creates the next message: answers first, then pings, requests for transactions, and
    /// announcements.
    fn next_message(&mut self, chain: &ServedChain, now: Duration) -> Option<NetworkMessage> {
        loop {
            if let Some(message) = self.outbox.next(chain, self.filter.as_mut()) {
                return Some(message);
            }
            if !self.is_ready() {
                return None;
            }
            if let Some(nonce) = self.clock.take_ping(now) {
                return Some(NetworkMessage::Ping(nonce));
            }
            let witness = self.remote.services.has(ServiceFlags::WITNESS);
            if let Some(request) = self.offered.request(chain, witness, now) {
                return Some(request);
            }
            // If the chain or the mempool has changed, the loop checks the outbox again. Otherwise,
            // there is nothing left to send.
            if !self.announcer.announce(chain, self.filter.as_mut(), &mut self.outbox) {
                return None;
            }
        }
    }

    /// Handles a message according to the stage of the handshake.
    fn message(
        &mut self,
        message: NetworkMessage,
        chain: &ServedChain,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        match (self.stage, message) {
            (Stage::Version, NetworkMessage::Version(version)) => {
                self.meet(version, chain)?;
            }
            (Stage::Verack, NetworkMessage::Verack) => {
                self.stage = Stage::Done;
                actions.push(Action::Ready);
                self.send_fee_filter();
            }
            // Core accepts `sendheaders` before `verack` too.
            (Stage::Verack | Stage::Done, NetworkMessage::SendHeaders) => {
                self.announcer.send_headers = true;
            }
            (Stage::Done, message) => self.answer(message, chain, actions)?,
            // Core ignores messages that are too early, and a second `version`.
            _ => {}
        }
        Ok(())
    }

    /// Handles the `version` of the peer: checks it and queues `version` and `verack`.
    fn meet(&mut self, version: VersionMessage, chain: &ServedChain) -> Result<(), Reason> {
        // Core disconnects peers whose protocol version is below `MIN_PEER_PROTO_VERSION`.
        if version.version < MIN_PEER_PROTO_VERSION {
            return Err(Reason::Protocol(version.version));
        }
        // As in Core, a user agent that is too long is refused. The node stores the user agent as
        // long as the connection exists.
        if version.user_agent.len() > MAX_SUBVERSION_LENGTH {
            return Err(Reason::UserAgent(version.user_agent.len()));
        }
        let VersionMessage { version: protocol, user_agent, services, relay, .. } = version;
        self.remote = Remote { user_agent, protocol, services };
        self.announcer = Announcer::new(chain, relay);
        // On `version`, Core creates its state of transaction relay under this condition
        // (`SetTxRelay`).
        self.serves_transactions = relay || self.services.has(ServiceFlags::BLOOM);
        self.outbox.push(NetworkMessage::Version(self.version(chain)));
        self.outbox.push(NetworkMessage::Verack);
        self.stage = Stage::Verack;
        Ok(())
    }

    /// Creates the node's own `version`.
    fn version(&self, chain: &ServedChain) -> VersionMessage {
        // The addresses are unspecified, as in Core: `version` reveals neither the address of the
        // node nor that of the peer.
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        VersionMessage {
            version: PROTOCOL_VERSION,
            services: self.services,
            timestamp: i64::try_from(self.steady.unix().as_secs()).unwrap_or(i64::MAX),
            receiver: Address::new(&nowhere, ServiceFlags::NONE),
            sender: Address::new(&nowhere, self.services),
            nonce: self.nonce,
            user_agent: USER_AGENT.into(),
            start_height: i32::try_from(chain.tip().height).unwrap_or(i32::MAX),
            relay: true,
        }
    }

    /// Queues `feefilter`, if a rate is configured.
    fn send_fee_filter(&mut self) {
        let Some(rate) = self.config.fee_filter else { return };
        // Core's `MaybeSendFeefilter` sends nothing to peers whose protocol version is below
        // `FEEFILTER_VERSION`.
        if self.remote.protocol >= FEEFILTER_VERSION {
            let rate = i64::try_from(rate).unwrap_or(i64::MAX);
            self.outbox.push(NetworkMessage::FeeFilter(rate));
        }
    }

    /// Handles a message after the handshake.
    fn answer(
        &mut self,
        message: NetworkMessage,
        chain: &ServedChain,
        actions: &mut Vec<Action>,
    ) -> Result<(), Reason> {
        match message {
            NetworkMessage::Ping(nonce) => self.outbox.push(NetworkMessage::Pong(nonce)),
            NetworkMessage::Pong(nonce) => self.clock.pong(nonce),
            NetworkMessage::GetHeaders(request) => self.headers(&request, chain)?,
            NetworkMessage::GetBlocks(request) => self.blocks(&request, chain)?,
            NetworkMessage::GetData(mut items) => {
                check_items(&items)?;
                // Without that state, Core's `ProcessGetData` ignores transactions, and lists none
                // in a `notfound`.
                items.retain(|item| self.serves_transactions || TxName::of(*item).is_none());
                self.outbox.push_items(items);
            }
            NetworkMessage::MemPool => {
                self.offered(ServiceFlags::BLOOM, "mempool")?;
                self.announcer.name_mempool(chain, self.filter.as_mut(), &mut self.outbox);
            }
            NetworkMessage::FilterLoad(load) => self.load(BloomFilter::try_from(load))?,
            NetworkMessage::FilterAdd(added) => {
                self.offered(ServiceFlags::BLOOM, "filteradd")?;
                let added = AddedData::try_from(added).map_err(Reason::BloomFilter)?;
                let filter = self.filter.as_mut().ok_or(Reason::NoFilter)?;
                filter.insert(added.as_bytes());
            }
            NetworkMessage::FilterClear => {
                self.offered(ServiceFlags::BLOOM, "filterclear")?;
                self.filter = None;
                // As in Core, all transactions are announced to a peer without a filter.
                self.announcer.relay = true;
            }
            NetworkMessage::GetCFilters(_)
            | NetworkMessage::GetCFHeaders(_)
            | NetworkMessage::GetCFCheckpt(_) => self.filters(&message, chain)?,
            NetworkMessage::Inv(items) => {
                check_items(&items)?;
                if self.config.accept_transactions {
                    self.offered.add(&items, chain);
                }
            }
            NetworkMessage::NotFound(items) => {
                check_items(&items)?;
                self.offered.not_found(&items);
            }
            NetworkMessage::Tx(tx) if self.config.accept_transactions => {
                self.transaction(tx, chain, actions);
            }
            // Other messages get no answer, not even `getaddr`: the node knows no addresses, and
            // Core then sends nothing.
            _ => {}
        }
        Ok(())
    }

    /// Accepts a transaction of the peer, requested or not, as Core does. A transaction that is
    /// already in the mempool is not passed to the caller again.
    fn transaction(&mut self, tx: Transaction, chain: &ServedChain, actions: &mut Vec<Action>) {
        let txid = tx.compute_txid();
        self.offered.delivered(&tx);
        self.announcer.came_from_peer(txid);
        if !chain.mempool().contains(&txid) {
            actions.push(Action::Accept(tx));
        }
    }

    /// Loads a Bloom filter. As in Core, transactions are then announced to the peer.
    fn load(&mut self, filter: Result<BloomFilter, PayloadError>) -> Result<(), Reason> {
        self.offered(ServiceFlags::BLOOM, "filterload")?;
        self.filter = Some(filter.map_err(Reason::BloomFilter)?);
        self.announcer.relay = true;
        Ok(())
    }

    /// Checks that the service which a message needs is offered. Core disconnects a peer that uses
    /// a service that was not offered (BIP111).
    fn offered(&self, service: ServiceFlags, message: &'static str) -> Result<(), Reason> {
        if self.services.has(service) { Ok(()) } else { Err(Reason::NotOffered(message)) }
    }

    /// Answers `getheaders`.
    fn headers(&mut self, request: &GetHeadersMessage, chain: &ServedChain) -> Result<(), Reason> {
        let GetHeadersMessage { locator_hashes: locator, stop_hash, .. } = request;
        check_locator(locator)?;
        // Without a locator, `getheaders` requests the single header `stop_hash`. As in Core, a
        // block that may not be served gets no answer.
        if locator.is_empty() && chain.block(stop_hash).is_none() {
            return Ok(());
        }
        let headers = match chain.headers().headers_after(locator, *stop_hash) {
            // The peer requests the single header of a block that has left the chain.
            [] if locator.is_empty() => {
                chain.block(stop_hash).map(|block| block.header).into_iter().collect()
            }
            headers => headers.to_vec(),
        };
        // An empty answer means that the peer has the tip.
        let sent = headers.last().map_or(chain.tip().hash, Header::block_hash);
        self.announcer.best_sent = Some(sent);
        self.outbox.push(NetworkMessage::Headers(headers));
        Ok(())
    }

    /// Answers `getblocks`: the ids of at most 500 blocks after the locator, without the stop
    /// block.
    fn blocks(&mut self, request: &GetBlocksMessage, chain: &ServedChain) -> Result<(), Reason> {
        check_locator(&request.locator_hashes)?;
        let headers = chain.headers();
        let mut common = request.locator_hashes.iter().filter_map(|hash| headers.height_of(hash));
        let first = common.next().unwrap_or(0).saturating_add(1);
        let hashes = (first..).take(MAX_BLOCKS as usize).map_while(|at| headers.hash_at(at));
        let hashes: Vec<_> = hashes.take_while(|hash| *hash != request.stop_hash).collect();
        // The answer is cut at its limit, so the peer must ask again later.
        if hashes.len() == MAX_BLOCKS as usize
            && let Some(last) = hashes.last()
        {
            self.outbox.continue_at(*last);
        }
        // As in Core, there is no empty `inv`: a peer that has the tip gets no answer.
        if !hashes.is_empty() {
            let items = hashes.into_iter().map(Inventory::Block).collect();
            self.outbox.push(NetworkMessage::Inv(items));
        }
        Ok(())
    }

    /// Answers a request for compact filters (BIP157).
    fn filters(&mut self, request: &NetworkMessage, chain: &ServedChain) -> Result<(), Reason> {
        let Some(store) = chain.filters() else {
            return Err(Reason::NotOffered("a request for filters"));
        };
        match store.answer(chain.headers(), self.services, request) {
            Some(FilterResponse::Send(reply)) => self.outbox.push_filters(reply),
            Some(FilterResponse::Disconnect(reason)) => return Err(reason),
            // Core sends no answer if it lacks a filter of the range.
            Some(FilterResponse::Silent { .. }) | None => {}
        }
        Ok(())
    }
}

/// Checks the size of a locator. Core disconnects a peer whose locator has too many hashes.
fn check_locator(locator: &[BlockHash]) -> Result<(), Reason> {
    if locator.len() > MAX_LOCATOR_SIZE { Err(Reason::Locator(locator.len())) } else { Ok(()) }
}

/// Checks the number of items in a message. Core treats too many items as misbehaviour.
fn check_items(items: &[Inventory]) -> Result<(), Reason> {
    if items.len() > MAX_INV_SIZE { Err(Reason::TooManyItems(items.len())) } else { Ok(()) }
}

/// The times of a connection and its pending ping.
#[derive(Debug)]
struct Clock {
    /// Time at which the connection was made.
    connected: Duration,
    /// Time at which the last message was received.
    heard: Duration,
    /// Time at which the last ping was sent. Before the first ping, the time at which the
    /// connection was made.
    pinged: Duration,
    /// Nonce of the ping that has no answer yet.
    ping: Option<u64>,
    /// Nonce of the next ping.
    next_nonce: u64,
    /// Time since which messages are being written; `None` if no message is being written.
    busy: Option<Duration>,
}

impl Clock {
    fn new(nonce: u64, now: Duration) -> Self {
        Self { connected: now, heard: now, pinged: now, ping: None, next_nonce: nonce, busy: None }
    }

    /// Records a `pong`. A wrong nonce does not answer the ping.
    fn pong(&mut self, nonce: u64) {
        self.ping = self.ping.filter(|sent| *sent != nonce);
    }

    /// Returns the nonce of a ping to send now, if a ping is due. Only one ping is pending at a
    /// time.
    fn take_ping(&mut self, now: Duration) -> Option<u64> {
        // As in Core, no ping is sent while another ping is unanswered: the new nonce would replace
        // the nonce that the pong must contain.
        if self.ping.is_some() || now.saturating_sub(self.pinged) <= PING_INTERVAL {
            return None;
        }
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        self.pinged = now;
        self.ping = Some(nonce);
        self.ping
    }

    /// Records that all messages were written. The time that writing took does not count towards
    /// timeouts: the caller does not read while it writes, so the next message of the peer, or its
    /// answer to a ping, may be waiting unread.
    fn idle(&mut self, now: Duration) {
        let Some(since) = self.busy.take() else { return };
        let spent = now.saturating_sub(since);
        self.heard = self.heard.saturating_add(spent).min(now);
        self.pinged = self.pinged.saturating_add(spent).min(now);
    }

    /// Checks the timeouts.
    ///
    /// # Errors
    /// The timeout that has expired. While messages are being written, no timeout expires.
    fn check(&self, is_ready: bool, now: Duration) -> Result<(), Reason> {
        let over = |since: Duration| now.saturating_sub(since) > TIMEOUT_INTERVAL;
        if self.busy.is_some() {
            Ok(())
        } else if !is_ready {
            let is_over = now.saturating_sub(self.connected) > PEER_CONNECT_TIMEOUT;
            if is_over { Err(Reason::HandshakeTimeout) } else { Ok(()) }
        } else if over(self.heard) {
            Err(Reason::Silent)
        } else if self.ping.is_some() && over(self.pinged) {
            Err(Reason::PingTimeout)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
