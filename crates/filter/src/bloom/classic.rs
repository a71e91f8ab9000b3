//! The classic Bloom filter.

use super::filter::Bloom;
use crate::hashing::{KeyHash, KeyHasher};
use crate::sizing::{SizingError, check_hash, classic, in_words};
use crate::words::Words;

/// A classic Bloom filter: `k` bits of `m` for a key.
///
/// Bloom 1970. At the best `k`, which is log2(1/p), it takes 1.44·log2(1/p) bits for a key: 9.6
/// at a rate of 1 %, 14.4 at 0.1 %, 19.2 at 0.01 %. A probe of a stranger reads two bits on
/// average, of a key all `k`, each another line of the cache: in a filter larger than the cache
/// that is what it costs. `false` is certain; `true` is wrong at the rate
/// [`expected_fpr`](crate::Filter::expected_fpr) says.
///
/// **When to use it.** Any size and any rate, to the bit; keys are added for ever, with a rate
/// that rises gently past the capacity; filters of equal shape are united, and folded to half
/// their size and half again. For rates below 0.01 % that must grow, and for small filters, it is
/// the simplest that works.
///
/// **When not, and what beats it.** Split-block filters are several times as fast down to rates of
/// 0.1 %, for 5 to 10 % more memory. Cuckoo filters take keys out again, and are smaller below
/// 0.2 %. Of sets that don't change, a binary fuse or a ribbon filter takes 1.13 or 1.05 times
/// log2(1/p) bits.
///
/// `H` is [`u64`] or [`u128`]: with `n` keys, `n·2⁻⁶⁴` of all strangers share 64 bits of hash with
/// a key, so rates near that take 128. Constructors refuse what would not keep its rate.
///
/// A union is exactly the filter of both sets. An intersection is not what an AND of two filters
/// gives, which has a higher rate than a filter of the common keys; there is none here.
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

/// A [`BloomFilter`] in bytes that lie elsewhere.
pub type BloomFilterRef<'a, H = u64> = BloomFilter<H, &'a [u64]>;

impl<H: KeyHash> BloomFilter<H> {
    /// The smallest filter that has the rate `fpr` with `capacity` distinct keys, filled up to
    /// whole words.
    ///
    /// # Errors
    /// If there is none; [`SizingError::HashTooShort`] if it takes hashes of 128 bits, or a hash
    /// function that has them, or of more than 128.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_bits(size.num_bits, size.hash_funcs, hasher)
    }

    /// A filter of so many bits and hash functions.
    ///
    /// # Errors
    /// If there is none: no bits, no hash functions, or more than
    /// [`MAX_HASH_FUNCS`](crate::sizing::MAX_HASH_FUNCS), or no memory.
    pub fn with_bits(
        num_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        Self::empty(num_bits, hash_funcs, hasher)
    }
}
