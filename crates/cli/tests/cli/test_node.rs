//! Tests of `btc test-node`, with peers that follow the protocol and peers that break it.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::consensus::encode::{
    deserialize, deserialize_hex, serialize, serialize_hex,
};
use chainsieve::bitcoin::p2p::address::Address;
use chainsieve::bitcoin::p2p::message::{NetworkMessage, RawNetworkMessage};
use chainsieve::bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use chainsieve::bitcoin::p2p::message_network::VersionMessage;
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::bitcoin::{Block, BlockHash, hashes::Hash as _};
use serde_json::{Value, json};
use testkit::TestFolder;

use super::{BAD_INPUT, fixture, run};

/// A timeout far longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// A folder of blocks.
pub(super) struct Folder(TestFolder);

impl Folder {
    /// Returns a folder with mainnet's blocks at these heights in a file of hex.
    pub(super) fn new(heights: std::ops::RangeInclusive<usize>) -> Self {
        let folder = TestFolder::new("blocks");
        let rows = fixture("mainnet_0-255.json");
        let rows = rows.as_array().expect("a list");
        let lines: Vec<_> =
            rows[heights].iter().map(|row| row["block"].as_str().expect("hex")).collect();
        folder.write("blocks.hex", lines.join("\n"));
        Self(folder)
    }

    pub(super) fn path(&self) -> &str {
        self.0.path().to_str().expect("UTF-8")
    }
}

fn block(height: usize) -> Block {
    let rows = fixture("mainnet_0-255.json");
    deserialize_hex(rows[height]["block"].as_str().expect("hex")).expect("a block")
}

/// A running command, and the lines that it prints.
pub(super) struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(super) address: SocketAddr,
    /// The lines that the command printed before it accepted connections.
    before: Vec<Value>,
    /// Ends the watchdog thread. The watchdog kills the command after the timeout, so that a test
    /// that waits for a missing line does not hang.
    done: mpsc::Sender<()>,
}

