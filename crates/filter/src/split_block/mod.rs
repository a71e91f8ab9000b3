//! Split-block Bloom filters: every key has its bits in one block, one bit in each of the block's
//! eight words.
//!
//! The high half of a key's hash chooses the block, the low half the eight bits; nothing chooses
//! both. A probe reads one line of memory, whether the key is there or not, and tests the eight
//! bits at once, without a branch. So it costs a tenth to a third of a classic Bloom filter's, at
//! a few more bits:
//!
//! | bits a key for a rate of | 1 % | 0.1 % | 0.01 % | 0.001 % |
//! |---|---|---|---|---|
//! | [`SplitBlockFilter512`] | 10.1 | 15.7 | 23.6 | 35.0 |
//! | [`SplitBlockFilter256`] | 10.5 | 16.9 | 26.3 | 41.0 |
//! | classic Bloom | 9.6 | 14.4 | 19.2 | 24.0 |
//! | cuckoo, the best of its widths | 12.8 | 17.0 | 19.5 | |
//! | ribbon | 6.9 | 10.3 | 13.7 | 17.1 |
//!
//! **When to use it**: as a gate before something slower, where a rate of 0.1 % or more is good
//! enough, and keys come but don't go. Insertion is the fastest of all filters here, filters
//! merge by OR, and one that turns out too large folds. Take blocks of 512 bits; those of 256 are
//! for Parquet. **When not**: below about 0.1 % blocks that got more keys than others spoil the
//! rate, and the price in bits grows. A cuckoo filter is smaller there, and takes keys out again. For
//! sets that never change a ribbon filter is smaller at every rate, if a probe may take ten times
//! as long. For a few thousand keys a table is exact and as fast.
//!
//! `true` means that eight bits are set, by the key or by others of its block; `false` is
//! certain. The rate is a mean over blocks, of which fuller ones have a higher one: sizing by the
//! classic formula gives too few bits ([`super::sizing::split_block`]). It is
//! no lower than keys in a block·2⁻³², as often as the low halves of two hashes are equal.
//!
//! The hash has to be uniform in all of its bits. Who divides keys among several filters by bits
//! of the same hash has to see to it that within each filter the high half still takes all values.
//!
//! Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters" (2007); Apple: "Split
//! Block Bloom Filters" (arXiv 2101.01719); Parquet's `BloomFilter.md`.

mod bytes;
mod choice;
mod fold;
mod kernels;
mod layout;

use chainsieve_lanes::simd::Backend;

use choice::{low, place};
use kernels::{Batches, Contains, Fill};
pub use layout::{Bits256, Bits512};

use core::fmt;

use super::hashing::KeyHasher;
use super::membership::{Filter, Full, Insert, Merge, MergeError};
use super::sizing::{self, SizingError, classic, distinct, float};
use super::words::{Words, count_ones, unite};

/// The most blocks there can be. Each is chosen by 16 of the 2³² values there are, or by one more,
/// so that none gets many more keys than others.
const MAX_BLOCKS: u64 = 1 << 28;
/// Keys in a block, at most ten or so at this rate, times 2⁻³² are a fiftieth of it.
const LEAST_FPR: f64 = 1e-7;

/// The size of a block: [`Bits512`] or [`Bits256`].
pub trait BlockShape: Batches + fmt::Debug + Clone + Copy + PartialEq + Eq {}

impl BlockShape for Bits512 {}
impl BlockShape for Bits256 {}

/// A split-block Bloom filter of blocks of `B`; `S` holds its words.
///
/// # Examples
/// ```
/// use chainsieve_filter::split_block::SplitBlockFilter512;
/// use chainsieve_filter::{Filter, Fold, Insert, KeyHasher};
///
/// let hasher = KeyHasher::xxh3(7);
/// // Room for 2,000 keys at 0.1 %. `with_fpr` does the sum, whose result may be odd.
/// let mut filter = SplitBlockFilter512::with_blocks(64, hasher)?;
/// filter.insert(b"a script")?;
/// assert!(filter.contains(b"a script"));
///
/// // A block's worth of questions at once.
/// let hashes: Vec<u64> = (0..4000_u64).map(|key| hasher.hash(&key.to_le_bytes())).collect();
/// let mut may_contain = vec![false; hashes.len()];
/// filter.contains_batch(&hashes, &mut may_contain);
/// assert!(may_contain.iter().filter(|hit| **hit).count() < 10);
///
/// // Far fewer keys came than were planned for.
/// let folds = filter.fold_to_fpr(0.001)?;
/// assert!(folds > 0 && filter.contains(b"a script"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitBlockFilter<B, S = Words> {
    /// A whole number of blocks, and at least one.
    words: S,
    len: u64,
    hasher: KeyHasher,
    shape: core::marker::PhantomData<B>,
}

/// Blocks of 512 bits: a cache line, eight words of 64 bits.
pub type SplitBlockFilter512<S = Words> = SplitBlockFilter<Bits512, S>;
/// Blocks of 256 bits: eight words of 32 bits, bit for bit as Parquet's filters are.
pub type SplitBlockFilter256<S = Words> = SplitBlockFilter<Bits256, S>;
/// A [`SplitBlockFilter512`] in bytes of someone else.
pub type SplitBlockFilter512Ref<'a> = SplitBlockFilter512<&'a [u64]>;
/// A [`SplitBlockFilter256`] in bytes of someone else.
pub type SplitBlockFilter256Ref<'a> = SplitBlockFilter256<&'a [u64]>;

