//! Checks a whole index for damage, and compares it with headers.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::B256;
use chainsieve_lanes::simd::Backend;

use super::format::segment::{FILL_CLASSES, ROW, SectionRecord, UNIT, fill_class};
use super::format::tail::{SLOT, TailRow};
use super::format::{SECTION, contradiction};
use super::reader::Index;
use super::reader::Segment;
use super::rows::Rows;
use super::rows::{Directory, RowCounts, data_at};
use super::section::{Section, SectionRow, Turner};
use super::storage::{ReadAt, Storage};
use super::{IndexError, Part};
use crate::eth::bloom::{self, BITS};
use crate::eth::header::LinkedHeaders;

impl<S: Storage> Index<S> {
    /// Reads the whole index and checks it for damage. Returns the number of bytes checked: the segments, and
    /// the tail's slots of the current blocks.
    ///
    /// The check covers every checksum, the number of set bits of each row, the order of lists, the
    /// block hashes, and the chain of hashes from section to section and to the unsealed blocks.
    /// The number of set bits of each header is compared with the histogram of fills in its
    /// section's record.
    ///
    /// This check finds accidental damage. An attacker can build a false index that passes this
    /// check; a [`Verifier`] detects such an index.
    ///
    /// `progress` is called with the number of bytes already checked and the total number of bytes.
    ///
    /// # Errors
    /// Returns the first damage, or an error of the storage.
    ///
    /// # Cost
    /// Reads all bytes, and counts every bit.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<u64, IndexError> {
        let tail = &self.files.tail.rows;
        let of_tail = (tail.len() * SLOT) as u64;
        let sealed = self.files.segments.iter().map(|segment| segment.header.file_len());
        let total = sealed.sum::<u64>() + of_tail;
        let mut last = None;
        let mut done = 0;
        for segment in &self.files.segments {
            let length = segment.header.file_len();
            segment.file.will_need(0..length);
            check_segment(segment, &mut last, |share| progress(done + share, total))?;
            done += length;
        }
        let parent = tail.parent_hash;
        if let Some(last) = last.filter(|last| *last != parent) {
            let what = format!("it follows block {parent}, but the last sealed block is {last}");
            return Err(contradiction(&self.files.manifest.tail(), 0, Part::TailHeader, what));
        }
        progress(total, total);
        Ok(total)
    }

    /// Returns a verifier, which compares the index with headers that are given in several ranges.
    pub fn verifier(&self) -> Verifier<'_, S> {
        Verifier {
            index: self,
            rows: None,
            turner: Turner::new(),
            last: None,
            blocks: None,
            sections: 0,
        }
    }
}

/// Compares an index with headers, bit by bit.
///
/// For each block, the verifier compares the bits of the filter, and the block hash if the index
/// stores this hash. For unsealed blocks, the verifier also compares the timestamp and the gas
/// used. If all headers of a section are given, the verifier compares the whole record of the
/// section: fills, gas, timestamps and hashes. The verifier does not check blocks whose headers are
/// not given.
///
/// # Cost
/// Uses 2.6 MB of memory for the headers of a section, and another 2.6 MB to transpose them.
pub struct Verifier<'a, S: Storage> {
    index: &'a Index<S>,
    /// The headers of the current sealed section that were given so far.
    rows: Option<Rows>,
    turner: Turner,
    /// Hash of the last compared block.
    last: Option<B256>,
    /// Numbers of the blocks that were compared; `None` before the first.
    pub blocks: Option<RangeInclusive<u64>>,
    /// Number of sealed sections that were compared completely, because all their headers were given.
    pub sections: u64,
}

