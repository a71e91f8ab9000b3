//! Headers in row order: the fields that an index stores, before they are transposed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bloom};

use super::format::segment::{
    Coding, ROW, RowEntry, SectionRecord, SegmentHeader, UNIT, check_list,
};
use super::format::tail::TailRow;
use super::format::{SECTION, check, contradiction};
use super::reader::Index;
use super::reader::Segment;
use super::storage::{ReadAt, Storage};
use super::{IndexError, Part};
use crate::eth::bloom::FillHistogram;
use crate::eth::bloom::{BYTES, Blooms as _};
use crate::eth::header::ChainBlock;

/// Consecutive headers, each the parent of the next, stored as columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    /// Number of the first header.
    pub(super) first: u64,
    /// Hash of the block before the first header.
    pub(super) parent_hash: B256,
    pub(super) hashes: Vec<B256>,
    /// Timestamps, in seconds since 1970.
    pub(super) times: Vec<u64>,
    pub(super) gas: Vec<u64>,
    pub(super) blooms: Vec<[u8; BYTES]>,
}

impl Rows {
    pub(super) fn new(first: u64, parent_hash: B256) -> Self {
        Self {
            first,
            parent_hash,
            hashes: Vec::new(),
            times: Vec::new(),
            gas: Vec::new(),
            blooms: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the number of the block after the last header.
    pub(super) fn next(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Returns the hash of the last header, or of the block before the first header if there are no
    /// headers.
    pub(super) fn last_hash(&self) -> B256 {
        self.hashes.last().copied().unwrap_or(self.parent_hash)
    }

    /// Returns the hash of block `number` if it is one of the headers or the block before the first
    /// header; otherwise returns `None`.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        match number.checked_sub(self.first) {
            Some(index) => self.hashes.get(usize::try_from(index).ok()?).copied(),
            None if number.checked_add(1) == Some(self.first) => Some(self.parent_hash),
            None => None,
        }
    }

    /// Returns the parent hash of block `number`, which must be one of the headers or the block
    /// after the last header.
    pub(super) fn parent_of(&self, number: u64) -> B256 {
        let before = number.checked_sub(self.first + 1);
        let before = before.and_then(|index| usize::try_from(index).ok());
        before.map_or(self.parent_hash, |index| self.hashes[index])
    }

    pub(super) fn push(&mut self, row: &TailRow) {
        self.hashes.push(row.hash);
        self.times.push(row.time);
        self.gas.push(row.gas_used);
        self.blooms.push(row.bloom);
    }

    /// Appends blocks and their filters.
    pub(super) fn extend<'a>(
        &mut self,
        blocks: impl Iterator<Item = ChainBlock<'a>>,
        blooms: &[Bloom],
    ) {
        for block in blocks {
            self.hashes.push(block.hash);
            self.times.push(block.timestamp);
            self.gas.push(block.gas_used);
        }
        self.blooms.extend_from_slice(blooms.as_arrays());
    }

    /// Removes the headers after block `last`, which is one of the headers or the block before
    /// them.
    pub(super) fn truncate(&mut self, last: u64) {
        let keep = usize::try_from((last + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.hashes.truncate(keep);
        self.times.truncate(keep);
        self.gas.truncate(keep);
        self.blooms.truncate(keep);
    }

    /// Removes the first `count` headers.
    pub(super) fn remove_front(&mut self, count: usize) {
        let Some(before) = count.checked_sub(1) else { return };
        self.parent_hash = self.hashes[before];
        self.first += count as u64;
        self.hashes.drain(..count);
        self.times.drain(..count);
        self.gas.drain(..count);
        self.blooms.drain(..count);
    }
}

/// The requested blocks of one sealed section.
#[derive(Debug)]
struct SectionPart<'a, F> {
    segment: &'a Segment<F>,
    /// Number of the section within its segment, from 0.
    section: u32,
    /// The number of the section's first block.
    first: u64,
    /// The requested blocks of the section.
    blocks: RangeInclusive<u64>,
}

impl<F> SectionPart<'_, F> {
    fn is_whole(&self) -> bool {
        self.blocks.end() - self.blocks.start() + 1 == SECTION as u64
    }
}

