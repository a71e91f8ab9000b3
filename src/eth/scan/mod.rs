//! Tests queries against the filters of many blocks.
//!
//! | type or function | what it does |
//! |---|---|
//! | [`candidates`], [`Scanner`] | tests one query against many filters |
//! | [`QuerySet`] | tests many queries against many filters; queries may be added during the scan |
//!
//! A candidate is a block whose filter does not rule out a match ([`CompiledQuery::answer`]), so
//! its receipts must be checked. A filter with all bits set carries no information, so its block is
//! a candidate of every query. If the filter of a header does not have 256 bytes, pass a filter of
//! all ones instead.
//!
//! The results are the same on every [`Backend`], in ascending order.

mod query_set;
mod rows;
mod slices;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;
use rows::{BLOCK, Required, Sieve, Values, to_f64};
use slices::{Select, TILE, Task, Tile, ValueColumns};

use crate::eth::bloom::{BYTES, Blooms, contains};
use crate::eth::log_query::CompiledQuery;

pub use query_set::{Hits, QuerySet};

/// Returns the indices of the filters whose blocks may contain a match, ascending.
///
/// The order of the tests is chosen from a sample of `blooms` ([`Scanner::ordered_by`]). To scan
/// many slices with one query, create the [`Scanner`] once.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan};
///
/// let address = bloom::positions(&[0x11; 20]);
/// let mut blooms = vec![[0; 256]; 1_000];
/// bloom::accrue(&mut blooms[700], &address);
/// blooms[900] = [0xff; 256]; // carries no information
/// let query = CompiledQuery::new(vec![vec![address]]);
/// assert_eq!(scan::candidates(&query, &blooms), [700, 900]);
/// ```
pub fn candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    candidates_on(Backend::best(), query, blooms)
}

/// Does the same as [`candidates`], on the given backend.
pub fn candidates_on(
    backend: Backend,
    query: &CompiledQuery,
    blooms: &(impl Blooms + ?Sized),
) -> Vec<usize> {
    Scanner::ordered_by_on(backend, query, blooms).candidates(blooms)
}

/// Returns the same indices as [`candidates`], in the same order, computed on all cores.
#[cfg(feature = "rayon")]
pub fn par_candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    Scanner::ordered_by(query, blooms).par_candidates(blooms)
}

/// A query that is prepared for scanning many filters.
#[derive(Debug, Clone)]
pub struct Scanner {
    backend: Backend,
    /// Bits that every match needs.
    required: Vec<Required>,
    /// Clauses of few values, tested filter by filter.
    few: Vec<Values>,
    /// Clauses of many values, tested for 512 filters at a time.
    many: Vec<Many>,
}

#[derive(Debug, Clone)]
struct Many {
    values: Values,
    columns: [Vec<ValueColumns>; 1],
}

/// Returns the lowest number of values for which SIMD lanes pay off, and the lowest number for
/// which transposing the filters pays off.
///
/// The returned numbers follow from costs measured with filters in which no value is found.
/// Transposing costs 12 ns for each filter with AVX-512, 16 ns with AVX2, and 64 ns without SIMD.
/// Testing a value costs 0.13 ns in AVX-512 lanes, and 1.8 ns without lanes. With AVX2, SIMD lanes
/// would need gather instructions.
fn break_even(backend: Backend) -> (usize, f64) {
    match backend.name() {
        "avx512" => (4, 80.0),
        "avx2" => (usize::MAX, 9.0),
        _ => (usize::MAX, 36.0),
    }
}

/// The last filters, fewer than 512, are transposed if they would need at least this number of
/// single tests.
const TURN_FROM: usize = 8192;

/// Maximum number of filters in the sample that decides the order of the tests.
const SAMPLE: usize = 256;

impl Scanner {
    /// Prepares a query without a sample of filters: a test of more bits comes before a test of
    /// fewer bits.
    ///
    /// If thousands of filters are scanned and the query has several clauses, use
    /// [`ordered_by`](Self::ordered_by): it puts the tests that reject the most filters first.
    pub fn new(query: &CompiledQuery) -> Self {
        Self::ordered_by(query, &[[0; BYTES]; 0])
    }

