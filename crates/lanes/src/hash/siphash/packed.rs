//! Messages packed for hashing in lanes.

#![expect(
    clippy::needless_range_loop,
    reason = "in a loop over registers, closures would not inline into functions with CPU features"
)]

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use super::rounds::{LaneStates, State};
use super::{SipKey, last_word, siphash_2_4};
use crate::simd::{Backend, Kernel, Lanes};

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
