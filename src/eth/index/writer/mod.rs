//! Writing an index: adding headers, rolling back, sealing sections.

mod commit;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use std::io;

use alloy_primitives::B256;
use chainsieve_lanes::simd::Backend;
use commit::FOLDER;

use self::commit::Disk;
use super::format::{MAX_SECTIONS, SECTION};
use super::section::{Section, Turner};
use crate::eth::header::LinkedHeaders;
use crate::eth::index::format::{self, Manifest, SegmentId, Settings, contradiction, segments};
use crate::eth::index::reader::Segment;
use crate::eth::index::rows::Rows;
use crate::eth::index::storage::{Storage, WriteStorage, failed, read_manifest};
use crate::eth::index::tail::Tail;
use crate::eth::index::{IndexError, Part};

/// Default number of newest blocks that stay unsealed. The former bloombits index of geth used the
/// same number.
const CONFIRMATIONS: u64 = 256;
/// Highest number of newest blocks that a caller can keep unsealed: these blocks need 344 MB of
/// memory.
const MAX_CONFIRMATIONS: u64 = 1 << 20;

/// An index that is open for writing. An index has at most one writer at a time.
///
/// Headers are *acknowledged* when [`sync`](Self::sync) has returned. An acknowledged header
/// survives a killed process or a power failure at any time. Blocks and roll-backs that were added
/// after the last sync may survive, too, but each of them survives only if all preceding blocks and
/// roll-backs survive. A roll-back may survive without the blocks that were added after the
/// roll-back.
///
/// 8,192 blocks are sealed together as soon as enough newer blocks follow them
/// ([`with_confirmations`](Self::with_confirmations)). Sealed blocks can't be rolled back. The next
/// sync writes sealed blocks to disk.
///
/// # Cost
/// Uses 0.5 MB of memory, 328 bytes for each unsealed block, and 2.1 MB for each section that is
/// sealed but not yet written (2.4 MB with block hashes). The writer reuses the memory of sections
/// that it has written. When the largest segment, of 32 sections, is complete, all sections are
/// written without waiting for a sync.
///
/// # Examples
/// ```
/// use chainsieve::eth::header::LinkedHeaders;
/// use chainsieve::eth::index::{Folder, Settings, Writer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("chainsieve-writer-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let mut writer = Writer::open(Folder::new(&folder), &Settings::new("mainnet")?)?;
/// let headers = LinkedHeaders::new(); // of verified headers
/// writer.append(&headers)?;
/// writer.sync()?;
/// assert_eq!(writer.numbers(), None);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "headers are acknowledged only after a `sync`; dropping the writer releases its lock"]
pub struct Writer<S: WriteStorage> {
    storage: S,
    /// Lock of the only writer, held until the writer is dropped.
    _lock: S::Lock,
    settings: Settings,
    confirmations: u64,
    backend: Backend,
    /// State of the files on disk; `None` before the first sync.
    disk: Option<Disk<S::Appender>>,
    /// Number of the index's first block.
    first: u64,
    /// Sections that are sealed in memory but not yet written.
    sections: Vec<Section>,
    turner: Turner,
    /// The unsealed blocks.
    rows: Rows,
    /// `true` after a failed write: the content on disk is then unknown.
    failed: bool,
}

impl<S: WriteStorage> core::fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer")
            .field("settings", &self.settings)
            .field("numbers", &self.numbers())
            .finish_non_exhaustive()
    }
}

impl<S: WriteStorage> Writer<S> {
    /// Sets the number of newest blocks that stay unsealed and can be rolled back.
    ///
    /// The default is 256. Values above 2²⁰ are reduced to 2²⁰.
    pub fn with_confirmations(mut self, blocks: u64) -> Self {
        self.confirmations = blocks.min(MAX_CONFIRMATIONS);
        self
    }

