//! Golomb-coded sets with any parameters and key: Bitcoin Core's `GCSFilter`.

mod encode;
mod params;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use chainsieve_lanes::bits::bit_stream::BitReader;
use chainsieve_lanes::bits::golomb_rice;
use chainsieve_lanes::hash::{SipKey, siphash_2_4};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use crate::btc::compact_size::{FieldError, MAX_SIZE, take_compact_size};
use crate::btc::names::names;

pub use encode::{EncodeError, MAX_ENCODED_BITS, encode, encode_on};
pub use params::{GcsParams, GcsParamsError};

/// Rule that decides which bytes are accepted as an encoded set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Acceptance {
    /// Accepts only what an encoder produces: the one encoding of each set.
    #[default]
    Strict,
    /// Accepts what Bitcoin Core accepts: also values beyond the range, and padding bits that are
    /// not zero.
    Core,
}

names! { Acceptance, "an acceptance": Strict = "strict", Core = "core" }

/// An encoded set, with the parameters and the key needed to decode it.
#[derive(Debug, Clone, Copy)]
pub struct GcsFilter<'a> {
    params: GcsParams,
    key: SipKey,
    acceptance: Acceptance,
    num_elements: u32,
    codes: &'a [u8],
}

impl<'a> GcsFilter<'a> {
    /// Reads the number of elements, and checks that the bytes can contain that many.
    ///
    /// # Errors
    /// Returns an error if the count is truncated ([`GcsError::CountTruncated`]), is not encoded in
    /// the fewest bytes ([`GcsError::CountNonMinimal`]), exceeds Core's limit
    /// ([`GcsError::CountTooLarge`]), or exceeds what the bytes can contain
    /// ([`GcsError::CountOverBytes`]). The values themselves are checked by
    /// [`decode_into`](Self::decode_into).
    ///
    /// # Cost
    /// Constant: only the count is read.
    pub fn parse(
        params: GcsParams,
        key: SipKey,
        bytes: &'a [u8],
        acceptance: Acceptance,
    ) -> Result<Self, GcsError> {
        let mut codes = bytes;
        let count = take_compact_size(&mut codes).map_err(|error| match error {
            FieldError::Truncated { .. } => GcsError::CountTruncated { length: bytes.len() },
            FieldError::NonMinimalLength(count) | FieldError::LengthTooLarge(count) => {
                GcsError::CountNonMinimal(count)
            }
        })?;
        let num_elements = match u32::try_from(count) {
            Ok(num_elements) if count <= MAX_SIZE => num_elements,
            _ => return Err(GcsError::CountTooLarge(count)),
        };
        // Each code takes at least P + 1 bits: the zero that ends the quotient, and the remainder.
        let most = codes.len() as u64 * 8 / (u64::from(params.p()) + 1);
        if u64::from(num_elements) > most {
            return Err(GcsError::CountOverBytes { count: num_elements, most });
        }
        // BIP158: the encoding of the empty set is a single zero byte.
        if num_elements == 0 && !codes.is_empty() {
            return Err(GcsError::TrailingBytes(codes.len()));
        }
        Ok(Self { params, key, acceptance, num_elements, codes })
    }

    /// Returns the number of elements, `N` of BIP158.
    pub fn num_elements(&self) -> u32 {
        self.num_elements
    }

    /// Returns the exclusive upper bound of the values, `F` = `N` * `M` of BIP158.
    pub fn range(&self) -> u64 {
        u64::from(self.num_elements) * u64::from(self.params.m())
    }

    /// Returns the key that elements are hashed with.
    pub fn key(&self) -> SipKey {
        self.key
    }

    /// Returns the parameters that the set is encoded with.
    pub fn params(&self) -> GcsParams {
        self.params
    }

    /// Returns the value of an element: its SipHash-2-4, scaled to the range (BIP158's
    /// `hash_to_range`). The scaled value is the upper 64 bits of the 128-bit product of the hash
    /// and the range. For an empty set, the value is 0.
    pub fn value(&self, element: &[u8]) -> u64 {
        scale(siphash_2_4(self.key, element), self.range())
    }

