//! What a query gives: a bitmap over block numbers.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// What a query took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryStats {
    /// Sections of 8,192 sealed blocks that the range touches.
    pub sections: u64,
    /// How many of them were answered by what the directory says: a row that the query needs has
    /// no bit there.
    pub skipped_sections: u64,
    /// Rows of segments of which any data were read.
    pub rows: u64,
    /// Bytes of data that they have in the sections for which they were read.
    pub bytes: u64,
    /// Blocks behind the sealed ones, whose filters were tested one by one.
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

/// The blocks of a range that may hold a match: as a bitmap.
///
/// The same blocks as those of a [`scan`](crate::eth::scan::candidates) of the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    blocks: RangeInclusive<u64>,
    /// The block of the first word's lowest bit.
    start: u64,
    words: Vec<u64>,
    count: u64,
    stats: QueryStats,
}

impl Candidates {
    /// Of the blocks of a range; the bits of others must be 0.
    pub(super) fn new(
        blocks: RangeInclusive<u64>,
        start: u64,
        words: Vec<u64>,
        count: u64,
        stats: QueryStats,
    ) -> Self {
        Self { blocks, start, words, count, stats }
    }

    /// First block of the range that was asked for.
    pub fn first(&self) -> u64 {
        *self.blocks.start()
    }

    /// Last block of the range that was asked for.
    pub fn last(&self) -> u64 {
        *self.blocks.end()
    }

    /// How many candidates there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether a block is a candidate. Blocks out of the range are none.
    pub fn contains(&self, number: u64) -> bool {
        let index = number.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        let word = index.and_then(|index| Some((self.words.get(index / 64)?, index % 64)));
        word.is_some_and(|(word, bit)| word >> bit & 1 != 0)
    }

    /// The numbers of the candidates, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        Bits::new(&self.words).map(|bit| self.start + bit)
    }

    /// The bitmap: bit `b` of word `w` is block [`start`](Self::start)` + 64 w + b`. Bits of
    /// blocks out of the range are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The block of the lowest bit of the first word: the first of the range or one shortly
    /// before, so that the words are those of the index.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// What the query took.
    pub fn stats(&self) -> &QueryStats {
        &self.stats
    }
}

/// The set bits of words, ascending.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    words: &'a [u64],
    /// Bits left of the word before `words`.
    left: u64,
    /// The first bit of that word.
    at: u64,
}

impl<'a> Bits<'a> {
    pub(super) fn new(words: &'a [u64]) -> Self {
        // The first word is taken at once.
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
