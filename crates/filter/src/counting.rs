//! Counting Bloom filter: 4-bit counters, sixteen per word, in blocks of a cache line.

use alloc::vec::Vec;

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, refuse_if, refuse_nonzero, within,
};
use super::hashing::{KeyHasher, fmix64};
use super::membership::{
    Filter, Full, Insert, Merge, MergeError, NotContained, Remove, contains_in_chunks,
};
use super::sizing::{BuildError, blocked, check_hash, classic, distinct, float};
use super::words::{LINE_WORDS, Words};

/// Number of counters in a block: a cache line of 4-bit counters.
const BLOCK_COUNTERS: u32 = 128;
/// Greatest number of counters of a key.
const MAX_HASH_FUNCS: u32 = blocked::MAX_COUNTERS_OF_KEY;
/// Greatest number of blocks: together they have 2⁵⁶ bits.
const MAX_BLOCKS: u64 = 1 << 47;
/// Number of positions that one 64-bit word of hash determines: 9 positions of 7 bits.
const POSITIONS_PER_WORD: u32 = 9;
/// A mask of the lowest bit of every counter in a word.
const ONES: u64 = 0x1111_1111_1111_1111;

type Block = [u64; LINE_WORDS];

/// A Bloom filter with removal, as textbooks describe it.
///
/// The filter has 4-bit counters where a Bloom filter has bits (Fan, Cao, Almeida, Broder 2000:
/// "Summary Cache"). Insertion increments the counters of a key, and removal decrements them. The
/// filter is blocked: all counters of a key lie in one cache line of 128 counters, so an operation
/// has one cache miss instead of one per counter (Putze, Sanders, Singler 2007).
///
/// **When to use it.** Hardly ever. The filter exists because textbooks describe it, and as a
/// baseline for measurements. The filter takes 43 bits per key at a rate of 1 %, 76 at 0.1 %, and
/// 124 at 0.01 %.
///
/// **What is better.** A cuckoo filter supports removal too, with 12.8 bits per key at 0.2 % and 17
/// at 0.01 %. The cuckoo filter takes a third to a seventh of the memory, but each operation has
/// two cache misses. Two advantages of counters remain: an insertion never fails for lack of room,
/// and a key may be inserted up to 14 times.
///
/// **What an answer means.** `false` is certain, provided that only keys in the filter were removed
/// ([`Remove`]). The claim that "counting filters have no false negatives" is wrong without this
/// condition, because removing a key that is not in the filter decrements the counters of other
/// keys. Some published filters also lost keys because counters overflowed and were then
/// decremented. In this filter, a counter that reaches 15 **stays at 15**, because its true value
/// is unknown from then on. A counter with the value 15 stays above zero until
/// [`clear`](Insert::clear), even if its keys are removed.
///
/// **Overflow.** With distinct keys up to the capacity, overflow does not happen in practice: the
/// mean value of a counter is 0.6 to 0.7, and it reaches 15 with a probability of about 10⁻¹⁵. This
/// probability holds for **distinct keys only**: inserting one key 15 times certainly saturates all
/// its counters. A caller that receives
/// keys repeatedly should count them in a table, and insert each key only the first time.
///
/// # Examples
/// ```
/// use chainsieve_filter::textbook::CountingBloomFilter;
/// use chainsieve_filter::{Filter, Insert, KeyHasher, Remove};
///
/// let mut filter = CountingBloomFilter::with_fpr(1_000, 0.01, KeyHasher::random())?;
/// filter.insert(b"key")?;
/// // Only a caller that knows that the key is in the filter may remove it.
/// filter.remove_known_key(b"key")?;
/// assert!(!filter.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountingBloomFilter {
    hasher: KeyHasher,
    words: Words,
    hash_funcs: u32,
    len: u64,
}

