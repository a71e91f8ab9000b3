//! What can be wrong with a file, and where.

use alloc::string::{String, ToString as _};
use core::fmt;
use std::io;

use alloy_primitives::B256;

use crate::eth::header::{ChainError, HeaderError, JsonHeaderError};
use crate::eth::json::ValueProblem;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The offset of a byte, from 0.
    Byte(u64),
    /// A line of a text, from 1.
    Line(u64),
    /// A byte in a line of a text.
    Column {
        /// The line, from 1.
        line: u64,
        /// The byte in it, from 1.
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

/// Why a file can't be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {problem}")]
#[non_exhaustive]
pub struct FileError {
    /// Where: the start of the header, entry or line that is wrong.
    pub position: Position,
    /// What is wrong.
    pub problem: FileProblem,
}

impl FileError {
    pub(super) const fn new(position: Position, problem: FileProblem) -> Self {
        Self { position, problem }
    }

    pub(super) fn io(offset: u64, error: &io::Error) -> Self {
        let problem = FileProblem::Io { kind: error.kind(), message: error.to_string() };
        Self::new(Position::Byte(offset), problem)
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The reader failed.
    #[error("cannot read: {message}")]
    Io {
        /// The kind of the reader's error.
        kind: io::ErrorKind,
        /// Its text.
        message: String,
    },
    /// Not a single byte.
    #[error("the input is empty")]
    Empty,
    /// The first bytes belong to no format that is known here.
    #[error(
        "the input starts with 0x{first:02x}, as neither RLP, JSON, hex nor an era1 or ere archive \
         does"
    )]
    UnknownFormat {
        /// The first byte.
        first: u8,
    },
    /// An archive, in a build without the feature `era`.
    #[error("an era1 or ere archive: chainsieve was built without its feature `era`")]
    NoEraFeature,
    /// Something ends before its length says.
    #[error("the {part} has {expected} bytes, and the input ends after {found}")]
    Truncated {
        /// What is cut off.
        part: &'static str,
        /// Bytes that it has by its length.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Something has a length above its limit. Nothing was allocated for it.
    #[error("the {part} has {length} bytes, the limit is {limit}")]
    TooLong {
        /// What is too long.
        part: &'static str,
        /// Bytes that it has by its length.
        length: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// Something whose length is not known before its end goes on after its limit.
    #[error("the {part} has more than {limit} bytes")]
    OverLimit {
        /// What is too long.
        part: &'static str,
        /// Bytes that it may have.
        limit: u64,
    },
    /// RLP of something else than a header.
    #[error("0x{first:02x} does not start a header, which is an RLP list (0xc0 to 0xff)")]
    NotAList {
        /// The byte where a header belongs.
        first: u8,
    },
    /// The header is malformed.
    #[error(transparent)]
    Header(HeaderError),
    /// The header does not extend the chain.
    #[error(transparent)]
    Chain(ChainError),
    /// A text that is not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// Malformed hex.
    #[error(transparent)]
    Hex(ValueProblem),
    /// The text ends inside a value.
    #[error("the text ends inside a JSON value")]
    CutOffJson,
    /// An array without its end.
    #[error("the text ends, and the array that starts in line {opened} is not closed")]
    UnclosedArray {
        /// The line where it starts.
        opened: u64,
    },
    /// Something else than can stand between the values of a JSON text.
    #[error("found {}, expected {expected}", shown(*found))]
    UnexpectedByte {
        /// The byte.
        found: u8,
        /// What can stand there.
        expected: &'static str,
    },
    /// Not JSON, or not of the expected shape.
    #[error("{0}")]
    Json(String),
    /// JSON that is no header under too many wrappers.
    #[error("no header within {limit} wrappers of JSON")]
    TooDeep {
        /// Wrappers that are looked into.
        limit: u8,
    },
    /// JSON of something else than a header.
    #[error("a header is a JSON object, or hex in a JSON string")]
    NotAHeader,
    /// A node's reply that is an error.
    #[error("the node's reply is an error: {0}")]
    NodeError(String),
    /// A node's reply without a result.
    #[error("the node's reply has no result: it does not have the block")]
    NoResult,
    /// The JSON of a header is refused.
    #[error(transparent)]
    JsonHeader(JsonHeaderError),
    /// A header that stands beside the hash of another.
    #[error("the header hashes to {computed}, the claimed hash is {claimed}")]
    HashMismatch {
        /// The hash that is claimed for it.
        claimed: B256,
        /// The hash that it has.
        computed: B256,
    },
    /// The last two bytes of an entry's head, which are reserved.
    #[error("the reserved bytes of an entry are {found:#06x}, not 0")]
    Reserved {
        /// The bytes as a number.
        found: u16,
    },
    /// What is compressed in an entry can't be taken out of it.
    #[error("not framed Snappy: {0}")]
    Snappy(String),
    /// An archive with too many headers.
    #[error("the archive has more than {limit} headers, the limit of its format")]
    TooManyHeaders {
        /// Headers that an archive can have.
        limit: usize,
    },
    /// The archive's index contradicts its headers.
    #[error("the index of blocks: {0}")]
    Index(IndexProblem),
    /// An archive that was cut off between two entries.
    #[error("the archive ends after {headers} headers without an index of blocks")]
    NoIndex {
        /// Headers since the archive's start.
        headers: usize,
    },
    /// An archive of beacon blocks.
    #[error(
        "a beacon block or state: era archives of the consensus layer have no headers of blocks; \
         take era1 or ere"
    )]
    ConsensusArchive,
    /// An entry of a block, and no header before it that tells the block's number.
    #[error("no header comes before this entry")]
    NoHeaderBefore,
}

/// What is wrong with the index of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexProblem {
    /// Not whole numbers of eight bytes, or too few of them.
    #[error("{length} bytes are no index")]
    Length {
        /// Bytes of the index.
        length: usize,
    },
    /// Another number of blocks.
    #[error("it counts {counted} blocks, {read} headers were read")]
    Count {
        /// Blocks of the index.
        counted: u64,
        /// Headers of the archive.
        read: u64,
    },
    /// Another first block.
    #[error("it starts at block {indexed}, the first header is that of block {read}")]
    First {
        /// First block of the index.
        indexed: u64,
        /// First block of the archive's headers.
        read: u64,
    },
    /// More or fewer offsets than its blocks have.
    #[error("{offsets} offsets for {blocks} blocks with {components} parts each")]
    Offsets {
        /// Offsets in the index.
        offsets: usize,
        /// Blocks of the index.
        blocks: u64,
        /// Entries that each block has in the archive.
        components: u64,
    },
    /// A header that is elsewhere.
    #[error("header {header} would be at byte {indexed}, and is at byte {read}")]
    Offset {
        /// Which header of the archive, from 0.
        header: usize,
        /// Where the index has it.
        indexed: u64,
        /// Where it is.
        read: u64,
    },
}

fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() {
        alloc::format!("{:?}", char::from(byte))
    } else {
        alloc::format!("byte 0x{byte:02x}")
    }
}
