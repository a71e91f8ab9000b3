//! Reading an index: opening and refreshing it, and looking up its block times and block hashes.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use alloy_primitives::B256;

use super::format::segment::{
    HASHES, HEADER, RECORD, RowEntry, SectionRecord, SegmentHeader, entry_len, wrong_length,
};
use super::format::{Manifest, SECTION, SegmentId, Settings, check, contradiction, segments};
use super::storage::{FileKind, ReadAt, Storage, length, open, read, read_manifest};
use super::tail::Tail;
use super::{IndexError, Part};
use crate::eth::bloom::BITS;

/// Maximum number of attempts to open an index while a writer replaces its files.
const TRIES: usize = 64;

/// An index that is open for reading, in its state when it was opened or last
/// [refreshed](Self::refresh).
///
/// Any number of processes may read an index while one process writes to it. Files that the writer
/// removes stay readable through an open index.
///
/// # Cost
/// Opening reads the manifest, the first 64 bytes of each segment, and the whole tail. The tail has
/// 328 bytes for each of about 8,500 unsealed headers. The tail also has at most 16,384 slots for
/// blocks that were rolled back, for roll-backs and for sync markers. The index keeps the unsealed
/// headers and 8 KiB for each segment in memory.
///
/// # Examples
/// ```no_run
/// use chainsieve::eth::index::{Folder, Index};
/// use chainsieve::eth::{bloom, log_query::CompiledQuery};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let index = Index::open(Folder::new("mainnet.index"))?;
/// let blocks = index.numbers().ok_or("no block yet")?;
/// let query = CompiledQuery::new(vec![vec![bloom::positions(&[0x11; 20])]]);
/// let candidates = index.candidates(&query, blocks)?;
/// println!("{} blocks may hold a log of it", candidates.count());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Index<S: Storage> {
    storage: S,
    pub(super) files: Files<S::File>,
}

/// The files named by one manifest.
#[derive(Debug)]
pub(super) struct Files<F> {
    pub(super) manifest: Manifest,
    pub(super) segments: Vec<Arc<Segment<F>>>,
    pub(super) tail: Tail<F>,
}

impl<S: Storage> Index<S> {
    /// Opens an index for reading.
    ///
    /// # Errors
    /// Returns [`IndexError::NoIndex`] if the folder contains no index, an error of the storage, or
    /// [`IndexError::Damaged`]. In each segment, only the header and the length are checked. Damage
    /// in the rest of a segment is found when the damaged part is used.
    pub fn open(storage: S) -> Result<Self, IndexError> {
        let manifest = read_manifest(&storage)?;
        let files = Files::open(&storage, manifest, &[])?;
        Ok(Self { storage, files })
    }

    /// Reads the changes that were made since the last successful call. Returns `true` if the
    /// blocks have changed.
    ///
    /// After an error the index stays usable, with the unsealed blocks that were read before. If an
    /// index was deleted and rebuilt in the same folder, open it again: this function does not
    /// always notice the replacement.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    ///
    /// # Cost
    /// If no section was sealed since the last call, reads the manifest and the new slots of the
    /// tail.
    pub fn refresh(&mut self) -> Result<bool, IndexError> {
        let manifest = read_manifest(&self.storage)?;
        if manifest == self.files.manifest {
            return self.files.tail.refresh();
        }
        let before = &self.files.manifest;
        // Segments of the same index never change, so segments that are already open can be kept. A
        // lower generation reveals an index that was rebuilt.
        let same = manifest.settings == before.settings
            && manifest.first == before.first
            && manifest.generation > before.generation;
        let known = if same { &self.files.segments[..] } else { &[] };
        self.files = Files::open(&self.storage, manifest, known)?;
        Ok(true)
    }

    /// Returns the settings of the index.
    pub fn settings(&self) -> &Settings {
        &self.files.manifest.settings
    }

