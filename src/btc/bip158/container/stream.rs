//! Records out of a stream, a batch at a time.

use alloc::vec::Vec;
use core::ops::Range;
use std::io::{self, Read};

use bitcoin::BlockHash;

use super::reader::{AROUND, FRONT};
use super::{ContainerError, Header, Intact};
use crate::btc::bip158::scan::FilterItem;

/// Reads a file of filters as a stream, in memory for one batch.
///
/// It reads in small pieces: a file belongs into a [`BufReader`](std::io::BufReader).
#[derive(Debug)]
pub struct BatchReader<R> {
    from: R,
    intact: Intact,
    /// Why nothing more comes.
    end: Option<Result<(), ContainerError>>,
}

/// Filters of consecutive heights. Its memory is used again by the next batch.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    start_height: u32,
    bytes: Vec<u8>,
    records: Vec<(BlockHash, Range<usize>)>,
}

impl Batch {
    /// One without filters.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of filters.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The filters in the order of their heights, without commitments.
    pub fn items(&self) -> impl ExactSizeIterator<Item = FilterItem<'_>> {
        let records = self.records.iter().enumerate();
        records.map(|(index, (block_hash, range))| FilterItem {
            height: self.start_height + u32::try_from(index).expect("heights have 32 bits"),
            block_hash: *block_hash,
            content: &self.bytes[range.clone()],
            commitment: None,
        })
    }
}

impl<R: Read> BatchReader<R> {
    /// A reader of the file that `from` gives from its first byte on.
    ///
    /// # Errors
    /// As [`Header::from_bytes`], fewer bytes, or what `from` says.
    pub fn new(mut from: R) -> Result<Self, ContainerError> {
        let mut header = [0; Header::LEN];
        let length = fill(&mut from, &mut header)
            .map_err(|error| ContainerError::Io { kind: error.kind(), offset: 0 })?;
        if length < header.len() {
            return Err(ContainerError::HeaderTruncated { length });
        }
        let intact = Intact::new(Header::from_bytes(&header)?);
        Ok(Self { from, intact, end: None })
    }

    /// What the file says of itself.
    pub fn header(&self) -> &Header {
        &self.intact.header
    }

    /// What was read so far: once nothing more comes, all that is intact.
    pub fn intact(&self) -> &Intact {
        &self.intact
    }

    /// Replaces what is in `batch` by the next filters, until they have `enough` bytes or more: at
    /// least one, if one is left. An empty batch is the end of the file.
    ///
    /// # Errors
    /// A record that is cut, damaged or cannot be read; again at each later call. The intact ones
    /// before it come first, in a batch of their own.
    ///
    /// # Cost
    /// Memory for `enough` bytes and one filter more, and in proportion to what is there: a
    /// length that is written but not followed by as many bytes takes none.
    pub fn read(&mut self, batch: &mut Batch, enough: usize) -> Result<(), ContainerError> {
        batch.bytes.clear();
        batch.records.clear();
        batch.start_height = self.intact.next_height();
        while self.end.is_none() && (batch.is_empty() || batch.bytes.len() < enough) {
            self.end = self.read_record(batch).transpose();
        }
        match self.end {
            Some(end) if batch.is_empty() => end,
            _ => Ok(()),
        }
    }

    /// Reads the rest, to know what is intact; with it comes what is wrong behind, if anything is.
    ///
    /// # Errors
    /// What the stream itself says: how much is intact is then not known.
    pub fn recover(mut self) -> Result<(Intact, Option<ContainerError>), ContainerError> {
        let mut batch = Batch::new();
        loop {
            match self.read(&mut batch, 0) {
                Ok(()) if batch.is_empty() => return Ok((self.intact, None)),
                Ok(()) => {}
                Err(error @ ContainerError::Io { .. }) => return Err(error),
                Err(damage) => return Ok((self.intact, Some(damage))),
            }
        }
    }

    /// Adds the next record to `batch`. `Some` at the end of the file.
    fn read_record(&mut self, batch: &mut Batch) -> Result<Option<()>, ContainerError> {
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
        let start = batch.bytes.len();
        let content = self.from.by_ref().take(u64::from(length)).read_to_end(&mut batch.bytes);
        let end = start + content.map_err(failed)?;
        let mut stored = [0; 4];
        let behind = fill(&mut self.from, &mut stored).map_err(failed)?;
        if behind < stored.len() {
            return Err(cut(u64::from(length) + AROUND, FRONT + (end - start) + behind));
        }
        let content = &batch.bytes[start..end];
        self.intact.accept(place, &front, content, u32::from_le_bytes(stored))?;
        batch.records.push((block_hash, start..end));
        Ok(None)
    }
}

/// Reads until `bytes` is full or nothing more comes; how many came.
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
