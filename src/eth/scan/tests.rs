//! Compares every engine on every backend with [`CompiledQuery::answer`] for each filter.

use chainsieve_lanes::simd::Backend;

use super::{QuerySet, Scanner, candidates_on};
use crate::eth::bloom::{self, BITS, BYTES};
use crate::eth::log_query::CompiledQuery;
use testkit::{Rng, stride};

fn value(rng: &mut Rng) -> [u16; 3] {
    core::array::from_fn(|_| u16::try_from(rng.below(BITS)).unwrap())
}

/// Returns a filter of `values` random values.
fn bloom(rng: &mut Rng, values: usize) -> [u8; BYTES] {
    let mut bloom = [0; BYTES];
    (0..values).for_each(|_| bloom::accrue(&mut bloom, &value(rng)));
    bloom
}

/// Returns filters with different fills: some have all bits set, some are empty, and the others are
/// about as full as `values` implies.
fn blooms(rng: &mut Rng, count: usize, values: usize) -> Vec<[u8; BYTES]> {
    let bloom = |_| match rng.below(50) {
        0 => [u8::MAX; BYTES],
        1 => [0; BYTES],
        2..10 => {
            let values = rng.below(3_000);
            bloom(rng, values)
        }
        _ => {
            let values = rng.below(values * 2);
            bloom(rng, values)
        }
    };
    (0..count).map(bloom).collect()
}

fn query(rng: &mut Rng, lengths: &[usize]) -> CompiledQuery {
    let clauses = lengths.iter().map(|&length| (0..length).map(|_| value(rng)).collect());
    CompiledQuery::new(clauses.collect())
}

fn one_by_one(query: &CompiledQuery, blooms: &[[u8; BYTES]]) -> Vec<usize> {
    let is_candidate = |i: &usize| query.answer(&blooms[*i]).is_candidate();
    (0..blooms.len()).filter(is_candidate).collect()
}

/// Lengths of a query's clauses, and number of values in each filter. With this number of values,
/// some but not all filters are candidates.
const SHAPES: [(&[usize], usize); 18] = [
    (&[], 300),
    (&[1], 700),
    (&[1, 1], 900),
    (&[1, 1, 1, 1, 1], 2_000),
    (&[2], 500),
    (&[16], 250),
    (&[17], 250),
    (&[33], 200),
    (&[63], 200),
    (&[64], 200),
    (&[101], 150),
    (&[300], 120),
    (&[1_500], 60),
    (&[1_500, 1], 300),
    (&[700, 130, 1, 5, 1_000], 400),
    (&[3, 40, 1, 1, 2], 900),
    (&[0], 300),
    (&[1, 0, 500], 300),
];

#[test]
fn candidates_are_those_one_by_one() {
    let mut rng = Rng::new(1);
    let stride = stride(6);
    for (at, (shape, values)) in SHAPES.into_iter().enumerate() {
        let blooms = blooms(&mut rng, 1_100, values);
        let query = query(&mut rng, shape);
        let expected = one_by_one(&query, &blooms);
        if !shape.is_empty() {
            // At least the all-ones filters are candidates. If the query can be fulfilled, more
            // filters are candidates, but never all filters.
            let least = if shape.contains(&0) { 5 } else { 50 };
            assert!((least..1_050).contains(&expected.len()), "{shape:?}: {}", expected.len());
        }
        for backend in Backend::available() {
            // Each slice ends with the last filter, so that slices of different lengths start at
            // different filters.
            for length in (0..=blooms.len()).skip(at % stride).step_by(stride) {
                let from = blooms.len() - length;
                let expected = expected.iter().filter(|&&i| i >= from).map(|i| i - from);
                let found = candidates_on(backend, &query, &blooms[from..]);
                assert!(found.iter().copied().eq(expected), "{backend:?}, {shape:?}, {length}");
            }
            assert_eq!(
                Scanner::ordered_by_on(backend, &query, &[[0; 256]; 0]).candidates(&blooms),
                expected
            );
        }
        assert_eq!(Scanner::new(&query).candidates(&blooms), expected, "{shape:?}");
    }
}

#[test]
fn long_slices_in_many_blocks() {
    let mut rng = Rng::new(2);
    for (shape, values) in SHAPES.into_iter().step_by(stride(4)) {
        let blooms = blooms(&mut rng, 40_000, values);
        let query = query(&mut rng, shape);
        let expected = one_by_one(&query, &blooms);
        for backend in Backend::available() {
            assert_eq!(candidates_on(backend, &query, &blooms), expected, "{backend:?}, {shape:?}");
            #[cfg(feature = "rayon")]
            assert_eq!(
                Scanner::ordered_by_on(backend, &query, &blooms).par_candidates(&blooms),
                expected
            );
        }
        #[cfg(feature = "rayon")]
        assert_eq!(crate::eth::scan::par_candidates(&query, &blooms), expected, "{shape:?}");
    }
}

