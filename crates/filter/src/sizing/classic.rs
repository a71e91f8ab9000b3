//! Sizes of classic Bloom filters, where every key sets `k` of `m` bits anywhere in the filter, and of
//! their relatives: partitioned, scalable, rolling and compressed filters.
//!
//! The false-positive rate is `E[(X/m)^k]`, where `X` is the number of bits that are set after
//! `n·k` random positions were chosen among `m`. The textbook formula `(1 - e^(-kn/m))^k` uses the
//! mean of `X` in place of `X`. The formula's result is always too low (Bose and others 2008;
//! Christensen and others 2010): by 5 % for `m` = 128 and `k` = 7, by 0.6 % for `m` = 1,024, and by
//! a negligible amount for a million bits.
//!
//! A **partitioned** filter has `k` slices, and each key sets one bit in each slice. In a slice of
//! `s` bits, the mean fraction of set bits is `1 - (1 - 1/s)^n`. Slices are independent of each
//! other, so the rate is exactly the `k`th power of this fraction, for any size. The rate is slightly
//! above that of a classic filter with as many bits, because two positions of a key never coincide.

use alloc::vec::Vec;

use super::math::{
    BuildError, MAX_BITS, MAX_HASH_FUNCS, any_of, ceil, checked, float, floor, least, small,
};
use crate::words::NoMemory;

/// Number of bits and hash functions of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of bits.
    pub num_bits: u64,
    /// Number of hash functions.
    pub hash_funcs: u32,
}

/// Returns the smallest filter for `n` keys with a rate of at most `fpr`.
///
/// The number of hash functions is log2(1/p) rounded up or down, whichever needs fewer bits. Zero
/// keys need as many bits as one key.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, if the rate would need more than
/// [`MAX_HASH_FUNCS`] hash functions, or if the filter would be larger than any memory.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::classic;
/// let size = classic::size(1_000_000, 0.01)?;
/// assert_eq!((size.num_bits, size.hash_funcs), (9_592_957, 7));
/// # Ok::<(), chainsieve_filter::sizing::BuildError>(())
/// ```
pub fn size(n: u64, fpr: f64) -> Result<Size, BuildError> {
    let size = |hash_funcs| Ok(Size { num_bits: num_bits(n, hash_funcs, fpr)?, hash_funcs });
    smaller(fpr, "bloom", size, |size| size.num_bits)
}

/// Returns the smaller of two sizes: with log2(1/p) hash functions rounded down, and rounded up.
pub(super) fn smaller<S>(
    fpr: f64,
    layout: &'static str,
    size: impl Fn(u32) -> Result<S, BuildError>,
    num_bits: impl Fn(&S) -> u64,
) -> Result<S, BuildError> {
    let bits_of_rate = -libm::log2(checked(fpr)?);
    if bits_of_rate > f64::from(MAX_HASH_FUNCS) {
        let best = libm::exp2(-f64::from(MAX_HASH_FUNCS));
        return Err(BuildError::OutOfReach { fpr, layout, best });
    }
    let (few, many) = (size(small(floor(bits_of_rate)))?, size(small(ceil(bits_of_rate)))?);
    Ok(if num_bits(&many) < num_bits(&few) { many } else { few })
}

/// Returns the smallest number of bits for `n` keys with a rate of at most `fpr` and the given
/// number of hash functions.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, if the number of hash functions is not from 1
/// to [`MAX_HASH_FUNCS`], or if the filter would be larger than any memory.
pub fn num_bits(n: u64, hash_funcs: u32, fpr: f64) -> Result<u64, BuildError> {
    let (n, k) = (n.max(1), f64::from(checked_hash_funcs(hash_funcs)?));
    // The textbook formula is close enough to be the start of the search.
    let share = libm::exp(libm::log(checked(fpr)?) / k);
    let guess = k * float(n) / -libm::log1p(-share);
    if guess > float(MAX_BITS) {
        return Err(NoMemory { words: ceil(guess / 64.0) }.into());
    }
    let fits = |bits| self::fpr(n, bits, hash_funcs) <= fpr;
    let bits = least(ceil(guess), MAX_BITS, fits);
    bits.ok_or(BuildError::NoMemory(NoMemory { words: MAX_BITS / 64 }))
}

