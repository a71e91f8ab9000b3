//! SipHash-2-4, the keyed hash function of BIP158.
//!
//! Messages are packed once, grouped by their number of words. Packed messages can then be hashed
//! under one key after the other, in as many lanes as the CPU has.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::simd::Backend;

mod packed;
mod rounds;
#[cfg(test)]
mod tests;

pub use packed::Packed;

/// A SipHash key of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SipKey {
    /// The first eight bytes, little-endian.
    pub k0: u64,
    /// The last eight bytes, little-endian.
    pub k1: u64,
}

impl SipKey {
    /// Returns the key of these 16 bytes, each half read as little-endian.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
        let (k0, k1) = (number as u64, (number >> 64) as u64);
        Self { k0, k1 }
    }
}

/// Returns the SipHash-2-4 of `bytes` under `key`.
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
    let mut state = rounds::State::new(key);
    for word in bytes.as_chunks::<8>().0 {
        state.compress(u64::from_le_bytes(*word));
    }
    state.compress(last_word(bytes));
    state.finish()
}

/// Replaces `hashes` by the SipHash-2-4 of each message, in order.
pub fn siphash_each(backend: Backend, key: SipKey, messages: &[&[u8]], hashes: &mut Vec<u64>) {
    // The packed words of this many messages usually fit the CPU's cache.
    const AT_A_TIME: usize = 512;
    let mut packed = Packed::default();
    hashes.clear();
    hashes.resize(messages.len(), 0);
    for (messages, hashes) in messages.chunks(AT_A_TIME).zip(hashes.chunks_mut(AT_A_TIME)) {
        packed.clear();
        for (index, message) in (0..).zip(messages) {
            packed.push(index, message);
        }
        let message = |index: u32| messages[index as usize];
        let all = 0..u32::try_from(messages.len()).expect("at most 512");
        let _ = packed.hash_each(backend, key, all, message, |indices, some| {
            for (index, hash) in indices.iter().zip(some) {
                hashes[*index as usize] = *hash;
            }
            ControlFlow::Continue(())
        });
    }
}

/// Returns the last word of a message: the bytes after the last whole word, and in the top byte the
/// length modulo 256.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let bits = bytes.len() as u64 % 8 * 8;
    let rest = if let Some(end) = bytes.last_chunk() {
        // The last eight bytes include some bytes of the previous word. The shift removes the bytes
        // of the previous word, which are the lowest bytes.
        u64::from_le_bytes(*end) >> (63 - bits) >> 1
    } else {
        bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    rest & !(0xff << 56) | (bytes.len() as u64) << 56
}
