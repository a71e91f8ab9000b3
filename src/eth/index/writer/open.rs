//! Opens an index for writing: checks the index's files, and cleans up after an interrupted writer.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::io;

use alloy_primitives::B256;
use chainsieve_lanes::simd::Backend;

use super::commit::{Disk, FOLDER};
use super::{CONFIRMATIONS, Turner, Writer};
use crate::eth::index::error::{IndexError, Operation, Part};
use crate::eth::index::files::{failed, read_manifest};
use crate::eth::index::format::manifest::{self, Manifest};
use crate::eth::index::format::{SegmentId, Settings, contradiction, segments};
use crate::eth::index::reader::segment::Segment;
use crate::eth::index::rows::Rows;
use crate::eth::index::storage::{Storage, WriteStorage};
use crate::eth::index::tail::Tail;

/// File name in errors about the writer's lock.
const LOCK: &str = "lock";

impl<S: WriteStorage> Writer<S> {
    /// Opens an index for writing, or prepares a new one if the folder contains none.
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
            _ => failed(Operation::Lock, LOCK, 0)(error),
        })?;
        let manifest = match read_manifest(&storage) {
            Ok(manifest) => Some(manifest),
            Err(IndexError::NoIndex) => None,
            Err(error) => return Err(error),
        };
        let names = storage.names().map_err(failed(Operation::Open, FOLDER, 0))?;
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
        let (slots, durable) = (tail.slots(), tail.durable());
        self.rows = tail.into_rows();
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
    let parent = tail.rows().parent_hash;
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
    name == manifest::NEW || segment_id(name).is_some() || is_tail() == Some(true)
}
