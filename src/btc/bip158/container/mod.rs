//! Files of filters: the filters of a range of heights, one after the other.
//!
//! | step | type |
//! |---|---|
//! | write, append | [`Writer`] |
//! | read what is in memory or mapped | [`Records`] |
//! | read a stream in bounded memory | [`BatchReader`] |
//! | find the end of what is intact | [`Intact`] |
//!
//! What comes out feeds a [`Scan`](super::scan::Scan).
//!
//! # Format, version 1
//! All integers are little-endian; hashes are in the order of the wire. CRC is CRC-32C
//! (Castagnoli, RFC 3720 B.4).
//!
//! The file starts with 56 bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic: `89 43 42 46 0d 0a 1a 0a`, "CBF" for compact block filters, made as PNG's to show damage by text transfers |
//! | 8 | 2 | version: 1 |
//! | 10 | 1 | filter type: 0, basic |
//! | 11 | 1 | reserved: 0 |
//! | 12 | 4 | magic bytes of the network, as its messages start with |
//! | 16 | 4 | height of the first filter |
//! | 20 | 32 | filter header of the block before the first; all zeros before block 0 |
//! | 52 | 4 | CRC of the 52 bytes before |
//!
//! A record follows for each height, without a gap, to the end of the file:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `n`, the length of the filter: at most 4,000,000, what a message of the network carries |
//! | 4 | 32 | hash of the block |
//! | 36 | `n` | the filter, as a `cfilter` message carries it |
//! | 36 + `n` | 4 | CRC of the height of the block, in 4 bytes, and of all before in the record |
//!
//! The CRC finds accidents, not liars: whether the filters are the true ones shows when their
//! hashes meet filter headers ([`Header::commitment`]). These do not commit to the hashes of blocks,
//! and under a false one the true filter finds nothing: hashes in a file from others are to be
//! compared with a chain of block headers.
//!
//! Since a file is only appended to, it does not say how many records it has: one that is cut
//! between two records is a shorter file. One that is cut or damaged elsewhere is intact up to
//! there, and nothing behind is read.

mod reader;
mod stream;
mod writer;

use bitcoin::bip158::FilterHeader;
use bitcoin::hashes::Hash as _;
use thiserror::Error;

pub use reader::{Intact, Records};
pub use stream::{Batch, BatchReader};
pub use writer::Writer;

use super::scan::Commitment;

/// What a file starts with.
pub const MAGIC: [u8; 8] = *b"\x89CBF\r\n\x1a\n";
/// The version that is written here, and the one that is read.
pub const VERSION: u16 = 1;
/// The most bytes of a filter: those of the largest message of the network (Bitcoin Core's
/// `MAX_PROTOCOL_MESSAGE_LENGTH`).
pub const MAX_FILTER_LENGTH: u32 = 4_000_000;
/// The filter type: basic.
const BASIC: u8 = 0;

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The magic bytes of the network.
    pub network_magic: [u8; 4],
    /// The height of the first filter.
    pub start_height: u32,
    /// The filter header of the block before; all zeros before block 0.
    pub previous_filter_header: FilterHeader,
}

impl Header {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 56;
    const CHECKED: usize = Self::LEN - 4;

    /// The bytes that a file starts with.
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

    /// Reads the bytes that a file starts with.
    ///
    /// # Errors
    /// Bytes of something else, of another version or filter type, or damaged.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, ContainerError> {
        let mut rest = &bytes[..];
        let magic: [u8; 8] = field(&mut rest);
        if magic != MAGIC {
            return Err(ContainerError::NotAContainer(magic));
        }
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

    /// What the filter at `height` is to meet, by the filter headers of the file's heights from
    /// its first one on; `None` where they end.
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

/// Where in a file a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many records are before.
    pub record: u32,
    /// The height of its block.
    pub height: u32,
    /// The byte at which it starts.
    pub offset: u64,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { record, height, offset } = self;
        write!(f, "record {record} (height {height}, at byte {offset})")
    }
}

/// Why a file cannot be read any further, or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The bytes end inside the header.
    #[error("{length} bytes, the header has {len}", len = Header::LEN)]
    HeaderTruncated {
        /// How many bytes there are.
        length: usize,
    },
    /// The bytes are of something else.
    #[error("not a file of filters: starts with {0:02x?}, expected {MAGIC:02x?}")]
    NotAContainer([u8; 8]),
    /// Another version.
    #[error("version {0}, only version {VERSION} is read")]
    Version(u16),
    /// Another type of filters than basic.
    #[error("filter type {0}, only type {BASIC} is read")]
    FilterType(u8),
    /// Something in a place that has no meaning yet.
    #[error("reserved byte is {0}, expected 0")]
    Reserved(u8),
    /// The header is damaged.
    #[error("the header is damaged: its checksum is {computed:08x}, {stored:08x} is written")]
    HeaderChecksum {
        /// What is written.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The bytes end inside a record: the file was cut, or the length in it is damaged.
    #[error("{place} needs {needed} bytes, {left} are left")]
    RecordTruncated {
        /// The record.
        place: Place,
        /// How many bytes it has, as far as its length is there.
        needed: u64,
        /// How many bytes are left.
        left: u64,
    },
    /// A filter over the limit.
    #[error("{place}: a filter of {length} bytes, the limit is {MAX_FILTER_LENGTH}")]
    FilterTooLong {
        /// The record.
        place: Place,
        /// The length of the filter.
        length: u64,
    },
    /// A record is damaged.
    #[error("{place} is damaged: its checksum is {computed:08x}, {stored:08x} is written")]
    RecordChecksum {
        /// The record.
        place: Place,
        /// What is written.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A record past the last height that a block can have.
    #[error("record {record} at byte {offset} is over the limit of height {max}", max = u32::MAX - 1)]
    TooManyRecords {
        /// How many records are before.
        record: u32,
        /// The byte at which it starts.
        offset: u64,
    },
    /// Reading or writing failed.
    #[error("cannot read or write at byte {offset}: {kind}")]
    Io {
        /// What went wrong.
        kind: std::io::ErrorKind,
        /// The byte before which all went well.
        offset: u64,
    },
}

/// Takes `N` bytes off the front of a part whose length is known to suffice.
fn field<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("the fields are as long as the whole");
    *bytes = rest;
    *first
}
