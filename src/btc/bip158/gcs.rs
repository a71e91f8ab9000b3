//! Golomb-coded sets with any parameters and key: Bitcoin Core's `GCSFilter`.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::mem;

use chainsieve_lanes::bits::bit_stream::{BitReader, BitWriter};
use chainsieve_lanes::bits::golomb_rice;
use chainsieve_lanes::hash::{SipKey, siphash_2_4, siphash_each};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use crate::btc::names::names;
use crate::btc::raw::{FieldError, MAX_SIZE, put_length, take_compact_size};

/// Rule that decides which bytes are accepted as an encoded set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Acceptance {
    /// Accepts only what an encoder produces: the one encoding of each set.
    #[default]
    Strict,
    /// Accepts what Bitcoin Core accepts, including values beyond the range and padding bits that
    /// are not zero.
    Core,
}

names! { Acceptance, "an acceptance": Strict = "strict", Core = "core" }

/// Parameters of a Golomb-coded set: `P` and `M` of BIP158.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "json::Unchecked")
)]
pub struct GcsParams {
    p: u8,
    m: u32,
}

impl GcsParams {
    /// The parameters of basic filters: `P` = 19, `M` = 784,931.
    pub const BASIC: Self = Self { p: 19, m: 784_931 };
    /// The largest supported `P`. Bitcoin Core has no limit.
    pub const MAX_P: u8 = 32;

    /// Creates parameters with remainders of `p` bits and a false-positive rate of about one in
    /// `m`.
    ///
    /// # Errors
    /// Returns an error if `p` exceeds [`MAX_P`](Self::MAX_P), or if `m` is 0.
    pub const fn new(p: u8, m: u32) -> Result<Self, GcsError> {
        if p > Self::MAX_P {
            return Err(GcsError::RemainderBits(p));
        }
        if m == 0 {
            return Err(GcsError::ZeroM);
        }
        Ok(Self { p, m })
    }

    /// Returns the number of bits of a remainder, `P`.
    pub const fn p(self) -> u8 {
        self.p
    }

    /// Returns the inverse of the false-positive rate, `M`.
    pub const fn m(self) -> u32 {
        self.m
    }
}

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

    /// Returns the key with which elements are hashed.
    pub fn key(&self) -> SipKey {
        self.key
    }

    /// Returns the parameters with which the set is encoded.
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

/// Maximum number of bits of the encoded values of a set: 512 MiB.
///
/// The largest basic filter that a reader accepts has 33,554,432 elements and takes about 88 MB.
/// Only an `M` far above two to the power of `P` can exceed the limit.
pub const MAX_ENCODED_BITS: u64 = 1 << 32;

/// Encodes the set of `elements`, byte for byte as Bitcoin Core does. Duplicates are encoded once.
///
/// # Errors
/// Returns an error if there are more elements than a reader accepts, or if the codes take more
/// than [`MAX_ENCODED_BITS`]. Both limits are checked before the output is allocated.
///
/// # Cost
/// Hashes each element and sorts the hashes. Elements with equal hashes are also compared by their
/// bytes. Allocates about 48 bytes for each element, and the output.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip158::gcs::{self, GcsParams};
/// use chainsieve::hash::SipKey;
///
/// let key = SipKey::from_bytes([0; 16]);
/// assert_eq!(gcs::encode(GcsParams::BASIC, key, [])?, [0]);
/// let twice: [&[u8]; 2] = [b"script", b"script"];
/// let once: [&[u8]; 1] = [b"script"];
/// assert_eq!(
///     gcs::encode(GcsParams::BASIC, key, twice)?,
///     gcs::encode(GcsParams::BASIC, key, once)?,
/// );
/// # Ok::<(), gcs::GcsError>(())
/// ```
pub fn encode<'e>(
    params: GcsParams,
    key: SipKey,
    elements: impl IntoIterator<Item = &'e [u8]>,
) -> Result<Vec<u8>, GcsError> {
    encode_on(Backend::best(), params, key, elements)
}

