//! Records in memory: reading and writing them. This module alone defines the layout of a record.

use std::io::{self, Write};

use bitcoin::BlockHash;
use bitcoin::hashes::Hash as _;

use super::{ContainerError, Header, MAX_FILTER_LENGTH, RecordPlace, field};
use crate::btc::bip158::scan::FilterItem;

/// Number of bytes before a filter in its record: the length and the block hash.
pub(super) const FRONT: usize = 36;
/// Number of bytes of a record without its filter: the bytes before the filter, and the checksum.
pub(super) const AROUND: u64 = FRONT as u64 + 4;

/// Encodes the bytes before a filter of `length` bytes.
fn front(length: u32, block_hash: &BlockHash) -> [u8; FRONT] {
    let mut front = [0; FRONT];
    front[..4].copy_from_slice(&length.to_le_bytes());
    front[4..].copy_from_slice(block_hash.as_byte_array());
    front
}

/// Returns the checksum of a record.
fn checksum(height: u32, front: &[u8; FRONT], content: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&height.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, front), content)
}

/// The part of a file that is present and undamaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intact {
    /// The header of the file.
    pub header: Header,
    /// The number of intact records.
    pub records: u32,
    /// The length in bytes of the header and the intact records. A damaged file must be truncated
    /// to this length before filters are appended to it.
    pub bytes: u64,
    /// The block of the last intact record.
    pub last_block: Option<BlockHash>,
}

impl Intact {
    /// Creates the state of a file without records.
    pub(super) fn new(header: Header) -> Self {
        Self { header, records: 0, bytes: Header::LEN as u64, last_block: None }
    }

    /// Returns the height of the next record.
    pub fn next_height(&self) -> u32 {
        // The addition never saturates, because records are counted only up to the maximum height.
        self.header.start_height.saturating_add(self.records)
    }

    /// Returns the position of the next record.
    ///
    /// # Errors
    /// Returns an error if the maximum height is exceeded.
    pub(super) fn next_place(&self) -> Result<RecordPlace, ContainerError> {
        let &Self { records, bytes: offset, .. } = self;
        match self.header.start_height.checked_add(records) {
            // `u32::MAX` is excluded, so that each record has a next height.
            Some(height) if height < u32::MAX => {
                Ok(RecordPlace { record: records, height, offset })
            }
            _ => Err(ContainerError::TooManyRecords { record: records, offset }),
        }
    }

    /// Decodes the bytes before a filter: the filter's length and its block hash.
    ///
    /// # Errors
    /// Returns an error if the length exceeds the limit.
    pub(super) fn read_front(
        place: RecordPlace,
        front: &[u8; FRONT],
    ) -> Result<(u32, BlockHash), ContainerError> {
        let mut rest = &front[..];
        let length = u32::from_le_bytes(field(&mut rest));
        check_length(place, u64::from(length))?;
        Ok((length, BlockHash::from_byte_array(field(&mut rest))))
    }

    /// Adds the record to the intact part, if the record's checksum is correct.
    pub(super) fn accept(
        &mut self,
        place: RecordPlace,
        front: &[u8; FRONT],
        content: &[u8],
        stored: u32,
    ) -> Result<(), ContainerError> {
        let computed = checksum(place.height, front, content);
        if stored != computed {
            return Err(ContainerError::RecordChecksum { place, stored, computed });
        }
        let mut hash = &front[4..];
        self.count(content.len(), BlockHash::from_byte_array(field(&mut hash)));
        Ok(())
    }

    /// Adds a record with a filter of `length` bytes to the intact part.
    fn count(&mut self, length: usize, block_hash: BlockHash) {
        self.records += 1;
        self.bytes += length as u64 + AROUND;
        self.last_block = Some(block_hash);
    }
}

/// Checks that the length of a filter is within the limit, and returns the length.
fn check_length(place: RecordPlace, length: u64) -> Result<u32, ContainerError> {
    match u32::try_from(length) {
        Ok(length) if length <= MAX_FILTER_LENGTH => Ok(length),
        _ => Err(ContainerError::FilterTooLong { place, length }),
    }
}

/// Iterates over the filters of a file in memory, in order of height, without copying them.
///
/// The iterator ends after the first error. [`intact`](Self::intact) then describes the intact part
/// of the file.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{BlockHash, bip158::FilterHeader, hashes::Hash};
/// use chainsieve::btc::bip158::container::{ContainerError, Header, Records, Writer};
///
/// let header = Header {
///     network_magic: [0xf9, 0xbe, 0xb4, 0xd9],
///     start_height: 500,
///     previous_filter_header: FilterHeader::all_zeros(), // not the true one
/// };
/// let mut file = Vec::new();
/// let mut writer = Writer::create(&mut file, header)?;
/// writer.append(&BlockHash::hash(b"block 500"), &[0])?;
/// writer.append(&BlockHash::hash(b"block 501"), &[0])?;
/// file.pop();
///
/// let mut records = Records::new(&file)?;
/// let first = records.next().expect("two records")?;
/// assert_eq!((first.height, first.content), (500, &[0][..]));
/// let cut = records.next().expect("two records").unwrap_err();
/// assert_eq!(cut.to_string(), "record 1 (height 501, at byte 97) needs 41 bytes, 40 are left");
/// assert!(records.next().is_none());
/// assert_eq!((records.intact().records, records.intact().bytes), (1, 97));
/// # Ok::<(), ContainerError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "iterators are lazy: nothing is read until they are advanced"]
pub struct Records<'a> {
    rest: &'a [u8],
    intact: Intact,
}

impl<'a> Records<'a> {
    /// Creates an iterator over the records of `file`.
    ///
    /// # Errors
    /// Returns the errors of [`Header::from_bytes`], and an error if the file is shorter than a
    /// header.
    pub fn new(file: &'a [u8]) -> Result<Self, ContainerError> {
        let (header, rest) = file
            .split_first_chunk()
            .ok_or(ContainerError::HeaderTruncated { length: file.len() })?;
        Ok(Self { rest, intact: Intact::new(Header::from_bytes(header)?) })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.intact.header
    }

    /// Returns the part that was read so far. Once the iterator has ended, this is the whole intact
    /// part of the file.
    pub fn intact(&self) -> &Intact {
        &self.intact
    }

    fn take(&mut self) -> Result<FilterItem<'a>, ContainerError> {
        let place = self.intact.next_place()?;
        let cut = |needed| ContainerError::RecordTruncated {
            place,
            needed,
            left: self.rest.len() as u64,
        };
        let (front, rest) = self.rest.split_first_chunk().ok_or(cut(AROUND))?;
        let (length, block_hash) = Intact::read_front(place, front)?;
        let whole = cut(u64::from(length) + AROUND);
        let (content, rest) = rest.split_at_checked(length as usize).ok_or(whole)?;
        let (stored, rest) = rest.split_first_chunk().ok_or(whole)?;
        self.intact.accept(place, front, content, u32::from_le_bytes(*stored))?;
        self.rest = rest;
        Ok(FilterItem { height: place.height, block_hash, content, commitment: None })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<FilterItem<'a>, ContainerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

impl core::iter::FusedIterator for Records<'_> {}

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