/// Returns the number of hash functions with the lowest rate for `n` keys in `num_bits` bits.
///
/// The result is m/n·ln 2 rounded up or down. In very small filters it can be one less than the
/// number rounded down.
pub fn hash_funcs(n: u64, num_bits: u64) -> u32 {
    let most = float(num_bits) / float(n.max(1)) * core::f64::consts::LN_2;
    let limit = MAX_HASH_FUNCS;
    let (few, many) = (small(floor(most)).min(limit), small(ceil(most)).min(limit));
    let rate = |hash_funcs| fpr(n.max(1), num_bits, hash_funcs);
    // In very small filters, the best number can be one less than the textbook's optimum rounded
    // down.
    let fewer = small(u64::from(few).saturating_sub(1));
    let best = if rate(fewer) < rate(few) { fewer } else { few };
    if rate(many) < rate(best) { many } else { best }
}

/// Returns the rate of a filter with `n` distinct keys, averaged over all hash functions. The rate
/// of one particular filter with `X` set bits is `(X/m)^k`.
///
/// The result is exact, up to rounding, for filters of up to 8,192 bits (and for larger filters
/// with many hash functions). For larger filters, the mean and the variance of `X` are exact, and
/// its higher moments are those of a log-normal variable. The error of this approximation is less
/// than 10⁻⁴ of the rate, and falls as the number of bits grows.
pub fn fpr(n: u64, num_bits: u64, hash_funcs: u32) -> f64 {
    let throws = u128::from(n) * u128::from(hash_funcs);
    if throws == 0 {
        // A filter without keys has no false positives. Without hash functions, every query returns
        // `true`.
        return if hash_funcs == 0 { 1.0 } else { 0.0 };
    }
    if num_bits == 0 {
        return 1.0;
    }
    let exact = u64::from(hash_funcs).pow(2).saturating_mul(16);
    // If far more keys are inserted than the filter has room for, every bit is set. The variance is
    // then zero, and the approximation is exact.
    let is_small = hash_funcs <= MAX_HASH_FUNCS && num_bits <= exact.max(1 << 13);
    if is_small && throws <= u128::from(num_bits) * 8 {
        return exact_fpr(n * u64::from(hash_funcs), num_bits, hash_funcs);
    }
    asymptotic_fpr(float(n) * f64::from(hash_funcs), num_bits, hash_funcs)
}

/// Returns the expected fraction of set bits in a filter with `n` distinct keys: E[X/m].
pub fn fill(n: u64, num_bits: u64, hash_funcs: u32) -> f64 {
    any_of(float(n) * f64::from(hash_funcs), 1.0 / float(num_bits.max(1)))
}

/// Returns the fraction of bits that are set.
pub(crate) fn share(num_set: u64, num_bits: u64) -> f64 {
    float(num_set) / float(num_bits.max(1))
}

/// Returns the probability that the hash of a key outside the set, `bits` wide, equals the hash of
/// one of `len` keys.
pub(crate) fn hash_fpr(len: u64, bits: u32) -> f64 {
    any_of(float(len), libm::exp2(-f64::from(bits)))
}

/// Estimates how many distinct keys have set `num_set` bits: `-m/k·ln(1 - X/m)`. The estimate is
/// infinite if all bits are set.
pub fn estimated_len(num_set: u64, num_bits: u64, hash_funcs: u32) -> f64 {
    let (set, m) = (float(num_set), float(num_bits.max(1)));
    if num_set == 0 { 0.0 } else { -m / f64::from(hash_funcs.max(1)) * libm::log1p(-set / m) }
}

