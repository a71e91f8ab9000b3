//! Metadata of an index: its segment files, block times and block hashes.

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::error::IndexError;
use super::format::SECTION;
use super::reader::Index;
use super::storage::Storage;

/// Description of a segment file, which stores sealed blocks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct SegmentFile {
    /// Name of the file in the index folder.
    pub name: String,
    /// Number of the file's first block.
    pub first: u64,
    /// Number of the file's last block.
    pub last: u64,
    /// Number of sections in the file, each of 8,192 blocks.
    pub sections: u32,
    /// Length of the file in bytes.
    pub bytes: u64,
}

impl<S: Storage> Index<S> {
    /// Returns the segment files, in ascending order of their blocks.
    pub fn segment_files(&self) -> impl ExactSizeIterator<Item = SegmentFile> {
        self.segments().iter().map(|segment| {
            let blocks = segment.blocks();
            SegmentFile {
                name: segment.name.clone(),
                first: blocks.start,
                last: blocks.end - 1,
                sections: segment.id.sections,
                bytes: segment.header.file_len(),
            }
        })
    }

    /// Returns the timestamp of a block, in seconds since 1970, or `None` if the index does not
    /// store it.
    ///
    /// The index stores the timestamps of the first and the last block of each sealed section, and
    /// of all unsealed blocks.
    ///
    /// # Errors
    /// Returns an error if the index does not contain the block, if the file is damaged, or if the
    /// storage fails.
    pub fn time(&self, number: u64) -> Result<Option<u64>, IndexError> {
        self.require(&(number..=number))?;
        let tail = self.tail();
        if let Some(index) = number.checked_sub(tail.first) {
            return Ok(tail.times.get(usize::try_from(index).unwrap_or(usize::MAX)).copied());
        }
        let (segment, section, place) = self.place(number);
        let record = segment.record(section)?;
        Ok(match place {
            0 => Some(record.first_time),
            place if place == SECTION - 1 => Some(record.last_time),
            _ => None,
        })
    }

    /// Returns the hashes of all blocks of the section that contains `number`, and the number of
    /// the section's first block.
    ///
    /// For an unsealed block, the result contains the hashes of all unsealed blocks. Returns `None`
    /// for a sealed block if the index has no column of block hashes.
    ///
    /// # Errors
    /// Returns an error if the index does not contain the block, if the file is damaged, or if the
    /// storage fails.
    ///
    /// # Cost
    /// For a sealed block, 256 KiB are read and their checksum is computed.
    pub fn hashes_around(&self, number: u64) -> Result<Option<(u64, Vec<B256>)>, IndexError> {
        self.require(&(number..=number))?;
        let tail = self.tail();
        if number >= tail.first {
            return Ok(Some((tail.first, tail.hashes.clone())));
        }
        let (segment, section, place) = self.place(number);
        let hashes = segment.block_hashes(section)?;
        Ok(hashes.map(|hashes| (number - place as u64, hashes)))
    }
}
