//! Compares queries of an index with row-by-row scans of the same filters.

mod files;
mod hostile;
mod opening;

use alloc::collections::BTreeSet;

use chainsieve_lanes::simd::Backend;

use self::files::{Files, files};
use super::{Candidates, QueryStats};
use crate::eth::bloom::{self, BYTES};
use crate::eth::index::format::SECTION;
use crate::eth::index::{Index, IndexError};
use crate::eth::log_query::CompiledQuery;
use crate::eth::scan;
use testkit::Rng;
use testkit::eth::random_blooms::{blooms, clauses};

fn query(rng: &mut Rng) -> CompiledQuery {
    CompiledQuery::new(clauses(rng))
}

fn expected(blooms: &[[u8; BYTES]], query: &CompiledQuery, from: usize, to: usize) -> Vec<usize> {
    let blooms = &blooms[from..=to];
    scan::candidates(query, blooms).iter().map(|at| from + at).collect()
}

fn numbers(candidates: &Candidates, first: u64) -> Vec<usize> {
    candidates.iter().map(|number| usize::try_from(number - first).unwrap()).collect()
}

/// Asserts that every query function returns the same candidates as a row-by-row scan.
fn check(
    index: &Index<Files>,
    blooms: &[[u8; BYTES]],
    query: &CompiledQuery,
    from: usize,
    to: usize,
) {
    let expected = expected(blooms, query, from, to);
    let first = *index.numbers().unwrap().start();
    let range = first + from as u64..=first + to as u64;
    let mut before: Option<Candidates> = None;
    for backend in Backend::available() {
        let candidates = index.candidates_on(backend, query, range.clone()).unwrap();
        assert_eq!(numbers(&candidates, first), expected, "{backend:?} {range:?} {query:?}");
        assert_eq!(candidates.count(), expected.len() as u64);
        assert_eq!((candidates.first(), candidates.last()), (*range.start(), *range.end()));
        assert!(before.is_none_or(|before| before == candidates));
        before = Some(candidates);
    }
    assert_eq!(index.count(query, range.clone()).unwrap(), expected.len() as u64);
    let streamed = index.iter(query, range).unwrap();
    assert!(streamed.map(|number| usize::try_from(number.unwrap() - first).unwrap()).eq(expected));
}

#[test]
fn as_a_row_scan() {
    let mut rng = Rng::new(1);
    let section = SECTION;
    let sizes =
        [1, 511, 512, 513, section - 1, section, section + 1, 2 * section, 3 * section + 77];
    for size in sizes {
        let blooms = blooms(&mut rng, size);
        let first = rng.below(100_000) as u64;
        for sections in [0, size / section] {
            let mut files = files(first, &blooms, u32::try_from(sections).unwrap());
            for in_memory in [true, false] {
                files.in_memory = in_memory;
                let index = Index::open(files.clone()).unwrap();
                assert_eq!(index.numbers(), Some(first..=first + size as u64 - 1));
                for _ in 0..12 {
                    let from = rng.below(size);
                    let to = from + rng.below(size - from);
                    check(&index, &blooms, &query(&mut rng), from, to);
                }
                check(&index, &blooms, &query(&mut rng), 0, size - 1);
            }
        }
    }
}

/// Queries ranges of blocks around the end of the largest segment, in the next section and in the
/// tail.
#[test]
fn around_the_largest_segment() {
    let mut rng = Rng::new(2);
    let size = 33 * SECTION + 100;
    let blooms = blooms(&mut rng, size);
    for sections in [32, 33] {
        let mut files = files(0, &blooms, sections);
        for in_memory in [true, false] {
            files.in_memory = in_memory;
            let index = Index::open(files.clone()).unwrap();
            assert_eq!(index.sealed(), u64::from(sections) * SECTION as u64);
            let border = 32 * SECTION;
            for (from, to) in [
                (0, size - 1),
                (0, border - 1),
                (0, border),
                (border - 1, border),
                (border, border),
                (border - 1, size - 1),
                (SECTION - 1, SECTION),
                (31 * SECTION + 1, 33 * SECTION),
            ] {
                check(&index, &blooms, &query(&mut rng), from, to);
                check(&index, &blooms, &CompiledQuery::new(vec![vec![]]), from, to);
            }
        }
    }
}

