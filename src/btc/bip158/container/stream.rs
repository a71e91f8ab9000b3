//! Records from a stream, in batches.

use alloc::vec::Vec;
use core::ops::Range;
use std::io::{self, Read};

use bitcoin::BlockHash;

use super::records::{AROUND, FRONT};
use super::{ContainerError, Header, Intact};
use crate::btc::bip158::scan::FilterItem;

/// Reads a container file as a stream, in batches, with memory for one batch.
///
/// The reader makes small reads, so a file should be wrapped in a
/// [`BufReader`](std::io::BufReader).
#[derive(Debug)]
pub struct BatchReader<R> {
    from: R,
    intact: Intact,
    /// Set once reading has ended: `Ok` at the end of the file, else the error.
    end: Option<Result<(), ContainerError>>,
    /// The height of the first filter of the batch.
    start_height: u32,
    /// The filters of the batch, one after the other.
    bytes: Vec<u8>,
    records: Vec<(BlockHash, Range<usize>)>,
}

impl<R: Read> BatchReader<R> {
    /// Creates a reader for a container file. `from` must yield the file from its first byte on.
    ///
    /// # Errors
    /// Returns the errors of [`Header::from_bytes`], the I/O errors of `from`, and an error if
    /// `from` ends inside the header.
    pub fn new(mut from: R) -> Result<Self, ContainerError> {
        let mut header = [0; Header::LEN];
        let length = fill(&mut from, &mut header)
            .map_err(|error| ContainerError::Io { kind: error.kind(), offset: 0 })?;
        if length < header.len() {
            return Err(ContainerError::HeaderTruncated { length });
        }
        let intact = Intact::new(Header::from_bytes(&header)?);
        let (start_height, bytes, records) = (intact.next_height(), Vec::new(), Vec::new());
        Ok(Self { from, intact, end: None, start_height, bytes, records })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.intact.header
    }

    /// Returns the part that was read so far. At the end of the file, this is the whole intact
    /// part.
    pub fn intact(&self) -> &Intact {
        &self.intact
    }

    /// Reads the next batch: as many filters as are needed for a total of at least `enough` bytes.
    ///
    /// The batch is empty only at the end of the file.
    ///
    /// # Errors
    /// Returns an error if a record is truncated, damaged or unreadable; later calls return the
    /// same error. The intact records before it are returned first, in a batch of their own.
    ///
    /// # Cost
    /// The batch takes memory for `enough` bytes and one more filter. The memory grows only with
    /// the bytes that are actually read: a false length in the file allocates nothing.
    pub fn read(&mut self, enough: usize) -> Result<(), ContainerError> {
        self.bytes.clear();
        self.records.clear();
        self.start_height = self.intact.next_height();
        while self.end.is_none() && (self.records.is_empty() || self.bytes.len() < enough) {
            self.end = self.read_record().transpose();
        }
        match self.end {
            Some(end) if self.records.is_empty() => end,
            _ => Ok(()),
        }
    }

    /// Iterates over the filters of the batch in order of height. The items have no commitments.
    pub fn items(&self) -> impl ExactSizeIterator<Item = FilterItem<'_>> {
        let records = self.records.iter().enumerate();
        records.map(|(index, (block_hash, range))| FilterItem {
            height: self.start_height + u32::try_from(index).expect("heights have 32 bits"),
            block_hash: *block_hash,
            content: &self.bytes[range.clone()],
            commitment: None,
        })
    }

    /// Reads the rest of the file to find its intact part. If the file is damaged, also returns the
    /// error at the end of that part.
    ///
    /// # Errors
    /// Returns the I/O errors of the stream. The end of the intact part is then unknown.
    pub fn recover(mut self) -> Result<(Intact, Option<ContainerError>), ContainerError> {
        loop {
            match self.read(0) {
                Ok(()) if self.records.is_empty() => return Ok((self.intact, None)),
                Ok(()) => {}
                Err(error @ ContainerError::Io { .. }) => return Err(error),
                Err(damage) => return Ok((self.intact, Some(damage))),
            }
        }
    }

    /// Adds the next record to the batch. Returns `Some(())` at the end of the file.
    fn read_record(&mut self) -> Result<Option<()>, ContainerError> {
        let offset = self.intact.bytes;
        let failed = |error: io::Error| ContainerError::Io { kind: error.kind(), offset };
        let mut front = [0; FRONT];
        let read = fill(&mut self.from, &mut front).map_err(failed)?;
        if read == 0 {
            return Ok(Some(()));
        }
        let place = self.intact.next_place()?;
        let cut = |needed, left: usize| ContainerError::RecordTruncated {
            place,
            needed,
            left: left as u64,
        };
        if read < FRONT {
            return Err(cut(AROUND, read));
        }
        let (length, block_hash) = Intact::read_front(place, &front)?;
        let start = self.bytes.len();
        // Read up to the claimed length instead of allocating it: the length may be damaged.
        let content = self.from.by_ref().take(u64::from(length)).read_to_end(&mut self.bytes);
        let end = start + content.map_err(failed)?;
        let mut stored = [0; 4];
        let behind = fill(&mut self.from, &mut stored).map_err(failed)?;
        if behind < stored.len() {
            return Err(cut(u64::from(length) + AROUND, FRONT + (end - start) + behind));
        }
        self.intact.accept(place, &front, &self.bytes[start..end], u32::from_le_bytes(stored))?;
        self.records.push((block_hash, start..end));
        Ok(None)
    }
}

/// Reads until `bytes` is full or the stream ends. Returns the number of bytes read.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
