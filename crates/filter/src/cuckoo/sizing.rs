//! The number of buckets for a given capacity, and the reverse.

use super::bucket::SLOTS;
use crate::sizing::cuckoo::least_buckets;

/// Number of keys that fit into one bucket, whatever their hashes are.
const ONE_BUCKET: u64 = SLOTS as u64;

/// Returns the number of buckets for `capacity` keys: those for a load of 94 %, and a few more.
///
/// The probability that a set of keys does not fit into its filter is below one in a million. The
/// additional buckets matter for small sets. In a small set it is not rare that both buckets of a
/// key are the same bucket, and five such keys for one bucket don't fit, even if other buckets are
/// free.
pub(super) fn buckets_for(capacity: u64) -> u64 {
    if capacity <= ONE_BUCKET {
        return 1;
    }
    let least = least_buckets(capacity);
    least.saturating_add(16_u64.saturating_sub(least / 8).max(4))
}

/// Returns the greatest number of keys for which [`buckets_for`] returns at most `buckets`.
pub(super) fn capacity_of(buckets: u64) -> u64 {
    let (mut fits, mut too_many) = (ONE_BUCKET, buckets.saturating_mul(ONE_BUCKET) + 1);
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
