//! The classic Bloom filter.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::body::{Body, check_hash, checked_places};
use crate::encoding::{DecodeError, EncodeError, Portable};
use crate::hashing::{KeyHash, KeyHasher};
use crate::kind::Kind;
use crate::membership::{Filter, Full, Insert, Merge, MergeError};
use crate::sizing::{SizingError, classic, in_words};
use crate::words::{NoMemory, Words};

/// A classic Bloom filter: `k` bits of `m` for a key.
///
/// Bloom 1970. At the best `k`, which is log2(1/p), it takes 1.44·log2(1/p) bits for a key: 9.6
/// at a rate of 1 %, 14.4 at 0.1 %, 19.2 at 0.01 %. A probe of a stranger reads two bits on
/// average, of a key all `k`, each another line of the cache: in a filter larger than the cache
/// that is what it costs. `false` is certain; `true` is wrong at the rate
/// [`expected_fpr`](Filter::expected_fpr) says.
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
/// use chainsieve_filter::{BloomFilter, Filter, Insert, KeyHasher};
///
/// let mut filter = <BloomFilter>::with_fpr(1_000, 0.001, KeyHasher::random())?;
/// assert!(filter.insert(b"key")?);
/// assert!(filter.contains(b"key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter<H = u64, S = Words> {
    pub(super) body: Body<false, S>,
    pub(super) hash: PhantomData<H>,
}

/// A [`BloomFilter`] in bytes that lie elsewhere.
pub type BloomFilterRef<'a, H = u64> = BloomFilter<H, &'a [u64]>;

/// The kind of filters over such hashes.
pub(super) const fn kind<H: KeyHash>() -> Kind {
    if H::BITS == 128 { Kind::WideBloom } else { Kind::Bloom }
}

impl<H: KeyHash> BloomFilter<H> {
    /// The smallest filter that has the rate `fpr` with `capacity` distinct keys, filled up to
    /// whole words.
    ///
    /// # Errors
    /// If there is none; [`SizingError::HashTooShort`] if it takes hashes of 128 bits, or a hash
    /// function that has them, or of more than 128.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash::<H>(capacity, fpr)?;
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
        let places = checked_places::<H, false>(num_bits, hash_funcs, &hasher)?;
        Ok(Self { body: Body::empty(places, hasher)?, hash: PhantomData })
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> BloomFilter<H, S> {
    /// Bits of a key.
    pub fn hash_funcs(&self) -> u32 {
        self.body.places.hash_funcs
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> Filter for BloomFilter<H, S> {
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

    /// By the bits that are set, so that of this very filter; as long as [`fill`](Filter::fill).
    fn expected_fpr(&self) -> f64 {
        self.body.expected_fpr::<H>()
    }

    /// By the bits that are set: infinite if all are. As long as [`fill`](Filter::fill).
    fn estimated_len(&self) -> Option<f64> {
        Some(self.body.estimated_len())
    }
}

impl<H: KeyHash> Insert for BloomFilter<H> {
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

impl<H: KeyHash> Merge for BloomFilter<H> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.body.merge(&other.body)
    }
}

impl<H: KeyHash> Portable for BloomFilter<H> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.body.encode::<H>(kind::<H>())
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { body: Body::decode::<H>(bytes, kind::<H>())?, hash: PhantomData })
    }
}

impl<'a, H: KeyHash> BloomFilterRef<'a, H> {
    /// A filter asked where its bytes are, without copying them. They have to begin at a multiple
    /// of eight in memory, as those of a mapped file do.
    ///
    /// # Errors
    /// If they are anything else, or not so placed.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self { body: Body::view::<H>(bytes, kind::<H>())?, hash: PhantomData })
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> BloomFilter<H, S> {
    /// The rate that the filter would have after a [`fold`](BloomFilter::folded), by its bits; `None`
    /// if it can't be folded.
    pub fn fpr_folded(&self) -> Option<f64> {
        self.body.fpr_folded::<H>()
    }

    /// The same set in half the memory: bits `2i` and `2i + 1` become bit `i`. It is, bit for bit,
    /// the filter that half the size would have been built with, because a position is the high
    /// part of a product: halving the size halves the position. (Where positions are remainders,
    /// it is the upper half that is put over the lower one.) `None` if the number of bits is odd.
    ///
    /// A filter made for more keys than came has a rate far below the one asked for; folded
    /// while [`fpr_folded`](Self::fpr_folded) is still low enough, it is as small as if it had
    /// been known.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn folded(&self) -> Result<Option<BloomFilter<H>>, NoMemory> {
        Ok(self.body.folded()?.map(|body| BloomFilter { body, hash: PhantomData }))
    }

    /// Folded as often as the rate stays at `fpr` or below; a copy, if that is not at all.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn folded_to(&self, fpr: f64) -> Result<BloomFilter<H>, NoMemory> {
        let Some(mut filter) = (match self.fpr_folded() {
            Some(rate) if rate <= fpr => self.folded()?,
            _ => None,
        }) else {
            let words = Words::copy_of(self.body.words.as_ref())?;
            let Body { places, hasher, len, .. } = self.body;
            return Ok(BloomFilter {
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
