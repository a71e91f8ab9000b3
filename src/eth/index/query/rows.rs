//! The rows of queries in one segment: their directory entries and their data.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;

use chainsieve_lanes::simd::prefetch;

use super::QueryStats;
use crate::eth::bloom::BITS;
use crate::eth::index::format::segment::{
    Coding, LIST_MAX, ROW, RowEntry, UNIT, check_list, entry_len,
};
use crate::eth::index::format::{MAX_SECTIONS, SECTION, check};
use crate::eth::index::reader::Segment;
use crate::eth::index::storage::ReadAt;
use crate::eth::index::{IndexError, Part};

/// Data of a row in one section.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    Zeros,
    Ones,
    /// The positions of the set bits in the section, ascending, each below 8,192.
    List(&'a [[u8; 2]]),
    Raw(&'a [u8; ROW]),
}

/// Set of sections of a segment: bit `i` represents section `i`.
pub(super) type Sections = u32;

/// Returns the sections of a set, ascending.
pub(super) fn each(mut sections: Sections) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let section = sections.checked_ilog2().map(|_| sections.trailing_zeros())?;
        sections &= sections - 1;
        Some(section)
    })
}

/// Offset in bytes of each section's data, in a row that is raw in all sections.
const RAW_PLACES: [u16; MAX_SECTIONS as usize] = {
    let mut places = [0; MAX_SECTIONS as usize];
    let mut section = 1;
    while section < places.len() {
        places[section] = places[section - 1] + 1024;
        section += 1;
    }
    places
};

/// Returns the maximal runs of consecutive sections in a set, ascending.
pub(super) fn runs(mut sections: Sections) -> impl Iterator<Item = Range<u32>> {
    core::iter::from_fn(move || {
        let start = sections.checked_ilog2().map(|_| sections.trailing_zeros())?;
        let end = start + (sections >> start).trailing_ones();
        sections &= Sections::MAX.checked_shl(end).unwrap_or(0);
        Some(start..end)
    })
}

/// A row of one segment.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) position: u16,
    pub(super) entry: RowEntry,
    /// Offset of the data for each section, in bytes from the start of the row's data.
    places: [u16; MAX_SECTIONS as usize],
    /// The sections in which any bit is set.
    pub(super) live: Sections,
    /// The sections in which all bits are set.
    pub(super) full: Sections,
    /// The sections in which the data are raw.
    pub(super) raw: Sections,
    /// The sections whose data are checked and available.
    ready: Sections,
    /// Data of the sections if the file is not in memory; each section starts at a multiple of
    /// [`ROW`].
    buffer: Vec<u8>,
}

impl Row {
    fn new(position: u16) -> Self {
        Self {
            position,
            entry: RowEntry::EMPTY,
            places: [0; MAX_SECTIONS as usize],
            live: 0,
            full: 0,
            raw: 0,
            ready: 0,
            buffer: Vec::new(),
        }
    }

    fn set(&mut self, entry: RowEntry, sections: u32) {
        self.entry = entry;
        self.ready = 0;
        let all = Sections::MAX >> (MAX_SECTIONS - sections);
        let ones = &self.entry.ones[..sections as usize];
        let (mut least, mut most) = (u16::MAX, 0);
        for &ones in ones {
            (least, most) = (least.min(ones), most.max(ones));
        }
        // The usual case on mainnet: every section is raw.
        if least > LIST_MAX && usize::from(most) < SECTION {
            (self.live, self.full, self.raw) = (all, 0, all);
            self.places = RAW_PLACES;
            return;
        }
        (self.live, self.full, self.raw) = (0, 0, 0);
        let mut lists = 0;
        let mut place = 0;
        for (section, &ones) in ones.iter().enumerate() {
            let coding = Coding::of(ones);
            self.places[section] = place;
            self.live |= u32::from(coding != Coding::Zeros) << section;
            self.full |= u32::from(coding == Coding::Ones) << section;
            self.raw |= u32::from(coding == Coding::Raw) << section;
            lists |= u32::from(matches!(coding, Coding::List(_))) << section;
            // The offset is at most 32 times 1,024 and fits in 16 bits.
            place += if coding == Coding::Raw { 1024 } else { 0 };
        }
        // The lists follow all raw sections.
        for section in each(lists) {
            self.places[section as usize] = place;
            place += entry.ones[section as usize] * 2;
        }
    }

