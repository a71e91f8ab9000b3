//! The bit positions of a key: a chain of multiplications that starts from the key's hash.
//!
//! Position `i` is the high part of `g_i·m`, where `g_i = g_(i-1)·A + high` and `g_(-1) = low`,
//! modulo 2⁶⁴. `low` and `high` are the two words of the hash. `high` is 0 for 64-bit hashes.
//!
//! Double hashing after Kirsch and Mitzenmacher (2008), `h1 + i·h2 mod m`, is as good as random
//! positions only for large `m`: positions in arithmetic progression coincide too often. For m =
//! 1,024 and k = 14 the false-positive rate of double hashing is 15 times the promised rate. If
//! `h2` and `m` have a common factor, the positions of a key repeat.
//!
//! In the chain used here, all bits of the hash influence every position, and there are no
//! arithmetic progressions. The multiplier is from Steele and Vigna ("Computationally easy,
//! spectrally good multipliers", 2021). Its successive products fill space evenly in two to eight
//! dimensions. The tests compare the rates with those of random positions, including small filters.
//!
//! The first position depends on more than the highest bits of the hash. So a filter may also be
//! filled with the keys of one shard, whose hashes have the same highest bits.
//!
//! This module also counts and folds the bits of a whole filter.

use crate::hashing::KeyHash;
use crate::words::{NoMemory, Words};

/// The multiplier `A` of the chain, which is odd, so that the multiplication is a bijection modulo
/// 2⁶⁴.
const MULTIPLIER: u64 = 0xd134_2543_de82_ef95;

/// Number of keys in a batch whose words are prefetched before the first key is tested.
const CHUNK: usize = 64;
/// Filters of up to this many words fit into a cache near the core, so prefetching gains nothing.
const NEAR_WORDS: usize = 1 << 15;
/// Filters of up to this many words fit into some cache. Words then arrive so quickly that a
/// mispredicted branch costs more than a cache miss.
const CACHED_WORDS: usize = 1 << 19;
/// Number of positions that are prefetched before they are set, in a batch of insertions.
const POSITIONS: usize = 512;

/// Advances the chain by one link and returns the position in `0..range` that follows from the
/// link.
#[inline(always)]
pub(super) fn next_position(link: &mut u64, high: u64, range: u64) -> u64 {
    *link = link.wrapping_mul(MULTIPLIER).wrapping_add(high);
    ((u128::from(*link) * u128::from(range)) >> 64) as u64
}

/// Splits a position into the index of its word and the bit within the word.
#[inline(always)]
pub(super) const fn word_and_bit(position: u64) -> (usize, u32) {
    ((position / 64) as usize, (position % 64) as u32)
}

/// The arrangement of a key's positions. Without partitions, all positions lie in one range. With
/// partitions, each position lies in a range (slice) of its own, and the slices are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Positions<const PARTITIONED: bool> {
    /// Number of bits in the range of one position.
    pub(super) range: u64,
    pub(super) hash_funcs: u32,
}

impl<const PARTITIONED: bool> Positions<PARTITIONED> {
    pub(super) const fn num_bits(self) -> u64 {
        if PARTITIONED { self.range * self.hash_funcs as u64 } else { self.range }
    }

    /// Returns the positions of a key.
    #[inline(always)]
    pub(super) fn of<H: KeyHash>(self, hash: H) -> impl Iterator<Item = u64> {
        let [low, high] = hash.to_words();
        self.after(low, high, 0)
    }

    /// Returns the positions of a key without the first `asked` positions. `link` is the chain's
    /// value after the first `asked` positions.
    #[inline(always)]
    fn after(self, mut link: u64, high: u64, asked: u32) -> impl Iterator<Item = u64> {
        let mut start = if PARTITIONED { u64::from(asked) * self.range } else { 0 };
        (asked..self.hash_funcs).map(move |_| {
            let position = start + next_position(&mut link, high, self.range);
            if PARTITIONED {
                start += self.range;
            }
            position
        })
    }

    #[inline(always)]
    pub(super) fn contains<H: KeyHash>(self, words: &[u64], hash: H) -> bool {
        self.contains_by(hash, |position| bit(words, position))
    }

    /// Returns `true` if `bit` is 1 at all positions of a key.
    ///
    /// The first two positions are tested with one branch. For a key that is not in the set, this
    /// branch ends the query three times out of four, which the CPU predicts well. A branch after
    /// one position would be mispredicted every second time, and each misprediction discards the
    /// work on the next keys.
    #[inline(always)]
    pub(super) fn contains_by<H: KeyHash>(self, hash: H, bit: impl Fn(u64) -> u64) -> bool {
        let mut positions = self.of(hash);
        let first = positions.next().map_or(1, &bit);
        let second = positions.next().map_or(1, &bit);
        first & second != 0 && positions.all(|position| bit(position) != 0)
    }