    /// Prepares a query, and orders its tests by the number of filters of a sample that they
    /// reject.
    ///
    /// The sample has at most one in 64 of `blooms`, and at most 256 filters. Only the speed
    /// depends on the sample; the candidates do not.
    pub fn ordered_by(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Self {
        Self::ordered_by_on(Backend::best(), query, blooms)
    }

    /// Does the same as [`ordered_by`](Self::ordered_by), on the given backend.
    pub fn ordered_by_on(
        backend: Backend,
        query: &CompiledQuery,
        blooms: &(impl Blooms + ?Sized),
    ) -> Self {
        let blooms = blooms.as_arrays();
        let count = (blooms.len() / 64).min(SAMPLE);
        let step = blooms.len().checked_div(count).unwrap_or(1);
        let sample: Vec<&[u8; BYTES]> = blooms.iter().step_by(step).take(count).collect();

        let clauses = || query.clauses().iter();
        // An empty clause is fulfilled only by a filter without information, which has all bits
        // set.
        let impossible = clauses().any(Vec::is_empty);
        let all = (0..2048).filter(|_| impossible);
        let singles = clauses().filter(|values| values.len() == 1).flatten();
        let required = rows::required(singles.copied().flatten().chain(all), &sample);

        let (lanes_from, many_from) = break_even(backend);
        let mut few = Vec::new();
        let mut many = Vec::new();
        for clause in clauses().filter(|values| values.len() > 1 && !impossible) {
            // Test long clauses against fewer filters of the sample, to bound the cost of
            // preparing.
            let step = (sample.len() * clause.len() / (SAMPLE * 64)).max(1);
            let (mut asked, mut tested, mut passed) = (0, 0, 0);
            for bloom in sample.iter().step_by(step) {
                asked += 1;
                let hit = clause.iter().position(|value| contains(bloom, value));
                passed += usize::from(hit.is_some());
                tested += hit.map_or(clause.len(), |at| at + 1);
            }
            let mean = |sum: usize, default: usize| match asked {
                0 => to_f64(default),
                asked => to_f64(sum) / to_f64(asked),
            };
            // The expected cost is lowest if clauses are ordered by cost divided by rejection rate.
            let (tested, rejected) = (mean(tested, clause.len()), 1.0 - mean(passed, 0));
            let rank = tested / rejected.max(1e-3);
            let values = Values::new(clause, clause.len() >= lanes_from);
            if tested < many_from {
                few.push((rank, values));
            } else {
                let columns = [slices::columns_of(clause)];
                many.push((rank, Many { values, columns }));
            }
        }
        few.sort_by(|a, b| a.0.total_cmp(&b.0));
        many.sort_by(|a, b| a.0.total_cmp(&b.0));
        let few = few.into_iter().map(|(_, values)| values).collect();
        let many = many.into_iter().map(|(_, many)| many).collect();
        Self { backend, required, few, many }
    }

    /// Returns the indices of the filters whose blocks may contain a match, ascending.
    pub fn candidates(&self, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
        let mut found = Vec::new();
        self.scan(blooms.as_arrays(), 0, &mut Tile::default(), &mut found);
        found
    }

    /// Returns the same indices as [`candidates`](Self::candidates), computed on all cores.
    #[cfg(feature = "rayon")]
    pub fn par_candidates(&self, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
        use rayon::prelude::*;

        let chunks = blooms.as_arrays().par_chunks(CHUNK).enumerate();
        let chunks = chunks.map_init(Tile::default, |tile, (number, chunk)| {
            let mut found = Vec::new();
            self.scan(chunk, number * CHUNK, tile, &mut found);
            found
        });
        chunks.collect::<Vec<_>>().concat()
    }

    /// Appends the indices of the candidates to `found`, counted from `start`.
    fn scan(&self, blooms: &[[u8; BYTES]], start: usize, tile: &mut Tile, found: &mut Vec<usize>) {
        let mut passed = [0; BLOCK];
        let stages = rows::stages(&self.required, blooms);
        let mut waiting = Vec::new();
        for number in 0..blooms.len().div_ceil(BLOCK) {
            let sieve = Sieve {
                blooms: &blooms[number * BLOCK..],
                stages: &stages,
                clauses: &self.few,
                passed: &mut passed,
            };
            let count = self.backend.run(sieve);
            let indices = passed[..count].iter().map(|&index| number * BLOCK + index as usize);
            // Without clauses of many values, all filters that passed the sieve are candidates.
            if self.many.is_empty() {
                found.extend(indices.map(|index| start + index));
                continue;
            }
            waiting.extend(indices);
            let mut tiles = waiting.chunks_exact(TILE);
            for indices in &mut tiles {
                self.select(blooms, indices, start, tile, found);
            }
            let rest = waiting.len() - tiles.remainder().len();
            waiting.drain(..rest);
        }
        let tests: usize = self.many.iter().map(|many| many.columns[0].len()).sum();
        // Fewer than 512 filters remain: transpose them only if testing them one by one costs more.
        if waiting.len() * tests >= TURN_FROM {
            self.select(blooms, &waiting, start, tile, found);
        } else {
            waiting
                .retain(|&index| self.many.iter().all(|many| many.values.passes(&blooms[index])));
            found.extend(waiting.iter().map(|index| start + index));
        }
    }

    /// Appends the filters at `indices` that pass every clause of many values.
    fn select(
        &self,
        blooms: &[[u8; BYTES]],
        indices: &[usize],
        start: usize,
        tile: &mut Tile,
        found: &mut Vec<usize>,
    ) {
        let columns = tile.turn(self.backend, indices.iter().map(|&index| &blooms[index]));
        let mut left = slices::range_mask(0, indices.len());
        for many in &self.many {
            let task = Task { clauses: &many.columns, mask: left };
            left = [0; 16];
            let see = |_, mask: &_| left = *mask;
            self.backend.run(Select { columns, tasks: core::iter::once((0, task)), see });
        }
        slices::for_each(&left, |index| found.push(start + indices[index]));
    }
}

/// Number of filters that one thread scans at a time: 4 MiB.
#[cfg(feature = "rayon")]
const CHUNK: usize = 16_384;

/// Set of numbers, as ascending ranges. No range is empty or touches the next range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the index of the first range that ends at or after `number`.
    fn reaching(&self, number: u64) -> usize {
        self.0.partition_point(|range| range.end < number)
    }

