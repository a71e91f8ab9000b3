//! Messages on a stream: magic, command, length, checksum, payload.

use std::io::{self, Read, Write};

use chainsieve::bitcoin::consensus::encode::{self, deserialize};
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::{CommandString, NetworkMessage, RawNetworkMessage};

/// The longest payload: Core's `MAX_PROTOCOL_MESSAGE_LENGTH`.
pub const MAX_PAYLOAD: u32 = 4_000_000;

/// Magic, command, length and checksum.
pub const HEADER: usize = 24;

/// Why no message could be read. Nothing after it on the stream can be read either.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream failed: the kind tells an end inside a message from a timeout.
    #[error("{}", io_words(.0))]
    Io(#[from] io::Error),
    /// Another network, or not Bitcoin.
    #[error("magic {}: another network, or not bitcoin", Magic::from_bytes(*.got))]
    Magic {
        /// The four bytes received.
        got: [u8; 4],
    },
    /// The payload is longer than any node accepts.
    #[error("{command} of {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// The command received.
        command: String,
        /// The length claimed.
        bytes: u32,
        /// [`MAX_PAYLOAD`].
        limit: u32,
    },
    /// The payload differs from the one that was sent.
    #[error("{command} with a wrong checksum")]
    Checksum {
        /// The command received.
        command: String,
    },
    /// The payload is not a message of this command.
    #[error("malformed {command}: {why}")]
    Malformed {
        /// The command received.
        command: String,
        /// What the decoder reported.
        why: String,
    },
}

fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it hung up".into(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    }
}

impl FrameError {
    /// Returns `true` if the peer broke the protocol. An end or a timeout may be the network's doing.
    pub fn is_misbehaviour(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

/// A message whose checksum is right and whose payload is not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header and the payload, as they came.
    bytes: Vec<u8>,
}

impl Frame {
    /// The bytes that it takes in memory, and took on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a frame has a header at least")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The payload, not decoded.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// The command, with what is not printable written out.
    pub fn command(&self) -> String {
        command_name(self.bytes.get(4..16).unwrap_or_default())
    }

    /// The message.
    ///
    /// # Errors
    /// [`FrameError::Malformed`], but for messages that no peer needs to act on: these are
    /// [`NetworkMessage::Unknown`], since their forms grow (addresses of new networks).
    pub fn decode(&self) -> Result<NetworkMessage, FrameError> {
        let command = self.command();
        let error = match deserialize::<RawNetworkMessage>(&self.bytes) {
            Ok(message) => return Ok(message.into_payload()),
            Err(error) => error,
        };
        match command.as_str() {
            // Without the field that BIP37 added.
            "version" => {
                let with_relay = [self.payload(), &[1]].concat();
                if let Ok(version) = deserialize(&with_relay) {
                    return Ok(NetworkMessage::Version(version));
                }
            }
            "addr" | "addrv2" | "alert" | "blocktxn" | "cmpctblock" | "feefilter"
            | "getblocktxn" | "reject" | "sendcmpct" => {
                let payload = self.payload().to_vec();
                if let Ok(name) = CommandString::try_from(command.clone()) {
                    return Ok(NetworkMessage::Unknown { command: name, payload });
                }
            }
            // It has no payload; Core does not check that.
            "verack" => return Ok(NetworkMessage::Verack),
            _ => {}
        }
        Err(FrameError::Malformed { command, why: words(&error) })
    }
}

/// Reads one message. A command that is not known is [`NetworkMessage::Unknown`]. Memory grows with
/// the bytes received, not with the length claimed.
///
/// # Errors
/// A failure of the stream, a frame of another network, or a malformed message.
pub fn read_message(from: &mut impl Read, magic: Magic) -> Result<NetworkMessage, FrameError> {
    read_frame(from, magic)?.decode()
}

/// Reads one message without decoding it. Its checksum is checked.
///
/// # Errors
/// A failure of the stream, or a frame that is invalid.
pub fn read_frame(from: &mut impl Read, magic: Magic) -> Result<Frame, FrameError> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let [m0, m1, m2, m3, name @ .., l0, l1, l2, l3, c0, c1, c2, c3] = header;
    let got = [m0, m1, m2, m3];
    if got != magic.to_bytes() {
        return Err(FrameError::Magic { got });
    }
    let command = command_name(&name);
    let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    if bytes > MAX_PAYLOAD {
        return Err(FrameError::TooLong { command, bytes, limit: MAX_PAYLOAD });
    }
    let mut frame = header.to_vec();
    from.take(bytes.into()).read_to_end(&mut frame)?;
    let frame = Frame { bytes: frame };
    if frame.payload().len() != bytes as usize {
        return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    let [d0, d1, d2, d3, ..] = sha256d::Hash::hash(frame.payload()).to_byte_array();
    if [d0, d1, d2, d3] != [c0, c1, c2, c3] {
        return Err(FrameError::Checksum { command });
    }
    Ok(frame)
}

/// Writes a message.
///
/// # Errors
/// Those of the stream.
pub fn write_message(to: &mut impl Write, magic: Magic, message: NetworkMessage) -> io::Result<()> {
    // In one piece: a write for each field would be a packet for each.
    to.write_all(&encode_message(magic, message))?;
    to.flush()
}

/// The bytes of a message, its header included.
pub fn encode_message(magic: Magic, message: NetworkMessage) -> Vec<u8> {
    encode::serialize(&RawNetworkMessage::new(magic, message))
}

fn command_name(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.iter().take(end).map(|byte| byte.escape_ascii().to_string()).collect()
}

fn words(error: &encode::Error) -> String {
    match error {
        encode::Error::Io(_) => "it ends early".into(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
