//! One query over many filters.

use alloc::vec::Vec;

use chainsieve_lanes::simd::Backend;

use super::rows::{self, BLOCK, Required, Sieve, Values, to_f64};
use super::slices::{self, Select, TILE, Task, Tile, ValueColumns};
use crate::eth::bloom::{BYTES, Blooms, contains};
use crate::eth::log_query::CompiledQuery;

/// A query prepared for scanning.
#[derive(Debug, Clone)]
pub struct Scanner {
    backend: Backend,
    /// The bits that every match needs.
    required: Vec<Required>,
    /// Clauses of few values, to be tested filter by filter.
    few: Vec<Values>,
    /// Clauses of many values, to be tested for 512 filters at a time.
    many: Vec<Many>,
}

#[derive(Debug, Clone)]
struct Many {
    values: Values,
    columns: [Vec<ValueColumns>; 1],
}

/// From how many values on lanes pay, and from how many on turning the filters does: measured at
/// a fill at which no value is found, where turning costs 12, 16 and 64 ns a filter, and a value
/// 0.13 ns in lanes of AVX-512, 1.8 without lanes. AVX2 would have to gather.
fn break_even(backend: Backend) -> (usize, f64) {
    match backend.name() {
        "avx512" => (4, 80.0),
        "avx2" => (usize::MAX, 9.0),
        _ => (usize::MAX, 36.0),
    }
}

/// From how many tests of values one by one on the last filters, less than a tile, are turned.
const TURN_FROM: usize = 8192;

/// At most so many filters tell in which order to test.
const SAMPLE: usize = 256;

impl Scanner {
    /// Without knowledge of the filters: tests of more bits go first.
    pub fn new(query: &CompiledQuery) -> Self {
        Self::ordered_by(query, &[[0; BYTES]; 0])
    }

    /// With tests in the order in which they reject most of a sample of `blooms`, at most one in
    /// 64 and 256 in all. Others give the same candidates, perhaps more slowly.
    pub fn ordered_by(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Self {
        Self::ordered_by_on(Backend::best(), query, blooms)
    }

    /// As [`ordered_by`](Self::ordered_by), on this backend.
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
        // A clause without values is met by a filter that says nothing alone: one with all bits.
        let impossible = clauses().any(Vec::is_empty);
        let all = (0..2048).filter(|_| impossible);
        let singles = clauses().filter(|values| values.len() == 1).flatten();
        let required = rows::required(singles.copied().flatten().chain(all), &sample);

        let (lanes_from, many_from) = break_even(backend);
        let mut few = Vec::new();
        let mut many = Vec::new();
        for clause in clauses().filter(|values| values.len() > 1 && !impossible) {
            // Long clauses are asked of fewer filters.
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
            // The best order is by cost over rejection.
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

    /// The indices of the filters whose blocks may hold a match, ascending.
    pub fn candidates(&self, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
        let mut found = Vec::new();
        self.scan(blooms.as_arrays(), 0, &mut Tile::default(), &mut found);
        found
    }

    /// As [`candidates`](Self::candidates), on all cores.
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

    /// Adds the indices, counted from `start`, of the candidates.
    pub(super) fn scan(
        &self,
        blooms: &[[u8; BYTES]],
        start: usize,
        tile: &mut Tile,
        found: &mut Vec<usize>,
    ) {
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
        if waiting.len() * tests >= TURN_FROM {
            self.select(blooms, &waiting, start, tile, found);
        } else {
            waiting
                .retain(|&index| self.many.iter().all(|many| many.values.passes(&blooms[index])));
            found.extend(waiting.iter().map(|index| start + index));
        }
    }

    /// Adds those of the filters at `indices` that every clause of many values lets through.
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

/// Filters that one thread takes at a time: 4 MiB.
#[cfg(feature = "rayon")]
const CHUNK: usize = 16_384;
