//! Accepts connections, and serves each peer in a thread of its own. A single thread reads and
//! writes, so that a reply is sent completely before the next request is read.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chainsieve::btc::server::{Action, Event, Peer, Reason};

use super::{ConnectionNote, Shared};
use crate::driver::unix_time;
use crate::peers::frame::Timed;
use crate::peers::frame::{FrameError, read_frame, write_message};

struct Guest {
    stream: Arc<TcpStream>,
    thread: JoinHandle<()>,
}

pub(super) struct Door {
    listener: TcpListener,
    shared: Arc<Shared>,
    limit: usize,
    guests: Vec<Guest>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, shared: Arc<Shared>, limit: usize) -> Self {
        Self { listener, shared, limit, guests: Vec::new() }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Accepts all waiting connections, and joins the threads of connections that have ended.
    pub(super) fn open(&mut self) {
        let (gone, here) =
            self.guests.drain(..).partition(|guest: &Guest| guest.thread.is_finished());
        self.guests = here;
        leave(gone);
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) => {
                    // The peer has already disconnected, or there is no free file descriptor. The
                    // node continues: descriptors become free when other peers disconnect.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.shared.note(&ConnectionNote::Lost(error));
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.guests.len() >= self.limit {
            self.shared.note(&ConnectionNote::Refused(address, self.limit));
            return;
        }
        let peer = self.shared.count.fetch_add(1, Ordering::AcqRel) + 1;
        let shared = Arc::clone(&self.shared);
        let stream = Arc::new(stream);
        let own = Arc::clone(&stream);
        let talk = move || {
            shared.note(&ConnectionNote::Connected(peer, address));
            let met = |met: &_| shared.note(&ConnectionNote::Ready(peer, met));
            let ended = match prepare(&own) {
                Ok(()) => talk(&own, &shared, nonce(), met),
                Err(error) => Ended::Frame(error.into()),
            };
            // The shutdown fails if the peer has already closed the connection.
            drop(own.shutdown(Shutdown::Both));
            shared.note(&ConnectionNote::Disconnected(peer, &ended));
        };
        match thread::Builder::new().name(format!("peer {peer}")).spawn(talk) {
            Ok(thread) => self.guests.push(Guest { stream, thread }),
            Err(error) => self.shared.note(&ConnectionNote::Lost(error)),
        }
    }

    /// Ends all connections, and waits for their threads.
    pub(super) fn close(&mut self) {
        for guest in &self.guests {
            // A thread may be blocked in a read or write, which the shutdown ends.
            drop(guest.stream.shutdown(Shutdown::Both));
        }
        leave(std::mem::take(&mut self.guests));
    }
}

/// Waits for the threads of connections. A panic is ignored: the panic hook has reported the panic.
fn leave(guests: Vec<Guest>) {
    for guest in guests {
        drop(guest.thread.join());
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)
}

/// Returns a random nonce, or 1 if the system provides no random numbers. The node works even if
/// the nonce is not random.
fn nonce() -> u64 {
    getrandom::u64().unwrap_or(1)
}

/// Time to wait for a request before the node checks for blocks and transactions to announce.
const TICK: Duration = Duration::from_millis(50);
/// Timeout of one message, received or sent.
const MESSAGE: Duration = Duration::from_secs(2 * 60);

/// Reason why a connection has ended. `Display` writes the reason as a line for a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
    /// The peer sent an invalid message, or the connection failed.
    #[error(transparent)]
    Frame(FrameError),
    /// A message could not be written, for example because the peer does not read.
    #[error("{}", write_words(.0))]
    Write(io::Error),
    /// The node disconnected the peer, for example because the peer broke the protocol or was
    /// silent for too long.
    #[error(transparent)]
    Disconnected(Reason),
}

impl Ended {
    /// Returns `true` if the peer broke the protocol.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Frame(error) => error.is_misbehaviour(),
            Self::Disconnected(reason) => reason.is_misbehaviour(),
            _ => false,
        }
    }
}