impl<S: Storage> Index<S> {
    /// Returns the exact histogram of the filters' fills in a range of blocks.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range, if the files are
    /// damaged, or if the storage fails.
    ///
    /// # Cost
    /// Reads 4.5 KB for each section. If the range starts or ends within a section, all rows of
    /// that section are read: at most 2 MiB.
    pub fn fills(&self, blocks: RangeInclusive<u64>) -> Result<FillHistogram, IndexError> {
        self.require(&blocks)?;
        let mut fills = FillHistogram::default();
        for part in self.section_parts(&blocks) {
            let record = part.segment.record(part.section)?;
            fills.merge(&fills_of(&part, &record)?);
        }
        fills.add(&self.files.tail.rows.blooms[self.tail_part(&blocks)]);
        Ok(fills)
    }

    /// Returns the sealed blocks of a range, section by section.
    fn section_parts(
        &self,
        blocks: &RangeInclusive<u64>,
    ) -> impl Iterator<Item = SectionPart<'_, S::File>> {
        let (start, end) = (*blocks.start(), *blocks.end());
        self.files.segments.iter().flat_map(move |segment| {
            (0..segment.id.sections).filter_map(move |section| {
                let first = segment.header.first + u64::from(section) * SECTION as u64;
                let last = first + SECTION as u64 - 1;
                let blocks = first.max(start)..=last.min(end);
                (!blocks.is_empty()).then_some(SectionPart { segment, section, first, blocks })
            })
        })
    }

    /// Returns the indices of the unsealed blocks that belong to a range.
    fn tail_part(&self, blocks: &RangeInclusive<u64>) -> core::ops::Range<usize> {
        let tail = &self.files.tail.rows;
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(tail.first))
                .map_or(tail.len(), |i| i.min(tail.len()))
        };
        index(*blocks.start())..index(blocks.end().saturating_add(1))
    }
}

/// Returns the histogram of the fills of the requested blocks of a section.
fn fills_of<F: ReadAt>(
    part: &SectionPart<'_, F>,
    record: &SectionRecord,
) -> Result<FillHistogram, IndexError> {
    let mut fills = FillHistogram::default();
    if part.is_whole() {
        for (ones, &filters) in record.fills.iter().enumerate() {
            fills.add_count(ones, u64::from(filters));
        }
        return Ok(fills);
    }
    // The record has only the histogram of the whole section: count the bits of each header.
    let counts: Box<[u16]> = Directory::read(part.segment)?.ones_of_headers(part.section)?;
    for (number, &ones) in (part.first..).zip(&counts) {
        if part.blocks.contains(&number) {
            fills.add_count(usize::from(ones), 1);
        }
    }
    Ok(fills)
}

/// Number of bit planes of a counter: the largest count, 2,048, needs twelve bits.
const PLANES: usize = 12;

/// A segment with the entries of all its rows.
#[derive(Debug)]
pub(super) struct Directory<'a, F> {
    pub(super) segment: &'a Segment<F>,
    pub(super) entries: Vec<RowEntry>,
}

impl<'a, F: ReadAt> Directory<'a, F> {
    /// Reads and checks the entries of all rows of a segment.
    pub(super) fn read(segment: &'a Segment<F>) -> Result<Self, IndexError> {
        let entries = segment.entries()?;
        Ok(Self { segment, entries })
    }

