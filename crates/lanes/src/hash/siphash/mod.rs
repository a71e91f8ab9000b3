//! SipHash-2-4, the keyed hash function of BIP158.
//!
//! Messages are packed once, grouped by their number of words. Packed messages can then be hashed
//! under one key after the other, in as many lanes as the CPU has.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

#![expect(
    clippy::needless_range_loop,
    reason = "in a loop over registers, closures would not inline into functions with CPU features"
)]

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use crate::simd::{Backend, Kernel, Lanes};

#[cfg(test)]
mod tests;

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
    let mut state = State::new(key);
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

/// Largest number of words of a message that is packed, including the last word with the length:
/// messages of up to 71 bytes. Longer messages are rare among scripts, and are hashed one by one.
const MAX_WORDS: usize = 9;

/// Number of blocks of eight messages that are hashed at a time.
const BLOCKS: usize = Packed::AT_A_TIME / 8;

/// Messages grouped by their number of words.
#[derive(Debug, Clone, Default)]
pub struct Packed {
    /// The messages of 1 to [`MAX_WORDS`] words, one group for each number of words.
    groups: [Group; MAX_WORDS],
    /// Indices of the longer messages, ascending.
    long: Vec<u32>,
}

/// Messages with the same number of words.
#[derive(Debug, Clone, Default)]
struct Group {
    /// For each block of eight messages: their first words, then their second words, and so on.
    words: Vec<[u64; 8]>,
    /// The indices of the messages, ascending.
    indices: Vec<u32>,
}

impl Packed {
    /// Largest number of hashes in one call of `hash_each`'s callback.
    pub const AT_A_TIME: usize = 256;

    /// Adds the message of number `index`. Indices must ascend from call to call.
    #[inline]
    pub fn push(&mut self, index: u32, message: &[u8]) {
        let (whole, _) = message.as_chunks::<8>();
        let Some(group) = self.groups.get_mut(whole.len()) else {
            self.long.push(index);
            return;
        };
        let (num_words, lane) = (whole.len() + 1, group.indices.len() % 8);
        if lane == 0 {
            group.words.resize(group.words.len() + num_words, [0; 8]);
        }
        let start = group.words.len() - num_words;
        let block = &mut group.words[start..];
        for (lanes, word) in block.iter_mut().zip(whole) {
            lanes[lane] = u64::from_le_bytes(*word);
        }
        block[whole.len()][lane] = last_word(message);
        group.indices.push(index);
    }

    /// Removes all messages, and keeps the allocated memory.
    #[inline]
    pub fn clear(&mut self) {
        for group in &mut self.groups {
            group.words.clear();
            group.indices.clear();
        }
        self.long.clear();
    }

    /// Hashes the messages whose index is in `range` under `key`. Calls `take` with the indices of
    /// messages and their hashes, at most [`AT_A_TIME`](Self::AT_A_TIME) per call, until `take`
    /// returns `Break`. The callback `message` gets the index of a message and returns its bytes.
    /// The callback `message` is called only for messages that are too long to be packed.
    pub fn hash_each<'m>(
        &self,
        backend: Backend,
        key: SipKey,
        range: Range<u32>,
        message: impl Fn(u32) -> &'m [u8],
        mut take: impl FnMut(&[u32], &[u64]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut hashes = [[0; 8]; BLOCKS];
        for (group, num_words) in self.groups.iter().zip(1..) {
            let Range { mut start, end } = positions(&group.indices, &range);
            while start < end {
                let first_block = start / 8;
                let until = end.min((first_block + BLOCKS) * 8);
                let words = &group.words[first_block * num_words..until.div_ceil(8) * num_words];
                backend.run(HashBlocks { key, num_words, words, hashes: &mut hashes });
                let hashes = &hashes.as_flattened()[start % 8..until - first_block * 8];
                take(&group.indices[start..until], hashes)?;
                start = until;
            }
        }
        let long = &self.long[positions(&self.long, &range)];
        for indices in long.chunks(Self::AT_A_TIME) {
            let hashes = hashes.as_flattened_mut();
            for (index, hash) in indices.iter().zip(&mut *hashes) {
                *hash = siphash_2_4(key, message(*index));
            }
            take(indices, &hashes[..indices.len()])?;
        }
        ControlFlow::Continue(())
    }
}

/// Returns the positions of those elements of an ascending list that lie in `range`.
fn positions(indices: &[u32], range: &Range<u32>) -> Range<usize> {
    let from = |bound: u32| match (indices.first(), indices.last()) {
        (Some(first), _) if bound <= *first => 0,
        (_, Some(last)) if bound <= *last => indices.partition_point(|index| *index < bound),
        _ => indices.len(),
    };
    from(range.start)..from(range.end)
}

/// Kernel that hashes blocks of eight messages of `num_words` words.
struct HashBlocks<'a> {
    key: SipKey,
    num_words: usize,
    words: &'a [[u64; 8]],
    hashes: &'a mut [[u64; 8]; BLOCKS],
}