impl<B: BlockShape> SplitBlockFilter<B> {
    /// An empty filter of so many blocks.
    ///
    /// # Errors
    /// For no blocks, for more than 2²⁸, or if there is no memory.
    pub fn with_blocks(num_blocks: u64, hasher: KeyHasher) -> Result<Self, SizingError> {
        SizingError::unless_within("a number of blocks", num_blocks, MAX_BLOCKS)?;
        Ok(Self::from_words(Words::zeroed(num_blocks * words_of_block::<B>())?, 0, hasher))
    }

    /// The smallest filter for `capacity` keys whose mean rate is `fpr` at most. It takes more keys
    /// as well, at a higher rate.
    ///
    /// # Errors
    /// If the rate is none, or below 10⁻⁷, where keys that share half of a hash begin to count;
    /// or as [`with_blocks`](Self::with_blocks).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        if fpr > 0.0 && fpr < LEAST_FPR {
            let layout = B::KIND.name();
            return Err(SizingError::OutOfReach { fpr, layout, best: LEAST_FPR });
        }
        let num_blocks = sizing::split_block::num_blocks(capacity, fpr, B::WORD_BITS)?;
        Self::with_blocks(num_blocks, hasher)
    }

    /// The filter of bits whose keys nobody counted.
    #[cfg(feature = "parquet")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(crate) fn of_bits(words: Words, hasher: KeyHasher) -> Self {
        let mut filter = Self::from_words(words, 0, hasher);
        let least = filter.ones().div_ceil(8);
        // Never below the least: `-ln(1 - x)` is `x` at least.
        filter.len = filter.estimated_len().map_or(least, |len| least.max(libm::round(len) as u64));
        filter
    }

    /// As [`insert_batch`](Insert::insert_batch), on a backend of choice.
    pub fn insert_batch_on(&mut self, backend: Backend, hashes: &[u64]) {
        backend.run(Fill::<B> { blocks: B::blocks_mut(self.words.as_mut()), hashes });
        self.len = self.len.saturating_add(hashes.len() as u64);
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> SplitBlockFilter<B, S> {
    fn from_words(words: S, len: u64, hasher: KeyHasher) -> Self {
        Self { words, len, hasher, shape: core::marker::PhantomData }
    }

    fn blocks(&self) -> &[B::Block] {
        B::blocks(self.words.as_ref())
    }

    /// The blocks, one behind the other.
    #[cfg(feature = "parquet")]
    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_ref()
    }

    /// How many blocks there are.
    pub fn num_blocks(&self) -> u64 {
        self.blocks().len() as u64
    }

    /// Asks for the one line of memory that [`contains_hash`](Filter::contains_hash) will read. For watch
    /// sets.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let blocks = B::blocks(self.words.as_ref());
        chainsieve_lanes::simd::prefetch(&blocks[place(hash, blocks.len())]);
    }

    /// As [`contains_batch`](Filter::contains_batch), on a backend of choice.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn contains_batch_on(&self, backend: Backend, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        backend.run(Contains::<B> { blocks: self.blocks(), hashes, answers: may_contain });
    }

    fn ones(&self) -> u64 {
        count_ones(self.words.as_ref())
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> Filter for SplitBlockFilter<B, S> {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        let blocks = B::blocks(self.words.as_ref());
        B::may_contain(&blocks[place(hash, blocks.len())], low(hash))
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        self.contains_batch_on(Backend::best(), hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    fn fill(&self) -> f64 {
        classic::share(self.ones(), self.num_bits())
    }

    /// From the bits as they are: the mean over blocks of the product of the fills of the eight
    /// words, and what strangers add whose low half of the hash is a key's.
    fn expected_fpr(&self) -> f64 {
        fpr::<B>(self.blocks().iter().copied(), self.num_blocks(), self.len)
    }

    /// By the share of bits that are not set: it is `(1 - 1/m)^n` after `n` keys, each of which sets
    /// in each row of words one bit of `m`.
    fn estimated_len(&self) -> Option<f64> {
        distinct(self.fill(), 1.0 / float(self.num_blocks() * u64::from(B::WORD_BITS)))
    }
}

impl<B: BlockShape> Insert for SplitBlockFilter<B> {
    #[inline]
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let blocks = B::blocks_mut(self.words.as_mut());
        let place = place(hash, blocks.len());
        self.len = self.len.saturating_add(1);
        Ok(B::insert(&mut blocks[place], low(hash)))
    }

    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        self.insert_batch_on(Backend::best(), hashes);
        Ok(())
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl<B: BlockShape> Merge for SplitBlockFilter<B> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("the number of blocks", self.num_blocks(), other.num_blocks())?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        unite(self.words.as_mut(), other.words.as_ref());
        self.len = self.len.saturating_add(other.len);
        Ok(())
    }
}

/// The rate of so many blocks, filled by `len` keys.
fn fpr<B: BlockShape>(blocks: impl Iterator<Item = B::Block>, num_blocks: u64, len: u64) -> f64 {
    let hits: u128 = blocks.map(|block| u128::from(B::hits(&block))).sum();
    let choices = libm::pow(f64::from(B::WORD_BITS), 8.0);
    let same_low_half = float(len) / libm::exp2(32.0);
    #[expect(clippy::cast_precision_loss, reason = "nobody needs the last digit")]
    let hits = hits as f64;
    ((hits / choices + same_low_half) / float(num_blocks)).min(1.0)
}

/// Words of 64 bits that a block takes.
const fn words_of_block<B: BlockShape>() -> u64 {
    (size_of::<B::Block>() / 8) as u64
}
