//! Sizes of filters that consist of stages or generations: scalable, rolling and compressed
//! filters.

use alloc::vec::Vec;

use super::classic::{self, Size};
use super::math::{checked, float, least};
use super::{MAX_HASH_FUNCS, SizingError};
use crate::words::NoMemory;

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
pub fn stage_fpr(fpr: f64, tightening: f64, stage: u32) -> f64 {
    fpr * (1.0 - tightening) * libm::pow(tightening, f64::from(stage))
}

/// Returns the combined rate of several filters that are all queried: `1 - (1 - p₁)(1 - p₂)…`
pub fn compound_fpr(rates: impl IntoIterator<Item = f64>) -> f64 {
    -libm::expm1(rates.into_iter().map(|rate| libm::log1p(-rate)).sum())
}

/// Returns the capacity and the size of each stage that a scalable filter has after `n` insertions.
///
/// The first stage has a capacity of `first` keys, and each next stage has `growth` times the
/// capacity of the preceding stage.
///
/// # Errors
/// Returns the same errors as [`classic::size`]. Also returns an error if `growth` is below 2, or
/// if `tightening` is not between 0 and 1.
pub fn scalable(
    n: u64,
    fpr: f64,
    first: u64,
    growth: u32,
    tightening: f64,
) -> Result<impl Iterator<Item = (u64, Size)> + Clone, SizingError> {
    checked(fpr)?;
    checked(tightening)?;
    if growth < 2 {
        let (value, min, max) = (growth.into(), 2, u32::MAX.into());
        return Err(SizingError::Parameter { what: "a growth factor", value, min, max });
    }
    let (mut held, mut capacity) = (0u64, first.max(1));
    let (mut sizes, mut stage) = (Vec::new(), 0);
    while held < n || sizes.is_empty() {
        let rate = stage_fpr(fpr, tightening, stage);
        sizes.push((capacity, classic::size(capacity, rate)?));
        stage += 1;
        held = held.saturating_add(capacity);
        capacity = capacity.saturating_mul(growth.into());
    }
    Ok(sizes.into_iter())
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
        classic::fpr(held, self.num_places, self.hash_funcs)
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
/// Returns the same errors as [`classic::size`].
pub fn rolling(n: u64, fpr: f64) -> Result<Rolling, SizingError> {
    let per_generation = n.max(1).div_ceil(2);
    let held = per_generation.checked_mul(GENERATIONS);
    let held = held.ok_or(SizingError::NoMemory(NoMemory { words: n }))?;
    let Size { num_bits, hash_funcs } = classic::size(held, fpr)?;
    Ok(Rolling { num_places: num_bits, hash_funcs, per_generation })
}

/// Returns the size of a classic filter with `hash_funcs` hash functions, the expected length of
/// its compressed form in bits, and the Rice parameter of the code.
///
/// The gaps between set bits follow a geometric distribution. A Rice code with parameter `b` takes
/// `1 + b + x/(1 - x)` bits per gap on average, where `x = (1 - density)^(2^b)`.
///
/// # Errors
/// Returns the same errors as [`classic::num_bits`].
pub fn compressed(n: u64, fpr: f64, hash_funcs: u32) -> Result<(Size, f64, u64), SizingError> {
    let num_bits = classic::num_bits(n, hash_funcs, fpr)?;
    let density = classic::fill(n.max(1), num_bits, hash_funcs);
    let (parameter, code) = rice_code(density);
    Ok((Size { num_bits, hash_funcs }, code * density * float(num_bits), parameter))
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
/// Returns the same errors as [`classic::size`].
pub fn compressed_size(n: u64, fpr: f64) -> Result<(Size, f64), SizingError> {
    let least = classic::size(n, fpr)?;
    for hash_funcs in 1..least.hash_funcs.min(MAX_HASH_FUNCS) {
        match compressed(n, fpr, hash_funcs) {
            Ok((size, code, _)) if size.num_bits <= least.num_bits.saturating_mul(16) => {
                return Ok((size, code));
            }
            _ => {}
        }
    }
    let (size, code, _) = compressed(n, fpr, least.hash_funcs)?;
    Ok((size, code))
}
