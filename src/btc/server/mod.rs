//! The server side of the Bitcoin protocol. Answers requests for headers, blocks, Bloom filters
//! (BIP37), compact filters (BIP157) and the mempool as Bitcoin Core does. The state machine has no
//! sockets and no clock.
//!
//! A node has one [`ServedChain`] and one [`Peer`] per connection. A [`Peer`] handles [`Event`]s
//! and returns [`Action`]s.
//!
//! # How to drive it
//! 1. Call [`Peer::new`] for each incoming connection. The remote side sends the first message.
//! 2. Pass in each message of the peer as [`Event::Message`], except `filterload`, which is
//!    [`Event::FilterLoad`].
//! 3. Write the message of [`Action::Send`], then pass in [`Event::Sent`]. [`Event::Sent`] returns
//!    the next message, if there is one. Each event returns **at most one** `Send`, and none while
//!    a message is being written. The next message is created only after the last message was
//!    written, so a reply of 1,000 filters or blocks is never in memory as a whole.
//! 4. Read the next message of the peer only when the peer [is idle](Peer::is_idle). As in Core,
//!    one request is answered completely before the next request is read, so requests cannot
//!    accumulate.
//! 5. Pass in [`Event::Tick`] a few times a second. Pass in [`Event::ChainChanged`] after the chain
//!    or its mempool has changed. On a tick and on a change of the chain, the machine checks for
//!    announcements; [`Event::ChainChanged`] avoids the delay until the next tick.
//! 6. On [`Action::Disconnect`], close the connection. After a disconnect, the machine returns no
//!    further actions.
//!
//! ```
//! use core::time::Duration;
//! use chainsieve::bitcoin::Network;
//! use chainsieve::bitcoin::p2p::message::NetworkMessage;
//! use chainsieve::btc::server::{Action, Config, Event, Peer, ServedChain};
//!
//! const NOW: Duration = Duration::from_secs(1_700_000_000);
//!
//! /// Passes in an event; returns the messages that the caller would write.
//! fn drive(peer: &mut Peer, chain: &ServedChain, event: Event) -> Vec<NetworkMessage> {
//!     let (mut next, mut written) = (Some(event), Vec::new());
//!     while let Some(event) = next.take() {
//!         for action in peer.handle(chain, event, NOW) {
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
//! let mut peer = Peer::new(Config::default(), &chain, 1, NOW);
//! // Nothing is answered before the `version` of the peer.
//! assert!(drive(&mut peer, &chain, Event::Message(NetworkMessage::GetAddr)).is_empty());
//! assert!(peer.is_idle() && !peer.is_ready());
//! ```
//!
//! # Transactions of peers
//! With [`Config::accept_transactions`], the node answers the `inv` of a peer by `getdata`. The
//! [`Peer`] returns a received transaction in [`Action::Accept`], and the caller adds the
//! transaction with [`ServedChain::add_transaction`]. The node then announces the transaction to
//! all other peers, unless their filters exclude it. Wallets can therefore broadcast through the
//! node. The numbers of offers, requests and transactions in the mempool are limited.
//!
//! # Not implemented
//! The node requests no blocks and no addresses from its peers. The node has no addresses to send.
//! The only punishment for misbehaviour is that the connection is closed.
//!
//! Source: Bitcoin Core 28.1, `net_processing.cpp`; a comment names the function at each branch
//! that is not obvious.

pub mod filters;
mod inventory;
mod mempool;
mod outbox;
mod peer;
mod served_chain;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{BlockHash, Transaction};
use thiserror::Error;

use crate::btc::bip37::PayloadError;
use crate::btc::bip157::BASIC_FILTER;
use crate::btc::protocol::{
    MAX_INV_SIZE, MAX_LOCATOR_SIZE, MAX_SUBVERSION_LENGTH, MIN_PEER_PROTO_VERSION,
    PEER_CONNECT_TIMEOUT, TIMEOUT_INTERVAL,
};

pub use mempool::{
    MAX_ACCEPTED, MAX_ACCEPTED_BYTES, MAX_ACCEPTED_WEIGHT, Mempool, TransactionError,
};
pub use peer::Peer;
pub use served_chain::{Added, BlockError, ServedChain};

/// Services that a node offers to its peers. By default, a node offers Bloom filters and compact
/// filters and accepts no transactions of peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// `true` to serve Bloom filters (BIP37, BIP111) and to list the mempool (BIP35).
    pub bip37: bool,
    /// `true` to serve compact filters (BIP157). The node serves compact filters only while the
    /// chain has all its filters.
    pub bip157: bool,
    /// `true` to accept transactions from peers.
    pub accept_transactions: bool,
    /// Minimum fee rate that is announced to peers by `feefilter` (BIP133), in satoshis per 1,000
    /// virtual bytes. The node does not enforce the rate, since it does not know fees. With `None`,
    /// no rate is announced.
    pub fee_filter: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { bip37: true, bip157: true, accept_transactions: false, fee_filter: None }
    }
}