impl Kernel for HashBlocks<'_> {
    type Output = ();

    fn scalar(self) {
        for (words, hashes) in self.words.chunks_exact(self.num_words).zip(self.hashes) {
            // Two messages at a time: the CPU overlaps their dependent steps.
            for pair in 0..4 {
                let (mut a, mut b) = (State::new(self.key), State::new(self.key));
                for lanes in words {
                    a.compress(lanes[pair * 2]);
                    b.compress(lanes[pair * 2 + 1]);
                }
                (hashes[pair * 2], hashes[pair * 2 + 1]) = (a.finish(), b.finish());
            }
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        // The registers can hold this many states at a time.
        if L::LANES == 8 {
            self.interleaved::<L, 4>(lanes);
        } else {
            self.interleaved::<L, 2>(lanes);
        }
    }
}

impl HashBlocks<'_> {
    /// Hashes `N` vectors at a time, so that the CPU overlaps their dependent rounds.
    #[inline(always)]
    fn interleaved<L: Lanes, const N: usize>(self, lanes: L) {
        let (words, hashes) = (self.words.as_flattened(), self.hashes.as_flattened_mut());
        let block_length = self.num_words * 8;
        let num_vectors = words.len() / self.num_words / L::LANES;
        let initial = LaneStates::new(lanes, self.key);
        let mut first = 0;
        while first < num_vectors {
            // Offsets of the words of the `N` vectors. If fewer than `N` vectors are left, the last
            // vector is repeated.
            let mut at = [0; N];
            for i in 0..N {
                let message = (first + i).min(num_vectors - 1) * L::LANES;
                at[i] = message / 8 * block_length + message % 8;
            }
            let mut states = [initial; N];
            for _ in 0..self.num_words {
                let mut loaded = [lanes.splat_64(0); N];
                for i in 0..N {
                    loaded[i] = lanes.load_slice_64(&words[at[i]..]);
                    at[i] += 8;
                }
                LaneStates::compress(lanes, &mut states, &loaded);
            }
            let finished = LaneStates::finish(lanes, states);
            for i in 0..N {
                let vector = (first + i).min(num_vectors - 1);
                lanes.store_slice_64(finished[i], &mut hashes[vector * L::LANES..]);
            }
            first += N;
        }
    }
}

/// The ASCII bytes of "somepseudorandomlygeneratedbytes", big-endian.
const INITIAL: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

/// State of one hash in progress.
#[derive(Clone, Copy)]
struct State([u64; 4]);

impl State {
    #[inline(always)]
    fn new(key: SipKey) -> Self {
        let [a, b, c, d] = INITIAL;
        Self([key.k0 ^ a, key.k1 ^ b, key.k0 ^ c, key.k1 ^ d])
    }

    #[inline(always)]
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

    #[inline(always)]
    fn compress(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    #[inline(always)]
    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [v0, v1, v2, v3] = self.0;
        v0 ^ v1 ^ v2 ^ v3
    }
}

/// States of hashes in progress, one in each lane.
#[derive(Clone, Copy)]
struct LaneStates<L: Lanes>([L::W; 4]);

impl<L: Lanes> LaneStates<L> {
    #[inline(always)]
    fn new(lanes: L, key: SipKey) -> Self {
        let [v0, v1, v2, v3] = State::new(key).0;
        Self([lanes.splat_64(v0), lanes.splat_64(v1), lanes.splat_64(v2), lanes.splat_64(v3)])
    }

    #[inline(always)]
    fn round(&mut self, lanes: L) {
        let [v0, v1, v2, v3] = self.0;
        let v0 = lanes.add_64(v0, v1);
        let v2 = lanes.add_64(v2, v3);
        let v1 = lanes.xor_64(lanes.rotate_left_64::<13>(v1), v0);
        let v3 = lanes.xor_64(lanes.rotate_left_64::<16>(v3), v2);
        let v0 = lanes.add_64(lanes.rotate_left_64::<32>(v0), v3);
        let v2 = lanes.add_64(v2, v1);
        let v1 = lanes.xor_64(lanes.rotate_left_64::<17>(v1), v2);
        let v3 = lanes.xor_64(lanes.rotate_left_64::<21>(v3), v0);
        let v2 = lanes.rotate_left_64::<32>(v2);
        self.0 = [v0, v1, v2, v3];
    }

    /// Absorbs one word in each lane of each state.
    #[inline(always)]
    fn compress<const N: usize>(lanes: L, states: &mut [Self; N], words: &[L::W; N]) {
        for i in 0..N {
            states[i].0[3] = lanes.xor_64(states[i].0[3], words[i]);
        }
        Self::rounds::<N, 2>(lanes, states);
        for i in 0..N {
            states[i].0[0] = lanes.xor_64(states[i].0[0], words[i]);
        }
    }

    #[inline(always)]
    fn rounds<const N: usize, const ROUNDS: usize>(lanes: L, states: &mut [Self; N]) {
        for _ in 0..ROUNDS {
            for i in 0..N {
                states[i].round(lanes);
            }
        }
    }

    #[inline(always)]
    fn finish<const N: usize>(lanes: L, mut states: [Self; N]) -> [L::W; N] {
        let mut hashes = [lanes.splat_64(0xff); N];
        for i in 0..N {
            states[i].0[2] = lanes.xor_64(states[i].0[2], hashes[i]);
        }
        Self::rounds::<N, 4>(lanes, &mut states);
        for i in 0..N {
            hashes[i] = states[i].hash(lanes);
        }
        hashes
    }

    #[inline(always)]
    fn hash(self, lanes: L) -> L::W {
        let [v0, v1, v2, v3] = self.0;
        lanes.xor_64(lanes.xor3_64(v0, v1, v2), v3)
    }
}