impl<S: Storage> core::fmt::Debug for Verifier<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Verifier").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl<S: Storage> Verifier<'_, S> {
    /// Compares the blocks of a chain, which must start after the last block of the preceding call.
    ///
    /// # Errors
    /// - [`IndexError::Differs`]: a block differs or belongs to another branch;
    /// - [`IndexError::Range`]: the index does not contain all blocks of the chain;
    /// - [`IndexError::Gap`], [`IndexError::Parent`]: the chain does not continue after the last
    ///   compared block;
    /// - damage of the index, or an error of the storage.
    ///
    /// # Cost
    /// Transposes the headers and reads the rows of their sections.
    pub fn add(&mut self, chain: &LinkedHeaders) -> Result<(), IndexError> {
        let (Some(numbers), Some(parent)) = (chain.numbers(), chain.parent_hash()) else {
            return Ok(());
        };
        self.index.require(&numbers)?;
        let (first, last) = (*numbers.start(), *numbers.end());
        let start = match &self.blocks {
            Some(blocks) if first.checked_sub(1) != Some(*blocks.end()) => {
                return Err(IndexError::Gap { last: *blocks.end(), found: first });
            }
            Some(blocks) => *blocks.start(),
            None => first,
        };
        if let Some(expected) = self.last.filter(|last| *last != parent) {
            return Err(IndexError::Parent { number: first, expected, found: parent });
        }
        let unsealed = self.index.files.tail.rows.first;
        let mut parent_hash = parent;
        for block in chain.blocks() {
            let row = TailRow {
                number: block.number,
                hash: block.hash,
                time: block.timestamp,
                gas_used: block.gas_used,
                bloom: *block.bloom.data(),
            };
            if block.number < unsealed {
                let rows = self.rows.get_or_insert_with(|| Rows::new(block.number, parent_hash));
                rows.push(&row);
                let index_first = unsealed - self.index.sealed();
                if (block.number - index_first + 1).is_multiple_of(SECTION as u64) {
                    self.section()?;
                }
            } else {
                self.unsealed(&row, parent_hash)?;
            }
            parent_hash = block.hash;
        }
        self.blocks = Some(start..=last);
        self.last = Some(parent_hash);
        Ok(())
    }

    /// Compares the remaining headers. Call it after the last [`add`](Self::add).
    ///
    /// # Errors
    /// Returns the same errors as [`add`](Self::add).
    pub fn finish(&mut self) -> Result<(), IndexError> {
        self.section()
    }

    /// Compares an unsealed block of the tail with its header.
    fn unsealed(&self, row: &TailRow, parent: B256) -> Result<(), IndexError> {
        let (tail, number) = (&self.index.files.tail.rows, row.number);
        let index = usize::try_from(number - tail.first).expect("in memory");
        let hash = tail.hashes[index];
        let differs = |what: String| {
            let file = self.index.files.manifest.tail();
            Err(IndexError::Differs { file, part: Part::Unsealed, number, what })
        };
        if hash != row.hash {
            return differs(format!("its hash is {}, but the index has {hash}", row.hash));
        }
        if tail.parent_of(number) != parent {
            let had = tail.parent_of(number);
            return differs(format!("its parent is {parent}, but the index has {had}"));
        }
        let (time, gas) = (tail.times[index], tail.gas[index]);
        if time != row.time {
            return differs(format!("its time is {}, but the index has {time}", row.time));
        }
        if gas != row.gas_used {
            return differs(format!("it used {} gas, but the index has {gas}", row.gas_used));
        }
        let own = &tail.blooms[index];
        let bit = |filter: &[u8; 256], position: u16| {
            let (byte, mask) = bloom::byte_and_mask(position);
            filter[byte] & mask != 0
        };
        let other = (0..2048).find(|&position| bit(own, position) != bit(&row.bloom, position));
        other.map_or(Ok(()), |position| differs(bit_differs(position, bit(&row.bloom, position))))
    }

    /// Compares the headers collected for a section, or for a part of a section, with the index.
    fn section(&mut self) -> Result<(), IndexError> {
        let Some(rows) = self.rows.take().filter(|rows| rows.len() > 0) else { return Ok(()) };
        let (segment, section, before) = self.index.place(rows.first);
        let asked = Asked { segment, section, before, rows: &rows };
        asked.hashes()?;
        let settings = &segment.header.settings;
        let turned = self.turner.turn(Backend::best(), &padded(&rows, before), settings);
        asked.bits(&turned)?;
        self.turner.give_back([turned]);
        if rows.len() == SECTION {
            self.sections += 1;
        }
        Ok(())
    }
}

fn bit_differs(position: u16, of_header: bool) -> String {
    let set = |set: bool| if set { "set" } else { "not set" };
    format!(
        "bit {position} is {} in its filter, but {} in the index",
        set(of_header),
        set(!of_header)
    )
}

/// A section, and the headers with which it is compared.
struct Asked<'a, F> {
    segment: &'a Segment<F>,
    section: u32,
    /// Number of headers of the section that precede the given headers.
    before: usize,
    rows: &'a Rows,
}