    /// Sets the bits of a key. Returns `true` if at least one of these bits was not set before.
    #[inline(always)]
    pub(super) fn insert<H: KeyHash>(self, words: &mut [u64], hash: H) -> bool {
        let mut all_set = 1;
        for position in self.of(hash) {
            all_set &= set(words, position);
        }
        all_set == 0
    }

    pub(super) fn contains_batch<H: KeyHash>(
        self,
        words: &[u64],
        hashes: &[H],
        may_contain: &mut [bool],
    ) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        let mut found = 0;
        for (hashes, answers) in hashes.chunks(CHUNK).zip(may_contain.chunks_mut(CHUNK)) {
            // If most recent keys were in the set, the CPU predicts every branch correctly, and
            // testing keys one by one is fastest.
            if words.len() <= CACHED_WORDS && found > CHUNK * 7 / 8 {
                found = 0;
                for (hash, answer) in hashes.iter().zip(answers) {
                    *answer = self.contains(words, *hash);
                    found += usize::from(*answer);
                }
            } else {
                found = self.contains_chunk(words, hashes, answers);
            }
        }
    }

    /// Tests a chunk of keys in rounds of a few positions each. Returns the number of keys that may
    /// be in the set.
    ///
    /// A round prefetches the words of all keys that are still undecided and then tests them. No
    /// branch depends on a bit. In most uses, most keys are not in the set, and those keys need few
    /// words.
    #[inline]
    fn contains_chunk<H: KeyHash>(
        self,
        words: &[u64],
        hashes: &[H],
        answers: &mut [bool],
    ) -> usize {
        let mut round = Round::of(hashes);
        let mut asked = 0;
        answers.fill(false);
        while asked < self.hash_funcs && round.left > 0 {
            let left = self.hash_funcs - asked;
            // At each position, half of the keys that are not in the set are ruled out. So the
            // first rounds are short, to avoid fetching words of keys that are already ruled out.
            let width = if asked < 4 { left.min(2) } else { left.div_ceil(left.div_ceil(4)) };
            match width {
                1 => round.ask::<H, PARTITIONED, 1>(self, words, hashes, asked),
                2 => round.ask::<H, PARTITIONED, 2>(self, words, hashes, asked),
                3 => round.ask::<H, PARTITIONED, 3>(self, words, hashes, asked),
                _ => round.ask::<H, PARTITIONED, 4>(self, words, hashes, asked),
            }
            asked += width;
            if words.len() <= CACHED_WORDS {
                break;
            }
        }
        // In a filter that fits into a cache, it is fastest to test the remaining keys one by one.
        let mut found = 0;
        for (key, link) in round.keys.iter().zip(&round.links).take(round.left) {
            let at = usize::from(*key);
            let high = hashes.get(at).map_or(0, |hash| hash.to_words()[1]);
            if let Some(answer) = answers.get_mut(at) {
                *answer = self.after(*link, high, asked).all(|position| bit(words, position) != 0);
                found += usize::from(*answer);
            }
        }
        found
    }

    pub(super) fn insert_batch<H: KeyHash>(self, words: &mut [u64], hashes: &[H]) {
        if words.len() <= NEAR_WORDS {
            for hash in hashes {
                self.insert(words, *hash);
            }
            return;
        }
        let mut positions = [0; POSITIONS];
        // A key has at most 128 positions, so at least four keys fit.
        let keys = (POSITIONS / self.hash_funcs as usize).clamp(1, CHUNK);
        for hashes in hashes.chunks(keys) {
            let all = hashes.iter().flat_map(|hash| self.of(*hash));
            let mut count = 0;
            for (at, position) in positions.iter_mut().zip(all) {
                prefetch(words, position);
                *at = position;
                count += 1;
            }
            for position in positions.iter().take(count) {
                set(words, *position);
            }
        }
    }
}

/// The keys of a chunk that are not ruled out yet: all bits tested so far were set.
struct Round {
    /// Indices of the keys in the chunk.
    keys: [u8; CHUNK],
    /// Current value of each key's chain.
    links: [u64; CHUNK],
    left: usize,
}

