//! Reader of headers from a file in any format, one at a time or in batches.

use core::iter::FusedIterator;
use core::ops::{Bound, RangeBounds};
use std::io::{BufRead as _, Read};

use super::input::{FileFormat, Input, MAX_HEADER};
use super::json::JsonHeaders;
use super::{FileError, FileProblem, Position};
use crate::eth::header::{ChainError, HeaderBuf, HeaderView, LinkedHeaders};
use crate::eth::json::{Prefix, bytes_with};

#[cfg(feature = "era")]
use super::archive::ArchiveHeaders;

/// Maximum number of headers in a batch. This limit and `BATCH_BYTES` bound the memory of a batch.
const BATCH_HEADERS: usize = 8192;
/// Size in bytes from which on no further header is added to a batch.
const BATCH_BYTES: usize = 8 << 20;

/// Reads the headers of a file, in any of the [formats](FileFormat).
///
/// The iterator yields one header at a time, with its hash. [`next_batch`](Self::next_batch)
/// returns thousands of headers at once. Linking a batch hashes several headers at a time, which is
/// faster.
///
/// Memory is bounded: a batch has at most 8192 headers, and at most 8 MiB plus one header. A header
/// has at most [`MAX_HEADER`] bytes. A JSON value, for example a block with its
/// transactions, has at most 64 MiB.
///
/// A file may be a concatenation of several archives. The index of each archive is checked against
/// the headers that were read. The accumulator of an archive is not checked, because links by
/// parent hash prove more than the accumulator.
///
/// # Examples
/// ```
/// use std::fs::File;
///
/// use chainsieve::eth::files::{FileFormat, HeaderReader, Input};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/headers.json");
/// # if !std::path::Path::new(path).exists() { return Ok(()) }
/// let mut headers = HeaderReader::new(Input::seekable(File::open(path)?)?)?;
/// assert_eq!(headers.format(), FileFormat::Json);
/// let mut after_london = 0;
/// for header in &mut headers {
///     let header = header?;
///     after_london += u32::from(header.view().base_fee_per_gas().is_some());
/// }
/// # assert!(after_london > 50);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "iterators are lazy: nothing is read until the reader is iterated"]
pub struct HeaderReader<R> {
    headers: Headers<R>,
    format: FileFormat,
    /// The error that ended the reading, if any.
    failed: Option<FileError>,
}

enum Headers<R> {
    Rlp(RlpHeaders<R>),
    Json(JsonHeaders<R>),
    Hex(HexLines<R>),
    #[cfg(feature = "era")]
    Era(ArchiveHeaders<R>),
}

impl<R: core::fmt::Debug> core::fmt::Debug for Headers<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The fields are left out, because the buffered bytes would make the output unreadable.
        f.write_str("Headers")
    }
}

impl<R: Read> Headers<R> {
    /// Appends the RLP of the next header, and returns its position; returns `None` after the last
    /// header.
    fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        match self {
            Self::Rlp(headers) => headers.next(rlp),
            Self::Json(headers) => headers.next(rlp),
            Self::Hex(headers) => headers.next(rlp),
            #[cfg(feature = "era")]
            Self::Era(headers) => headers.next(rlp),
        }
    }

    fn input(&self) -> &Input<R> {
        match self {
            Self::Rlp(headers) => &headers.input,
            Self::Json(headers) => &headers.values.input,
            Self::Hex(headers) => &headers.input,
            #[cfg(feature = "era")]
            Self::Era(headers) => &headers.archive.input,
        }
    }
}

impl<R: Read> HeaderReader<R> {
    /// Creates a reader that detects the format from the first bytes.
    ///
    /// # Errors
    /// Returns [`FileProblem::Empty`], [`FileProblem::UnknownFormat`],
    /// [`FileProblem::NoEraFeature`], or an error of the inner reader.
    pub fn new(mut input: Input<R>) -> Result<Self, FileError> {
        let format = input.format()?;
        Self::with_format(input, format)
    }

    /// Creates a reader for a known format.
    ///
    /// # Errors
    /// Returns [`FileProblem::NoEraFeature`] for an archive if the feature `era` is off.
    pub fn with_format(input: Input<R>, format: FileFormat) -> Result<Self, FileError> {
        let headers = match format {
            FileFormat::Rlp => Headers::Rlp(RlpHeaders { input }),
            FileFormat::Json => Headers::Json(JsonHeaders::new(input)),
            FileFormat::Hex => Headers::Hex(HexLines::new(input)),
            #[cfg(feature = "era")]
            FileFormat::Era => Headers::Era(ArchiveHeaders::new(input)),
            #[cfg(not(feature = "era"))]
            FileFormat::Era => {
                return Err(FileError::new(input.position(), FileProblem::NoEraFeature));
            }
        };
        Ok(Self { headers, format, failed: None })
    }