    /// Replaces `values` with the values of the set, in ascending order. Values that occur twice
    /// are kept twice.
    ///
    /// # Errors
    /// Returns an error if the codes are truncated, if whole bytes follow the last value, or if the
    /// [`Acceptance`] is `Strict` and a value or the padding is invalid. The contents of `values`
    /// are then unspecified.
    pub fn decode_into(&self, values: &mut Vec<u64>) -> Result<(), GcsError> {
        self.decode_into_on(Backend::best(), values)
    }

    /// Does the same as [`decode_into`](Self::decode_into), on the given backend.
    ///
    /// # Errors
    /// Returns the errors of [`decode_into`](Self::decode_into).
    pub fn decode_into_on(&self, backend: Backend, values: &mut Vec<u64>) -> Result<(), GcsError> {
        let count = self.num_elements as usize;
        let end = golomb_rice::sums(backend, self.codes, self.params.p(), count, values);
        // The range is checked first, because the error must name the fault that is first in the
        // bytes.
        if self.acceptance == Acceptance::Strict {
            self.check_range(values)?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the count, which has 32 bits")]
        let index = values.len() as u32;
        let end = end.ok_or(GcsError::Truncated { index, count: self.num_elements })?;
        let mut reader = BitReader::at(self.codes, end);
        let left = reader.left();
        // Up to seven padding bits complete the last byte. Whole bytes after it are an error in
        // Core too.
        if left >= 8 {
            return Err(GcsError::TrailingBytes((left / 8) as usize));
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 8")]
        let padding = reader.take_bits(left as u32);
        if padding != Some(0) && self.acceptance == Acceptance::Strict {
            return Err(GcsError::PaddingNotZero);
        }
        Ok(())
    }

    /// Checks that the values, in ascending order, are within the range.
    fn check_range(&self, values: &[u64]) -> Result<(), GcsError> {
        let range = self.range();
        if values.last().is_none_or(|&last| last < range) {
            return Ok(());
        }
        let index = values.partition_point(|&value| value < range);
        let value = values[index];
        #[expect(clippy::cast_possible_truncation, reason = "below the count, which has 32 bits")]
        let index = index as u32;
        Err(GcsError::ValueOverRange { index, value, range })
    }
}

/// Scales `hash` from 64 bits to `range`: `hash * range / 2^64`.
#[inline]
pub(crate) fn scale(hash: u64, range: u64) -> u64 {
    (u128::from(hash) * u128::from(range) >> 64) as u64
}

/// Reason why bytes are not a valid encoded set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum GcsError {
    /// The bytes end inside the count of elements.
    #[error("the element count is truncated: the filter has {length} bytes")]
    CountTruncated {
        /// The number of bytes of the filter.
        length: usize,
    },
    /// The count is encoded in more bytes than needed.
    #[error("count {0} is not encoded in the fewest bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::count"))]
    CountNonMinimal(u64),
    /// The count exceeds the limit of Bitcoin Core.
    #[error("count {0}, the limit is {MAX_SIZE}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::count"))]
    CountTooLarge(u64),
    /// The count exceeds what the bytes can contain.
    #[error("count {count}, the bytes contain at most {most}")]
    CountOverBytes {
        /// The number of elements that the filter claims.
        count: u32,
        /// The maximum number of elements in this many bytes.
        most: u64,
    },
    /// The bytes end inside a value.
    #[error("truncated in value {index} of {count}")]
    Truncated {
        /// The index of the truncated value.
        index: u32,
        /// The number of values that the filter claims.
        count: u32,
    },
    /// A value is beyond the range.
    #[error("value {index} is {value}, values must be below {range}")]
    ValueOverRange {
        /// The index of the value.
        index: u32,
        /// The value, which is not below `range`.
        value: u64,
        /// The exclusive upper bound of the values.
        range: u64,
    },
    /// Whole bytes follow the last value.
    #[error("{0} trailing bytes after the last value")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::bytes"))]
    TrailingBytes(usize),
    /// The padding bits of the last byte are not all zero.
    #[error("the padding bits of the last byte are not zero")]
    PaddingNotZero,
}