/// Chunks are scanned in any order and overlap, and queries are inserted between them: no answer is
/// missing, repeated or wrong.
#[test]
fn query_sets_miss_and_double_nothing() {
    const FIRST: u64 = 1_000_000;
    let mut rng = Rng::new(4);
    let (mut late, mut answers, mut rescans) = (0, 0, 0);
    for round in 0..60 {
        let num_blooms = 1 + rng.below(2_500);
        let blooms = blooms(&mut rng, num_blooms, 300);
        let number = |place: usize| FIRST + u64::try_from(place).unwrap();
        for backend in Backend::available() {
            let mut set = QuerySet::new().with_backend(backend);
            let mut queries: Vec<(CompiledQuery, u64)> = Vec::new();
            let mut answered: Vec<(usize, u64)> = Vec::new();
            let mut scanned = vec![false; blooms.len()];
            let steps = 2 + rng.below(12);
            for _ in 0..steps {
                for _ in 0..rng.below(if round % 3 == 0 { 2 } else { 12 }) {
                    let shapes: [&[usize]; 8] =
                        [&[1], &[1, 1], &[8], &[70, 1], &[0], &[2, 90], &[], &[1, 1, 1]];
                    let shape = shapes[rng.below(8)];
                    let query = query(&mut rng, shape);
                    let from = number(rng.below(blooms.len() + 50)) - 25;
                    let id = set.insert(query.clone(), from);
                    assert_eq!(id, queries.len());
                    late += usize::from(!set.pending_of(id).is_empty());
                    queries.push((query, from));
                }
                let start = rng.below(blooms.len());
                let end = start + rng.below(blooms.len() - start + 1);
                let hits = set.scan(number(start), &blooms[start..end]);
                assert!(hits.iter().map(|(block, _)| block).is_sorted_by(|a, b| a < b));
                for (block, ids) in hits.iter() {
                    assert!((number(start)..number(end)).contains(&block));
                    assert!(!ids.is_empty() && ids.is_sorted_by(|a, b| a < b));
                    answered.extend(ids.iter().map(|&id| (id, block)));
                }
                scanned[start..end].fill(true);
            }
            let pending = set.pending();
            assert!(pending.windows(2).all(|pair| pair[0].end < pair[1].start));
            for stretch in pending {
                let place = |block: u64| usize::try_from(block - FIRST).unwrap();
                let (start, end) = (place(stretch.start), place(stretch.end));
                assert!(scanned[start..end].iter().all(|&scanned| scanned));
                // Scan in two parts, so that a rescan ends within a range.
                let middle = start + rng.below(end - start + 1);
                for (start, end) in [(middle, end), (start, middle)] {
                    let hits = set.scan(number(start), &blooms[start..end]);
                    answered.extend(
                        hits.iter().flat_map(|(block, ids)| ids.iter().map(move |&id| (id, block))),
                    );
                    rescans += 1;
                }
            }
            assert_eq!(set.pending(), []);

            answered.sort_unstable();
            let mut expected = Vec::new();
            for (id, (query, from)) in queries.iter().enumerate() {
                for place in one_by_one(query, &blooms) {
                    if scanned[place] && number(place) >= *from {
                        expected.push((id, number(place)));
                    }
                }
            }
            answers += expected.len();
            assert!(answered == expected, "{backend:?}, round {round}");
        }
    }
    assert!(late > 1_000 && rescans > 200 && answers > 100_000, "{late} {rescans} {answers}");
}

#[test]
fn rewound_blocks_are_answered_anew() {
    let mut rng = Rng::new(5);
    let value = value(&mut rng);
    let mut blooms = vec![[0; BYTES]; 30];
    bloom::accrue(&mut blooms[12], &value);
    bloom::accrue(&mut blooms[25], &value);
    let mut set = QuerySet::new();
    let first = set.insert(CompiledQuery::new(vec![vec![value]]), 105);
    let blocks = |hits: super::Hits| hits.iter().map(|(block, _)| block).collect::<Vec<_>>();
    assert_eq!(blocks(set.scan(100, &blooms)), [112, 125]);
    let second = set.insert(CompiledQuery::new(vec![vec![value]]), 110);
    // A reorganisation replaces the blocks from 120 on.
    set.rewind(120);
    assert_eq!(set.pending(), vec![110..120; 1]);
    let hits = set.scan(100, &blooms);
    let hits: Vec<_> = hits.iter().collect();
    assert_eq!(hits, [(112, &[second][..]), (125, &[first, second][..])]);
    assert_eq!(set.pending(), []);
    assert!(blocks(set.scan(100, &blooms)).is_empty());
}
