//! Files of filters, written and appended to.

use std::io::{self, Write};

use bitcoin::BlockHash;

use super::reader::{check_length, checksum, front};
use super::{ContainerError, Header, Intact};

/// Appends filters to a file; to a `Vec<u8>`, for one in memory.
///
/// It writes in small pieces: a file belongs into a [`BufWriter`](std::io::BufWriter).
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    intact: Intact,
}

impl<W: Write> Writer<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// What `to` says.
    pub fn create(mut to: W, header: Header) -> Result<Self, ContainerError> {
        to.write_all(&header.to_bytes()).map_err(|error| failed(&error, 0))?;
        Ok(Self { to, intact: Intact::new(header) })
    }

    /// Goes on with a file of which this is intact. `to` must write behind its last intact byte,
    /// with nothing left there: the file is to be cut to [`Intact::bytes`] before.
    pub fn resume(to: W, intact: Intact) -> Self {
        Self { to, intact }
    }

    /// What the file holds.
    pub fn intact(&self) -> &Intact {
        &self.intact
    }

    /// Appends the filter of the next height.
    ///
    /// # Errors
    /// A filter over the limit or a height over it, with nothing written; or what the stream
    /// says. In that case part of the record may be written: whoever goes on first cuts the file
    /// to what is intact.
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

    /// Passes on what the stream still holds back, so that what was appended outlives this process.
    ///
    /// # Errors
    /// What the stream says.
    pub fn flush(&mut self) -> Result<(), ContainerError> {
        self.to.flush().map_err(|error| failed(&error, self.intact.bytes))
    }

    /// Gives the stream back, flushed.
    ///
    /// # Errors
    /// What the stream says.
    pub fn finish(mut self) -> Result<W, ContainerError> {
        self.flush()?;
        Ok(self.to)
    }
}

fn failed(error: &io::Error, offset: u64) -> ContainerError {
    ContainerError::Io { kind: error.kind(), offset }
}