    /// Sets the SIMD backend for sealing sections.
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Returns the settings of the index.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the numbers of all blocks, including unacknowledged ones; `None` if there is no
    /// block.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let last = self.rows.next().checked_sub(1)?;
        (self.first <= last).then_some(self.first..=last)
    }

    /// Returns the hash of the last block; `None` if there is no block.
    pub fn last_hash(&self) -> Option<B256> {
        self.numbers().map(|_| self.rows.last_hash())
    }

    /// Returns the hash of an unsealed block or of the last sealed block, and `None` for all
    /// remaining blocks.
    ///
    /// To get the hashes of earlier sealed blocks, use a reader,
    /// [`Index`](crate::eth::index::Index).
    pub fn hash(&self, number: u64) -> Option<B256> {
        self.rows.hash(number)
    }

    /// Adds the blocks of a chain that the index does not have yet.
    ///
    /// The first block added to an empty index is the index's first block. The chain may start with
    /// blocks that the index already has: they are skipped if the index has the same hashes. Of the
    /// sealed blocks, only the last block is compared, because its hash commits to all its
    /// ancestors. If the chain ends before the last sealed block, no hash is compared.
    ///
    /// # Errors
    /// After these errors the index is unchanged:
    ///
    /// - [`IndexError::Gap`]: blocks are missing between the index and the chain;
    /// - [`IndexError::Parent`]: the chain is a different branch than the index. Blocks of the
    ///   index whose number is at least the error's number minus one are not on this branch;
    ///   [`roll_back`](Self::roll_back) removes them;
    /// - [`IndexError::Range`]: the chain starts before the index;
    /// - [`IndexError::Number`]: block numbers would overflow.
    ///
    /// If sections are written, errors of the storage and damage of sealed segments are possible.
    /// After such an error the index must be opened again, as after [`IndexError::Failed`].
    ///
    /// # Cost
    /// Copies 320 bytes for each block. Sealing costs as much as in [`sync`](Self::sync).
    pub fn append(&mut self, chain: &LinkedHeaders) -> Result<u64, IndexError> {
        self.check()?;
        let (Some(numbers), Some(parent)) = (chain.numbers(), chain.parent_hash()) else {
            return Ok(0);
        };
        let skipped = self.known(chain, &numbers, parent)?;
        let (first, last) = (*numbers.start(), *numbers.end());
        let index_first = if self.numbers().is_none() { first } else { self.first };
        check_number(index_first, last)?;
        if self.numbers().is_none() {
            self.first = first;
            self.rows = Rows::new(first, parent);
            if let Some(disk) = &mut self.disk {
                disk.whole = false; // the new first block may differ from the tail's
            }
        }
        let mut at = usize::try_from(skipped).unwrap_or(usize::MAX);
        let mut blocks = chain.blocks();
        blocks.by_ref().take(at).for_each(drop);
        while at < chain.len() {
            // Add blocks up to the end of a section, and the unsealed blocks that must follow the
            // section.
            let room = (SECTION as u64 + self.confirmations).saturating_sub(self.rows.len() as u64);
            let end =
                usize::try_from(room.max(1)).map_or(usize::MAX, |room| at.saturating_add(room));
            let end = end.min(chain.len());
            self.rows.extend(blocks.by_ref().take(end - at), &chain.blooms()[at..end]);
            at = end;
            self.seal();
            if self.is_segment_full() {
                self.commit()?;
            }
        }
        Ok(chain.len() as u64 - skipped)
    }

    /// Returns the number of blocks of a chain that the index already has.
    fn known(
        &self,
        chain: &LinkedHeaders,
        numbers: &RangeInclusive<u64>,
        parent: B256,
    ) -> Result<u64, IndexError> {
        let Some(own) = self.numbers() else { return Ok(0) };
        let (first, last) = (*numbers.start(), *numbers.end());
        let (index_first, index_last) = (*own.start(), *own.end());
        // Blocks are added only at the end, because the sections are counted from the first block.
        if first < index_first {
            return Err(IndexError::Range { first, last, index_first, index_last });
        }
        // A query must find the filter of each block of the range, so the index has no gaps.
        if first > index_last + 1 {
            return Err(IndexError::Gap { last: index_last, found: first });
        }
        // The parent hashes of the blocks `start..=end` are known both in the index and in the
        // chain.
        let (start, end) = (first.max(self.rows.first), last.min(index_last) + 1);
        let of_chain = |number: u64| {
            let before = number.checked_sub(1).and_then(|number| chain.block(number));
            before.map_or(parent, |block| block.hash)
        };
        let same = |number: u64| self.rows.parent_of(number) == of_chain(number);
        // Each hash commits to all its ancestors, so comparing the last hash suffices. If the last
        // hashes differ, search backwards for the lowest block whose hashes differ.
        if start <= end && !same(end) {
            let mut number = end;
            while number > start && !same(number - 1) {
                number -= 1;
            }
            let (expected, found) = (self.rows.parent_of(number), of_chain(number));
            return Err(IndexError::Parent { number, expected, found });
        }
        Ok(end - first)
    }

    /// Removes all blocks after block `last`; returns the number of removed blocks.
    ///
    /// Nothing is written before the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// - [`IndexError::Sealed`]: `last` is before the last sealed block;
    /// - [`IndexError::BelowFirst`]: `last` is before the index's first block;
    /// - [`IndexError::Range`]: `last` is after the index's last block;
    /// - [`IndexError::Empty`]: there is no block;
    /// - [`IndexError::Failed`]: an earlier write failed.
    pub fn roll_back(&mut self, last: u64) -> Result<u64, IndexError> {
        self.check()?;
        let numbers = self.numbers().ok_or(IndexError::Empty)?;
        let (index_first, index_last) = (*numbers.start(), *numbers.end());
        if last > index_last {
            return Err(IndexError::Range { first: last, last, index_first, index_last });
        }
        if last < index_first {
            return Err(IndexError::BelowFirst { first: index_first });
        }
        if last + 1 < self.rows.first {
            let sealed = self.rows.first - 1;
            return Err(IndexError::Sealed { asked: last, sealed, rebuild_from: index_first });
        }
        self.rows.truncate(last);
        if let Some(disk) = &mut self.disk {
            disk.kept = disk.kept.min(self.rows.len());
        }
        Ok(index_last - last)
    }

    /// Makes all changes durable: when this function returns, the changes are acknowledged.
    ///
    /// Readers can then read the changes, too.
    ///
    /// # Errors
    /// Returns errors of the storage, and damage of sealed segments that are merged into a larger
    /// segment. After an error, the content on disk is unknown, except for the changes that were
    /// acknowledged before. All further calls return [`IndexError::Failed`], and the index must be
    /// opened again.
    ///
    /// # Cost
    /// Writes 328 bytes for each new block, and syncs the file once. If sections are sealed, these
    /// sections, the segments that they are merged with, and all unsealed blocks are written. Each
    /// section is written up to six times until it is part of a segment of 32 sections.
    pub fn sync(&mut self) -> Result<(), IndexError> {
        self.check()?;
        // Without blocks there is nothing to write. The first block sets the number from which
        // sections are counted.
        if self.numbers().is_none() {
            return Ok(());
        }
        self.seal();
        while self.is_segment_full() {
            self.commit()?;
            self.seal();
        }
        let appended = match &self.disk {
            Some(disk) if self.sections.is_empty() && disk.has_room(&self.rows) => {
                self.append_slots()
            }
            _ => return self.commit(),
        };
        self.failed = appended.is_err();
        appended
    }

    fn check(&self) -> Result<(), IndexError> {
        if self.failed { Err(IndexError::Failed) } else { Ok(()) }
    }

    /// Seals, in memory, the sections that are followed by enough blocks.
    fn seal(&mut self) {
        while self.rows.len() as u64 >= SECTION as u64 + self.confirmations
            && !self.is_segment_full()
        {
            self.sections.push(self.turner.turn(self.backend, &self.rows, &self.settings));
            self.rows.remove_front(SECTION);
        }
    }

    /// Returns `true` if the sections in memory complete the largest segment.
    fn is_segment_full(&self) -> bool {
        let sealed = self.disk.as_ref().map_or(0, |disk| disk.manifest.sections);
        self.sections.len() as u64 >= u64::from(MAX_SECTIONS - sealed % MAX_SECTIONS)
    }
}

