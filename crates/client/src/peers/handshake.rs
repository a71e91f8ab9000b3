//! The handshake (`version` and `verack`) of the side that opens the connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chainsieve::bitcoin::p2p::address::Address;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_network::VersionMessage;
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::btc::protocol::{BIP37_VERSION, MAX_SUBVERSION_LENGTH, PROTOCOL_VERSION};

use super::frame::{FrameError, Timed, read_message, write_message};
use crate::driver::unix_time;

/// Minimum protocol version of a peer to which `sendaddrv2` is sent, as in Core: some older nodes
/// disconnect when they receive an unknown message.
const ADDRV2_PROTOCOL: u32 = 70_016;
/// Maximum number of messages that a peer may send up to `verack`. Core sends five messages.
const MAX_MESSAGES: usize = 32;
/// Timeout of the whole handshake if the stream has no read timeout.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Maximum height. Core stores heights as `int`.
const MAX_HEIGHT: u32 = i32::MAX as u32;

/// The fields of our own `version` message.
#[derive(Debug, Clone)]
pub struct Ours {
    /// Magic of the chain: the first four bytes of each message.
    pub magic: Magic,
    /// The services that we offer.
    pub services: ServiceFlags,
    /// Height of our chain tip.
    pub start_height: u32,
    /// Name and version of the program (BIP14).
    pub user_agent: String,
    /// `true` if the peer should announce transactions before a filter is loaded (BIP37).
    pub relay: bool,
    /// Random number of this connection. A peer that sends the same number is this client itself.
    /// The value 0 disables this check. Connections must not share a number: peers that compare
    /// their numbers would learn that they are connected to the same client.
    pub nonce: u64,
}

/// The unverified claims of a peer in its `version` message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theirs {
    /// The services that the peer offers.
    pub services: ServiceFlags,
    /// Height of the peer's chain tip. A negative height is replaced by 0.
    pub start_height: u32,
    /// The peer's user agent: at most 256 characters. Characters that are not printable ASCII are
    /// replaced by `?`.
    pub user_agent: String,
    /// The peer's protocol version.
    pub protocol: u32,
    /// `true` if the peer wants transactions announced before it has loaded a filter (BIP37).
    pub relay: bool,
    /// The peer's nonce. If another connection of this client has sent it, the connection leads to
    /// this client itself.
    pub nonce: u64,
}

/// Returns a hint for errors: a node of another network sends nothing, and closes the connection.
const fn perhaps_another_network(error: &FrameError) -> &'static str {
    match error {
        FrameError::Io(_) => " (no version message came: perhaps a node of another network)",
        _ => "",
    }
}

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// No message could be read after the peer's `version`.
    #[error("handshake: {0}")]
    Frame(#[from] FrameError),
    /// No message could be read before the peer's `version`. A proxy or a captive portal may have
    /// answered instead of the peer.
    #[error("handshake: {0}{hint}", hint = perhaps_another_network(.0))]
    NoVersion(#[source] FrameError),
    /// The peer's nonce is one of our own: the client has connected to itself.
    #[error("handshake: a connection to ourselves")]
    SelfConnection,
    /// The peer's protocol version is too old.
    #[error("handshake: protocol version {got}, the minimum is {least}")]
    Protocol {
        /// The version that the peer claims.
        got: u32,
        /// Minimum version: [`BIP37_VERSION`].
        least: u32,
    },
    /// The peer sent `version` twice.
    #[error("handshake: a second version message")]
    SecondVersion,
    /// The first message of the peer was not `version`.
    #[error("handshake: \"{command}\" before version")]
    NotVersion {
        /// The command received.
        command: String,
    },
    /// The peer sent too many messages before `verack`.
    #[error("handshake: no verack among the first {limit} messages")]
    TooMany {
        /// Maximum number of messages up to `verack`.
        limit: usize,
    },
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

impl HandshakeError {
    /// Returns `true` if the peer broke the protocol.
    ///
    /// Returns `false` for a peer that is too old, for a connection to ourselves, and for errors
    /// before the peer's `version`: until then a proxy or a captive portal may have answered
    /// instead of the peer.
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

/// Performs the handshake as the side that opened the connection.
///
/// `receiver` is the peer's address, which `version` contains. If `receiver` is `None`, no address
/// is sent, as in Core's connections through a proxy.
///
/// All messages together have one timeout: the stream's read timeout, or 20 s if it has none. At
/// most 32 messages are read. Afterwards the stream's timeouts are restored.
///
/// # Errors
/// Returns a [`HandshakeError`] if the handshake fails. The method
/// [`is_misbehaviour`](HandshakeError::is_misbehaviour) distinguishes peers that broke the protocol
/// from peers that are gone or too old.
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
                // BIP155 allows `sendaddrv2` only between `version` and `verack`. Some older nodes
                // disconnect when they receive an unknown message. `wtxidrelay` (BIP339) is not
                // sent, because wallets request transactions by txid.
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
            // `sendtxrcncl`), which this client does not need.
            (_, known) => theirs = known,
        }
    }
    Err(HandshakeError::TooMany { limit: MAX_MESSAGES })
}

impl Ours {
    fn version(&self, receiver: Option<SocketAddr>) -> VersionMessage {
        let now = unix_time().as_secs();
        // As in Core, the sender's address is left empty, so that peers do not learn our address.
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
        // A message with our own nonce comes from this client itself.
        if version.nonce == ours.nonce && ours.nonce != 0 {
            return Err(HandshakeError::SelfConnection);
        }
        // Older nodes serve neither Bloom filters nor compact filters.
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
            nonce: version.nonce,
        })
    }
}

#[cfg(test)]
mod tests;
