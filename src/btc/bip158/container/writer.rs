//! Writing container files, and appending to them.

use std::io::{self, Write};

use bitcoin::BlockHash;

use super::reader::{check_length, checksum, front};
use super::{ContainerError, Header, Intact};

/// Appends filters to a file, or to a `Vec<u8>` in memory.
///
/// The writer makes small writes, so a file should be wrapped in a
/// [`BufWriter`](std::io::BufWriter).
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    intact: Intact,
}

impl<W: Write> Writer<W> {
    /// Starts a new file: writes the header to `to`.
    ///
    /// # Errors
    /// Returns the I/O errors of `to`.
    pub fn create(mut to: W, header: Header) -> Result<Self, ContainerError> {
        to.write_all(&header.to_bytes()).map_err(|error| failed(&error, 0))?;
        Ok(Self { to, intact: Intact::new(header) })
    }

    /// Continues a file whose intact part is `intact`. The caller must first truncate the file to
    /// [`Intact::bytes`], and position `to` at the new end of the file.
    pub fn resume(to: W, intact: Intact) -> Self {
        Self { to, intact }
    }

    /// Returns the part of the file that is written and intact.
    pub fn intact(&self) -> &Intact {
        &self.intact
    }

    /// Appends the filter of the next height.
    ///
    /// # Errors
    /// Returns an error if the filter or its height exceeds the limit; nothing is written in this
    /// case. Also returns the I/O errors of the stream. After an I/O error, the record may be
    /// partly written, so the file must be truncated to its intact part before filters are appended
    /// again.
    pub fn append(&mut self, block_hash: &BlockHash, content: &[u8]) -> Result<(), ContainerError> {
        let place = self.intact.next_place()?;
        let front = front(check_length(place, content.len() as u64)?, block_hash);
        let crc = checksum(place.height, &front, content).to_le_bytes();
        for part in [&front[..], content, &crc] {
            self.to.write_all(part).map_err(|error| failed(&error, place.offset))?;
        }
        self.intact.count(content.len(), *block_hash);
        Ok(())
    }

    /// Flushes the stream, so that the appended filters survive the end of this process.
    ///
    /// # Errors
    /// Returns the I/O errors of the stream.
    pub fn flush(&mut self) -> Result<(), ContainerError> {
        self.to.flush().map_err(|error| failed(&error, self.intact.bytes))
    }

    /// Flushes the stream and returns it.
    ///
    /// # Errors
    /// Returns the I/O errors of the stream.
    pub fn finish(mut self) -> Result<W, ContainerError> {
        self.flush()?;
        Ok(self.to)
    }
}

fn failed(error: &io::Error, offset: u64) -> ContainerError {
    ContainerError::Io { kind: error.kind(), offset }
}
