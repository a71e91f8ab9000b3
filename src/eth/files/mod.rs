//! Readers of headers, bodies and receipts in files: era1 and ere archives, RLP, JSON, hex.
//!
//! - [`HeaderReader`] reads the headers of a file, and detects its [format](FileFormat) from the
//!   first bytes.
//! - `BlockEntries` reads the bodies or the receipts of an archive.
//! - `Archive` reads every entry of an archive.
//! - `HistoryReader` shows that the headers of an archive are part of the chain, by the archive's
//!   accumulator and proofs (feature `anchor`).
//! - [`JsonValues`] splits a JSON text of any size into its values.
//!
//! All readers read from an [`Input`], which wraps a [`Read`](std::io::Read): a file, standard
//! input, a pipe. Files are untrusted. So every length in a file has a limit, and memory grows with
//! the bytes that were read, not with the length that the file claims. Every error is a
//! [`FileError`] with its position.
//!
//! Archives are compressed with Snappy, so reading them needs the feature `era`.

#[cfg(feature = "era")]
mod archive;
#[cfg(all(feature = "era", feature = "anchor"))]
mod archive_history;
mod header_reader;
mod input;
mod json;

use alloc::string::{String, ToString as _};
use core::fmt;
use std::io;

use alloy_primitives::B256;

use crate::eth::header::{ChainError, HeaderError};
use crate::eth::json::ValueProblem;

#[cfg(feature = "era")]
pub use archive::{Archive, BlockEntries, Entry, EntryKind, body_transactions};
#[cfg(all(feature = "era", feature = "anchor"))]
pub use archive_history::{ArchiveHistory, HistoryReader};
pub use header_reader::{HeaderBatch, HeaderReader};
pub use input::{FileFormat, Input, MAX_HEADER};
pub use json::{JsonValue, JsonValues};

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Position {
    /// The offset of a byte, from 0.
    Byte(u64),
    /// The number of a line, from 1.
    Line(u64),
    /// A byte in a line of a text.
    Column {
        /// The number of the line, from 1.
        line: u64,
        /// The number of the byte in the line, from 1.
        column: u64,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(offset) => write!(f, "byte {offset}"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Column { line, column } => write!(f, "line {line}, column {column}"),
        }
    }
}

/// Error of reading a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {problem}")]
#[non_exhaustive]
pub struct FileError {
    /// Position of the invalid header, entry, line or byte.
    pub position: Position,
    /// Reason for the error.
    pub problem: FileProblem,
}

impl FileError {
    const fn new(position: Position, problem: FileProblem) -> Self {
        Self { position, problem }
    }

    fn io(offset: u64, error: &io::Error) -> Self {
        let problem = FileProblem::Io { kind: error.kind(), message: error.to_string() };
        Self::new(Position::Byte(offset), problem)
    }
}