    /// Adds the numbers of `new`.
    fn insert(&mut self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.reaching(new.start);
        let mut end = first;
        while let Some(range) = self.0.get(end).filter(|range| range.start <= new.end) {
            new = new.start.min(range.start)..new.end.max(range.end);
            end += 1;
        }
        self.0.splice(first..end, [new]);
    }

    /// Removes the numbers of `gone`.
    fn remove(&mut self, gone: &Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let first = self.reaching(gone.start);
        let mut end = first;
        let mut left = Vec::new();
        while let Some(range) = self.0.get(end).filter(|range| range.start < gone.end) {
            let before = range.start..range.end.min(gone.start);
            let behind = range.start.max(gone.end)..range.end;
            left.extend([before, behind].into_iter().filter(|range| !range.is_empty()));
            end += 1;
        }
        self.0.splice(first..end, left);
    }

    /// Returns the numbers of the set that lie in `within`.
    fn intersection(&self, within: &Range<u64>) -> Self {
        let cut =
            self.0.iter().map(|range| range.start.max(within.start)..range.end.min(within.end));
        Self(cut.filter(|range| !range.is_empty()).collect())
    }

    /// Returns the numbers of `within` that are not in the set.
    fn gaps(&self, within: &Range<u64>) -> Self {
        let mut gaps = Self::default();
        gaps.insert(within.clone());
        self.0.iter().for_each(|range| gaps.remove(range));
        gaps
    }
}

#[cfg(test)]
mod ranges_tests {
    use alloc::collections::BTreeSet;

    use super::Ranges;

    /// Compares every operation with a set of single numbers.
    #[test]
    fn as_a_set_of_numbers() {
        let mut rng = testkit::Rng::new(7);
        let mut below = move |end: u64| rng.u64() % end;
        for _ in 0..200 {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for _ in 0..20 {
                let start = below(40);
                let range = start..start + below(8);
                if below(3) == 0 {
                    ranges.remove(&range);
                    plain.retain(|number| !range.contains(number));
                } else {
                    ranges.insert(range.clone());
                    plain.extend(range);
                }
                let numbers = |ranges: &Ranges| -> BTreeSet<u64> {
                    let slice = ranges.as_slice();
                    assert!(slice.iter().all(|range| !range.is_empty()));
                    assert!(slice.windows(2).all(|pair| pair[0].end < pair[1].start));
                    slice.iter().cloned().flatten().collect()
                };
                assert_eq!(numbers(&ranges), plain);
                let start = below(40);
                let within = start..start + below(20);
                let (inside, outside) = within.clone().partition(|block| plain.contains(block));
                assert_eq!(numbers(&ranges.intersection(&within)), inside);
                assert_eq!(numbers(&ranges.gaps(&within)), outside);
            }
        }
    }
}
