//! The classic Bloom filter.

use super::filter::Bloom;
use crate::hashing::{KeyHash, KeyHasher};
use crate::sizing::{SizingError, check_hash, classic, in_words};
use crate::words::Words;

/// A classic Bloom filter: every key sets `k` of `m` bits.
///
/// Source: Bloom 1970. With the best `k`, log2(1/p), the filter takes 1.44·log2(1/p) bits per key:
/// 9.6 bits at a rate of 1 %, 14.4 at 0.1 %, and 19.2 at 0.01 %. `false` is certain. `true` is
/// wrong at the rate that [`expected_fpr`](crate::Filter::expected_fpr) returns.
///
/// A query for a key that is not in the set reads two bits on average. A query for a key in the set
/// reads all `k` bits, each in a different cache line. In a filter larger than the cache, these
/// cache misses are the main cost.
///
/// **When to use it.** The filter can have any size and any rate. Keys can be added without limit,
/// and the rate rises slowly beyond the capacity. Filters of equal shape can be merged, and can be
/// folded repeatedly to half their size. The classic filter is the simplest solution for small
/// filters, and for growing filters with rates below 0.01 %.
///
/// **When not to use it, and what is better.** Split-block filters are several times as fast for
/// rates of 0.1 % and above, and need 5 to 10 % more memory. Cuckoo filters support removal, and
/// are smaller for rates below 0.2 %. For sets that don't change, a binary fuse filter takes
/// 1.13·log2(1/p) bits per key and a ribbon filter 1.05·log2(1/p).
///
/// `H` is [`u64`] or [`u128`]. If the set has `n` keys, a fraction `n·2⁻⁶⁴` of all other keys have
/// the same 64-bit hash as a key in the set. A requested rate near `n·2⁻⁶⁴` needs 128-bit hashes.
/// The constructors reject a width that would exceed the requested rate.
///
/// The union of two filters is exactly the filter of the union of both sets. There is no operation
/// for the intersection: an AND of two filters has a higher rate than a filter of the common keys.
///
/// # Examples
/// ```
/// use chainsieve_filter::bloom::BloomFilter;
/// use chainsieve_filter::{Filter, Insert, KeyHasher};
///
/// let mut filter = <BloomFilter>::with_fpr(1_000, 0.001, KeyHasher::random())?;
/// assert!(filter.insert(b"key")?);
/// assert!(filter.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type BloomFilter<H = u64, S = Words> = Bloom<false, H, S>;

/// A [`BloomFilter`] that queries encoded bytes in place, without owning them.
pub type BloomFilterRef<'a, H = u64> = BloomFilter<H, &'a [u64]>;

impl<H: KeyHash> BloomFilter<H> {
    /// Creates the smallest filter with a rate of at most `fpr` for `capacity` distinct keys,
    /// rounded up to whole 64-bit words.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, if no filter can have this size and rate,
    /// or if there is no memory for the filter. Returns [`SizingError::HashTooShort`] if the rate
    /// needs a wider hash than `H`.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_bits(size.num_bits, size.hash_funcs, hasher)
    }

    /// Creates a filter with the given number of bits and hash functions.
    ///
    /// # Errors
    /// Returns an error if the number of bits is zero, if the number of hash functions is not from
    /// 1 to [`MAX_HASH_FUNCS`](crate::sizing::MAX_HASH_FUNCS), if the hash function is narrower
    /// than `H`, or if there is no memory for the filter.
    pub fn with_bits(
        num_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        Self::empty(num_bits, hash_funcs, hasher)
    }
}