/// Computes `E[(X/m)^k]` by two recurrences that subtract no nearly equal numbers and so lose no
/// digits.
///
/// With probability `d(j)`, the `k` positions of a queried key are `j` distinct positions. With
/// probability `g(j, t)`, `j` given positions are all set after `t` throws. The first throw hits
/// one of these `j` positions or none, so `g(j, t+1) = (1 - j/m)·g(j, t) + j/m·g(j-1, t)`. The rate
/// is the sum of `d(j)·g(j, nk)` over all `j`.
pub(super) struct Exact {
    /// The values `j/m`.
    shares: [f64; TERMS],
    /// The probabilities `d(j)`.
    distinct: [f64; TERMS],
    /// The probabilities `g(j, t)` after the throws so far.
    hit: [f64; TERMS],
    /// Number of terms that are not zero. The number of a key's distinct positions exceeds neither
    /// the number of hash functions nor the number of bits in the filter.
    terms: usize,
}

impl Exact {
    /// Creates the state of an empty filter. A number of hash functions above [`MAX_HASH_FUNCS`] is
    /// reduced to that limit.
    pub(super) fn empty(num_bits: u64, hash_funcs: u32) -> Self {
        let hash_funcs = hash_funcs.min(MAX_HASH_FUNCS);
        let terms = usize::try_from(num_bits.min(hash_funcs.into())).map_or(TERMS, |most| most + 1);
        let shares = core::array::from_fn(|j| float(j as u64) / float(num_bits));
        let (mut distinct, mut hit) = ([0.0; TERMS], [0.0; TERMS]);
        (distinct[0], hit[0]) = (1.0, 1.0);
        for _ in 0..hash_funcs {
            let (mut before, mut share_before) = (0.0, 0.0);
            for (d, share) in distinct.iter_mut().zip(&shares).take(terms) {
                let old = *d;
                *d = share * old + (1.0 - share_before) * before;
                (before, share_before) = (old, *share);
            }
        }
        Self { shares, distinct, hit, terms }
    }

    pub(super) fn throw(&mut self, throws: u64) {
        for _ in 0..throws {
            let mut before = 1.0;
            for (g, share) in self.hit.iter_mut().zip(&self.shares).take(self.terms).skip(1) {
                let old = *g;
                *g = (1.0 - share) * old + share * before;
                before = old;
            }
        }
    }

    pub(super) fn fpr(&self) -> f64 {
        let terms = self.distinct.iter().zip(&self.hit).take(self.terms);
        terms.map(|(d, g)| d * g).sum::<f64>().min(1.0)
    }
}

pub(super) fn exact_fpr(throws: u64, num_bits: u64, hash_funcs: u32) -> f64 {
    let mut exact = Exact::empty(num_bits, hash_funcs);
    exact.throw(throws);
    exact.fpr()
}

/// Length of the recurrences: one term for each number of distinct positions from 0 to
/// [`MAX_HASH_FUNCS`].
const TERMS: usize = MAX_HASH_FUNCS as usize + 1;

/// Approximates `E[(X/m)^k]` from the mean and the variance of `X`.
pub(super) fn asymptotic_fpr(throws: f64, num_bits: u64, hash_funcs: u32) -> f64 {
    let (m, k) = (float(num_bits), f64::from(hash_funcs));
    let mean = any_of(throws, 1.0 / m);
    if num_bits < 3 {
        return libm::pow(mean, k);
    }
    // Var[X]/m² = (1 - 2/m)^N + ((1 - 1/m)^N - (1 - 2/m)^N)/m - (1 - 1/m)^2N. The differences of
    // nearly equal powers are computed from their ratios, to lose no digits.
    let empty = 1.0 - mean;
    let pairs = empty * empty * libm::expm1(throws * libm::log1p(-1.0 / ((m - 1.0) * (m - 1.0))));
    let singles = -empty * libm::expm1(throws * libm::log1p(-1.0 / (m - 1.0))) / m;
    let relative = (pairs + singles).max(0.0) / (mean * mean);
    let rate = libm::exp(k * libm::log(mean) + k * (k - 1.0) / 2.0 * relative);
    rate.min(1.0)
}

pub(crate) fn checked_hash_funcs(hash_funcs: u32) -> Result<u32, BuildError> {
    let (value, max) = (hash_funcs.into(), MAX_HASH_FUNCS.into());
    BuildError::unless_within("a number of hash functions", value, max)?;
    Ok(hash_funcs)
}