impl<F: ReadAt> Asked<'_, F> {
    fn differs(&self, part: Part, index: usize, what: String) -> IndexError {
        let number = self.rows.first + index as u64;
        IndexError::Differs { file: self.segment.name.clone(), part, number, what }
    }

    /// Compares the hashes of the given headers with those that the index stores. The index always
    /// stores the hashes of the first and the last block of a section, and it may store all block
    /// hashes.
    fn hashes(&self) -> Result<(), IndexError> {
        let Self { segment, section, before, rows } = *self;
        let part = Part::Section { section };
        let check = |part: Part, index: usize, own: B256| {
            let hash = rows.hashes[index];
            let what = || format!("its hash is {hash}, but the index has {own}");
            if own == hash { Ok(()) } else { Err(self.differs(part, index, what())) }
        };
        if let Some(hashes) = segment.block_hashes(section)? {
            for (index, &own) in hashes[before..][..rows.len()].iter().enumerate() {
                check(Part::BlockHashes { section }, index, own)?;
            }
        }
        let record = segment.record(section)?;
        if before == 0 {
            check(part, 0, record.first_hash)?;
            let (own, parent) = (record.parent_hash, rows.parent_hash);
            if own != parent {
                let what = format!("its parent is {parent}, but the index has {own}");
                return Err(self.differs(part, 0, what));
            }
        }
        if before + rows.len() == SECTION {
            check(part, rows.len() - 1, record.last_hash)?;
        }
        Ok(())
    }

    /// Compares the bits of all rows with the headers. If the headers of a whole section are given,
    /// also compares the fills, timestamps and gas of the section's record.
    fn bits(&self, turned: &Section) -> Result<(), IndexError> {
        let Self { segment, section, before, rows } = *self;
        // Mask of the headers that are given: only their bits are compared.
        let mut given = [0_u8; ROW];
        for header in before..before + rows.len() {
            given[header / 8] |= 1 << (header % 8);
        }
        let directory = Directory::read(segment)?;
        let mut own = [0; ROW];
        for (row, SectionRow(of_headers)) in (0..).zip(turned.rows.iter()) {
            directory.row(row, section, &mut own)?;
            let lines = own.as_chunks::<64>().0.iter().zip(of_headers.as_chunks::<64>().0);
            let same = |((own, other), given): ((&[u8; 64], &[u8; 64]), &[u8; 64])| {
                own.iter().zip(other).zip(given).all(|((own, other), given)| own & given == *other)
            };
            if lines.zip(given.as_chunks::<64>().0).all(same) {
                continue;
            }
            let bit = |bytes: &[u8; ROW], header: usize| bytes[header / 8] >> (header % 8) & 1 != 0;
            let headers = before..before + rows.len();
            let header = headers.clone().find(|&i| bit(&own, i) != bit(of_headers, i));
            let header = header.unwrap_or(headers.start);
            let what = bit_differs(row, bit(of_headers, header));
            return Err(self.differs(Part::Row { row, section }, header - before, what));
        }
        if rows.len() < SECTION {
            return Ok(());
        }
        let (own, other) = (segment.record(section)?, &turned.record);
        let what = if own.fills != other.fills {
            "the fills"
        } else if own.gas != other.gas || own.most_gas != other.most_gas {
            "the gas sums"
        } else if own != *other {
            "the timestamps or the checksum of the hashes"
        } else {
            return Ok(());
        };
        let what = format!("{what} of the section that ends at this block differ from the headers");
        Err(self.differs(Part::Section { section }, SECTION - 1, what))
    }
}

/// Returns the headers at their positions in a section, padded with empty headers.
fn padded(rows: &Rows, before: usize) -> Cow<'_, Rows> {
    if rows.len() == SECTION {
        return Cow::Borrowed(rows);
    }
    let mut all = Rows::new(rows.first - before as u64, B256::ZERO);
    let behind = SECTION - before - rows.len();
    all.hashes = [&vec![B256::ZERO; before], &rows.hashes[..], &vec![B256::ZERO; behind]].concat();
    all.times = [&vec![0; before], &rows.times[..], &vec![0; behind]].concat();
    all.gas = [&vec![0; before], &rows.gas[..], &vec![0; behind]].concat();
    all.blooms = [&vec![[0; 256]; before], &rows.blooms[..], &vec![[0; 256]; behind]].concat();
    Cow::Owned(all)
}

