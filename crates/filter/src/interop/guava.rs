//! The byte format of Guava's `BloomFilter.writeTo`, and filters with the bit positions of Guava's
//! strategies.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | strategy: 0 for `MURMUR128_MITZ_32`, 1 for `MURMUR128_MITZ_64` |
//! | 1 | number of hash functions, 1 to 255 |
//! | 2–5 | number of words, big-endian |
//! | 6– | 64-bit words, big-endian; bit `i` of the filter is bit `i mod 64` of word `i / 64` |
//!
//! The format records neither the number of keys nor how keys become bytes (Guava's "funnel"). Keys
//! of this module are bytes, as with `Funnels.byteArrayFunnel()`. `Funnels.stringFunnel(UTF_8)`
//! hashes the UTF-8 bytes of a string, and `Funnels.longFunnel()` the eight little-endian bytes of
//! a `long`.
//!
//! Both strategies use double hashing of `MurmurHash3_x64_128` and have the defects of double
//! hashing. Small filters have a higher false-positive rate than the formula promises.
//! `MURMUR128_MITZ_32` computes positions with 31 bits, so it uses only the first 2³¹ bits of a
//! larger filter. Use this module only to exchange filters with programs that use Guava, and
//! [`BloomFilter`](crate::bloom::BloomFilter) for everything else.

use alloc::vec::Vec;

use chainsieve_lanes::names;

use crate::encoding::{DecodeError, refuse_if};
use crate::hashing::{HashFunction, KeyHash as _, KeyHasher};
use crate::membership::{Filter, Full, Insert, Merge, MergeError};
use crate::sizing::{BuildError, checked, classic};
use crate::words::{Words, count_ones, unite};

/// Number of bytes before the words.
const HEADER_BYTES: usize = 6;
/// Greatest number of words: Guava stores the number of words in a signed 32-bit integer.
const MAX_WORDS: u64 = i32::MAX as u64;
/// The hasher of both strategies.
const HASHER: KeyHasher = KeyHasher::new(HashFunction::Murmur3 { seed: 0 });

/// The rule that computes the bit positions of a key from its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Double hashing in 32 bits, used by Guava 11 and 12.
    Murmur128Mitz32,
    /// Double hashing in 64 bits, used by later versions of Guava.
    Murmur128Mitz64,
}

names! {
    Strategy, "a strategy of Guava":
    Murmur128Mitz32 = "MURMUR128_MITZ_32", Murmur128Mitz64 = "MURMUR128_MITZ_64",
}

/// A Bloom filter with the bit positions of Guava.
///
/// # Examples
/// ```
/// use chainsieve_filter::interop::guava::GuavaBloomFilter;
/// use chainsieve_filter::{Filter, Insert};
///
/// let mut filter = GuavaBloomFilter::with_fpr(1_000, 0.01)?;
/// filter.insert(b"key")?;
/// let bytes = filter.write_to();
/// assert!(GuavaBloomFilter::read_from(&bytes)?.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuavaBloomFilter {
    strategy: Strategy,
    hash_funcs: u8,
    words: Words,
    /// Number of keys inserted since the filter was created or read. The format does not record the
    /// number of keys.
    len: u64,
}

impl GuavaBloomFilter {
    /// Creates a filter for `capacity` keys with the size that Guava (up to version 32) chooses,
    /// filled with the strategy `MURMUR128_MITZ_64`.
    ///
    /// From Guava 33 on, the number of hash functions depends on the rate alone. The two rules
    /// differ only for small numbers of keys.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, or if the filter would need 2³¹ words or
    /// more, or more than 255 hash functions.
    pub fn with_fpr(capacity: u64, fpr: f64) -> Result<Self, BuildError> {
        use core::f64::consts::LN_2;
        checked(fpr)?;
        let keys = crate::sizing::float(capacity.max(1));
        // Java's `(long)` cast truncates the number of bits, and `Math.round` rounds the number of
        // hash functions half up. The following code computes both in the same way.
        let bits = libm::floor(-keys * libm::log(fpr) / (LN_2 * LN_2)).max(1.0);
        let hash_funcs = libm::floor(bits / keys * LN_2 + 0.5).max(1.0);
        let num_words = libm::ceil(bits / 64.0);
        let too_large = |what, value, max| BuildError::Parameter { what, value, min: 1, max };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let (num_words, hash_funcs) = (num_words as u64, hash_funcs as u64);
        if num_words > MAX_WORDS {
            return Err(too_large("a number of words", num_words, MAX_WORDS));
        }
        let Ok(few) = u8::try_from(hash_funcs) else {
            return Err(too_large("a number of hash functions", hash_funcs, u8::MAX.into()));
        };
        let (strategy, words) = (Strategy::Murmur128Mitz64, Words::zeroed(num_words)?);
        Ok(Self { strategy, hash_funcs: few, words, len: 0 })
    }