    /// Fills `to` with the bits of a row in a section, after verifying the checksum of the row's
    /// data.
    pub(super) fn row(&self, row: u16, section: u32, to: &mut [u8; ROW]) -> Result<(), IndexError> {
        let entry = &self.entries[usize::from(row)];
        let ones = entry.ones[section as usize];
        let name = &self.segment.name;
        let part = Part::Row { row, section };
        let offset = data_at(&self.segment.header, entry) + entry.place(section) as u64;
        let stored = entry.crcs[section as usize];
        match Coding::of(ones) {
            Coding::Zeros | Coding::Ones => {
                to.fill(if ones == 0 { 0 } else { u8::MAX });
                // A row without data is stored with checksum 0.
                check(name, offset, part, stored, 0)
            }
            Coding::Raw => {
                self.segment.read(to, offset)?;
                check(name, offset, part, stored, crc32c::crc32c(to))?;
                let (words, _) = to.as_chunks::<8>();
                let set: u32 =
                    words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
                if set == u32::from(ones) {
                    return Ok(());
                }
                let what = format!("{set} bits are set, but its entry states {ones}");
                Err(contradiction(name, offset, part, what))
            }
            coding @ Coding::List(_) => {
                let mut list = [0; ROW];
                let list = &mut list[..coding.len()];
                self.segment.read(list, offset)?;
                check(name, offset, part, stored, crc32c::crc32c(list))?;
                to.fill(0);
                for place in check_list(name, offset, part, list)? {
                    let place = usize::from(u16::from_le_bytes(*place));
                    to[place / 8] |= 1 << (place % 8);
                }
                Ok(())
            }
        }
    }

    /// Returns the number of bits set in the filter of each header of a section.
    ///
    /// # Cost
    /// All rows of the section are read: at most 2 MiB.
    pub(super) fn ones_of_headers(&self, section: u32) -> Result<Box<[u16]>, IndexError> {
        let mut counts = RowCounts::default();
        let mut bits = [0; ROW];
        for (row, entry) in (0..).zip(&self.entries) {
            if entry.ones[section as usize] != 0 {
                self.row(row, section, &mut bits)?;
                counts.add(&bits);
            }
        }
        Ok(counts.of_headers())
    }
}

/// Returns the offset in the file at which the data of a row start.
pub(super) fn data_at(header: &SegmentHeader, entry: &RowEntry) -> u64 {
    header.data_at() + u64::from(entry.start) * UNIT as u64
}

/// Sums the rows of a section: one counter for each header, stored as bit planes.
///
/// Plane `p` holds bit `p` of 64 counters in one word, so that one step adds 64 bits of a row.
#[derive(Debug)]
pub(super) struct RowCounts(Box<[[u64; PLANES]]>);

impl Default for RowCounts {
    fn default() -> Self {
        Self(vec![[0; PLANES]; SECTION / 64].into())
    }
}

impl RowCounts {
    /// Adds a row to the counters. A counter overflows after 4,095 set bits.
    pub(super) fn add(&mut self, row: &[u8; ROW]) {
        for (planes, word) in self.0.iter_mut().zip(row.as_chunks::<8>().0) {
            let mut carry = u64::from_le_bytes(*word);
            for plane in planes {
                if carry == 0 {
                    break;
                }
                (*plane, carry) = (*plane ^ carry, *plane & carry);
            }
        }
    }

    /// Returns the value of each counter: the number of added rows in which the header's bit is
    /// set.
    pub(super) fn of_headers(&self) -> Box<[u16]> {
        let count = |header: usize| {
            let planes = &self.0[header / 64];
            let bit = |plane: &u64| u16::from(plane >> (header % 64) & 1 != 0);
            planes.iter().rev().fold(0, |count, plane| count << 1 | bit(plane))
        };
        (0..SECTION).map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ROW, RowCounts};
    use crate::eth::bloom::BITS;
    use testkit::Rng;

    #[test]
    fn counts_are_those_of_single_bits() {
        let mut rng = Rng::new(3);
        let mut counts = RowCounts::default();
        let mut expected = vec![0_u16; ROW * 8];
        for number in 0..BITS {
            let mut row = [0; ROW];
            for (header, count) in expected.iter_mut().enumerate() {
                // Some headers have their bit set in every row, and some headers have it set in no
                // row.
                let set = header % 100 == 7 || (header % 50 != 3 && rng.below(16) > number % 16);
                row[header / 8] |= u8::from(set) << (header % 8);
                *count += u16::from(set);
            }
            counts.add(&row);
        }
        assert!(expected.contains(&2048) && expected.contains(&0));
        assert_eq!(counts.of_headers()[..], expected[..]);
    }
}