/// Checks a segment. `last` is the hash of the block before the segment; the function sets `last`
/// to the hash of the segment's last block.
fn check_segment<F: ReadAt>(
    segment: &Segment<F>,
    last: &mut Option<B256>,
    mut progress: impl FnMut(u64),
) -> Result<(), IndexError> {
    let header = &segment.header;
    let sections = header.sections as usize;
    let mut records = vec![];
    for section in 0..header.sections {
        let record = segment.record(section)?;
        check_record(segment, section, &record, *last)?;
        *last = Some(record.last_hash);
        records.push(record);
    }
    let hashes = if header.settings.block_hashes { header.sections } else { 0 };
    check_zeros(segment, header.hashes_at(hashes), header.data_at(), Part::SegmentHeader)?;

    let directory = Directory::read(segment)?;
    let mut counts: Vec<RowCounts> = vec![];
    counts.resize_with(sections, RowCounts::default);
    let mut bits = [0; ROW];
    let mut unit = 0;
    for (row, entry) in (0..).zip(&directory.entries) {
        let part = Part::RowEntry { row };
        if u64::from(entry.start) != unit {
            let what = format!(
                "its data start at unit {}, but the preceding data end at {unit}",
                entry.start
            );
            return Err(contradiction(&segment.name, header.entry_at(row), part, what));
        }
        for (section, counts) in (0..).zip(&mut counts) {
            directory.row(row, section, &mut bits)?;
            counts.add(&bits);
        }
        let end = data_at(header, entry) + entry.data_len() as u64;
        let behind = end.next_multiple_of(UNIT as u64);
        let last = Part::Row { row, section: header.sections - 1 };
        check_zeros(segment, end, behind, last)?;
        unit += entry.data_len().div_ceil(UNIT) as u64;
        progress(behind);
    }
    if unit != u64::from(header.data_units) {
        let what = format!("it has {} units of data, but its rows have {unit}", header.data_units);
        return Err(contradiction(&segment.name, 0, Part::SegmentHeader, what));
    }
    for (section, (record, counts)) in (0..).zip(records.iter().zip(&counts)) {
        let mut fills = vec![0_u16; BITS + 1];
        counts.of_headers().iter().for_each(|&ones| fills[usize::from(ones)] += 1);
        if fills[..] != record.fills[..] {
            let part = Part::Section { section };
            let what = "its fills differ from the bits of its rows";
            return Err(contradiction(&segment.name, header.record_at(section), part, what));
        }
    }
    Ok(())
}

/// Checks that the record of a section agrees with the preceding block and with the section's block
/// hashes, and that its own values do not contradict each other.
fn check_record<F: ReadAt>(
    segment: &Segment<F>,
    section: u32,
    record: &SectionRecord,
    last: Option<B256>,
) -> Result<(), IndexError> {
    let at = segment.header.record_at(section);
    let wrong =
        |what: String| Err(contradiction(&segment.name, at, Part::Section { section }, what));
    let parent = record.parent_hash;
    if let Some(last) = last.filter(|last| *last != parent) {
        return wrong(format!(
            "its parent is {parent}, but the preceding section ends with {last}"
        ));
    }
    if let Some(hashes) = segment.block_hashes(section)? {
        let ends = (hashes[0], hashes[SECTION - 1]);
        if ends != (record.first_hash, record.last_hash) {
            return wrong(format!(
                "its first and last block are {} and {}, but the block hashes have {} and {}",
                record.first_hash, record.last_hash, ends.0, ends.1
            ));
        }
    }
    let mut blocks = [0_u64; FILL_CLASSES];
    for (ones, &filters) in (0..).zip(record.fills.iter()) {
        blocks[fill_class(ones)] += u64::from(filters);
    }
    for (class, &blocks) in blocks.iter().enumerate() {
        let (gas, most) = (record.gas[class], record.most_gas[class]);
        // The total gas of a class is at least the highest gas of one of its blocks, and at most
        // this highest gas multiplied by the number of its blocks.
        if most > gas || gas > most.saturating_mul(blocks) {
            return wrong(format!(
                "{blocks} blocks of class {class} used {gas} gas in total and at most {most} each"
            ));
        }
    }
    Ok(())
}

/// Returns an error if the bytes between two parts are not all zero.
fn check_zeros<F: ReadAt>(
    segment: &Segment<F>,
    from: u64,
    to: u64,
    part: Part,
) -> Result<(), IndexError> {
    let mut bytes = vec![0; usize::try_from(to - from).expect("less than a page")];
    segment.read(&mut bytes, from)?;
    let Some(at) = bytes.iter().position(|&byte| byte != 0) else { return Ok(()) };
    let what = format!("byte {} of its padding is 0x{:02x}, not zero", at + 1, bytes[at]);
    Err(contradiction(&segment.name, from + at as u64, part, what))
}
