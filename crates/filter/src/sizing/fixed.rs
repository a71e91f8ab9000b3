//! Layouts whose rate is that of their fingerprints: binary fuse, ribbon, tables; and the floor.

use super::SizingError;
use super::math::{ceil, checked, float, floor, small};

/// The slots of a 3-wise binary fuse filter of `n` keys, as its paper's code computes them: 1.125
/// for a key from about a million on, more for fewer.
///
/// Construction from distinct hashes fails by chance and is repeated under another seed; near
/// n = 11,500 these sizes fail in 20 to 40 % of attempts (`xor_singleheader`, issue 77).
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

/// The rate of a static filter of fingerprints of so many bits, whatever their number.
pub fn fingerprint_fpr(fingerprint_bits: u32) -> f64 {
    libm::exp2(-f64::from(fingerprint_bits))
}

/// Bits of a row in a ribbon filter.
pub const RIBBON_WIDTH: u64 = 128;
/// Keys of a shard of a ribbon filter, about: a single system of equations of this width solves
/// with the space below up to some ten million.
pub const RIBBON_OVERHEAD: f64 = 0.05;

/// The columns of a ribbon filter of the rate `fpr`: log2(1/p), rounded up, from 1 to 32.
///
/// # Errors
/// If the rate is none, or below 2⁻³².
pub fn ribbon_columns(fpr: f64) -> Result<u32, SizingError> {
    let columns = ceil(-libm::log2(checked(fpr)?)).max(1);
    if columns > 32 {
        return Err(SizingError::OutOfReach { fpr, layout: "ribbon", best: fingerprint_fpr(32) });
    }
    Ok(small(columns))
}

/// The rows of a ribbon filter of `n` keys: 5 % above their number, and the width of the ribbon.
pub fn ribbon_rows(n: u64) -> u64 {
    ceil(float(n) * (1.0 + RIBBON_OVERHEAD)).saturating_add(RIBBON_WIDTH - 1)
}

/// The bytes of a hash table of tags of 64 bits for `n` keys, as `hashbrown` lays it out: a power
/// of two of buckets, at most seven eighths of them taken, a byte beside each tag.
pub fn exact_table_bytes(n: u64) -> u64 {
    let buckets = match n {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        _ => (n.saturating_mul(8) / 7).checked_next_power_of_two().unwrap_or(1 << 63),
    };
    buckets.saturating_mul(9).saturating_add(16)
}

/// The rate of a table of tags of so many bits: the chance of an equal tag.
pub fn tag_fpr(n: u64, tag_bits: u32) -> f64 {
    super::math::any_of(float(n), libm::exp2(-f64::from(tag_bits)))
}

/// The fewest bits that any filter of `n` keys can have: `n·log2(1/p)`.
///
/// # Errors
/// If the rate is none.
pub fn floor_bits(n: u64, fpr: f64) -> Result<f64, SizingError> {
    Ok(float(n) * -libm::log2(checked(fpr)?))
}