    /// Returns the number of bits set in these sections.
    pub(super) fn ones(&self, sections: Sections) -> u32 {
        if sections == Sections::MAX {
            return self.entry.ones.iter().map(|&ones| u32::from(ones)).sum();
        }
        each(sections).map(|section| u32::from(self.entry.ones[section as usize])).sum()
    }

    /// Returns the number of bytes of data for these sections.
    pub(super) fn bytes(&self, sections: Sections) -> u64 {
        each(sections).map(|section| self.data(section).len() as u64).sum()
    }

    fn data(&self, section: u32) -> Range<usize> {
        let place = usize::from(self.places[section as usize]);
        place..place + Coding::of(self.entry.ones[section as usize]).len()
    }
}

/// The rows of all queries in the current segment. The memory is reused for each segment.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// Buffer for reading entries and data.
    buffer: Vec<u8>,
}

impl Rows {
    /// Creates the rows at these positions, which must ascend.
    pub(super) fn new(positions: &[u16]) -> Self {
        let rows = positions.iter().map(|&position| Row::new(position)).collect();
        Self { rows, buffer: Vec::new() }
    }

    pub(super) fn row(&self, row: u16) -> &Row {
        &self.rows[usize::from(row)]
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Discards the data that are available, so that the buffers can be reused.
    pub(super) fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.ready = 0);
    }
}

/// If at least this number of rows is needed, the entries of all 2,048 rows are read at once.
const ALL_ENTRIES: usize = 128;

/// Maximum number of needed rows for which data are announced before the evaluation. With more
/// rows, the evaluation may end early, before most of the rows are read.
const ANNOUNCED: usize = 64;

/// Minimum gap in bytes between two needed parts that are read separately.
const GAP: usize = 4096;

/// Access to the rows of a segment during a query.
#[derive(Debug)]
pub(super) struct Access<'a, F> {
    pub(super) segment: &'a Segment<F>,
    /// The whole file, if it is in memory.
    bytes: Option<&'a [u8]>,
    /// Offset at which the rows' data start.
    data: u64,
}

impl<'a, F: ReadAt> Access<'a, F> {
    pub(super) fn new(segment: &'a Segment<F>) -> Result<Self, IndexError> {
        Ok(Self { segment, bytes: segment.as_slice()?, data: segment.header.data_at() })
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.bytes.is_some()
    }

    /// Reads and checks the directory entries of the rows.
    pub(super) fn enter(&self, rows: &mut Rows) -> Result<(), IndexError> {
        let header = &self.segment.header;
        let length = entry_len(header.sections);
        let name = &self.segment.name;
        if self.bytes.is_none() && rows.rows.len() >= ALL_ENTRIES {
            rows.buffer.resize(BITS * length, 0);
            self.segment.read(&mut rows.buffer, header.entry_at(0))?;
            for row in &mut rows.rows {
                let bytes = &rows.buffer[usize::from(row.position) * length..][..length];
                row.set(RowEntry::from_bytes(name, header, row.position, bytes)?, header.sections);
            }
            return Ok(());
        }
        for row in &mut rows.rows {
            let entry = if let Some(bytes) = self.bytes {
                self.entry(bytes, row.position)?
            } else {
                rows.buffer.resize(length, 0);
                self.segment.read(&mut rows.buffer, header.entry_at(row.position))?;
                RowEntry::from_bytes(name, header, row.position, &rows.buffer)?
            };
            row.set(entry, header.sections);
        }
        Ok(())
    }

