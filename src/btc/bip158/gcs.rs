//! Golomb-coded sets, for any parameters and key: Bitcoin Core's `GCSFilter`.

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

pub use encode::{EncodeError, MAX_ENCODED_BITS, encode, encode_on};
pub use params::{GcsParams, GcsParamsError};

/// How much is asked of bytes that claim to be a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceptance {
    /// All that an encoder produces and nothing else: the one form of each set.
    #[default]
    Strict,
    /// What Bitcoin Core accepts: values past the range and padding of any bits too.
    Core,
}

/// An encoded set with what it takes to read it.
#[derive(Debug, Clone, Copy)]
pub struct GcsFilter<'a> {
    params: GcsParams,
    key: SipKey,
    acceptance: Acceptance,
    num_elements: u32,
    codes: &'a [u8],
}

impl<'a> GcsFilter<'a> {
    /// Reads the count of elements, and checks that the bytes can hold as many.
    ///
    /// # Errors
    /// A count that is cut short, not in the fewest bytes, over Core's limit or over what the
    /// bytes can hold. Values are checked where they are read.
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
        // Each takes a zero behind its quotient, and the remainder.
        let most = codes.len() as u64 * 8 / (u64::from(params.p()) + 1);
        if u64::from(num_elements) > most {
            return Err(GcsError::CountOverBytes { count: num_elements, most });
        }
        if num_elements == 0 && !codes.is_empty() {
            return Err(GcsError::TrailingBytes(codes.len()));
        }
        Ok(Self { params, key, acceptance, num_elements, codes })
    }

    /// The number of elements, `N`.
    pub fn num_elements(&self) -> u32 {
        self.num_elements
    }

    /// What the values are below, `F` = `N` * `M`.
    pub fn range(&self) -> u64 {
        u64::from(self.num_elements) * u64::from(self.params.m())
    }

    /// The key that elements are hashed with.
    pub fn key(&self) -> SipKey {
        self.key
    }

    /// What the set is coded with.
    pub fn params(&self) -> GcsParams {
        self.params
    }

    /// The value of an element: its hash, scaled to the range.
    pub fn value(&self, element: &[u8]) -> u64 {
        scale(siphash_2_4(self.key, element), self.range())
    }

    /// Replaces `values` by those of the set, ascending; equal ones stand side by side.
    ///
    /// # Errors
    /// Whatever the [`Acceptance`] does not let pass; what `values` holds then is not defined.
    pub fn decode_into(&self, values: &mut Vec<u64>) -> Result<(), GcsError> {
        self.decode_into_on(Backend::best(), values)
    }

    /// As [`decode_into`](Self::decode_into), on this backend.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into).
    pub fn decode_into_on(&self, backend: Backend, values: &mut Vec<u64>) -> Result<(), GcsError> {
        let count = self.num_elements as usize;
        let end = golomb_rice::sums(backend, self.codes, self.params.p(), count, values);
        if self.acceptance == Acceptance::Strict {
            self.check_range(values)?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the count, of 32 bits")]
        let index = values.len() as u32;
        let end = end.ok_or(GcsError::Truncated { index, count: self.num_elements })?;
        let mut reader = BitReader::at(self.codes, end);
        let left = reader.left();
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

    /// Checks that the values, ascending, lie inside the range.
    fn check_range(&self, values: &[u64]) -> Result<(), GcsError> {
        let range = self.range();
        if values.last().is_none_or(|&last| last < range) {
            return Ok(());
        }
        let index = values.partition_point(|&value| value < range);
        let value = values[index];
        #[expect(clippy::cast_possible_truncation, reason = "below the count, of 32 bits")]
        let index = index as u32;
        Err(GcsError::ValueOverRange { index, value, range })
    }
}

/// `hash` scaled from 64 bits to `range`.
#[inline]
pub(crate) fn scale(hash: u64, range: u64) -> u64 {
    (u128::from(hash) * u128::from(range) >> 64) as u64
}

/// Why bytes are no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GcsError {
    /// The count does not end.
    #[error("the count of elements ends early: the filter has {length} bytes")]
    CountTruncated {
        /// The bytes of the filter.
        length: usize,
    },
    /// A count in more bytes than it needs.
    #[error("count {0} is not encoded in the fewest bytes")]
    CountNonMinimal(u64),
    /// A count over what Bitcoin Core reads.
    #[error("count {0}, the limit is {MAX_SIZE}")]
    CountTooLarge(u64),
    /// A count that the bytes cannot hold.
    #[error("count {count}, the bytes hold {most} at most")]
    CountOverBytes {
        /// The count.
        count: u32,
        /// What as many bytes hold at most.
        most: u64,
    },
    /// The bytes end inside a value.
    #[error("ends early, in value {index} of {count}")]
    Truncated {
        /// The position of the value.
        index: u32,
        /// The count of values.
        count: u32,
    },
    /// A value past the range.
    #[error("value {index} is {value}, the range ends at {range}")]
    ValueOverRange {
        /// The position of the value.
        index: u32,
        /// The value.
        value: u64,
        /// What values are below.
        range: u64,
    },
    /// Whole bytes behind the last value.
    #[error("{0} bytes after the last value")]
    TrailingBytes(usize),
    /// Ones in the bits that fill up the last byte.
    #[error("the bits that fill up the last byte are not zero")]
    PaddingNotZero,
}
