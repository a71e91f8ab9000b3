//! Split-block Bloom filters: each key has one block, and sets one bit in each of the block's eight
//! words.
//!
//! The high half of a key's hash selects the block, and the low half selects the eight bits. A
//! query reads one cache line, whether or not the key is in the set, and tests the eight bits at
//! once without a branch. So a query takes a tenth to a third of the time of a query in a classic
//! Bloom filter. The filter needs a few more bits per key:
//!
//! | bits per key at a rate of | 1 % | 0.1 % | 0.01 % | 0.001 % |
//! |---|---|---|---|---|
//! | [`SplitBlockFilter512`] | 10.1 | 15.7 | 23.6 | 35.0 |
//! | [`SplitBlockFilter256`] | 10.5 | 16.9 | 26.3 | 41.0 |
//! | classic Bloom | 9.6 | 14.4 | 19.2 | 24.0 |
//! | cuckoo, with its best width | 12.8 | 17.0 | 19.5 | |
//! | ribbon | 6.9 | 10.3 | 13.7 | 17.1 |
//!
//! **When to use it.** As a first test before something slower, where a rate of 0.1 % or above is
//! sufficient and keys are never removed. Insertion is faster than in every other filter of this
//! crate. Filters can be merged by OR, and a filter that turns out too large can be folded. Choose
//! blocks of 512 bits. Blocks of 256 bits are for Parquet.
//!
//! **When not to use it.** For rates below about 0.1 %: some blocks get more keys than others and
//! determine the rate, so the filter needs more and more bits. At rates this low, a cuckoo filter
//! is smaller than a split-block filter, and supports removal. For sets that never change, a ribbon
//! filter is smaller at every rate, if a query may take ten times as long. For a few thousand keys,
//! an exact table is as fast.
//!
//! `true` means that eight bits are set, by the key or by other keys of its block. `false` is
//! certain. The rate is the mean over all blocks, and fuller blocks have a higher rate. Therefore
//! the classic formula gives too few bits ([`super::sizing::blocked`]). The rate is at least
//! `j·2⁻³²`, where `j` is the number of keys in a block, because keys of a block with equal low
//! halves of the hash have equal bits.
//!
//! The hash must be uniform in all of its bits. A caller that divides keys among several filters by
//! bits of the same hash must ensure that the high half still takes all values within each filter.
//!
//! Sources: Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters" (2007);
//! Apple: "Split Block Bloom Filters" (arXiv 2101.01719); Parquet's `BloomFilter.md`.

mod kernels;

use alloc::vec::Vec;
use core::fmt;

use chainsieve_lanes::simd::Backend;

pub use kernels::{Bits256, Bits512};
use kernels::{Contains, Fill, Layout, low, place};

use super::encoding::{
    DecodeError, EncodeError, Header, Opened, Portable, parameter, refuse_nonzero, within,
};
use super::hashing::KeyHasher;
use super::membership::{Filter, Fold, Full, Insert, Merge, MergeError};
use super::sizing::{BuildError, blocked, classic, distinct, float};
use super::words::{NoMemory, Words, count_ones, unite};

/// Greatest number of blocks. With this limit, each block is selected by at least 16 of the 2³²
/// values of the hash's high half. The numbers of values that select each block differ by at most
/// one, so no block gets many more keys than others.
const MAX_BLOCKS: u64 = 1 << 28;
/// Lowest rate that `with_fpr` accepts. At this rate a block has about ten keys, so equal low
/// halves of hashes (ten times 2⁻³²) add a fiftieth to the rate. At rates below 10⁻⁷, equal low
/// halves would add more than a fiftieth.
const LEAST_FPR: f64 = 1e-7;

/// The shape of a block: [`Bits512`] or [`Bits256`].
pub trait BlockShape: Layout + fmt::Debug + Clone + Copy + PartialEq + Eq {}

impl BlockShape for Bits512 {}
impl BlockShape for Bits256 {}

