//! `version` and `verack`, from either side.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::address::Address;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_network::VersionMessage;

use super::frame::{FrameError, read_message, write_message};
use super::timed::Timed;

/// The protocol that we speak: Core 28's, whose later parts all need a message to begin with.
pub(crate) const PROTOCOL: u32 = 70_016;
/// The least that we speak with: the first with filters (BIP37).
pub(crate) const LEAST_PROTOCOL: u32 = 70_001;
/// The longest user agent that is kept: Core's `MAX_SUBVERSION_LENGTH`.
const MAX_USER_AGENT: usize = 256;
/// The most messages up to `verack`. Core sends five.
const MAX_MESSAGES: usize = 32;
/// The limit on the whole, where the stream has none.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Heights are `int` in Core.
const MAX_HEIGHT: u32 = i32::MAX as u32;

/// What we say of ourselves.
#[derive(Debug, Clone)]
pub(crate) struct Ours {
    pub(crate) network: Network,
    pub(crate) services: ServiceFlags,
    pub(crate) start_height: u32,
    /// Whether transactions are to be announced before a filter is loaded.
    pub(crate) relay: bool,
    /// Random: who meets it has called itself.
    pub(crate) nonce: u64,
}

/// What the other side says of itself. Nothing shows that it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Theirs {
    pub(crate) services: ServiceFlags,
    /// Not below 0.
    pub(crate) start_height: u32,
    /// ASCII that prints, 256 characters at most.
    pub(crate) user_agent: String,
    pub(crate) protocol: u32,
    /// Whether it wants transactions announced before it has loaded a filter.
    pub(crate) relay: bool,
}

/// Who called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// We did, and open.
    Dialled,
    /// They did, and open.
    Accepted,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    Frame(FrameError),
    /// The nonce is our own.
    SelfConnection,
    /// Older than what can be spoken with.
    Protocol {
        got: u32,
        least: u32,
    },
    /// Two versions.
    SecondVersion,
    /// Something else than `version` first.
    NotVersion {
        command: String,
    },
    /// Too much before `verack`.
    TooMany {
        limit: usize,
    },
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => write!(f, "handshake: {error}"),
            Self::SelfConnection => f.write_str("handshake: a connection to ourselves"),
            Self::Protocol { got, least } => {
                write!(f, "handshake: protocol {got}, the least is {least}")
            }
            Self::SecondVersion => f.write_str("handshake: a second version"),
            Self::NotVersion { command } => write!(f, "handshake: {command} before version"),
            Self::TooMany { limit } => {
                write!(f, "handshake: no verack among {limit} messages, the limit")
            }
        }
    }
}

impl core::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Frame(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FrameError> for HandshakeError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

impl HandshakeError {
    /// Whether the peer broke the protocol.
    pub(crate) fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Frame(error) => error.is_misbehaviour(),
            Self::SecondVersion | Self::NotVersion { .. } | Self::TooMany { .. } => true,
            Self::SelfConnection | Self::Protocol { .. } => false,
        }
    }
}

/// Opens or answers a handshake. It takes as long as the stream's read time limit at most, all
/// messages together, and 32 messages; the stream's time limits are then as they were.
pub(crate) fn shake_hands(
    stream: &mut TcpStream,
    ours: &Ours,
    side: Side,
) -> Result<Theirs, HandshakeError> {
    let limits = (stream.read_timeout()?, stream.write_timeout()?);
    let receiver = stream.peer_addr()?;
    let until = Instant::now() + limits.0.unwrap_or(TIME_LIMIT);
    let theirs = shake(&mut Timed::new(stream, until), ours, receiver, side);
    stream.set_read_timeout(limits.0)?;
    stream.set_write_timeout(limits.1)?;
    theirs
}

fn shake(
    stream: &mut (impl Read + Write),
    ours: &Ours,
    receiver: SocketAddr,
    side: Side,
) -> Result<Theirs, HandshakeError> {
    let magic = ours.network.magic();
    if side == Side::Dialled {
        write_message(stream, magic, NetworkMessage::Version(ours.version(receiver)))?;
    }
    let (mut theirs, mut acknowledged) = (None, false);
    for _ in 0..MAX_MESSAGES {
        match (read_message(stream, magic)?, &theirs) {
            (NetworkMessage::Version(version), None) => {
                theirs = Some(Theirs::check(&version, ours)?);
                if side == Side::Accepted {
                    write_message(stream, magic, NetworkMessage::Version(ours.version(receiver)))?;
                }
                write_message(stream, magic, NetworkMessage::Verack)?;
            }
            (NetworkMessage::Version(_), Some(_)) => return Err(HandshakeError::SecondVersion),
            (message, None) => {
                let command = message.command().as_ref().escape_default().to_string();
                return Err(HandshakeError::NotVersion { command });
            }
            (NetworkMessage::Verack, Some(_)) => acknowledged = true,
            // What may be agreed on before `verack`, and what is new since: nothing that we need.
            (_, Some(_)) => {}
        }
        if acknowledged && let Some(theirs) = theirs.take() {
            return Ok(theirs);
        }
    }
    Err(HandshakeError::TooMany { limit: MAX_MESSAGES })
}

impl Ours {
    fn version(&self, receiver: SocketAddr) -> VersionMessage {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // What Core sends too: nobody learns our address from us.
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        VersionMessage {
            version: PROTOCOL,
            services: self.services,
            timestamp: i64::try_from(now).unwrap_or(i64::MAX),
            receiver: Address::new(&receiver, ServiceFlags::NONE),
            sender: Address::new(&nowhere, self.services),
            nonce: self.nonce,
            user_agent: concat!("/chainsieve:", env!("CARGO_PKG_VERSION"), "/").into(),
            start_height: i32::try_from(self.start_height).unwrap_or(i32::MAX),
            relay: self.relay,
        }
    }
}

impl Theirs {
    fn check(version: &VersionMessage, ours: &Ours) -> Result<Self, HandshakeError> {
        if version.nonce == ours.nonce && ours.nonce != 0 {
            return Err(HandshakeError::SelfConnection);
        }
        if version.version < LEAST_PROTOCOL {
            let (got, least) = (version.version, LEAST_PROTOCOL);
            return Err(HandshakeError::Protocol { got, least });
        }
        let agent = version.user_agent.chars().take(MAX_USER_AGENT);
        let print = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        Ok(Self {
            services: version.services,
            start_height: u32::try_from(version.start_height).unwrap_or(0).min(MAX_HEIGHT),
            user_agent: agent.map(print).collect(),
            protocol: version.version,
            relay: version.relay,
        })
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
