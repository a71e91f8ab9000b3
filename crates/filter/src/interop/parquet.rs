//! The Bloom filters of Apache Parquet: a header in Thrift's compact protocol, and the blocks of a
//! [`SplitBlockFilter256`] whose keys are hashed by XXH64 with seed 0.
//!
//! A key is a value in Parquet's plain encoding: the bytes of a string without their length,
//! numbers little-endian.
//!
//! The specification allows any number of blocks. The readers of Arrow C++, `ClickHouse` and Velox
//! take powers of two up to 128 MiB only and fail the query otherwise, so [`encode`] writes no
//! others ([`num_blocks`] gives one that fits); [`decode`] reads all. Writers commonly size by the
//! formula of classic Bloom filters, which is too small here: 14.6 bits a key for 0.1 %, where
//! 16.9 are needed, so that the rate is twice the one asked for where the power of two does not
//! happen to make up for it.
//!
//! From the format's documents: `BloomFilter.md` and `parquet.thrift` of `apache/parquet-format`.

use alloc::vec::Vec;

pub use self::thrift::ThriftError;
use self::thrift::{Reader, STRUCT};
use crate::hashing::{HashFunction, KeyHasher};
use crate::membership::Filter as _;
use crate::sizing::{self, SizingError};
use crate::split_block::SplitBlockFilter256;
use crate::words::{NoMemory, Words};

mod thrift;

const BLOCK_BYTES: usize = 32;
/// What readers take at most.
const MAX_WRITTEN_BYTES: u64 = 128 << 20;

/// The hasher of Parquet's filters.
pub const HASHER: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });

/// Why a filter can't be written for Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Parquet's readers would hash keys otherwise.
    #[error("the filter's keys are not hashed by XXH64 with seed 0")]
    OtherHasher,
    /// Readers other than arrow-rs would fail.
    #[error("{0} blocks: Parquet's readers take powers of two up to 4194304")]
    Blocks(u64),
}

/// Why bytes are not a filter of Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The header is not Thrift.
    #[error(transparent)]
    Thrift(#[from] ThriftError),
    /// A field that has to be there is not, or is not of its type.
    #[error("the header has no {0}")]
    Missing(&'static str),
    /// Another algorithm, hash function or compression than the only one there was when this was
    /// written.
    #[error("{what} {id} of the header is unknown, 1 is known")]
    Unknown {
        /// Which of the three.
        what: &'static str,
        /// Its field of the union.
        id: i16,
    },
    /// No number of blocks has this length.
    #[error("a bitset of {0} bytes: it has a positive multiple of 32")]
    BitsetLength(i32),
    /// The bytes end before the bitset does.
    #[error("{found} bytes behind the header, {needed} needed")]
    Truncated {
        /// Bytes there are.
        found: u64,
        /// Bytes there must be.
        needed: u64,
    },
    /// Bytes behind the bitset.
    #[error("{0} bytes behind the bitset")]
    Trailing(u64),
    /// There is no memory for a copy.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

/// The number of blocks that Parquet's readers take, for `capacity` keys at a rate of `fpr` or
/// better: a power of two.
///
/// # Errors
/// If the rate is none, or takes more than 128 MiB.
pub fn num_blocks(capacity: u64, fpr: f64) -> Result<u64, SizingError> {
    let needed = sizing::split_block::num_blocks(capacity, fpr, 32)?;
    let max = MAX_WRITTEN_BYTES / BLOCK_BYTES as u64;
    let blocks = needed.checked_next_power_of_two().filter(|blocks| *blocks <= max);
    let (what, value) = ("a number of blocks", needed);
    blocks.ok_or(SizingError::Parameter { what, value, min: 1, max })
}

/// Header and bitset.
///
/// # Errors
/// If Parquet's readers would not read the filter, or would ask it other hashes.
pub fn encode<S: AsRef<[u64]>>(filter: &SplitBlockFilter256<S>) -> Result<Vec<u8>, EncodeError> {
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
    // Algorithm BLOCK, hash XXHASH, compression UNCOMPRESSED: unions whose first field is an
    // empty struct.
    for _ in 0..3 {
        bytes.extend([1 << 4 | STRUCT, 1 << 4 | STRUCT, 0, 0]);
    }
    bytes.push(0);
    bytes.extend(filter.words().iter().flat_map(|word| word.to_le_bytes()));
    Ok(bytes)
}

/// The filter of header and bitset, and nothing behind them.
///
/// The bytes don't say how many keys there are: [`len`](crate::Filter::len) is estimated
/// by the bits.
///
/// # Errors
/// If they are anything else.
pub fn decode(bytes: &[u8]) -> Result<SplitBlockFilter256, DecodeError> {
    match decode_prefix(bytes)? {
        (filter, []) => Ok(filter),
        (_, behind) => Err(DecodeError::Trailing(behind.len() as u64)),
    }
}

/// As [`decode`], from the beginning of bytes that may go on, as in a file; also returns those
/// behind the bitset.
///
/// # Errors
/// If they don't begin with a filter.
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

/// `BloomFilterHeader`, of the unions the field that is set.
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

/// Which field of a union is set; none if it is not one alone.
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
