//! Events that a pool reports to its owner: messages of peers, and changes of connections.

use std::fmt;
use std::io;
use std::time::Duration;

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::peer::{PeerId, service_names};

use super::frame::FrameError;
use super::gossip::TooMany;
use super::handshake::{HandshakeError, Theirs};
use super::socks::SocksError;

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

/// Reason why an attempt to connect failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The name could not be resolved, or no TCP connection could be opened.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The host name resolves to no address.
    #[error("no connection: the name resolves to no address")]
    NoAddress,
    /// An onion service can be reached only through a proxy.
    #[error("no connection: an onion address needs a proxy")]
    NeedsProxy,
    /// The proxy cannot be reached, or did not open a connection to the peer.
    #[error("no connection: proxy: {0}")]
    Proxy(#[source] SocksError),
    /// The system provides no thread for the connection.
    #[error("no connection: no thread: {0}")]
    Thread(#[source] io::Error),
    /// The handshake with the peer failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The seed sent no addresses.
    #[error("the seed sent no addresses")]
    NoAddresses,
}

impl CallError {
    /// Returns `true` if the peer may be the cause of the failure, and `false` if the cause is the
    /// proxy or our own system.
    pub(crate) fn is_about_the_peer(&self) -> bool {
        match self {
            Self::Proxy(error) => error.is_about_the_peer(),
            Self::Thread(_) | Self::NeedsProxy => false,
            _ => true,
        }
    }
}

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The stream ended, or the peer sent an invalid message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer broke the protocol in the handshake.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// The queue of messages to the peer is full, because the peer does not read them.
    #[error("the peer does not read its messages: the send queue is full")]
    NotReading,
    /// The peer sent a message with too many addresses.
    #[error(transparent)]
    Addresses(#[from] TooMany),
    /// While no new block arrived, one more peer was connected. This peer's last new block is the
    /// oldest, or it has brought none.
    #[error("another peer takes its place, since no new block arrived for a while")]
    Replaced,
    /// The owner of the pool closed the connection for this reason.
    #[error("{0}")]
    Owner(String),
}
