//! Histogram of the filters' fills from an index alone.

use alloc::boxed::Box;
use core::ops::RangeInclusive;

use super::directory::Directory;
use super::error::IndexError;
use super::format::SECTION;
use super::format::segment::SectionRecord;
use super::reader::Index;
use super::reader::segment::Segment;
use super::storage::Storage;
use crate::eth::fill::FillHistogram;

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
        fills.add(&self.tail().blooms[self.tail_part(&blocks)]);
        Ok(fills)
    }

    /// Returns the sealed blocks of a range, section by section.
    fn section_parts(
        &self,
        blocks: &RangeInclusive<u64>,
    ) -> impl Iterator<Item = SectionPart<'_, S::File>> {
        let (start, end) = (*blocks.start(), *blocks.end());
        self.segments().iter().flat_map(move |segment| {
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
        let tail = self.tail();
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(tail.first))
                .map_or(tail.len(), |i| i.min(tail.len()))
        };
        index(*blocks.start())..index(blocks.end().saturating_add(1))
    }
}

/// Returns the histogram of the fills of the requested blocks of a section.
fn fills_of<F: super::storage::ReadAt>(
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