/// Queries evaluated together, or in parallel, return the same candidates as separate queries.
#[test]
fn many_at_once_and_in_parallel() {
    let mut rng = Rng::new(3);
    let size = 7 * SECTION + 300;
    let blooms = blooms(&mut rng, size);
    let mut files = files(5, &blooms, 7);
    for in_memory in [true, false] {
        files.in_memory = in_memory;
        let index = Index::open(files.clone()).unwrap();
        let backend = Backend::best();
        let mut found = BTreeSet::new();
        for range in [5..=size as u64 + 4, 5 + 3..=5 + 40, 5 + 7_000..=5 + 50_000] {
            let queries: Vec<_> = (0..20).map(|_| query(&mut rng)).collect();
            let each = index.candidates_each(&queries, range.clone()).unwrap();
            for (query, candidates) in queries.iter().zip(&each) {
                let alone = index.candidates_on(backend, query, range.clone()).unwrap();
                assert_eq!(alone.words(), candidates.words());
                assert_eq!(alone.start(), candidates.start());
                assert_eq!(alone.count(), candidates.count());
                found.insert(alone.count());
                #[cfg(feature = "rayon")]
                assert_eq!(index.par_candidates(query, range.clone()).unwrap(), alone);
                for number in range.clone().step_by(997).chain([*range.end()]) {
                    let set = alone.iter().any(|candidate| candidate == number);
                    assert_eq!(alone.contains(number), set);
                }
                assert!(!alone.contains(range.start() - 1) && !alone.contains(range.end() + 1));
            }
        }
        assert!(found.len() > 20, "answers of many sizes: {found:?}");
    }
}

/// A query does not read sections that lack a required bit. In the other sections, a query stops
/// reading rows as soon as no candidate remains.
#[test]
fn what_can_not_match_is_not_read() {
    let (a, b, c) = ([1, 2, 3], [4, 5, 6], [7, 8, 9]);
    let mut blooms = vec![[0; BYTES]; 4 * SECTION];
    // Section 0 contains `a` but not `b`, and section 1 contains `b` but not `a`. Section 2
    // contains `a` and `b`, but only in different blocks. Section 3 contains `a` and `b` in one
    // block.
    let mut add = |at: usize, value: &[u16; 3]| bloom::accrue(&mut blooms[at], value);
    add(7, &a);
    add(SECTION + 7, &b);
    for at in 0..300 {
        add(2 * SECTION + at, &a);
        add(2 * SECTION + 1_000 + at, &b);
        add(2 * SECTION + 1_000 + at, &c);
        add(3 * SECTION + 2 * at, &a);
    }
    add(3 * SECTION + 10, &b);
    let mut files = files(0, &blooms, 4);
    let query = CompiledQuery::new(vec![vec![a], vec![b]]);
    for in_memory in [true, false] {
        files.in_memory = in_memory;
        let index = Index::open(files.clone()).unwrap();
        files.reads.lock().unwrap().clear();
        let all = 0..=4 * SECTION as u64 - 1;
        let candidates = index.candidates(&query, all.clone()).unwrap();
        assert_eq!(candidates.iter().collect::<Vec<_>>(), [3 * SECTION as u64 + 10]);
        let reads = files.reads.lock().unwrap().clone();
        let stats = *candidates.stats();
        assert_eq!((stats.sections, stats.skipped_sections, stats.unsealed_blocks), (4, 2, 0));
        // In the remaining sections, each row of `b` has 301 set bits, and each row of `a` has 600.
        // So the rows of `b` are read first.
        let bytes = 3 * (1024 + 1024) + 3 * (1024 + 2);
        // The first row of `a` leaves no candidate in section 2, so the other rows of `a` are not
        // read in section 2.
        assert_eq!((stats.rows, stats.bytes), (6, bytes - 2 * 1024));
        if in_memory {
            assert_eq!(reads, []);
        } else {
            // For each row, one entry and one range of data are read. In the rows of `b`, this
            // range also covers the list of section 1, which the query does not need.
            assert_eq!(reads.len(), 6 + 6);
            let entries = reads.iter().filter(|read| read.1 == 8 + 6 * 4).count();
            let read: u64 = reads.iter().map(|read| read.1 as u64).sum();
            assert_eq!((entries, read), (6, 6 * 32 + stats.bytes + 3 * 2));
        }
        // No candidate remains in sections 2 and 3 after a few of the nine rows.
        let more = CompiledQuery::new(vec![vec![a], vec![b], vec![c]]);
        let candidates = index.candidates(&more, all).unwrap();
        assert_eq!(candidates.count(), 0);
        let stats = candidates.stats();
        assert_eq!(stats.skipped_sections, 3);
        assert!(stats.rows < 9 && stats.bytes < bytes, "{stats:?}");
    }
}

