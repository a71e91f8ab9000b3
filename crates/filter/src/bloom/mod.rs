//! Bloom filters whose positions span the whole filter, or a slice of it: classic, shared between
//! threads, compressed for transmission, and partitioned.

#[cfg(feature = "std")]
mod atomic;
mod compressed;
mod positions;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::marker::PhantomData;

#[cfg(feature = "std")]
pub use atomic::AtomicBloomFilter;
pub use compressed::{CompressedBloomFilter, OpenedBloomFilter};
use positions::{Positions, count_between, fold, pairs};

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_if, refuse_nonzero,
};
use super::hashing::{KeyHash, KeyHasher};
use super::membership::{Filter, Fold, Full, Insert, Merge, MergeError};
use super::sizing::{BuildError, MAX_HASH_FUNCS, check_hash, classic, in_words};
use super::words::{NoMemory, Words, count_ones, unite};

/// A Bloom filter without blocks: a [`BloomFilter`] or a
/// [`PartitionedBloomFilter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom<const PARTITIONED: bool, H = u64, S = Words> {
    words: S,
    positions: Positions<PARTITIONED>,
    hasher: KeyHasher,
    /// Number of keys inserted.
    len: u64,
    hash: PhantomData<H>,
}

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
    /// or if there is no memory for the filter. Returns [`BuildError::HashTooShort`] if the rate
    /// needs a wider hash than `H`.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_bits(size.num_bits, size.hash_funcs, hasher)
    }

    /// Creates a filter with the given number of bits and hash functions.
    ///
    /// # Errors
    /// Returns an error if the number of bits is zero, if the number of hash functions is not from
    /// 1 to [`MAX_HASH_FUNCS`], if the hash function is narrower
    /// than `H`, or if there is no memory for the filter.
    pub fn with_bits(
        num_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        Self::empty(num_bits, hash_funcs, hasher)
    }
}

/// A partitioned Bloom filter: `k` slices, and every key sets one bit in each slice.
///
/// Memory, cost and the meaning of `true` are those of [`BloomFilter`]. At the
/// same number of bits the rate is slightly higher, because the positions of a key never coincide.
/// For thousands of bits, the rate is higher by 0.1 % of its value; for millions, no difference is
/// measurable. A key sets exactly `k` bits.
///
/// **When to use it.** If another program expects slices, or if the rate must be known exactly:
/// slices are independent of each other, so the formula of the rate is exact at any size.
///
/// **When not to use it, and what is better.** [`BloomFilter`] can have any
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
    /// Returns the same errors as [`BloomFilter::with_fpr`](BloomFilter::with_fpr).
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let size = classic::slices(capacity, fpr)?;
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_slices(size.slice_bits, size.hash_funcs, hasher)
    }

    /// Creates a filter with `hash_funcs` slices of `slice_bits` bits each.
    ///
    /// # Errors
    /// Returns the same errors as [`BloomFilter::with_bits`](BloomFilter::with_bits).
    pub fn with_slices(
        slice_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        Self::empty(slice_bits, hash_funcs, hasher)
    }
}

impl<H: KeyHash, S: AsRef<[u64]>> PartitionedBloomFilter<H, S> {
    /// Returns the number of bits of a slice.
    pub fn slice_bits(&self) -> u64 {
        self.positions.range
    }
}

