//! Sizes of classic Bloom filters, where every key sets `k` of `m` bits anywhere in the filter.
//!
//! The false-positive rate is `E[(X/m)^k]`, where `X` is the number of bits that are set after
//! `n·k` random positions were chosen among `m`. The textbook formula `(1 - e^(-kn/m))^k` uses the
//! mean of `X` in place of `X`. The formula's result is always too low (Bose and others 2008;
//! Christensen and others 2010): by 5 % for `m` = 128 and `k` = 7, by 0.6 % for `m` = 1,024, and by
//! a negligible amount for a million bits.

use super::math::{MAX_BITS, any_of, ceil, checked, float, floor, greatest, least, small};
use super::{MAX_HASH_FUNCS, SizingError};
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
/// # Ok::<(), chainsieve_filter::sizing::SizingError>(())
/// ```
pub fn size(n: u64, fpr: f64) -> Result<Size, SizingError> {
    let size = |hash_funcs| Ok(Size { num_bits: num_bits(n, hash_funcs, fpr)?, hash_funcs });
    smaller(fpr, "bloom", size, |size| size.num_bits)
}

/// Returns the smaller of two sizes: with log2(1/p) hash functions rounded down, and rounded up.
pub(super) fn smaller<S>(
    fpr: f64,
    layout: &'static str,
    size: impl Fn(u32) -> Result<S, SizingError>,
    num_bits: impl Fn(&S) -> u64,
) -> Result<S, SizingError> {
    let bits_of_rate = -libm::log2(checked(fpr)?);
    if bits_of_rate > f64::from(MAX_HASH_FUNCS) {
        let best = libm::exp2(-f64::from(MAX_HASH_FUNCS));
        return Err(SizingError::OutOfReach { fpr, layout, best });
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
pub fn num_bits(n: u64, hash_funcs: u32, fpr: f64) -> Result<u64, SizingError> {
    let (n, k) = (n.max(1), f64::from(checked_hash_funcs(hash_funcs)?));
    // The textbook formula is close enough to be the start of the search.
    let share = libm::exp(libm::log(checked(fpr)?) / k);
    let guess = k * float(n) / -libm::log1p(-share);
    if guess > float(MAX_BITS) {
        return Err(NoMemory { words: ceil(guess / 64.0) }.into());
    }
    let fits = |bits| self::fpr(n, bits, hash_funcs) <= fpr;
    let bits = least(ceil(guess), MAX_BITS, fits);
    bits.ok_or(SizingError::NoMemory(NoMemory { words: MAX_BITS / 64 }))
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

/// Returns the greatest number of keys for which a filter of this size has a rate of at most `fpr`.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn capacity(size: Size, fpr: f64) -> Result<u64, SizingError> {
    let k = f64::from(size.hash_funcs.max(1));
    let share = libm::exp(libm::log(checked(fpr)?) / k);
    let guess = -libm::log1p(-share) * float(size.num_bits) / k;
    let fits = |n| self::fpr(n, size.num_bits, size.hash_funcs) <= fpr;
    Ok(greatest(floor(guess), MAX_BITS, fits))
}

/// Returns the rate of a filter with `n` distinct keys, averaged over all hash functions. The rate
/// of one particular filter with `X` set bits is `(X/m)^k`.
///
/// The result is exact, up to rounding, for filters of up to 8,192 bits (and for larger ones with
/// many hash functions). For larger filters, the mean and the variance of `X` are exact, and its
/// higher moments are those of a log-normal variable. The error of this approximation is less than
/// 10⁻⁴ of the rate, and falls as the number of bits grows.
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

pub(crate) fn checked_hash_funcs(hash_funcs: u32) -> Result<u32, SizingError> {
    let (value, max) = (hash_funcs.into(), MAX_HASH_FUNCS.into());
    SizingError::unless_within("a number of hash functions", value, max)?;
    Ok(hash_funcs)
}
