//! The payloads of `filterload` and `filteradd`.
//!
//! ```text
//! filterload   CompactSize n | n bytes of filter | hash functions u32 | tweak u32 | flags u8
//! filteradd    CompactSize n | n bytes of data
//! ```
//! All numbers are little-endian. `bitcoin`'s own `FilterLoad` does not limit sizes, and it rejects
//! flags above 2, which Core masks and stores. This module has conversions to and from
//! `FilterLoad`, with the feature `std`; without that feature `bitcoin` has no message types.

use alloc::vec::Vec;

#[cfg(feature = "std")]
use bitcoin::p2p::message_bloom::{BloomFlags, FilterAdd, FilterLoad};
use thiserror::Error;

#[cfg(feature = "std")]
use super::UpdateMode;
use super::bit_array::BitArray;
use super::{BloomFilter, MAX_BLOOM_FILTER_SIZE, MAX_FILTERADD_SIZE, MAX_HASH_FUNCS};
use crate::btc::raw::{FieldError, MAX_SIZE, put_var_bytes, take, take_var_bytes};

/// Reason why the payload of a BIP37 message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The payload ends within a field.
    #[error("payload ends early: a field has only {left} of its {needed} bytes")]
    Truncated {
        /// Number of bytes that the field needs.
        needed: u64,
        /// Number of bytes that remain in the payload.
        left: usize,
    },
    /// A length is encoded in more bytes than it needs, which Core rejects.
    #[error("length {0} is not encoded in the fewest bytes")]
    NonMinimalLength(u64),
    /// A length is over 32 MiB, which Core's deserialiser rejects.
    #[error("length {0}, the limit is {MAX_SIZE}")]
    LengthTooLarge(u64),
    /// Trailing bytes follow the last field.
    #[error("{0} trailing bytes after the last field")]
    TrailingBytes(usize),
    /// The filter is over the limit of 36,000 bytes.
    #[error("filter of {0} bytes, the limit is {MAX_BLOOM_FILTER_SIZE}")]
    FilterTooLarge(usize),
    /// There are more hash functions than the limit of 50.
    #[error("{0} hash functions, the limit is {MAX_HASH_FUNCS}")]
    TooManyHashFuncs(u32),
    /// The data of `filteradd` is over the limit of 520 bytes.
    #[error("filteradd data of {0} bytes, the limit is {MAX_FILTERADD_SIZE}")]
    DataTooLarge(usize),
    /// `bitcoin`'s `BloomFlags` has no value for these flags. Core accepts all flags, and masks
    /// them with 3.
    #[error("flags {0:#04x} have no value in BloomFlags, the limit is 2")]
    ReservedFlags(u8),
}

impl From<FieldError> for PayloadError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated { needed, left } => Self::Truncated { needed, left },
            FieldError::NonMinimalLength(length) => Self::NonMinimalLength(length),
            FieldError::LengthTooLarge(length) => Self::LengthTooLarge(length),
        }
    }
}

pub(super) fn nothing_left(rest: &[u8]) -> Result<(), PayloadError> {
    if rest.is_empty() { Ok(()) } else { Err(PayloadError::TrailingBytes(rest.len())) }
}

/// Checks that a node accepts a filter of `size` bytes with this number of hash functions.
fn check_size(size: usize, hash_funcs: u32) -> Result<(), PayloadError> {
    if size > MAX_BLOOM_FILTER_SIZE {
        Err(PayloadError::FilterTooLarge(size))
    } else if hash_funcs > MAX_HASH_FUNCS {
        Err(PayloadError::TooManyHashFuncs(hash_funcs))
    } else {
        Ok(())
    }
}

