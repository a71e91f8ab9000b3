//! How many buckets are made for so many keys.

use super::bucket::SLOTS;
use crate::sizing::cuckoo::least_buckets;

/// As many keys fit into one bucket whatever they are.
const ONE_BUCKET: u64 = SLOTS as u64;

/// The buckets that so many keys fit into but for one set in a million: those of a load of 94 %,
/// and a few more. The few are for small sets: there, keys whose two buckets are one are not rare,
/// and five of them for the same bucket don't fit however much else is free.
pub(super) fn buckets_for(capacity: u64) -> u64 {
    if capacity <= ONE_BUCKET {
        return 1;
    }
    let least = least_buckets(capacity);
    least.saturating_add(16_u64.saturating_sub(least / 8).max(4))
}

/// The most keys that [`buckets_for`] gives so many buckets, or fewer.
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
