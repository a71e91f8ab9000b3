//! What files are written in, and how their first bytes show it.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use std::io::Read;

use super::error::{FileError, FileProblem};
use super::input::Input;

/// What some editors put at the start of a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Length in bytes up to which a file is believed that something is a header. Real ones are far
/// shorter: the extra data has at most 32 bytes on mainnet, and some hundreds elsewhere.
pub const MAX_HEADER: u64 = 64 << 10;

/// Bytes that show a format, white space at the start of a text apart.
const ENOUGH: usize = 4;

/// What a file of headers or receipts is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileFormat {
    /// RLP, concatenated: of headers, or of blocks as `geth export` writes them. Called `rlp`.
    Rlp,
    /// JSON: objects or strings of hex, in an array, one a line or concatenated; also the replies
    /// of a node. Called `json`.
    Json,
    /// Hex, one header a line, with or without `0x`. Called `hex`.
    Hex,
    /// An era1 or ere archive. Called `era`.
    Era,
}

impl FileFormat {
    const ALL: [Self; 4] = [Self::Rlp, Self::Json, Self::Hex, Self::Era];

    /// The format that the first bytes of a file show. Four bytes are enough, if a text does not
    /// start with white space.
    pub fn detect(start: &[u8]) -> Option<Self> {
        // The version entry of e2store is "e2" with length 0, which as hex text would go on.
        if start.starts_with(b"e2\0") {
            return Some(Self::Era);
        }
        let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
        match text.first()? {
            b'{' | b'[' | b'"' => Some(Self::Json),
            b'#' | b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => Some(Self::Hex),
            // An RLP list.
            _ if start.first()? >= &0xc0 => Some(Self::Rlp),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rlp => "rlp",
            Self::Json => "json",
            Self::Hex => "hex",
            Self::Era => "era",
        }
    }
}

impl<R: Read> Input<R> {
    /// What the next bytes are written in. Consumes nothing.
    ///
    /// # Errors
    /// [`FileProblem::Empty`],
    /// [`FileProblem::UnknownFormat`], and errors of the reader.
    pub fn format(&mut self) -> Result<FileFormat, FileError> {
        let position = self.position();
        let mut wanted = ENOUGH;
        loop {
            let start = self.peek_at_least(wanted)?;
            let Some(&first) = start.first() else {
                return Err(FileError::new(position, FileProblem::Empty));
            };
            if let Some(format) = FileFormat::detect(start) {
                return Ok(format);
            }
            let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
            if start.len() < wanted || !text.trim_ascii_start().is_empty() {
                return Err(FileError::new(position, FileProblem::UnknownFormat { first }));
            }
            // Nothing but white space so far. The buffer ends this: it never gets longer.
            wanted = start.len() + 1;
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a format: rlp, json, hex or era")]
#[non_exhaustive]
pub struct UnknownFormatName {
    /// The name.
    pub name: String,
}

impl FromStr for FileFormat {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| UnknownFormatName { name: name.to_owned() })
    }
}
