//! The bytes of Guava's `BloomFilter.writeTo`, and filters as Guava's strategies fill them.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | strategy: 0 for `MURMUR128_MITZ_32`, 1 for `MURMUR128_MITZ_64` |
//! | 1 | hash functions, 1 to 255 |
//! | 2–5 | words, big-endian |
//! | 6– | words of 64 bits, big-endian; bit `i` is bit `i mod 64` of word `i / 64` |
//!
//! The bytes don't say what a key is (the "funnel"), nor how many there are. The keys here are
//! bytes, as `Funnels.byteArrayFunnel()` has them; for a string, `Funnels.stringFunnel(UTF_8)`
//! hashes its bytes, for a `long` `Funnels.longFunnel()` its eight, little-endian.
//!
//! Both strategies are double hashing of `MurmurHash3_x64_128`, and have its defects: small filters
//! have a higher rate than the formula says, and `MURMUR128_MITZ_32` counts positions in 31 bits,
//! so that filters beyond 2³¹ bits use no more than those. They are for programs that have such
//! filters; for others take [`BloomFilter`](crate::bloom::BloomFilter).

use alloc::vec::Vec;

use crate::encoding::{DecodeError, parameter};
use crate::hashing::{HashFunction, KeyHash as _, KeyHasher};
use crate::membership::{Filter, Full, Insert, Merge, MergeError};
use crate::sizing::{SizingError, checked, classic};
use crate::words::{Words, count_ones, unite};

const HEADER_BYTES: usize = 6;
/// Guava numbers words in 31 bits.
const MAX_WORDS: u64 = i32::MAX as u64;
const HASHER: KeyHasher = KeyHasher::new(HashFunction::Murmur3 { seed: 0 });

/// How positions come from a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Of filters by Guava 11 and 12: double hashing in 32 bits.
    Murmur128Mitz32,
    /// Of filters since: double hashing in 64 bits.
    Murmur128Mitz64,
}

/// A filter as Guava has it.
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
    /// Keys inserted here; those of a file are not counted in it.
    len: u64,
}

impl GuavaBloomFilter {
    /// A filter of the size that Guava (up to 32) gives one for as many keys, to be filled by
    /// `MURMUR128_MITZ_64`. From Guava 33 on the number of hash functions follows from the rate
    /// alone; it differs for few keys only.
    ///
    /// # Errors
    /// If the rate is none, or the filter would have 2³¹ words or more, or more than 255 hash
    /// functions.
    pub fn with_fpr(capacity: u64, fpr: f64) -> Result<Self, SizingError> {
        use core::f64::consts::LN_2;
        checked(fpr)?;
        let keys = crate::sizing::float(capacity.max(1));
        // As Java computes both: cut off, and rounded half up.
        let bits = libm::floor(-keys * libm::log(fpr) / (LN_2 * LN_2)).max(1.0);
        let hash_funcs = libm::floor(bits / keys * LN_2 + 0.5).max(1.0);
        let num_words = libm::ceil(bits / 64.0);
        let too_large = |what, value, max| SizingError::Parameter { what, value, min: 1, max };
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

    /// The filter of such bytes, all of them.
    ///
    /// # Errors
    /// If they are anything else. An unknown strategy is [`DecodeError::Kind`].
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
        if hash_funcs == 0 {
            return Err(parameter("the number of hash functions", 0, "from 1 to 255"));
        }
        let num_words = u64::from(u32::from_be_bytes(words));
        if num_words == 0 || num_words > MAX_WORDS {
            return Err(parameter("the number of words", num_words, "from 1 to 2^31 - 1"));
        }
        let expected = needed + num_words * 8;
        if found < expected {
            return Err(DecodeError::Truncated { found, needed: expected });
        }
        if found > expected {
            return Err(DecodeError::TooLong { found, expected });
        }
        let mut words = Words::zeroed(num_words)?;
        for (word, bytes) in words.as_mut().iter_mut().zip(body.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        Ok(Self { strategy, hash_funcs, words, len: 0 })
    }

    /// The bytes, as Guava reads them.
    pub fn write_to(&self) -> Vec<u8> {
        let words = self.words.as_ref();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + words.len() * 8);
        let strategy = match self.strategy {
            Strategy::Murmur128Mitz32 => 0,
            Strategy::Murmur128Mitz64 => 1,
        };
        bytes.extend([strategy, self.hash_funcs]);
        // Checked where the filter was made.
        bytes.extend(u32::try_from(words.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes
    }

    /// How positions come from a hash.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Bits of a key, as far as its positions differ.
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
                // Signed in Java: its negative numbers are inverted.
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

/// The low 32 bits, and the high ones.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

impl Filter for GuavaBloomFilter {
    /// The 128 bits of `MurmurHash3_x64_128`, the first half low.
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

    /// Keys inserted since the filter was made or read: its bytes don't say how many it holds.
    fn len(&self) -> u64 {
        self.len
    }

    /// Whether no bit is set: those of a file are not counted in [`len`](Filter::len).
    fn is_empty(&self) -> bool {
        self.words.as_ref().iter().all(|word| *word == 0)
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    fn fill(&self) -> f64 {
        classic::share(self.num_set(), Filter::num_bits(self))
    }

    /// Guava's `expectedFpp`: as if positions were random.
    fn expected_fpr(&self) -> f64 {
        libm::pow(self.fill(), f64::from(self.hash_funcs))
    }

    /// Guava's `approximateElementCount`, not rounded.
    fn estimated_len(&self) -> Option<f64> {
        let bits = Filter::num_bits(self);
        Some(classic::estimated_len(self.num_set(), bits, self.hash_funcs.into()))
    }
}

impl Insert for GuavaBloomFilter {
    /// Always succeeds; as Guava's `put`, `true` if a bit has changed.
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