impl Config {
    /// Returns the service bits to offer. `NODE_COMPACT_FILTERS` is offered only if `chain` has all
    /// filters of its active chain.
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

/// Input of a [`Peer`]: something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer sent this message.
    Message(NetworkMessage),
    /// The peer sent a `filterload` with this payload. A separate event, because Core accepts more
    /// than `bitcoin` decodes: Core masks unknown flags and ignores trailing bytes.
    FilterLoad(Vec<u8>),
    /// The message of the last [`Action::Send`] was written, and the next message can be written.
    Sent,
    /// The chain or its mempool has changed: check for announcements.
    ChainChanged,
    /// Time has passed: check the timeouts, and check for announcements.
    Tick,
}

/// Output of a [`Peer`]: something that the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Write this message, then pass in [`Event::Sent`].
    Send(NetworkMessage),
    /// The handshake is complete: [`Peer::user_agent`] and [`Peer::protocol`] are known. Returned
    /// once.
    Ready,
    /// The peer sent this transaction: pass it to [`ServedChain::add_transaction`]. As in Core, the
    /// peer gets no message if the transaction is refused.
    Accept(Transaction),
    /// Close the connection, for this reason.
    Disconnect(Reason),
}

/// Reason why a connection must be closed: a violation of the protocol, a timeout, or a fault of the
/// caller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The protocol version of the peer is too old.
    #[error("protocol version {0}, the minimum is {MIN_PEER_PROTO_VERSION}")]
    Protocol(u32),
    /// The user agent has too many bytes.
    #[error("a user agent of {0} bytes, the limit is {MAX_SUBVERSION_LENGTH}")]
    UserAgent(usize),
    /// A block locator has too many hashes.
    #[error("a locator of {0} hashes, the limit is {MAX_LOCATOR_SIZE}")]
    Locator(usize),
    /// An `inv`, `getdata` or `notfound` has too many items.
    #[error("{0} items, the limit is {MAX_INV_SIZE}")]
    TooManyItems(usize),
    /// The peer sent a message that needs a service which the node does not offer.
    #[error("{0} needs a service that the node does not offer")]
    NotOffered(&'static str),
    /// A Bloom filter, or the data of a `filteradd`, exceeds the limits.
    #[error(transparent)]
    BloomFilter(PayloadError),
    /// The peer sent `filteradd` before it loaded a filter.
    #[error("filteradd without a filter")]
    NoFilter,
    /// The type of compact filters does not exist.
    #[error("filter type {0}, the only supported type is {BASIC_FILTER}")]
    FilterType(u8),
    /// The stop block of a request for compact filters is unknown, or it left the active chain too
    /// long ago.
    #[error("unknown stop block {0}")]
    UnknownStop(BlockHash),
    /// The start height of a request for compact filters is above the height of the stop block.
    #[error("start height {start} is above the stop block at height {stop}")]
    StartAfterStop {
        /// First requested height.
        start: u32,
        /// Height of the stop block.
        stop: u32,
    },
    /// A request for compact filters has a range of more blocks than are allowed in a request of
    /// this kind.
    #[error("heights {start} to {stop}, the limit is {limit} blocks")]
    TooManyBlocks {
        /// First requested height.
        start: u32,
        /// Height of the stop block.
        stop: u32,
        /// Maximum number of blocks in a request of this kind.
        limit: u32,
    },
    /// The peer sent no `verack` within [`PEER_CONNECT_TIMEOUT`].
    #[error("no handshake within {} s", PEER_CONNECT_TIMEOUT.as_secs())]
    HandshakeTimeout,
    /// The peer sent no message within [`TIMEOUT_INTERVAL`].
    #[error("no message for {} minutes", TIMEOUT_INTERVAL.as_secs() / 60)]
    Silent,
    /// The peer did not answer a ping within [`TIMEOUT_INTERVAL`].
    #[error("no answer to a ping for {} minutes", TIMEOUT_INTERVAL.as_secs() / 60)]
    PingTimeout,
    /// The caller passed in this many requests while an answer was being written. The caller must
    /// wait until the peer [is idle](Peer::is_idle).
    #[error("{0} answers are waiting: the caller read further requests before they were written")]
    Backlog(usize),
}

impl Reason {
    /// Returns `true` if the peer violated the protocol; `false` for timeouts and errors of the
    /// caller.
    pub fn is_misbehaviour(&self) -> bool {
        !matches!(
            self,
            Self::HandshakeTimeout | Self::Silent | Self::PingTimeout | Self::Backlog(_)
        )
    }
}
