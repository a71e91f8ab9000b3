//! Where the three fingerprints of a key are: the layout of `xor_singleheader` and `xorf`.

use bytemuck::Pod;

use super::super::encoding::{DecodeError, parameter};
use super::super::hashing::fmix64;
use super::super::kind::Kind;
use super::super::static_build::mul_high;

/// A fingerprint: `u8` or `u16`.
pub trait FuseFingerprint: Pod + Eq + Default + Send + Sync + sealed::Sealed {
    /// Its bits.
    const BITS: u32;
    /// The kind of filter.
    const KIND: Kind;

    /// Of a mixed hash.
    fn of(hash: u64) -> Self;

    /// Of three, and of the key's own: zero where they fit.
    #[must_use]
    fn xor(self, other: Self) -> Self;
}

macro_rules! fingerprint {
    ($word:ty, $kind:ident) => {
        impl FuseFingerprint for $word {
            const BITS: u32 = <$word>::BITS;
            const KIND: Kind = Kind::$kind;

            #[inline(always)]
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a fingerprint is some of the bits"
            )]
            fn of(hash: u64) -> Self {
                (hash ^ hash >> 32) as Self
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    };
}

fingerprint!(u8, Fuse8);
fingerprint!(u16, Fuse16);

mod sealed {
    #[expect(unnameable_types, reason = "nobody else implements it")]
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
}

/// Three keys in a row of segments: as many as the hash has bits for.
const MAX_SEGMENT_LENGTH: u32 = 1 << 18;

/// How the array is cut: a key's fingerprints are in three segments, one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A power of two.
    pub(crate) segment_length: u32,
    /// Segments that a key's first fingerprint can be in: two fewer than there are.
    pub(crate) segment_count: u32,
}

impl Shape {
    /// As `xor_singleheader` cuts it for so many keys. Tries after the first vary it: every second
    /// one has segments of half the length, because the formula's are too long just behind each
    /// step, and from the ninth on the array grows.
    #[expect(clippy::cast_possible_truncation, reason = "keys of a shard are at most 2^30")]
    #[expect(clippy::cast_sign_loss, reason = "logarithms of what is 2 or more")]
    pub(crate) fn for_keys(keys: u32, attempt: u32) -> Self {
        let ln = |x: f64| libm::log(x);
        let size = f64::from(keys);
        let (length, capacity) = if keys <= 1 {
            (4, 0)
        } else {
            let exponent = libm::floor(ln(size) / ln(3.33) + 2.25) as u32;
            let factor = (0.875 + 0.25 * ln(1e6) / ln(size)).max(1.125);
            let growth = 1.0 + f64::from(attempt.saturating_sub(7)) / 64.0;
            (1 << exponent.min(18), libm::round(size * factor * growth) as u32)
        };
        let mut segment_length: u32 = length;
        while segment_length > 256 && capacity.div_ceil(segment_length) < 32 + 2 {
            segment_length /= 2;
        }
        if attempt % 2 == 1 && segment_length > 4 {
            segment_length /= 2;
        }
        let segment_count = capacity.div_ceil(segment_length).saturating_sub(2).max(1);
        Self { segment_length, segment_count }
    }

    /// Checked.
    pub(crate) fn new(segment_length: u32, segment_count: u32) -> Result<Self, DecodeError> {
        if !segment_length.is_power_of_two() || segment_length > MAX_SEGMENT_LENGTH {
            let limit = "a power of two up to 2^18";
            return Err(parameter("segment length", segment_length.into(), limit));
        }
        let segments = segment_count.checked_add(2);
        let cells = segments.and_then(|segments| segments.checked_mul(segment_length));
        if segment_count == 0 || cells.is_none() {
            let limit = "at least 1, in an array below 2^32";
            return Err(parameter("segment count", segment_count.into(), limit));
        }
        Ok(Self { segment_length, segment_count })
    }

    /// Of one word of a directory.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub(super) fn of_word(word: u64) -> Self {
        Self { segment_length: word as u32, segment_count: (word >> 32) as u32 }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.segment_count) << 32 | u64::from(self.segment_length)
    }

    /// Places for a key's first fingerprint.
    #[inline(always)]
    pub(crate) fn first_places(self) -> u32 {
        self.segment_count * self.segment_length
    }

    /// Fingerprints there are.
    pub(crate) fn cells(self) -> u32 {
        (self.segment_count + 2) * self.segment_length
    }

    /// The three places of a mixed hash.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "places are below 2^32")]
    pub(super) fn places(self, hash: u64) -> [u32; 3] {
        let mask = self.segment_length - 1;
        let first = mul_high(hash, u64::from(self.first_places())) as u32;
        let second = (first + self.segment_length) ^ ((hash >> 18) as u32 & mask);
        let third = (first + 2 * self.segment_length) ^ (hash as u32 & mask);
        [first, second, third]
    }
}

/// What positions and fingerprint of a key come from.
#[inline(always)]
pub(super) fn mixed(hash: u64, seed: u64) -> u64 {
    fmix64(hash.wrapping_add(seed))
}
