//! The node's side of Bitcoin's protocol: headers, blocks, Bloom filters (BIP37), compact filters
//! (BIP157) and the mempool, answered as Bitcoin Core does. A machine without sockets and clock.
//!
//! A node has one [`ServedChain`] and, for each connection, one [`Peer`], which takes
//! [`Event`]s and returns [`Action`]s.
//!
//! # How to drive it
//! 1. [`Peer::new`] for each connection that comes. The peer speaks first.
//! 2. [`Event::Message`] for each of its messages, but [`Event::FilterLoad`] for a `filterload`.
//! 3. Write what [`Action::Send`] says, then hand over [`Event::Sent`], which gives the next
//!    message, and so on until there is none. Each event gives **at most one** `Send`, and none
//!    while one is being written: the next message is made when the last one is written, so that
//!    a reply of a thousand filters or blocks is never in memory as a whole.
//! 4. Read the peer's next message when it [is idle](Peer::is_idle), not before: as in Core, one
//!    request is answered to its end before the next is read, so that requests cannot pile up.
//! 5. [`Event::Tick`] some times a second, and at any time [`Event::ChainChanged`] when the chain
//!    or its mempool has changed. Both look for something to announce; the second is there for
//!    callers who want no delay.
//! 6. On [`Action::Disconnect`], close the connection. Nothing comes of the machine after it.
//!
//! ```
//! use core::time::Duration;
//! use chainsieve::bitcoin::Network;
//! use chainsieve::bitcoin::p2p::message::NetworkMessage;
//! use chainsieve::btc::server::{Action, Config, Event, Peer, ServedChain};
//!
//! /// Hands over an event; returns the messages that the caller would write.
//! fn drive(peer: &mut Peer, chain: &ServedChain, event: Event) -> Vec<NetworkMessage> {
//!     let (mut next, mut written) = (Some(event), Vec::new());
//!     while let Some(event) = next.take() {
//!         for action in peer.handle(chain, event, Duration::ZERO) {
//!             if let Action::Send(message) = action {
//!                 written.push(message);
//!                 next = Some(Event::Sent);
//!             }
//!         }
//!     }
//!     written
//! }
//!
//! let chain = ServedChain::new(Network::Regtest, true);
//! let mut peer = Peer::new(Config::default(), &chain, 1, 1_700_000_000, Duration::ZERO);
//! // Nothing is answered before the peer's `version`.
//! assert!(drive(&mut peer, &chain, Event::Message(NetworkMessage::GetAddr)).is_empty());
//! assert!(peer.is_idle() && !peer.is_ready());
//! ```
//!
//! # Transactions of peers
//! With [`Config::accept_transactions`] a peer's `inv` is answered by a `getdata`, and a
//! transaction that comes is given to the caller in [`Action::Accept`], who adds it with
//! [`ServedChain::add_transaction`]. All other peers are then told of it, as far as their filters
//! match: wallets can broadcast to the node. Offers, requests and the mempool are bounded.
//!
//! # Left out
//! The node asks its peers for no blocks and no addresses, knows no address to tell, and keeps no
//! account of misbehaviour beyond the connection.
//!
//! Source: Bitcoin Core 28.1, `net_processing.cpp`, at each branch that is not obvious.

mod announcer;
mod clock;
pub mod filters;
mod mempool;
mod offered;
mod outbox;
mod peer;
mod served_chain;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bitcoin::Transaction;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;
use thiserror::Error;

use crate::btc::bip37::PayloadError;
use crate::btc::protocol::{
    MAX_INV_SIZE, MAX_LOCATOR_SIZE, MAX_SUBVERSION_LENGTH, MIN_PEER_PROTO_VERSION,
    PEER_CONNECT_TIMEOUT, TIMEOUT_INTERVAL,
};

pub use mempool::{
    MAX_ACCEPTED, MAX_ACCEPTED_BYTES, MAX_ACCEPTED_WEIGHT, Mempool, TransactionError,
};
pub use peer::Peer;
pub use served_chain::{Added, BlockError, IncomingBlock, ServedChain};

