//! Counting Bloom filter: counters of four bits in cache lines, sixteen to a word.

use alloc::vec::Vec;

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::{KeyHasher, fmix64};
use super::kind::Kind;
use super::membership::{
    Filter, Full, Insert, Merge, MergeError, NotContained, Remove, Witness, contains_in_chunks,
};
use super::sizing::{SizingError, blocked, check_hash, classic, distinct, float};
use super::words::{LINE_WORDS, Words};

/// Counters of a block: a cache line of four bits each.
const BLOCK_COUNTERS: u32 = 128;
/// Most counters of a key.
const MAX_HASH_FUNCS: u32 = blocked::MAX_COUNTERS_OF_KEY;
/// Most blocks: as many have 2⁵⁶ bits.
const MAX_BLOCKS: u64 = 1 << 47;
/// What a counter stays at once it is there.
const SATURATED: u32 = 15;
/// Positions that one word of hash gives: 9 × 7 bits.
const POSITIONS_PER_WORD: u32 = 9;
/// One in every counter of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

type Block = [u64; LINE_WORDS];

/// A Bloom filter that keys can be taken out of: the textbook's variant.
///
/// Counters of four bits where a Bloom filter has bits (Fan, Cao, Almeida, Broder 2000: "Summary
/// Cache"). Insertion adds one to the counters of a key, removal takes one. Blocked: the counters
/// of a key lie in one cache line of 128, so that an operation costs one miss of the cache instead
/// of one for each (Putze, Sanders, Singler 2007).
///
/// **When to use it.** Hardly ever: it is here because textbooks have it, and to be measured
/// against. It takes 43 bits for a key at a rate of 1 %, 76 at 0.1 %, 124 at 0.01 %.
///
/// **What beats it.** A cuckoo filter removes too, in 12.8 bits for a key at 0.2 % and 17 at
/// 0.01 %: in a third to a seventh of the memory, at two misses of the cache. What is left for
/// counters: an insertion never fails for want of a place, and a key may be in up to 14 times.
///
/// **What an answer means.** `false` is certain as long as only keys that are in the filter were
/// removed ([`Witness`]). That "counting filters have no false negatives" is not true as such:
/// removing a key that is not there takes counters from others, and counters that overflow and are
/// counted down again lose keys, as filters that were shipped did. Here a counter that reaches 15
/// **stays there**, because nobody knows any more how often it was counted up. Its keys are found
/// until [`clear`](Insert::clear).
///
/// **Overflow.** With distinct keys, at the design's load, it does not happen: a counter stands at
/// 0.6 to 0.7 in the mean, and at 15 with a chance of about 10⁻¹⁵
/// ([`expected_saturated`](Self::expected_saturated)). That is for **distinct keys only**: one
/// key inserted 15 times saturates all its counters with certainty. Whoever gets keys repeatedly
/// keeps a table of how often, and inserts a key when it comes first.
///
/// # Examples
/// ```
/// use chainsieve_filter::textbook::CountingBloomFilter;
/// use chainsieve_filter::{Filter, Insert, KeyHasher, Remove, Witness};
///
/// let mut filter = CountingBloomFilter::with_fpr(1_000, 0.01, KeyHasher::random())?;
/// filter.insert(b"key")?;
/// // Whoever removes a key has to know that it is there.
/// let hash = filter.hasher().hash(b"key");
/// filter.remove(Witness::vouched(hash))?;
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
    /// The smallest filter that has a rate of `fpr` once `capacity` distinct keys are in.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let (num_blocks, hash_funcs) = blocked::counting_size(capacity, fpr, BLOCK_COUNTERS)?;
        check_hash(capacity, fpr, 64)?;
        Self::with_blocks(num_blocks, hash_funcs, hasher)
    }

    /// A filter of this many blocks of 128 counters (512 bits), of which a key has 1 to 16 in one
    /// block.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn with_blocks(
        num_blocks: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        let (value, max) = (hash_funcs.into(), MAX_HASH_FUNCS.into());
        SizingError::unless_within("a number of hash functions", value, max)?;
        SizingError::unless_within("a number of blocks", num_blocks, MAX_BLOCKS)?;
        let words = Words::zeroed(num_blocks * LINE_WORDS as u64)?;
        Ok(Self { hasher, words, hash_funcs, len: 0 })
    }

    /// How many blocks of 128 counters there are.
    pub fn num_blocks(&self) -> u64 {
        self.blocks().len() as u64
    }

    /// How many counters of its block a key has.
    pub const fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// How many counters are stuck at 15, for good.
    pub fn saturated(&self) -> u64 {
        self.words.as_ref().iter().map(|word| u64::from(saturated(*word).count_ones())).sum()
    }

    /// How many counters reach 15, where they stay, with `n` **distinct** keys, on average.
    ///
    /// Every key takes a given counter with the same chance, so what it counts is binomial, and as
    /// good as Poisson's. Keys that are inserted again and again are not in this: 15 times one key
    /// saturates all its counters.
    pub fn expected_saturated(&self, n: u64) -> f64 {
        let mean = float(n) * self.chance_of_counter();
        if mean <= 0.0 {
            return 0.0;
        }
        let chance = |count: u32| {
            let count = f64::from(count);
            libm::exp(count * libm::log(mean) - mean - libm::lgamma(count + 1.0))
        };
        let below = || (0..SATURATED).map(chance).sum::<f64>();
        // What is rare is summed itself, not taken from one.
        let saturated =
            if mean > 15.0 { 1.0 - below() } else { (SATURATED..200).map(chance).sum() };
        self.num_counters() * saturated
    }

    fn num_counters(&self) -> f64 {
        float(self.num_blocks()) * f64::from(BLOCK_COUNTERS)
    }

    /// The chance that a key takes a given counter: that the block is its own, times that the
    /// counter is among its draws.
    fn chance_of_counter(&self) -> f64 {
        classic::fill(1, BLOCK_COUNTERS.into(), self.hash_funcs) / float(self.num_blocks())
    }

    fn blocks(&self) -> &[Block] {
        self.words.as_ref().as_chunks().0
    }

    /// The block of a hash: by its high bits.
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

    /// How many counters of each block are not zero.
    fn occupied(&self) -> impl Iterator<Item = u32> {
        let of_block = |block: &Block| block.iter().map(|word| nonzero(*word).count_ones()).sum();
        self.blocks().iter().map(of_block)
    }
}

