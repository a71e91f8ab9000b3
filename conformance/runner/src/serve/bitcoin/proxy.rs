//! A proxy between a client and a Bitcoin node. The proxy reads each message, and forwards this
//! message, another message, arbitrary bytes, or nothing.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve_client::peers::frame::{Frame, encode_message, read_frame};

/// Interval at which the proxy looks for new connections.
const POLL: Duration = Duration::from_millis(10);
/// Maximum number of simultaneous connections, as in Bitcoin Core. Further ones are closed.
const MAX_CONNECTIONS: usize = 125;

/// Sender of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sender {
    /// The client that connected to the proxy.
    Client,
    /// The node behind the proxy.
    Node,
}

/// A message on its way between client and node.
#[derive(Debug)]
#[non_exhaustive]
pub struct Letter<'a> {
    /// Number of the connection, from 0.
    pub connection: u32,
    /// The side that sent the message.
    pub sender: Sender,
    /// The message.
    pub message: &'a NetworkMessage,
}

/// The action of the proxy on a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fate {
    /// Forwards the message.
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
    /// Closes the connection.
    HangUp,
}

/// Decides what a proxy does with each message.
pub type Rule = Box<dyn FnMut(&Letter<'_>) -> Fate + Send>;

/// A running proxy; dropping the proxy closes its connections.
#[must_use = "dropping the proxy stops it"]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Shared {
    node: SocketAddr,
    magic: Magic,
    rule: Mutex<Rule>,
    stopping: AtomicBool,
    /// Both streams of each open connection.
    streams: Mutex<HashMap<u32, [TcpStream; 2]>>,
}

impl Proxy {
    /// Starts a proxy in front of `node`; `rule` decides the fate of each message.
    ///
    /// # Errors
    /// Returns an error if the proxy cannot listen, or if no thread can be started.
    pub fn start(
        listen: SocketAddr,
        network: Network,
        node: SocketAddr,
        rule: impl FnMut(&Letter<'_>) -> Fate + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            node,
            magic: network.magic(),
            rule: Mutex::new(Box::new(rule)),
            stopping: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let accept = move || own.accept(&listener);
        let thread = thread::Builder::new().name("proxy".into()).spawn(accept)?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Returns the address that the proxy listens on.
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
        for (_, streams) in self.shared.streams().drain() {
            close(&streams);
        }
    }
}

fn close(streams: &[TcpStream; 2]) {
    for stream in streams {
        // A shutdown fails if the connection is closed already.
        drop(stream.shutdown(Shutdown::Both));
    }
}

impl Shared {
    fn streams(&self) -> std::sync::MutexGuard<'_, HashMap<u32, [TcpStream; 2]>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        let mut connection = 0;
        while !self.stopping.load(Ordering::Relaxed) {
            let Ok((client, _)) = listener.accept() else {
                thread::sleep(POLL);
                continue;
            };
            if self.streams().len() >= MAX_CONNECTIONS {
                continue;
            }
            // If the node is gone or no thread can be started, the client's connection is closed.
            if self.connect(connection, client).is_err()
                && let Some(streams) = self.streams().remove(&connection)
            {
                close(&streams);
            }
            connection += 1;
        }
    }

    fn connect(self: &Arc<Self>, connection: u32, client: TcpStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let node = TcpStream::connect(self.node)?;
        let (from_client, from_node) = (client.try_clone()?, node.try_clone()?);
        let streams = [client.try_clone()?, node.try_clone()?];
        self.streams().insert(connection, streams);
        let stalled = Arc::new(AtomicBool::new(false));
        for (sender, mut from, to) in
            [(Sender::Client, from_client, node), (Sender::Node, from_node, client)]
        {
            let (shared, stalled) = (Arc::clone(self), Arc::clone(&stalled));
            let pump = move || {
                shared.pump((connection, sender), &mut from, &to, &stalled);
                // A stalled connection stays open until the client closes it.
                if sender == Sender::Client || !stalled.load(Ordering::Relaxed) {
                    let streams = shared.streams().remove(&connection);
                    streams.iter().for_each(close);
                }
            };
            thread::Builder::new().name(format!("proxy {connection}")).spawn(pump)?;
        }
        Ok(())
    }

    /// Forwards messages until either side closes the connection or sends no valid frame, or the
    /// rule ends the connection.
    fn pump(
        &self,
        (connection, sender): (u32, Sender),
        from: &mut TcpStream,
        mut to: &TcpStream,
        stalled: &AtomicBool,
    ) {
        while let Ok(frame) = read_frame(from, self.magic) {
            if stalled.load(Ordering::Relaxed) {
                continue;
            }
            let sent = match self.fate(connection, sender, &frame) {
                Fate::Pass => to.write_all(frame.as_bytes()),
                Fate::Instead(messages) => messages
                    .into_iter()
                    .try_for_each(|message| to.write_all(&encode_message(self.magic, message))),
                Fate::Bytes(bytes) => to.write_all(&bytes),
                Fate::Trickle(bytes, pause) => {
                    let (slow, rest) = frame.as_bytes().split_at(frame.len().min(bytes as usize));
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

    fn fate(&self, connection: u32, sender: Sender, frame: &Frame) -> Fate {
        // A message that cannot be decoded is forwarded unchanged: the other side judges it.
        let Ok(message) = frame.decode() else { return Fate::Pass };
        let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        rule(&Letter { connection, sender, message: &message })
    }
}
