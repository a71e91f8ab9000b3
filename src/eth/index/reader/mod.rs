//! Reading an index: opening, refreshing, and looking up block hashes.

pub(super) mod segment;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use std::io;

use alloy_primitives::B256;

use self::segment::Segment;
use super::error::IndexError;
use super::files::read_manifest;
use super::format::manifest::Manifest;
use super::format::{SECTION, Settings, segments};
use super::storage::Storage;
use super::tail::Tail;

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
    files: Files<S::File>,
}

/// The files that one manifest names.
#[derive(Debug)]
struct Files<F> {
    manifest: Manifest,
    segments: Vec<Arc<Segment<F>>>,
    tail: Tail<F>,
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
        let last = self.files.tail.rows().next().checked_sub(1)?;
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
        let rows = self.files.tail.rows();
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

    pub(super) fn segments(&self) -> &[Arc<Segment<S::File>>] {
        &self.files.segments
    }

    pub(super) fn tail(&self) -> &super::rows::Rows {
        self.files.tail.rows()
    }

    pub(super) fn tail_name(&self) -> String {
        self.files.manifest.tail()
    }
}

impl<F: super::storage::ReadAt> Files<F> {
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
            None => Ok(self.tail.rows().parent_hash),
        };
        hash.is_ok() && hash == parent
    }
}
