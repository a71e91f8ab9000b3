//! Container files: the filters of a range of heights in one file.
//!
//! | task | type |
//! |---|---|
//! | write, append | [`Writer`] |
//! | read a file in memory or memory-mapped | [`Records`] |
//! | read a stream in bounded memory | [`BatchReader`] |
//! | find the end of the intact part | [`Intact`] |
//!
//! A [`FilterScan`](super::scan::FilterScan) takes the records as its input.
//!
//! # Format, version 1
//! All integers are little-endian, and hashes are in internal byte order, as in messages. CRC is
//! CRC-32C (Castagnoli, RFC 3720 B.4).
//!
//! The file starts with a header of 56 bytes:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | magic: `89 43 42 46 0d 0a 1a 0a`, with "CBF" for compact block filters; like PNG's magic, it reveals damage by text-mode transfers |
//! | 8 | 2 | version: 1 |
//! | 10 | 1 | filter type: 0, basic |
//! | 11 | 1 | reserved: 0 |
//! | 12 | 4 | magic bytes of the network, as at the start of its messages |
//! | 16 | 4 | height of the first filter |
//! | 20 | 32 | filter header of the block before the first one; all zeros before block 0 |
//! | 52 | 4 | CRC of the 52 bytes before |
//!
//! The header is followed by one record for each height, without gaps, to the end of the file:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4 | `n`, the length of the filter: at most 4,000,000, the limit of a network message |
//! | 4 | 32 | hash of the block |
//! | 36 | `n` | the filter, as in a `cfilter` message |
//! | 36 + `n` | 4 | CRC of the block's height, as 4 bytes, followed by all bytes before in the record |
//!
//! The CRC detects accidental damage, not malicious changes. To check that the filters are the true
//! filters, their hashes are compared with filter headers ([`Header::commitment`]). Filter headers
//! do not commit to block hashes, and the true filter matches nothing under a false block hash. The
//! block hashes of a file from someone else must therefore be compared with a chain of block
//! headers.
//!
//! Files are only appended to, so the header does not contain the number of records. A file that is
//! truncated between two records is a valid shorter file. A file that is truncated inside a record,
//! or damaged, is intact up to the last record before the fault. Nothing after the fault is read.

mod records;
mod stream;

use bitcoin::bip158::FilterHeader;
use bitcoin::hashes::Hash as _;
use thiserror::Error;

pub use records::{Intact, Records, Writer};
pub use stream::BatchReader;

use super::scan::Commitment;

/// The magic bytes at the start of a file.
pub const MAGIC: [u8; 8] = *b"\x89CBF\r\n\x1a\n";
/// The format version that this crate writes, and the only version that it reads.
pub const VERSION: u16 = 1;
/// The maximum length of a filter in bytes: that of the largest network message (Bitcoin Core's
/// `MAX_PROTOCOL_MESSAGE_LENGTH`).
pub const MAX_FILTER_LENGTH: u32 = 4_000_000;
/// The filter type of basic filters.
const BASIC: u8 = 0;

/// The header of a container file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The magic bytes of the network.
    pub network_magic: [u8; 4],
    /// The height of the first filter.
    pub start_height: u32,
    /// The filter header of the block before the first block; all zeros before block 0.
    pub previous_filter_header: FilterHeader,
}

impl Header {
    /// The length of an encoded header in bytes.
    pub const LEN: usize = 56;
    const CHECKED: usize = Self::LEN - 4;

    /// Encodes the header: the first bytes of a file.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = BASIC;
        bytes[12..16].copy_from_slice(&self.network_magic);
        bytes[16..20].copy_from_slice(&self.start_height.to_le_bytes());
        bytes[20..52].copy_from_slice(self.previous_filter_header.as_byte_array());
        let crc = crc32c::crc32c(&bytes[..Self::CHECKED]);
        bytes[Self::CHECKED..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the first bytes of a file.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a header, are damaged, or have another version or
    /// filter type.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, ContainerError> {
        let mut rest = &bytes[..];
        let magic: [u8; 8] = field(&mut rest);
        if magic != MAGIC {
            return Err(ContainerError::NotAContainer(magic));
        }
        // The version is checked before the checksum, because the header of a later version may
        // have a different layout.
        let version = u16::from_le_bytes(field(&mut rest));
        if version != VERSION {
            return Err(ContainerError::Version(version));
        }
        let computed = crc32c::crc32c(&bytes[..Self::CHECKED]);
        let [filter_type, reserved] = field(&mut rest);
        let header = Self {
            network_magic: field(&mut rest),
            start_height: u32::from_le_bytes(field(&mut rest)),
            previous_filter_header: FilterHeader::from_byte_array(field(&mut rest)),
        };
        let stored = u32::from_le_bytes(field(&mut rest));
        if stored != computed {
            return Err(ContainerError::HeaderChecksum { stored, computed });
        }
        if filter_type != BASIC {
            return Err(ContainerError::FilterType(filter_type));
        }
        if reserved != 0 {
            return Err(ContainerError::Reserved(reserved));
        }
        Ok(header)
    }

