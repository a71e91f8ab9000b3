//! A sealed segment that is open for reading.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use alloy_primitives::B256;

use crate::eth::bloom::BITS;
use crate::eth::index::error::{IndexError, Part};
use crate::eth::index::files::{length, open, read};
use crate::eth::index::format::manifest::Manifest;
use crate::eth::index::format::segment::{
    HASHES, HEADER, RECORD, RowEntry, SectionRecord, SegmentHeader, entry_len, wrong_length,
};
use crate::eth::index::format::{SECTION, SegmentId, Settings, check, contradiction};
use crate::eth::index::storage::{FileKind, ReadAt, Storage};

/// Open segment whose header and length agree with the manifest.
#[derive(Debug)]
pub(in crate::eth::index) struct Segment<F> {
    pub(in crate::eth::index) name: String,
    pub(in crate::eth::index) id: SegmentId,
    pub(in crate::eth::index) header: SegmentHeader,
    pub(in crate::eth::index) file: F,
    /// For each row, the set of sections whose data have been checked. Used only if the file is in
    /// memory and never changes.
    pub(in crate::eth::index) checked: Box<[AtomicU32]>,
    /// The set of rows whose entries have been checked, 32 rows in each word. Used only if the file
    /// is in memory and never changes.
    entered: [AtomicU32; BITS / 32],
}

impl<F: ReadAt> Segment<F> {
    /// Opens a segment of the index that the manifest describes.
    pub(in crate::eth::index) fn open<S: Storage<File = F>>(
        storage: &S,
        manifest: &Manifest,
        id: SegmentId,
    ) -> Result<Self, IndexError> {
        let file = open(storage, &id.name(), FileKind::Sealed)?;
        Self::of_file(file, &manifest.settings, manifest.first, id)
    }

    /// Opens a segment from a file. The segment must belong to an index with these settings and
    /// this first block.
    pub(in crate::eth::index) fn of_file(
        file: F,
        settings: &Settings,
        index_first: u64,
        id: SegmentId,
    ) -> Result<Self, IndexError> {
        let name = id.name();
        let found = length(&file, &name)?;
        if found < HEADER as u64 {
            return Err(wrong_length(&name, found, HEADER as u64));
        }
        let mut bytes = [0; HEADER];
        read(&file, &name, &mut bytes, 0)?;
        let header = SegmentHeader::from_bytes(&name, &bytes)?;
        let wrong = |what: String| contradiction(&name, 0, Part::SegmentHeader, what);
        if header.settings != *settings {
            let with = |settings: &Settings| {
                let hashes = if settings.block_hashes { "with" } else { "without" };
                format!("chain {} {hashes} block hashes", settings.label)
            };
            let (found, expected) = (with(&header.settings), with(settings));
            return Err(wrong(format!("it is of {found}, but the index is of {expected}")));
        }
        let first = index_first + u64::from(id.section) * SECTION as u64;
        if header.sections != id.sections || header.first != first {
            return Err(wrong(format!(
                "it has {} sections from block {} on; expected {} from block {first} on",
                header.sections, header.first, id.sections
            )));
        }
        if found != header.file_len() {
            return Err(wrong_length(&name, found, header.file_len()));
        }
        let checked = (0..BITS).map(|_| AtomicU32::new(0)).collect();
        let entered = [const { AtomicU32::new(0) }; BITS / 32];
        Ok(Self { name, id, header, file, checked, entered })
    }

    /// Returns `true` if the entry of a row is in memory and has been checked.
    pub(in crate::eth::index) fn is_entered(&self, row: u16) -> bool {
        self.entered[usize::from(row / 32)].load(Ordering::Relaxed) >> (row % 32) & 1 != 0
    }

    /// Records that the entry of a row has been checked.
    pub(in crate::eth::index) fn set_entered(&self, row: u16) {
        self.entered[usize::from(row / 32)].fetch_or(1 << (row % 32), Ordering::Relaxed);
    }

    /// Returns the numbers of the segment's blocks.
    pub(in crate::eth::index) fn blocks(&self) -> Range<u64> {
        let first = self.header.first;
        first..first + u64::from(self.id.sections) * SECTION as u64
    }

    /// Returns the whole file if it is in memory.
    ///
    /// Returns an error if the length of the slice is not the length that the header states.
    pub(in crate::eth::index) fn as_slice(&self) -> Result<Option<&[u8]>, IndexError> {
        let Some(bytes) = self.file.as_slice() else { return Ok(None) };
        let (found, expected) = (bytes.len() as u64, self.header.file_len());
        if found == expected {
            Ok(Some(bytes))
        } else {
            Err(wrong_length(&self.name, found, expected))
        }
    }

    /// Fills `to` with the bytes from `offset` on.
    pub(in crate::eth::index) fn read(&self, to: &mut [u8], offset: u64) -> Result<(), IndexError> {
        read(&self.file, &self.name, to, offset)
    }

    /// Reads and checks the record of a section.
    pub(in crate::eth::index) fn record(&self, section: u32) -> Result<SectionRecord, IndexError> {
        let offset = self.header.record_at(section);
        let mut bytes = [0; RECORD];
        self.read(&mut bytes, offset)?;
        SectionRecord::from_bytes(&self.name, offset, section, &bytes)
    }

    /// Reads and checks the entries of all rows.
    pub(in crate::eth::index) fn entries(&self) -> Result<Vec<RowEntry>, IndexError> {
        let length = entry_len(self.header.sections);
        let mut bytes = vec![0; BITS * length];
        self.read(&mut bytes, self.header.entry_at(0))?;
        let entries = (0..).zip(bytes.chunks_exact(length));
        entries
            .map(|(row, bytes)| RowEntry::from_bytes(&self.name, &self.header, row, bytes))
            .collect()
    }

    /// Returns the hash of the segment's last block.
    pub(in crate::eth::index) fn last_hash(&self) -> Result<B256, IndexError> {
        Ok(self.record(self.id.sections - 1)?.last_hash)
    }

    /// Reads and checks the hashes of the blocks of a section; `None` if the index does not store
    /// them.
    pub(in crate::eth::index) fn block_hashes(
        &self,
        section: u32,
    ) -> Result<Option<Vec<B256>>, IndexError> {
        if !self.header.settings.block_hashes {
            return Ok(None);
        }
        let stored = self.record(section)?.hashes_crc;
        let offset = self.header.hashes_at(section);
        let mut bytes = vec![0; HASHES];
        self.read(&mut bytes, offset)?;
        let part = Part::BlockHashes { section };
        check(&self.name, offset, part, stored, crc32c::crc32c(&bytes))?;
        Ok(Some(bytes.as_chunks::<32>().0.iter().map(B256::from).collect()))
    }
}
