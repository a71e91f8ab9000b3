//! The partitioned Bloom filter.

use super::filter::Bloom;
use crate::hashing::{KeyHash, KeyHasher};
use crate::sizing::{SizingError, check_hash, partitioned};
use crate::words::Words;

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
/// use chainsieve_filter::textbook::PartitionedBloomFilter;
/// use chainsieve_filter::{Filter, Insert, KeyHasher};
///
/// let mut filter = <PartitionedBloomFilter>::with_fpr(1_000, 0.001, KeyHasher::random())?;
/// assert!(filter.insert(b"key")?);
/// assert!(filter.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type PartitionedBloomFilter<H = u64, S = Words> = Bloom<true, H, S>;

/// A [`PartitionedBloomFilter`] in bytes that lie elsewhere.
pub type PartitionedBloomFilterRef<'a, H = u64> = PartitionedBloomFilter<H, &'a [u64]>;

impl<H: KeyHash> PartitionedBloomFilter<H> {
    /// The smallest filter that has the rate `fpr` with `capacity` distinct keys.
    ///
    /// # Errors
    /// As [`BloomFilter::with_fpr`](super::BloomFilter::with_fpr).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = partitioned::size(capacity, fpr)?;
        check_hash(capacity, fpr, H::BITS)?;
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
        Self::empty(slice_bits, hash_funcs, hasher)
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> PartitionedBloomFilter<H, S> {
    /// Bits of a slice.
    pub fn slice_bits(&self) -> u64 {
        self.places.range
    }
}
