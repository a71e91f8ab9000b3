//! Sizes of layouts whose rate depends only on the width of their fingerprints: binary fuse and
//! ribbon filters, and hash tables of tags. This module also computes the lower bound for all
//! filters.

use super::SizingError;
use super::math::{ceil, checked, float, floor, small};

/// Returns the number of slots of a 3-wise binary fuse filter for `n` keys, as the code of its
/// authors computes it. Sets of about a million keys or more have 1.125 slots per key, and smaller
/// sets have more slots per key.
///
/// Construction fails with a certain probability even for distinct hashes, and is then repeated
/// with another seed. Near n = 11,500, 20 to 40 % of the attempts fail with these sizes
/// (found by users of `xor_singleheader`).
pub fn fuse_slots(n: u64) -> u64 {
    if n <= 1 {
        return if n == 0 { 0 } else { 3 * 4 };
    }
    let keys = float(n);
    let ln = libm::log(keys);
    let length = 1u64 << floor(ln / libm::log(3.33) + 2.25).min(18);
    let factor = (0.875 + 0.25 * libm::log(1e6) / ln).max(1.125);
    let capacity = floor(keys * factor + 0.5);
    let segments = capacity.div_ceil(length).saturating_sub(2).max(1);
    segments.saturating_add(2).saturating_mul(length)
}

/// Returns the rate of a static filter with fingerprints of this width: `2^-fingerprint_bits`, for
/// any number of keys.
pub fn fingerprint_fpr(fingerprint_bits: u32) -> f64 {
    libm::exp2(-f64::from(fingerprint_bits))
}

/// Width of a row in a ribbon filter, in bits.
pub const RIBBON_WIDTH: u64 = 128;
/// Ratio of extra rows to keys in a ribbon filter. With this ratio, a single system of equations of
/// width [`RIBBON_WIDTH`] can be solved for up to about ten million keys.
pub const RIBBON_OVERHEAD: f64 = 0.05;

/// Returns the number of columns of a ribbon filter with a rate of at most `fpr`: log2(1/p) rounded
/// up, from 1 to 32.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, or is below 2⁻³².
pub fn ribbon_columns(fpr: f64) -> Result<u32, SizingError> {
    let columns = ceil(-libm::log2(checked(fpr)?)).max(1);
    if columns > 32 {
        return Err(SizingError::OutOfReach { fpr, layout: "ribbon", best: fingerprint_fpr(32) });
    }
    Ok(small(columns))
}

/// Returns the number of rows of a ribbon filter for `n` keys: `n` plus 5 %, plus the width of the
/// ribbon less one.
pub fn ribbon_rows(n: u64) -> u64 {
    ceil(float(n) * (1.0 + RIBBON_OVERHEAD)).saturating_add(RIBBON_WIDTH - 1)
}

/// Returns the size in bytes of a hash table of 64-bit tags for `n` keys, in the layout of
/// `hashbrown`: the number of buckets is a power of two, at most seven eighths of the buckets are
/// filled, and each bucket has one control byte.
pub fn exact_table_bytes(n: u64) -> u64 {
    let buckets = match n {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        _ => (n.saturating_mul(8) / 7).checked_next_power_of_two().unwrap_or(1 << 63),
    };
    buckets.saturating_mul(9).saturating_add(16)
}

/// Returns the rate of a table of `n` tags of `tag_bits` bits: the probability that a key outside
/// the set has an equal tag.
pub fn tag_fpr(n: u64, tag_bits: u32) -> f64 {
    super::math::any_of(float(n), libm::exp2(-f64::from(tag_bits)))
}

/// Returns the smallest number of bits that any filter for `n` keys can have: `n·log2(1/p)`.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn floor_bits(n: u64, fpr: f64) -> Result<f64, SizingError> {
    Ok(float(n) * -libm::log2(checked(fpr)?))
}