    /// Decodes a filter that Guava's `writeTo` wrote.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not exactly one filter. An unknown strategy is reported as
    /// [`DecodeError::Kind`].
    pub fn read_from(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (found, needed) = (bytes.len() as u64, HEADER_BYTES as u64);
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::Truncated { found, needed });
        };
        let [strategy, hash_funcs, words @ ..] = *header;
        let strategy = match strategy {
            0 => Strategy::Murmur128Mitz32,
            1 => Strategy::Murmur128Mitz64,
            other => return Err(DecodeError::Kind(other)),
        };
        refuse_if(hash_funcs == 0, "the number of hash functions", 0, "from 1 to 255")?;
        let num_words = u64::from(u32::from_be_bytes(words));
        let is_wrong = num_words == 0 || num_words > MAX_WORDS;
        refuse_if(is_wrong, "the number of words", num_words, "from 1 to 2^31 - 1")?;
        DecodeError::unless_long(found, needed + num_words * 8)?;
        let mut words = Words::zeroed(num_words)?;
        for (word, bytes) in words.as_mut().iter_mut().zip(body.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        Ok(Self { strategy, hash_funcs, words, len: 0 })
    }

    /// Encodes the filter as Guava's `writeTo` does.
    pub fn write_to(&self) -> Vec<u8> {
        let words = self.words.as_ref();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + words.len() * 8);
        let strategy = match self.strategy {
            Strategy::Murmur128Mitz32 => 0,
            Strategy::Murmur128Mitz64 => 1,
        };
        bytes.extend([strategy, self.hash_funcs]);
        // The constructors ensure that the number of words is below 2^31.
        bytes.extend(u32::try_from(words.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes
    }

    /// Returns the rule that computes bit positions from a hash.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns the number of hash functions: the number of bits that a key sets if its positions
    /// are distinct.
    pub fn hash_funcs(&self) -> u8 {
        self.hash_funcs
    }

    fn places(&self, hash: u128) -> impl Iterator<Item = u64> + use<> {
        let [first, second] = hash.to_words();
        let (strategy, num_bits) = (self.strategy, Filter::num_bits(self));
        let mut combined = first;
        (1..=u32::from(self.hash_funcs)).map(move |i| match strategy {
            Strategy::Murmur128Mitz32 => {
                let [low, high] = halves(first);
                // Java computes with signed integers and inverts all bits of a negative sum.
                let sum = low.wrapping_add(i.wrapping_mul(high));
                let sum = if sum >> 31 == 1 { !sum } else { sum };
                u64::from(sum) % num_bits
            }
            Strategy::Murmur128Mitz64 => {
                let place = (combined & i64::MAX as u64) % num_bits;
                combined = combined.wrapping_add(second);
                place
            }
        })
    }

    fn num_set(&self) -> u64 {
        count_ones(self.words.as_ref())
    }
}

/// Splits a word into its low 32 bits and its high 32 bits.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

impl Filter for GuavaBloomFilter {
    /// The 128 bits of `MurmurHash3_x64_128`. The first half of the hash is in the low bits.
    type Hash = u128;

    fn hasher(&self) -> &KeyHasher {
        &HASHER
    }

    fn contains_hash(&self, hash: u128) -> bool {
        let words = self.words.as_ref();
        self.places(hash).all(|place| {
            let word = words.get((place / 64) as usize).copied().unwrap_or_default();
            word >> (place % 64) & 1 == 1
        })
    }

    /// Returns the number of keys inserted since the filter was created or read. Keys of a decoded
    /// filter are not counted, because the format does not record their number.
    fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if no bit is set. The result is correct for decoded filters too, unlike that
    /// of [`len`](Filter::len).
    fn is_empty(&self) -> bool {
        self.words.as_ref().iter().all(|word| *word == 0)
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    fn fill(&self) -> f64 {
        classic::share(self.num_set(), Filter::num_bits(self))
    }

    /// Computes Guava's `expectedFpp`, which assumes random positions.
    fn expected_fpr(&self) -> f64 {
        libm::pow(self.fill(), f64::from(self.hash_funcs))
    }

    /// Computes Guava's `approximateElementCount`, without rounding.
    fn estimated_len(&self) -> Option<f64> {
        let bits = Filter::num_bits(self);
        Some(classic::estimated_len(self.num_set(), bits, self.hash_funcs.into()))
    }
}

impl Insert for GuavaBloomFilter {
    /// Always succeeds. Returns `true` if a bit changed, as Guava's `put` does.
    fn insert_hash(&mut self, hash: u128) -> Result<bool, Full> {
        let places = self.places(hash);
        let mut is_new = false;
        for place in places {
            if let Some(word) = self.words.as_mut().get_mut((place / 64) as usize) {
                is_new |= *word >> (place % 64) & 1 == 0;
                *word |= 1 << (place % 64);
            }
        }
        self.len = self.len.saturating_add(1);
        Ok(is_new)
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl Merge for GuavaBloomFilter {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("strategy", self.strategy as u64, other.strategy as u64)?;
        let (ours, theirs) = (Filter::num_bits(self), Filter::num_bits(other));
        MergeError::unless_equal("number of bits", ours, theirs)?;
        let (few, many) = (self.hash_funcs.into(), other.hash_funcs.into());
        MergeError::unless_equal("number of hash functions", few, many)?;
        unite(self.words.as_mut(), other.words.as_ref());
        self.len = self.len.saturating_add(other.len);
        Ok(())
    }
}