/// A split-block Bloom filter with blocks of shape `B`. `S` is the type of its memory.
///
/// # Examples
/// ```
/// use chainsieve_filter::split_block::SplitBlockFilter512;
/// use chainsieve_filter::{Filter, Fold, Insert, KeyHasher};
///
/// let hasher = KeyHasher::xxh3(7);
/// // Room for 2,000 keys at 0.1 %. `with_fpr` computes the number of blocks, which may be odd.
/// let mut filter = SplitBlockFilter512::with_blocks(64, hasher)?;
/// filter.insert(b"a script")?;
/// assert!(filter.contains(b"a script"));
///
/// // Query many keys in one batch.
/// let hashes: Vec<u64> = (0..4000_u64).map(|key| hasher.hash(&key.to_le_bytes())).collect();
/// let mut may_contain = vec![false; hashes.len()];
/// filter.contains_batch(&hashes, &mut may_contain);
/// assert!(may_contain.iter().filter(|hit| **hit).count() < 10);
///
/// // Fewer keys were inserted than planned, so the filter can be folded.
/// let folds = filter.fold_to_fpr(0.001)?;
/// assert!(folds > 0 && filter.contains(b"a script"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitBlockFilter<B, S = Words> {
    /// A whole number of blocks, at least one.
    words: S,
    len: u64,
    hasher: KeyHasher,
    shape: core::marker::PhantomData<B>,
}

/// Split-block Bloom filter with blocks of 512 bits: a cache line, eight words of 64 bits.
pub type SplitBlockFilter512<S = Words> = SplitBlockFilter<Bits512, S>;
/// Split-block Bloom filter with blocks of 256 bits: eight words of 32 bits, bit for bit as in
/// Parquet's filters.
pub type SplitBlockFilter256<S = Words> = SplitBlockFilter<Bits256, S>;
/// A [`SplitBlockFilter512`] that queries encoded bytes in place, without owning them.
pub type SplitBlockFilter512Ref<'a> = SplitBlockFilter512<&'a [u64]>;
/// A [`SplitBlockFilter256`] that queries encoded bytes in place, without owning them.
pub type SplitBlockFilter256Ref<'a> = SplitBlockFilter256<&'a [u64]>;

impl<B: BlockShape> SplitBlockFilter<B> {
    /// Creates an empty filter with the given number of blocks.
    ///
    /// # Errors
    /// Returns an error if `num_blocks` is not from 1 to 2²⁸, or if there is no memory for the
    /// filter.
    pub fn with_blocks(num_blocks: u64, hasher: KeyHasher) -> Result<Self, BuildError> {
        BuildError::unless_within("a number of blocks", num_blocks, MAX_BLOCKS)?;
        Ok(Self::from_words(Words::zeroed(num_blocks * words_of_block::<B>())?, 0, hasher))
    }

    /// Creates the smallest filter for `capacity` keys with a mean rate of at most `fpr`. More keys
    /// than `capacity` can be inserted, but they raise the rate.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, or is below 10⁻⁷, where keys with equal
    /// low halves of the hash would add too much to the rate. Also returns the errors of
    /// [`with_blocks`](Self::with_blocks).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        if fpr > 0.0 && fpr < LEAST_FPR {
            let layout = B::KIND.name();
            return Err(BuildError::OutOfReach { fpr, layout, best: LEAST_FPR });
        }
        let num_blocks = blocked::split_blocks(capacity, fpr, B::WORD_BITS)?;
        Self::with_blocks(num_blocks, hasher)
    }

    /// Creates a filter from bits whose number of keys is unknown. The number is estimated from the
    /// bits.
    #[cfg(feature = "parquet")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(crate) fn of_bits(words: Words, hasher: KeyHasher) -> Self {
        let mut filter = Self::from_words(words, 0, hasher);
        let least = filter.ones().div_ceil(8);
        // Rounding must not go below the least number of keys that can have set the bits. The
        // estimate itself is not below this number, because `-ln(1 - x)` is at least `x`.
        filter.len = filter.estimated_len().map_or(least, |len| least.max(libm::round(len) as u64));
        filter
    }

    /// Inserts the keys with these hashes, as [`insert_batch`](Insert::insert_batch) does, on the
    /// given backend.
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

    /// Returns the words of all blocks, in order.
    #[cfg(feature = "parquet")]
    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_ref()
    }

    /// Returns the number of blocks.
    pub fn num_blocks(&self) -> u64 {
        self.blocks().len() as u64
    }

    /// Prefetches the cache line that [`contains_hash`](Filter::contains_hash) will read. Watch
    /// sets use this method.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let blocks = B::blocks(self.words.as_ref());
        chainsieve_lanes::simd::prefetch(&blocks[place(hash, blocks.len())]);
    }

    /// Queries many hashes, as [`contains_batch`](Filter::contains_batch) does, on the given
    /// backend.
    ///
    /// # Panics
    /// Panics if the slices differ in length.
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

    /// Computes the rate of this very filter from its bits: the mean over all blocks of the product
    /// of the fills of the eight words. Adds the probability that the low half of a hash equals
    /// that of a key in the block.
    fn expected_fpr(&self) -> f64 {
        fpr::<B>(self.blocks().iter().copied(), self.num_blocks(), self.len)
    }

    /// Estimates the number of distinct keys from the fraction of bits that are not set. After `n`
    /// keys, the expected fraction of bits that are not set is `(1 - 1/m)^n`: if the words of all
    /// blocks are stacked in eight rows of `m` bits, each key sets one bit in each row.
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

