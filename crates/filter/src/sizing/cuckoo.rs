//! Cuckoo filters: fingerprints of 8, 12 or 16 bits in buckets of four, two buckets for a key.
//!
//! A stranger is compared with the fingerprints of two buckets, each equal by chance `1/(2^f - 1)`
//! (0 is the empty slot). Twice four slots of which the load `α` is taken give
//! `1 - (1 - 1/(2^f - 1))^(8α)`, about `8α/2^f`.
//!
//! Insertion fails near a load of 0.955 to 0.98, by chance. Up to [`MAX_LOAD`] it has not been
//! seen to fail with 10³ and more buckets; with few buckets the chance is there at any load that
//! is of use, and a filter says that it is full.

use super::SizingError;
use super::math::{any_of, ceil, checked, float, floor, greatest};
use crate::words::NoMemory;

/// Slots of a bucket.
pub const SLOTS: u32 = 4;
/// The share of slots that a filter is planned to fill.
pub const MAX_LOAD: f64 = 0.94;
/// A lower load makes a lower rate; a table that is emptier than this is refused.
const MIN_LOAD: f64 = 0.25;
const MAX_BUCKETS: u64 = 1 << 50;

/// The rate with `n` keys in so many buckets.
pub fn fpr(n: u64, num_buckets: u64, fingerprint_bits: u32) -> f64 {
    let buckets = float(num_buckets.max(1));
    let equal = 1.0 / (libm::exp2(f64::from(fingerprint_bits)) - 1.0);
    let taken = (float(n) / buckets).min(f64::from(SLOTS));
    // One bucket in `buckets` is its own alternative.
    let (both, one) = (any_of(2.0 * taken, equal), any_of(taken, equal));
    both + (one - both) / buckets
}

/// The fewest buckets for `n` keys at the rate `fpr`, at a load of at most [`MAX_LOAD`], and
/// never fewer than two. A rate that fingerprints of this width have at a lower load only takes
/// more buckets.
///
/// # Errors
/// If the rate is none, or would take a load below a quarter, or no memory could be
/// as large.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::cuckoo;
/// // 17.02 bits for a key, at 1.15e-4.
/// assert_eq!(cuckoo::num_buckets(1_000_000, 1.2e-4, 16)?, 265_958);
/// # Ok::<(), chainsieve_filter::sizing::SizingError>(())
/// ```
pub fn num_buckets(n: u64, fpr: f64, fingerprint_bits: u32) -> Result<u64, SizingError> {
    checked(fpr)?;
    let keys_per_bucket = |load: f64| load * f64::from(SLOTS);
    let least = least_buckets(n);
    if least >= MAX_BUCKETS {
        return Err(
            NoMemory { words: least.saturating_mul(u64::from(fingerprint_bits)) / 16 }.into()
        );
    }
    if self::fpr(n, least, fingerprint_bits) <= fpr {
        return Ok(least);
    }
    let most = ceil(float(n) / keys_per_bucket(MIN_LOAD)).max(least);
    let best = self::fpr(n, most, fingerprint_bits);
    if best > fpr {
        let layout = match fingerprint_bits {
            8 => "cuckoo8",
            12 => "cuckoo12",
            _ => "cuckoo16",
        };
        return Err(SizingError::OutOfReach { fpr, layout, best });
    }
    let fits = |buckets| self::fpr(n, buckets, fingerprint_bits) <= fpr;
    Ok(super::math::least(least, most, fits).unwrap_or(most).max(least))
}

/// The fewest buckets for `n` keys, whatever the rate: a load of [`MAX_LOAD`], and two at least.
pub fn least_buckets(n: u64) -> u64 {
    ceil(float(n) / (MAX_LOAD * f64::from(SLOTS))).max(2)
}

/// How many keys so many buckets hold at a load of [`MAX_LOAD`].
pub fn max_len(num_buckets: u64) -> u64 {
    floor(float(num_buckets) * f64::from(SLOTS) * MAX_LOAD)
}

/// How many keys so many buckets hold at the rate `fpr` and a load of at most [`MAX_LOAD`].
///
/// # Errors
/// If the rate is none.
pub fn capacity(num_buckets: u64, fpr: f64, fingerprint_bits: u32) -> Result<u64, SizingError> {
    checked(fpr)?;
    let most = max_len(num_buckets);
    let fits = |n| self::fpr(n, num_buckets, fingerprint_bits) <= fpr;
    Ok(if most == 0 { 0 } else { greatest(most, most, fits) })
}
