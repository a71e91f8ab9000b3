//! Golomb-coded sets, for any parameters and key: Bitcoin Core's `GCSFilter`.

use alloc::vec::Vec;

use thiserror::Error;

use crate::bits::bit_stream::{BitReader, BitWriter};
use crate::bits::golomb_rice;
use crate::btc::compact_size::{FieldError, MAX_SIZE, put_length, take_compact_size};
use crate::hash::{SipKey, siphash_2_4};
use crate::simd::Backend;

/// What a set is coded with: `P` and `M` of BIP158.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GcsParams {
    p: u8,
    m: u32,
}

impl GcsParams {
    /// Those of the basic filter: `P` = 19, `M` = 784,931.
    pub const BASIC: Self = Self { p: 19, m: 784_931 };
    /// The largest `P` taken here; Bitcoin Core has no limit.
    pub const MAX_P: u8 = 32;

    /// Remainders of `p` bits, and about one false positive in `m` questions.
    ///
    /// # Errors
    /// A `p` over [`MAX_P`](Self::MAX_P), or an `m` of 0.
    pub const fn new(p: u8, m: u32) -> Result<Self, GcsParamsError> {
        if p > Self::MAX_P {
            return Err(GcsParamsError::RemainderBits(p));
        }
        if m == 0 {
            return Err(GcsParamsError::ZeroM);
        }
        Ok(Self { p, m })
    }

    /// The bits of a remainder.
    pub const fn p(self) -> u8 {
        self.p
    }

    /// The inverse of the rate of false positives.
    pub const fn m(self) -> u32 {
        self.m
    }
}

/// Why parameters are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GcsParamsError {
    /// More bits of a remainder than are taken here.
    #[error("remainders of {0} bits, the limit is {max}", max = GcsParams::MAX_P)]
    RemainderBits(u8),
    /// An `M` of 0 leaves no range for values.
    #[error("M is 0, the least is 1")]
    ZeroM,
}

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
        let most = codes.len() as u64 * 8 / (u64::from(params.p) + 1);
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
        u64::from(self.num_elements) * u64::from(self.params.m)
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
    /// Whatever the [`Acceptance`] does not let pass.
    pub fn decode_into(&self, backend: Backend, values: &mut Vec<u64>) -> Result<(), GcsError> {
        let _ = backend;
        values.clear();
        values.reserve(self.num_elements as usize);
        let mut reader = BitReader::new(self.codes);
        let mut value = 0_u64;
        for index in 0..self.num_elements {
            let delta = golomb_rice::take(&mut reader, self.params.p)
                .ok_or(GcsError::Truncated { index, count: self.num_elements })?;
            value = value.saturating_add(delta);
            if value >= self.range() && self.acceptance == Acceptance::Strict {
                return Err(GcsError::ValueOverRange { index, value, range: self.range() });
            }
            values.push(value);
        }
        let left = self.codes.len() * 8 - reader.position();
        if left >= 8 {
            return Err(GcsError::TrailingBytes(left / 8));
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 8")]
        let padding = reader.take_bits(left as u8);
        if padding != Some(0) && self.acceptance == Acceptance::Strict {
            return Err(GcsError::PaddingNotZero);
        }
        Ok(())
    }
}

/// `hash` scaled from 64 bits to `range`.
#[inline]
pub(crate) fn scale(hash: u64, range: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the high half of the product")]
    let value = (u128::from(hash) * u128::from(range) >> 64) as u64;
    value
}

/// Encodes the set of `elements`, each counted once.
///
/// # Errors
/// More elements than a reader accepts.
pub fn encode<'e>(
    params: GcsParams,
    key: SipKey,
    elements: impl IntoIterator<Item = &'e [u8]>,
) -> Result<Vec<u8>, EncodeError> {
    let mut elements: Vec<&[u8]> = elements.into_iter().collect();
    elements.sort_unstable();
    elements.dedup();
    let count = elements.len() as u64;
    if count > MAX_SIZE {
        return Err(EncodeError::TooMany(count));
    }
    let range = count * u64::from(params.m);
    let mut values: Vec<u64> =
        elements.iter().map(|element| scale(siphash_2_4(key, element), range)).collect();
    values.sort_unstable();
    let mut bytes = Vec::new();
    put_length(&mut bytes, elements.len());
    let mut writer = BitWriter::behind(bytes);
    let mut last = 0;
    for value in values {
        golomb_rice::put(&mut writer, value - last, params.p);
        last = value;
    }
    Ok(writer.finish())
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

/// Why a set cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// More elements than any reader accepts.
    #[error("{0} elements, the limit is {MAX_SIZE}")]
    TooMany(u64),
}