impl CountingBloomFilter {
    /// Creates the smallest filter with a rate of at most `fpr` for `capacity` distinct keys.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, if no filter can have this size and rate,
    /// or if there is no memory for the filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let (num_blocks, hash_funcs) =
            blocked::size(MAX_HASH_FUNCS, capacity, fpr, BLOCK_COUNTERS)?;
        check_hash(capacity, fpr, 64)?;
        Self::with_blocks(num_blocks, hash_funcs, hasher)
    }

    /// Creates a filter of `num_blocks` blocks with 128 counters (512 bits) each. A key has
    /// `hash_funcs` counters in one block.
    ///
    /// # Errors
    /// Returns an error if `num_blocks` is not from 1 to 2⁴⁷, if `hash_funcs` is not from 1 to 16,
    /// or if there is no memory for the filter.
    pub fn with_blocks(
        num_blocks: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let (value, max) = (hash_funcs.into(), MAX_HASH_FUNCS.into());
        BuildError::unless_within("a number of hash functions", value, max)?;
        BuildError::unless_within("a number of blocks", num_blocks, MAX_BLOCKS)?;
        let words = Words::zeroed(num_blocks * LINE_WORDS as u64)?;
        Ok(Self { hasher, words, hash_funcs, len: 0 })
    }

    /// Returns the number of blocks of 128 counters.
    pub fn num_blocks(&self) -> u64 {
        self.blocks().len() as u64
    }

    /// Returns the number of counters that a key has in its block.
    pub const fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// Returns the number of counters that are saturated: counters that stay at 15.
    pub fn saturated(&self) -> u64 {
        self.words.as_ref().iter().map(|word| u64::from(saturated(*word).count_ones())).sum()
    }

    fn num_counters(&self) -> f64 {
        float(self.num_blocks()) * f64::from(BLOCK_COUNTERS)
    }

    /// Returns the probability that a key uses a given counter: the probability of its block, times
    /// the probability that one of the key's positions is this counter.
    fn chance_of_counter(&self) -> f64 {
        classic::fill(1, BLOCK_COUNTERS.into(), self.hash_funcs) / float(self.num_blocks())
    }

    fn blocks(&self) -> &[Block] {
        self.words.as_ref().as_chunks().0
    }

    /// Returns the block of a hash, selected by its high bits.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below the number of blocks")]
    fn block_index(&self, hash: u64) -> usize {
        let blocks = self.words.as_ref().len() / LINE_WORDS;
        (u128::from(hash) * blocks as u128 >> 64) as usize
    }

    #[inline]
    fn block(&self, hash: u64) -> &Block {
        &self.blocks()[self.block_index(hash)]
    }

    #[inline]
    fn block_mut(&mut self, hash: u64) -> &mut Block {
        let index = self.block_index(hash);
        &mut self.words.as_mut().as_chunks_mut().0[index]
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        chainsieve_lanes::simd::prefetch(self.block(hash));
    }

    /// Returns for each block the number of its counters that are not zero.
    fn occupied(&self) -> impl Iterator<Item = u32> {
        let of_block = |block: &Block| block.iter().map(|word| nonzero(*word).count_ones()).sum();
        self.blocks().iter().map(of_block)
    }
}

/// Returns the positions of a key's counters in its block. The positions are independent and may
/// coincide.
///
/// The high bits of the hash select the block. The positions come from the mixed hash, so they are
/// independent of the block.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below 128")]
fn positions(hash: u64, hash_funcs: u32) -> impl Iterator<Item = usize> {
    let mut bits = fmix64(hash);
    (0..hash_funcs).map(move |at| {
        if at == POSITIONS_PER_WORD {
            bits = fmix64(hash ^ 0x9e37_79b9_7f4a_7c15);
        }
        let position = bits & u64::from(BLOCK_COUNTERS - 1);
        bits >>= BLOCK_COUNTERS.ilog2();
        position as usize
    })
}

/// Returns a mask with a 1 in each counter of a key. Positions that coincide are counted once.
#[inline]
fn ones_of(hash: u64, hash_funcs: u32) -> Block {
    let mut ones = [0; LINE_WORDS];
    for position in positions(hash, hash_funcs) {
        ones[position / 16 % LINE_WORDS] |= 1 << (position % 16 * 4);
    }
    ones
}

#[inline]
fn may_contain(block: &Block, hash: u64, hash_funcs: u32) -> bool {
    let counter = |position: usize| block[position / 16 % LINE_WORDS] >> (position % 16 * 4) & 15;
    positions(hash, hash_funcs).all(|position| counter(position) != 0)
}

/// Returns a 1 in each counter that is not zero.
#[inline]
const fn nonzero(word: u64) -> u64 {
    (word | word >> 1 | word >> 2 | word >> 3) & ONES
}

/// Returns a 1 in each counter that is 15.
#[inline]
const fn saturated(word: u64) -> u64 {
    word & word >> 1 & word >> 2 & word >> 3 & ONES
}

/// Adds the counters of two words. Each sum is limited to 15.
const fn saturating_sum(a: u64, b: u64) -> u64 {
    /// A mask of every second counter, which leaves room for a carry above each masked counter.
    const EVEN: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const fn of_even(a: u64, b: u64) -> u64 {
        let sum = (a & EVEN) + (b & EVEN);
        (sum | (sum >> 4 & EVEN) * 15) & EVEN
    }
    of_even(a, b) | of_even(a >> 4, b >> 4) << 4
}