/// Returns an error if block numbers overflow in the section of `number` or in the next two
/// sections.
fn check_number(first: u64, number: u64) -> Result<(), IndexError> {
    let sections = (number - first) / SECTION as u64 + 3;
    let end = sections.checked_mul(SECTION as u64).and_then(|blocks| first.checked_add(blocks));
    let fits = end.is_some() && u32::try_from(sections).is_ok();
    if fits { Ok(()) } else { Err(IndexError::Number { number }) }
}

/// File name in errors about the writer's lock.
const LOCK: &str = "lock";

impl<S: WriteStorage> Writer<S> {
    /// Opens an index for writing, or prepares a new index if the folder contains none.
    ///
    /// A new index is written by the first [`sync`](Self::sync) with blocks; until then only the
    /// lock file is created. Complete changes that an interrupted writer left in the tail are kept.
    /// Files that do not belong to the index any more are removed.
    ///
    /// # Errors
    /// - [`IndexError::NoFolder`]: the folder does not exist;
    /// - [`IndexError::Locked`]: another writer holds the lock;
    /// - [`IndexError::OtherChain`], [`IndexError::OtherHashes`]: the settings of the index differ
    ///   from the requested settings;
    /// - [`IndexError::NoIndex`]: there are segments, but no manifest;
    /// - errors of the storage, or damage. In each segment, only the header and the length are
    ///   checked. In the last segment, the hash of the last block is checked, too.
    ///
    /// # Cost
    /// Makes a few reads for each segment, and reads the whole tail.
    pub fn open(storage: S, settings: &Settings) -> Result<Self, IndexError> {
        let lock = storage.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => IndexError::Locked,
            io::ErrorKind::NotFound => IndexError::NoFolder,
            _ => failed("lock", LOCK, 0)(error),
        })?;
        let manifest = match read_manifest(&storage) {
            Ok(manifest) => Some(manifest),
            Err(IndexError::NoIndex) => None,
            Err(error) => return Err(error),
        };
        let names = storage.names().map_err(failed("open", FOLDER, 0))?;
        // Segments without a manifest may be an index whose manifest was lost: don't overwrite
        // them.
        if manifest.is_none() && names.iter().any(|name| segment_id(name).is_some()) {
            return Err(IndexError::NoIndex);
        }
        let mut writer = Self {
            storage,
            _lock: lock,
            settings: settings.clone(),
            confirmations: CONFIRMATIONS,
            backend: Backend::best(),
            disk: None,
            first: 0,
            sections: Vec::new(),
            turner: Turner::new(),
            rows: Rows::new(0, B256::ZERO),
            failed: false,
        };
        if let Some(manifest) = manifest {
            writer.take_over(manifest, &names)?;
        }
        Ok(writer)
    }

    /// Continues the index that the manifest describes.
    fn take_over(&mut self, manifest: Manifest, names: &[String]) -> Result<(), IndexError> {
        let (asked, found) = (&self.settings, &manifest.settings);
        if found.label != asked.label {
            let (index, asked) = (found.label.clone(), asked.label.clone());
            return Err(IndexError::OtherChain { index, asked });
        }
        if found.block_hashes != asked.block_hashes {
            return Err(IndexError::OtherHashes { index: found.block_hashes });
        }
        // The writer that renamed the manifest may have stopped before the rename was durable. Sync
        // the rename before removing files that only the older manifest needs.
        self.sync_names()?;
        let tail = Tail::open(&self.storage, &manifest)?;
        check_segments(&self.storage, &manifest, &tail)?;
        let counts = |name: &str| {
            *name == manifest.tail()
                || segment_id(name)
                    .is_some_and(|id| segments(manifest.sections).any(|counts| counts == id))
        };
        for name in names.iter().filter(|name| is_ours(name) && !counts(name)) {
            self.remove(name);
        }
        let whole = tail.is_whole();
        let (slots, durable) = (tail.slots, tail.durable);
        self.rows = tail.rows;
        self.first = manifest.first;
        let rows = self.rows.len();
        self.disk =
            Some(Disk { manifest, appender: None, slots, durable, rows, kept: rows, whole });
        Ok(())
    }
}

