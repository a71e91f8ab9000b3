//! Tests of pools against scripted nodes and a scripted SOCKS5 proxy, on loopback. Each wait has a
//! timeout.

mod eclipse;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::address::{AddrV2, AddrV2Message, Address};
use chainsieve::bitcoin::p2p::message_network::VersionMessage;

use super::super::frame::{read_message, write_message};
use super::super::handshake::HandshakeError;
use super::super::socks::SocksError;
use super::*;

const MAGIC: Magic = Magic::REGTEST;

/// Timeout of each step, far longer than a step takes.
fn limit() -> Duration {
    Duration::from_secs(30)
}

fn version() -> VersionMessage {
    let nowhere = Address::new(&([0, 0, 0, 0], 0).into(), ServiceFlags::NONE);
    VersionMessage {
        version: 70_016,
        services: ServiceFlags::NETWORK | ServiceFlags::WITNESS,
        timestamp: 0,
        receiver: nowhere.clone(),
        sender: nowhere,
        nonce: 1,
        user_agent: "/node:1/".into(),
        start_height: 7,
        relay: true,
    }
}

/// Serves a connection until the other side closes it: answers the handshake, sends `first`, and
/// answers `getaddr` with `addresses`.
fn serve(mut stream: &TcpStream, first: &[NetworkMessage], addresses: &NetworkMessage) {
    stream.set_read_timeout(Some(limit())).unwrap();
    while let Ok(message) = read_message(&mut stream, MAGIC) {
        let mut say = |message| drop(write_message(&mut stream, MAGIC, message));
        match message {
            NetworkMessage::Version(_) => {
                say(NetworkMessage::Version(version()));
                say(NetworkMessage::Verack);
            }
            NetworkMessage::Verack => first.iter().cloned().for_each(say),
            NetworkMessage::GetAddr => say(addresses.clone()),
            _ => {}
        }
    }
}

fn none() -> NetworkMessage {
    NetworkMessage::AddrV2(Vec::new())
}

/// Starts a node that accepts one connection and sends `first` after the handshake.
fn node(first: Vec<NetworkMessage>) -> (Target, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = listener.local_addr().unwrap().into();
    (target, thread::spawn(move || serve(&listener.accept().unwrap().0, &first, &none())))
}

fn config(peers: Vec<Target>) -> PoolConfig {
    let mut config = PoolConfig::new(NetworkParams::new(Network::Regtest));
    config.peers = peers;
    config
}

fn pool(config: PoolConfig) -> Pool {
    Pool::new(config, AddressBook::new(), [3; 16]).unwrap()
}

/// Collects events up to and including the first event for which `fits` returns `true`.
fn until(pool: &mut Pool, fits: impl Fn(&PoolEvent) -> bool) -> Vec<PoolEvent> {
    let begun = Instant::now();
    let mut events = Vec::new();
    while begun.elapsed() < limit() {
        let Some(event) = pool.wait(Duration::from_millis(100)) else { continue };
        events.push(event);
        if fits(events.last().unwrap()) {
            return events;
        }
    }
    panic!("timeout: the expected event is missing: {events:?}");
}

fn notes(events: &[PoolEvent]) -> Vec<String> {
    let notes = events.iter().filter_map(|event| match event {
        PoolEvent::Note(note) => Some(note.to_string()),
        _ => None,
    });
    notes.collect()
}

#[test]
fn a_named_peer_is_called_listened_to_and_banned() {
    let large = AddrV2Message {
        time: 0,
        services: ServiceFlags::NONE,
        addr: AddrV2::Ipv4([1, 2, 3, 4].into()),
        port: 1,
    };
    let says = vec![
        NetworkMessage::Ping(5),
        // These addresses are ignored: only named peers are dialled.
        NetworkMessage::AddrV2(vec![large.clone(); 1_000]),
        NetworkMessage::FeeFilter(7),
        NetworkMessage::AddrV2(vec![large; 1_001]),
    ];
    let (target, node) = node(says);
    let mut pool = pool(config(vec![target.clone()]));
    let events = until(&mut pool, |event| matches!(event, PoolEvent::Disconnected(_)));
    let line =
        format!("peer {target}: connected: \"/node:1/\", height 7, services network|witness");
    let ban = format!("peer {target}: banned: a message of 1001 addresses, the limit is 1000");
    assert_eq!(notes(&events), [line, ban]);
    let messages: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            PoolEvent::Message(_, message) => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(messages, [&NetworkMessage::Ping(5), &NetworkMessage::FeeFilter(7)]);
    assert!(matches!(events[1], PoolEvent::Connected(PeerId(1), _)), "{events:?}");
    assert!(pool.all_banned() && pool.all_up() && pool.all_tried());
    let states: Vec<_> = pool.addresses().map(|status| status.state).collect();
    assert_eq!(states, [AddressState::Banned]);
    assert_eq!(pool.book().len(), 1);
    node.join().unwrap();
}

