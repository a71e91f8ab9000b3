//! A connection to a peer: a thread that reads, a thread that writes, and bounded queues.
//!
//! For each peer, at most [`MAX_QUEUED`] bytes of received messages are queued, besides the one
//! message that is being read (up to [`MAX_PAYLOAD`]). When this queue is full, nothing more is
//! read from the peer, so that TCP slows it down. At most [`MAX_OUT`] bytes in at most
//! [`MAX_OUT_MESSAGES`] messages are queued to be sent. A peer that does not read its messages, so
//! that this queue fills up, is disconnected.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::NetworkMessage;

use super::address::TooMany;
use super::frame::{Frame, FrameError, HEADER, MAX_PAYLOAD, Timed, encode_message, read_frame};
use super::handshake::HandshakeError;

/// Maximum number of received bytes that are queued from one peer: the length of the longest
/// message.
pub const MAX_QUEUED: usize = MAX_PAYLOAD as usize + HEADER;
/// Maximum number of bytes queued to be sent to one peer. A single message may exceed this limit.
/// The limit has room for a peer that requests every offered transaction at once, for example a
/// hundred transactions of 80 kB.
pub const MAX_OUT: usize = 8_000_000;
/// Maximum number of messages queued to be sent to one peer. Bursts of hundreds of short messages
/// must fit, but each message takes memory beyond its bytes.
pub const MAX_OUT_MESSAGES: usize = 4_096;
/// Timeout for the next message of a peer. The pool pings a silent peer earlier, after 60 s, so
/// that a live peer does not reach this timeout.
pub const MAX_SILENCE: Duration = Duration::from_secs(150);
/// Timeout of one message from its first byte to its last. A message of 4 MB needs a rate of 33 kB
/// per second.
const MESSAGE_TIME: Duration = Duration::from_secs(2 * 60);

/// A received message that is not decoded yet, with the room that the message occupies in the queue; or the
/// reason for which the connection has ended.
pub type Received = Result<(Frame, Credit), FrameError>;

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The stream ended, or the peer sent an invalid message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer broke the protocol in the handshake.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// The queue of messages to the peer is full, because the peer does not read them.
    #[error("the peer does not read its messages: the send queue is full")]
    NotReading,
    /// The peer sent a message with too many addresses.
    #[error(transparent)]
    Addresses(#[from] TooMany),
    /// While no new block arrived, one more peer was connected. This peer has shown no new block,
    /// or its last new block is older than that of each other peer.
    #[error("another peer takes its place, since no new block arrived for a while")]
    Replaced,
    /// The owner of the pool closed the connection for this reason.
    #[error("{0}")]
    Owner(String),
}

/// Callback that gets what a connection received. The callback returns `false` to end the connection.
pub type Deliver = Box<dyn FnMut(Received) -> bool + Send>;

/// The room in the queue for one peer's received messages.
#[derive(Debug, Default)]
struct Room {
    state: Mutex<RoomState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RoomState {
    queued: usize,
    closed: bool,
}

impl Room {
    fn state(&self) -> MutexGuard<'_, RoomState> {
        // No code panics while it holds this lock, so the data of a poisoned lock is still
        // consistent.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until `bytes` fit into the queue, and reserves this room. A message always fits into
    /// an empty queue. Returns `None` if the connection is closed during the wait.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Credit> {
        let mut state = self.state();
        while !state.closed && state.queued > 0 && state.queued + bytes > MAX_QUEUED {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        state.queued += bytes;
        Some(Credit { room: self.clone(), bytes })
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}

/// Reserved room in the queue. Dropping the `Credit` releases the room.
#[derive(Debug)]
pub struct Credit {
    room: Arc<Room>,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.room.state().queued -= self.bytes;
        self.room.changed.notify_all();
    }
}

/// An open connection, which is closed when this value is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    magic: Magic,
    out: SyncSender<Vec<u8>>,
    /// Number of bytes queued to be sent, including the message that is being written.
    waiting: Arc<AtomicUsize>,
    room: Arc<Room>,
}

