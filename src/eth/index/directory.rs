//! Decodes all rows of a segment and counts the bits of each header.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::error::{IndexError, Part};
use super::format::segment::{Coding, ROW, RowEntry, SegmentHeader, UNIT, check_list};
use super::format::{SECTION, check, contradiction};
use super::reader::segment::Segment;
use super::storage::ReadAt;

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
