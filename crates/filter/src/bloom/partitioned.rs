//! The partitioned Bloom filter.

use super::filter::Bloom;
use crate::hashing::{KeyHash, KeyHasher};
use crate::sizing::{SizingError, check_hash, partitioned};
use crate::words::Words;

/// A partitioned Bloom filter: `k` slices, and every key sets one bit in each slice.
///
/// Memory, cost and the meaning of `true` are those of [`BloomFilter`](super::BloomFilter). At the
/// same number of bits the rate is slightly higher, because the positions of a key never coincide.
/// For thousands of bits, the rate is higher by 0.1 % of its value; for millions, no difference is
/// measurable. A key sets exactly `k` bits.
///
/// **When to use it.** If another program expects slices, or if the rate must be known exactly:
/// slices are independent of each other, so the formula of the rate is exact at any size.
///
/// **When not to use it, and what is better.** [`BloomFilter`](super::BloomFilter) can have any
/// number of bits and has a lower rate than a partitioned filter of the same size. Every filter
/// that is better than a classic filter is also better than a partitioned filter.
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

/// A [`PartitionedBloomFilter`] that queries encoded bytes in place, without owning them.
pub type PartitionedBloomFilterRef<'a, H = u64> = PartitionedBloomFilter<H, &'a [u64]>;

impl<H: KeyHash> PartitionedBloomFilter<H> {
    /// Creates the smallest filter with a rate of at most `fpr` for `capacity` distinct keys.
    ///
    /// # Errors
    /// Returns the same errors as [`BloomFilter::with_fpr`](super::BloomFilter::with_fpr).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = partitioned::size(capacity, fpr)?;
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_slices(size.slice_bits, size.hash_funcs, hasher)
    }

    /// Creates a filter with `hash_funcs` slices of `slice_bits` bits each.
    ///
    /// # Errors
    /// Returns the same errors as [`BloomFilter::with_bits`](super::BloomFilter::with_bits).
    pub fn with_slices(
        slice_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        Self::empty(slice_bits, hash_funcs, hasher)
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> PartitionedBloomFilter<H, S> {
    /// Returns the number of bits of a slice.
    pub fn slice_bits(&self) -> u64 {
        self.places.range
    }
}
