//! Queries of an index: candidates as a bitmap, as a count, or one by one.

mod evaluate;
mod kernels;
mod rows;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use chainsieve_lanes::simd::Backend;
use serde::ser::SerializeStruct as _;

use self::evaluate::{Evaluation, sections_of};
use self::rows::{Access, Rows};
use super::IndexError;
use super::format::SECTION;
use super::format::segment::ROW;
use super::reader::Index;
use super::storage::Storage;
use crate::eth::bloom::BITS;
use crate::eth::log_query::CompiledQuery;
use crate::eth::scan::Scanner;

/// Maximum memory for the rows of a file that is not in memory, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// The blocks of a queried range that lie in one segment or in the tail.
#[derive(Debug, Clone)]
struct Part {
    /// Index of the segment; `None` for the tail.
    segment: Option<usize>,
    /// The queried headers, counted from the first header of the segment or the tail.
    headers: Range<usize>,
    /// Number of the block that the first bit of the bitmap represents.
    start: u64,
    /// Length of the bitmap in words of 64 bits.
    words: usize,
}

/// Result of a query up to the current part.
struct QueryBitmap<'a> {
    words: &'a mut Vec<u64>,
    stats: &'a mut QueryStats,
    count: &'a mut u64,
}

/// Prepared queries and the index on which they are evaluated.
struct Walk<'a, S: Storage> {
    index: &'a Index<S>,
    backend: Backend,
    queries: &'a [CompiledQuery],
    positions: &'a [u16],
    plans: &'a [Plan],
}

