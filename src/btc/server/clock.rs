//! The timeouts of a connection.

use core::time::Duration;

use crate::btc::protocol::{PEER_CONNECT_TIMEOUT, PING_INTERVAL, TIMEOUT_INTERVAL};

use super::Reason;

/// When a peer was last heard, and what it was pinged with.
#[derive(Debug)]
pub(super) struct Clock {
    connected: Duration,
    /// When the last message came.
    heard: Duration,
    /// When the last ping was sent, or the connection was made.
    pinged: Duration,
    /// The nonce of a ping without an answer.
    ping: Option<u64>,
    /// The nonce of the next ping.
    next_nonce: u64,
    /// Since when messages are being written, if any are.
    busy: Option<Duration>,
}

impl Clock {
    pub(super) fn new(nonce: u64, now: Duration) -> Self {
        Self { connected: now, heard: now, pinged: now, ping: None, next_nonce: nonce, busy: None }
    }

    /// The time from the connection to now.
    pub(super) fn since_connected(&self, now: Duration) -> Duration {
        now.saturating_sub(self.connected)
    }

    pub(super) fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    pub(super) fn pong(&mut self, nonce: u64) {
        self.ping = self.ping.filter(|sent| *sent != nonce);
    }

    /// The nonce of a ping that is due, which is to be sent now.
    pub(super) fn take_ping(&mut self, now: Duration) -> Option<u64> {
        if self.ping.is_some() || now.saturating_sub(self.pinged) <= PING_INTERVAL {
            return None;
        }
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        self.pinged = now;
        self.ping = Some(nonce);
        self.ping
    }

    /// Messages are being written from now on.
    pub(super) fn busy(&mut self, now: Duration) {
        self.busy.get_or_insert(now);
    }

    /// All messages are written. The time since [`busy`](Self::busy) counts for no timeout: the
    /// caller reads nothing in it, so that the peer's next message, or its answer to a ping, may
    /// have come long ago.
    pub(super) fn idle(&mut self, now: Duration) {
        let Some(since) = self.busy.take() else { return };
        let spent = now.saturating_sub(since);
        self.heard = self.heard.saturating_add(spent).min(now);
        self.pinged = self.pinged.saturating_add(spent).min(now);
    }

    /// # Errors
    /// Returns the timeout that is over.
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
