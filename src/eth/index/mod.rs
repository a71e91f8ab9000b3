//! Bit-sliced index over the Bloom filters of a chain: it is stored on disk and answers a query in
//! milliseconds.
//!
//! A row-by-row scan reads every filter of its range: 6.8 GB for all of mainnet. The index stores
//! the transposed matrix instead: one row for each of the 2,048 filter bits, with one bit for each
//! block. A query for one address reads three of these 2,048 rows. The result has the same
//! candidates as a [`scan`](crate::eth::scan) of the headers.
//!
//! | step | type |
//! |---|---|
//! | build the index, add headers, roll back a reorganisation | [`Writer`] |
//! | query the index | [`Index`] |
//! | result of a query | [`Candidates`] |
//! | see how full the filters are | [`Index::fills`] |
//! | check the index for damage, or against headers | [`Index::check`], [`Verifier`] |
//! | store the files | [`Storage`], [`WriteStorage`], [`Folder`] |
//!
//! An index is a cache of headers that its builder verified: the writer accepts only a
//! [`LinkedHeaders`](crate::eth::header::LinkedHeaders). The index proves nothing to others. The
//! hash of a candidate block is read from the column of block hashes. If the index has no such
//! column, the caller links headers from the candidate to the next block whose hash the index
//! stores ([`Index::next_known_hash`]).
//!
//! All later versions of this library will read the [format](self#format).

mod format;
mod query;
mod reader;
mod rows;
mod seal;
mod section;
mod storage;
mod tail;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use alloc::format;
use alloc::string::String;
use std::io;

use alloy_primitives::B256;

pub use format::Settings;
pub use query::{Candidates, QueryStats};
pub use reader::{Index, SegmentFile};
pub use storage::{Append, FileKind, Folder, ReadAt, Storage, WriteStorage};
pub use verify::Verifier;
pub use writer::Writer;

/// The part of a file that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The manifest file.
    Manifest,
    /// The header of a segment: its first 64 bytes.
    SegmentHeader,
    /// The record of one section in a segment: hashes, times, fills and gas.
    Section {
        /// Number of the section within its segment, from 0.
        section: u32,
    },
    /// The entry of one row in the directory of a segment.
    RowEntry {
        /// Bit position of the row, 0 to 2047.
        row: u16,
    },
    /// The data of one row for one section.
    Row {
        /// Bit position of the row, 0 to 2047.
        row: u16,
        /// Number of the section within its segment, from 0.
        section: u32,
    },
    /// The block hashes of one section.
    BlockHashes {
        /// Number of the section within its segment, from 0.
        section: u32,
    },
    /// The header of the tail: its first 96 bytes.
    TailHeader,
    /// One slot of the tail.
    Slot {
        /// Number of the slot, from 0.
        slot: u32,
    },
    /// An unsealed block, as read from the slots of the tail.
    Unsealed,
}

impl core::fmt::Display for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Manifest => f.write_str("the manifest"),
            Self::SegmentHeader => f.write_str("the header of the segment"),
            Self::Section { section } => write!(f, "the record of section {section}"),
            Self::RowEntry { row } => write!(f, "the entry of row {row}"),
            Self::Row { row, section } => write!(f, "row {row} in section {section}"),
            Self::BlockHashes { section } => write!(f, "the block hashes of section {section}"),
            Self::TailHeader => f.write_str("the header of the tail"),
            Self::Slot { slot } => write!(f, "slot {slot} of the tail"),
            Self::Unsealed => f.write_str("an unsealed block"),
        }
    }
}

/// Kind of damage found in a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The stored checksum differs from the checksum of the bytes.
    #[error("its checksum is {computed:08x}, but {stored:08x} is stored")]
    Checksum {
        /// Checksum stored in the file.
        stored: u32,
        /// Checksum computed from the bytes.
        computed: u32,
    },
    /// The file does not have the expected length.
    #[error("the file has {found} bytes, expected {expected}")]
    Length {
        /// Length of the file in bytes.
        found: u64,
        /// Expected length in bytes; for a tail, the minimum length.
        expected: u64,
    },
    /// The values of the part contradict each other or another part of the file; the text describes
    /// the contradiction.
    #[error("{0}")]
    Contradiction(String),
}

