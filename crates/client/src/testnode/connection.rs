//! The connection to one peer of the node. A single thread reads and writes, so that a reply is
//! sent completely before the next request is read.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use chainsieve::btc::server::{Action, Event, Peer, Reason};

use super::Shared;
use crate::driver::unix_time;
use crate::net::frame::{FrameError, read_frame, write_message};
use crate::net::timed::Timed;

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
    /// The begin of the connection by the monotonic and by the system's clock. Later times are
    /// measured by the monotonic clock: a system's clock that is set forward must end no
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
