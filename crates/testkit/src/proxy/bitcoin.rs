//! A proxy between a client and a Bitcoin node. The proxy reads each message, and forwards this
//! message, another message, arbitrary bytes, or nothing.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chainsieve::bitcoin::consensus::encode::{deserialize, serialize};
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::{NetworkMessage, RawNetworkMessage};

const POLL: Duration = Duration::from_millis(10);

/// Sender of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sender {
    Client,
    Node,
}

/// A message on its way between client and node.
#[derive(Debug)]
pub struct Letter<'a> {
    /// Number of the connection, from 0.
    pub connection: u32,
    pub sender: Sender,
    pub message: &'a NetworkMessage,
}

/// The action of the proxy on a message.
#[derive(Debug)]
pub enum Fate {
    Pass,
    /// Forwards these messages instead. An empty list drops the message.
    Instead(Vec<NetworkMessage>),
    /// Forwards these bytes instead.
    Bytes(Vec<u8>),
    /// Forwards the message one byte at a time, with a pause before each byte. The pauses end after
    /// this many bytes.
    Trickle(u32, Duration),
    /// Forwards nothing from now on, in either direction, and keeps the connection open.
    Stall,
    HangUp,
}

type Rule = Arc<Mutex<dyn FnMut(&Letter<'_>) -> Fate + Send>>;

/// A running proxy; dropping the proxy closes its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    node: SocketAddr,
    rule: Rule,
    stopping: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy in front of `node`; `rule` decides the fate of each message.
    pub fn start(node: SocketAddr, rule: impl FnMut(&Letter<'_>) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::new(Shared {
            node,
            rule: Arc::new(Mutex::new(rule)),
            stopping: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = thread::spawn(move || own.accept(&listener));
        Self { address, shared, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        let mut connection = 0;
        while !self.stopping.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((client, _)) => {
                    self.connect(connection, client);
                    connection += 1;
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    fn connect(self: &Arc<Self>, connection: u32, client: TcpStream) {
        client.set_nonblocking(false).expect("a socket");
        // The node is gone: close the client's connection.
        let Ok(node) = TcpStream::connect(self.node) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let stalled = Arc::new(AtomicBool::new(false));
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.extend([copy(&client), copy(&node)]);
        drop(streams);
        for (sender, from, to) in
            [(Sender::Client, copy(&client), copy(&node)), (Sender::Node, node, client)]
        {
            let (rule, stalled) = (Arc::clone(&self.rule), Arc::clone(&stalled));
            thread::spawn(move || {
                pump(connection, sender, &from, &to, &rule, &stalled);
                if !stalled.load(Ordering::Relaxed) {
                    drop(from.shutdown(Shutdown::Both));
                    drop(to.shutdown(Shutdown::Both));
                }
            });
        }
    }
}

/// Forwards messages until either side closes the connection, or the rule ends it.
fn pump(
    connection: u32,
    sender: Sender,
    mut from: &TcpStream,
    mut to: &TcpStream,
    rule: &Rule,
    stalled: &AtomicBool,
) {
    while let Some(frame) = read_frame(&mut from) {
        if stalled.load(Ordering::Relaxed) {
            continue;
        }
        let magic = Magic::from_bytes(frame[..4].try_into().expect("4 bytes"));
        // A message that cannot be parsed is forwarded unchanged.
        let fate = match deserialize::<RawNetworkMessage>(&frame) {
            Ok(message) => {
                let message = message.payload();
                let mut rule = rule.lock().unwrap_or_else(PoisonError::into_inner);
                rule(&Letter { connection, sender, message })
            }
            Err(_) => Fate::Pass,
        };
        let sent = match fate {
            Fate::Pass => to.write_all(&frame),
            Fate::Instead(messages) => messages.into_iter().try_for_each(|message| {
                to.write_all(&serialize(&RawNetworkMessage::new(magic, message)))
            }),
            Fate::Bytes(bytes) => to.write_all(&bytes),
            Fate::Trickle(bytes, pause) => {
                let (slow, rest) = frame.split_at(frame.len().min(bytes as usize));
                slow.iter()
                    .try_for_each(|byte| {
                        thread::sleep(pause);
                        to.write_all(&[*byte])
                    })
                    .and_then(|()| to.write_all(rest))
            }
            Fate::Stall => {
                stalled.store(true, Ordering::Relaxed);
                Ok(())
            }
            Fate::HangUp => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads a message header and its payload, without checking them.
fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut frame = vec![0; 24];
    from.read_exact(&mut frame).ok()?;
    let length = u32::from_le_bytes(frame[16..20].try_into().expect("4 bytes"));
    from.take(length.into()).read_to_end(&mut frame).ok()?;
    (frame.len() == 24 + length as usize).then_some(frame)
}
