//! Reads and writes framed messages: magic, command, length, checksum, payload. A socket can have a
//! deadline for all its reads and writes.
//!
//! A separate timeout for each call would not be enough: a peer that sends one byte at a time could
//! delay the end of a message without limit.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::consensus::encode::{self, deserialize};
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::{CommandString, NetworkMessage, RawNetworkMessage};

/// Maximum length of a payload in bytes (Core's `MAX_PROTOCOL_MESSAGE_LENGTH`).
pub const MAX_PAYLOAD: u32 = 4_000_000;

/// Length of a message's header in bytes: magic (4), command (12), length (4) and checksum (4).
pub const HEADER: usize = 24;

/// Reason why a message could not be read. After this error the stream cannot be read any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream failed. The error's kind distinguishes an end of the stream from a timeout.
    #[error("{}", io_words(.0))]
    Io(#[from] io::Error),
    /// The magic is wrong: the peer is on another network, or does not speak Bitcoin's protocol.
    #[error("magic {}: another network, or not bitcoin", Magic::from_bytes(*.got))]
    Magic {
        /// The four bytes received as magic.
        got: [u8; 4],
    },
    /// The payload is longer than nodes accept.
    #[error("\"{command}\" of {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// The command received.
        command: String,
        /// The length in the header.
        bytes: u32,
        /// Maximum length in bytes: [`MAX_PAYLOAD`].
        limit: u32,
    },
    /// The payload does not match the checksum in the header.
    #[error("\"{command}\" with a wrong checksum")]
    Checksum {
        /// The command received.
        command: String,
    },
    /// The payload cannot be decoded as a message of this command.
    #[error("malformed \"{command}\": {why}")]
    Malformed {
        /// The command received.
        command: String,
        /// The error of the decoder.
        why: String,
    },
}

fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the peer closed the connection".into(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}

impl FrameError {
    /// Returns `true` if the peer broke the protocol. Returns `false` for an end of the stream or a
    /// timeout, which the network may have caused.
    pub fn is_misbehaviour(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

/// A message whose checksum was verified and whose payload is not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header and the payload, as received.
    bytes: Vec<u8>,
}

impl Frame {
    /// Returns the length of the message in bytes, including its header.
    #[expect(clippy::len_without_is_empty, reason = "a frame has a header at least")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the header and the payload, as received.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the payload, not decoded.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// Returns the command. Bytes that are not printable ASCII are escaped.
    pub fn command(&self) -> String {
        command_name(self.bytes.get(4..16).unwrap_or_default())
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// Returns [`FrameError::Malformed`] if the payload cannot be decoded. Commands that a light
    /// client does not need are an exception: their malformed payloads decode to
    /// [`NetworkMessage::Unknown`], since their formats may be extended (`addrv2` with new
    /// networks).
    pub fn decode(&self) -> Result<NetworkMessage, FrameError> {
        let command = self.command();
        let error = match deserialize::<RawNetworkMessage>(&self.bytes) {
            Ok(message) => return Ok(message.into_payload()),
            Err(error) => error,
        };
        match command.as_str() {
            // Old peers omit the `relay` field that BIP37 added. The default of the field is
            // `true`.
            "version" => {
                let with_relay = [self.payload(), &[1]].concat();
                if let Ok(version) = deserialize(&with_relay) {
                    return Ok(NetworkMessage::Version(version));
                }
            }
            // A light client does not need these messages, so a malformed one is no error.
            "addr" | "addrv2" | "alert" | "blocktxn" | "cmpctblock" | "feefilter"
            | "getblocktxn" | "reject" | "sendcmpct" => {
                let payload = self.payload().to_vec();
                if let Ok(name) = CommandString::try_from(command.clone()) {
                    return Ok(NetworkMessage::Unknown { command: name, payload });
                }
            }
            // A `verack` has no payload. Core ignores extra bytes, and so does this client.
            "verack" => return Ok(NetworkMessage::Verack),
            _ => {}
        }
        Err(FrameError::Malformed { command, why: words(&error) })
    }
}

/// Reads one message. An unknown command decodes to [`NetworkMessage::Unknown`]. Memory grows with
/// the bytes received, not with the length in the header.
///
/// # Errors
/// Returns an error if the stream fails, or if the frame or the payload is invalid.
pub fn read_message(from: &mut impl Read, magic: Magic) -> Result<NetworkMessage, FrameError> {
    read_frame(from, magic)?.decode()
}

/// Reads one message and checks its checksum, without decoding the payload.
///
/// # Errors
/// Returns an error if the stream fails, or if the magic, the length or the checksum is invalid.
pub fn read_frame(from: &mut impl Read, magic: Magic) -> Result<Frame, FrameError> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let [m0, m1, m2, m3, name @ .., l0, l1, l2, l3, c0, c1, c2, c3] = header;
    let got = [m0, m1, m2, m3];
    // The first four bytes identify the network: the rest is read only if they match.
    if got != magic.to_bytes() {
        return Err(FrameError::Magic { got });
    }
    let command = command_name(&name);
    let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    // Core's limit, checked before the payload is read: a peer cannot make us read 4 GB.
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

/// Writes a message with its header.
///
/// # Errors
/// Returns the errors of the stream.
pub fn write_message(to: &mut impl Write, magic: Magic, message: NetworkMessage) -> io::Result<()> {
    // The whole message is written at once, because with `TCP_NODELAY` each write could become a
    // packet.
    to.write_all(&encode_message(magic, message))?;
    to.flush()
}

/// Encodes a message with its header.
pub fn encode_message(magic: Magic, message: NetworkMessage) -> Vec<u8> {
    encode::serialize(&RawNetworkMessage::new(magic, message))
}

fn command_name(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.iter().take(end).map(|byte| byte.escape_ascii().to_string()).collect()
}

fn words(error: &encode::Error) -> String {
    match error {
        encode::Error::Io(_) => "the payload ends early".into(),
        error => error.to_string(),
    }
}

/// A stream whose reads and writes fail with [`io::ErrorKind::TimedOut`] after a deadline.
///
/// The socket keeps the timeouts that the last read or write has set.
#[derive(Debug)]
pub struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    /// Wraps `stream` with the deadline `until`.
    pub fn new(stream: &'a TcpStream, until: Instant) -> Self {
        Self { stream, until }
    }

    /// Returns the time left before the deadline. Zero is an error, because a socket does not
    /// accept a timeout of zero.
    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Maps `WouldBlock` to `TimedOut`: Unix reports `WouldBlock` when a socket's timeout has passed.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