    /// Returns the format of the file.
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.headers.input().offset()
    }

    /// Returns the next batch of at least one header, or `None` after the last header.
    ///
    /// Headers in RLP and hex are not decoded by this function. A malformed header causes an error
    /// later, when the batch is read or linked.
    ///
    /// # Errors
    /// Returns a [`FileError`] with the position of the error. The preceding headers of the same
    /// batch are lost, and every later call returns the same error.
    pub fn next_batch(&mut self) -> Result<Option<HeaderBatch>, FileError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut batch = HeaderBatch { rlp: Vec::new(), ends: Vec::new() };
        while batch.ends.len() < BATCH_HEADERS && batch.rlp.len() < BATCH_BYTES {
            match self.headers.next(&mut batch.rlp) {
                Ok(Some(position)) => batch.ends.push((batch.rlp.len(), position)),
                Ok(None) => break,
                Err(error) => return Err(self.failed.insert(error).clone()),
            }
        }
        Ok(if batch.is_empty() { None } else { Some(batch) })
    }

    fn next_header(&mut self) -> Result<Option<HeaderBuf>, FileError> {
        let mut rlp = Vec::new();
        let Some(position) = self.headers.next(&mut rlp)? else { return Ok(None) };
        let header = HeaderBuf::from_rlp(rlp);
        header.map(Some).map_err(|error| FileError::new(position, FileProblem::Header(error)))
    }
}

/// Yields one header at a time, and ends after the first error.
impl<R: Read> Iterator for HeaderReader<R> {
    type Item = Result<HeaderBuf, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed.is_some() {
            return None;
        }
        let next = self.next_header();
        self.failed = next.as_ref().err().cloned();
        next.transpose()
    }
}

impl<R: Read> FusedIterator for HeaderReader<R> {}

/// A batch of headers in the order of the file, each with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderBatch {
    rlp: Vec<u8>,
    /// For each header, the offset of its end in `rlp`, and its position in the file.
    ends: Vec<(usize, Position)>,
}

impl HeaderBatch {
    /// Returns the number of headers.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if the batch has no header, which is possible after [`trim`](Self::trim).
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the concatenated RLP of the headers.
    pub fn rlp(&self) -> &[u8] {
        &self.rlp
    }

    /// Iterates over the decoded headers, each with its position in the file.
    ///
    /// # Errors
    /// Yields an error in place of each malformed header.
    pub fn headers(&self) -> impl Iterator<Item = Result<(Position, HeaderView<'_>), FileError>> {
        self.encodings().map(|(position, rlp)| {
            let header = HeaderView::decode(rlp);
            header
                .map(|header| (position, header))
                .map_err(|error| FileError::new(position, FileProblem::Header(error)))
        })
    }

    /// Links the headers to a chain. After an error, the headers before the invalid header stay
    /// linked.
    ///
    /// # Errors
    /// Returns [`FileProblem::Header`] for a malformed header, and [`FileProblem::Chain`] for a
    /// header that does not extend the chain, with the position of the header.
    pub fn link(&self, chain: &mut LinkedHeaders) -> Result<(), FileError> {
        self.link_up_to(self.rlp.len(), chain)
    }

    /// Links only the first header.
    ///
    /// Use this function for a batch that is already linked to a chain of its own, to check that
    /// the batch extends `chain`.
    ///
    /// # Errors
    /// Returns the same errors as [`link`](Self::link).
    pub fn link_first(&self, chain: &mut LinkedHeaders) -> Result<(), FileError> {
        self.link_up_to(self.ends.first().map_or(0, |(end, _)| *end), chain)
    }

    /// Drops the headers outside of a range of block numbers, at the start and the end of the
    /// batch.
    ///
    /// Malformed headers are kept, so that they cause an error when they are read.
    pub fn trim(&mut self, numbers: impl RangeBounds<u64>) {
        if let (Bound::Unbounded, Bound::Unbounded) = (numbers.start_bound(), numbers.end_bound()) {
            return;
        }
        let outside = |rlp: &[u8]| {
            HeaderView::decode(rlp).is_ok_and(|header| !numbers.contains(&header.number()))
        };
        let before = self.encodings().take_while(|(_, rlp)| outside(rlp)).count();
        let kept: Vec<_> = self.encodings().skip(before).collect();
        let after = kept.iter().rev().take_while(|(_, rlp)| outside(rlp)).count();
        let length = kept.len() - after;
        let start = before.checked_sub(1).map_or(0, |last| self.ends[last].0);
        self.ends.drain(..before);
        self.ends.truncate(length);
        self.ends.iter_mut().for_each(|(end, _)| *end -= start);
        self.rlp.drain(..start);
        self.rlp.truncate(self.ends.last().map_or(0, |(end, _)| *end));
    }

