//! Order of the writes that make changes durable.
//!
//! Slots are appended to the tail, and the tail is synced. All other changes are written to new
//! files: first the segments, then a tail with all unsealed blocks, then the manifest that names
//! them. Each file is synced before the next step. Files that no longer belong to the index are
//! removed only after the new manifest is durable. So all files that the manifest on disk names are
//! complete at any time.

use alloc::vec::Vec;

use super::Writer;
use crate::eth::index::IndexError;
use crate::eth::index::format::tail::{SLOT, Slot, SlotPlace, TailHeader, TailRow};
use crate::eth::index::format::{self, Manifest};
use crate::eth::index::format::{SECTION, SegmentId, segments};
use crate::eth::index::rows::Rows;
use crate::eth::index::seal::{OldSegment, SectionSource, write_segment};
use crate::eth::index::storage::{self, failed};
use crate::eth::index::storage::{Append, FileKind, WriteStorage};

/// File name that errors contain if an operation on the folder itself failed.
pub(super) const FOLDER: &str = ".";

/// State of the files on disk.
pub(super) struct Disk<A> {
    pub(super) manifest: Manifest,
    /// The tail's file, once it is open for writing.
    pub(super) appender: Option<A>,
    /// Number of slots in the tail.
    pub(super) slots: u32,
    /// Number of slots that are durable.
    pub(super) durable: u32,
    /// Number of blocks in the tail.
    pub(super) rows: usize,
    /// Number of blocks that were written to the tail and not rolled back since. These blocks are
    /// the first blocks of the tail.
    pub(super) kept: usize,
    /// `true` if the tail can be appended to: no bytes follow its slots, and all slots are durable.
    pub(super) whole: bool,
}

impl<A> Disk<A> {
    /// Returns `true` if the new slots may be appended to the tail.
    ///
    /// Roll-backs and the blocks that they remove stay in the tail. To bound the length of the
    /// tail, at most 16,384 slots (the number of blocks in two sections) are allowed in addition to
    /// the slots of the current blocks. If more are needed, a new tail is written instead.
    pub(super) fn has_room(&self, rows: &Rows) -> bool {
        let slots = self.slots as usize + 2 + rows.len() - self.kept;
        self.whole && slots <= rows.len() + 2 * SECTION
    }
}

/// Encoded slots of a tail.
struct Slots {
    place: SlotPlace,
    bytes: Vec<u8>,
}

impl Slots {
    fn push(&mut self, slot: &Slot) {
        self.bytes.extend(slot.to_bytes(self.place));
        self.place.slot += 1;
    }

    fn push_rows(&mut self, rows: &Rows, from: usize) {
        self.bytes.reserve((rows.len() - from) * SLOT);
        for index in from..rows.len() {
            self.push(&Slot::Row(TailRow {
                number: rows.first + index as u64,
                hash: rows.hashes[index],
                time: rows.times[index],
                gas_used: rows.gas[index],
                bloom: rows.blooms[index],
            }));
        }
    }
}

impl<S: WriteStorage> Writer<S> {
    /// Appends the new roll-back and blocks to the tail, and syncs it.
    pub(super) fn append_slots(&mut self) -> Result<(), IndexError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let name = disk.manifest.tail();
        let generation = disk.manifest.generation;
        let place = SlotPlace { generation, slot: disk.slots, durable: disk.durable };
        let mut slots = Slots { place, bytes: Vec::new() };
        // Some blocks of the tail were rolled back after they were written, so a roll-back must
        // precede the new blocks.
        if disk.kept < disk.rows {
            let next = self.rows.first + disk.kept as u64;
            slots.push(&Slot::RollBack { number: next - 1, hash: self.rows.parent_of(next) });
        }
        slots.push_rows(&self.rows, disk.kept);
        if slots.bytes.is_empty() {
            return Ok(());
        }
        let mut appender = match disk.appender.take() {
            Some(appender) => appender,
            None => self.storage.append_to(&name).map_err(failed("open", &name, 0))?,
        };
        let offset = SlotPlace::offset(disk.slots);
        appender.append(&slots.bytes).map_err(failed("append to", &name, offset))?;
        appender.sync().map_err(failed("sync", &name, offset))?;

