//! The partitioned Bloom filter.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::body::{Body, check_hash, checked_places};
use crate::encoding::{DecodeError, EncodeError, Portable};
use crate::hashing::{KeyHash, KeyHasher};
use crate::kind::Kind;
use crate::membership::{Filter, Full, Insert, Merge, MergeError};
use crate::sizing::{SizingError, partitioned};
use crate::words::{NoMemory, Words};

/// A partitioned Bloom filter: `k` slices, and a bit of each for a key.
///
/// As [`BloomFilter`](super::BloomFilter) in memory, cost and what `true` means: at the same number
/// of bits its rate is a little higher, by 0.1 % of it for thousands of bits and nothing for
/// millions, because a key's positions never fall together. A key sets exactly `k` bits.
///
/// **When to use it.** Where another program expects slices, or where its rate has to be exact:
/// slices don't depend on each other, so the formula has no approximation at any size.
///
/// **When not, and what beats it.** [`BloomFilter`](super::BloomFilter) has any number of bits and
/// the lower rate; what beats that beats this.
///
/// # Examples
/// ```
/// use chainsieve_filter::{Filter, Insert, KeyHasher, PartitionedBloomFilter};
///
/// let mut filter = <PartitionedBloomFilter>::with_fpr(1_000, 0.001, KeyHasher::random())?;
/// assert!(filter.insert(b"key")?);
/// assert!(filter.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionedBloomFilter<H = u64, S = Words> {
    body: Body<true, S>,
    hash: PhantomData<H>,
}

/// A [`PartitionedBloomFilter`] in bytes that lie elsewhere.
pub type PartitionedBloomFilterRef<'a, H = u64> = PartitionedBloomFilter<H, &'a [u64]>;

impl<H: KeyHash> PartitionedBloomFilter<H> {
    /// The smallest filter that has the rate `fpr` with `capacity` distinct keys.
    ///
    /// # Errors
    /// As [`BloomFilter::with_fpr`](super::BloomFilter::with_fpr).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = partitioned::size(capacity, fpr)?;
        check_hash::<H>(capacity, fpr)?;
        Self::with_slices(size.slice_bits, size.hash_funcs, hasher)
    }

    /// A filter of so many slices, one for each hash function, of so many bits each.
    ///
    /// # Errors
    /// As [`BloomFilter::with_bits`](super::BloomFilter::with_bits).
    pub fn with_slices(
        slice_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        let places = checked_places::<H, true>(slice_bits, hash_funcs, &hasher)?;
        Ok(Self { body: Body::empty(places, hasher)?, hash: PhantomData })
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> PartitionedBloomFilter<H, S> {
    /// Slices: one for each hash function.
    pub fn hash_funcs(&self) -> u32 {
        self.body.places.hash_funcs
    }

    /// Bits of a slice.
    pub fn slice_bits(&self) -> u64 {
        self.body.places.range
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> Filter for PartitionedBloomFilter<H, S> {
    type Hash = H;

    fn hasher(&self) -> &KeyHasher {
        &self.body.hasher
    }

    #[inline(always)]
    fn contains_hash(&self, hash: H) -> bool {
        self.body.contains(hash)
    }

    fn contains_batch(&self, hashes: &[H], may_contain: &mut [bool]) {
        self.body.contains_batch(hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.body.len
    }

    fn num_bits(&self) -> u64 {
        self.body.places.num_bits()
    }

    /// Counts the bits: as long as reading all of the filter takes.
    fn fill(&self) -> f64 {
        self.body.fill()
    }

    /// By the bits that are set in each slice, so that of this very filter; as long as
    /// [`fill`](Filter::fill).
    fn expected_fpr(&self) -> f64 {
        self.body.expected_fpr::<H>()
    }

    /// By the bits that are set: infinite if all are. As long as [`fill`](Filter::fill).
    fn estimated_len(&self) -> Option<f64> {
        Some(self.body.estimated_len())
    }
}

impl<H: KeyHash> Insert for PartitionedBloomFilter<H> {
    /// Always succeeds: a filter with more keys than it was made for says "maybe" more often.
    #[inline(always)]
    fn insert_hash(&mut self, hash: H) -> Result<bool, Full> {
        Ok(self.body.insert(hash))
    }

    fn insert_batch(&mut self, hashes: &[H]) -> Result<(), Full> {
        self.body.insert_batch(hashes);
        Ok(())
    }

    fn clear(&mut self) {
        self.body.clear();
    }
}

impl<H: KeyHash> Merge for PartitionedBloomFilter<H> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.body.merge(&other.body)
    }
}

/// Parameters: bits of a slice, slices, and the width of the hash, which is 0 for 64 bits and 128
/// else. [`AnyFilter`](crate::AnyFilter) reads those of 64 bits only.
impl<H: KeyHash> Portable for PartitionedBloomFilter<H> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.body.encode::<H>(Kind::Partitioned)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { body: Body::decode::<H>(bytes, Kind::Partitioned)?, hash: PhantomData })
    }
}

impl<'a, H: KeyHash> PartitionedBloomFilterRef<'a, H> {
    /// A filter asked where its bytes are, without copying them. They have to begin at a multiple
    /// of eight in memory, as those of a mapped file do.
    ///
    /// # Errors
    /// If they are anything else, or not so placed.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self { body: Body::view::<H>(bytes, Kind::Partitioned)?, hash: PhantomData })
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> PartitionedBloomFilter<H, S> {
    /// The rate that the filter would have after a [`fold`](PartitionedBloomFilter::folded), by its bits; `None`
    /// if it can't be folded.
    pub fn fpr_folded(&self) -> Option<f64> {
        self.body.fpr_folded::<H>()
    }

    /// The same set in half the memory: bits `2i` and `2i + 1` become bit `i`. It is, bit for bit,
    /// the filter that half the size would have been built with, because a position is the high
    /// part of a product: halving the size halves the position. (Where positions are remainders,
    /// it is the upper half that is put over the lower one.) `None` if the number of bits of a slice is odd.
    ///
    /// A filter made for more keys than came has a rate far below the one asked for; folded
    /// while [`fpr_folded`](Self::fpr_folded) is still low enough, it is as small as if it had
    /// been known.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn folded(&self) -> Result<Option<PartitionedBloomFilter<H>>, NoMemory> {
        Ok(self.body.folded()?.map(|body| PartitionedBloomFilter { body, hash: PhantomData }))
    }

    /// Folded as often as the rate stays at `fpr` or below; a copy, if that is not at all.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn folded_to(&self, fpr: f64) -> Result<PartitionedBloomFilter<H>, NoMemory> {
        let Some(mut filter) = (match self.fpr_folded() {
            Some(rate) if rate <= fpr => self.folded()?,
            _ => None,
        }) else {
            let words = Words::copy_of(self.body.words.as_ref())?;
            let Body { places, hasher, len, .. } = self.body;
            return Ok(PartitionedBloomFilter {
                body: Body { words, places, hasher, len },
                hash: PhantomData,
            });
        };
        while filter.fpr_folded().is_some_and(|rate| rate <= fpr) {
            match filter.folded()? {
                Some(folded) => filter = folded,
                None => break,
            }
        }
        Ok(filter)
    }
}
