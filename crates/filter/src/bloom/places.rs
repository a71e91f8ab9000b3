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
//! arithmetic progressions. The multiplier is one of those of Steele and Vigna ("Computationally
//! easy, spectrally good multipliers", 2021), whose successive products fill space evenly in two to
//! eight dimensions. The tests compare the rates with those of random positions, including small
//! filters.
//!
//! The first position depends on more than the highest bits of the hash. So a filter may also be
//! filled with the keys of one shard, whose hashes have the same highest bits.

use crate::hashing::KeyHash;

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
pub(super) fn next_place(link: &mut u64, high: u64, range: u64) -> u64 {
    *link = link.wrapping_mul(MULTIPLIER).wrapping_add(high);
    ((u128::from(*link) * u128::from(range)) >> 64) as u64
}

/// Splits a position into the index of its word and the bit within the word.
#[inline(always)]
pub(super) const fn word_and_bit(place: u64) -> (usize, u32) {
    ((place / 64) as usize, (place % 64) as u32)
}

/// The arrangement of a key's positions. Without partitions, all positions lie in one range. With
/// partitions, each position lies in a range (slice) of its own, and the slices are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places<const PARTITIONED: bool> {
    /// Number of bits in the range of one position.
    pub(super) range: u64,
    pub(super) hash_funcs: u32,
}

impl<const PARTITIONED: bool> Places<PARTITIONED> {
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
            let place = start + next_place(&mut link, high, self.range);
            if PARTITIONED {
                start += self.range;
            }
            place
        })
    }

    #[inline(always)]
    pub(super) fn contains<H: KeyHash>(self, words: &[u64], hash: H) -> bool {
        self.contains_by(hash, |place| bit(words, place))
    }

    /// Returns `true` if `bit` is 1 at all positions of a key.
    ///
    /// The first two positions are tested with one branch. For a key that is not in the set, this
    /// branch ends the query three times out of four, which the CPU predicts well. A branch after
    /// one position would be mispredicted every second time, and each misprediction discards the
    /// work on the next keys.
    #[inline(always)]
    pub(super) fn contains_by<H: KeyHash>(self, hash: H, bit: impl Fn(u64) -> u64) -> bool {
        let mut places = self.of(hash);
        let first = places.next().map_or(1, &bit);
        let second = places.next().map_or(1, &bit);
        first & second != 0 && places.all(|place| bit(place) != 0)
    }

    /// Sets the bits of a key. Returns `true` if at least one of these bits was not set before.
    #[inline(always)]
    pub(super) fn insert<H: KeyHash>(self, words: &mut [u64], hash: H) -> bool {
        let mut all_set = 1;
        for place in self.of(hash) {
            all_set &= set(words, place);
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
                *answer = self.after(*link, high, asked).all(|place| bit(words, place) != 0);
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
        let mut places = [0; POSITIONS];
        // A key has at most 128 positions, so at least four keys fit.
        let keys = (POSITIONS / self.hash_funcs as usize).clamp(1, CHUNK);
        for hashes in hashes.chunks(keys) {
            let all = hashes.iter().flat_map(|hash| self.of(*hash));
            let mut count = 0;
            for (at, place) in places.iter_mut().zip(all) {
                prefetch(words, place);
                *at = place;
                count += 1;
            }
            for place in places.iter().take(count) {
                set(words, *place);
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
        shape: Places<PARTITIONED>,
        words: &[u64],
        hashes: &[H],
        asked: u32,
    ) {
        let first = if PARTITIONED { u64::from(asked) * shape.range } else { 0 };
        let mut places = [[0; WIDTH]; CHUNK];
        let rows = self.keys.iter().zip(&mut self.links).zip(&mut places).take(self.left);
        for ((key, link), places) in rows {
            let high = hashes.get(usize::from(*key)).map_or(0, |hash| hash.to_words()[1]);
            let mut start = first;
            for place in places {
                *place = start + next_place(link, high, shape.range);
                if PARTITIONED {
                    start += shape.range;
                }
                prefetch(words, *place);
            }
        }
        let mut left = 0;
        for at in 0..self.left {
            let places = places[at % CHUNK];
            let all = places.iter().fold(1, |all, place| all & bit(words, *place));
            self.keys[left % CHUNK] = self.keys[at % CHUNK];
            self.links[left % CHUNK] = self.links[at % CHUNK];
            left += usize::from(all != 0);
        }
        self.left = left;
    }
}

/// Returns the bit at a position, 0 or 1.
#[inline(always)]
fn bit(words: &[u64], place: u64) -> u64 {
    let (word, bit) = word_and_bit(place);
    words.get(word).map_or(0, |word| word >> bit & 1)
}

/// Sets the bit at a position and returns its previous value.
#[inline(always)]
fn set(words: &mut [u64], place: u64) -> u64 {
    let (word, bit) = word_and_bit(place);
    words.get_mut(word).map_or(1, |word| {
        let was = *word >> bit & 1;
        *word |= 1 << bit;
        was
    })
}

#[inline(always)]
fn prefetch(words: &[u64], place: u64) {
    let (word, _) = word_and_bit(place);
    if let Some([byte, ..]) = words.get(word).map(bytemuck::bytes_of) {
        chainsieve_lanes::simd::prefetch(byte);
    }
}