    /// Returns the entry of a row from a file in memory; the first call for a row checks the entry.
    fn entry(&self, bytes: &[u8], row: u16) -> Result<RowEntry, IndexError> {
        let header = &self.segment.header;
        let bytes = &bytes[at(header.entry_at(row))..][..entry_len(header.sections)];
        if self.segment.is_entered(row) {
            return Ok(RowEntry::read(header.sections, bytes));
        }
        let entry = RowEntry::from_bytes(&self.segment.name, header, row, bytes)?;
        self.segment.set_entered(row);
        // Sections without data need no check: mark these sections as checked.
        let mut elided = 0;
        for (section, &ones) in entry.ones.iter().enumerate() {
            elided |= u32::from(Coding::of(ones).len() == 0) << section;
        }
        self.segment.checked[usize::from(row)].fetch_or(elided, Ordering::Relaxed);
        Ok(entry)
    }

    /// Announces that entries will be read soon, if the file is in memory. Entries that were not
    /// read yet are announced to the storage. If few rows are needed, entries that were read before
    /// are loaded into the CPU's cache.
    pub(super) fn announce_entries(&self, rows: &Rows) {
        let Some(bytes) = self.bytes else { return };
        let header = &self.segment.header;
        let length = entry_len(header.sections);
        if rows.len() > ANNOUNCED {
            if rows.rows.iter().any(|row| !self.segment.is_entered(row.position)) {
                let end = header.entry_at(0) + (BITS * length) as u64;
                self.segment.file.will_need(header.entry_at(0)..end);
            }
            return;
        }
        for row in &rows.rows {
            let offset = header.entry_at(row.position);
            if self.segment.is_entered(row.position) {
                for line in bytes[at(offset)..][..length].chunks(64) {
                    prefetch(&line[0]);
                }
            } else {
                self.segment.file.will_need(offset..offset + length as u64);
            }
        }
    }

    /// Announces to the storage that the data of the rows will be read soon, if the file is in
    /// memory and the data have not been read yet. Damaged entries are ignored here and reported
    /// when they are used.
    pub(super) fn announce_data(&self, rows: &Rows, sections: Sections) {
        let Some(bytes) = self.bytes.filter(|_| rows.len() <= ANNOUNCED) else { return };
        for row in &rows.rows {
            let checked = self.segment.checked[usize::from(row.position)].load(Ordering::Relaxed);
            if sections & !checked == 0 {
                continue;
            }
            let Ok(entry) = self.entry(bytes, row.position) else { continue };
            let mut row = Row::new(row.position);
            row.set(entry, self.segment.header.sections);
            self.announce(&row, sections);
        }
    }

    /// Announces to the storage that the data of a row will be read soon, if the file is in memory
    /// and the data have not been read yet.
    pub(super) fn announce(&self, row: &Row, sections: Sections) {
        let checked = self.segment.checked[usize::from(row.position)].load(Ordering::Relaxed);
        let needed = sections & row.live & !row.full & !checked;
        if needed == 0 || self.bytes.is_none() {
            return;
        }
        let data = each(needed).map(|section| row.data(section));
        let range = data.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        if let Some(Range { start, end }) = range {
            let from = self.start(row);
            self.segment.file.will_need(from + start as u64..from + end as u64);
        }
    }

    /// Returns the offset at which the data of a row start.
    fn start(&self, row: &Row) -> u64 {
        self.data + u64::from(row.entry.start) * UNIT as u64
    }

