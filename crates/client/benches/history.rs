//! How long a wallet with a long history takes to catch up: each block pays it.
//!
//! The node is one of this package, behind a proxy that answers each `getdata` after 1.3 ms, as a
//! Bitcoin Core did from which 20,000 blocks were fetched one by one.

#![expect(clippy::unwrap_used, reason = "a bench that cannot run is to stop")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use std::{env, fs, process, thread};

use chainsieve_client::chainsieve::bitcoin::ScriptBuf;
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, Builder, Item, Network, News, Protocol, Wallet};
use testkit::timer::Report;

/// The time that the node takes for a `getdata`.
const ANSWER: Duration = Duration::from_micros(1_300);
/// A frame's magic, command, length and checksum.
const HEADER: usize = 24;

fn main() {
    let mut report = Report::from_args();
    let hits = if report.is_quick() { 2_000 } else { 20_000 };
    let node = Node::regtest().unwrap();
    let script: ScriptBuf = [&[0, 20][..], &[1; 20]].concat().into();
    node.mine_many(&script, hits);
    let slow = proxy(node.address());
    let folder = env::temp_dir().join(format!("chainsieve-history-{}", process::id()));
    for (name, address) in [("answered at once", node.address()), ("after 1.3 ms", slow)] {
        for protocol in [Protocol::Bip157, Protocol::Bip37] {
            let builder = || {
                let _fresh = fs::remove_dir_all(&folder);
                let wallet = Wallet::new(Birthday::Height(0), vec![Item::Script(script.clone())]);
                let builder = Builder::new(Network::Regtest).peer(address.to_string());
                Some(builder.data_dir(&folder).protocol(protocol).wallet("w", wallet))
            };
            let name = format!("{hits} hits into a folder, {protocol:?}, getdata {name}");
            report.figure_of(&name, 1, builder, |builder| {
                assert_eq!(catch_up(builder.take().unwrap()), hits, "hits");
            });
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    report.finish();
}

/// Returns how many hits came up to the tip; each is acknowledged.
fn catch_up(builder: Builder) -> usize {
    let client = builder.start().unwrap();
    let mut hits = 0;
    for update in client.updates() {
        match update.news {
            News::Hit(_) => hits += 1,
            News::CaughtUp(_) => break,
            _ => {}
        }
        client.acknowledge(&update);
    }
    client.shutdown().unwrap();
    hits
}

/// Passes connections on to a node, each `getdata` after a pause.
fn proxy(node: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut node) = (client.unwrap(), TcpStream::connect(node).unwrap());
            for stream in [&client, &node] {
                stream.set_nodelay(true).unwrap();
            }
            let (mut from_node, mut to_client) =
                (node.try_clone().unwrap(), client.try_clone().unwrap());
            // Either end of a connection that is closed ends both.
            thread::spawn(move || io::copy(&mut from_node, &mut to_client));
            thread::spawn(move || while pass_on(&mut client, &mut node).is_ok() {});
        }
    });
    address
}

fn pass_on(client: &mut TcpStream, node: &mut TcpStream) -> io::Result<()> {
    let mut frame = vec![0; HEADER];
    client.read_exact(&mut frame)?;
    let length = u32::from_le_bytes(frame[16..20].try_into().unwrap());
    client.take(length.into()).read_to_end(&mut frame)?;
    if frame[4..].starts_with(b"getdata\0") {
        thread::sleep(ANSWER);
    }
    node.write_all(&frame)
}
