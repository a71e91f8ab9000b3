//! Fences: pings after requests. A pong shows that the node has finished all answers to the
//! requests before the ping.

use core::ops::Range;

/// Range of the fences sent on this connection; its end is the next fence.
#[derive(Debug, Clone)]
pub(super) struct Fences(Range<u64>);

/// An odd number (2^64 divided by the golden ratio), and its inverse modulo 2^64. The odd number
/// spreads consecutive fences over all nonces, and the inverse turns a nonce back into its fence.
/// The inverse is also the mask of all nonces, so that fence 0 does not have nonce 0.
const NONCE_FACTOR: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xf1de_83e1_9937_733d];

/// Returns the nonce of a fence's ping.
///
/// Fences are consecutive and often start at 0, and the nonces of the caller's own pings may also
/// be such numbers. The multiplication spreads the nonces over all 64-bit numbers and can be
/// inverted.
pub(super) fn ping_nonce(fence: u64) -> u64 {
    fence.wrapping_mul(NONCE_FACTOR[0]) ^ NONCE_FACTOR[1]
}

/// Returns the fence whose ping has this nonce.
pub(super) fn fence_of(nonce: u64) -> u64 {
    (nonce ^ NONCE_FACTOR[1]).wrapping_mul(NONCE_FACTOR[1])
}

impl Fences {
    /// Returns fences whose numbers differ from those of a wallet with another tweak.
    pub(super) fn new(tweak: u32) -> Self {
        let first = u64::from(tweak) << 31;
        Self(first..first)
    }

    /// Starts a new connection: pongs for earlier fences are ignored.
    pub(super) fn connect(&mut self) {
        self.0.start = self.0.end;
    }

    /// Returns the next fence.
    pub(super) fn next(&self) -> u64 {
        self.0.end
    }

    /// Advances to the next fence, and returns the nonce of the ping to send.
    pub(super) fn send(&mut self) -> u64 {
        let nonce = ping_nonce(self.0.end);
        self.0.end += 1;
        nonce
    }

    /// Returns the fence of this connection that a pong with this nonce answers.
    pub(super) fn passed(&self, nonce: u64) -> Option<u64> {
        Some(fence_of(nonce)).filter(|fence| self.0.contains(fence))
    }
}