#[test]
fn a_peer_that_the_owner_drops_is_called_again() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let node = thread::spawn(move || {
        for _ in 0..2 {
            serve(&listener.accept().unwrap().0, &[], &none());
        }
    });
    let mut pool = pool(config(vec![target.clone()]));
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(PeerId(1), _)));
    assert_eq!(pool.name(PeerId(1)), Some(target.to_string()));
    pool.drop_peer(PeerId(1), "for a reason");
    let PoolEvent::Note(note) = pool.ready().unwrap() else { panic!() };
    let line = note.to_string();
    assert!(line.starts_with(&format!("peer {target}: disconnected: for a reason; again in")));
    // The new connection has a new id, so that late messages of the old connection are not assigned
    // to the new one.
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(PeerId(2), _)));
    drop(pool);
    node.join().unwrap();
}

/// Accepts one connection, and returns it with the `version` message that it began with.
fn answer(listener: &TcpListener) -> (TcpStream, VersionMessage) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(limit())).unwrap();
    let NetworkMessage::Version(version) = read_message(&mut stream, MAGIC).unwrap() else {
        panic!()
    };
    (stream, version)
}

/// A nonce that two connections share would show their peers that both lead to the same client,
/// also through Tor and after a change of the network.
#[test]
fn no_two_connections_share_a_nonce() {
    let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let targets = listeners.iter().map(|it| it.local_addr().unwrap().into()).collect();
    let nodes = listeners.map(|listener| {
        // Each node is dialled twice: the first connection ends before the handshake is done.
        thread::spawn(move || [(); 2].map(|()| answer(&listener).1.nonce))
    });
    let mut pool = pool(config(targets));
    let begun = Instant::now();
    while nodes.iter().any(|node| !node.is_finished()) {
        assert!(begun.elapsed() < limit());
        pool.wait(Duration::from_millis(100));
    }
    let nonces = nodes.map(|node| node.join().unwrap());
    let different: std::collections::BTreeSet<_> = nonces.iter().flatten().collect();
    assert_eq!(different.len(), 6, "{nonces:x?}");
    assert!(!different.contains(&0), "{nonces:x?}");
}

/// Two of our connections that someone wires together lead to this client, although each has a
/// nonce of its own.
#[test]
fn a_nonce_of_any_own_connection_is_a_connection_to_ourselves() {
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let targets: Vec<Target> = listeners.iter().map(|it| it.local_addr().unwrap().into()).collect();
    let relay = thread::spawn(move || {
        let (mut ends, versions): (Vec<_>, Vec<_>) = listeners.iter().map(answer).unzip();
        for (end, version) in ends.iter_mut().zip(versions.into_iter().rev()) {
            for message in [NetworkMessage::Version(version), NetworkMessage::Verack] {
                // The client may close the connection before it has read everything.
                drop(write_message(end, MAGIC, message));
            }
        }
        for end in ends {
            drop((&end).read_to_end(&mut Vec::new()));
        }
    });
    let mut pool = pool(config(targets));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let mut events = until(&mut pool, |event| {
            assert!(!matches!(event, PoolEvent::Connected(..)));
            matches!(event, PoolEvent::Note(PeerNote::NotConnected { .. }))
        });
        ended.extend(events.pop());
    }
    let why = |event: &PoolEvent| {
        matches!(
            event,
            PoolEvent::Note(PeerNote::NotConnected {
                why: CallError::Handshake(HandshakeError::SelfConnection),
                ..
            })
        )
    };
    assert!(ended.iter().all(why), "{ended:?}");
    assert!(!pool.all_banned());
    relay.join().unwrap();
}

