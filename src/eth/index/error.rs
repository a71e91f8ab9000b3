//! What can be wrong with an index, or with what is to be added to it.

use alloc::format;
use alloc::string::String;
use std::io;

use alloy_primitives::B256;

/// What was being done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a file, or listing the folder.
    Open,
    /// Asking for the length of a file.
    Length,
    /// Reading.
    Read,
    /// Creating a file.
    Create,
    /// Writing at the end.
    Append,
    /// Making what was written durable.
    Sync,
    /// Giving a file another name.
    Rename,
    /// Taking the lock.
    Lock,
}

impl core::fmt::Display for Operation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Length => "tell the length of",
            Self::Read => "read",
            Self::Create => "create",
            Self::Append => "append to",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Lock => "lock",
        })
    }
}

/// The part of a file that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The manifest.
    Manifest,
    /// The first bytes of a segment.
    SegmentHeader,
    /// What a segment says of one of its sections: hashes, times, fills, gas.
    Section {
        /// Which section of the segment, from 0.
        section: u32,
    },
    /// What a segment says of one of its rows.
    RowEntry {
        /// The bit position of the row, 0 to 2047.
        row: u16,
    },
    /// The bits of a row in one section.
    Row {
        /// The bit position of the row, 0 to 2047.
        row: u16,
        /// Which section of the segment, from 0.
        section: u32,
    },
    /// The hashes of the blocks of a section.
    BlockHashes {
        /// Which section of the segment, from 0.
        section: u32,
    },
    /// The first bytes of the tail.
    TailHeader,
    /// A slot of the tail.
    Slot {
        /// Which slot, from 0.
        slot: u32,
    },
    /// A block that is not sealed, as the slots of the tail have it.
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

/// What is wrong with a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Its checksum is not that of its bytes.
    #[error("its checksum is {computed:08x}, {stored:08x} is written")]
    Checksum {
        /// What is written.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The file has another length than it must have.
    #[error("the file has {found} bytes, expected {expected}")]
    Length {
        /// How many bytes the file has.
        found: u64,
        /// How many it must have, at least for a tail.
        expected: u64,
    },
    /// It contradicts itself or another part: what and how.
    #[error("{0}")]
    Contradiction(String),
}

/// Why an index can't be read, asked or added to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The storage failed.
    #[error("cannot {operation} {file} at byte {offset}: {kind}")]
    Io {
        /// What went wrong.
        kind: io::ErrorKind,
        /// What was being done.
        operation: Operation,
        /// To which file.
        file: String,
        /// The byte before which all went well.
        offset: u64,
    },
    /// There is no index in the folder.
    #[error("no index: {} is missing", Part::Manifest)]
    NoIndex,
    /// There is an index in the folder already.
    #[error("there is an index already")]
    Exists,
    /// Another writer has the index open.
    #[error("another process is writing to the index")]
    Locked,
    /// A file of something else.
    #[error("{file} is not of an index: it starts with {found:02x?}, expected {expected:02x?}")]
    NotOfAnIndex {
        /// The file.
        file: String,
        /// Its first bytes.
        found: [u8; 8],
        /// What the file must start with.
        expected: [u8; 8],
    },
    /// A version that is not known here.
    #[error("{file} has version {found}; versions up to {known} are read")]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u16,
        /// The highest that is read.
        known: u16,
    },
    /// Flags that are not known here.
    #[error("{file} has the flags {flags:#06x}, of which {unknown:#06x} are not known")]
    Flags {
        /// The file.
        file: String,
        /// All flags.
        flags: u16,
        /// Those without a meaning.
        unknown: u16,
    },
    /// A part of a file is not what was written.
    #[error("{file} is damaged at byte {offset}, {part}: {damage}")]
    Damaged {
        /// The file.
        file: String,
        /// Where the part starts.
        offset: u64,
        /// The part.
        part: Part,
        /// What is wrong.
        damage: Damage,
    },
    /// An index without a block.
    #[error("the index has no block yet")]
    Empty,
    /// Something else than what the headers have.
    #[error("{file} differs from the headers at block {number}, {part}: {what}")]
    Differs {
        /// The file.
        file: String,
        /// The part.
        part: Part,
        /// Number of the block; the last one where a whole section differs.
        number: u64,
        /// What the header has, and what the index.
        what: String,
    },
    /// Blocks that the index does not have.
    #[error("blocks {first} to {last} were asked for; the index has {index_first} to {index_last}")]
    Range {
        /// First block asked for.
        first: u64,
        /// Last block asked for.
        last: u64,
        /// First block of the index.
        index_first: u64,
        /// Last block of the index.
        index_last: u64,
    },
    /// A chain label that can't be written.
    #[error("a chain label of {length} bytes; it must have 1 to {max} without control characters")]
    Label {
        /// How many bytes it has.
        length: usize,
        /// The most there can be.
        max: usize,
    },
    /// The settings asked for are not those of the index.
    #[error("the index is of chain {index}, and {asked} was asked for")]
    OtherChain {
        /// The label of the index.
        index: String,
        /// The label asked for.
        asked: String,
    },
    /// The index keeps block hashes, and was to be opened without, or the other way round.
    #[error("the index was built {}", if *.index { "with a column of block hashes" } else { "without a column of block hashes" })]
    OtherHashes {
        /// Whether the index has block hashes.
        index: bool,
    },
    /// Headers that don't start right behind the last block.
    #[error("{}", gap(*last, *found))]
    Gap {
        /// Last block of the index, or of the headers before.
        last: u64,
        /// First block of the headers.
        found: u64,
    },
    /// Headers that belong to another branch, or another chain.
    #[error("the parent of block {number} is {found}; the block before it here is {expected}")]
    Parent {
        /// Number of the first block whose parent is known to differ.
        number: u64,
        /// Hash of the block before, in the index, or of those that were verified.
        expected: B256,
        /// Hash of the block before, in the chain.
        found: B256,
    },
    /// A reorganisation that reaches below what can be taken back.
    #[error(
        "blocks up to {sealed} are sealed; going back to block {asked} takes an index built anew: \
         from block {rebuild_from} on, or with a deeper tail"
    )]
    Sealed {
        /// The last block to stay.
        asked: u64,
        /// The last sealed block.
        sealed: u64,
        /// First block of the index.
        rebuild_from: u64,
    },
    /// Everything would be taken back.
    #[error("block {first} is the index's first and can't be taken back: build the index anew")]
    BelowFirst {
        /// First block of the index.
        first: u64,
    },
    /// Block numbers that have no end.
    #[error("block {number}: the numbers of its section don't fit 64 bits")]
    Number {
        /// The block.
        number: u64,
    },
    /// An earlier write failed: what is on disk is not known any more.
    #[error("an earlier write failed; open the index again")]
    Failed,
}

fn gap(last: u64, found: u64) -> String {
    match found.checked_sub(last) {
        Some(blocks @ 1..) => {
            format!("block {found} comes after block {last}: {} are missing", blocks - 1)
        }
        _ => format!("block {found} comes again: block {last} was the last"),
    }
}
