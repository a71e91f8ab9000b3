//! One peer's socket.
//!
//! A single thread reads and writes: a reply is sent to its end before the next request is read.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::p2p::message::NetworkMessage;

use super::Shared;
use super::node::{Peer, Violation};
use crate::btc::p2p::frame::{FrameError, read_frame, write_message};
use crate::btc::p2p::timed::Timed;

/// How long to wait for a request before looking for something to announce.
const TICK: Duration = Duration::from_millis(50);
/// Core's `peertimeout`, from the connection to `verack`.
const HANDSHAKE: Duration = Duration::from_mins(1);
/// How long one message may take, either way.
const MESSAGE: Duration = Duration::from_mins(2);
/// Core's `PING_INTERVAL`.
const PING_EVERY: Duration = Duration::from_mins(2);
/// Core's `TIMEOUT_INTERVAL`: without a message, or without the answer to a ping.
const IDLE: Duration = Duration::from_mins(20);

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    Closed,
    Stopped,
    Handshake,
    Idle,
    Ping,
    Frame(FrameError),
    Write(io::Error),
    Violation(Violation),
}

impl Ended {
    /// Whether it was the peer's fault.
    pub(super) fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Frame(error) => error.is_misbehaviour(),
            Self::Violation(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it hung up"),
            Self::Stopped => f.write_str("the node stops"),
            Self::Handshake => write!(f, "no handshake within {} s", HANDSHAKE.as_secs()),
            Self::Idle => write!(f, "nothing for {} minutes", IDLE.as_secs() / 60),
            Self::Ping => write!(f, "no answer to a ping for {} minutes", IDLE.as_secs() / 60),
            Self::Frame(error) => error.fmt(f),
            Self::Write(error) if error.kind() == io::ErrorKind::TimedOut => {
                write!(f, "it has not taken a message for {} s", MESSAGE.as_secs())
            }
            Self::Write(error) => write!(f, "cannot write: {error}"),
            Self::Violation(violation) => violation.fmt(f),
        }
    }
}

/// Talks to a peer until either side has had enough; `met` is told of it after the handshake.
pub(super) fn talk(
    stream: &TcpStream,
    shared: &Shared,
    nonce: u64,
    met: impl FnOnce(&Peer),
) -> Ended {
    let peer = Peer::new(shared.offers, &shared.chain(), nonce);
    let now = Instant::now();
    let mut talk = Talk { stream, shared, peer, heard: now, ping: None, pinged: now, version: 0 };
    talk.run(now, met).err().unwrap_or(Ended::Stopped)
}

struct Talk<'a> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    peer: Peer,
    /// When the last message came.
    heard: Instant,
    /// The nonce of a ping without an answer, which was sent at `pinged`.
    ping: Option<u64>,
    pinged: Instant,
    /// The chain's version when there was last something announced.
    version: u64,
}

impl Talk<'_> {
    fn run(&mut self, since: Instant, met: impl FnOnce(&Peer)) -> Result<(), Ended> {
        let mut met = Some(met);
        while !self.shared.is_stopping() {
            if self.is_readable()? {
                self.read()?;
            }
            self.look_at_clock(since)?;
            if self.peer.is_ready() {
                if let Some(met) = met.take() {
                    met(&self.peer);
                }
                self.announce();
            }
            self.send_replies()?;
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

    fn read(&mut self) -> Result<(), Ended> {
        let magic = self.shared.network.magic();
        let mut timed = Timed::new(self.stream, Instant::now() + MESSAGE);
        let frame = read_frame(&mut timed, magic).map_err(Ended::Frame)?;
        self.heard = Instant::now();
        if let Some(result) = self.peer.take_filter(&frame) {
            return result.map_err(Ended::Violation);
        }
        let message = frame.decode().map_err(Ended::Frame)?;
        if let NetworkMessage::Pong(nonce) = message {
            self.ping = self.ping.filter(|sent| *sent != nonce);
        }
        self.peer
            .handle(message, &self.shared.chain(), super::unix_time())
            .map_err(Ended::Violation)
    }

    fn look_at_clock(&mut self, since: Instant) -> Result<(), Ended> {
        let now = Instant::now();
        if !self.peer.is_ready() {
            return if now - since > HANDSHAKE { Err(Ended::Handshake) } else { Ok(()) };
        }
        if now - self.heard > IDLE {
            return Err(Ended::Idle);
        }
        match self.ping {
            Some(_) if now - self.pinged > IDLE => Err(Ended::Ping),
            None if now - self.pinged > PING_EVERY => {
                let nonce = super::random();
                (self.ping, self.pinged) = (Some(nonce), now);
                self.send(NetworkMessage::Ping(nonce))
            }
            _ => Ok(()),
        }
    }

    fn announce(&mut self) {
        let chain = self.shared.chain();
        if chain.version() != self.version {
            self.version = chain.version();
            self.peer.announce(&chain);
        }
    }

    /// The chain is not locked while a message is on its way.
    fn send_replies(&mut self) -> Result<(), Ended> {
        loop {
            let message = self.peer.next_message(&self.shared.chain());
            let Some(message) = message else { return Ok(()) };
            self.send(message)?;
        }
    }

    fn send(&self, message: NetworkMessage) -> Result<(), Ended> {
        if self.shared.is_stopping() {
            return Err(Ended::Stopped);
        }
        let mut timed = Timed::new(self.stream, Instant::now() + MESSAGE);
        write_message(&mut timed, self.shared.network.magic(), message).map_err(Ended::Write)
    }
}
