//! Time that a wallet with a long history needs to catch up: every block pays the wallet. And the time
//! that each address costs that a program adds while the client runs, one after the other.
//!
//! The node is the test node of this package. The client connects to the node once directly, and
//! once through a proxy that delays each `getdata` by 1.3 ms. This delay is the time that Bitcoin
//! Core needed per block when 20,000 blocks were fetched one by one.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run must stop")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use chainsieve_client::chainsieve::bitcoin::ScriptBuf;
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, Builder, Item, Network, News, Protocol, Wallet, WatchId};
use testkit::timer::Report;

/// Delay of each `getdata`.
const ANSWER: Duration = Duration::from_micros(1_300);
/// Length of a message header in bytes: magic, command, length and checksum.
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
    add_addresses(&mut report, &folder);
    fs::remove_dir_all(&folder).unwrap();
    report.finish();
}

/// Adds addresses one by one, to one wallet and as wallets of their own. The cost of an address must
/// not grow with their number.
fn add_addresses(report: &mut Report, folder: &Path) {
    let count: u32 = if report.is_quick() { 20_000 } else { 100_000 };
    let node = Node::regtest().unwrap();
    let script = |number: u32| -> ScriptBuf {
        [&[0, 20][..], &number.to_be_bytes(), &[7; 16]].concat().into()
    };
    node.mine_many(&script(u32::MAX), 1_000);
    for own in [false, true] {
        let _fresh = fs::remove_dir_all(folder);
        let builder = Builder::new(Network::Regtest).peer(node.address().to_string());
        let first = Wallet::new(Birthday::Height(0), vec![Item::Script(script(u32::MAX - 1))]);
        let client = builder.data_dir(folder).wallet("all", first).start().unwrap();
        client.updates().find(|update| matches!(update.news, News::CaughtUp(_))).unwrap();
        let mut updates = client.updates();
        let parts = [0..count / 2, count / 2..count].map(|numbers| {
            let begin = Instant::now();
            let mut last = WatchId::default();
            for number in numbers {
                let items = vec![Item::Script(script(number))];
                let id = if own { format!("w{number}") } else { "all".to_owned() };
                last =
                    client.watch(id.as_str(), Wallet::new(Birthday::Height(1_001), items)).unwrap();
                while updates.next_within(Duration::ZERO).is_some() {}
            }
            client.status().unwrap();
            let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(count / 2);
            while !client.wait_stored(last, Duration::from_millis(10)) {
                while updates.next_within(Duration::ZERO).is_some() {}
            }
            each
        });
        let kind = if own { "as wallets" } else { "to one wallet" };
        for (half, each) in ["first", "second"].into_iter().zip(parts) {
            let name = format!("{count} addresses one by one {kind}, the {half} half");
            report.value(&name, each, "us each");
        }
        assert_eq!(client.status().unwrap().progress.watched.0, u64::from(count) + 1);
        client.shutdown().unwrap();
    }
}

/// Runs a client up to the chain tip, and returns the number of its hits. Each hit is acknowledged.
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

/// Starts a proxy that forwards connections to a node and delays each `getdata`.
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
            // When one side closes its connection, the threads end and close the other side.
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
