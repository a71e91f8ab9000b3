//! Result of a query: a bitmap over block numbers.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use serde::ser::SerializeStruct as _;

/// Statistics of a query: the data that the query read, and the data that it could skip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct QueryStats {
    /// Number of sections, each of 8,192 sealed blocks, that overlap the range.
    pub sections: u64,
    /// Number of sections in the range that can't contain a candidate, so that no row was read.
    pub skipped_sections: u64,
    /// Number of rows whose data were read, at least in part, added up over all segments.
    pub rows: u64,
    /// Number of bytes of row data that the query needed.
    pub bytes: u64,
    /// Number of unsealed blocks, whose filters were tested one by one.
    pub unsealed_blocks: u64,
}

impl QueryStats {
    pub(super) fn add(&mut self, other: &Self) {
        self.sections += other.sections;
        self.skipped_sections += other.skipped_sections;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.unsealed_blocks += other.unsealed_blocks;
    }
}

/// The blocks of a range that may contain a match, as a bitmap.
///
/// The set of blocks is the same as that of a [`scan`](crate::eth::scan::candidates) of the
/// headers.
///
/// `serde` writes an object: `first`, `last`, `count`, `stats` and `candidates`, the list of block
/// numbers. This object can't be deserialised: only an index returns candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    blocks: RangeInclusive<u64>,
    /// Number of the block that the lowest bit of the first word represents.
    start: u64,
    words: Vec<u64>,
    count: u64,
    stats: QueryStats,
}

impl Candidates {
    /// Creates the result for a range of blocks. The bits of blocks outside the range must be 0.
    pub(super) fn new(
        blocks: RangeInclusive<u64>,
        start: u64,
        words: Vec<u64>,
        count: u64,
        stats: QueryStats,
    ) -> Self {
        Self { blocks, start, words, count, stats }
    }

    /// Returns the first block of the queried range.
    pub fn first(&self) -> u64 {
        *self.blocks.start()
    }

    /// Returns the last block of the queried range.
    pub fn last(&self) -> u64 {
        *self.blocks.end()
    }

    /// Returns the number of candidates.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns `true` if a block is a candidate. A block outside the range is not a candidate.
    pub fn contains(&self, number: u64) -> bool {
        let index = number.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        let word = index.and_then(|index| Some((self.words.get(index / 64)?, index % 64)));
        word.is_some_and(|(word, bit)| word >> bit & 1 != 0)
    }

    /// Returns the numbers of the candidates, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        Bits::new(&self.words).map(|bit| self.start + bit)
    }

    /// Returns the bitmap: bit `b` of word `w` represents block [`start`](Self::start)` + 64 w +
    /// b`.
    ///
    /// Bits of blocks outside the range are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the number of the block that the lowest bit of the first word represents.
    ///
    /// This block is the first of the range or an earlier block, so that the words are aligned as
    /// in the index.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the statistics of the query.
    pub fn stats(&self) -> &QueryStats {
        &self.stats
    }
}

impl serde::Serialize for Candidates {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Candidates", 5)?;
        object.serialize_field("first", &self.first())?;
        object.serialize_field("last", &self.last())?;
        object.serialize_field("count", &self.count())?;
        object.serialize_field("stats", self.stats())?;
        object.serialize_field("candidates", &self.iter().collect::<Vec<_>>())?;
        object.end()
    }
}

/// Iterator over the positions of the set bits of words, ascending.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    words: &'a [u64],
    /// Remaining bits of the current word, which precedes `words`.
    left: u64,
    /// Position of the current word's first bit.
    at: u64,
}

impl<'a> Bits<'a> {
    pub(super) fn new(words: &'a [u64]) -> Self {
        // The first step adds 64, which makes the position of the first word 0.
        Self { words, left: 0, at: 0_u64.wrapping_sub(64) }
    }
}

impl Iterator for Bits<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        while self.left == 0 {
            let (first, rest) = self.words.split_first()?;
            (self.left, self.words) = (*first, rest);
            self.at = self.at.wrapping_add(64);
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(self.at + u64::from(bit))
    }
}
