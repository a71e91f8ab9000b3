//! Sizes of cuckoo filters: fingerprints of 8, 12 or 16 bits in buckets of four slots, and two
//! buckets for each key.
//!
//! A query compares a fingerprint with those in two buckets. For a key outside the set, each
//! comparison succeeds with probability `1/(2^f - 1)`, where `f` is the width in bits and the value
//! 0 marks an empty slot. With a load `α`, `8α` of the eight slots in these two buckets are filled
//! on average. The rate is therefore `1 - (1 - 1/(2^f - 1))^(8α)`, about `8α/2^f`.
//!
//! Insertion begins to fail at a load of 0.955 to 0.98, which depends on chance. Up to [`MAX_LOAD`]
//! no failure was observed with 10³ buckets or more. With few buckets, insertion can fail at any
//! useful load, and then returns the error `Full`.

use super::math::{BuildError, any_of, ceil, checked, float};
use crate::words::NoMemory;

/// Number of slots in a bucket.
pub const SLOTS: u32 = 4;
/// Highest load for which a filter is sized: the fraction of slots that are filled.
pub const MAX_LOAD: f64 = 0.94;
/// Lowest load for which a filter is sized. A lower load would give a lower rate, but would waste
/// too much memory. So a rate that needs a lower load is rejected.
const MIN_LOAD: f64 = 0.25;
/// Greatest number of buckets. No computer has memory for more buckets.
const MAX_BUCKETS: u64 = 1 << 50;

/// Returns the rate of a filter with `n` keys in `num_buckets` buckets.
pub fn fpr(n: u64, num_buckets: u64, fingerprint_bits: u32) -> f64 {
    let buckets = float(num_buckets.max(1));
    let equal = 1.0 / (libm::exp2(f64::from(fingerprint_bits)) - 1.0);
    let taken = (float(n) / buckets).min(f64::from(SLOTS));
    // With probability `1/buckets`, both buckets of a key are the same bucket.
    let (both, one) = (any_of(2.0 * taken, equal), any_of(taken, equal));
    both + (one - both) / buckets
}

/// Returns the smallest number of buckets for `n` keys with a rate of at most `fpr` and a load of
/// at most [`MAX_LOAD`].
///
/// The number is at least 2. If fingerprints of this width reach the rate only at a load below
/// [`MAX_LOAD`], more buckets are needed.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, if the rate would need a load below a quarter,
/// or if the filter would be larger than any memory.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::cuckoo;
/// // 17.02 bits per key, at a rate of 1.15e-4.
/// assert_eq!(cuckoo::num_buckets(1_000_000, 1.2e-4, 16)?, 265_958);
/// # Ok::<(), chainsieve_filter::sizing::BuildError>(())
/// ```
pub fn num_buckets(n: u64, fpr: f64, fingerprint_bits: u32) -> Result<u64, BuildError> {
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
        return Err(BuildError::OutOfReach { fpr, layout, best });
    }
    let fits = |buckets| self::fpr(n, buckets, fingerprint_bits) <= fpr;
    Ok(super::math::least(least, most, fits).unwrap_or(most).max(least))
}

/// Returns the smallest number of buckets for `n` keys at a load of at most [`MAX_LOAD`],
/// regardless of the rate, and at least 2.
pub fn least_buckets(n: u64) -> u64 {
    ceil(float(n) / (MAX_LOAD * f64::from(SLOTS))).max(2)
}

/// Returns the number of buckets for `capacity` keys: those for a load of 94 %, and a few more.
///
/// The probability that a set of keys does not fit into its filter is below one in a million. The
/// additional buckets matter for small sets. In a small set it is not rare that both buckets of a
/// key are the same bucket, and five such keys for one bucket don't fit, even if other buckets are
/// free.
pub(crate) fn buckets_for(capacity: u64) -> u64 {
    // The keys fit into one bucket, whatever their hashes are.
    if capacity <= SLOTS.into() {
        return 1;
    }
    let least = least_buckets(capacity);
    least.saturating_add(16_u64.saturating_sub(least / 8).max(4))
}

/// Returns the greatest number of keys for which [`buckets_for`] returns at most `buckets`.
pub(crate) fn capacity_of(buckets: u64) -> u64 {
    let slots = u64::from(SLOTS);
    let (mut fits, mut too_many) = (slots, buckets.saturating_mul(slots) + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if buckets_for(middle) <= buckets {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}
