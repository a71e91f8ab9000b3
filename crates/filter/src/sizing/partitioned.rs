//! Sizes of partitioned Bloom filters: `k` slices, and each key sets one bit in each slice.
//!
//! In a slice of `s` bits, the mean fraction of set bits is `1 - (1 - 1/s)^n`. Slices are
//! independent of each other, so the rate is exactly the `k`th power of this fraction, for any
//! size. The rate is slightly above that of a classic filter with as many bits, because two
//! positions of a key never coincide.

use super::SizingError;
use super::classic::{checked_hash_funcs, smaller};
use super::math::{MAX_BITS, any_of, ceil, checked, float, floor, greatest, least};
use crate::words::NoMemory;

/// Number of slices and length of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of bits in a slice.
    pub slice_bits: u64,
    /// Number of slices, one for each hash function.
    pub hash_funcs: u32,
}

impl Size {
    /// Returns the number of bits of all slices.
    pub const fn num_bits(self) -> u64 {
        self.slice_bits.saturating_mul(self.hash_funcs as u64)
    }
}

/// Returns the smallest filter for `n` keys with a rate of at most `fpr`. Zero keys need as many
/// bits as one key.
///
/// # Errors
/// Returns the same errors as [`classic::size`](super::classic::size).
pub fn size(n: u64, fpr: f64) -> Result<Size, SizingError> {
    let size = |hash_funcs| Ok(Size { slice_bits: slice_bits(n, hash_funcs, fpr)?, hash_funcs });
    smaller(fpr, "partitioned", size, |size| size.num_bits())
}

/// Returns the smallest number of bits per slice for `n` keys with a rate of at most `fpr` and the
/// given number of slices.
///
/// # Errors
/// Returns the same errors as [`classic::num_bits`](super::classic::num_bits).
pub fn slice_bits(n: u64, hash_funcs: u32, fpr: f64) -> Result<u64, SizingError> {
    let n = n.max(1);
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(checked_hash_funcs(hash_funcs)?));
    let guess = 1.0 / -libm::expm1(libm::log1p(-share) / float(n));
    let most = MAX_BITS / u64::from(hash_funcs);
    let fits = |slice_bits| self::fpr(n, Size { slice_bits, hash_funcs }) <= fpr;
    let bits = if guess < float(most) { least(ceil(guess), most, fits) } else { None };
    bits.ok_or(SizingError::NoMemory(NoMemory { words: MAX_BITS / 64 }))
}

/// Returns the greatest number of keys for which a filter of this size has a rate of at most `fpr`.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn capacity(size: Size, fpr: f64) -> Result<u64, SizingError> {
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(size.hash_funcs.max(1)));
    let guess = -libm::log1p(-share) * float(size.slice_bits);
    Ok(greatest(floor(guess), MAX_BITS, |n| self::fpr(n, size) <= fpr))
}

/// Returns the rate of a filter with `n` distinct keys.
pub fn fpr(n: u64, size: Size) -> f64 {
    libm::pow(fill(n, size), f64::from(size.hash_funcs))
}

/// Returns the expected fraction of set bits in a slice after `n` distinct keys.
pub fn fill(n: u64, size: Size) -> f64 {
    any_of(float(n), 1.0 / float(size.slice_bits.max(1)))
}
