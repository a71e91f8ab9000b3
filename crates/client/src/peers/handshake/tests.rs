//! Handshakes with scripted peers, and with a test node.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;

use super::super::frame::HEADER;
use super::*;
use crate::testnode::Node;

const MAGIC: Magic = Magic::REGTEST;

/// A scripted peer: the bytes that it sends, and the bytes that it has received.
#[derive(Default)]
struct Scripted {
    says: VecDeque<u8>,
    told: Vec<u8>,
}

impl Scripted {
    fn saying(messages: impl IntoIterator<Item = NetworkMessage>) -> Self {
        let mut says = Vec::new();
        for message in messages {
            write_message(&mut says, MAGIC, message).unwrap();
        }
        Self { says: says.into(), told: Vec::new() }
    }

    fn told(&self) -> Vec<NetworkMessage> {
        let mut told = self.told.as_slice();
        std::iter::from_fn(|| read_message(&mut told, MAGIC).ok()).collect()
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.told.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ours(nonce: u64) -> Ours {
    let services = ServiceFlags::NONE;
    let user_agent = "/chainsieve:test/".to_owned();
    Ours { magic: MAGIC, services, start_height: 7, user_agent, relay: false, nonce }
}

fn receiver() -> SocketAddr {
    ([127, 0, 0, 1], 18_444).into()
}

fn version() -> VersionMessage {
    let mut version = ours(2).version(Some(receiver()));
    version.user_agent = "/Satoshi:28.1.0/".into();
    version.services = ServiceFlags::NETWORK | ServiceFlags::BLOOM;
    version.start_height = 105;
    version
}

fn dialled(messages: impl IntoIterator<Item = NetworkMessage>) -> Result<Theirs, HandshakeError> {
    dial(&mut Scripted::saying(messages), &ours(1), Some(receiver()))
}

#[test]
fn what_core_sends_before_verack_is_passed_over() {
    use NetworkMessage::{SendAddrV2, SendHeaders, Verack, Version, WtxidRelay};
    let messages = [Version(version()), WtxidRelay, SendAddrV2, SendHeaders, Verack];
    let mut peer = Scripted::saying(messages);
    let theirs = dial(&mut peer, &ours(1), Some(receiver())).unwrap();
    assert_eq!(theirs.user_agent, "/Satoshi:28.1.0/");
    assert_eq!((theirs.start_height, theirs.protocol), (105, PROTOCOL_VERSION));
    assert!(theirs.services.has(ServiceFlags::BLOOM));
    let told = peer.told();
    let [Version(first), SendAddrV2, Verack] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((first.nonce, first.start_height, first.relay), (1, 7, false));
    assert_eq!(first.user_agent, "/chainsieve:test/");
}

#[test]
fn peers_too_old_for_sendaddrv2_are_not_sent_it() {
    use NetworkMessage::{Verack, Version};
    let mut old = version();
    old.version = 70_015;
    let mut peer = Scripted::saying([Version(old), Verack]);
    dial(&mut peer, &ours(1), None).unwrap();
    let told = peer.told();
    let [Version(first), Verack] = told.as_slice() else { panic!("{told:?}") };
    // Without a receiver, both addresses in `version` are empty.
    assert_eq!(first.receiver.socket_addr().unwrap(), ([0, 0, 0, 0], 0).into());
    assert_eq!(first.sender.socket_addr().unwrap(), ([0, 0, 0, 0], 0).into());
}

#[test]
fn peers_that_are_refused() {
    use NetworkMessage::{Ping, Verack, Version};
    let with = |change: fn(&mut VersionMessage)| {
        let mut version = version();
        change(&mut version);
        dialled([Version(version), Verack])
    };
    let refused = |result: Result<Theirs, HandshakeError>| result.unwrap_err().to_string();
    assert_eq!(refused(with(|v| v.nonce = 1)), "handshake: a connection to ourselves");
    assert_eq!(
        refused(with(|v| v.version = 70_000)),
        "handshake: protocol version 70000, the minimum is 70001"
    );
    assert_eq!(refused(dialled([Verack])), "handshake: \"verack\" before version");
    assert_eq!(
        refused(dialled([Version(version()), Version(version())])),
        "handshake: a second version message"
    );
    let pings = std::iter::repeat_n(Ping(0), 100);
    assert_eq!(
        refused(dialled([Version(version())].into_iter().chain(pings))),
        "handshake: no verack among the first 32 messages"
    );
    assert_eq!(refused(dialled([Version(version())])), "handshake: the peer closed the connection");
}

#[test]
fn what_comes_before_a_valid_version_is_no_fault_of_the_peer() {
    use NetworkMessage::{Ping, Version};
    let portal = b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n";
    let said = |messages: &[NetworkMessage]| Vec::from(Scripted::saying(messages.to_vec()).says);
    let mut no_version = said(&[Version(version())]);
    no_version.truncate(HEADER);
    // A `version` without payload, with the checksum of an empty payload.
    no_version[16..].copy_from_slice(&[0, 0, 0, 0, 0x5d, 0xf6, 0xe0, 0xe2]);
    let cases = [
        (portal.to_vec(), "handshake: magic 48545450: another network, or not bitcoin"),
        (no_version, "handshake: malformed \"version\": the payload ends early"),
        (said(&[Ping(1)]), "handshake: \"ping\" before version"),
    ];
    let dial = |bytes: Vec<u8>| {
        let mut peer = Scripted { says: bytes.into(), told: Vec::new() };
        dial(&mut peer, &ours(1), None).unwrap_err()
    };
    for (bytes, text) in cases {
        let error = dial(bytes.clone());
        assert_eq!(error.to_string(), text);
        assert!(!error.is_misbehaviour(), "{text}");
        // After a `version`, invalid bytes are the peer's fault, and a ping is allowed.
        let later = dial([said(&[Version(version())]), bytes].concat());
        assert_eq!(later.is_misbehaviour(), !text.contains("ping"), "{later}");
    }
}

#[test]
fn what_a_peer_says_of_itself_is_kept_within_bounds() {
    let mut version = version();
    version.user_agent = format!("\u{1b}[31m{}", "é".repeat(1_000));
    version.start_height = -5;
    let theirs = dialled([NetworkMessage::Version(version), NetworkMessage::Verack]).unwrap();
    assert_eq!(theirs.user_agent.len(), MAX_SUBVERSION_LENGTH);
    assert!(theirs.user_agent.starts_with("?[31m?"), "{}", theirs.user_agent);
    assert_eq!(theirs.start_height, 0);
}

#[test]
fn a_node_is_dialled_and_the_stream_is_as_before() {
    let node = Node::regtest().unwrap();
    let mut stream = TcpStream::connect(node.address()).unwrap();
    let limit = Some(Duration::from_secs(90));
    stream.set_read_timeout(limit).unwrap();
    let theirs = shake_hands(&mut stream, &ours(4), Some(node.address())).unwrap();
    assert!(theirs.services.has(ServiceFlags::BLOOM | ServiceFlags::COMPACT_FILTERS));
    assert_eq!((theirs.protocol, theirs.start_height), (PROTOCOL_VERSION, 0));
    assert_eq!(stream.read_timeout().unwrap(), limit);
    assert_eq!(stream.write_timeout().unwrap(), None);
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = shake_hands(&mut stream, &ours(5), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "handshake: no answer in time (no version message came: perhaps a node of another network)"
    );
    assert!(!error.is_misbehaviour());
}
