//! The Bloom filters of Apache Parquet: a header in Thrift's compact protocol, followed by the
//! blocks of a [`SplitBlockFilter256`] whose keys are hashed by XXH64 with seed 0.
//!
//! A key is a value in Parquet's plain encoding: the bytes of a string without the length prefix,
//! or a number in little-endian order.
//!
//! The specification allows any number of blocks, but the readers of Arrow C++, `ClickHouse` and
//! Velox accept only powers of two up to 128 MiB, and fail the query otherwise. So [`encode`]
//! writes only filters whose number of blocks these readers accept, and [`num_blocks`] returns such
//! a number. [`decode`] accepts every number of blocks.
//!
//! Writers commonly compute the size by the formula of classic Bloom filters, which is too small
//! for split-block filters. For a rate of 0.1 % the formula gives 14.6 bits per key, but 16.9 are
//! needed. A filter of this size has twice the requested rate, unless rounding up to a power
//! of two adds enough blocks.
//!
//! Source: `BloomFilter.md` and `parquet.thrift` of `apache/parquet-format`.

use alloc::vec::Vec;

pub use self::thrift::ThriftError;
use self::thrift::{Reader, STRUCT};
use crate::hashing::{HashFunction, KeyHasher};
use crate::membership::Filter as _;
use crate::sizing::{self, SizingError};
use crate::split_block::SplitBlockFilter256;
use crate::words::{NoMemory, Words};

mod thrift;

/// Size of a block: 256 bits.
const BLOCK_BYTES: usize = 32;
/// Greatest size of a bitset that other readers accept.
const MAX_WRITTEN_BYTES: u64 = 128 << 20;

/// The hasher of Parquet's filters: XXH64 with seed 0.
pub const HASHER: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });

/// The reason why a filter can't be encoded for Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The filter's hasher is not that of Parquet, so Parquet's readers would not find the keys.
    #[error("the filter's keys are not hashed by XXH64 with seed 0")]
    OtherHasher,
    /// Not all readers accept this number of blocks. Of the common readers, only arrow-rs accepts
    /// such a number.
    #[error("the filter has {0} blocks, but Parquet's readers need a power of two up to 4194304")]
    Blocks(u64),
}

