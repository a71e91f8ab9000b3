//! Writes segments from sections in memory and from the sections of older segments.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use alloy_primitives::{B256, FixedBytesSliceExt as _};

use super::format::segment::{Coding, ROW, RowEntry, SectionRecord, SegmentHeader, UNIT};
use super::format::{SegmentId, Settings, check, contradiction};
use super::reader::Segment;
use super::section::Section;
use super::storage::failed;
use super::storage::{Append, ReadAt};
use super::{IndexError, Part};
use crate::eth::bloom::BITS;

/// The buffer is written when it contains at least this number of bytes.
const WRITE: usize = 1 << 20;
/// Number of bytes of an older segment that are read at a time.
const READ: usize = 1 << 18;

/// Source of the sections of a new segment.
#[derive(Clone, Copy)]
pub(super) enum SectionSource<'a> {
    /// One section in memory.
    Section(&'a Section),
    /// All sections of an older segment.
    Segment(&'a OldSegment<'a>),
}

impl SectionSource<'_> {
    fn records(&self) -> &[SectionRecord] {
        match self {
            Self::Section(section) => core::slice::from_ref(&section.record),
            Self::Segment(segment) => &segment.records,
        }
    }
}

/// An older segment whose sections are copied into a new segment. The header, records and entries
/// are already checked; the block hashes and rows are checked when they are copied.
pub(super) struct OldSegment<'a> {
    segment: Segment<&'a dyn ReadAt>,
    records: Vec<SectionRecord>,
    entries: Vec<RowEntry>,
}

impl<'a> OldSegment<'a> {
    /// Reads the header, records and entries of a segment. The segment must belong to an index with
    /// these settings and this first block.
    ///
    /// # Errors
    /// Returns an error of the storage, or [`IndexError::Damaged`] if the segment is damaged,
    /// belongs to another index, or is not the segment `id`.
    ///
    /// # Cost
    /// Allocates 0.5 MB, and 5 kB for each section.
    pub(super) fn open(
        settings: &Settings,
        index_first: u64,
        id: SegmentId,
        file: &'a dyn ReadAt,
    ) -> Result<Self, IndexError> {
        let segment = Segment::of_file(file, settings, index_first, id)?;
        let records = (0..id.sections).map(|section| segment.record(section));
        let records = records.collect::<Result<_, _>>()?;
        let entries = segment.entries()?;
        Ok(Self { segment, records, entries })
    }

    /// Checks the data of a row and returns them: first the raw sections, then the lists.
    fn row<'b>(
        &self,
        row: u16,
        window: &'b mut Window,
    ) -> Result<(&'b [u8], &'b [u8]), IndexError> {
        let entry = &self.entries[usize::from(row)];
        let Segment { name, header, .. } = &self.segment;
        let start = header.data_at() + u64::from(entry.start) * UNIT as u64;
        let data = window.get(self, start, entry.data_len())?;
        let mut raw = 0;
        for section in 0..header.sections {
            let coding = Coding::of(entry.ones[section as usize]);
            let (place, stored) = (entry.place(section), entry.crcs[section as usize]);
            let computed = crc32c::crc32c(&data[place..][..coding.len()]);
            let part = Part::Row { row, section };
            check(name, start + place as u64, part, stored, computed)?;
            raw += usize::from(coding == Coding::Raw) * ROW;
        }
        Ok(data.split_at(raw))
    }
}

/// The part of a file that was read last.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns `len` bytes from offset `start` on, which must lie within the file.
    fn get(&mut self, of: &OldSegment<'_>, start: u64, len: usize) -> Result<&[u8], IndexError> {
        let end = start + len as u64;
        // Read ahead: the rows are read in file order.
        if start < self.start || end > self.start + self.bytes.len() as u64 {
            let left = of.segment.header.file_len() - start;
            let len = usize::try_from(left).map_or(READ, |left| left.min(READ)).max(len);
            self.bytes.resize(len, 0);
            self.start = start;
            // A failed read leaves the buffer in an unknown state: forget it.
            if let Err(error) = of.segment.read(&mut self.bytes, start) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let at = usize::try_from(start - self.start).expect("less than the window's length");
        Ok(&self.bytes[at..][..len])
    }
}