/// Before data in memory are used for the first time, the storage is told which data will be read.
/// Before later uses, the storage is not told again.
#[test]
fn storage_is_told_what_is_needed_next() {
    let mut rng = Rng::new(9);
    let mut blooms = vec![[0; BYTES]; 3 * SECTION];
    for bloom in &mut blooms {
        bloom.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = rng.u64().to_le_bytes());
    }
    let files = files(0, &blooms, 3);
    let index = Index::open(files.clone()).unwrap();
    let all = 0..=3 * SECTION as u64 - 1;
    let query = CompiledQuery::new(vec![vec![[0, 9, 2047]]]);
    let took = index.candidates(&query, all.clone()).unwrap();
    assert_eq!(took.stats().bytes, 9 * 1024);
    let hints = core::mem::take(&mut *files.hints.lock().unwrap());
    // The storage was told about the data of three rows in two segments, and about the three
    // entries of the second segment.
    let lengths = |length| hints.iter().filter(|hint| hint.end - hint.start == length).count();
    assert_eq!((lengths(2 * 1024), lengths(8 + 6)), (3, 3), "{hints:?}");
    assert!(lengths(1024) >= 3 && hints.len() == 6 + lengths(1024), "{hints:?}");
    index.count(&query, all).unwrap();
    assert_eq!(*files.hints.lock().unwrap(), []);
}

/// If every block has one of the first alternatives of a clause, the rows of the other alternatives
/// are not read.
#[test]
fn alternatives_stop_when_all_blocks_have_one() {
    let mut rng = Rng::new(4);
    let mut blooms = vec![[0; BYTES]; SECTION];
    let values: Vec<_> = (0..400).map(|i: u32| bloom::positions(&i.to_be_bytes())).collect();
    for bloom in &mut blooms {
        for _ in 0..500 {
            bloom::accrue(bloom, &values[rng.below(400)]);
        }
    }
    let index = Index::open(files(0, &blooms, 1)).unwrap();
    // Each of the rows has 1,024 bytes.
    let rows: BTreeSet<_> = values.iter().flatten().copied().collect();
    let query = CompiledQuery::new(vec![values]);
    let candidates = index.candidates(&query, 0..=SECTION as u64 - 1).unwrap();
    assert_eq!(candidates.count(), SECTION as u64);
    assert!(candidates.stats().bytes < rows.len() as u64 * 1024 / 4);
    assert!(candidates.stats().rows >= 3);
}

#[test]
fn blocks_that_are_not_there() {
    let blooms = vec![[0; BYTES]; SECTION + 10];
    let index = Index::open(files(50, &blooms, 1)).unwrap();
    let query = CompiledQuery::new(vec![]);
    let (index_first, index_last) = (50, 50 + SECTION as u64 + 9);
    let backwards = core::ops::RangeInclusive::new(60, 59);
    for range in [49..=60, 50..=index_last + 1, 0..=0, u64::MAX..=u64::MAX, backwards] {
        let (first, last) = (*range.start(), *range.end());
        let error = IndexError::Range { first, last, index_first, index_last };
        let found = index.candidates(&query, range.clone());
        assert_eq!(found, Err(error.clone()));
        assert_eq!(index.count(&query, range.clone()), Err(error.clone()));
        assert!(index.iter(&query, range).is_err_and(|found| found == error));
    }
    let all = index.candidates(&query, 50..=index_last).unwrap();
    assert!(all.iter().eq(50..=index_last));
    let nothing = QueryStats { sections: 1, unsealed_blocks: 10, ..QueryStats::default() };
    assert_eq!(all.stats(), &nothing);
    let empty = Index::open(files(50, &[], 0)).unwrap();
    assert_eq!(empty.numbers(), None);
    assert_eq!(empty.count(&query, 50..=50), Err(IndexError::Empty));
}
