//! `version` and `verack`, for the side that dials.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::p2p::address::Address;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_network::VersionMessage;
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::btc::protocol::{BIP37_VERSION, MAX_SUBVERSION_LENGTH, PROTOCOL_VERSION};

use super::frame::{FrameError, read_message, write_message};
use super::timed::Timed;

/// The first version whose peers are sent `sendaddrv2`, as Core does: some older ones disconnect
/// after a message that they do not know.
const ADDRV2_PROTOCOL: u32 = 70_016;
/// The most messages up to `verack`. Core sends five.
const MAX_MESSAGES: usize = 32;
/// Timeout of the whole handshake, where the stream has none.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Heights are `int` in Core.
const MAX_HEIGHT: u32 = i32::MAX as u32;

/// What we claim in `version`.
#[derive(Debug, Clone)]
pub struct Ours {
    /// The chain's magic.
    pub magic: Magic,
    /// What we serve.
    pub services: ServiceFlags,
    /// The height of our chain.
    pub start_height: u32,
    /// The name and version of the program, as BIP14 has it.
    pub user_agent: String,
    /// Whether the peer is to announce transactions before a filter is loaded (BIP37).
    pub relay: bool,
    /// Random, never 0: a peer that sends the same is ourselves.
    pub nonce: u64,
}

/// What a peer claims in `version`. Nothing shows that it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theirs {
    /// What it serves.
    pub services: ServiceFlags,
    /// The height of its chain, at least 0.
    pub start_height: u32,
    /// Printable ASCII, at most 256 characters.
    pub user_agent: String,
    /// Its protocol version.
    pub protocol: u32,
    /// Whether it wants transactions announced before it has loaded a filter.
    pub relay: bool,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// No message could be read after `version`.
    #[error("handshake: {0}")]
    Frame(#[from] FrameError),
    /// No message could be read before `version`. It may not be the peer who answers, but a proxy
    /// or a captive portal.
    #[error("handshake: {0}")]
    NoVersion(#[source] FrameError),
    /// The nonce is our own.
    #[error("handshake: a connection to ourselves")]
    SelfConnection,
    /// The peer is too old.
    #[error("handshake: protocol {got}, the least is {least}")]
    Protocol {
        /// The version claimed.
        got: u32,
        /// [`BIP37_VERSION`].
        least: u32,
    },
    /// The peer sent `version` twice.
    #[error("handshake: a second version")]
    SecondVersion,
    /// Another message came before `version`.
    #[error("handshake: {command} before version")]
    NotVersion {
        /// The command received.
        command: String,
    },
    /// Too many messages came before `verack`.
    #[error("handshake: no verack among {limit} messages, the limit")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

impl HandshakeError {
    /// Returns `true` if the peer broke the protocol. Before its `version` nothing shows that it
    /// is the peer who answers.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Frame(error) => error.is_misbehaviour(),
            Self::SecondVersion | Self::TooMany { .. } => true,
            Self::NoVersion(_)
            | Self::NotVersion { .. }
            | Self::SelfConnection
            | Self::Protocol { .. } => false,
        }
    }
}

/// Opens a connection as the side that dialled. `receiver` is the peer's address, which it is told;
/// `None` tells it none, as Core does through a proxy.
///
/// The timeout is the stream's read timeout (20 s where it has none) for all messages together, and
/// at most 32 messages are read. The stream's timeouts are afterwards as before.
///
/// # Errors
/// [`HandshakeError`]; [`is_misbehaviour`](HandshakeError::is_misbehaviour) tells a peer that broke
/// the protocol from one that is gone or too old.
pub fn shake_hands(
    stream: &mut TcpStream,
    ours: &Ours,
    receiver: Option<SocketAddr>,
) -> Result<Theirs, HandshakeError> {
    let limits = (stream.read_timeout()?, stream.write_timeout()?);
    let until = Instant::now() + limits.0.unwrap_or(TIME_LIMIT);
    let theirs = dial(&mut Timed::new(stream, until), ours, receiver);
    stream.set_read_timeout(limits.0)?;
    stream.set_write_timeout(limits.1)?;
    theirs
}

fn dial(
    stream: &mut (impl Read + Write),
    ours: &Ours,
    receiver: Option<SocketAddr>,
) -> Result<Theirs, HandshakeError> {
    write_message(stream, ours.magic, NetworkMessage::Version(ours.version(receiver)))?;
    let mut theirs = None;
    for _ in 0..MAX_MESSAGES {
        let message = read_message(stream, ours.magic);
        let message = match &theirs {
            None => message.map_err(HandshakeError::NoVersion)?,
            Some(_) => message?,
        };
        match (message, theirs.take()) {
            (NetworkMessage::Version(version), None) => {
                let checked = Theirs::check(&version, ours)?;
                // Between `version` and `verack`, or not at all (BIP155). `wtxidrelay` (BIP339) is
                // not sent: transactions are asked for by the txid that a wallet knows.
                if checked.protocol >= ADDRV2_PROTOCOL {
                    write_message(stream, ours.magic, NetworkMessage::SendAddrV2)?;
                }
                write_message(stream, ours.magic, NetworkMessage::Verack)?;
                theirs = Some(checked);
            }
            (NetworkMessage::Version(_), Some(_)) => return Err(HandshakeError::SecondVersion),
            (message, None) => {
                let command = message.command().as_ref().escape_default().to_string();
                return Err(HandshakeError::NotVersion { command });
            }
            (NetworkMessage::Verack, Some(theirs)) => return Ok(theirs),
            // Other messages before `verack` offer extensions (`wtxidrelay`, `sendaddrv2`,
            // `sendtxrcncl`), none of which is needed here.
            (_, known) => theirs = known,
        }
    }
    Err(HandshakeError::TooMany { limit: MAX_MESSAGES })
}

impl Ours {
    fn version(&self, receiver: Option<SocketAddr>) -> VersionMessage {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // As Core does: a peer learns no address of ours from us.
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        VersionMessage {
            version: PROTOCOL_VERSION,
            services: self.services,
            timestamp: i64::try_from(now).unwrap_or(i64::MAX),
            receiver: Address::new(&receiver.unwrap_or(nowhere), ServiceFlags::NONE),
            sender: Address::new(&nowhere, self.services),
            nonce: self.nonce,
            user_agent: self.user_agent.clone(),
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
        if version.version < BIP37_VERSION {
            let (got, least) = (version.version, BIP37_VERSION);
            return Err(HandshakeError::Protocol { got, least });
        }
        let agent = version.user_agent.chars().take(MAX_SUBVERSION_LENGTH);
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
mod tests;