impl Round {
    #[inline(always)]
    fn of<H: KeyHash>(hashes: &[H]) -> Self {
        let (mut keys, mut links) = ([0; CHUNK], [0; CHUNK]);
        for ((at, key), (link, hash)) in (0..).zip(&mut keys).zip(links.iter_mut().zip(hashes)) {
            *key = at;
            [*link, _] = hash.to_words();
        }
        Self { keys, links, left: hashes.len().min(CHUNK) }
    }

    /// Prefetches and tests the next `WIDTH` positions of each key. Only the keys whose bits are
    /// all set stay in the round.
    #[inline(always)]
    fn ask<H: KeyHash, const PARTITIONED: bool, const WIDTH: usize>(
        &mut self,
        shape: Positions<PARTITIONED>,
        words: &[u64],
        hashes: &[H],
        asked: u32,
    ) {
        let first = if PARTITIONED { u64::from(asked) * shape.range } else { 0 };
        let mut positions = [[0; WIDTH]; CHUNK];
        let rows = self.keys.iter().zip(&mut self.links).zip(&mut positions).take(self.left);
        for ((key, link), positions) in rows {
            let high = hashes.get(usize::from(*key)).map_or(0, |hash| hash.to_words()[1]);
            let mut start = first;
            for position in positions {
                *position = start + next_position(link, high, shape.range);
                if PARTITIONED {
                    start += shape.range;
                }
                prefetch(words, *position);
            }
        }
        let mut left = 0;
        for at in 0..self.left {
            let positions = positions[at % CHUNK];
            let all = positions.iter().fold(1, |all, position| all & bit(words, *position));
            self.keys[left % CHUNK] = self.keys[at % CHUNK];
            self.links[left % CHUNK] = self.links[at % CHUNK];
            left += usize::from(all != 0);
        }
        self.left = left;
    }
}

/// Returns the bit at a position, 0 or 1.
#[inline(always)]
fn bit(words: &[u64], position: u64) -> u64 {
    let (word, bit) = word_and_bit(position);
    words.get(word).map_or(0, |word| word >> bit & 1)
}

/// Sets the bit at a position and returns its previous value.
#[inline(always)]
fn set(words: &mut [u64], position: u64) -> u64 {
    let (word, bit) = word_and_bit(position);
    words.get_mut(word).map_or(1, |word| {
        let was = *word >> bit & 1;
        *word |= 1 << bit;
        was
    })
}

#[inline(always)]
fn prefetch(words: &[u64], position: u64) {
    let (word, _) = word_and_bit(position);
    if let Some([byte, ..]) = words.get(word).map(bytemuck::bytes_of) {
        chainsieve_lanes::simd::prefetch(byte);
    }
}

/// A mask of the even bits of a word: bits 0, 2, 4, and so on.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Combines each pair of bits as [`fold`] does, but leaves the result at the position of the pair's
/// first bit.
pub(super) const fn pairs(word: u64) -> u64 {
    (word | word >> 1) & EVEN
}

fn count(words: &[u64], kept: impl Fn(u64) -> u64) -> u64 {
    words.iter().map(|word| u64::from(kept(*word).count_ones())).sum()
}

/// Counts the bits that are set at positions `from..to`, after `kept` was applied to each word.
pub(super) fn count_between(
    words: &[u64],
    from: u64,
    to: u64,
    kept: impl Fn(u64) -> u64 + Copy,
) -> u64 {
    let ((first, skipped), (last, taken)) = (word_and_bit(from), word_and_bit(to));
    let low_bits = |at: usize, bits: u32| {
        let word = kept(words.get(at).copied().unwrap_or_default());
        u64::from((word & ((1 << bits) - 1)).count_ones())
    };
    let whole = count(words.get(first..last).unwrap_or_default(), kept);
    whole + low_bits(last, taken) - low_bits(first, skipped)
}

/// Returns half as many bits: bit `i` of the result is the bitwise OR of bits `2i` and `2i + 1` of
/// `words`.
pub(super) fn fold(words: &[u64], num_bits: u64) -> Result<Words, NoMemory> {
    let mut folded = Words::zeroed((num_bits / 2).div_ceil(64))?;
    for (to, from) in folded.as_mut().iter_mut().zip(words.chunks(2)) {
        let half = |at: usize| from.get(at).map_or(0, |word| gather_even(word | word >> 1));
        *to = half(0) | half(1) << 32;
    }
    Ok(folded)
}

/// Moves the even bits of a word together into its low half.
const fn gather_even(word: u64) -> u64 {
    let mut bits = word & EVEN;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) & 0xffff_ffff
}