/// The reason why bytes are not a Bloom filter of Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The header is not valid in Thrift's compact protocol.
    #[error(transparent)]
    Thrift(#[from] ThriftError),
    /// A required field is absent or has the wrong type.
    #[error("the header has no {0}")]
    Missing(&'static str),
    /// The header names an algorithm, hash function or compression that this library does not know.
    /// The specification has only one algorithm, one hash function and one compression.
    #[error("the header names {what} {id}, but only {what} 1 is known")]
    Unknown {
        /// Name of the field: algorithm, hash function or compression.
        what: &'static str,
        /// Number of the field that is set in this union of the header.
        id: i16,
    },
    /// The length of the bitset is not a positive multiple of 32 bytes, the size of a block.
    #[error("the bitset has {0} bytes, but must have a positive multiple of 32")]
    BitsetLength(i32),
    /// The bytes end before the end of the bitset.
    #[error("{found} bytes follow the header, but the bitset has {needed} bytes")]
    Truncated {
        /// Number of bytes found after the header.
        found: u64,
        /// Number of bytes of the bitset.
        needed: u64,
    },
    /// There are trailing bytes after the bitset.
    #[error("{0} trailing bytes after the bitset")]
    Trailing(u64),
    /// There is no memory for a copy of the bitset.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

/// Returns a number of blocks that Parquet's readers accept, for `capacity` keys at a
/// false-positive rate of at most `fpr`. The number is a power of two.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, or if the filter would need more than 128 MiB.
pub fn num_blocks(capacity: u64, fpr: f64) -> Result<u64, SizingError> {
    let needed = sizing::split_block::num_blocks(capacity, fpr, 32)?;
    let max = MAX_WRITTEN_BYTES / BLOCK_BYTES as u64;
    let blocks = needed.checked_next_power_of_two().filter(|blocks| *blocks <= max);
    let (what, value) = ("a number of blocks", needed);
    blocks.ok_or(SizingError::Parameter { what, value, min: 1, max })
}

/// Encodes the header and the bitset.
///
/// # Errors
/// Returns an error if Parquet's readers would reject the number of blocks, or if the filter's
/// hasher is not [`HASHER`].
pub fn encode<S: AsRef<[u64]>>(filter: &SplitBlockFilter256<S>) -> Result<Vec<u8>, EncodeError> {
    // The specification fixes the hash function and its seed.
    if *filter.hasher() != HASHER {
        return Err(EncodeError::OtherHasher);
    }
    let num_blocks = filter.num_blocks();
    let bitset_bytes = num_blocks * BLOCK_BYTES as u64;
    let bitset_length = i32::try_from(bitset_bytes)
        .ok()
        .filter(|_| num_blocks.is_power_of_two() && bitset_bytes <= MAX_WRITTEN_BYTES);
    let mut bytes = Vec::new();
    thrift::write_i32_field(&mut bytes, 1, bitset_length.ok_or(EncodeError::Blocks(num_blocks))?);
    // The algorithm BLOCK, the hash XXHASH and the compression UNCOMPRESSED are three unions. In
    // each union, field 1 is set and is an empty struct.
    for _ in 0..3 {
        bytes.extend([1 << 4 | STRUCT, 1 << 4 | STRUCT, 0, 0]);
    }
    bytes.push(0);
    bytes.extend(filter.words().iter().flat_map(|word| word.to_le_bytes()));
    Ok(bytes)
}

/// Decodes a header and a bitset, without trailing bytes.
///
/// The format does not record the number of keys. [`len`](crate::Filter::len) is therefore
/// estimated from the bits that are set.
///
/// # Errors
/// Returns an error if `bytes` is not exactly one valid filter.
pub fn decode(bytes: &[u8]) -> Result<SplitBlockFilter256, DecodeError> {
    match decode_prefix(bytes)? {
        (filter, []) => Ok(filter),
        (_, behind) => Err(DecodeError::Trailing(behind.len() as u64)),
    }
}

/// Decodes a filter from the start of `bytes`, as [`decode`] does, and also returns the bytes after
/// the bitset.
///
/// # Errors
/// Returns an error if `bytes` does not begin with a valid filter.
pub fn decode_prefix(bytes: &[u8]) -> Result<(SplitBlockFilter256, &[u8]), DecodeError> {
    let mut reader = Reader::new(bytes);
    let header = Header::read(&mut reader)?;
    let length = header.bitset_length.ok_or(DecodeError::Missing("length of the bitset"))?;
    for (what, id) in [
        ("algorithm", header.algorithm),
        ("hash function", header.hash),
        ("compression", header.compression),
    ] {
        match id.ok_or(DecodeError::Missing(what))? {
            1 => {}
            id => return Err(DecodeError::Unknown { what, id }),
        }
    }
    let needed = usize::try_from(length).ok();
    let needed = needed.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES));
    let needed = needed.ok_or(DecodeError::BitsetLength(length))?;
    let bytes = reader.rest();
    let Some((bitset, behind)) = bytes.split_at_checked(needed) else {
        let (found, needed) = (bytes.len() as u64, needed as u64);
        return Err(DecodeError::Truncated { found, needed });
    };
    Ok((SplitBlockFilter256::of_bits(Words::from_le_bytes(bitset)?, HASHER), behind))
}

/// The fields of `BloomFilterHeader`. For each union, the value is the number of the field that is
/// set.
#[derive(Default)]
struct Header {
    bitset_length: Option<i32>,
    algorithm: Option<i16>,
    hash: Option<i16>,
    compression: Option<i16>,
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ThriftError> {
        let mut header = Self::default();
        let mut fields = reader.fields()?;
        while let Some(field) = fields.next(reader)? {
            match (field.id, field.kind) {
                (1, thrift::I32) => header.bitset_length = Some(reader.i32()?),
                (2, STRUCT) => header.algorithm = union(reader)?,
                (3, STRUCT) => header.hash = union(reader)?,
                (4, STRUCT) => header.compression = union(reader)?,
                (_, kind) => reader.skip(kind)?,
            }
        }
        Ok(header)
    }
}

/// Reads a union and returns the number of the field that is set. Returns `None` if not exactly one
/// field is set.
fn union(reader: &mut Reader<'_>) -> Result<Option<i16>, ThriftError> {
    let mut set = None;
    let mut fields = reader.fields()?;
    let mut count = 0;
    while let Some(field) = fields.next(reader)? {
        reader.skip(field.kind)?;
        set = Some(field.id);
        count += 1;
    }
    Ok(set.filter(|_| count == 1))
}