impl Server {
    pub(super) fn start(folder: &Folder, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
            .args(["btc", "test-node", folder.path(), "--network", "mainnet", "--json"])
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let (done, waiting) = mpsc::channel();
        let id = child.id().to_string();
        thread::spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                drop(Command::new("kill").args(["-s", "KILL", &id]).status());
            }
        });
        let address = ([127, 0, 0, 1], 0).into();
        let mut server = Self { child, lines, address, before: Vec::new(), done };
        loop {
            let line = server.line();
            if line["kind"] == "listening" {
                let address = line["address"].as_str().expect("an address");
                server.address = address.parse().expect("an address");
                return server;
            }
            server.before.push(line);
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Returns the next line of this kind, and skips the lines before it.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line();
            if line["kind"] == kind {
                return line;
            }
        }
    }

    /// Sends a signal. Returns the exit code and the last line of the command.
    fn end(mut self, signal: &str) -> (Option<i32>, Value) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(status.is_ok_and(|status| status.success()));
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        let code = self.child.wait().expect("it ends").code();
        let last = rest.lines().last().unwrap_or_default();
        (code, serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {rest}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.done.send(()).unwrap_or_default();
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn frame(magic: Magic, message: NetworkMessage) -> Vec<u8> {
    serialize(&RawNetworkMessage::new(magic, message))
}

/// The client's side of a connection.
struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(stream)
    }

    /// Connects and completes the handshake.
    fn meet(server: &Server) -> Self {
        Self::try_meet(server).expect("it is let in")
    }

    /// Connects like [`Self::meet`]; returns `None` if the node refuses the connection.
    fn try_meet(server: &Server) -> Option<Self> {
        let mut client = Self::connect(server);
        let nowhere = Address::new(&server.address, ServiceFlags::NONE);
        let version = NetworkMessage::Version(VersionMessage {
            version: 70_016,
            services: ServiceFlags::NONE,
            timestamp: 0,
            receiver: nowhere.clone(),
            sender: nowhere,
            nonce: 7,
            user_agent: "/a wallet\u{1b}[2J/".into(),
            start_height: 0,
            relay: true,
        });
        client.0.write_all(&frame(Magic::BITCOIN, version)).ok()?;
        assert!(matches!(client.hear()?, NetworkMessage::Version(_)));
        assert_eq!(client.hear(), Some(NetworkMessage::Verack));
        client.say(NetworkMessage::Verack);
        Some(client)
    }

    fn say(&mut self, message: NetworkMessage) {
        self.write(&frame(Magic::BITCOIN, message));
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it reads");
    }

    /// Returns the next message; `None` if the node has closed the connection.
    fn hear(&mut self) -> Option<NetworkMessage> {
        let mut frame = vec![0; 24];
        if let Err(error) = self.0.read_exact(&mut frame) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "nothing came");
            return None;
        }
        let length = u32::from_le_bytes(frame[16..20].try_into().expect("4 bytes"));
        frame.resize(24 + length as usize, 0);
        self.0.read_exact(&mut frame[24..]).expect("a payload");
        let message: RawNetworkMessage = deserialize(&frame).expect("a message");
        Some(message.into_payload())
    }

    fn headers(&mut self) -> Vec<BlockHash> {
        let genesis = block(0).block_hash();
        let stop = BlockHash::all_zeros();
        self.say(NetworkMessage::GetHeaders(GetHeadersMessage::new(vec![genesis], stop)));
        match self.hear() {
            Some(NetworkMessage::Headers(headers)) => {
                headers.iter().map(chainsieve::bitcoin::block::Header::block_hash).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let folder = Folder::new(0..=1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let call = ["btc", "test-node", folder.path(), "--network", "mainnet", "--listen", &address];
    let output = run(&call);
    assert_eq!(output.code, BAD_INPUT);
    assert!(output.stderr.contains(&format!("cannot listen on {address}")), "{}", output.stderr);
}

#[test]
fn a_peer_is_answered_told_of_new_blocks_and_let_go() {
    let folder = Folder::new(0..=100);
    let mut server = Server::start(&folder, &[]);
    let mut client = Client::meet(&server);
    assert_eq!(server.event("connected")["peer"], 1);
    let ready = server.event("ready");
    assert_eq!(
        ready,
        json!({
            "kind": "ready",
            "peer": 1,
            "user_agent": "/a wallet\u{1b}[2J/",
            "protocol": 70_016,
        })
    );
    assert_eq!(client.headers().len(), 100);
    client.say(NetworkMessage::GetData(vec![Inventory::WitnessBlock(block(57).block_hash())]));
    assert_eq!(client.hear(), Some(NetworkMessage::Block(block(57))));
    // The file grows. At first, the file contains one block and a part of the next block.
    let (first, second) = (serialize(&block(101)), serialize(&block(102)));
    let mut file = fs::File::create(folder.0.file("more.dat")).expect("a file");
    file.write_all(&[&first[..], &second[..50]].concat()).expect("written");
    let announced = |block: &Block| NetworkMessage::Inv(vec![Inventory::Block(block.block_hash())]);
    assert_eq!(client.hear(), Some(announced(&block(101))));
    assert_eq!(server.event("chain")["height"], 101);
    file.write_all(&second[50..]).expect("written");
    assert_eq!(client.hear(), Some(announced(&block(102))));
    let tip = block(102).block_hash().to_string();
    let event = server.event("chain");
    let expected =
        json!({ "kind": "chain", "blocks": 1, "height": 102, "tip": tip, "disconnected": 0 });
    assert_eq!(event, expected);
    drop(client);
    let gone = server.event("disconnected");
    assert_eq!((&gone["peer"], &gone["misbehaved"]), (&json!(1), &json!(false)), "{gone}");
    let (code, last) = server.end("TERM");
    assert_eq!(code, Some(0));
    let expected = json!({
        "kind": "summary",
        "connections": 1,
        "blocks": 103,
        "height": 102,
        "tip": tip,
    });
    assert_eq!(last, expected);
}

/// Each of these peers is disconnected, and the reason is printed. A peer that does nothing wrong
/// stays connected.
#[test]
fn who_breaks_the_protocol_is_disconnected() {
    let folder = Folder::new(0..=3);
    let mut server = Server::start(&folder, &["--no-bip37"]);
    let mut good = Client::meet(&server);
    server.event("ready");
    let locator = GetHeadersMessage::new(vec![BlockHash::all_zeros(); 102], BlockHash::all_zeros());
    let cases = [
        (vec![0xa5; 4_096], "magic a5a5a5a5"),
        (frame(Magic::REGTEST, NetworkMessage::Ping(1)), "another network"),
        (frame(Magic::BITCOIN, NetworkMessage::GetHeaders(locator)), "102 hashes"),
        (frame(Magic::BITCOIN, NetworkMessage::MemPool), "does not offer"),
        (frame(Magic::BITCOIN, NetworkMessage::FilterClear), "does not offer"),
    ];
    for (bytes, why) in cases {
        let mut bad = Client::meet(&server);
        server.event("ready");
        bad.write(&bytes);
        assert_eq!(bad.hear(), None, "{why}");
        let gone = server.event("disconnected");
        assert_eq!(gone["misbehaved"], true, "{gone}");
        assert!(
            gone["reason"].as_str().is_some_and(|reason| reason.contains(why)),
            "{why}: {gone}"
        );
    }
    // Garbage in place of a handshake is refused as well.
    let mut bad = Client::connect(&server);
    bad.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(bad.hear(), None);
    assert!(
        server.event("disconnected")["reason"].as_str().is_some_and(|text| text.contains("magic"))
    );
    // A peer may send unknown messages, and messages that do not concern a server.
    let command = "chainsieve".to_owned().try_into().expect("short");
    good.say(NetworkMessage::Unknown { command, payload: vec![1; 1_000] });
    good.say(NetworkMessage::FeeFilter(1_000));
    good.say(NetworkMessage::SendHeaders);
    good.say(NetworkMessage::Ping(5));
    assert_eq!(good.hear(), Some(NetworkMessage::Pong(5)));
    assert_eq!(good.headers().len(), 3);
    // The command is ended as by Ctrl-C while a peer is connected.
    let (code, last) = server.end("INT");
    assert_eq!((code, &last["connections"]), (Some(0), &json!(7)));
    assert_eq!(good.hear(), None);
}

#[test]
fn no_more_peers_than_allowed() {
    let folder = Folder::new(0..=0);
    let mut server = Server::start(&folder, &["--max-connections", "2"]);
    let first = Client::meet(&server);
    let mut second = Client::meet(&server);
    let mut third = Client::connect(&server);
    assert_eq!(third.hear(), None);
    let refused = server.event("refused");
    assert!(refused["reason"].as_str().is_some_and(|why| why.contains('2')), "{refused}");
    second.say(NetworkMessage::Ping(1));
    assert_eq!(second.hear(), Some(NetworkMessage::Pong(1)));
    drop(first);
    server.event("disconnected");
    // The slot is free only after the server has noticed that the connection's thread ended.
    let deadline = Instant::now() + PATIENCE;
    while Client::try_meet(&server).is_none() {
        assert!(Instant::now() < deadline, "no slot is free");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_missing_is_said() {
    let folder = Folder::new(5..=9);
    folder.0.write("bad.dat", serialize(&block(1)).split_at(100).0);
    let mut server = Server::start(&folder, &[]);
    let missing = block(4).block_hash().to_string();
    assert_eq!(server.before[0]["kind"], "warning");
    let warning = server.before[0]["text"].as_str().expect("a warning");
    assert!(warning.contains("5 blocks not served") && warning.contains(&missing), "{warning}");
    let warning = server.event("warning");
    assert!(warning["text"].as_str().is_some_and(|text| text.contains("bad.dat")), "{warning}");
    // When the missing blocks arrive, all blocks are served.
    let lines: Vec<_> = (1..=4).map(|height| serialize_hex(&block(height))).collect();
    let written = folder.0.write("rest.tmp", lines.join("\n"));
    fs::rename(written, folder.0.file("rest.hex")).expect("renamed");
    loop {
        let event = server.event("chain");
        if event["height"] == 9 {
            break;
        }
    }
}
