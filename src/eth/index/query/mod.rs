//! Queries of an index: candidates as a bitmap, as a count, or one by one.

mod candidates;
mod evaluate;
mod kernels;
mod plan;
mod rows;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use chainsieve_lanes::simd::Backend;

pub use self::candidates::{Candidates, QueryStats};

use self::evaluate::{Evaluation, sections_of};
use self::plan::{Plan, plans};
use self::rows::{Access, Rows};
use super::error::IndexError;
use super::format::SECTION;
use super::format::segment::ROW;
use super::reader::Index;
use super::storage::Storage;
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
struct Answer<'a> {
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
        each: &mut [Answer<'_>],
    ) -> Result<(), IndexError> {
        let Some(segment) = part.segment else {
            self.tail(part, each);
            return Ok(());
        };
        let access = Access::new(&self.index.segments()[segment])?;
        access.announce_data(rows, sections_of(&part.headers));
        for (distance, part) in ahead.iter().take(2).enumerate() {
            let Some(segment) = part.segment else { continue };
            // Damage of a later segment is reported when that segment is evaluated.
            let Ok(access) = Access::new(&self.index.segments()[segment]) else { continue };
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

    fn tail(&self, part: &Part, each: &mut [Answer<'_>]) {
        let blooms = &self.index.tail().blooms[part.headers.clone()];
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
                bitmaps.iter_mut().map(|(words, stats, count)| Answer { words, stats, count });
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
                let answer = Answer { words: &mut *words, stats: &mut stats, count: &mut count };
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
            let answer = Answer { words: &mut words, stats, count: &mut count };
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
        for (number, segment) in self.segments().iter().enumerate() {
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
        let start = self.tail().first;
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
        let answer = Answer { words: &mut self.words, stats, count };
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
