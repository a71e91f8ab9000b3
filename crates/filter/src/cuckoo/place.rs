//! The fingerprint and the two buckets of a hash. Each bucket can be computed from the fingerprint
//! and the other bucket.

use crate::hashing::fmix64;

/// Greatest number of buckets. The bucket comes from the high 32 bits of a hash and the fingerprint
/// from the low 32, so no bit of the hash determines both.
pub(super) const MAX_BUCKETS: u64 = 1 << 32;

/// A fingerprint and its two buckets, which may be the same bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) fingerprint: u32,
}

impl Place {
    /// Computes the fingerprint and the buckets of a hash, for `buckets` buckets.
    #[inline(always)]
    pub(super) fn of<const BITS: u32>(hash: u64, buckets: u64) -> Self {
        Self::in_bucket(scale(hash, buckets), fingerprint_of::<BITS>(hash), buckets)
    }

    /// Computes the other bucket of a fingerprint from one of its buckets.
    #[inline(always)]
    pub(super) const fn in_bucket(first: u32, fingerprint: u32, buckets: u64) -> Self {
        Self { first, second: other_bucket(first, fingerprint, buckets), fingerprint }
    }
}

/// Computes the fingerprint of a hash, from 1 to 2^BITS − 1. The value 0 marks free slots.
///
/// The low 32 bits of the hash are scaled to this range. So the probabilities of the values differ
/// by at most one part in 2^(32 − BITS), which is 65,536 for 16 bits. Taking `BITS` bits of the
/// hash and replacing zero by one would make one value twice as likely as the others.
#[inline(always)]
pub(super) const fn fingerprint_of<const BITS: u32>(hash: u64) -> u32 {
    let (low, fingerprints) = (hash & 0xffff_ffff, (1 << BITS) - 1);
    (low * fingerprints >> 32) as u32 + 1
}

/// Returns the other bucket of a fingerprint that may be in `bucket`.
///
/// The bucket is `(H(fingerprint) − bucket) mod buckets`. Applying this formula twice gives
/// `bucket` again, for any number of buckets. The exclusive or of textbooks has this property only
/// for powers of two, and so wastes up to half of the memory.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
pub(super) const fn other_bucket(bucket: u32, fingerprint: u32, buckets: u64) -> u32 {
    let (sum, bucket) = (scale(fmix64(fingerprint as u64), buckets) as u64, bucket as u64);
    let wrapped = if bucket > sum { buckets } else { 0 };
    (sum + wrapped - bucket) as u32
}

/// Scales a word to a number below `buckets` by its high bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
const fn scale(word: u64, buckets: u64) -> u32 {
    (word as u128 * buckets as u128 >> 64) as u32
}