/// Writes the segment `id` from its sections in order; `first` is the number of the segment's first
/// block.
///
/// # Errors
/// Returns an error of a storage, or [`IndexError::Damaged`] if consecutive sections are not linked
/// or if copied parts are damaged. After an error, the written file is not a valid segment.
///
/// # Panics
/// Panics if the sources do not have as many sections as the segment.
///
/// # Cost
/// Allocates 1.5 MB in addition to the sections, and 0.3 MB for each older segment.
pub(super) fn write_segment(
    settings: &Settings,
    id: SegmentId,
    first: u64,
    sources: &[SectionSource<'_>],
    to: &mut impl Append,
) -> Result<(), IndexError> {
    let count: usize = sources.iter().map(|source| source.records().len()).sum();
    assert_eq!(count, id.sections as usize, "the sections of a segment");
    check_links(id, sources)?;
    let mut out = Out { name: id.name(), written: 0, bytes: Vec::new(), to };

    let entries = entries(sources);
    let units = |entry: &RowEntry| entry.data_len().div_ceil(UNIT);
    let data_units: usize = entries.iter().map(units).sum();
    let header = SegmentHeader {
        settings: settings.clone(),
        sections: id.sections,
        first,
        data_units: u32::try_from(data_units).expect("at most the raw rows"),
    };
    out.bytes.extend(header.to_bytes());
    for record in sources.iter().flat_map(SectionSource::records) {
        out.bytes.extend(record.to_bytes().as_slice());
    }
    for (row, entry) in (0..).zip(&entries) {
        entry.write(row, id.sections, &mut out.bytes);
    }
    if settings.has_block_hashes() {
        write_hashes(sources, &mut out)?;
    }
    let zeros = header.data_at() - out.len();
    out.bytes.resize(out.bytes.len() + usize::try_from(zeros).expect("less than a page"), 0);

    let mut windows: Vec<Window> = sources.iter().map(|_| Window::default()).collect();
    let mut lists = Vec::new();
    for row in (0_u16..).take(BITS) {
        let start = out.bytes.len();
        for (source, window) in sources.iter().zip(&mut windows) {
            match source {
                SectionSource::Section(section) => {
                    let is_raw = Coding::of(section.ones[usize::from(row)]) == Coding::Raw;
                    section.append_data(
                        usize::from(row),
                        if is_raw { &mut out.bytes } else { &mut lists },
                    );
                }
                SectionSource::Segment(segment) => {
                    let (raw, listed) = segment.row(row, window)?;
                    out.bytes.extend(raw);
                    lists.extend(listed);
                }
            }
        }
        out.bytes.append(&mut lists);
        let len = (out.bytes.len() - start).next_multiple_of(UNIT);
        out.bytes.resize(start + len, 0);
        out.write_if_many()?;
    }
    out.write()
}

/// Returns an error if the parent hash of a section is not the last hash of the preceding section.
fn check_links(id: SegmentId, sources: &[SectionSource<'_>]) -> Result<(), IndexError> {
    let mut before: Option<B256> = None;
    for source in sources {
        for (section, record) in (0..).zip(source.records()) {
            if let Some(before) = before.filter(|&before| before != record.parent_hash) {
                let what = format!(
                    "its parent is {}, but the preceding section ends with {before}",
                    record.parent_hash
                );
                let part = Part::Section { section };
                let (name, offset) = match source {
                    SectionSource::Section(_) => (id.name(), 0),
                    SectionSource::Segment(segment) => {
                        let Segment { name, header, .. } = &segment.segment;
                        (name.clone(), header.record_at(section))
                    }
                };
                return Err(contradiction(&name, offset, part, what));
            }
            before = Some(record.last_hash);
        }
    }
    Ok(())
}

/// Returns the entries of all rows of the new segment.
fn entries(sources: &[SectionSource<'_>]) -> Vec<RowEntry> {
    let mut entries = vec![RowEntry::EMPTY; BITS];
    let mut start = 0;
    for (row, entry) in (0_u16..).zip(&mut entries) {
        let mut at = 0;
        for source in sources {
            match source {
                SectionSource::Section(section) => {
                    entry.ones[at] = section.ones[usize::from(row)];
                    entry.crcs[at] = section.crcs[usize::from(row)];
                    at += 1;
                }
                SectionSource::Segment(segment) => {
                    let old = &segment.entries[usize::from(row)];
                    let sections = segment.records.len();
                    entry.ones[at..][..sections].copy_from_slice(&old.ones[..sections]);
                    entry.crcs[at..][..sections].copy_from_slice(&old.crcs[..sections]);
                    at += sections;
                }
            }
        }
        entry.start = start;
        start += u32::try_from(entry.data_len().div_ceil(UNIT)).expect("at most 32 KiB");
    }
    entries
}

fn write_hashes<A: Append>(
    sources: &[SectionSource<'_>],
    out: &mut Out<'_, A>,
) -> Result<(), IndexError> {
    for source in sources {
        match source {
            SectionSource::Section(section) => {
                let hashes = section.block_hashes.as_deref().expect("an index with block hashes");
                out.bytes.extend(hashes.as_flattened());
                out.write_if_many()?;
            }
            SectionSource::Segment(segment) => {
                for section in 0..segment.segment.id.sections {
                    let hashes = segment.segment.block_hashes(section)?;
                    out.bytes.extend(hashes.expect("an index with block hashes").as_flattened());
                    out.write_if_many()?;
                }
            }
        }
    }
    Ok(())
}

/// Buffered writer of a file.
struct Out<'a, A> {
    name: String,
    written: u64,
    bytes: Vec<u8>,
    to: &'a mut A,
}

impl<A: Append> Out<'_, A> {
    fn len(&self) -> u64 {
        self.written + self.bytes.len() as u64
    }

    fn write_if_many(&mut self) -> Result<(), IndexError> {
        if self.bytes.len() >= WRITE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), IndexError> {
        let written = self.to.append(&self.bytes);
        written.map_err(failed("append to", &self.name, self.written))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
