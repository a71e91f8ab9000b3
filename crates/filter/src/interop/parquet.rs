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
//! Source: `BloomFilter.md` and `parquet.thrift` of `apache/parquet-format`, and
//! `thrift-compact-protocol.md` of `apache/thrift`.

use alloc::vec::Vec;

use crate::encoding::EncodeError;
use crate::hashing::{HashFunction, KeyHasher};
use crate::membership::Filter as _;
use crate::sizing::{BuildError, blocked};
use crate::split_block::SplitBlockFilter256;
use crate::words::{NoMemory, Words};

/// Size of a block: 256 bits.
const BLOCK_BYTES: usize = 32;
/// Greatest size of a bitset that other readers accept.
const MAX_WRITTEN_BYTES: u64 = 128 << 20;

/// Type number of a 32-bit integer.
const I32: u8 = 5;
/// Type number of a struct.
const STRUCT: u8 = 12;
/// Greatest nesting depth of structs, lists and maps. A valid header needs a depth of 3. The limit
/// keeps hostile bytes from exhausting the stack.
const MAX_DEPTH: u32 = 16;

/// The hasher of Parquet's filters: XXH64 with seed 0.
pub const HASHER: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });

/// The reason why bytes are not a Bloom filter of Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value of the header.
    #[error("the header ends after {0} bytes, inside a value")]
    HeaderTruncated(u64),
    /// A number of the header has more bits than its type.
    #[error("the number before byte {0} of the header is too large for its type")]
    TooLarge(u64),
    /// A field of the header has a type number that the protocol does not define.
    #[error("unknown type {kind} before byte {at} of the header")]
    Kind {
        /// The type number.
        kind: u8,
        /// Number of bytes read before the error.
        at: u64,
    },
    /// Values of the header are nested too deeply.
    #[error("values are nested more than {0} levels deep")]
    TooDeep(u32),
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
pub fn num_blocks(capacity: u64, fpr: f64) -> Result<u64, BuildError> {
    let needed = blocked::split_blocks(capacity, fpr, 32)?;
    let max = MAX_WRITTEN_BYTES / BLOCK_BYTES as u64;
    let blocks = needed.checked_next_power_of_two().filter(|blocks| *blocks <= max);
    let (what, value) = ("a number of blocks", needed);
    blocks.ok_or(BuildError::Parameter { what, value, min: 1, max })
}

