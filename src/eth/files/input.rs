//! A buffered reader that counts the bytes that it has read.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::error::{FileError, Position};

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

impl<R: core::fmt::Debug> core::fmt::Debug for Input<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Input")
            .field("inner", &self.inner)
            .field("offset", &self.offset)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
