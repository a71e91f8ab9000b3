//! An index, open for reading.

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

/// How often an index is opened again whose files a writer replaces meanwhile.
const TRIES: usize = 64;

/// An index, open for reading: as it was when it was opened or [refreshed](Self::refresh) last.
///
/// Any number of processes read an index while one writes to it. What the writer removes stays
/// readable here.
///
/// # Cost
/// Opening reads the manifest, the first 64 bytes of each segment and the whole tail: 328 bytes
/// for each of some 8,500 headers, and for at most 16,384 that were taken back, roll-backs and
/// syncs. In memory it keeps the headers that stand, and 8 KiB for each segment.
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

/// What one manifest speaks of.
#[derive(Debug)]
struct Files<F> {
    manifest: Manifest,
    segments: Vec<Arc<Segment<F>>>,
    tail: Tail<F>,
}

impl<S: Storage> Index<S> {
    /// Opens an index.
    ///
    /// # Errors
    /// None there, files that are missing or damaged, or of the storage. Of a segment only the
    /// header and the length are looked at; what else is damaged is found when it is used.
    pub fn open(storage: S) -> Result<Self, IndexError> {
        let manifest = read_manifest(&storage)?;
        let files = Files::open(&storage, manifest, &[])?;
        Ok(Self { storage, files })
    }

    /// Takes over what was written since; returns whether anything changed since that was said
    /// last. After an error the index stays open, with the unsealed blocks that were read before.
    ///
    /// An index that is built anew in the same folder is another one, and may look the same to
    /// this: open it again.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    ///
    /// # Cost
    /// If nothing was sealed, a read of the manifest and of what the tail has more.
    pub fn refresh(&mut self) -> Result<bool, IndexError> {
        let manifest = read_manifest(&self.storage)?;
        if manifest == self.files.manifest {
            return self.files.tail.refresh();
        }
        let before = &self.files.manifest;
        // A segment is never changed, unless the index was built anew.
        let same = manifest.settings == before.settings
            && manifest.first == before.first
            && manifest.generation > before.generation;
        let known = if same { &self.files.segments[..] } else { &[] };
        self.files = Files::open(&self.storage, manifest, known)?;
        Ok(true)
    }

    /// What the index is of.
    pub fn settings(&self) -> &Settings {
        &self.files.manifest.settings
    }

    /// The numbers of the blocks that the index has; none if it has no block.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let first = self.files.manifest.first;
        let last = self.files.tail.rows().next().checked_sub(1)?;
        (first <= last).then_some(first..=last)
    }

    /// How many blocks are sealed: those from the first on.
    pub fn sealed(&self) -> u64 {
        u64::from(self.files.manifest.sections) * SECTION as u64
    }

    /// The next block, at `number` or behind it, whose hash the index has, and that hash. Headers
    /// linked from `number` up to it are those that the index was built from.
    ///
    /// That is the block itself where the index has a column of block hashes, or where the block
    /// is not sealed; else the last block of its section, at most 8,191 blocks away.
    ///
    /// # Errors
    /// A block that the index doesn't have, damage, or of the storage.
    pub fn anchor(&self, number: u64) -> Result<(u64, B256), IndexError> {
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

    /// Where a sealed block of the index is: in which section of which segment, and there.
    pub(super) fn place(&self, number: u64) -> (&Segment<S::File>, u32, usize) {
        let at = self.files.segments.partition_point(|segment| segment.blocks().end <= number);
        let segment = &self.files.segments[at];
        let index = number - segment.header.first;
        let section = u32::try_from(index / SECTION as u64).expect("at most 32");
        (segment, section, usize::try_from(index % SECTION as u64).expect("below 8,192"))
    }

    /// Whether the index has all of these blocks.
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
    /// Opens what the manifest speaks of, with the segments that are open already if they are of
    /// the same chain: an index of another branch may have been built in the place of theirs.
    fn open<S: Storage<File = F>>(
        storage: &S,
        mut manifest: Manifest,
        known: &[Arc<Segment<F>>],
    ) -> Result<Self, IndexError> {
        for _ in 1..TRIES {
            match Self::try_open(storage, &manifest, known) {
                Err(IndexError::Io { kind: io::ErrorKind::NotFound, .. }) => {
                    // A writer removes files when the manifest doesn't speak of them any more.
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

    /// Whether what stands behind the last of the segments that were known is of the same chain.
    /// False if that can't be read.
    fn goes_on_from(&self, known: &[Arc<Segment<F>>]) -> bool {
        let taken = |(at, segment): (usize, &Arc<Segment<F>>)| {
            known.get(at).is_some_and(|known| Arc::ptr_eq(known, segment))
        };
        // Those that two numbers of sections share come first.
        let Some(last) = self.segments.iter().enumerate().rposition(taken) else { return true };
        let hash = self.segments[last].last_hash();
        let parent = match self.segments.get(last + 1) {
            Some(next) => next.record(0).map(|record| record.parent_hash),
            None => Ok(self.tail.rows().parent_hash),
        };
        hash.is_ok() && hash == parent
    }
}
