//! Messages on a stream: magic, command, length, checksum, payload.

use std::io::{self, Read, Write};

use chainsieve::bitcoin::consensus::encode::{self, deserialize};
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::{CommandString, NetworkMessage, RawNetworkMessage};

/// The longest payload: Core's `MAX_PROTOCOL_MESSAGE_LENGTH`.
pub(crate) const MAX_PAYLOAD: u32 = 4_000_000;

/// Magic, command, length and checksum.
const HEADER: usize = 24;

/// Why no message could be read. Nothing behind it on the stream can be read either.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The stream: its kind tells an end inside a message from a time limit.
    Io(io::Error),
    /// Another network, or no bitcoin at all.
    Magic { got: [u8; 4] },
    /// A payload longer than any node takes.
    TooLong { command: String, bytes: u32, limit: u32 },
    /// The payload is not the one that was sent.
    Checksum { command: String },
    /// Not what a message of this name looks like.
    Malformed { command: String, why: String },
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof => f.write_str("it hung up"),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => f.write_str("no answer"),
                _ => write!(f, "{error}"),
            },
            Self::Magic { got } => {
                write!(f, "magic {}: another network, or not bitcoin", hex::encode(got))
            }
            Self::TooLong { command, bytes, limit } => {
                write!(f, "{command} of {bytes} bytes, the limit is {limit}")
            }
            Self::Checksum { command } => write!(f, "{command} with a wrong checksum"),
            Self::Malformed { command, why } => write!(f, "malformed {command}: {why}"),
        }
    }
}

impl core::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl FrameError {
    /// Whether the peer broke the protocol; an end or a time limit may be the network's doing.
    pub(crate) fn is_misbehaviour(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

/// A message whose checksum is right and whose payload nobody has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The header and the payload, as they came.
    bytes: Vec<u8>,
}

impl Frame {
    /// The bytes that it takes in memory, and took on the wire.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What the message says.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// The command, with what is not printable written out.
    pub(crate) fn command(&self) -> String {
        command_name(self.bytes.get(4..16).unwrap_or_default())
    }

    /// The message.
    ///
    /// # Errors
    /// [`FrameError::Malformed`], but for messages that no peer needs to act on: these are
    /// [`NetworkMessage::Unknown`], since their forms grow (addresses of new networks).
    pub(crate) fn decode(&self) -> Result<NetworkMessage, FrameError> {
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
            // Said without a payload; Core does not look whether there is one.
            "verack" => return Ok(NetworkMessage::Verack),
            _ => {}
        }
        Err(FrameError::Malformed { command, why: words(&error) })
    }
}

/// One message. A command that bitcoin does not know is [`NetworkMessage::Unknown`]. Memory grows
/// with what has come, not with what the length says.
pub(crate) fn read_message(
    from: &mut impl Read,
    magic: Magic,
) -> Result<NetworkMessage, FrameError> {
    read_frame(from, magic)?.decode()
}

/// One message, not decoded: its checksum is checked.
pub(crate) fn read_frame(from: &mut impl Read, magic: Magic) -> Result<Frame, FrameError> {
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

/// Writes a message; whether it has left is the stream's business.
pub(crate) fn write_message(
    to: &mut impl Write,
    magic: Magic,
    message: NetworkMessage,
) -> io::Result<()> {
    // In one piece: a write for each field would be a packet for each.
    to.write_all(&encode::serialize(&RawNetworkMessage::new(magic, message)))?;
    to.flush()
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
#[path = "frame_tests.rs"]
mod tests;