/// Where the counters of a key lie in its block: independent draws, which may coincide.
///
/// The block takes the high bits of the hash; these are of the hash mixed, so that they say
/// nothing of the block.
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

/// A one in each counter of a key: draws that coincide count once.
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

/// A one in each counter that is not zero.
#[inline]
const fn nonzero(word: u64) -> u64 {
    (word | word >> 1 | word >> 2 | word >> 3) & ONES
}

/// A one in each counter that is 15.
#[inline]
const fn saturated(word: u64) -> u64 {
    word & word >> 1 & word >> 2 & word >> 3 & ONES
}

/// The sums of counters, 15 at most.
const fn saturating_sum(a: u64, b: u64) -> u64 {
    /// Every other counter, with room above it.
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

    /// From the actual blocks: the mean of each one's rate.
    fn expected_fpr(&self) -> f64 {
        // Blocks with as many counters occupied have the same rate.
        let mut with_occupied = [0; BLOCK_COUNTERS as usize + 1];
        self.occupied().for_each(|occupied| with_occupied[occupied as usize] += 1);
        let k = f64::from(self.hash_funcs);
        let rates = with_occupied.iter().zip(0..).map(|(blocks, occupied)| {
            float(*blocks) * libm::pow(float(occupied) / f64::from(BLOCK_COUNTERS), k)
        });
        rates.sum::<f64>() / float(self.num_blocks())
    }

    /// Distinct keys, by the share of counters that are not zero.
    fn estimated_len(&self) -> Option<f64> {
        distinct(self.fill(), self.chance_of_counter())
    }
}

impl Insert for CountingBloomFilter {
    /// Never full. A key counts each time that it is inserted; at 15 its counters stay for good.
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
    /// Counters at 15 stay: they may stand for more.
    fn remove(&mut self, witness: Witness) -> Result<(), NotContained> {
        let hash = witness.hash();
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
    /// Adds counter to counter, up to 15. Keys of both are then counted in both.
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

/// Parameters: blocks, hash functions, zero. Body: the blocks, eight words each, sixteen counters
/// a word from the low bits up.
impl Portable for CountingBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let params = [self.num_blocks(), self.hash_funcs.into(), 0];
        let header = Header { kind: Kind::Counting, hasher: self.hasher, len: self.len, params };
        header.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Counting, |header| {
            let [num_blocks, hash_funcs, unused] = header.params;
            if !(1..=MAX_BLOCKS).contains(&num_blocks) {
                let limit = "from 1 to 2^47 are possible";
                return Err(parameter("the number of blocks", num_blocks, limit));
            }
            if !(1..=u64::from(MAX_HASH_FUNCS)).contains(&hash_funcs) {
                let what = "the number of hash functions";
                return Err(parameter(what, hash_funcs, "from 1 to 16 are possible"));
            }
            if unused != 0 {
                return Err(DecodeError::NotZero("56 to 63"));
            }
            Ok(num_blocks * LINE_WORDS as u64)
        })?;
        let Header { hasher, len, params: [_, hash_funcs, _], .. } = opened.header;
        let hash_funcs = u32::try_from(hash_funcs).unwrap_or(MAX_HASH_FUNCS);
        Ok(Self { hasher, words: opened.words()?, hash_funcs, len })
    }
}