fn write_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            format!("the peer has not read a message for {} s", MESSAGE.as_secs())
        }
        _ => format!("cannot write to the peer: {error}"),
    }
}

/// Serves a peer until the connection ends, and returns the reason. Calls the function `met` after
/// the handshake.
pub(super) fn talk(
    stream: &TcpStream,
    shared: &Shared,
    nonce: u64,
    met: impl FnOnce(&Peer),
) -> Ended {
    let began = (Instant::now(), unix_time());
    let peer = Peer::new(shared.config, &shared.chain(), nonce, began.1);
    let mut talk = Talk { stream, shared, peer, began, version: 0, met: Some(met) };
    talk.run().err().unwrap_or(Ended::Stopped)
}

struct Talk<'a, F> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    peer: Peer,
    /// The begin of the connection, by the monotonic clock and by the system's clock. Later times
    /// are measured by the monotonic clock: a step forward of the system's clock must not end a
    /// connection.
    began: (Instant, Duration),
    /// The chain's version at the last announcement.
    version: u64,
    met: Option<F>,
}

impl<F: FnOnce(&Peer)> Talk<'_, F> {
    fn run(&mut self) -> Result<(), Ended> {
        while !self.shared.is_stopping() {
            if self.is_readable()? {
                let event = self.read()?;
                self.tell(event)?;
            }
            let version = self.shared.chain().version();
            if version != self.version {
                self.version = version;
                self.tell(Event::ChainChanged)?;
            }
            self.tell(Event::Tick)?;
        }
        Ok(())
    }

    /// Waits up to [`TICK`] for a byte. Returns `true` if a byte has arrived.
    ///
    /// The byte is not consumed, so that the whole message can be read afterwards.
    fn is_readable(&self) -> Result<bool, Ended> {
        let peek = || {
            self.stream.set_read_timeout(Some(TICK))?;
            self.stream.peek(&mut [0])
        };
        match peek() {
            Ok(0) => Err(Ended::Closed),
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(false),
                io::ErrorKind::ConnectionReset => Err(Ended::Closed),
                _ => Err(Ended::Frame(error.into())),
            },
        }
    }

    fn read(&self) -> Result<Event, Ended> {
        let mut timed = Timed::new(self.stream, Instant::now() + MESSAGE);
        let frame = read_frame(&mut timed, self.shared.magic).map_err(Ended::Frame)?;
        // The machine decodes `filterload` itself: Core accepts unknown flags and trailing bytes,
        // which the decoder of `bitcoin` rejects.
        if frame.command() == "filterload" {
            return Ok(Event::FilterLoad(frame.payload().to_vec()));
        }
        frame.decode().map(Event::Message).map_err(Ended::Frame)
    }

    /// Passes an event to the machine, and writes the messages that it returns.
    ///
    /// The lock of the chain is released before a message is written, so that a slow peer does not
    /// keep the chain locked.
    fn tell(&mut self, event: Event) -> Result<(), Ended> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let now = self.began.1 + self.began.0.elapsed();
            let actions = self.peer.handle(&self.shared.chain(), event, now);
            for action in actions {
                match action {
                    Action::Send(message) => {
                        self.send(message)?;
                        next = Some(Event::Sent);
                    }
                    Action::Ready => {
                        if let Some(met) = self.met.take() {
                            met(&self.peer);
                        }
                    }
                    Action::Accept(tx) => {
                        // As in Core, the peer gets no answer if its transaction is rejected.
                        let _refused = self.shared.chain_mut().add_transaction(tx);
                    }
                    Action::Disconnect(reason) => return Err(Ended::Disconnected(reason)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn send(
        &self,
        message: chainsieve::bitcoin::p2p::message::NetworkMessage,
    ) -> Result<(), Ended> {
        if self.shared.is_stopping() {
            return Err(Ended::Stopped);
        }
        let mut timed = Timed::new(self.stream, Instant::now() + MESSAGE);
        write_message(&mut timed, self.shared.magic, message).map_err(Ended::Write)
    }
}
