//! The positions of a key's three cells, in the layout of `xor_singleheader` and `xorf`.

use bytemuck::Pod;

use super::super::encoding::{DecodeError, parameter};
use super::super::hashing::fmix64;
use super::super::kind::Kind;
use super::super::static_build::mul_high;

/// The type of a fingerprint: `u8` or `u16`.
pub trait FuseFingerprint: Pod + Eq + Default + Send + Sync + sealed::Sealed {
    /// Width of the fingerprint in bits.
    const BITS: u32;
    /// The kind of filters with such fingerprints.
    const KIND: Kind;

    /// Computes the fingerprint of a mixed hash.
    fn of(hash: u64) -> Self;

    /// Returns the exclusive or of two fingerprints.
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
                reason = "a fingerprint consists of the low bits"
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
    #[expect(unnameable_types, reason = "no other crate implements the trait")]
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
}

/// Greatest segment length. The second and third positions take 18 bits each from the hash.
const MAX_SEGMENT_LENGTH: u32 = 1 << 18;

/// The division of the array into segments. The three cells of a key are in three consecutive
/// segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of cells in a segment, a power of two.
    pub(crate) segment_length: u32,
    /// Number of segments that can contain a key's first cell: two less than the number of all
    /// segments.
    pub(crate) segment_count: u32,
}

impl Shape {
    /// Returns the shape for a number of keys, as `xor_singleheader` chooses it, varied by the
    /// attempt.
    ///
    /// Every second attempt halves the segment length, because the formula's length is too great
    /// just after each of its steps. From the ninth attempt on, the array grows.
    #[expect(clippy::cast_possible_truncation, reason = "a shard has at most 2^30 keys")]
    #[expect(clippy::cast_sign_loss, reason = "the logarithms of numbers above 1 are positive")]
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

    /// Checks a segment length and a segment count from untrusted bytes.
    pub(crate) fn new(segment_length: u32, segment_count: u32) -> Result<Self, DecodeError> {
        if !segment_length.is_power_of_two() || segment_length > MAX_SEGMENT_LENGTH {
            let limit = "a power of two up to 2^18";
            return Err(parameter("segment length", segment_length.into(), limit));
        }
        let segments = segment_count.checked_add(2);
        let cells = segments.and_then(|segments| segments.checked_mul(segment_length));
        if segment_count == 0 || cells.is_none() {
            let limit = "at least 1, with fewer than 2^32 cells in all";
            return Err(parameter("segment count", segment_count.into(), limit));
        }
        Ok(Self { segment_length, segment_count })
    }

    /// Reads the shape from a word of the directory.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub(super) fn of_word(word: u64) -> Self {
        Self { segment_length: word as u32, segment_count: (word >> 32) as u32 }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.segment_count) << 32 | u64::from(self.segment_length)
    }

    /// Returns the number of cells that can be a key's first cell.
    #[inline(always)]
    pub(crate) fn first_places(self) -> u32 {
        self.segment_count * self.segment_length
    }

    /// Returns the number of cells.
    pub(crate) fn cells(self) -> u32 {
        (self.segment_count + 2) * self.segment_length
    }

    /// Returns the indices of the three cells of a mixed hash.
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

/// Mixes a hash with the seed. The positions and the fingerprint of a key are computed from the
/// result.
#[inline(always)]
pub(super) fn mixed(hash: u64, seed: u64) -> u64 {
    fmix64(hash.wrapping_add(seed))
}