/// Like [`encode`], on the given backend.
///
/// # Errors
/// Returns the errors of [`encode`].
pub fn encode_on<'e>(
    backend: Backend,
    params: GcsParams,
    key: SipKey,
    elements: impl IntoIterator<Item = &'e [u8]>,
) -> Result<Vec<u8>, GcsError> {
    let elements: Vec<&[u8]> = elements.into_iter().collect();
    let mut values = distinct_hashes(backend, key, &elements)?;
    let range = values.len() as u64 * u64::from(params.m());
    let mut bits = 0;
    let mut last = 0;
    for value in &mut values {
        // Scaling keeps the order of the hashes, so the scaled values are ascending too.
        let scaled = scale(*value, range);
        *value = scaled - last;
        last = scaled;
        bits += golomb_rice::code_bits(*value, params.p());
    }
    if bits > MAX_ENCODED_BITS {
        return Err(GcsError::TooLong(bits));
    }
    let length = usize::try_from(bits.div_ceil(8)).expect("at most 2^29");
    // The count takes at most 5 bytes, and the last word of the writer takes 4 bytes.
    let mut bytes = Vec::with_capacity(5 + length + 4);
    put_length(&mut bytes, values.len());
    let mut writer = BitWriter::behind(bytes);
    for delta in values {
        golomb_rice::put(&mut writer, delta, params.p());
    }
    Ok(writer.finish())
}

/// The hash of an element, and the index of the element.
type Hashed = (u64, usize);

/// Returns the hashes of the distinct elements, in ascending order. Core counts `N` from distinct
/// elements, not from distinct hashes, so a hash that two elements share occurs twice.
fn distinct_hashes(
    backend: Backend,
    key: SipKey,
    elements: &[&[u8]],
) -> Result<Vec<u64>, GcsError> {
    let mut hashes = Vec::new();
    siphash_each(backend, key, elements, &mut hashes);
    let hashed = sorted(&hashes);
    let mut distinct = Vec::with_capacity(hashed.len());
    for same in hashed.chunk_by(|a, b| a.0 == b.0) {
        let count = if same.len() == 1 { 1 } else { distinct_elements(same, elements) };
        distinct.extend(same.iter().take(count).map(|&(hash, _)| hash));
    }
    let count = distinct.len() as u64;
    if count > MAX_SIZE { Err(GcsError::TooMany(count)) } else { Ok(distinct) }
}

/// Returns the number of distinct elements among the elements with the same hash.
fn distinct_elements(same: &[Hashed], elements: &[&[u8]]) -> usize {
    let mut same: Vec<&[u8]> = same.iter().map(|&(_, index)| elements[index]).collect();
    same.sort_unstable();
    same.dedup();
    same.len()
}

/// Returns the hashes in ascending order, each with its index.
///
/// Hashes are evenly distributed, so placing them into buckets by their top bits sorts them almost
/// completely. Each bucket is then sorted. If an attacker has chosen the elements so that most
/// hashes share a bucket, sorting this bucket still takes only about `n log n` steps.
fn sorted(hashes: &[u64]) -> Vec<Hashed> {
    let bits = hashes.len().max(2).ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "as many bits as the length has")]
    let bucket = |hash: u64| (hash >> (64 - bits)) as usize;
    // For each bucket, the index of its next free place. Once a bucket is full, this index is the
    // start of the next bucket.
    let mut places = alloc::vec![0; 1 << bits];
    for hash in hashes {
        places[bucket(*hash)] += 1;
    }
    let mut start = 0;
    for place in &mut places {
        start += mem::replace(place, start);
    }
    let mut hashed = alloc::vec![(0, 0); hashes.len()];
    for (index, hash) in hashes.iter().enumerate() {
        let place = &mut places[bucket(*hash)];
        hashed[*place] = (*hash, index);
        *place += 1;
    }
    let mut start = 0;
    for end in places {
        hashed[start..end].sort_unstable();
        start = end;
    }
    hashed
}

/// Reason why parameters are invalid, a set cannot be encoded, or bytes are not a valid encoded set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum GcsError {
    /// The number of bits of a remainder exceeds the limit.
    #[error("remainders of {0} bits, the limit is {max}", max = GcsParams::MAX_P)]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::p"))]
    RemainderBits(u8),
    /// `M` is 0, which leaves no range for the values.
    #[error("M is 0, the least is 1")]
    ZeroM,
    /// The number of elements to encode exceeds what a reader accepts.
    #[error("{0} elements, the limit is {MAX_SIZE}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::count"))]
    TooMany(u64),
    /// The codes to encode exceed [`MAX_ENCODED_BITS`].
    #[error("the codes take {0} bits, the limit is {MAX_ENCODED_BITS}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::bits"))]
    TooLong(u64),
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
    #[error("count {count}, but the bytes contain at most {most}")]
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

/// Reads parameters from JSON with the checks of [`GcsParams::new`].
#[cfg(feature = "serde")]
mod json {
    use super::{GcsError, GcsParams};

    #[derive(serde::Deserialize)]
    pub(super) struct Unchecked {
        p: u8,
        m: u32,
    }

    impl TryFrom<Unchecked> for GcsParams {
        type Error = GcsError;

        fn try_from(Unchecked { p, m }: Unchecked) -> Result<Self, Self::Error> {
            Self::new(p, m)
        }
    }
}