#[test]
fn a_peer_that_does_not_read_is_disconnected() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = listener.local_addr().unwrap().into();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let node = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for message in [NetworkMessage::Version(version()), NetworkMessage::Verack] {
            write_message(&mut stream, MAGIC, message).unwrap();
        }
        let _ended = wait.recv_timeout(limit());
    });
    let mut pool = pool(config(vec![target]));
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(..)));
    for _ in 0..200 {
        pool.send(PeerId(1), NetworkMessage::Alert(vec![0; 1_000_000]));
    }
    let events = until(&mut pool, |event| matches!(event, PoolEvent::Disconnected(PeerId(1))));
    assert!(notes(&events)[0].contains("disconnected: the peer does not read its messages"));
    done.send(()).unwrap();
    node.join().unwrap();
}

#[test]
fn a_wait_ends_early_when_another_thread_says_so() {
    let mut pool = pool(config(vec![Target::parse("127.0.0.1:1", 1).unwrap()]));
    // No node listens at this address.
    until(&mut pool, |event| matches!(event, PoolEvent::Note(PeerNote::NotConnected { .. })));
    let waker = pool.waker();
    // Two calls of `wake` before a wait have the same effect as one call.
    waker.wake();
    waker.wake();
    let begun = Instant::now();
    assert!(pool.wait(limit()).is_none());
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        waker.wake();
    });
    // Each note about a further failed connection also ends a wait.
    while pool.wait(limit()).is_some() {}
    thread.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(pool.try_next().is_none());
}

#[test]
fn nobody_to_call_is_an_error() {
    let new = |config| Pool::new(config, AddressBook::new(), [3; 16]);
    assert!(matches!(new(config(Vec::new())), Err(StartError::NobodyToCall)));
    let onion = Target { host: Host::Onion([7; 32]), port: 1 };
    let error = new(config(vec![onion.clone()])).unwrap_err();
    assert!(matches!(error, StartError::NeedsProxy(target) if target == onion));
    let mut no_seeds = PoolConfig::new(NetworkParams::new(Network::Bitcoin));
    no_seeds.use_seeds = false;
    assert!(matches!(new(no_seeds), Err(StartError::NobodyToCall)));
}

/// The requests that a proxy received: user name and target.
type Asked = Arc<Mutex<Vec<(Vec<u8>, Target)>>>;