/// Checks that the segments exist and that the tail continues after the last segment.
fn check_segments<S: Storage>(
    storage: &S,
    manifest: &Manifest,
    tail: &Tail<S::File>,
) -> Result<(), IndexError> {
    let mut last = None;
    for id in segments(manifest.sections) {
        last = Some(Segment::open(storage, manifest, id)?);
    }
    let Some(last) = last else { return Ok(()) };
    let hash = last.last_hash()?;
    let parent = tail.rows.parent_hash;
    // Each block commits to its ancestors by the parent hash, so this comparison shows that the
    // tail continues the segments. If the files of two indexes were mixed up, the comparison fails.
    if hash == parent {
        return Ok(());
    }
    let what = format!("its parent is {parent}, but the last sealed block is {hash}");
    Err(contradiction(&manifest.tail(), 0, Part::TailHeader, what))
}

/// Returns the segment that a file of this name would store, or `None` if the name is not that of a
/// segment.
fn segment_id(name: &str) -> Option<SegmentId> {
    let (section, sections) = name.strip_suffix(".segment")?.split_once('-')?;
    let id = SegmentId { section: section.parse().ok()?, sections: sections.parse().ok()? };
    (id.name() == name).then_some(id)
}

/// Returns `true` if a writer creates files of this name and may leave them behind.
fn is_ours(name: &str) -> bool {
    let is_tail = || {
        let generation = u64::from_str_radix(name.strip_suffix(".tail")?, 16).ok()?;
        Some(format!("{generation:016x}.tail") == name)
    };
    name == format::NEW_MANIFEST || segment_id(name).is_some() || is_tail() == Some(true)
}