    /// Returns the numbers of all blocks in the index; `None` if the index has no block.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let first = self.files.manifest.first;
        let last = self.files.tail.rows.next().checked_sub(1)?;
        (first <= last).then_some(first..=last)
    }

    /// Returns the number of sealed blocks, which are the first blocks of the index.
    pub fn sealed(&self) -> u64 {
        u64::from(self.files.manifest.sections) * SECTION as u64
    }

    /// Returns the number and the hash of the first block, at `number` or later, whose hash the
    /// index stores.
    ///
    /// If headers link block `number` to the returned block, the index was built from these
    /// headers. The returned block is block `number` itself if the index has a column of block
    /// hashes, if the block is unsealed, or if it is the first block of a section. For any other
    /// block, the returned block is the last block of its section, at most 8,191 blocks later.
    ///
    /// # Errors
    /// Returns an error if the index does not contain the block, if the file is damaged, or if the
    /// storage fails.
    pub fn next_known_hash(&self, number: u64) -> Result<(u64, B256), IndexError> {
        self.require(&(number..=number))?;
        let rows = &self.files.tail.rows;
        if let Some(hash) = rows.hash(number) {
            return Ok((number, hash));
        }
        let (segment, section, place) = self.place(number);
        if let Some(hashes) = segment.block_hashes(section)? {
            return Ok((number, hashes[place]));
        }
        let record = segment.record(section)?;
        let first = segment.header.first + u64::from(section) * SECTION as u64;
        if number == first {
            return Ok((first, record.first_hash));
        }
        Ok((first + SECTION as u64 - 1, record.last_hash))
    }

    /// Returns the position of a sealed block: its segment, its section, and its index in the
    /// section.
    pub(super) fn place(&self, number: u64) -> (&Segment<S::File>, u32, usize) {
        let at = self.files.segments.partition_point(|segment| segment.blocks().end <= number);
        let segment = &self.files.segments[at];
        let index = number - segment.header.first;
        let section = u32::try_from(index / SECTION as u64).expect("at most 32");
        (segment, section, usize::try_from(index % SECTION as u64).expect("below 8,192"))
    }

    /// Returns an error if the index does not contain all of these blocks.
    pub(super) fn require(&self, blocks: &RangeInclusive<u64>) -> Result<(), IndexError> {
        let (first, last) = (*blocks.start(), *blocks.end());
        let Some(numbers) = self.numbers() else { return Err(IndexError::Empty) };
        if first <= last && numbers.contains(&first) && numbers.contains(&last) {
            return Ok(());
        }
        let (index_first, index_last) = (*numbers.start(), *numbers.end());
        Err(IndexError::Range { first, last, index_first, index_last })
    }
}

impl<F: ReadAt> Files<F> {
    /// Opens the files that the manifest names, and reuses segments that are already open.
    ///
    /// Open segments are reused only if they belong to the same chain: an index of a different
    /// branch may have replaced the segments.
    fn open<S: Storage<File = F>>(
        storage: &S,
        mut manifest: Manifest,
        known: &[Arc<Segment<F>>],
    ) -> Result<Self, IndexError> {
        for _ in 1..TRIES {
            match Self::try_open(storage, &manifest, known) {
                Err(IndexError::Io { kind: io::ErrorKind::NotFound, .. }) => {
                    // A writer removes files that a newer manifest no longer names: read the
                    // manifest again.
                    let now = read_manifest(storage)?;
                    if now == manifest {
                        break;
                    }
                    manifest = now;
                }
                opened => return opened,
            }
        }
        Self::try_open(storage, &manifest, known)
    }

    fn try_open<S: Storage<File = F>>(
        storage: &S,
        manifest: &Manifest,
        known: &[Arc<Segment<F>>],
    ) -> Result<Self, IndexError> {
        let mut opened = Vec::new();
        for id in segments(manifest.sections) {
            let at = known.binary_search_by_key(&id.section, |segment| segment.id.section);
            let segment = at.ok().map(|at| &known[at]).filter(|segment| segment.id == id);
            opened.push(match segment {
                Some(segment) => Arc::clone(segment),
                None => Arc::new(Segment::open(storage, manifest, id)?),
            });
        }
        let tail = Tail::open(storage, manifest)?;
        let files = Self { manifest: manifest.clone(), segments: opened, tail };
        if known.is_empty() || files.goes_on_from(known) {
            return Ok(files);
        }
        Self::try_open(storage, manifest, &[])
    }

    /// Returns `true` if the next segment continues the chain of the last reused segment. If there
    /// is no next segment, the tail must continue that chain. Returns `false` if one of the two
    /// hashes to compare can't be read.
    fn goes_on_from(&self, known: &[Arc<Segment<F>>]) -> bool {
        let taken = |(at, segment): (usize, &Arc<Segment<F>>)| {
            known.get(at).is_some_and(|known| Arc::ptr_eq(known, segment))
        };
        // Reused segments always come before new ones, so only the link after the last reused
        // segment is still unchecked.
        let Some(last) = self.segments.iter().enumerate().rposition(taken) else { return true };
        let hash = self.segments[last].last_hash();
        let parent = match self.segments.get(last + 1) {
            Some(next) => next.record(0).map(|record| record.parent_hash),
            None => Ok(self.tail.rows.parent_hash),
        };
        hash.is_ok() && hash == parent
    }
}

