//! SipHash-2-4, the keyed hash behind BIP158.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

use alloc::vec::Vec;

use crate::simd::Backend;

/// A key of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SipKey {
    /// The first eight bytes, little-endian.
    pub k0: u64,
    /// The last eight bytes, little-endian.
    pub k1: u64,
}

impl SipKey {
    /// The key of 16 bytes, each half little-endian.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
        let (k0, k1) = (number as u64, (number >> 64) as u64);
        Self { k0, k1 }
    }
}

/// The SipHash-2-4 of `bytes`.
///
/// # Examples
/// The vector of the paper's appendix A:
/// ```
/// use chainsieve::hash::{SipKey, siphash_2_4};
/// let key = SipKey::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
/// let message = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
/// assert_eq!(siphash_2_4(key, &message), 0xa129_ca61_49be_45e5);
/// ```
pub fn siphash_2_4(key: SipKey, bytes: &[u8]) -> u64 {
    let mut state = State::new(key);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.compress(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    #[expect(clippy::cast_possible_truncation, reason = "the length modulo 256")]
    let length = bytes.len() as u8;
    last[7] = length;
    state.compress(u64::from_le_bytes(last));
    state.finish()
}

/// Replaces `hashes` by the SipHash-2-4 of each message, in order.
pub(crate) fn siphash_each(
    backend: Backend,
    key: SipKey,
    messages: &[&[u8]],
    hashes: &mut Vec<u64>,
) {
    let _ = backend;
    hashes.clear();
    hashes.extend(messages.iter().map(|message| siphash_2_4(key, message)));
}

struct State([u64; 4]);

impl State {
    fn new(key: SipKey) -> Self {
        Self([
            key.k0 ^ 0x736f_6d65_7073_6575,
            key.k1 ^ 0x646f_7261_6e64_6f6d,
            key.k0 ^ 0x6c79_6765_6e65_7261,
            key.k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    #[inline]
    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [v0, v1, v2, v3] = self.0;
        v0 ^ v1 ^ v2 ^ v3
    }
}
