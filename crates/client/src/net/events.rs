//! What a pool reports to its owner: what peers sent, and what happened to connections.

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

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A connection is open and its handshake done.
    Connected(PeerId, Theirs),
    /// The peer sent this. Pings are answered already.
    Message(PeerId, NetworkMessage),
    /// The connection has ended. Not reported for those that the owner ends.
    Disconnected(PeerId),
    /// For a log: nothing has to be done.
    Note(PeerNote),
}

/// What happened to an address. Its `Display` is a line for a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum PeerNote {
    /// A connection is open. All but the address is the peer's own claim.
    Connected {
        /// The address called.
        address: String,
        /// The peer's program: printable ASCII.
        agent: String,
        /// The height of its chain.
        height: u32,
        /// What it serves.
        services: ServiceFlags,
    },
    /// A call led to no connection.
    NotConnected {
        /// The address called.
        address: String,
        /// What failed.
        why: CallError,
        /// It is called again after this time at the earliest.
        again: Duration,
    },
    /// A connection has ended.
    Disconnected {
        /// The address called.
        address: String,
        /// What ended it.
        why: EndReason,
        /// It is called again after this time at the earliest.
        again: Duration,
    },
    /// The peer has broken the protocol and is not called again for a while.
    Banned {
        /// The address called.
        address: String,
        /// What it did.
        why: EndReason,
    },
    /// Seeds have answered: all of them by DNS, or one through a proxy.
    Seeds {
        /// How many addresses they named, duplicates included.
        addresses: usize,
    },
    /// A seed could not be asked.
    SeedFailed {
        /// Its name, or "seeds" if it is all of them.
        seed: String,
        /// What failed.
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
                    "peer {address}: connected: {agent}, height {height}, services {services}"
                )
            }
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

/// Why a call led to no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No stream.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The name has no address.
    #[error("no connection: no address of that name")]
    NoAddress,
    /// An onion service is reached through a proxy only.
    #[error("no connection: an onion address needs a proxy")]
    NeedsProxy,
    /// The proxy cannot be reached, or gave no connection.
    #[error("no connection: proxy: {0}")]
    Proxy(#[source] SocksError),
    /// The system gives no thread for the call.
    #[error("no connection: no thread: {0}")]
    Thread(#[source] io::Error),
    /// The peer's handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A seed sent no addresses.
    #[error("it sends no addresses")]
    NoAddresses,
}

impl CallError {
    /// Returns `true` if the failure may be the peer's, `false` if it is our own side's.
    pub(crate) fn is_about_the_peer(&self) -> bool {
        match self {
            Self::Proxy(error) => error.is_about_the_peer(),
            Self::Thread(_) | Self::NeedsProxy => false,
            _ => true,
        }
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The stream ended, or what came is no message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The handshake broke the protocol.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// As many messages are queued as may, and the peer reads none.
    #[error("it does not read what it is sent")]
    NotReading,
    /// A message held too many addresses.
    #[error(transparent)]
    Addresses(#[from] TooMany),
    /// The owner's reason.
    #[error("{0}")]
    Owner(String),
}
