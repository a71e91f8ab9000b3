//! The timeouts of a connection.

use core::time::Duration;

use crate::btc::protocol::{PEER_CONNECT_TIMEOUT, PING_INTERVAL, TIMEOUT_INTERVAL};

use super::Reason;

/// The times of a connection and its pending ping.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time at which the connection was made.
    connected: Duration,
    /// Time at which the last message was received.
    heard: Duration,
    /// Time at which the last ping was sent. Before the first ping, the time at which the
    /// connection was made.
    pinged: Duration,
    /// Nonce of the ping that has no answer yet.
    ping: Option<u64>,
    /// Nonce of the next ping.
    next_nonce: u64,
    /// Time since which messages are being written; `None` if no message is being written.
    busy: Option<Duration>,
}

impl Clock {
    pub(super) fn new(nonce: u64, now: Duration) -> Self {
        Self { connected: now, heard: now, pinged: now, ping: None, next_nonce: nonce, busy: None }
    }

    /// Returns the time since the connection was made.
    pub(super) fn since_connected(&self, now: Duration) -> Duration {
        now.saturating_sub(self.connected)
    }

    /// Notes that a message was received.
    pub(super) fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Notes a `pong`. A wrong nonce does not answer the ping.
    pub(super) fn pong(&mut self, nonce: u64) {
        self.ping = self.ping.filter(|sent| *sent != nonce);
    }

    /// Returns the nonce of a ping to send now, if a ping is due. Only one ping is pending at a
    /// time.
    pub(super) fn take_ping(&mut self, now: Duration) -> Option<u64> {
        // As in Core, no ping is sent while another ping is unanswered: the new nonce would replace
        // the nonce that the pong must contain.
        if self.ping.is_some() || now.saturating_sub(self.pinged) <= PING_INTERVAL {
            return None;
        }
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        self.pinged = now;
        self.ping = Some(nonce);
        self.ping
    }

    /// Notes that messages are being written from now on.
    pub(super) fn busy(&mut self, now: Duration) {
        self.busy.get_or_insert(now);
    }

    /// Notes that all messages were written. The time since [`busy`](Self::busy) does not count
    /// towards timeouts: the caller does not read while it writes, so the next message of the peer,
    /// or its answer to a ping, may be waiting unread.
    pub(super) fn idle(&mut self, now: Duration) {
        let Some(since) = self.busy.take() else { return };
        let spent = now.saturating_sub(since);
        self.heard = self.heard.saturating_add(spent).min(now);
        self.pinged = self.pinged.saturating_add(spent).min(now);
    }

    /// Checks the timeouts.
    ///
    /// # Errors
    /// The timeout that has expired. While messages are being written, no timeout expires.
    pub(super) fn check(&self, is_ready: bool, now: Duration) -> Result<(), Reason> {
        let over = |since: Duration| now.saturating_sub(since) > TIMEOUT_INTERVAL;
        if self.busy.is_some() {
            Ok(())
        } else if !is_ready {
            let is_over = self.since_connected(now) > PEER_CONNECT_TIMEOUT;
            if is_over { Err(Reason::HandshakeTimeout) } else { Ok(()) }
        } else if over(self.heard) {
            Err(Reason::Silent)
        } else if self.ping.is_some() && over(self.pinged) {
            Err(Reason::PingTimeout)
        } else {
            Ok(())
        }
    }
}