/// Reason why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The reader failed.
    #[error("cannot read: {message}")]
    Io {
        /// The kind of the reader's error.
        kind: io::ErrorKind,
        /// The message of the reader's error.
        message: String,
    },
    /// The input has no bytes.
    #[error("the input is empty")]
    Empty,
    /// The first bytes belong to no known format.
    #[error(
        "unknown format: the input starts with 0x{first:02x}, unlike RLP, JSON, hex and era1 or \
         ere archives"
    )]
    UnknownFormat {
        /// The first byte.
        first: u8,
    },
    /// The input is an archive, but the library was built without the feature `era`.
    #[error("an era1 or ere archive: chainsieve was built without its feature `era`")]
    NoEraFeature,
    /// The input ends before the end of a part whose length is known.
    #[error("the {part} has {expected} bytes, but the input ends after {found} of them")]
    Truncated {
        /// Name of the truncated part.
        part: &'static str,
        /// Number of bytes that the part claims to have.
        expected: u64,
        /// Number of bytes of the part that the input contains.
        found: u64,
    },
    /// The claimed length of a part is above the limit. No memory was allocated for the part.
    #[error("the {part} has {length} bytes, but the limit is {limit}")]
    TooLong {
        /// Name of the part.
        part: &'static str,
        /// Number of bytes that the part claims to have.
        length: u64,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// A part whose length is known only at its end has more bytes than the limit.
    #[error("the {part} has more than {limit} bytes")]
    OverLimit {
        /// Name of the part.
        part: &'static str,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// The RLP is not a list, so it is not a header.
    #[error("0x{first:02x} does not start a header, which is an RLP list (0xc0 to 0xff)")]
    NotAList {
        /// The first byte in place of a header.
        first: u8,
    },
    /// The header is malformed.
    #[error(transparent)]
    Header(HeaderError),
    /// The header does not extend the chain.
    #[error(transparent)]
    Chain(ChainError),
    /// The text is not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// The hex is malformed.
    #[error(transparent)]
    Hex(ValueProblem),
    /// The text ends inside a value.
    #[error("the text ends inside a JSON value")]
    CutOffJson,
    /// The text ends inside an array.
    #[error("the text ends, and the array that starts in line {opened} is not closed")]
    UnclosedArray {
        /// The line in which the array starts.
        opened: u64,
    },
    /// A byte between the values of a JSON text is invalid.
    #[error("found {}, expected {expected}", shown(*found))]
    UnexpectedByte {
        /// The invalid byte.
        found: u8,
        /// Description of the expected bytes.
        expected: &'static str,
    },
    /// The text is not JSON, or a value has the wrong type.
    #[error("{0}")]
    Json(String),
    /// JSON wrappers are nested too deeply around a header.
    #[error("no header within {limit} levels of JSON wrappers")]
    TooDeep {
        /// Maximum depth of wrappers.
        limit: u8,
    },
    /// The JSON value is neither an object nor a string.
    #[error("a header is a JSON object, or hex in a JSON string")]
    NotAHeader,
    /// The file contains an error reply of a node.
    #[error("the node's reply is an error: {0:?}")]
    NodeError(String),
    /// The file contains a node's reply without a result.
    #[error("the node's reply has no result: the node does not have the block")]
    NoResult,
    /// The JSON of a header is rejected.
    #[error(transparent)]
    JsonHeader(HeaderError),
    /// The hash given with a header is not the hash of the header.
    #[error("the header hashes to {computed}, but the claimed hash is {claimed}")]
    HashMismatch {
        /// The hash that is given with the header.
        claimed: B256,
        /// The computed hash of the header.
        computed: B256,
    },
    /// The reserved last two bytes of an entry's head are not 0.
    #[error("the reserved bytes of an entry are {found:#06x}, not 0")]
    Reserved {
        /// The two bytes as a little-endian number.
        found: u16,
    },
    /// The data of an entry cannot be decompressed.
    #[error("not framed Snappy: {0}")]
    Snappy(String),
    /// An archive has too many headers.
    #[error("the archive has more than {limit} headers, the limit of its format")]
    TooManyHeaders {
        /// Maximum number of headers in an archive.
        limit: usize,
    },
    /// The length of the index is too small, or is not a multiple of eight bytes.
    #[error("the index of blocks: invalid length of {length} bytes")]
    IndexLength {
        /// Length of the index in bytes.
        length: usize,
    },
    /// The number of blocks in the index differs from the number of headers in the archive.
    #[error("the index of blocks: it has {counted} blocks, but {read} headers were read")]
    IndexCount {
        /// Number of blocks in the index.
        counted: u64,
        /// Number of headers in the archive.
        read: u64,
    },
    /// The first block in the index differs from the first block in the archive.
    #[error(
        "the index of blocks: it starts at block {indexed}, but the first header is that of block {read}"
    )]
    IndexFirst {
        /// Number of the first block in the index.
        indexed: u64,
        /// Number of the first block whose header is in the archive.
        read: u64,
    },
    /// The number of offsets is not the number of blocks multiplied by the number of entries of
    /// each block.
    #[error(
        "the index of blocks: {offsets} offsets for {blocks} blocks with {components} entries each"
    )]
    IndexOffsets {
        /// Number of offsets in the index.
        offsets: usize,
        /// Number of blocks in the index.
        blocks: u64,
        /// Number of entries that each block has in the archive.
        components: u64,
    },
    /// The offset of a header differs from the offset that the index claims.
    #[error(
        "the index of blocks: it places header {header} at byte {indexed}, but the header is at byte {read}"
    )]
    IndexOffset {
        /// Index of the header in the archive, from 0.
        header: usize,
        /// Offset that the index claims.
        indexed: u64,
        /// Offset at which the header was read.
        read: u64,
    },
    /// The archive has no index at its end, so it was truncated between two entries.
    #[error("the archive ends after {headers} headers without an index of blocks")]
    NoIndex {
        /// Number of headers since the archive's start.
        headers: usize,
    },
    /// The input is an era archive of the consensus layer.
    #[error(
        "a beacon block or state: era archives of the consensus layer have no block headers; use \
         era1 or ere"
    )]
    ConsensusArchive,
    /// The accumulator of an archive is not the root of its blocks.
    #[error("the accumulator is {stated}, but the archive's {blocks} blocks give {computed}")]
    Accumulator {
        /// The root in the archive.
        stated: B256,
        /// Number of blocks from before the Merge.
        blocks: u64,
        /// The root of these blocks and their total difficulties.
        computed: B256,
    },
    /// The blocks of an archive are not those of the chain: the root of their epoch differs.
    #[error("epoch {epoch} has the root {known}, but the archive's blocks give {computed}")]
    OtherEpoch {
        /// Index of the epoch.
        epoch: u64,
        /// The known root of the epoch.
        known: B256,
        /// The root of the archive's blocks.
        computed: B256,
    },
    /// The headers of an archive are not linked by their parent hashes.
    #[error("the header of block {number} is not a child of the header before it")]
    NotLinked {
        /// Number of the block.
        number: u64,
    },
    /// An archive has a second accumulator.
    #[error("a second accumulator")]
    SecondAccumulator,
    /// The number of entries of a type in an archive differs from the number of its headers.
    #[error("{found} entries of the type {kind}, but {headers} headers")]
    EntryCount {
        /// Name of the type.
        kind: &'static str,
        /// Number of entries.
        found: usize,
        /// Number of headers.
        headers: usize,
    },
    /// The proof of a header cannot be decoded.
    #[cfg(feature = "anchor")]
    #[error("the proof of block {number}: {error}")]
    ProofEncoding {
        /// Number of the block.
        number: u64,
        /// The error of decoding.
        error: crate::eth::anchor::header_proof::HeaderProofError,
    },
    /// The proof of a header does not show that its block is part of the chain.
    #[cfg(feature = "anchor")]
    #[error("the proof of block {number}: {error}")]
    HeaderProof {
        /// Number of the block.
        number: u64,
        /// Reason why the proof fails.
        error: crate::eth::anchor::header_proof::HeaderProofError,
    },
    /// No header precedes a block's entry, so the number of its block is unknown.
    #[error("no header precedes this entry")]
    NoHeaderBefore,
}

fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() {
        alloc::format!("{:?}", char::from(byte))
    } else {
        alloc::format!("byte 0x{byte:02x}")
    }
}
