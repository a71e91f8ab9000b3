//! Partitioned Bloom filters: `k` slices, a bit in each.
//!
//! A slice of `s` bits has the share `1 - (1 - 1/s)^n` set on average and slices don't depend on
//! each other, so the rate is that to the `k`th power: exact, for any size. It is a little above
//! the classic filter's of as many bits, as two positions of a key never fall together.

use super::SizingError;
use super::classic::{checked_hash_funcs, smaller};
use super::math::{MAX_BITS, any_of, ceil, checked, float, floor, greatest, least};
use crate::words::NoMemory;

/// Slices and their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bits of a slice.
    pub slice_bits: u64,
    /// Slices: one for each hash function.
    pub hash_funcs: u32,
}

impl Size {
    /// Bits of all slices.
    pub const fn num_bits(self) -> u64 {
        self.slice_bits.saturating_mul(self.hash_funcs as u64)
    }
}

/// The smallest filter for `n` keys at the rate `fpr`. No keys take as much as one.
///
/// # Errors
/// As [`classic::size`](super::classic::size).
pub fn size(n: u64, fpr: f64) -> Result<Size, SizingError> {
    let size = |hash_funcs| Ok(Size { slice_bits: slice_bits(n, hash_funcs, fpr)?, hash_funcs });
    smaller(fpr, "partitioned", size, |size| size.num_bits())
}

/// The fewest bits of a slice, for `n` keys at the rate `fpr` with so many slices.
///
/// # Errors
/// As [`classic::num_bits`](super::classic::num_bits).
pub fn slice_bits(n: u64, hash_funcs: u32, fpr: f64) -> Result<u64, SizingError> {
    let n = n.max(1);
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(checked_hash_funcs(hash_funcs)?));
    let guess = 1.0 / -libm::expm1(libm::log1p(-share) / float(n));
    let most = MAX_BITS / u64::from(hash_funcs);
    let fits = |slice_bits| self::fpr(n, Size { slice_bits, hash_funcs }) <= fpr;
    let bits = if guess < float(most) { least(ceil(guess), most, fits) } else { None };
    bits.ok_or(SizingError::NoMemory(NoMemory { words: MAX_BITS / 64 }))
}

/// How many keys a filter holds at the rate `fpr`.
///
/// # Errors
/// If the rate is none.
pub fn capacity(size: Size, fpr: f64) -> Result<u64, SizingError> {
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(size.hash_funcs.max(1)));
    let guess = -libm::log1p(-share) * float(size.slice_bits);
    Ok(greatest(floor(guess), MAX_BITS, |n| self::fpr(n, size) <= fpr))
}

/// The rate with `n` distinct keys.
pub fn fpr(n: u64, size: Size) -> f64 {
    libm::pow(fill(n, size), f64::from(size.hash_funcs))
}

/// How full a slice is with `n` distinct keys, on average.
pub fn fill(n: u64, size: Size) -> f64 {
    any_of(float(n), 1.0 / float(size.slice_bits.max(1)))
}