    /// Each header's position and RLP.
    fn encodings(&self) -> impl Iterator<Item = (Position, &[u8])> {
        let starts = core::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, &(end, position))| (position, &self.rlp[start..end]))
    }

    fn link_up_to(&self, end: usize, chain: &mut LinkedHeaders) -> Result<(), FileError> {
        let before = chain.len();
        chain.extend_from_rlp(&self.rlp[..end]).map(drop).map_err(|error| {
            let linked = chain.len() - before;
            let wrong = self.ends.get(linked).or(self.ends.last());
            let position = wrong.map_or(Position::Byte(0), |(_, position)| *position);
            let problem = match error {
                // The error's index is relative to the batch; the position in the file replaces it.
                ChainError::Header { error, .. } => FileProblem::Header(error),
                error => FileProblem::Chain(error),
            };
            FileError::new(position, problem)
        })
    }
}

pub(super) struct RlpHeaders<R> {
    pub(super) input: Input<R>,
}

impl<R: Read> RlpHeaders<R> {
    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        let at = self.input.position();
        let Some(&first) = self.input.peek()?.first() else { return Ok(None) };
        let block = self.list_head(rlp)?;
        let start = self.input.offset();
        match self.input.peek()?.first() {
            // The first item of a block is a list, its header. The first item of a header is a
            // string, the parent hash.
            Some(0xc0..) if block > 0 => {
                rlp.truncate(rlp.len() - usize::from(head_length(first)));
                let length = self.list_head(rlp)?;
                self.payload(at, length, rlp)?;
                let left = block.saturating_sub(self.input.offset() - start);
                if self.input.skip(left)? < left {
                    let found = self.input.offset() - start;
                    return Err(truncated(at, "block", block, found));
                }
            }
            _ => self.payload(at, block, rlp)?,
        }
        Ok(Some(at))
    }

    /// Appends the head of an RLP list to `rlp`, and returns the length of the list's payload.
    fn list_head(&mut self, rlp: &mut Vec<u8>) -> Result<u64, FileError> {
        let at = self.input.position();
        let before = rlp.len();
        self.input.append(1, rlp)?;
        let first = rlp.get(before).copied().unwrap_or_default();
        if first < 0xc0 {
            return Err(FileError::new(at, FileProblem::NotAList { first }));
        }
        let digits = u64::from(head_length(first) - 1);
        if digits == 0 {
            return Ok(u64::from(first - 0xc0));
        }
        let found = self.input.append(digits, rlp)?;
        if found < digits {
            return Err(truncated(at, "length of the list", digits, found));
        }
        let digits = rlp.iter().skip(before + 1);
        Ok(digits.fold(0, |length, &digit| length << 8 | u64::from(digit)))
    }

    fn payload(&mut self, at: Position, length: u64, rlp: &mut Vec<u8>) -> Result<(), FileError> {
        if length > MAX_HEADER {
            let problem = FileProblem::TooLong { part: "header", length, limit: MAX_HEADER };
            return Err(FileError::new(at, problem));
        }
        let found = self.input.append(length, rlp)?;
        if found < length {
            return Err(truncated(at, "header", length, found));
        }
        Ok(())
    }
}

/// Returns the number of bytes before the payload of an RLP list that starts with this byte.
fn head_length(first: u8) -> u8 {
    1 + first.saturating_sub(0xf7)
}

fn truncated(at: Position, part: &'static str, expected: u64, found: u64) -> FileError {
    FileError::new(at, FileProblem::Truncated { part, expected, found })
}

/// Maximum length of a line: two digits for each byte of a header, and room for `0x`, the head of
/// the RLP list and white space.
const MAX_LINE: u64 = 2 * MAX_HEADER + 64;

pub(super) struct HexLines<R> {
    pub(super) input: Input<R>,
    /// Number of lines read so far.
    line: u64,
}

impl<R: Read> HexLines<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self { input, line: 0 }
    }

    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let offset = self.input.offset();
            let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| FileError::io(offset, &error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let position = Position::Line(self.line);
            let wrong = |problem| FileError::new(position, problem);
            if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
                return Err(wrong(FileProblem::OverLimit { part: "line", limit: MAX_LINE }));
            }
            let text = str::from_utf8(&line).map_err(|_| wrong(FileProblem::NotUtf8))?;
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let header = bytes_with(text, Prefix::Optional);
            rlp.extend(header.map_err(|problem| wrong(FileProblem::Hex(problem)))?);
            return Ok(Some(position));
        }
    }
}