/// Returns the rate of a filter with these blocks, filled by `len` keys.
fn fpr<B: BlockShape>(blocks: impl Iterator<Item = B::Block>, num_blocks: u64, len: u64) -> f64 {
    let hits: u128 = blocks.map(|block| u128::from(B::hits(&block))).sum();
    let choices = libm::pow(f64::from(B::WORD_BITS), 8.0);
    let same_low_half = float(len) / libm::exp2(32.0);
    #[expect(clippy::cast_precision_loss, reason = "nobody needs the last digit")]
    let hits = hits as f64;
    ((hits / choices + same_low_half) / float(num_blocks)).min(1.0)
}

/// Returns the number of 64-bit words in a block.
const fn words_of_block<B: BlockShape>() -> u64 {
    (size_of::<B::Block>() / 8) as u64
}

/// A folded filter has the same bits as a filter of the smaller size into which the same keys were
/// inserted. The block of a key is its hash scaled to the number of blocks. With half the number of
/// blocks, the index is therefore halved, and neighbouring blocks are united. (Filters whose index
/// is a remainder must unite the lower half of the blocks with the upper half instead. Using the
/// wrong rule loses keys.)
impl<B: BlockShape> Fold for SplitBlockFilter<B> {
    /// Computes the rate after a fold. Returns `None` if the number of blocks is odd.
    fn fpr_folded(&self) -> Option<f64> {
        let num_blocks = self.num_blocks();
        let halves = self.blocks().as_chunks::<2>().0.iter().map(union::<B>);
        num_blocks.is_multiple_of(2).then(|| fpr::<B>(halves, num_blocks / 2, self.len()))
    }

    /// Folds the filter. All keys stay in the filter, and the rate rises. Returns `None` if the
    /// number of blocks is odd.
    fn folded(&self) -> Result<Option<Self>, NoMemory> {
        if !self.num_blocks().is_multiple_of(2) {
            return Ok(None);
        }
        let mut words = Words::zeroed(self.words.as_ref().len() as u64 / 2)?;
        let pairs = self.blocks().as_chunks::<2>().0;
        for (folded, pair) in B::blocks_mut(words.as_mut()).iter_mut().zip(pairs) {
            *folded = union::<B>(pair);
        }
        Ok(Some(Self::from_words(words, self.len(), self.hasher)))
    }
}

/// Returns the union of the bits of two blocks.
fn union<B: BlockShape>([first, second]: &[B::Block; 2]) -> B::Block {
    let mut union = *first;
    unite(union.as_mut(), second.as_ref());
    union
}

/// The first parameter in the encoded header is the number of blocks, and the other two are zero.
impl<B: BlockShape> Portable for SplitBlockFilter<B> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (hasher, len) = (self.hasher, self.len);
        let params = [self.num_blocks(), 0, 0];
        Header { kind: B::KIND, hasher, len, params }.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open::<B>(bytes)?;
        let Header { len, hasher, .. } = opened.header;
        Self::from_words(opened.words()?, len, hasher).checked()
    }
}

impl<'a, B: BlockShape> SplitBlockFilter<B, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Portable::decode). Also returns
    /// [`DecodeError::NotInPlace`] if the bytes can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<B>(bytes)?;
        let Header { len, hasher, .. } = opened.header;
        Self::from_words(opened.words_in_place()?, len, hasher).checked()
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> SplitBlockFilter<B, S> {
    /// Returns an error if `len` keys can't have set the bits: if more than 8 bits per key are set,
    /// or if there are keys but no bit is set.
    fn checked(self) -> Result<Self, DecodeError> {
        let ones = self.ones();
        if ones > self.len.saturating_mul(8) || ones == 0 && self.len > 0 {
            let limit = "a number that can have set these bits";
            return Err(parameter("the number of keys", self.len, limit));
        }
        Ok(self)
    }
}

fn open<B: BlockShape>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, B::KIND, |header| {
        let [num_blocks, unused @ ..] = header.params;
        refuse_nonzero(unused != [0; 2], "bytes 48 to 63")?;
        within("the number of blocks", num_blocks, 1..=MAX_BLOCKS, "from 1 to 2^28")?;
        Ok(num_blocks * words_of_block::<B>())
    })
}