impl Connection {
    /// Starts the reading and the writing thread on a stream whose handshake is done.
    ///
    /// # Errors
    /// Returns an error if the system provides no thread or no second handle of the socket.
    pub fn start(stream: TcpStream, magic: Magic, deliver: Deliver) -> io::Result<Self> {
        let (out, queue) = sync_channel(MAX_OUT_MESSAGES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = waiting.clone();
        let room = Arc::new(Room::default());
        let (reading, writing) = (stream.try_clone()?, stream.try_clone()?);
        let credits = room.clone();
        thread::Builder::new()
            .name("peer in".into())
            .spawn(move || read_all(&reading, magic, &credits, deliver))?;
        thread::Builder::new()
            .name("peer out".into())
            .spawn(move || write_all(&writing, &queue, &written))?;
        Ok(Self { stream, magic, out, waiting, room })
    }

    /// Queues a message to be sent. Does not wait.
    ///
    /// Returns `false` if the queue is full ([`MAX_OUT`] bytes or [`MAX_OUT_MESSAGES`] messages),
    /// because the peer does not read its messages. On a closed connection, the message is dropped:
    /// the reading thread reports why the connection is closed.
    pub fn send(&self, message: NetworkMessage) -> bool {
        let bytes = encode_message(self.magic, message);
        let count = bytes.len();
        let before = self.waiting.fetch_add(count, Ordering::AcqRel);
        // A message of any length is accepted if nothing else is queued.
        let is_full = before > 0 && before.saturating_add(count) > MAX_OUT;
        let sent = if is_full { Err(TrySendError::Full(bytes)) } else { self.out.try_send(bytes) };
        if sent.is_err() {
            self.waiting.fetch_sub(count, Ordering::AcqRel);
        }
        !matches!(sent, Err(TrySendError::Full(_)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.room.close();
        // The shutdown fails if the socket is closed already, which is no error here.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

fn read_all(stream: &TcpStream, magic: Magic, room: &Arc<Room>, mut deliver: Deliver) {
    loop {
        let frame = match read_frame(&mut Paced::new(stream), magic) {
            Ok(frame) => frame,
            Err(error) => {
                deliver(Err(error));
                return;
            }
        };
        let Some(credit) = room.take(frame.len()) else { return };
        if !deliver(Ok((frame, credit))) {
            return;
        }
    }
}

fn write_all(stream: &TcpStream, queue: &Receiver<Vec<u8>>, waiting: &AtomicUsize) {
    for bytes in queue {
        let until = Instant::now() + MESSAGE_TIME;
        // The deadline covers the whole message. Without a deadline, a peer that reads byte by byte
        // could block this thread for ever.
        if Timed::new(stream, until).write_all(&bytes).is_err() {
            // The shutdown ends the reading thread too, which reports the end of the connection.
            drop(stream.shutdown(Shutdown::Both));
            return;
        }
        waiting.fetch_sub(bytes.len(), Ordering::AcqRel);
    }
}

/// Reader of one message: the first byte has the timeout [`MAX_SILENCE`], and the rest of the
/// message has [`MESSAGE_TIME`]. So a peer cannot delay the end of a message by sending it byte by
/// byte.
struct Paced<'a> {
    stream: &'a TcpStream,
    until: Instant,
    begun: bool,
}

impl<'a> Paced<'a> {
    fn new(stream: &'a TcpStream) -> Self {
        Self { stream, until: Instant::now() + MAX_SILENCE, begun: false }
    }
}

impl Read for Paced<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = Timed::new(self.stream, self.until).read(buffer)?;
        if !self.begun && count > 0 {
            self.begun = true;
            self.until = Instant::now() + MESSAGE_TIME;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::frame::write_message;
    use super::*;

    const MAGIC: Magic = Magic::REGTEST;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    fn start(stream: TcpStream) -> (Connection, Receiver<Received>) {
        let (sender, receiver) = sync_channel(1_000);
        let deliver = Box::new(move |incoming| sender.send(incoming).is_ok());
        (Connection::start(stream, MAGIC, deliver).unwrap(), receiver)
    }

    fn limit() -> Duration {
        Duration::from_secs(60)
    }

    #[test]
    fn messages_go_both_ways_and_the_end_is_told() {
        let (ours, mut theirs) = pair();
        let (connection, incoming) = start(ours);
        write_message(&mut theirs, MAGIC, NetworkMessage::Ping(7)).unwrap();
        let Ok((frame, _)) = incoming.recv_timeout(limit()).unwrap() else { panic!() };
        assert_eq!(frame.decode().unwrap(), NetworkMessage::Ping(7));
        assert!(connection.send(NetworkMessage::Pong(7)));
        assert_eq!(
            read_frame(&mut theirs, MAGIC).unwrap().decode().unwrap(),
            NetworkMessage::Pong(7)
        );
        theirs.write_all(b"garbage, as much as a header has").unwrap();
        let Err(error) = incoming.recv_timeout(limit()).unwrap() else { panic!() };
        assert!(error.is_misbehaviour(), "{error}");
    }

    #[test]
    fn closing_is_seen_by_the_peer() {
        let (ours, mut theirs) = pair();
        let (connection, _incoming) = start(ours);
        drop(connection);
        theirs.set_read_timeout(Some(limit())).unwrap();
        assert!(matches!(read_frame(&mut theirs, MAGIC), Err(FrameError::Io(_))));
    }

    #[test]
    fn what_waits_is_bounded() {
        let (ours, mut theirs) = pair();
        let (connection, incoming) = start(ours);
        let stranger = theirs.try_clone().unwrap();
        let writer = thread::spawn(move || {
            let message = NetworkMessage::Unknown {
                command: "x".to_owned().try_into().unwrap(),
                payload: vec![0; 1_500_000],
            };
            // The loop ends when the other side closes the connection.
            while write_message(&mut theirs, MAGIC, message.clone()).is_ok() {}
        });
        // Two messages fit into the queue. The third message is read and waits for room.
        let first: Vec<_> = (0..2).map(|_| incoming.recv_timeout(limit()).unwrap()).collect();
        while connection.room.state().queued < 3_000_000 {
            thread::yield_now();
        }
        assert!(incoming.recv_timeout(Duration::from_millis(200)).is_err());
        assert!(connection.room.state().queued <= MAX_QUEUED);
        // With room in the queue, the third message is delivered.
        drop(first);
        assert!(incoming.recv_timeout(limit()).is_ok());
        drop(connection);
        // Without this shutdown the writer could wait for minutes: after a zero TCP window, the
        // operating system probes the window rarely. An error means that the connection has already
        // ended.
        let _ = stranger.shutdown(Shutdown::Both);
        writer.join().unwrap();
    }

    #[test]
    fn a_peer_that_does_not_read_is_told_apart_from_one_that_is_gone() {
        let (ours, theirs) = pair();
        let (connection, incoming) = start(ours);
        let large = |_| NetworkMessage::Alert(vec![0; 1_000_000]);
        assert!((0..1_000).map(large).any(|message| !connection.send(message)));
        assert!(connection.waiting.load(Ordering::Acquire) <= MAX_OUT);
        drop(theirs);
        assert!(matches!(incoming.recv_timeout(limit()), Ok(Err(_))));
    }

    #[test]
    fn a_burst_waits_for_a_peer_that_is_slow_to_read() {
        let (ours, mut theirs) = pair();
        let (connection, _incoming) = start(ours);
        // While the peer reads nothing, the message does not fit into the system's buffers.
        assert!(connection.send(NetworkMessage::Alert(vec![7; 7_000_000])));
        // The client sends a burst of short messages, such as one request for each of 1,000
        // heights.
        for nonce in 0..1_000 {
            assert!(connection.send(NetworkMessage::Ping(nonce)));
        }
        theirs.set_read_timeout(Some(limit())).unwrap();
        // The payload of an alert begins with its length (5 bytes).
        theirs.read_exact(&mut vec![0; HEADER + 5 + 7_000_000]).unwrap();
        for nonce in 0..1_000 {
            let frame = read_frame(&mut theirs, MAGIC).unwrap();
            assert_eq!(frame.decode().unwrap(), NetworkMessage::Ping(nonce));
        }
        // After everything is written, the same number of bytes fits into the queue again.
        while connection.waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        assert!(connection.send(NetworkMessage::Alert(vec![7; 7_000_000])));
    }

    #[test]
    fn short_messages_that_wait_are_bounded_too() {
        let (ours, _theirs) = pair();
        let (connection, _incoming) = start(ours);
        assert!(connection.send(NetworkMessage::Alert(vec![7; 7_000_000])));
        let mut pings = (0..).map(|nonce| connection.send(NetworkMessage::Ping(nonce)));
        let sent = pings.position(|sent| !sent).unwrap();
        // The first message may still be in the queue.
        assert!((MAX_OUT_MESSAGES - 1..=MAX_OUT_MESSAGES).contains(&sent), "{sent}");
    }

    #[test]
    fn a_message_of_any_length_fits_when_nothing_waits() {
        let (ours, mut theirs) = pair();
        let (connection, _incoming) = start(ours);
        assert!(connection.send(NetworkMessage::Alert(vec![7; MAX_OUT + 1])));
        assert!(!connection.send(NetworkMessage::Ping(1)));
        theirs.set_read_timeout(Some(limit())).unwrap();
        theirs.read_exact(&mut vec![0; HEADER + 5 + MAX_OUT + 1]).unwrap();
    }
}