/// Open segment whose header and length agree with the manifest.
#[derive(Debug)]
pub(super) struct Segment<F> {
    pub(super) name: String,
    pub(super) id: SegmentId,
    pub(super) header: SegmentHeader,
    pub(super) file: F,
    /// For each row, the set of sections whose data have been checked. Used only if the file is in
    /// memory and never changes.
    pub(super) checked: Box<[AtomicU32]>,
    /// The set of rows whose entries have been checked, 32 rows in each word. Used only if the file
    /// is in memory and never changes.
    entered: [AtomicU32; BITS / 32],
}

impl<F: ReadAt> Segment<F> {
    /// Opens a segment of the index that the manifest describes.
    pub(super) fn open<S: Storage<File = F>>(
        storage: &S,
        manifest: &Manifest,
        id: SegmentId,
    ) -> Result<Self, IndexError> {
        let file = open(storage, &id.name(), FileKind::Sealed)?;
        Self::of_file(file, &manifest.settings, manifest.first, id)
    }

    /// Opens a segment from a file. The segment must belong to an index with these settings and
    /// this first block.
    pub(super) fn of_file(
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
    pub(super) fn is_entered(&self, row: u16) -> bool {
        self.entered[usize::from(row / 32)].load(Ordering::Relaxed) >> (row % 32) & 1 != 0
    }

    /// Records that the entry of a row has been checked.
    pub(super) fn set_entered(&self, row: u16) {
        self.entered[usize::from(row / 32)].fetch_or(1 << (row % 32), Ordering::Relaxed);
    }

    /// Returns the numbers of the segment's blocks.
    pub(super) fn blocks(&self) -> Range<u64> {
        let first = self.header.first;
        first..first + u64::from(self.id.sections) * SECTION as u64
    }

    /// Returns the whole file if it is in memory.
    ///
    /// Returns an error if the length of the slice is not the length that the header states.
    pub(super) fn as_slice(&self) -> Result<Option<&[u8]>, IndexError> {
        let Some(bytes) = self.file.as_slice() else { return Ok(None) };
        let (found, expected) = (bytes.len() as u64, self.header.file_len());
        if found == expected {
            Ok(Some(bytes))
        } else {
            Err(wrong_length(&self.name, found, expected))
        }
    }

    /// Fills `to` with the bytes from `offset` on.
    pub(super) fn read(&self, to: &mut [u8], offset: u64) -> Result<(), IndexError> {
        read(&self.file, &self.name, to, offset)
    }

    /// Reads and checks the record of a section.
    pub(super) fn record(&self, section: u32) -> Result<SectionRecord, IndexError> {
        let offset = self.header.record_at(section);
        let mut bytes = [0; RECORD];
        self.read(&mut bytes, offset)?;
        SectionRecord::from_bytes(&self.name, offset, section, &bytes)
    }

    /// Reads and checks the entries of all rows.
    pub(super) fn entries(&self) -> Result<Vec<RowEntry>, IndexError> {
        let length = entry_len(self.header.sections);
        let mut bytes = vec![0; BITS * length];
        self.read(&mut bytes, self.header.entry_at(0))?;
        let entries = (0..).zip(bytes.chunks_exact(length));
        entries
            .map(|(row, bytes)| RowEntry::from_bytes(&self.name, &self.header, row, bytes))
            .collect()
    }

    /// Returns the hash of the segment's last block.
    pub(super) fn last_hash(&self) -> Result<B256, IndexError> {
        Ok(self.record(self.id.sections - 1)?.last_hash)
    }

    /// Reads and checks the hashes of the blocks of a section; `None` if the index does not store
    /// them.
    pub(super) fn block_hashes(&self, section: u32) -> Result<Option<Vec<B256>>, IndexError> {
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
        self.files.segments.iter().map(|segment| {
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
        let tail = &self.files.tail.rows;
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
        let tail = &self.files.tail.rows;
        if number >= tail.first {
            return Ok(Some((tail.first, tail.hashes.clone())));
        }
        let (segment, section, place) = self.place(number);
        let hashes = segment.block_hashes(section)?;
        Ok(hashes.map(|hashes| (number - place as u64, hashes)))
    }
}