/// Starts a SOCKS5 proxy with passwords. The proxy connects every request to a node that answers
/// `getaddr` with `addresses`. The thread ends when `calls` connections were accepted and closed.
fn proxy(calls: usize, addresses: NetworkMessage) -> (SocketAddr, Asked, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let kept = asked.clone();
    let thread = thread::spawn(move || {
        let threads: Vec<_> = (0..calls)
            .map(|_| {
                let (stream, _) = listener.accept().unwrap();
                let (kept, addresses) = (kept.clone(), addresses.clone());
                thread::spawn(move || {
                    kept.lock().unwrap().push(accept(&stream));
                    serve(&stream, &[], &addresses);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    (address, asked, thread)
}

fn read(mut stream: &TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Answers a client's request as a proxy that accepts the request. Returns the user name and the
/// target.
fn accept(mut stream: &TcpStream) -> (Vec<u8>, Target) {
    stream.set_read_timeout(Some(limit())).unwrap();
    assert_eq!(read(stream, 4), [5, 2, 0, 2]);
    stream.write_all(&[5, 2]).unwrap();
    assert_eq!(read(stream, 2), [1, 16]);
    let user = read(stream, 16);
    assert_eq!(read(stream, 1), [16]);
    assert_eq!(read(stream, 16), user);
    stream.write_all(&[1, 0]).unwrap();
    assert_eq!(read(stream, 3), [5, 1, 0]);
    let host = match read(stream, 1)[0] {
        1 => Host::Ip(<[u8; 4]>::try_from(read(stream, 4)).unwrap().into()),
        3 => {
            let length = read(stream, 1)[0];
            let name = String::from_utf8(read(stream, length.into())).unwrap();
            Target::parse(&name, 1).unwrap().host
        }
        4 => Host::Ip(<[u8; 16]>::try_from(read(stream, 16)).unwrap().into()),
        kind => panic!("{kind}"),
    };
    let port = u16::from_be_bytes(read(stream, 2).try_into().unwrap());
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    (user, Target { host, port })
}

#[test]
fn names_and_onions_go_to_the_proxy_each_with_a_stream_of_its_own() {
    let (address, asked, thread) = proxy(3, none());
    // No resolver can resolve a name under `.invalid` (RFC 6761).
    let named = Target::parse("node.invalid:5", 1).unwrap();
    let onion = Target { host: Host::Onion([7; 32]), port: 6 };
    let ip = Target::parse("[2a01::1]:7", 1).unwrap();
    let mut config = config(vec![named.clone(), onion.clone(), ip.clone()]);
    config.proxy = Some(address);
    let mut pool = pool(config);
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(PeerId(3), _)));
    drop(pool);
    thread.join().unwrap();
    let asked = asked.lock().unwrap();
    let mut targets: Vec<_> = asked.iter().map(|(_, target)| target.clone()).collect();
    targets.sort();
    let mut expected = [named, onion, ip];
    expected.sort();
    assert_eq!(targets, expected);
    let users: std::collections::BTreeSet<_> = asked.iter().map(|(user, _)| user).collect();
    assert_eq!(users.len(), 3);
}

#[test]
fn seeds_are_asked_through_the_proxy_and_netgroups_are_told_apart() {
    let entry = |addr| AddrV2Message {
        time: u32::try_from(unix_time().as_secs()).unwrap(),
        services: ServiceFlags::NETWORK | ServiceFlags::WITNESS,
        addr,
        port: 18_444,
    };
    let v4 = |a, b, d| entry(AddrV2::Ipv4([a, b, 0, d].into()));
    let mut list: Vec<_> = (1..60).map(|d| v4(66, 66, d)).collect();
    list.extend([v4(7, 7, 1), v4(8, 8, 1), entry(AddrV2::TorV3([9; 32]))]);
    let addresses = list.len();
    // Five connections: the seed and four peers.
    let (address, asked, thread) = proxy(5, NetworkMessage::AddrV2(list));
    let mut config = config(Vec::new());
    config.chain.seeds = vec!["seed.invalid".into()];
    config.proxy = Some(address);
    let mut pool = pool(config);
    let events = until(&mut pool, |event| matches!(event, PoolEvent::Connected(PeerId(4), _)));
    assert_eq!(notes(&events)[0], format!("seeds: {addresses} addresses"));
    assert!(pool.all_tried() && !pool.all_up());
    drop(pool);
    thread.join().unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].1.to_string(), "seed.invalid:18444");
    let groups: std::collections::BTreeSet<_> =
        asked[1..].iter().map(|(_, target)| Group::of(&target.host)).collect();
    assert_eq!(groups.len(), 4, "{asked:?}");
}

#[test]
fn a_peer_that_tells_addresses_without_being_asked_tells_one() {
    let entry = |d| AddrV2Message {
        time: u32::try_from(unix_time().as_secs()).unwrap(),
        services: ServiceFlags::NETWORK,
        addr: AddrV2::Ipv4([20, d, 0, 1].into()),
        port: 18_444,
    };
    let flood = NetworkMessage::AddrV2((0..200).map(entry).collect());
    // Three of the four peers are asked for addresses. From the fourth peer, one address is
    // accepted.
    let says = vec![flood.clone(), flood, NetworkMessage::FeeFilter(1)];
    let nodes: Vec<_> = (0..4).map(|_| node(says.clone())).collect();
    let targets = nodes.iter().map(|(target, _)| target.clone()).collect();
    let mut config = config(targets);
    config.others = true;
    let mut pool = pool(config);
    let mut fees = 0;
    let begun = Instant::now();
    while fees < 4 {
        assert!(begun.elapsed() < limit());
        let event = pool.wait(Duration::from_millis(100));
        fees +=
            usize::from(matches!(event, Some(PoolEvent::Message(_, NetworkMessage::FeeFilter(1)))));
    }
    // A peer that was asked may send 1,000 addresses, so all 200 addresses are accepted.
    assert_eq!(pool.peers.values().filter(|peer| peer.asked).count(), MAX_ASKED);
    assert_eq!(pool.book().len(), 4 + 200);
    let unasked = pool.peers.values().find(|peer| !peer.asked).unwrap();
    assert_eq!({ unasked.allowance }.take(1_000, pool.now()), 0);
    drop(pool);
    for (_, thread) in nodes {
        thread.join().unwrap();
    }
}

#[test]
fn proxies_that_lie_or_refuse_are_errors_and_the_peer_is_not_to_blame() {
    let replies: [&'static [u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        &[5, 0xff],
        &[5, 0, 5, 1, 0, 1],
        &[5, 0, 5, 0, 0, 9],
        &[5],
    ];
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        for reply in replies {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(reply).unwrap();
            // The stream is read to its end, because a reset could otherwise discard the reply.
            // Errors are ignored: the client may already have closed the connection at the first
            // wrong byte.
            drop(stream.shutdown(std::net::Shutdown::Write));
            drop(stream.set_read_timeout(Some(limit())));
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    let target = |number: u8| Target { host: Host::Ip([8, number, 8, 8].into()), port: 1 };
    let mut config = config((0..5).map(target).collect());
    config.proxy = Some(address);
    config.max_peers = 1;
    let mut pool = pool(config);
    let mut errors = Vec::new();
    while errors.len() < 5 {
        let mut events = until(&mut pool, |event| {
            matches!(event, PoolEvent::Note(PeerNote::NotConnected { .. }))
        });
        let Some(PoolEvent::Note(PeerNote::NotConnected { why: CallError::Proxy(why), .. })) =
            events.pop()
        else {
            panic!()
        };
        errors.push(why);
    }
    thread.join().unwrap();
    assert!(
        matches!(
            errors.as_slice(),
            [
                SocksError::Version { got: b'H' },
                SocksError::NoMethod,
                SocksError::Refused { code: 1 },
                SocksError::AddressType { got: 9 },
                SocksError::Io(_)
            ]
        ),
        "{errors:?}"
    );
    assert!(pool.book().entries.values().all(|entry| entry.blamed == 0));
    assert!(!pool.all_banned());
}

#[test]
fn a_captive_portal_bans_nobody() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target: Target = listener.local_addr().unwrap().into();
    let portal = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(limit())).unwrap();
        read_message(&mut stream, MAGIC).unwrap();
        stream
            .write_all(b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n")
            .unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
        serve(&listener.accept().unwrap().0, &[], &none());
    });
    let mut pool = pool(config(vec![target.clone()]));
    let events =
        until(&mut pool, |event| matches!(event, PoolEvent::Note(PeerNote::NotConnected { .. })));
    let line = format!("peer {target}: handshake: magic 48545450: another network, or not bitcoin");
    assert!(notes(&events)[0].starts_with(&line), "{events:?}");
    assert!(!pool.all_banned());
    // Once the portal lets connections through, the peer is dialled again.
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(..)));
    drop(pool);
    portal.join().unwrap();
}

