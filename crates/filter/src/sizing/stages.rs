//! Filters of several stages: scalable ones, that grow, and rolling ones, that forget.

use alloc::vec::Vec;

use super::classic::{self, Size};
use super::math::{checked, float, least};
use super::{MAX_HASH_FUNCS, SizingError};
use crate::words::NoMemory;

/// What [`ScalableBloomFilter`](crate::scalable::ScalableBloomFilter) tightens by: the rate of each
/// stage is this share of the one before. Almeida and others advise 0.8 to 0.9; from a hundredfold
/// growth on that takes the least memory.
pub const TIGHTENING: f64 = 0.8;

/// The rate of stage `stage` (0 is the first) of a scalable filter: `fpr·(1 - r)·r^stage`.
///
/// A stranger is found if any stage finds it, so the rates add up, and with these they add up to
/// `fpr` at most, however many stages there will be. A first stage of rate `fpr` itself, as
/// several packages have it, ends at up to `1/(1 - r)` times the rate promised.
pub fn stage_fpr(fpr: f64, tightening: f64, stage: u32) -> f64 {
    fpr * (1.0 - tightening) * libm::pow(tightening, f64::from(stage))
}

/// The rate of several filters that are all asked: `1 - (1 - p₁)(1 - p₂)…`
pub fn compound_fpr(rates: impl IntoIterator<Item = f64>) -> f64 {
    -libm::expm1(rates.into_iter().map(|rate| libm::log1p(-rate)).sum())
}

/// The stages that a scalable filter has when it holds `n` keys: the capacity of each and its
/// size. The first is for `first` keys, each next one for `growth` times as many.
///
/// # Errors
/// As [`classic::size`]; also if there is no growth below two, or `tightening` is not between 0
/// and 1.
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
        return Err(SizingError::Parameter { what: "a growth", value, min, max });
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

/// A rolling filter, of places that hold the number of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolling {
    /// Places, of two bits each.
    pub num_places: u64,
    /// Places of a key.
    pub hash_funcs: u32,
    /// Keys of a generation.
    pub per_generation: u64,
}

/// Generations of a rolling filter that hold keys at a time.
pub const GENERATIONS: u64 = 3;

impl Rolling {
    /// The rate when the filter holds most: three generations.
    pub fn fpr(self) -> f64 {
        let held = self.per_generation.saturating_mul(GENERATIONS);
        classic::fpr(held, self.num_places, self.hash_funcs)
    }
}

/// The smallest rolling filter that remembers the last `n` keys: it holds three generations of
/// `n/2`, so that there are `n` between the oldest that it forgets and the newest, and 1.5·n at
/// most, for which it has the rate `fpr`. The layout is that of Bitcoin Core's
/// `CRollingBloomFilter`, the sizes are smaller by what exact rates make of them.
///
/// # Errors
/// As [`classic::size`].
pub fn rolling(n: u64, fpr: f64) -> Result<Rolling, SizingError> {
    let per_generation = n.max(1).div_ceil(2);
    let held = per_generation.checked_mul(GENERATIONS);
    let held = held.ok_or(SizingError::NoMemory(NoMemory { words: n }))?;
    let Size { num_bits, hash_funcs } = classic::size(held, fpr)?;
    Ok(Rolling { num_places: num_bits, hash_funcs, per_generation })
}

/// The bits of a classic filter with so few hash functions that its coded form is small, and what
/// the code is expected to take: (bits of the filter, bits of the code, Rice parameter).
///
/// The gaps between bits that are set are geometric; a Rice code of parameter `b` takes
/// `1 + b + x/(1 - x)` bits for one on average, where `x = (1 - density)^(2^b)`.
///
/// # Errors
/// As [`classic::num_bits`].
pub fn compressed(n: u64, fpr: f64, hash_funcs: u32) -> Result<(Size, f64, u64), SizingError> {
    let num_bits = classic::num_bits(n, hash_funcs, fpr)?;
    let density = classic::fill(n.max(1), num_bits, hash_funcs);
    let (parameter, code) = rice_code(density);
    Ok((Size { num_bits, hash_funcs }, code * density * float(num_bits), parameter))
}

/// The Rice parameter for gaps between bits of this density, at most 32.
pub(crate) fn rice_parameter(density: f64) -> u8 {
    u8::try_from(rice_code(density).0.min(32)).unwrap_or(0)
}

/// The Rice parameter for gaps between bits of this density, and the mean length of a code.
fn rice_code(density: f64) -> (u64, f64) {
    let length = |b: u64| {
        let step = libm::exp2(float(b)) * libm::log1p(-density.clamp(0.0, 1.0));
        float(b) + 1.0 - libm::exp(step) / libm::expm1(step)
    };
    // Lengths fall, then rise.
    let best = least(1, 57, |b| length(b - 1) <= length(b)).unwrap_or(57) - 1;
    (best, length(best))
}

/// The best number of hash functions for a coded filter, as few as possible while the filter
/// itself has at most sixteen times the bits of the smallest one.
///
/// # Errors
/// As [`classic::size`].
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
