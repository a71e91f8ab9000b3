//! One query over many filters.

use alloc::vec::Vec;

use super::rows::{self, BLOCK, Line, Sieve, Values};
use super::slices::{self, Select, TILE, Task, Tile, ValueColumns};
use crate::eth::bloom::{BYTES, contains};
use crate::eth::log_query::CompiledQuery;
use crate::simd::Backend;

/// A query prepared for scanning.
#[derive(Debug, Clone)]
pub struct Scanner {
    backend: Backend,
    /// The bits that every match needs.
    lines: Vec<Line>,
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

/// From how many values on it pays to turn the filters, measured at a fill at which no value is
/// found. With turning (T ns a filter) against values one by one (V ns a filter and value).
fn many_from(backend: Backend) -> f64 {
    match backend.name() {
        "avx512" => 64.0,
        "avx2" => 32.0,
        _ => 100.0,
    }
}

/// Filters left over, fewer than a tile, from how many on they are worth turning.
const TILE_FROM: usize = 64;

/// At most so many filters tell in which order to test.
const SAMPLE: usize = 256;

impl Scanner {
    /// Without knowledge of the filters: tests of more bits go first.
    pub fn new(backend: Backend, query: &CompiledQuery) -> Self {
        Self::ordered_by(backend, query, &[])
    }

    /// With tests in the order in which they reject most of a sample of `blooms`, at most one in
    /// 64 and 256 in all. Others give the same candidates, perhaps more slowly.
    pub fn ordered_by(backend: Backend, query: &CompiledQuery, blooms: &[[u8; BYTES]]) -> Self {
        let count = (blooms.len() / 64).min(SAMPLE);
        let step = blooms.len().checked_div(count).unwrap_or(1);
        let sample: Vec<&[u8; BYTES]> = blooms.iter().step_by(step).take(count).collect();

        let clauses = || query.clauses().iter();
        // A clause without values is met by a filter that says nothing alone: one with all bits.
        let impossible = clauses().any(Vec::is_empty);
        let all = (0..2048).filter(|_| impossible);
        let singles = clauses().filter(|values| values.len() == 1).flatten();
        let mut lines = rows::lines(singles.copied().flatten().chain(all));
        lines.sort_by_cached_key(|line| {
            let passed = sample.iter().filter(|bloom| line.passes(bloom)).count();
            (passed, u32::MAX - line.num_bits())
        });

        let mut few = Vec::new();
        let mut many = Vec::new();
        for clause in clauses().filter(|values| values.len() > 1 && !impossible) {
            let (mut tested, mut passed) = (0, 0);
            for bloom in &sample {
                let hit = clause.iter().position(|value| contains(bloom, value));
                passed += usize::from(hit.is_some());
                tested += hit.map_or(clause.len(), |at| at + 1);
            }
            let mean = |sum: usize, default: usize| match sample.len() {
                0 => to_f64(default),
                count => to_f64(sum) / to_f64(count),
            };
            // The best order is by cost over rejection.
            let (tested, rejected) = (mean(tested, clause.len()), 1.0 - mean(passed, 0));
            let rank = tested / rejected.max(1e-3);
            let values = Values::new(clause);
            if tested < many_from(backend) {
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
        Self { backend, lines, few, many }
    }

    /// The indices of the filters whose blocks may hold a match, ascending.
    pub fn candidates(&self, blooms: &[[u8; BYTES]]) -> Vec<usize> {
        let mut found = Vec::new();
        self.scan(blooms, 0, &mut Tile::default(), &mut found);
        found
    }

    /// As [`candidates`](Self::candidates), on all cores.
    #[cfg(feature = "rayon")]
    pub fn par_candidates(&self, blooms: &[[u8; BYTES]]) -> Vec<usize> {
        use rayon::prelude::*;

        let chunks = blooms.par_chunks(CHUNK).enumerate();
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
        let mut waiting = Vec::new();
        for (number, block) in blooms.chunks(BLOCK).enumerate() {
            let sieve = Sieve {
                blooms: block,
                lines: &self.lines,
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
        if waiting.len() >= TILE_FROM {
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

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

/// Filters that one thread takes at a time: 4 MiB.
#[cfg(feature = "rayon")]
const CHUNK: usize = 16_384;