/// If a host is banned because of one port while another port is being dialled, the second
/// connection is dropped.
#[test]
fn a_call_to_a_host_that_is_banned_meanwhile_is_dropped() {
    let (address, _, thread) = proxy(2, none());
    let mut config = config(Vec::new());
    (config.proxy, config.max_peers) = (Some(address), 2);
    let mut book = AddressBook::new();
    let mut random = Random::new([1; 16]);
    for port in [1, 2] {
        let target = Target { host: Host::Ip([8, 8, 8, 8].into()), port };
        let heard = Heard { target, services: ServiceFlags::NETWORK, seen: unix_time().as_secs() };
        assert!(book.hear(heard, Group::UNROUTED, unix_time().as_secs(), &mut random));
    }
    let mut pool = Pool::new(config, book, [3; 16]).unwrap();
    let begun = Instant::now();
    while pool.calling < 2 {
        assert!(begun.elapsed() < limit());
        // The results of the two calls stay in the queue until the pool waits.
        pool.call_due();
        thread::sleep(Duration::from_millis(10));
    }
    until(&mut pool, |event| matches!(event, PoolEvent::Connected(PeerId(1), _)));
    pool.ban(PeerId(1), "for a reason");
    while pool.calling > 0 {
        assert!(begun.elapsed() < limit());
        let event = pool.wait(Duration::from_millis(10));
        assert!(!matches!(event, Some(PoolEvent::Connected(..))), "{event:?}");
    }
    assert_eq!(pool.peers().count(), 0);
    assert!(pool.all_banned());
    drop(pool);
    thread.join().unwrap();
}

