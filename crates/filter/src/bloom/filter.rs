//! The common implementation of the classic and the partitioned Bloom filter.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::bits;
use super::places::Places;
use crate::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use crate::hashing::{KeyHash, KeyHasher};
use crate::kind::Kind;
use crate::membership::{Filter, Fold, Full, Insert, Merge, MergeError};
use crate::sizing::{MAX_HASH_FUNCS, SizingError, classic};
use crate::words::{NoMemory, Words, count_ones, unite};

/// A Bloom filter without blocks: a [`BloomFilter`](super::BloomFilter) or a
/// [`PartitionedBloomFilter`](crate::textbook::PartitionedBloomFilter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom<const PARTITIONED: bool, H = u64, S = Words> {
    pub(super) words: S,
    pub(super) places: Places<PARTITIONED>,
    pub(super) hasher: KeyHasher,
    /// Number of keys inserted.
    pub(super) len: u64,
    pub(super) hash: PhantomData<H>,
}

/// Returns the number and name of the kind of a Bloom filter with hashes of type `H`.
pub(super) const fn kind<H: KeyHash>(is_partitioned: bool) -> Kind {
    match (is_partitioned, H::BITS) {
        (true, _) => Kind::Partitioned,
        (false, 128) => Kind::WideBloom,
        (false, _) => Kind::Bloom,
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Bloom<PARTITIONED, H> {
    pub(super) fn empty(
        range: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        let places = checked_places::<H, PARTITIONED>(range, hash_funcs, &hasher)?;
        let words = Words::zeroed(places.num_bits().div_ceil(64))?;
        Ok(Self { words, places, hasher, len: 0, hash: PhantomData })
    }
}

impl<'a, const PARTITIONED: bool, H: KeyHash> Bloom<PARTITIONED, H, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes. The bytes must be aligned to
    /// eight bytes in memory, as those of a mapped file are.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not exactly one valid filter of this kind, if it is not
    /// aligned, or if the host is big-endian.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<H, PARTITIONED>(bytes)?;
        Self::of(&opened, opened.words_in_place()?)
    }
}

impl<const PARTITIONED: bool, H: KeyHash, S: AsRef<[u64]>> Bloom<PARTITIONED, H, S> {
    /// Returns the number of hash functions, which is the number of slices in a partitioned filter.
    pub fn hash_funcs(&self) -> u32 {
        self.places.hash_funcs
    }

    pub(super) fn num_set(&self) -> u64 {
        count_ones(self.words.as_ref())
    }

    /// Returns the false-positive rate: the probability that all positions of a key are set, plus
    /// the probability that its hash equals that of a key in the set.
    ///
    /// The bits are counted after `kept` was applied to each word. `range` is the number of bits
    /// that remain in the range of one position. Only the prediction of the rate after a fold
    /// passes a `kept` that changes words, and a `range` other than the filter's own.
    fn fpr_of(&self, kept: impl Fn(u64) -> u64 + Copy, range: u64) -> f64 {
        let words = self.words.as_ref();
        let fill = |slice: u64| {
            let start = slice * self.places.range;
            let set = bits::count_between(words, start, start + self.places.range, kept);
            classic::share(set, range)
        };
        let by_bits: f64 = if PARTITIONED {
            (0..self.places.hash_funcs.into()).map(fill).product()
        } else {
            libm::pow(fill(0), f64::from(self.places.hash_funcs))
        };
        (by_bits + classic::hash_fpr(self.len, H::BITS)).min(1.0)
    }

    /// Creates the filter from a checked header and the words of its body.
    fn of(opened: &Opened<'_>, words: S) -> Result<Self, DecodeError> {
        let Header { hasher, len, params: [range, hash_funcs, _], .. } = opened.header;
        let places = places_of::<PARTITIONED>([range, hash_funcs, 0])?;
        let filter = Self { words, places, hasher, len, hash: PhantomData };
        check_set(filter.num_set(), places, len)?;
        let over = places.num_bits() % 64;
        let behind = filter
            .words
            .as_ref()
            .last()
            .map_or(0, |last| last.unbounded_shr(if over == 0 { 64 } else { over as u32 }));
        if behind != 0 {
            return Err(DecodeError::NotZero("bits after the last position"));
        }
        Ok(filter)
    }
}