/// Returns the number and name of the kind of a Bloom filter with hashes of type `H`.
const fn kind<H: KeyHash>(is_partitioned: bool) -> Kind {
    match (is_partitioned, H::BITS) {
        (true, _) => Kind::Partitioned,
        (false, 128) => Kind::WideBloom,
        (false, _) => Kind::Bloom,
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Bloom<PARTITIONED, H> {
    fn empty(range: u64, hash_funcs: u32, hasher: KeyHasher) -> Result<Self, BuildError> {
        let positions = checked_positions::<H, PARTITIONED>(range, hash_funcs, &hasher)?;
        let words = Words::zeroed(positions.num_bits().div_ceil(64))?;
        Ok(Self { words, positions, hasher, len: 0, hash: PhantomData })
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
        self.positions.hash_funcs
    }

    fn num_set(&self) -> u64 {
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
            let start = slice * self.positions.range;
            let set = count_between(words, start, start + self.positions.range, kept);
            classic::share(set, range)
        };
        let by_bits: f64 = if PARTITIONED {
            (0..self.positions.hash_funcs.into()).map(fill).product()
        } else {
            libm::pow(fill(0), f64::from(self.positions.hash_funcs))
        };
        (by_bits + classic::hash_fpr(self.len, H::BITS)).min(1.0)
    }

    /// Creates the filter from a checked header and the words of its body.
    fn of(opened: &Opened<'_>, words: S) -> Result<Self, DecodeError> {
        let Header { hasher, len, params: [range, hash_funcs, _], .. } = opened.header;
        let positions = positions_of::<PARTITIONED>([range, hash_funcs, 0])?;
        let filter = Self { words, positions, hasher, len, hash: PhantomData };
        check_set(filter.num_set(), positions, len)?;
        let over = positions.num_bits() % 64;
        let behind = filter
            .words
            .as_ref()
            .last()
            .map_or(0, |last| last.unbounded_shr(if over == 0 { 64 } else { over as u32 }));
        refuse_nonzero(behind != 0, "bits after the last position")?;
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
        self.positions.contains(self.words.as_ref(), hash)
    }

    fn contains_batch(&self, hashes: &[H], may_contain: &mut [bool]) {
        self.positions.contains_batch(self.words.as_ref(), hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.positions.num_bits()
    }

    /// Returns the fraction of bits that are set. The cost is that of reading the whole filter.
    fn fill(&self) -> f64 {
        classic::share(self.num_set(), self.positions.num_bits())
    }

    /// Computes the rate of this very filter from its bits that are set. In a partitioned filter,
    /// the bits of each slice are counted separately. The cost is that of [`fill`](Filter::fill).
    fn expected_fpr(&self) -> f64 {
        self.fpr_of(|word| word, self.positions.range)
    }

    /// Estimates the number of distinct keys from the bits that are set. The estimate is infinite
    /// if all bits are set. The cost is that of [`fill`](Filter::fill).
    fn estimated_len(&self) -> Option<f64> {
        let Positions { hash_funcs, .. } = self.positions;
        Some(classic::estimated_len(self.num_set(), self.positions.num_bits(), hash_funcs))
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Insert for Bloom<PARTITIONED, H> {
    /// Always succeeds. A filter with more keys than its capacity has a higher false-positive rate.
    #[inline(always)]
    fn insert_hash(&mut self, hash: H) -> Result<bool, Full> {
        self.len = self.len.saturating_add(1);
        Ok(self.positions.insert(self.words.as_mut(), hash))
    }

    fn insert_batch(&mut self, hashes: &[H]) -> Result<(), Full> {
        self.len = self.len.saturating_add(hashes.len() as u64);
        self.positions.insert_batch(self.words.as_mut(), hashes);
        Ok(())
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl<const PARTITIONED: bool, H: KeyHash> Merge for Bloom<PARTITIONED, H> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        let (ours, theirs) = (self.positions, other.positions);
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
        let range = self.positions.range;
        range.is_multiple_of(2).then(|| self.fpr_of(pairs, range / 2))
    }

    /// Folds bits `2i` and `2i + 1` into bit `i`. The result is, bit for bit, the filter that would
    /// have been built with half the size. The reason is that a position is the high part of a
    /// product, so in a filter of half the size every position is halved. (Filters whose positions
    /// are remainders fold the upper half onto the lower half instead.)
    ///
    /// Returns `None` if the number of bits (in a partitioned filter, of bits in a slice) is odd.
    fn folded(&self) -> Result<Option<Self>, NoMemory> {
        if !self.positions.range.is_multiple_of(2) {
            return Ok(None);
        }
        let words = fold(self.words.as_ref(), self.positions.num_bits())?;
        let positions = Positions { range: self.positions.range / 2, ..self.positions };
        Ok(Some(Self { words, positions, ..*self }))
    }
}

/// The parameters in the encoded header are: the number of bits (in a partitioned filter, of bits
/// per slice), the number of hash functions, and zero. The third parameter is 128 for partitioned
/// filters over 128-bit hashes. [`AnyFilter`](crate::AnyFilter) reads partitioned filters over
/// 64-bit hashes only.
impl<const PARTITIONED: bool, H: KeyHash> Portable for Bloom<PARTITIONED, H> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let width = hash_width::<H, PARTITIONED>();
        let params = [self.positions.range, self.positions.hash_funcs.into(), width];
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
fn positions_of<const PARTITIONED: bool>(
    [range, hash_funcs, zero]: [u64; 3],
) -> Result<Positions<PARTITIONED>, DecodeError> {
    let checked = u32::try_from(hash_funcs).ok().filter(|k| (1..=MAX_HASH_FUNCS).contains(k));
    let wrong = parameter("the number of hash functions", hash_funcs, "from 1 to 128");
    let hash_funcs = checked.ok_or(wrong)?;
    refuse_if(range == 0 || range > MAX_RANGE, "the number of bits", range, "from 1 to 2^56")?;
    refuse_nonzero(zero != 0, "the third parameter")?;
    Ok(Positions { range, hash_funcs })
}

/// Checks that insertions of `len` keys can set `num_set` bits: at least one bit in total, and at most one
/// bit per hash function and key.
fn check_set<const PARTITIONED: bool>(
    num_set: u64,
    positions: Positions<PARTITIONED>,
    len: u64,
) -> Result<(), DecodeError> {
    if num_set > len.saturating_mul(positions.hash_funcs.into()) || num_set == 0 && len > 0 {
        let limit = "a number that can have set these bits";
        return Err(parameter("the number of keys", len, limit));
    }
    Ok(())
}

/// Greatest number of bits of a filter or slice. No memory has more bits.
const MAX_RANGE: u64 = 1 << 56;

fn open<H: KeyHash, const PARTITIONED: bool>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, kind::<H>(PARTITIONED), |header| {
        let is_wrong = header.hasher.bits() < H::BITS;
        refuse_if(is_wrong, "the width of the hash", header.hasher.bits().into(), "128 bits")?;
        let [range, hash_funcs, width] = header.params;
        let known = hash_width::<H, PARTITIONED>();
        if PARTITIONED && width != known {
            let what = "the width of the hash, 0 for 64 bits,";
            let limit = if known == 0 { "0" } else { "128" };
            return Err(parameter(what, width, limit));
        }
        let zero = if PARTITIONED { 0 } else { width };
        Ok(positions_of::<PARTITIONED>([range, hash_funcs, zero])?.num_bits().div_ceil(64))
    })
}

/// Returns the third parameter of an encoded filter. Classic filters have a kind of their own for
/// each width of the hash. Partitioned filters have one kind, so the parameter records a width of
/// 128 bits: filters over 64-bit hashes have different bit positions.
const fn hash_width<H: KeyHash, const PARTITIONED: bool>() -> u64 {
    if PARTITIONED && H::BITS == 128 { 128 } else { 0 }
}

/// Checks parameters that a caller gave to a constructor.
fn checked_positions<H: KeyHash, const PARTITIONED: bool>(
    range: u64,
    hash_funcs: u32,
    hasher: &KeyHasher,
) -> Result<Positions<PARTITIONED>, BuildError> {
    classic::checked_hash_funcs(hash_funcs)?;
    BuildError::unless_within("a number of bits", range, MAX_RANGE)?;
    if hasher.bits() < H::BITS {
        let (value, bits) = (hasher.bits().into(), H::BITS.into());
        return Err(BuildError::Parameter { what: "a hash width", value, min: bits, max: bits });
    }
    Ok(Positions { range, hash_funcs })
}