#[test]
fn a_proxy_that_says_nothing_is_not_waited_for() {
    use super::super::{frame::Timed, socks};

    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let until = Instant::now() + Duration::from_millis(50);
    let target = Target::parse("8.8.8.8", 1).unwrap();
    let error = socks::connect(&mut Timed::new(&stream, until), &target, 1).unwrap_err();
    assert!(matches!(error, SocksError::Io(error) if error.kind() == io::ErrorKind::TimedOut));
}

/// Adds nine new addresses of different netgroups.
fn add_strangers(book: &mut AddressBook) {
    for number in 0..9 {
        let target = Target { host: Host::Ip([8, number, 8, 8].into()), port: 1 };
        let services = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
        let heard = Heard { target, services, seen: unix_time().as_secs() };
        assert!(book.hear(
            heard,
            Group::UNROUTED,
            unix_time().as_secs(),
            &mut Random::new([1; 16])
        ));
    }
}

fn strangers() -> AddressBook {
    let mut book = AddressBook::new();
    add_strangers(&mut book);
    book
}

/// A pool that dials the addresses of the book through the proxy.
fn automatic(proxy: SocketAddr, book: AddressBook, max_peers: usize) -> Pool {
    let mut config = config(Vec::new());
    (config.proxy, config.max_peers) = (Some(proxy), max_peers);
    Pool::new(config, book, [3; 16]).unwrap()
}

fn is_connected(number: u64) -> impl Fn(&PoolEvent) -> bool {
    move |event| matches!(event, PoolEvent::Connected(PeerId(id), _) if *id == number)
}

fn ids(pool: &Pool) -> Vec<u64> {
    pool.peers().map(|(id, _)| id.0).collect()
}

/// While the tip is stale, one more peer is connected. It stays if it brings a block, and another
/// peer leaves for it; otherwise it leaves again.
#[test]
fn a_stale_tip_brings_one_more_peer_and_the_worst_one_leaves() {
    for brings in [true, false] {
        let (address, _, thread) = proxy(3, none());
        let mut pool = automatic(address, strangers(), 2);
        until(&mut pool, is_connected(2));
        pool.brought_block(PeerId(1));
        pool.set_tip_is_stale(true);
        until(&mut pool, is_connected(3));
        // There is one more connection, and no second one.
        for _ in 0..5 {
            pool.look_after = Duration::ZERO;
            pool.call_due();
        }
        assert_eq!((pool.calling, ids(&pool)), (0, vec![1, 2, 3]));
        if brings {
            pool.brought_block(PeerId(3));
            pool.set_tip_is_stale(false);
        }
        let newest = pool.peers[&PeerId(3)].since.duration_since(pool.start);
        pool.replace_worst((newest + TIME_TO_SHOW).saturating_sub(Duration::from_millis(1)));
        assert_eq!(ids(&pool).len(), 3);
        pool.replace_worst(newest + TIME_TO_SHOW);
        assert_eq!(ids(&pool), if brings { [1, 3] } else { [1, 2] });
        let gone = if brings { 2 } else { 3 };
        let events = until(
            &mut pool,
            |event| matches!(event, PoolEvent::Disconnected(PeerId(id)) if *id == gone),
        );
        assert!(notes(&events).concat().contains("another peer takes its place"), "{events:?}");
        // The place of the peer that has left is not filled at once.
        pool.replace_worst(newest + 2 * TIME_TO_SHOW);
        pool.look_after = Duration::ZERO;
        pool.call_due();
        assert_eq!((pool.calling, ids(&pool).len()), (0, 2));
        drop(pool);
        thread.join().unwrap();
    }
}