impl<const PARTITIONED: bool, H: KeyHash, S: AsRef<[u64]>> Filter for Bloom<PARTITIONED, H, S> {
    type Hash = H;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline(always)]
    fn contains_hash(&self, hash: H) -> bool {
        self.places.contains(self.words.as_ref(), hash)
    }

    fn contains_batch(&self, hashes: &[H], may_contain: &mut [bool]) {
        self.places.contains_batch(self.words.as_ref(), hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.places.num_bits()
    }

    /// Returns the fraction of bits that are set. The cost is that of reading the whole filter.
    fn fill(&self) -> f64 {
        classic::share(self.num_set(), self.places.num_bits())
    }

    /// Computes the rate of this very filter from its bits that are set. In a partitioned filter,
    /// the bits of each slice are counted separately. The cost is that of [`fill`](Filter::fill).
    fn expected_fpr(&self) -> f64 {
        self.fpr_of(|word| word, self.places.range)
    }

    /// Estimates the number of distinct keys from the bits that are set. The estimate is infinite
    /// if all bits are set. The cost is that of [`fill`](Filter::fill).
    fn estimated_len(&self) -> Option<f64> {
        let Places { hash_funcs, .. } = self.places;
        Some(classic::estimated_len(self.num_set(), self.places.num_bits(), hash_funcs))
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Insert for Bloom<PARTITIONED, H> {
    /// Always succeeds. A filter with more keys than its capacity has a higher false-positive rate.
    #[inline(always)]
    fn insert_hash(&mut self, hash: H) -> Result<bool, Full> {
        self.len = self.len.saturating_add(1);
        Ok(self.places.insert(self.words.as_mut(), hash))
    }

    fn insert_batch(&mut self, hashes: &[H]) -> Result<(), Full> {
        self.len = self.len.saturating_add(hashes.len() as u64);
        self.places.insert_batch(self.words.as_mut(), hashes);
        Ok(())
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Merge for Bloom<PARTITIONED, H> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        let (ours, theirs) = (self.places, other.places);
        MergeError::unless_equal("number of bits", ours.num_bits(), theirs.num_bits())?;
        let (few, many) = (ours.hash_funcs.into(), theirs.hash_funcs.into());
        MergeError::unless_equal("number of hash functions", few, many)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        unite(self.words.as_mut(), other.words.as_ref());
        self.len = self.len.saturating_add(other.len);
        Ok(())
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Fold for Bloom<PARTITIONED, H> {
    fn fpr_folded(&self) -> Option<f64> {
        let range = self.places.range;
        range.is_multiple_of(2).then(|| self.fpr_of(bits::pairs, range / 2))
    }

    /// Folds bits `2i` and `2i + 1` into bit `i`. The result is, bit for bit, the filter that would
    /// have been built with half the size. The reason is that a position is the high part of a
    /// product, so in a filter of half the size every position is halved. (Filters whose positions
    /// are remainders fold the upper half onto the lower half instead.)
    ///
    /// Returns `None` if the number of bits (in a partitioned filter, of bits in a slice) is odd.
    fn folded(&self) -> Result<Option<Self>, NoMemory> {
        if !self.places.range.is_multiple_of(2) {
            return Ok(None);
        }
        let words = bits::fold(self.words.as_ref(), self.places.num_bits())?;
        let places = Places { range: self.places.range / 2, ..self.places };
        Ok(Some(Self { words, places, ..*self }))
    }
}

/// The parameters in the encoded header are: the number of bits (in a partitioned filter, of bits
/// per slice), the number of hash functions, and zero. The third parameter is 128 for partitioned
/// filters over 128-bit hashes. [`AnyFilter`](crate::AnyFilter) reads partitioned filters over
/// 64-bit hashes only.
impl<const PARTITIONED: bool, H: KeyHash> Portable for Bloom<PARTITIONED, H> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let width = hash_width::<H, PARTITIONED>();
        let params = [self.places.range, self.places.hash_funcs.into(), width];
        let (kind, hasher, len) = (kind::<H>(PARTITIONED), self.hasher, self.len);
        Header { kind, hasher, len, params }.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open::<H, PARTITIONED>(bytes)?;
        Self::of(&opened, opened.words()?)
    }
}

/// Checks the parameters of an encoded filter. The bounds of the parameters keep the number of bits
/// at or below 2⁶³.
pub(super) fn places_of<const PARTITIONED: bool>(
    [range, hash_funcs, zero]: [u64; 3],
) -> Result<Places<PARTITIONED>, DecodeError> {
    let checked = u32::try_from(hash_funcs).ok().filter(|k| (1..=MAX_HASH_FUNCS).contains(k));
    let Some(hash_funcs) = checked else {
        return Err(parameter("the number of hash functions", hash_funcs, "from 1 to 128"));
    };
    if range == 0 || range > MAX_RANGE {
        return Err(parameter("the number of bits", range, "from 1 to 2^56"));
    }
    if zero != 0 {
        return Err(DecodeError::NotZero("the third parameter"));
    }
    Ok(Places { range, hash_funcs })
}

/// Checks that insertions of `len` keys can set `num_set` bits: at least one bit in total, and at most one
/// bit per hash function and key.
pub(super) fn check_set<const PARTITIONED: bool>(
    num_set: u64,
    places: Places<PARTITIONED>,
    len: u64,
) -> Result<(), DecodeError> {
    if num_set > len.saturating_mul(places.hash_funcs.into()) || num_set == 0 && len > 0 {
        let limit = "a number that can have set these bits";
        return Err(parameter("the number of keys", len, limit));
    }
    Ok(())
}

/// Greatest number of bits of a filter or slice. No memory has more bits.
pub(super) const MAX_RANGE: u64 = 1 << 56;

fn open<H: KeyHash, const PARTITIONED: bool>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, kind::<H>(PARTITIONED), |header| {
        if header.hasher.bits() < H::BITS {
            let (what, value) = ("the width of the hash", header.hasher.bits().into());
            return Err(parameter(what, value, "128 bits"));
        }
        let [range, hash_funcs, width] = header.params;
        let known = hash_width::<H, PARTITIONED>();
        if PARTITIONED && width != known {
            let what = "the width of the hash, 0 for 64 bits,";
            let limit = if known == 0 { "0" } else { "128" };
            return Err(parameter(what, width, limit));
        }
        let zero = if PARTITIONED { 0 } else { width };
        Ok(places_of::<PARTITIONED>([range, hash_funcs, zero])?.num_bits().div_ceil(64))
    })
}

/// Returns the third parameter of an encoded filter. Classic filters have a kind of their own for
/// each width of the hash. Partitioned filters have one kind, so the parameter records a width of
/// 128 bits: filters over 64-bit hashes have different bit positions.
const fn hash_width<H: KeyHash, const PARTITIONED: bool>() -> u64 {
    if PARTITIONED && H::BITS == 128 { 128 } else { 0 }
}

/// Checks parameters that a caller gave to a constructor.
pub(super) fn checked_places<H: KeyHash, const PARTITIONED: bool>(
    range: u64,
    hash_funcs: u32,
    hasher: &KeyHasher,
) -> Result<Places<PARTITIONED>, SizingError> {
    classic::checked_hash_funcs(hash_funcs)?;
    SizingError::unless_within("a number of bits", range, MAX_RANGE)?;
    if hasher.bits() < H::BITS {
        let (value, bits) = (hasher.bits().into(), H::BITS.into());
        return Err(SizingError::Parameter { what: "a hash width", value, min: bits, max: bits });
    }
    Ok(Places { range, hash_funcs })
}
