//! What an index says of itself besides queries.

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::error::IndexError;
use super::format::SECTION;
use super::reader::Index;
use super::storage::Storage;

/// A file of sealed blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentFile {
    /// Its name.
    pub name: String,
    /// Number of its first block.
    pub first: u64,
    /// Number of its last block.
    pub last: u64,
    /// Sections of 8,192 blocks that it holds.
    pub sections: u32,
    /// How long it is.
    pub bytes: u64,
}

impl<S: Storage> Index<S> {
    /// The segments, in order.
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

    /// The time of a block, in seconds since 1970: of the first and the last of a section, and of
    /// one that is not sealed. Of others an index has none.
    ///
    /// # Errors
    /// A block that the index doesn't have, damage, or of the storage.
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

    /// The hashes of all blocks of the section that a block is in, or of all unsealed ones, and the
    /// number of the first of them. None for sealed blocks of an index without block hashes.
    ///
    /// # Errors
    /// A block that the index doesn't have, damage, or of the storage.
    ///
    /// # Cost
    /// 256 KiB are read and checked.
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