    /// Reads and checks the data of a row for these sections, so that [`piece`](Self::piece) can
    /// return them. `group` is the number of the first section in the row's buffer.
    pub(super) fn ensure(
        &self,
        rows: &mut Rows,
        row: u16,
        sections: Sections,
        group: u32,
        stats: &mut QueryStats,
    ) -> Result<(), IndexError> {
        let Rows { rows, buffer } = rows;
        let row = &mut rows[usize::from(row)];
        let needed = sections & row.live & !row.full & !row.ready;
        if needed == 0 {
            return Ok(());
        }
        stats.rows += u64::from(row.ready == 0);
        stats.bytes += row.bytes(needed);
        let start = self.start(row);
        if let Some(bytes) = self.bytes {
            let checked = &self.segment.checked[usize::from(row.position)];
            let unchecked = needed & !checked.load(Ordering::Relaxed);
            for section in each(unchecked) {
                let data = row.data(section);
                self.check(row, section, &bytes[at(start) + data.start..][..data.len()])?;
                checked.fetch_or(1 << section, Ordering::Relaxed);
            }
        } else {
            // Sort into file order: first the raw sections, then the lists.
            let is_list = |section: &u32| row.data(*section).len() != ROW;
            let mut order: Vec<u32> = each(needed).collect();
            order.sort_by_key(is_list);
            let mut from = 0;
            while let Some(&first) = order.get(from) {
                let begin = row.data(first).start;
                let mut end = row.data(first).end;
                let mut to = from + 1;
                while let Some(data) = order.get(to).map(|&section| row.data(section)) {
                    // Reading a small gap costs less than a second read.
                    if data.start - end >= GAP {
                        break;
                    }
                    end = data.end;
                    to += 1;
                }
                buffer.resize(end - begin, 0);
                self.segment.read(buffer, start + begin as u64)?;
                for &section in &order[from..to] {
                    let data = row.data(section);
                    let data = &buffer[data.start - begin..data.end - begin];
                    self.check(row, section, data)?;
                    let place = (section - group) as usize * ROW;
                    if row.buffer.len() < place + ROW {
                        row.buffer.resize(place + ROW, 0);
                    }
                    row.buffer[place..][..data.len()].copy_from_slice(data);
                }
                from = to;
            }
        }
        row.ready |= needed;
        Ok(())
    }

    /// Returns the data of a row for a section; call [`ensure`](Self::ensure) first.
    pub(super) fn piece<'b>(&self, rows: &'b Rows, row: u16, section: u32, group: u32) -> Piece<'b>
    where
        'a: 'b,
    {
        let row = rows.row(row);
        let coding = Coding::of(row.entry.ones[section as usize]);
        match coding {
            Coding::Zeros => return Piece::Zeros,
            Coding::Ones => return Piece::Ones,
            Coding::List(_) | Coding::Raw => {}
        }
        debug_assert!(row.ready >> section & 1 != 0, "ensured before");
        let data = match self.bytes {
            Some(bytes) => {
                &bytes[at(self.start(row)) + usize::from(row.places[section as usize])..]
            }
            None => &row.buffer[(section - group) as usize * ROW..],
        };
        match coding {
            Coding::Raw => Piece::Raw(data.first_chunk().expect("as long as the entry says")),
            coding => Piece::List(data[..coding.len()].as_chunks().0),
        }
    }

    /// Returns the data of a row for consecutive sections that are all raw; call
    /// [`ensure`](Self::ensure) first.
    pub(super) fn raw<'b>(
        &self,
        rows: &'b Rows,
        row: u16,
        sections: &Range<u32>,
        group: u32,
    ) -> &'b [[u8; ROW]]
    where
        'a: 'b,
    {
        let row = rows.row(row);
        let data = match self.bytes {
            Some(bytes) => {
                &bytes[at(self.start(row)) + usize::from(row.places[sections.start as usize])..]
            }
            None => &row.buffer[(sections.start - group) as usize * ROW..],
        };
        &data.as_chunks().0[..sections.len()]
    }

    /// Verifies the checksum of a row's data for a section, and checks the order of a list.
    fn check(&self, row: &Row, section: u32, data: &[u8]) -> Result<(), IndexError> {
        let name = &self.segment.name;
        let part = Part::Row { row: row.position, section };
        let offset = self.start(row) + row.data(section).start as u64;
        let stored = row.entry.crcs[section as usize];
        check(name, offset, part, stored, crc32c::crc32c(data))?;
        if data.len() == ROW {
            return Ok(());
        }
        check_list(name, offset, part, data).map(drop)
    }
}

/// Converts a file offset into an index into bytes that are in memory.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("in memory")
}
