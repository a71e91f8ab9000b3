//! A buffered reader that counts the bytes that it has read.

use core::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use chainsieve_lanes::names;

use super::{FileError, FileProblem, Position};

/// Size of the buffer in bytes: large, so that there are few system calls.
const BUFFER: usize = 256 << 10;

/// A buffered reader over any [`Read`], which counts the bytes that it has read.
///
/// Unneeded bytes are read and dropped, for example the bodies in an archive when only the headers
/// are wanted. If the inner reader can [seek](Self::seekable), unneeded bytes are skipped without
/// being read.
pub struct Input<R> {
    inner: R,
    buffer: Box<[u8]>,
    /// Start of the bytes of `buffer` that are not yet consumed.
    start: usize,
    /// End of the bytes of `buffer` that are not yet consumed.
    end: usize,
    /// Number of bytes consumed.
    offset: u64,
    /// Number of bytes of the whole input, if it is known in advance.
    length: Option<u64>,
    /// Function that seeks in `inner`. It is a function pointer, so that `R` need not implement
    /// `Seek`.
    seek: Option<fn(&mut R, SeekFrom) -> io::Result<u64>>,
}

impl<R: Read> Input<R> {
    /// Creates an input from any reader, for example a pipe, a socket or bytes in memory.
    pub fn new(inner: R) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { inner, buffer, start: 0, end: 0, offset: 0, length: None, seek: None }
    }

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of remaining bytes, or `None` if it is unknown.
    pub fn left(&self) -> Option<u64> {
        Some(self.length?.saturating_sub(self.offset))
    }

    /// Returns the next bytes without consuming them.
    ///
    /// Returns fewer than `count` bytes only if the input ends or the buffer is smaller than
    /// `count`.
    pub(super) fn peek_at_least(&mut self, count: usize) -> Result<&[u8], FileError> {
        let offset = self.offset;
        self.fill(count).map_err(|error| FileError::io(offset, &error))?;
        Ok(&self.buffer[self.start..self.end])
    }

    /// Returns the next bytes without consuming them, or no bytes at the end of the input.
    pub(super) fn peek(&mut self) -> Result<&[u8], FileError> {
        self.peek_at_least(1)
    }

    /// Appends `count` bytes to `out`, or fewer if the input ends, and returns their number.
    ///
    /// Memory grows with the bytes that are read, not with `count`, which may come from a hostile
    /// file.
    pub(super) fn append(&mut self, count: u64, out: &mut Vec<u8>) -> Result<u64, FileError> {
        let offset = self.offset;
        let read = self.take(count).read_to_end(out);
        read.map(|read| read as u64).map_err(|error| FileError::io(offset, &error))
    }

    /// Skips `count` bytes, or fewer if the input ends, and returns their number.
    pub(super) fn skip(&mut self, count: u64) -> Result<u64, FileError> {
        let offset = self.offset;
        self.pass_over(count).map_err(|error| FileError::io(offset, &error))
    }

    /// Returns the position of the next byte.
    pub(super) fn position(&self) -> Position {
        Position::Byte(self.offset)
    }

    fn fill(&mut self, count: usize) -> io::Result<()> {
        let count = count.min(self.buffer.len());
        if self.end - self.start >= count {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < count {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, count: u64) -> io::Result<u64> {
        // A seek beyond the end would succeed, and hide that the input is truncated.
        let count = self.left().map_or(count, |left| count.min(left));
        let buffered = usize::try_from(count).unwrap_or(usize::MAX).min(self.end - self.start);
        self.consume(buffered);
        let beyond = count - buffered as u64;
        if let (Some(seek), Ok(by @ 1..)) = (self.seek, i64::try_from(beyond)) {
            seek(&mut self.inner, SeekFrom::Current(by))?;
            self.offset += beyond;
            return Ok(count);
        }
        Ok(buffered as u64 + io::copy(&mut self.take(beyond), &mut io::sink())?)
    }
}

impl<R: Read + Seek> Input<R> {
    /// Creates an input from a reader that can seek, such as a file.
    ///
    /// The input starts at the reader's current position.
    ///
    /// # Errors
    /// Returns an error if the reader cannot seek, for example a pipe that was opened as a file.
    pub fn seekable(mut inner: R) -> io::Result<Self> {
        let here = inner.stream_position()?;
        let end = inner.seek(SeekFrom::End(0))?;
        inner.seek(SeekFrom::Start(here))?;
        let length = Some(end.saturating_sub(here));
        Ok(Self { length, seek: Some(R::seek), ..Self::new(inner) })
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // A large read bypasses the buffer, which saves a copy.
        if self.start == self.end && out.len() >= self.buffer.len() {
            let read = self.inner.read(out)?;
            self.offset += read as u64;
            return Ok(read);
        }
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill(1)?;
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }
}

impl<R: fmt::Debug> fmt::Debug for Input<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("inner", &self.inner)
            .field("offset", &self.offset)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

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

names! {
    FileFormat, "a format": Rlp = "rlp", Json = "json", Hex = "hex", Era = "era",
}

impl FileFormat {
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