/// Whoever names peers and allows no others is connected to nobody else: neither while the tip is
/// stale, nor for a test, nor as an anchor.
#[test]
fn strangers_are_not_called_beside_named_peers() {
    let (target, node) = node(Vec::new());
    let mut pool = pool(config(vec![target]));
    add_strangers(&mut pool.book);
    let strangers: Vec<_> =
        pool.book.places(true).filter(|place| !pool.book.is_named(*place)).collect();
    pool.book.set_anchors(&strangers[..2]);
    pool.config.max_peers = 1;
    until(&mut pool, is_connected(1));
    pool.set_tip_is_stale(true);
    for _ in 0..5 {
        pool.look_after = Duration::ZERO;
        pool.call_due();
        pool.test_untried(pool.now() + TEST_EVERY[1]);
    }
    assert!(pool.extra.is_allowed);
    assert_eq!((pool.calling, pool.is_testing, ids(&pool)), (0, false, vec![1]));
    // A named peer is no anchor: the next run names it again.
    pool.choose_anchors(pool.now() + GOOD_AFTER);
    let is_named = |place: &AddressId| pool.book.is_named(*place);
    let named: Vec<_> = pool.book.places(true).filter(is_named).collect();
    assert!(named.iter().all(|place| !pool.book.entries[place].is_anchor));
    drop(pool);
    node.join().unwrap();
}

/// A test connects to an untried address, makes it a tried one, and leaves the peers as they are.
#[test]
fn an_untried_address_is_tested_from_time_to_time() {
    use super::super::book::Standing;

    let (address, asked, thread) = proxy(2, none());
    let mut pool = automatic(address, strangers(), 1);
    // Connections that stay come first.
    pool.test_untried(pool.now() + TEST_EVERY[1]);
    assert!(!pool.is_testing);
    until(&mut pool, is_connected(1));
    let before = pool.test_after;
    assert!((TEST_EVERY[0]..=TEST_EVERY[1]).contains(&before));
    pool.test_untried(before.saturating_sub(Duration::from_millis(1)));
    assert!(!pool.is_testing);
    pool.test_untried(before);
    assert!(pool.is_testing);
    assert!((TEST_EVERY[0]..=TEST_EVERY[1]).contains(&pool.test_after.saturating_sub(before)));
    // No second test begins before the first one ends.
    pool.test_untried(before + 10 * TEST_EVERY[1]);
    let events =
        until(&mut pool, |event| matches!(event, PoolEvent::Note(PeerNote::Tested { .. })));
    assert!(!events.iter().any(|event| matches!(event, PoolEvent::Connected(..))), "{events:?}");
    let targets: Vec<_> = asked.lock().unwrap().iter().map(|(_, it)| it.to_string()).collect();
    assert_eq!(notes(&events), [format!("peer {}: tested: a node listens", targets[1])]);
    let tried = pool.book.entries.values().filter(|entry| entry.standing == Standing::Tried);
    assert_eq!(tried.count(), 2);
    assert_eq!((pool.is_testing, ids(&pool)), (false, vec![1]));
    // The node sees the end of the connection.
    drop(pool);
    thread.join().unwrap();
}

/// The peers that have been connected for longest are dialled first in the next run.
#[test]
fn the_oldest_good_peers_become_anchors() {
    let (address, asked, thread) = proxy(6, none());
    let mut first = automatic(address, strangers(), 3);
    until(&mut first, is_connected(3));
    // Nobody has served for a minute yet.
    first.choose_anchors(first.now());
    assert!(first.book.entries.values().all(|entry| !entry.is_anchor));
    first.choose_anchors(first.now() + GOOD_AFTER);
    let names = [1, 2].map(|id| first.name(PeerId(id)).unwrap());
    // Without a connected peer, the anchors stay the same.
    for id in [1, 2, 3] {
        first.drop_peer(PeerId(id), "the network is down");
    }
    let bytes = first.encode_book();
    drop(first);
    let mut next = automatic(address, AddressBook::decode(&bytes, MAGIC).unwrap(), 3);
    until(&mut next, is_connected(3));
    let called: Vec<_> = asked.lock().unwrap().iter().map(|(_, it)| it.to_string()).collect();
    assert!(names.iter().all(|name| called[3..].contains(name)), "{names:?} {called:?}");
    drop(next);
    thread.join().unwrap();
}