impl BloomFilter {
    /// Returns the payload of a `filterload` message.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::btc::bip37::{BloomFilter, UpdateMode};
    /// let mut filter = BloomFilter::new(3, 0.01, 0, UpdateMode::All).unwrap();
    /// filter.insert(&[0x99; 20]);
    /// assert_eq!(BloomFilter::decode(&filter.encode()).unwrap(), filter);
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data().len() + 18);
        put_var_bytes(&mut out, self.data());
        out.extend(self.hash_funcs().to_le_bytes());
        out.extend(self.tweak().to_le_bytes());
        out.push(self.flags());
        out
    }

    /// Decodes the whole payload of a `filterload` message.
    ///
    /// # Errors
    /// Returns an error if the payload is truncated, has a malformed length, is followed by
    /// trailing bytes, or is over the limits of 36,000 bytes and 50 hash functions.
    ///
    /// # Cost
    /// A copy of the filter.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (filter, rest) = Self::decode_prefix(payload)?;
        nothing_left(rest)?;
        Ok(filter)
    }

    /// Decodes the payload of a `filterload` message, and returns the trailing bytes after it,
    /// which Core ignores.
    ///
    /// # Errors
    /// Returns the errors of [`decode`](Self::decode), except the error for trailing bytes.
    pub fn decode_prefix(payload: &[u8]) -> Result<(Self, &[u8]), PayloadError> {
        let (filter, rest) = Self::decode_any_size(payload)?;
        check_size(filter.data().len(), filter.hash_funcs())?;
        Ok((filter, rest))
    }

    /// Decodes a filter of any size that Core's deserialiser accepts, before Core checks
    /// [`is_within_size_constraints`](Self::is_within_size_constraints).
    ///
    /// Use this only to inspect a payload. Matching and inserting cost time in proportion to the
    /// number of hash functions, which the sender chooses here, up to 2^32 - 1.
    ///
    /// # Errors
    /// Returns an error if the payload is truncated, or if its length is malformed or over 32 MiB.
    pub fn decode_any_size(mut payload: &[u8]) -> Result<(Self, &[u8]), PayloadError> {
        let data = take_var_bytes(&mut payload)?;
        let hash_funcs = u32::from_le_bytes(take(&mut payload)?);
        let tweak = u32::from_le_bytes(take(&mut payload)?);
        let [flags] = take(&mut payload)?;
        // `MAX_SIZE` is 32 MiB, below the 256 MiB that a bit array can hold.
        let bits = BitArray::from_bytes(data.to_vec()).expect("no length is over MAX_SIZE");
        Ok((Self::from_bits(bits, hash_funcs, tweak, flags), payload))
    }
}

#[cfg(feature = "std")]
impl TryFrom<FilterLoad> for BloomFilter {
    type Error = PayloadError;

    /// # Errors
    /// Returns an error if the filter is over the limits, which `FilterLoad` does not enforce.
    fn try_from(message: FilterLoad) -> Result<Self, PayloadError> {
        check_size(message.filter.len(), message.hash_funcs)?;
        let flags = match message.flags {
            BloomFlags::None => UpdateMode::None,
            BloomFlags::All => UpdateMode::All,
            BloomFlags::PubkeyOnly => UpdateMode::P2PubkeyOnly,
        };
        let bits = BitArray::from_bytes(message.filter).expect("length was checked");
        Ok(Self::from_bits(bits, message.hash_funcs, message.tweak, flags.to_flags()))
    }
}

#[cfg(feature = "std")]
impl TryFrom<BloomFilter> for FilterLoad {
    type Error = PayloadError;

    /// # Errors
    /// Returns an error if the flags are above 2, because `BloomFlags` has no value for them.
    fn try_from(filter: BloomFilter) -> Result<Self, PayloadError> {
        let flags = match filter.flags() {
            0 => BloomFlags::None,
            1 => BloomFlags::All,
            2 => BloomFlags::PubkeyOnly,
            flags => return Err(PayloadError::ReservedFlags(flags)),
        };
        Ok(Self {
            filter: filter.data().to_vec(),
            hash_funcs: filter.hash_funcs(),
            tweak: filter.tweak(),
            flags,
        })
    }
}

/// The data of a `filteradd` message: one element of at most 520 bytes.
///
/// Empty data is allowed and sets bits of the filter, as in Core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedData(Vec<u8>);

impl AddedData {
    /// Wraps the data of a `filteradd` message.
    ///
    /// # Errors
    /// Returns an error if `data` has more than 520 bytes.
    pub fn new(data: impl Into<Vec<u8>>) -> Result<Self, PayloadError> {
        let data = data.into();
        if data.len() > MAX_FILTERADD_SIZE {
            Err(PayloadError::DataTooLarge(data.len()))
        } else {
            Ok(Self(data))
        }
    }

    /// Returns the element.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the payload of a `filteradd` message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() + 3);
        put_var_bytes(&mut out, &self.0);
        out
    }

    /// Decodes the whole payload of a `filteradd` message.
    ///
    /// # Errors
    /// Returns an error if the payload is truncated, has a malformed length, is followed by
    /// trailing bytes, or carries more than 520 bytes of data.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (data, rest) = Self::decode_prefix(payload)?;
        nothing_left(rest)?;
        Ok(data)
    }

    /// Decodes the payload of a `filteradd` message, and returns the trailing bytes after it, which
    /// Core ignores.
    ///
    /// # Errors
    /// Returns the errors of [`decode`](Self::decode), except the error for trailing bytes.
    pub fn decode_prefix(mut payload: &[u8]) -> Result<(Self, &[u8]), PayloadError> {
        let data = take_var_bytes(&mut payload)?;
        Ok((Self::new(data)?, payload))
    }
}

#[cfg(feature = "std")]
impl TryFrom<FilterAdd> for AddedData {
    type Error = PayloadError;

    /// # Errors
    /// Returns an error if there are more than 520 bytes, which `FilterAdd` does not enforce.
    fn try_from(message: FilterAdd) -> Result<Self, PayloadError> {
        Self::new(message.data)
    }
}

#[cfg(feature = "std")]
impl From<AddedData> for FilterAdd {
    fn from(added: AddedData) -> Self {
        Self { data: added.0 }
    }
}