    /// Returns the commitment that the filter at `height` must meet. `headers` are the filter
    /// headers from the file's first height on. Returns `None` for heights that `headers` do not
    /// cover.
    ///
    /// # Examples
    /// ```no_run
    /// # use chainsieve::btc::bip158::container::{ContainerError, Records};
    /// # use chainsieve::btc::bip158::scan::FilterItem;
    /// # fn items(file: &[u8], headers: &[chainsieve::bitcoin::bip158::FilterHeader])
    /// # -> Result<(), ContainerError> {
    /// let records = Records::new(file)?;
    /// let header = *records.header();
    /// let items = records.map_while(Result::ok).map(|item| FilterItem {
    ///     commitment: header.commitment(headers, item.height),
    ///     ..item
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn commitment(&self, headers: &[FilterHeader], height: u32) -> Option<Commitment> {
        let index = usize::try_from(height.checked_sub(self.start_height)?).ok()?;
        let previous = match index.checked_sub(1) {
            Some(before) => *headers.get(before)?,
            None => self.previous_filter_header,
        };
        Some(Commitment::Header { previous, header: *headers.get(index)? })
    }
}

/// The position of a record in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// The number of records before this one.
    pub record: u32,
    /// The height of the record's block.
    pub height: u32,
    /// The offset of the record's first byte.
    pub offset: u64,
}

impl core::fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { record, height, offset } = self;
        write!(f, "record {record} (height {height}, at byte {offset})")
    }
}

/// Reason why a file cannot be read any further, or cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The bytes end inside the file header.
    #[error("{length} bytes, the header needs {len}", len = Header::LEN)]
    HeaderTruncated {
        /// The number of bytes given.
        length: usize,
    },
    /// The bytes are not a container file.
    #[error("not a file of filters: starts with {0:02x?}, expected {MAGIC:02x?}")]
    NotAContainer([u8; 8]),
    /// The version is not supported.
    #[error("version {0}, the only supported version is {VERSION}")]
    Version(u16),
    /// The filter type is not basic.
    #[error("filter type {0}, the only supported type is {BASIC}")]
    FilterType(u8),
    /// A reserved byte is not zero.
    #[error("reserved byte is {0}, expected 0")]
    Reserved(u8),
    /// The file header is damaged.
    #[error("the header is damaged: its checksum is {computed:08x}, but {stored:08x} is stored")]
    HeaderChecksum {
        /// The checksum stored in the file.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The bytes end inside a record: the file is truncated, or the record's length is damaged.
    #[error("{place} needs {needed} bytes, {left} are left")]
    RecordTruncated {
        /// The position of the record.
        place: RecordPlace,
        /// The length of the record in bytes, as far as it is known.
        needed: u64,
        /// The number of bytes left.
        left: u64,
    },
    /// A filter exceeds [`MAX_FILTER_LENGTH`].
    #[error("{place}: a filter of {length} bytes, the limit is {MAX_FILTER_LENGTH}")]
    FilterTooLong {
        /// The position of the record.
        place: RecordPlace,
        /// The length of the filter in bytes.
        length: u64,
    },
    /// A record is damaged.
    #[error("{place} is damaged: its checksum is {computed:08x}, but {stored:08x} is stored")]
    RecordChecksum {
        /// The position of the record.
        place: RecordPlace,
        /// The checksum stored in the record.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A record would have a height above the highest possible one.
    #[error("record {record} at byte {offset} exceeds the maximum height of {max}", max = u32::MAX - 1)]
    TooManyRecords {
        /// The number of records before this one.
        record: u32,
        /// The offset of the record's first byte.
        offset: u64,
    },
    /// A read or write failed.
    #[error("cannot read or write at byte {offset}: {kind}")]
    Io {
        /// The kind of the I/O error.
        kind: std::io::ErrorKind,
        /// The offset up to which all reads and writes succeeded.
        offset: u64,
    },
}

/// Removes `N` bytes from the front of a slice that is known to be long enough.
fn field<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("the fields are as long as the whole");
    *bytes = rest;
    *first
}
