//! One peer's socket. A single thread reads and writes: a reply is sent to its end before the next
//! request is read.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use chainsieve::btc::server::{Action, Event, Peer, Reason};

use super::Shared;
use crate::net::frame::{FrameError, read_frame, write_message};
use crate::net::timed::Timed;

/// How long to wait for a request before looking for something to announce.
const TICK: Duration = Duration::from_millis(50);
/// How long one message may take, either way.
const MESSAGE: Duration = Duration::from_mins(2);

/// Why a connection has ended. Its `Display` is a line for a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The peer hung up.
    #[error("it hung up")]
    Closed,
    /// The node stops.
    #[error("the node stops")]
    Stopped,
    /// What the peer sent is no message, or the connection broke.
    #[error(transparent)]
    Frame(FrameError),
    /// The peer does not take what it is sent.
    #[error("{}", write_words(.0))]
    Write(io::Error),
    /// The peer broke the protocol, or was silent for too long.
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
            format!("it has not taken a message for {} s", MESSAGE.as_secs())
        }
        _ => format!("cannot write: {error}"),
    }
}

/// Talks to a peer until either side has had enough; `met` is told of it after the handshake.
pub(super) fn talk(
    stream: &TcpStream,
    shared: &Shared,
    nonce: u64,
    met: impl FnOnce(&Peer),
) -> Ended {
    let peer = Peer::new(shared.config, &shared.chain(), nonce, super::unix_time(), Duration::ZERO);
    let mut talk = Talk { stream, shared, peer, since: Instant::now(), version: 0, met: Some(met) };
    talk.run().err().unwrap_or(Ended::Stopped)
}

struct Talk<'a, F> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    peer: Peer,
    since: Instant,
    /// The chain's version when there was last something announced.
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

    /// Waits for a byte, which stays where it is: a time limit inside a message would lose it.
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
        if frame.command() == "filterload" {
            return Ok(Event::FilterLoad(frame.payload().to_vec()));
        }
        frame.decode().map(Event::Message).map_err(Ended::Frame)
    }

    /// Hands over an event, and writes all that comes of it. The chain is not locked while a
    /// message is on its way.
    fn tell(&mut self, event: Event) -> Result<(), Ended> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let actions = self.peer.handle(&self.shared.chain(), event, self.since.elapsed());
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
                        // A peer is told nothing of a transaction that is refused, as Core does.
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
