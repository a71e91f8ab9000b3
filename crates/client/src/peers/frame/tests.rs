//! Tests of frames: messages as nodes send them, and malformed bytes.

use chainsieve::bitcoin::consensus::encode::serialize;

use super::*;

/// The `verack` of the developer reference,
/// <https://developer.bitcoin.org/reference/p2p_networking.html>.
const VERACK: &str = "f9beb4d976657261636b000000000000000000005df6e0e2";

/// A `ping` with nonce 0x0094102111e2af4d, of the same reference.
const PING_PAYLOAD: [u8; 8] = [0x4d, 0xaf, 0xe2, 0x11, 0x21, 0x10, 0x94, 0x00];

fn frame(command: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Magic::BITCOIN.to_bytes().to_vec();
    bytes.extend(command.bytes().chain(std::iter::repeat(0)).take(12));
    bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes.extend(&sha256d::Hash::hash(payload).to_byte_array()[..4]);
    bytes.extend(payload);
    bytes
}

fn read(bytes: &[u8]) -> Result<NetworkMessage, FrameError> {
    read_message(&mut &bytes[..], Magic::BITCOIN)
}

#[test]
fn messages_of_the_reference() {
    assert_eq!(read(&hex::decode(VERACK).unwrap()).unwrap(), NetworkMessage::Verack);
    let ping = NetworkMessage::Ping(0x0094_1021_11e2_af4d);
    assert_eq!(read(&frame("ping", &PING_PAYLOAD)).unwrap(), ping);
    let mut written = Vec::new();
    write_message(&mut written, Magic::BITCOIN, NetworkMessage::Verack).unwrap();
    assert_eq!(hex::encode(written), VERACK);
}

#[test]
fn one_message_is_read_and_not_more() {
    let two = [frame("ping", &PING_PAYLOAD), hex::decode(VERACK).unwrap()].concat();
    let mut stream = two.as_slice();
    assert!(matches!(read_message(&mut stream, Magic::BITCOIN), Ok(NetworkMessage::Ping(_))));
    assert!(matches!(read_message(&mut stream, Magic::BITCOIN), Ok(NetworkMessage::Verack)));
    assert!(stream.is_empty());
}

#[test]
fn a_message_cut_at_each_byte_is_an_end() {
    let whole = frame("ping", &PING_PAYLOAD);
    for end in 0..whole.len() {
        let error = read(&whole[..end]).unwrap_err();
        let FrameError::Io(io) = &error else { panic!("{end}: {error}") };
        assert_eq!(io.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        assert!(!error.is_misbehaviour());
    }
}

#[test]
fn each_byte_of_magic_and_checksum_counts() {
    let whole = frame("ping", &PING_PAYLOAD);
    for place in (0..4).chain(20..whole.len()) {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        let error = read(&changed).unwrap_err();
        match place {
            ..4 => assert!(matches!(error, FrameError::Magic { .. }), "{place}: {error}"),
            _ => assert!(matches!(error, FrameError::Checksum { .. }), "{place}: {error}"),
        }
        assert!(error.is_misbehaviour());
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_the_payload() {
    let mut header = frame("block", &[]);
    header[16..20].copy_from_slice(&(MAX_PAYLOAD + 1).to_le_bytes());
    let error = read(&header).unwrap_err();
    assert_eq!(error.to_string(), "\"block\" of 4000001 bytes, the limit is 4000000");
    // A payload length of exactly the limit is accepted, and no memory is reserved for the payload.
    // The only error is that the stream ends early.
    header[16..20].copy_from_slice(&MAX_PAYLOAD.to_le_bytes());
    assert!(matches!(read(&header).unwrap_err(), FrameError::Io(_)));
}

/// A reader of `left` zeros that records the largest buffer it was given.
struct Zeros {
    left: usize,
    largest: usize,
}

impl Read for Zeros {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.largest = self.largest.max(buffer.len());
        let count = buffer.len().min(self.left);
        buffer[..count].fill(0);
        self.left -= count;
        Ok(count)
    }
}

#[test]
fn memory_grows_with_what_has_come() {
    let mut header = frame("block", &[]);
    header[16..20].copy_from_slice(&MAX_PAYLOAD.to_le_bytes());
    let mut zeros = Zeros { left: 1_000, largest: 0 };
    let mut stream = header.as_slice().chain(&mut zeros);
    assert!(read_message(&mut stream, Magic::BITCOIN).is_err());
    assert!(zeros.largest < 64 << 10, "a buffer of {} bytes for 1,000 bytes", zeros.largest);
}

#[test]
fn commands_nobody_knows_and_commands_that_are_none() {
    let message = read(&frame("sendtxrcncl", &[1, 2, 3])).unwrap();
    let NetworkMessage::Unknown { command, payload } = message else { panic!("{message:?}") };
    assert_eq!((command.to_string().as_str(), payload.as_slice()), ("sendtxrcncl", &[1, 2, 3][..]));
    let mut bytes = frame("ping", &PING_PAYLOAD);
    bytes[4] = 0x1b;
    // A control character in the command causes no panic and no error.
    assert!(matches!(read(&bytes).unwrap(), NetworkMessage::Unknown { .. }));
    bytes[4] = 0xff;
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("malformed \"\\xffing\": "), "{error}");
}

#[test]
fn payloads_that_end_early_or_late() {
    for cut in 0..PING_PAYLOAD.len() {
        let error = read(&frame("ping", &PING_PAYLOAD[..cut])).unwrap_err();
        assert_eq!(error.to_string(), "malformed \"ping\": the payload ends early", "{cut}");
    }
    let late = [&PING_PAYLOAD[..], &[0]].concat();
    assert!(matches!(read(&frame("ping", &late)), Err(FrameError::Malformed { .. })));
    // The payload claims 2^64 - 1 items, but does not contain them.
    for command in ["inv", "headers", "block", "tx", "cfheaders", "merkleblock"] {
        let error = read(&frame(command, &[0xff; 200])).unwrap_err();
        assert!(matches!(error, FrameError::Malformed { .. }), "{command}: {error}");
    }
}

#[test]
fn what_no_peer_acts_on_may_be_of_any_form() {
    for command in ["addr", "addrv2", "reject", "feefilter", "cmpctblock", "alert"] {
        let message = read(&frame(command, &[0xff; 20]));
        assert!(matches!(message, Ok(NetworkMessage::Unknown { .. })), "{command}: {message:?}");
    }
    assert_eq!(read(&frame("verack", &[0])).unwrap(), NetworkMessage::Verack);
}

#[test]
fn a_version_without_the_relay_field() {
    // The `version` message of the developer reference. The last byte of the message is the `relay`
    // field.
    let payload = hex::decode(
        "721101000100000000000000bc8f5e5400000000010000000000000000000000000000000000ffffc61b6409\
         208d010000000000000000000000000000000000ffffcb0071c0208d128035cbc97953f80f2f5361746f7368\
         693a302e392e332fcf05050001",
    )
    .unwrap();
    let Ok(NetworkMessage::Version(with)) = read(&frame("version", &payload)) else { panic!() };
    assert_eq!((with.user_agent.as_str(), with.start_height), ("/Satoshi:0.9.3/", 329_167));
    let (_, without) = payload.split_last().unwrap();
    let Ok(NetworkMessage::Version(old)) = read(&frame("version", without)) else { panic!() };
    assert!(old.relay);
    assert_eq!(serialize(&old), serialize(&with));
}
