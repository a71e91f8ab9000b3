//! Where a hash belongs: a fingerprint, and two buckets of which either gives the other.

use crate::hashing::fmix64;

/// Most buckets there can be: bucket numbers come from the high 32 bits of a hash, fingerprints
/// from the low 32, and no bit serves both.
pub(super) const MAX_BUCKETS: u64 = 1 << 32;

/// A fingerprint and its two buckets, which can be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) fingerprint: u32,
}

impl Place {
    /// The place of a hash among so many buckets.
    #[inline(always)]
    pub(super) fn of<const BITS: u32>(hash: u64, buckets: u64) -> Self {
        Self::in_bucket(scale(hash, buckets), fingerprint_of::<BITS>(hash), buckets)
    }

    /// The place of a fingerprint that one bucket of is known.
    #[inline(always)]
    pub(super) const fn in_bucket(first: u32, fingerprint: u32, buckets: u64) -> Self {
        Self { first, second: other_bucket(first, fingerprint, buckets), fingerprint }
    }
}

/// From 1 to 2^BITS − 1; zero marks free slots. The low 32 bits of the hash are scaled to as many values, so that one is
/// likelier than another by a part in 2^(32 − BITS) at most, which is 65,536 for 16 bits. To take `BITS` bits
/// and replace zero would make one value twice as likely as the others.
#[inline(always)]
pub(super) const fn fingerprint_of<const BITS: u32>(hash: u64) -> u32 {
    let (low, fingerprints) = (hash & 0xffff_ffff, (1 << BITS) - 1);
    (low * fingerprints >> 32) as u32 + 1
}

/// The other bucket of a fingerprint that may be in `bucket`.
///
/// `(H(fingerprint) − bucket) mod buckets`: applied twice it gives `bucket` again, whatever the
/// number of buckets. The exclusive or of textbooks does that for powers of two only, and wastes
/// up to half of the memory.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
pub(super) const fn other_bucket(bucket: u32, fingerprint: u32, buckets: u64) -> u32 {
    let (sum, bucket) = (scale(fmix64(fingerprint as u64), buckets) as u64, bucket as u64);
    let wrapped = if bucket > sum { buckets } else { 0 };
    (sum + wrapped - bucket) as u32
}

/// A number below `buckets`, by the high bits of a word.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
const fn scale(word: u64, buckets: u64) -> u32 {
    (word as u128 * buckets as u128 >> 64) as u32
}