impl Filter for CountingBloomFilter {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        may_contain(self.block(hash), hash, self.hash_funcs)
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        let contains = |hash| self.contains_hash(hash);
        contains_in_chunks(hashes, may_contain, |hash| self.prefetch(hash), contains);
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    fn fill(&self) -> f64 {
        let occupied: u64 = self.occupied().map(u64::from).sum();
        float(occupied) / self.num_counters()
    }

    /// Computes the rate of this very filter: the mean over its actual blocks.
    fn expected_fpr(&self) -> f64 {
        // Blocks with the same number of non-zero counters have the same rate, so blocks are
        // counted by that number.
        let mut with_occupied = [0; BLOCK_COUNTERS as usize + 1];
        self.occupied().for_each(|occupied| with_occupied[occupied as usize] += 1);
        let k = f64::from(self.hash_funcs);
        let rates = with_occupied.iter().zip(0..).map(|(blocks, occupied)| {
            float(*blocks) * libm::pow(float(occupied) / f64::from(BLOCK_COUNTERS), k)
        });
        rates.sum::<f64>() / float(self.num_blocks())
    }

    /// Estimates the number of distinct keys from the fraction of counters that are not zero.
    fn estimated_len(&self) -> Option<f64> {
        distinct(self.fill(), self.chance_of_counter())
    }
}

impl Insert for CountingBloomFilter {
    /// Always succeeds. Each insertion of a key increments its counters again. A counter that
    /// reaches 15 stays at 15.
    #[inline]
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let ones = ones_of(hash, self.hash_funcs);
        let mut missing = 0;
        for (word, ones) in self.block_mut(hash).iter_mut().zip(ones) {
            missing |= ones & !nonzero(*word);
            *word += ones & !saturated(*word);
        }
        self.len = self.len.saturating_add(1);
        Ok(missing != 0)
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl Remove for CountingBloomFilter {
    /// Decrements the key's counters, except those at 15, whose true value may be greater.
    fn remove_known_hash(&mut self, hash: u64) -> Result<(), NotContained> {
        let ones = ones_of(hash, self.hash_funcs);
        let block = self.block_mut(hash);
        if block.iter().zip(ones).any(|(word, ones)| ones & !nonzero(*word) != 0) {
            return Err(NotContained);
        }
        for (word, ones) in block.iter_mut().zip(ones) {
            *word -= ones & !saturated(*word);
        }
        self.len = self.len.saturating_sub(1);
        Ok(())
    }
}

impl Merge for CountingBloomFilter {
    /// Adds the counters pairwise, up to 15. A key in both filters is counted twice.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        let (ours, theirs) = (self.num_blocks(), other.num_blocks());
        MergeError::unless_equal("the number of blocks", ours, theirs)?;
        let (ours, theirs) = (self.hash_funcs.into(), other.hash_funcs.into());
        MergeError::unless_equal("the number of hash functions", ours, theirs)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        for (ours, theirs) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            *ours = saturating_sum(*ours, *theirs);
        }
        self.len = self.len.saturating_add(other.len);
        Ok(())
    }
}

/// The parameters in the encoded header are the number of blocks, the number of hash functions, and
/// zero. The body contains the blocks, eight words each. A word has sixteen counters, the first in
/// the lowest bits.
impl Portable for CountingBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let params = [self.num_blocks(), self.hash_funcs.into(), 0];
        let header = Header { kind: Kind::Counting, hasher: self.hasher, len: self.len, params };
        header.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Counting, |header| {
            let [num_blocks, hash_funcs, unused] = header.params;
            within("the number of blocks", num_blocks, 1..=MAX_BLOCKS, "from 1 to 2^47")?;
            let is_wrong = !(1..=u64::from(MAX_HASH_FUNCS)).contains(&hash_funcs);
            refuse_if(is_wrong, "the number of hash functions", hash_funcs, "from 1 to 16")?;
            refuse_nonzero(unused != 0, "bytes 56 to 63")?;
            Ok(num_blocks * LINE_WORDS as u64)
        })?;
        let Header { hasher, len, params: [_, hash_funcs, _], .. } = opened.header;
        let hash_funcs = u32::try_from(hash_funcs).unwrap_or(MAX_HASH_FUNCS);
        Ok(Self { hasher, words: opened.words()?, hash_funcs, len })
    }
}
