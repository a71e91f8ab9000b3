//! What the classic and the partitioned filter share, which is all but the shape.

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

/// A Bloom filter without blocks: [`BloomFilter`](super::BloomFilter), or
/// [`PartitionedBloomFilter`](crate::textbook::PartitionedBloomFilter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom<const PARTITIONED: bool, H = u64, S = Words> {
    pub(super) words: S,
    pub(super) places: Places<PARTITIONED>,
    pub(super) hasher: KeyHasher,
    /// Keys inserted.
    pub(super) len: u64,
    pub(super) hash: PhantomData<H>,
}

/// The kind of filters over such hashes.
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
    /// A filter asked where its bytes are, without copying them. They have to begin at a multiple
    /// of eight in memory, as those of a mapped file do.
    ///
    /// # Errors
    /// If they are anything else, or not so placed.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<H, PARTITIONED>(bytes)?;
        Self::of(&opened, opened.words_in_place()?)
    }
}

impl<const PARTITIONED: bool, H: KeyHash, S: AsRef<[u64]>> Bloom<PARTITIONED, H, S> {
    /// Bits of a key; of a partitioned filter its slices.
    pub fn hash_funcs(&self) -> u32 {
        self.places.hash_funcs
    }

    pub(super) fn num_set(&self) -> u64 {
        count_ones(self.words.as_ref())
    }

    /// A stranger's positions are all set, or its hash is that of a key. What is set is what
    /// `kept` leaves of a word, of the bits that `range` then has.
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

    /// The filter of bytes whose header was read.
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
            return Err(DecodeError::NotZero("bits behind the last"));
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

    /// Counts the bits: as long as reading all of the filter takes.
    fn fill(&self) -> f64 {
        classic::share(self.num_set(), self.places.num_bits())
    }

    /// By the bits that are set, of a partitioned filter in each slice, so that of this very
    /// filter; as long as [`fill`](Filter::fill).
    fn expected_fpr(&self) -> f64 {
        self.fpr_of(|word| word, self.places.range)
    }

    /// By the bits that are set: infinite if all are. As long as [`fill`](Filter::fill).
    fn estimated_len(&self) -> Option<f64> {
        let Places { hash_funcs, .. } = self.places;
        Some(classic::estimated_len(self.num_set(), self.places.num_bits(), hash_funcs))
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Insert for Bloom<PARTITIONED, H> {
    /// Always succeeds: a filter with more keys than it was made for says "maybe" more often.
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

    /// Bits `2i` and `2i + 1` become bit `i`. It is, bit for bit, the filter that half the size
    /// would have been built with, because a position is the high part of a product: halving the
    /// size halves the position. (Where positions are remainders, it is the upper half that is put
    /// over the lower one.) `None` if the number of bits, of a partitioned filter those of a
    /// slice, is odd.
    fn folded(&self) -> Result<Option<Self>, NoMemory> {
        if !self.places.range.is_multiple_of(2) {
            return Ok(None);
        }
        let words = bits::fold(self.words.as_ref(), self.places.num_bits())?;
        let places = Places { range: self.places.range / 2, ..self.places };
        Ok(Some(Self { words, places, ..*self }))
    }
}

/// Parameters: bits, of a partitioned filter those of a slice; hash functions; zero, but of a
/// partitioned filter over hashes of 128 bits 128. [`AnyFilter`](crate::AnyFilter) reads
/// partitioned filters over hashes of 64 bits only.
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

/// The parameters, each in its bounds, which keep the number of bits below 2⁶³.
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

/// So many keys have set at least one bit and at most all of theirs.
pub(super) fn check_set<const PARTITIONED: bool>(
    num_set: u64,
    places: Places<PARTITIONED>,
    len: u64,
) -> Result<(), DecodeError> {
    if num_set > len.saturating_mul(places.hash_funcs.into()) || num_set == 0 && len > 0 {
        let limit = "as many as can have set the bits";
        return Err(parameter("the number of keys", len, limit));
    }
    Ok(())
}

/// No memory has more bits.
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
            let limit = if known == 0 { "0 is asked for" } else { "128 is asked for" };
            return Err(parameter(what, width, limit));
        }
        let zero = if PARTITIONED { 0 } else { width };
        Ok(places_of::<PARTITIONED>([range, hash_funcs, zero])?.num_bits().div_ceil(64))
    })
}

/// The third parameter. Classic filters have a kind for each width, partitioned ones say here
/// that it is not 64 bits: all positions of a key follow from all bits of its hash.
const fn hash_width<H: KeyHash, const PARTITIONED: bool>() -> u64 {
    if PARTITIONED && H::BITS == 128 { 128 } else { 0 }
}

/// Parameters as a caller gives them.
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