impl<S: Storage> Walk<'_, S> {
    /// Appends the bits of a part to the bitmap of each query, and adds the part's statistics and
    /// number of candidates to the totals of the query.
    ///
    /// Also announces to the storage which bytes of the next parts, `ahead`, will be read soon.
    fn part(
        &self,
        part: &Part,
        ahead: &[Part],
        rows: &mut Rows,
        each: &mut [QueryBitmap<'_>],
    ) -> Result<(), IndexError> {
        let Some(segment) = part.segment else {
            self.tail(part, each);
            return Ok(());
        };
        let access = Access::new(&self.index.files.segments[segment])?;
        access.announce_data(rows, sections_of(&part.headers));
        for (distance, part) in ahead.iter().take(2).enumerate() {
            let Some(segment) = part.segment else { continue };
            // Damage of a later segment is reported when that segment is evaluated.
            let Ok(access) = Access::new(&self.index.files.segments[segment]) else { continue };
            access.announce_entries(rows);
            // Entries are announced two segments ahead, and data only one segment ahead, because
            // the position of the data is known only from the entries.
            if distance == 0 {
                access.announce_data(rows, sections_of(&part.headers));
            }
        }
        access.enter(rows)?;
        // All sections of a file in memory are evaluated together. If the file is not in memory,
        // the number of sections is limited so that the rows fit in `MOST_BYTES`.
        let group = if access.is_in_memory() {
            usize::MAX
        } else {
            (MOST_BYTES / ROW / rows.len().max(1)).max(1) * SECTION
        };
        let first = part.headers.start / SECTION * SECTION;
        let mut start = first;
        while start < part.headers.end {
            let end = start.saturating_add(group).min(part.headers.end);
            let headers = start.max(part.headers.start)..end;
            rows.forget();
            for (plan, answer) in self.plans.iter().zip(&mut *each) {
                let mut evaluation = Evaluation {
                    backend: self.backend,
                    access: &access,
                    rows,
                    headers: headers.clone(),
                    stats: QueryStats::default(),
                    counted: (0, 0),
                };
                *answer.count += evaluation.run(plan, answer.words)?;
                answer.stats.add(&evaluation.stats);
            }
            start = end;
        }
        Ok(())
    }

    fn tail(&self, part: &Part, each: &mut [QueryBitmap<'_>]) {
        let blooms = &self.index.files.tail.rows.blooms[part.headers.clone()];
        let skipped = part.headers.start % 64;
        for (query, answer) in self.queries.iter().zip(each) {
            answer.stats.unsealed_blocks += blooms.len() as u64;
            let found = Scanner::ordered_by_on(self.backend, query, blooms).candidates(blooms);
            *answer.count += found.len() as u64;
            let before = answer.words.len();
            answer.words.resize(before + part.words, 0);
            for index in found {
                let bit = skipped + index;
                answer.words[before + bit / 64] |= 1 << (bit % 64);
            }
        }
    }
}

impl<S: Storage> Index<S> {
    /// Returns the blocks of a range that may contain a match.
    ///
    /// A [`scan`](crate::eth::scan::candidates) of the blocks' headers returns the same blocks.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range, if data that the
    /// query needs are damaged, or if the storage fails.
    ///
    /// # Cost
    /// Allocates one bit for each block of the range. Reads one row for each distinct bit of the
    /// query: at most 1 KiB for each row and section of 8,192 blocks. No row is read for a section
    /// in which one of the required bits is not set in any filter.
    pub fn candidates(
        &self,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<Candidates, IndexError> {
        self.candidates_on(Backend::best(), query, blocks)
    }

    /// Does the same as [`candidates`](Self::candidates), on the given backend.
    ///
    /// # Errors
    /// Returns the same errors as [`candidates`](Self::candidates).
    pub fn candidates_on(
        &self,
        backend: Backend,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<Candidates, IndexError> {
        let mut each = self.each_on(backend, core::slice::from_ref(query), blocks)?;
        Ok(each.pop().expect("one for each query"))
    }

    /// Returns the candidates of each query. A row that several queries need is read once.
    ///
    /// # Errors
    /// Returns the same errors as [`candidates`](Self::candidates).
    pub fn candidates_each(
        &self,
        queries: &[CompiledQuery],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<Candidates>, IndexError> {
        self.each_on(Backend::best(), queries, blocks)
    }

    fn each_on(
        &self,
        backend: Backend,
        queries: &[CompiledQuery],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<Candidates>, IndexError> {
        let parts = self.parts(&blocks)?;
        let (positions, plans) = plans(queries);
        let walk = Walk { index: self, backend, queries, positions: &positions, plans: &plans };
        let mut rows = Rows::new(walk.positions);
        let start = parts.first().map_or(0, |part| part.start);
        let room = parts.iter().map(|part| part.words).sum();
        let mut bitmaps: Vec<(Vec<u64>, QueryStats, u64)> = Vec::new();
        let empty = || (Vec::with_capacity(room), QueryStats::default(), 0);
        bitmaps.resize_with(queries.len(), empty);
        for (number, part) in parts.iter().enumerate() {
            let answers =
                bitmaps.iter_mut().map(|(words, stats, count)| QueryBitmap { words, stats, count });
            let mut answers: Vec<_> = answers.collect();
            walk.part(part, &parts[number + 1..], &mut rows, &mut answers)?;
        }
        let each = bitmaps.into_iter().map(|(words, stats, count)| {
            Candidates::new(blocks.clone(), start, words, count, stats)
        });
        Ok(each.collect())
    }

    /// Returns the same bitmap as [`candidates`](Self::candidates), computed on all cores.
    ///
    /// # Errors
    /// Returns the same errors as [`candidates`](Self::candidates).
    #[cfg(feature = "rayon")]
    pub fn par_candidates(
        &self,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<Candidates, IndexError>
    where
        S: Sync,
        S::File: Send + Sync,
    {
        use rayon::prelude::*;

        let parts = self.parts(&blocks)?;
        let queries = core::slice::from_ref(query);
        let (positions, plans) = plans(queries);
        let walk = Walk {
            index: self,
            backend: Backend::best(),
            queries,
            positions: &positions,
            plans: &plans,
        };
        let start = parts.first().map_or(0, |part| part.start);
        let mut bitmap = alloc::vec![0; parts.iter().map(|part| part.words).sum()];
        let mut rest = &mut bitmap[..];
        let mut tasks = Vec::new();
        for part in parts {
            let (words, behind) = rest.split_at_mut(part.words);
            rest = behind;
            tasks.push((part, words));
        }
        let tasks = tasks.into_par_iter();
        let done = tasks.map_init(
            || (Rows::new(walk.positions), Vec::new()),
            |(rows, words), (part, to)| {
                let (mut stats, mut count) = (QueryStats::default(), 0);
                words.clear();
                let answer =
                    QueryBitmap { words: &mut *words, stats: &mut stats, count: &mut count };
                walk.part(&part, &[], rows, &mut [answer])?;
                to.copy_from_slice(words);
                Ok((count, stats))
            },
        );
        let done: Vec<(u64, QueryStats)> = done.collect::<Result<_, IndexError>>()?;
        let (mut count, mut stats) = (0, QueryStats::default());
        for (part, of) in done {
            count += part;
            stats.add(&of);
        }
        Ok(Candidates::new(blocks, start, bitmap, count, stats))
    }

    /// Returns the number of blocks of a range that may contain a match.
    ///
    /// # Errors
    /// Returns the same errors as [`candidates`](Self::candidates).
    ///
    /// # Cost
    /// Reads the same data as [`candidates`](Self::candidates), but allocates 32 KiB instead of the
    /// bitmap. If files are not in memory, up to 16 MiB of rows are allocated, too.
    pub fn count(
        &self,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<u64, IndexError> {
        let parts = self.parts(&blocks)?;
        let queries = core::slice::from_ref(query);
        let (positions, plans) = plans(queries);
        let walk = Walk {
            index: self,
            backend: Backend::best(),
            queries,
            positions: &positions,
            plans: &plans,
        };
        let mut rows = Rows::new(walk.positions);
        let (mut words, mut count) = (Vec::new(), 0);
        for (number, part) in parts.iter().enumerate() {
            words.clear();
            let stats = &mut QueryStats::default();
            let answer = QueryBitmap { words: &mut words, stats, count: &mut count };
            walk.part(part, &parts[number + 1..], &mut rows, &mut [answer])?;
        }
        Ok(count)
    }

    /// Returns an iterator over the numbers of the blocks that may contain a match, ascending.
    ///
    /// The iterator reads the index segment by segment, and uses only the memory that one segment
    /// needs. The iterator ends after the first error.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range. An item is an error
    /// if data that the query needs are damaged, or if the storage fails.
    #[expect(clippy::iter_not_returning_iterator, reason = "the range may be wrong")]
    pub fn iter<'a>(
        &'a self,
        query: &'a CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<impl Iterator<Item = Result<u64, IndexError>> + 'a, IndexError> {
        let parts = self.parts(&blocks)?;
        let queries = core::slice::from_ref(query);
        let (positions, plans) = plans(queries);
        let numbers = Numbers {
            index: self,
            query,
            rows: Rows::new(&positions),
            positions,
            plans,
            parts: parts.into_iter(),
            words: Vec::new(),
            next: 0,
            left: 0,
            at: 0,
        };
        Ok(numbers)
    }

    /// Splits a range of blocks into its parts in the segments and in the tail.
    fn parts(&self, blocks: &RangeInclusive<u64>) -> Result<Vec<Part>, IndexError> {
        self.require(blocks)?;
        let (first, last) = (*blocks.start(), *blocks.end());
        let index = |number: u64| usize::try_from(number).expect("blocks of a segment or the tail");
        let mut parts = Vec::new();
        for (number, segment) in self.files.segments.iter().enumerate() {
            let Range { start, end } = segment.blocks();
            if first >= end || last < start {
                continue;
            }
            let headers = index(first.max(start) - start)..index(last.min(end - 1) - start) + 1;
            let sections = sections_of(&headers);
            let start = start + u64::from(sections.trailing_zeros()) * SECTION as u64;
            let words = sections.count_ones() as usize * (SECTION / 64);
            parts.push(Part { segment: Some(number), headers, start, words });
        }
        let start = self.files.tail.rows.first;
        if last >= start {
            let headers = index(first.max(start) - start)..index(last - start) + 1;
            let before = headers.start / 64 * 64;
            let words = (headers.end - before).div_ceil(64);
            parts.push(Part { segment: None, headers, start: start + before as u64, words });
        }
        Ok(parts)
    }
}

/// Iterator over candidates, part by part.
struct Numbers<'a, S: Storage> {
    index: &'a Index<S>,
    query: &'a CompiledQuery,
    positions: Vec<u16>,
    plans: Vec<Plan>,
    rows: Rows,
    parts: alloc::vec::IntoIter<Part>,
    /// The bitmap of the current part.
    words: Vec<u64>,
    /// Index of the next word in `words`.
    next: usize,
    /// Remaining bits of the current word.
    left: u64,
    /// Number of the block that the lowest bit of the current word represents.
    at: u64,
}

impl<S: Storage> Numbers<'_, S> {
    /// Evaluates the next part; returns `None` after the last part.
    fn part(&mut self) -> Option<Result<(), IndexError>> {
        let part = self.parts.next()?;
        self.words.clear();
        self.next = 0;
        self.at = part.start.wrapping_sub(64);
        let queries = core::slice::from_ref(self.query);
        let (index, backend) = (self.index, Backend::best());
        let walk = Walk { index, backend, queries, positions: &self.positions, plans: &self.plans };
        let (stats, count) = (&mut QueryStats::default(), &mut 0);
        let answer = QueryBitmap { words: &mut self.words, stats, count };
        let answered = walk.part(&part, self.parts.as_slice(), &mut self.rows, &mut [answer]);
        if answered.is_err() {
            self.parts = Vec::new().into_iter();
            self.words.clear();
        }
        Some(answered)
    }
}

impl<S: Storage> Iterator for Numbers<'_, S> {
    type Item = Result<u64, IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            if let Some(&word) = self.words.get(self.next) {
                (self.left, self.next) = (word, self.next + 1);
                self.at = self.at.wrapping_add(64);
            } else if let Err(error) = self.part()? {
                return Some(Err(error));
            }
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(Ok(self.at + u64::from(bit)))
    }
}

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
    fn add(&mut self, other: &Self) {
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
    fn new(
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
struct Bits<'a> {
    words: &'a [u64],
    /// Remaining bits of the current word, which precedes `words`.
    left: u64,
    /// Position of the current word's first bit.
    at: u64,
}

impl<'a> Bits<'a> {
    fn new(words: &'a [u64]) -> Self {
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

/// The three rows of a value, as indices into the sorted rows of all queries of a pass.
type ValueRows = [u16; 3];

/// A query, expressed by the rows that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    /// The rows that every match needs.
    required: Vec<u16>,
    /// Clauses of several values. A clause is left out if every filter with all required bits
    /// passes it.
    clauses: Vec<Vec<ValueRows>>,
    /// `true` if a clause has no value: only filters with all bits set pass, so all rows are
    /// required.
    impossible: bool,
}

/// Returns the sorted positions of all rows that the queries need, and the plan of each query.
fn plans(queries: &[CompiledQuery]) -> (Vec<u16>, Vec<Plan>) {
    let mut positions: Vec<u16> = Vec::new();
    let all = 0..u16::try_from(BITS).expect("2,048");
    for query in queries {
        if query.clauses().iter().any(Vec::is_empty) {
            positions.extend(all.clone());
        } else {
            positions.extend(query.clauses().iter().flatten().flatten().copied().map(in_filter));
        }
        positions.sort_unstable();
        positions.dedup();
    }
    let row = |position: &u16| {
        let at = positions.binary_search(&in_filter(*position)).expect("one of all");
        u16::try_from(at).expect("below 2,048")
    };
    let plan = |query: &CompiledQuery| {
        let impossible = query.clauses().iter().any(Vec::is_empty);
        if impossible {
            let required = all.clone().map(|position| row(&position)).collect();
            return Plan { required, clauses: Vec::new(), impossible };
        }
        let single = |values: &&Vec<_>| values.len() == 1;
        let required = distinct(query.clauses().iter().filter(single).flatten().flatten().map(row));
        let mut clauses = Vec::new();
        for values in query.clauses().iter().filter(|values| !single(values)) {
            let value = |value: &[u16; 3]| {
                let mut rows = value.each_ref().map(row);
                rows.sort_unstable();
                rows
            };
            let mut values: Vec<_> = values.iter().map(value).collect();
            values.sort_unstable();
            values.dedup();
            let required = |row: &u16| required.binary_search(row).is_ok();
            if !values.iter().any(|rows| rows.iter().all(required)) {
                clauses.push(values);
            }
        }
        Plan { required, clauses, impossible }
    };
    let plans = queries.iter().map(plan).collect();
    (positions, plans)
}

/// Reduces a position to its lowest eleven bits, because a filter has 2,048 bits.
fn in_filter(position: u16) -> u16 {
    position & 0x7ff
}

fn distinct(rows: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut rows: Vec<u16> = rows.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}
