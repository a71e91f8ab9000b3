//! Fences: pings after requests, whose pongs show that the node has come to the end of its
//! answers.

use core::ops::Range;

/// The fences sent on this connection; the end is the next one.
#[derive(Debug, Clone)]
pub(super) struct Fences(Range<u64>);

/// An odd number (2^64 over the golden ratio), and its inverse modulo 2^64.
const NONCE_FACTOR: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xf1de_83e1_9937_733d];

/// The nonce of a fence's ping.
///
/// Fences follow one another, and often from 0, as the nonces of the caller's own pings may: the
/// product spreads them over all numbers, and can be undone.
pub(super) fn ping_nonce(fence: u64) -> u64 {
    fence.wrapping_mul(NONCE_FACTOR[0]) ^ NONCE_FACTOR[1]
}

/// The fence whose ping has this nonce.
pub(super) fn fence_of(nonce: u64) -> u64 {
    (nonce ^ NONCE_FACTOR[1]).wrapping_mul(NONCE_FACTOR[1])
}

impl Fences {
    /// Fences that differ from those of a wallet with another tweak.
    pub(super) fn new(tweak: u32) -> Self {
        let first = u64::from(tweak) << 31;
        Self(first..first)
    }

    /// A new connection: pongs for the fences before it count no more.
    pub(super) fn connect(&mut self) {
        self.0.start = self.0.end;
    }

    /// The fence that is sent next.
    pub(super) fn next(&self) -> u64 {
        self.0.end
    }

    /// Sends the next fence, and returns the nonce of its ping.
    pub(super) fn send(&mut self) -> u64 {
        let nonce = ping_nonce(self.0.end);
        self.0.end += 1;
        nonce
    }

    /// The fence of this connection that a pong with this nonce answers.
    pub(super) fn passed(&self, nonce: u64) -> Option<u64> {
        Some(fence_of(nonce)).filter(|fence| self.0.contains(fence))
    }
}