/// Number of slices of a partitioned filter, and length of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slices {
    /// Number of bits in a slice.
    pub slice_bits: u64,
    /// Number of slices, one for each hash function.
    pub hash_funcs: u32,
}

impl Slices {
    /// Returns the number of bits of all slices.
    pub const fn num_bits(self) -> u64 {
        self.slice_bits.saturating_mul(self.hash_funcs as u64)
    }
}

/// Returns the smallest partitioned filter for `n` keys with a rate of at most `fpr`. Zero keys need as many
/// bits as one key.
///
/// # Errors
/// Returns the same errors as [`size`].
pub fn slices(n: u64, fpr: f64) -> Result<Slices, BuildError> {
    let size = |hash_funcs| Ok(Slices { slice_bits: slice_bits(n, hash_funcs, fpr)?, hash_funcs });
    smaller(fpr, "partitioned", size, |size| size.num_bits())
}

/// Returns the smallest number of bits per slice for `n` keys with a rate of at most `fpr` and the
/// given number of slices.
///
/// # Errors
/// Returns the same errors as [`num_bits`].
fn slice_bits(n: u64, hash_funcs: u32, fpr: f64) -> Result<u64, BuildError> {
    let n = n.max(1);
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(checked_hash_funcs(hash_funcs)?));
    let guess = 1.0 / -libm::expm1(libm::log1p(-share) / float(n));
    let most = MAX_BITS / u64::from(hash_funcs);
    let fits = |slice_bits| slices_fpr(n, Slices { slice_bits, hash_funcs }) <= fpr;
    let bits = if guess < float(most) { least(ceil(guess), most, fits) } else { None };
    bits.ok_or(BuildError::NoMemory(NoMemory { words: MAX_BITS / 64 }))
}

/// Returns the rate of a partitioned filter with `n` distinct keys.
pub fn slices_fpr(n: u64, size: Slices) -> f64 {
    libm::pow(slice_fill(n, size), f64::from(size.hash_funcs))
}

/// Returns the expected fraction of set bits in a slice after `n` distinct keys.
pub fn slice_fill(n: u64, size: Slices) -> f64 {
    any_of(float(n), 1.0 / float(size.slice_bits.max(1)))
}

/// Tightening ratio of [`ScalableBloomFilter`](crate::scalable::ScalableBloomFilter): the rate of
/// each stage is this fraction of the preceding stage's rate. Almeida and others recommend 0.8 to
/// 0.9. Of these ratios, 0.8 needs the least memory for filters that grow a hundredfold or more.
pub const TIGHTENING: f64 = 0.8;

/// Returns the false-positive rate of stage `stage` of a scalable filter, where 0 is the first
/// stage: `fpr·(1 - r)·r^stage`, where `r` is the tightening ratio.
///
/// A key that is not in the set is a false positive if any stage reports it, so the rates of the
/// stages add up. With this formula the sum is at most `fpr` for any number of stages. Several
/// packages use `fpr` itself as the rate of the first stage. The total rate of a filter of such a
/// package grows up to `1/(1 - r)` times the promised rate.
pub fn stage_fpr(fpr: f64, stage: u32) -> f64 {
    fpr * (1.0 - TIGHTENING) * libm::pow(TIGHTENING, f64::from(stage))
}

/// Returns the combined rate of several filters that are all queried: `1 - (1 - p₁)(1 - p₂)…`
pub fn compound_fpr(rates: impl IntoIterator<Item = f64>) -> f64 {
    -libm::expm1(rates.into_iter().map(|rate| libm::log1p(-rate)).sum())
}

/// Returns the capacity and the size of each stage that a scalable filter has after `n` insertions.
///
/// The first stage has a capacity of `first` keys, and each next stage has twice the capacity of the
/// preceding stage.
pub(super) fn scalable(n: u64, fpr: f64, first: u64) -> Result<Vec<(u64, Size)>, BuildError> {
    let (mut held, mut capacity) = (0u64, first.max(1));
    let (mut stages, mut stage) = (Vec::new(), 0);
    while held < n || stages.is_empty() {
        stages.push((capacity, size(capacity, stage_fpr(fpr, stage))?));
        stage += 1;
        held = held.saturating_add(capacity);
        capacity = capacity.saturating_mul(2);
    }
    Ok(stages)
}

