//! File formats, and their detection from the first bytes of a file.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use std::io::Read;

use super::error::{FileError, FileProblem};
use super::input::Input;

/// The UTF-8 byte order mark, which some editors write at the start of a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Maximum length of a header in bytes.
///
/// Real headers are far shorter: the extra data has at most 32 bytes on mainnet, and some hundreds
/// of bytes on other chains. The limit keeps a malicious file from claiming a huge header.
pub const MAX_HEADER: u64 = 64 << 10;

/// Number of bytes that are enough to detect a format, if no white space precedes them.
const ENOUGH: usize = 4;

/// Format of a file of headers or receipts.
///
/// `serde` and `Display` write its name, for example `rlp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FileFormat {
    /// Concatenated RLP of headers, or of blocks as `geth export` writes them. The format's name is
    /// `rlp`.
    Rlp,
    /// JSON objects or strings of hex. The objects or strings may be in an array, one on each line,
    /// or concatenated. The replies of a node are accepted too. The format's name is `json`.
    Json,
    /// Hex with or without `0x`, one header on each line. The format's name is `hex`.
    Hex,
    /// An era1 or ere archive. The format's name is `era`.
    Era,
}

impl FileFormat {
    const ALL: [Self; 4] = [Self::Rlp, Self::Json, Self::Hex, Self::Era];

    /// Detects the format from the first bytes of a file, or returns `None`.
    ///
    /// | first bytes | format |
    /// |---|---|
    /// | `e2` and a zero byte (the version entry of e2store) | [`Era`](Self::Era) |
    /// | `{`, `[` or `"` | [`Json`](Self::Json) |
    /// | a hex digit or `#` | [`Hex`](Self::Hex) |
    /// | a byte of 0xc0 or more (an RLP list) | [`Rlp`](Self::Rlp) |
    ///
    /// A byte order mark and white space before a text are skipped. Four bytes are enough, unless a
    /// text starts with white space.
    pub fn detect(start: &[u8]) -> Option<Self> {
        // An archive starts with the version entry of e2store: its type is "e2", its length 0. Hex
        // text that starts with "e2" has no zero byte after it.
        if start.starts_with(b"e2\0") {
            return Some(Self::Era);
        }
        let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
        match text.first()? {
            b'{' | b'[' | b'"' => Some(Self::Json),
            b'#' | b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => Some(Self::Hex),
            // The first byte of an RLP list is at least 0xc0.
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
    /// Detects the format of the next bytes without consuming them.
    ///
    /// # Errors
    /// Returns [`FileProblem::Empty`], [`FileProblem::UnknownFormat`], or an error of the reader.
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
            // Only white space was found so far: look at more bytes. The loop ends, because
            // `peek_at_least` returns at most one buffer of bytes.
            wanted = start.len() + 1;
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: the name is not the name of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a format: rlp, json, hex or era")]
#[non_exhaustive]
pub struct UnknownFormatName {
    /// The unknown name.
    pub name: String,
}

impl FromStr for FileFormat {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| UnknownFormatName { name: name.to_owned() })
    }
}