        // Record that the blocks are durable now, so that a reader can distinguish damage from a
        // write in progress. The record itself needs no sync: the blocks can be read without the
        // record.
        let durable = slots.place.slot;
        let end = SlotPlace::offset(durable);
        let place = SlotPlace { generation, slot: durable, durable };
        let synced = Slot::Synced.to_bytes(place);
        appender.append(&synced).map_err(failed("append to", &name, end))?;
        disk.appender = Some(appender);
        disk.slots = durable + 1;
        disk.durable = durable;
        disk.rows = self.rows.len();
        disk.kept = disk.rows;
        Ok(())
    }

    /// Writes the sections in memory into segments, and the unsealed blocks into a new tail.
    pub(super) fn commit(&mut self) -> Result<(), IndexError> {
        // `failed` stays `true` if a step fails, because the content on disk is then unknown.
        self.failed = true;
        if self.disk.is_none() && !self.sections.is_empty() {
            // Publish an empty index first, because segments must never exist without a manifest:
            // `open` would treat such a folder as an index whose manifest was lost.
            let parent_hash = self.sections[0].record.parent_hash;
            self.disk = Some(self.publish(0, &Rows::new(self.first, parent_hash))?);
        }
        let old = self.disk.as_ref().map_or(0, |disk| disk.manifest.sections);
        let added = u32::try_from(self.sections.len()).unwrap_or(u32::MAX);
        let number = self.rows.first;
        let sections = old.checked_add(added).ok_or(IndexError::Number { number })?;
        for id in segments(sections).filter(|&id| !segments(old).any(|old| old == id)) {
            self.write_segment(old, id)?;
        }
        self.disk = Some(self.publish(sections, &self.rows)?);
        self.turner.give_back(self.sections.drain(..));
        for id in segments(old).filter(|&id| !segments(sections).any(|new| new == id)) {
            self.remove(&id.name());
        }
        self.failed = false;
        Ok(())
    }

    /// Writes a segment from sections in memory, and from older segments if the new segment starts
    /// before section `old`.
    fn write_segment(&self, old: u32, id: SegmentId) -> Result<(), IndexError> {
        let end = id.section + id.sections;
        let first = |section: u32| self.first + u64::from(section) * SECTION as u64;
        let ids: Vec<_> =
            segments(old).filter(|old| (id.section..end).contains(&old.section)).collect();
        let mut older = Vec::with_capacity(ids.len());
        for &id in &ids {
            older.push(storage::open(&self.storage, &id.name(), FileKind::Sealed)?);
        }
        let mut opened = Vec::with_capacity(ids.len());
        for (&id, file) in ids.iter().zip(&older) {
            opened.push(OldSegment::open(&self.settings, self.first, id, file)?);
        }
        let from = id.section.max(old) - old;
        let sections = &self.sections[from as usize..(end - old) as usize];
        let sources: Vec<_> = opened
            .iter()
            .map(SectionSource::Segment)
            .chain(sections.iter().map(SectionSource::Section))
            .collect();
        let name = id.name();
        let mut file = self.create(&name)?;
        write_segment(&self.settings, id, first(id.section), &sources, &mut file)?;
        file.sync().map_err(failed("sync", &name, 0))
    }

    /// Writes a tail with these blocks, then the manifest that names it; returns the new state on
    /// disk.
    fn publish(&self, sections: u32, rows: &Rows) -> Result<Disk<S::Appender>, IndexError> {
        let old = self.disk.as_ref().map(|disk| &disk.manifest);
        // The generation only has to differ from the preceding one, so it may wrap around.
        let generation = old.map_or(0, |old| old.generation.wrapping_add(1));
        let settings = self.settings.clone();
        let manifest = Manifest { settings, sections, first: self.first, generation };
        let (rows_len, number) = (rows.len(), rows.next());
        let slots = u32::try_from(rows_len).map_err(|_| IndexError::Number { number })?;
        let (first, parent_hash) = (rows.first, rows.parent_hash);
        let header = TailHeader { generation, durable: slots, first, parent_hash };
        let place = SlotPlace { generation, slot: 0, durable: 0 };
        let mut tail = Slots { place, bytes: header.to_bytes(&self.settings).to_vec() };
        tail.push_rows(rows, 0);
        let appender = self.write(&manifest.tail(), &tail.bytes)?;
        self.sync_names()?;

        let new = format::NEW_MANIFEST;
        self.write(new, &manifest.to_bytes())?;
        let renamed = self.storage.rename(new, format::MANIFEST);
        renamed.map_err(failed("rename", new, 0))?;
        self.sync_names()?;
        if let Some(old) = old {
            self.remove(&old.tail());
        }
        Ok(Disk {
            manifest,
            appender: Some(appender),
            slots,
            durable: slots,
            rows: rows_len,
            kept: rows_len,
            whole: true,
        })
    }

    /// Writes and syncs a file, but does not make its name durable.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<S::Appender, IndexError> {
        let mut file = self.create(name)?;
        file.append(bytes).map_err(failed("append to", name, 0))?;
        file.sync().map_err(failed("sync", name, 0))?;
        Ok(file)
    }

    fn create(&self, name: &str) -> Result<S::Appender, IndexError> {
        self.storage.create(name).map_err(failed("create", name, 0))
    }

    pub(super) fn sync_names(&self) -> Result<(), IndexError> {
        self.storage.sync_names().map_err(failed("sync", FOLDER, 0))
    }

    /// Removes a file that no longer belongs to the index. Errors are ignored: a file that remains
    /// does no harm.
    pub(super) fn remove(&self, name: &str) {
        let _ = self.storage.remove(name);
    }
}