/// Size of a rolling filter, whose cells each store the number of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolling {
    /// Number of cells, of two bits each.
    pub num_places: u64,
    /// Number of cells that a key sets.
    pub hash_funcs: u32,
    /// Number of keys in a generation.
    pub per_generation: u64,
}

/// Number of generations that a rolling filter remembers at the same time.
pub const GENERATIONS: u64 = 3;

impl Rolling {
    /// Returns the highest rate that the filter reaches: the rate when all three generations are
    /// full.
    pub fn fpr(self) -> f64 {
        let held = self.per_generation.saturating_mul(GENERATIONS);
        fpr(held, self.num_places, self.hash_funcs)
    }
}

/// Returns the smallest rolling filter that remembers the last `n` keys with a rate of at most
/// `fpr`.
///
/// The filter stores three generations of `n/2` keys. When the oldest generation is dropped, the
/// `n` keys inserted after that generation are still stored. The filter stores at most 1.5·n keys,
/// and the rate is computed for that number. The layout is that of Bitcoin Core's
/// `CRollingBloomFilter`. The sizes are slightly smaller than Core's, because the rates are
/// computed exactly.
///
/// # Errors
/// Returns the same errors as [`size`].
pub fn rolling(n: u64, fpr: f64) -> Result<Rolling, BuildError> {
    let per_generation = n.max(1).div_ceil(2);
    let held = per_generation.checked_mul(GENERATIONS);
    let held = held.ok_or(BuildError::NoMemory(NoMemory { words: n }))?;
    let Size { num_bits, hash_funcs } = size(held, fpr)?;
    Ok(Rolling { num_places: num_bits, hash_funcs, per_generation })
}

/// Returns the size of a classic filter with `hash_funcs` hash functions, and the expected length of
/// its compressed form in bits.
///
/// The gaps between set bits follow a geometric distribution. A Rice code with parameter `b` takes
/// `1 + b + x/(1 - x)` bits per gap on average, where `x = (1 - density)^(2^b)`.
fn compressed(n: u64, fpr: f64, hash_funcs: u32) -> Result<(Size, f64), BuildError> {
    let num_bits = num_bits(n, hash_funcs, fpr)?;
    let density = fill(n.max(1), num_bits, hash_funcs);
    let (_, code) = rice_code(density);
    Ok((Size { num_bits, hash_funcs }, code * density * float(num_bits)))
}

/// Returns the best Rice parameter, at most 32, for the gaps between set bits, where `density` is
/// the fraction of bits that are set.
pub(crate) fn rice_parameter(density: f64) -> u8 {
    u8::try_from(rice_code(density).0.min(32)).unwrap_or(0)
}

/// Returns the best Rice parameter for the gaps between set bits, and the mean length of a code in
/// bits, where `density` is the fraction of bits that are set.
fn rice_code(density: f64) -> (u64, f64) {
    let length = |b: u64| {
        let step = libm::exp2(float(b)) * libm::log1p(-density.clamp(0.0, 1.0));
        float(b) + 1.0 - libm::exp(step) / libm::expm1(step)
    };
    // As the parameter grows, the length first falls and then rises.
    let best = least(1, 57, |b| length(b - 1) <= length(b)).unwrap_or(57) - 1;
    (best, length(best))
}

/// Returns the size of a filter that is to be compressed, and the expected length of its code in
/// bits.
///
/// The number of hash functions is the smallest for which the decompressed filter has at most
/// sixteen times the bits of the smallest filter for these keys and this rate.
///
/// # Errors
/// Returns the same errors as [`size`].
pub fn compressed_size(n: u64, fpr: f64) -> Result<(Size, f64), BuildError> {
    let least = size(n, fpr)?;
    let is_small = |size: Size| size.num_bits <= least.num_bits.saturating_mul(16);
    let sizes = (1..least.hash_funcs).filter_map(|few| compressed(n, fpr, few).ok());
    let small = { sizes }.find(|(size, _)| is_small(*size));
    small.map_or_else(|| compressed(n, fpr, least.hash_funcs), Ok)
}