/// What a node offers its peers. The default: Bloom filters and compact filters, and no
/// transactions of peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Whether Bloom filters are served (BIP37, BIP111) and the mempool is named (BIP35).
    pub bip37: bool,
    /// Whether compact filters are served (BIP157), as long as the chain has them all.
    pub bip157: bool,
    /// Whether transactions are taken from peers.
    pub accept_transactions: bool,
    /// The least fee rate that peers are told with `feefilter` (BIP133), in satoshis for 1,000
    /// virtual bytes. The node does not hold anybody to it: it knows no fees.
    pub fee_filter: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { bip37: true, bip157: true, accept_transactions: false, fee_filter: None }
    }
}

impl Config {
    /// The service bits, as far as `chain` can keep what they promise: without all filters of the
    /// active chain, `NODE_COMPACT_FILTERS` is not offered.
    pub fn services(&self, chain: &ServedChain) -> ServiceFlags {
        let mut services = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
        if self.bip37 {
            services |= ServiceFlags::BLOOM;
        }
        if self.bip157 && chain.has_all_filters() {
            services |= ServiceFlags::COMPACT_FILTERS;
        }
        services
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer sent a message.
    Message(NetworkMessage),
    /// The peer sent a `filterload` with this payload. It has an event of its own because Core
    /// takes more than `bitcoin` decodes: it masks unknown flags, and ignores trailing bytes.
    FilterLoad(Vec<u8>),
    /// The message of the last [`Action::Send`] is written, and the connection takes the next.
    Sent,
    /// The chain or its mempool has changed.
    ChainChanged,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Write this message, then hand over [`Event::Sent`].
    Send(NetworkMessage),
    /// The handshake is done: [`Peer::user_agent`] and [`Peer::protocol`] are known. Comes once.
    Ready,
    /// The peer sent a transaction: [`ServedChain::add_transaction`]. The peer is told nothing if
    /// it is refused, as Core does.
    Accept(Transaction),
    /// Close the connection.
    Disconnect(Reason),
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The peer broke the protocol, or its version cannot be spoken with.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// No `verack` within [`PEER_CONNECT_TIMEOUT`].
    #[error("no handshake within {} s", PEER_CONNECT_TIMEOUT.as_secs())]
    HandshakeTimeout,
    /// No message within [`TIMEOUT_INTERVAL`].
    #[error("nothing for {} minutes", TIMEOUT_INTERVAL.as_secs() / 60)]
    Silent,
    /// No answer to a ping within [`TIMEOUT_INTERVAL`].
    #[error("no answer to a ping for {} minutes", TIMEOUT_INTERVAL.as_secs() / 60)]
    PingTimeout,
    /// The caller handed over this many requests while an answer was being written. It is to wait
    /// until the peer [is idle](Peer::is_idle).
    #[error("{0} answers are waiting, the caller read on before they were written")]
    Backlog(usize),
}

impl Reason {
    /// Returns `true` if the peer broke the protocol.
    pub fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Violation(_))
    }
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A protocol version that is too old.
    #[error("protocol {0}, the least is {MIN_PEER_PROTO_VERSION}")]
    Protocol(u32),
    /// A user agent of too many bytes.
    #[error("a user agent of {0} bytes, the limit is {MAX_SUBVERSION_LENGTH}")]
    UserAgent(usize),
    /// A block locator of too many hashes.
    #[error("a locator of {0} hashes, the limit is {MAX_LOCATOR_SIZE}")]
    Locator(usize),
    /// An `inv`, `getdata` or `notfound` of too many items.
    #[error("{0} items, the limit is {MAX_INV_SIZE}")]
    TooManyItems(usize),
    /// A message that needs a service which the node does not offer.
    #[error("{0}, which is not offered: see the service bits")]
    NotOffered(&'static str),
    /// A Bloom filter, or data to add to one, over the limits.
    #[error(transparent)]
    BloomFilter(PayloadError),
    /// `filteradd` before a filter was loaded.
    #[error("filteradd without a filter")]
    NoFilter,
    /// A request for compact filters that breaks BIP157.
    #[error(transparent)]
    Filters(filters::Violation),
}