/// Error when opening, querying or extending an index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The storage failed.
    #[error("cannot {operation} {file} at byte {offset}: {kind}")]
    Io {
        /// Kind of the I/O error.
        kind: io::ErrorKind,
        /// Operation that failed: `open`, `get the length of`, `read`, `create`, `append to`, `sync`,
        /// `rename` or `lock`.
        operation: &'static str,
        /// Name of the file.
        file: String,
        /// Offset in bytes up to which the operation is known to have succeeded.
        offset: u64,
    },
    /// The folder does not exist, or contains no index: the manifest is missing.
    #[error("no index: the folder does not exist, or contains no manifest")]
    NoIndex,
    /// The folder of the index does not exist.
    #[error("the folder of the index does not exist")]
    NoFolder,
    /// The folder already contains an index.
    #[error("the folder already contains an index")]
    Exists,
    /// Another writer holds the lock of the index.
    #[error("another process is writing to the index")]
    Locked,
    /// A file that belongs to another format.
    #[error("{file} is not an index file: it starts with {found:02x?}, expected {expected:02x?}")]
    NotOfAnIndex {
        /// Name of the file.
        file: String,
        /// First eight bytes of the file.
        found: [u8; 8],
        /// First eight bytes of a valid file of this kind.
        expected: [u8; 8],
    },
    /// A format version that this library cannot read.
    #[error("{file} has version {found}; this library reads versions up to {known}")]
    Version {
        /// Name of the file.
        file: String,
        /// Format version of the file.
        found: u16,
        /// Highest version that this library reads.
        known: u16,
    },
    /// Flags that this version of the format does not define.
    #[error("{file} has flags {flags:#06x}, of which {unknown:#06x} are unknown")]
    Flags {
        /// Name of the file.
        file: String,
        /// All flags of the file.
        flags: u16,
        /// The flags without a defined meaning.
        unknown: u16,
    },
    /// A part of a file is damaged: it does not have the bytes that were written.
    #[error("{file} is damaged at byte {offset}, {part}: {damage}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Offset in bytes at which the damaged part starts.
        offset: u64,
        /// The damaged part.
        part: Part,
        /// Kind of damage.
        damage: Damage,
    },
    /// The index contains no block.
    #[error("the index has no block yet")]
    Empty,
    /// The index differs from the headers with which it is compared.
    #[error("{file} differs from the headers at block {number}, {part}: {what}")]
    Differs {
        /// Name of the file that differs.
        file: String,
        /// The part that differs.
        part: Part,
        /// Number of the block that differs; if the record of a whole section differs, the number
        /// of the section's last block.
        number: u64,
        /// Description of the difference: the value in the header and the value in the index.
        what: String,
    },
    /// The requested range has blocks that the index does not contain.
    #[error("blocks {first} to {last} were requested; the index has {index_first} to {index_last}")]
    Range {
        /// First requested block.
        first: u64,
        /// Last requested block.
        last: u64,
        /// First block of the index.
        index_first: u64,
        /// Last block of the index.
        index_last: u64,
    },
    /// A chain label that is empty, too long, or contains control characters.
    #[error("chain label has {length} bytes; it must have 1 to {max} and no control characters")]
    Label {
        /// Length of the label in bytes.
        length: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// The requested chain label is not the label of the index.
    #[error("the index is for chain {index:?}, but chain {asked:?} was requested")]
    OtherChain {
        /// Chain label of the index.
        index: String,
        /// Requested chain label.
        asked: String,
    },
    /// The index has a column of block hashes but the requested settings have none, or the reverse.
    #[error("the index was built {}", if *.index { "with a column of block hashes" } else { "without a column of block hashes" })]
    OtherHashes {
        /// `true` if the index has a column of block hashes.
        index: bool,
    },
    /// The headers do not start at the block that must come next.
    #[error("{}", gap(*last, *found))]
    Gap {
        /// Last block of the index, or of the headers compared so far.
        last: u64,
        /// Number of the first block of the headers.
        found: u64,
    },
    /// The headers do not belong to the same branch and chain as the index.
    #[error("the parent of block {number} is {found}; the preceding block here is {expected}")]
    Parent {
        /// Number of the lowest block whose parent hash is not the expected hash.
        number: u64,
        /// Hash of the preceding block, in the index or in the headers compared so far.
        expected: B256,
        /// Parent hash of the block, in the headers of the caller.
        found: B256,
    },
    /// A reorganisation would remove sealed blocks.
    #[error(
        "cannot roll back to block {asked}: blocks up to {sealed} are sealed; rebuild the index \
         from block {rebuild_from} on, or with more unsealed blocks"
    )]
    Sealed {
        /// Last block that should stay.
        asked: u64,
        /// Number of the last sealed block.
        sealed: u64,
        /// First block of the index.
        rebuild_from: u64,
    },
    /// A roll-back would remove all blocks of the index.
    #[error("block {first} is the first of the index and can't be removed: rebuild the index")]
    BelowFirst {
        /// First block of the index.
        first: u64,
    },
    /// A block number is so high that the block numbers of its section, or the count of sections,
    /// overflow.
    #[error("block {number}: the block numbers of its section don't fit 64 bits")]
    Number {
        /// Number of the block.
        number: u64,
    },
    /// An earlier write failed, so that the content on disk is unknown.
    #[error("an earlier write failed; open the index again")]
    Failed,
}

fn gap(last: u64, found: u64) -> String {
    match found.checked_sub(last) {
        Some(blocks @ 1..) => {
            format!("block {found} comes after block {last}: {} are missing", blocks - 1)
        }
        _ => format!("block {found} is out of order: block {last} was the last"),
    }
}