/// Encodes the header and the bitset.
///
/// # Errors
/// Returns an error if Parquet's readers would reject the number of blocks, or if the filter's
/// hasher is not [`HASHER`].
pub fn encode<S: AsRef<[u64]>>(filter: &SplitBlockFilter256<S>) -> Result<Vec<u8>, EncodeError> {
    // The specification fixes the hash function and its seed.
    if *filter.hasher() != HASHER {
        return Err(EncodeError::ParquetHasher);
    }
    let num_blocks = filter.num_blocks();
    let bitset_bytes = num_blocks * BLOCK_BYTES as u64;
    let bitset_length = i32::try_from(bitset_bytes)
        .ok()
        .filter(|_| num_blocks.is_power_of_two() && bitset_bytes <= MAX_WRITTEN_BYTES);
    let mut bytes = Vec::new();
    write_i32_field(&mut bytes, 1, bitset_length.ok_or(EncodeError::ParquetBlocks(num_blocks))?);
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
    let header = BloomFilterHeader::read(&mut reader)?;
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
struct BloomFilterHeader {
    bitset_length: Option<i32>,
    algorithm: Option<i16>,
    hash: Option<i16>,
    compression: Option<i16>,
}

impl BloomFilterHeader {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut header = Self::default();
        let mut fields = reader.fields()?;
        while let Some(field) = fields.next(reader)? {
            match (field.id, field.kind) {
                (1, I32) => header.bitset_length = Some(reader.i32()?),
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
fn union(reader: &mut Reader<'_>) -> Result<Option<i16>, DecodeError> {
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

/// Reads values of Thrift's compact protocol one after another from a byte slice. The reader skips
/// fields that it does not know.
struct Reader<'a> {
    bytes: &'a [u8],
    read: u64,
    depth: u32,
}

/// The state of reading a struct's fields: the number of the last field, because the next number is
/// stored as the difference from it.
struct Fields {
    last_id: i16,
}

/// The number and the type of a field.
struct Field {
    id: i16,
    kind: u8,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: 0, depth: 0 }
    }

    /// Returns the bytes that were not read yet.
    fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Enters a struct. [`Fields::next`] leaves the struct at its end.
    fn fields(&mut self) -> Result<Fields, DecodeError> {
        self.enter()?;
        Ok(Fields { last_id: 0 })
    }

    fn i32(&mut self) -> Result<i32, DecodeError> {
        i32::try_from(self.zigzag()?).map_err(|_| DecodeError::TooLarge(self.read))
    }

    /// Skips the value of a field with type `kind`.
    fn skip(&mut self, kind: u8) -> Result<(), DecodeError> {
        match kind {
            // A boolean field has no value bytes: its type is `true` (1) or `false` (2).
            1 | 2 => Ok(()),
            kind => self.skip_value(kind),
        }
    }

    fn skip_value(&mut self, kind: u8) -> Result<(), DecodeError> {
        match kind {
            1..=3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                self.enter()?;
                let start = self.byte()?;
                let count = match start >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                self.skip_values(count, &[start & 15])
            }
            11 => {
                self.enter()?;
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                self.skip_values(count, &[kinds >> 4, kinds & 15])
            }
            STRUCT => {
                let mut fields = self.fields()?;
                while let Some(field) = fields.next(self)? {
                    self.skip(field.kind)?;
                }
                Ok(())
            }
            kind => Err(DecodeError::Kind { kind, at: self.read }),
        }
    }

    /// Skips the elements of a list, set or map.
    ///
    /// Every element takes at least one byte. A hostile `count` therefore ends the loop with an
    /// error when the bytes end.
    fn skip_values(&mut self, count: u64, kinds: &[u8]) -> Result<(), DecodeError> {
        for _ in 0..count {
            for kind in kinds {
                self.skip_value(*kind)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        // Nested values are skipped by recursion, so their depth is limited.
        if self.depth == MAX_DEPTH {
            return Err(DecodeError::TooDeep(MAX_DEPTH));
        }
        self.depth += 1;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) =
            self.bytes.split_first().ok_or(DecodeError::HeaderTruncated(self.read))?;
        self.bytes = rest;
        self.read += 1;
        Ok(*first)
    }

    fn pass(&mut self, count: u64) -> Result<(), DecodeError> {
        let rest = usize::try_from(count).ok().and_then(|count| self.bytes.get(count..));
        self.bytes =
            rest.ok_or(DecodeError::HeaderTruncated(self.read + self.bytes.len() as u64))?;
        self.read += count;
        Ok(())
    }

    /// Reads an unsigned number: 7 bits per byte, the lowest bits first, with the high bit set in
    /// all bytes but the last.
    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The number has more than 64 bits.
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::TooLarge(self.read))
    }

    /// Reads a signed number in zigzag encoding, where the sign is the lowest bit.
    fn zigzag(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

impl Fields {
    /// Returns the next field, or `None` at the end of the struct. The caller must then read or
    /// skip the field's value.
    fn next(&mut self, reader: &mut Reader<'_>) -> Result<Option<Field>, DecodeError> {
        let start = reader.byte()?;
        if start == 0 {
            reader.depth -= 1;
            return Ok(None);
        }
        let too_large = DecodeError::TooLarge(reader.read);
        let id = match start >> 4 {
            0 => i16::try_from(reader.zigzag()?).ok(),
            step => self.last_id.checked_add(step.into()),
        };
        self.last_id = id.ok_or(too_large)?;
        Ok(Some(Field { id: self.last_id, kind: start & 15 }))
    }
}

/// Writes an `i32` field. `step` is the number of the field minus the number of the preceding field
/// (0 for the first field), from 1 to 15.
fn write_i32_field(bytes: &mut Vec<u8>, step: u8, value: i32) {
    bytes.push(step << 4 | I32);
    let mut left = (value << 1 ^ value >> 31).cast_unsigned();
    while left >= 0x80 {
        bytes.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    bytes.push(left.to_le_bytes()[0]);
}
