//! Engine for few values: tests one filter after the other.
//!
//! The bits that every match needs are grouped by the 64-byte cache line that contains them. For
//! 512 filters, the line that rejects the most filters is tested first, and then the next line is
//! tested for the filters that remain. No branch depends on a bit, and no read waits for another
//! read.

use alloc::vec::Vec;
use core::hint::black_box;

use chainsieve_lanes::bits::transpose::Row;
use chainsieve_lanes::simd::{Kernel, Lanes, prefetch};

use crate::eth::bloom::byte_and_mask;

/// Number of filters that are tested together: each test is run on all remaining filters before the
/// next test starts.
pub(super) const BLOCK: usize = 512;

/// Bit indices of 16 values, counted from the lowest bit of the first byte.
pub(super) type ValueTile = [[u32; 16]; 3];

/// Returns the index of a bit in the bytes, counted from the lowest bit of the first byte.
pub(super) fn index_of(position: u16) -> u16 {
    let (byte, mask) = byte_and_mask(position);
    let byte = u16::try_from(byte).expect("below 256");
    byte * 8 + u16::try_from(mask.trailing_zeros()).expect("below 8")
}

/// Stores a value in a lane of a tile.
pub(super) fn fill_tile(tile: &mut ValueTile, lane: usize, value: [u16; 3]) {
    for (indices, position) in tile.iter_mut().zip(value) {
        indices[lane] = u32::from(index_of(position));
    }
}

/// Bits of one byte, all of which a match needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Required {
    byte: u8,
    mask: u8,
    /// Estimated share of filters that have all these bits.
    rate: f64,
}

/// Returns the bytes that contain any of the bits, each with a mask of these bits and with the
/// share of sample filters that have them.
pub(super) fn required(positions: impl Iterator<Item = u16>, sample: &[&Row]) -> Vec<Required> {
    let mut bytes = [0_u8; 256];
    for (byte, mask) in positions.map(byte_and_mask) {
        bytes[byte] |= mask;
    }
    let rate = |byte: u8, mask: u8| {
        let passed = |bloom: &&&Row| mask & !bloom[usize::from(byte)] == 0;
        match sample.len() {
            0 => libm::exp2(-f64::from(mask.count_ones())),
            count => to_f64(sample.iter().filter(passed).count()) / to_f64(count),
        }
    };
    let bytes = (0..=u8::MAX).zip(bytes).filter(|(_, mask)| *mask != 0);
    bytes.map(|(byte, mask)| Required { byte, mask, rate: rate(byte, mask) }).collect()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn to_f64(count: usize) -> f64 {
    count as f64
}

/// At most four bytes of one cache line, tested together.
#[derive(Debug, Clone)]
pub(super) struct Stage(Vec<Required>);

/// Returns the tests, grouped by the cache lines of `blooms`; the line that rejects the most
/// filters comes first.
pub(super) fn stages(required: &[Required], blooms: &[Row]) -> Vec<Stage> {
    // Filters are not aligned to cache lines, but all start at the same offset within a line.
    let start = blooms.as_ptr().addr() % 64;
    let mut lines: [(f64, Vec<Required>); 5] = core::array::from_fn(|_| (1.0, Vec::new()));
    for test in required {
        let (rate, tests) = &mut lines[(start + usize::from(test.byte)) / 64];
        *rate *= test.rate;
        tests.push(*test);
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut stages = Vec::new();
    for (_, mut tests) in lines {
        tests.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        stages.extend(tests.chunks(4).map(|tests| Stage(tests.to_vec())));
    }
    stages
}

/// The values of a clause that has several values.
#[derive(Debug, Clone)]
pub(super) struct Values {
    positions: Vec<[u16; 3]>,
    /// Values in tiles of 16; unused lanes of the last tile repeat its last value. Empty if SIMD
    /// lanes do not pay off.
    tiles: Vec<ValueTile>,
}

impl Values {
    /// Prepares values, at least one. If `in_lanes` is `true`, 16 values are tested at a time.
    pub(super) fn new(positions: &[[u16; 3]], in_lanes: bool) -> Self {
        let tiles = positions.chunks(16).filter(|_| in_lanes).map(|values| {
            let mut tile = [[0; 16]; 3];
            for lane in 0..16 {
                fill_tile(&mut tile, lane, values[lane.min(values.len() - 1)]);
            }
            tile
        });
        Self { positions: positions.to_vec(), tiles: tiles.collect() }
    }

    #[inline]
    pub(super) fn passes(&self, bloom: &Row) -> bool {
        // Test all three bits of a value at once, so that each value has only one branch, which is
        // seldom taken.
        let missing = |position| {
            let (byte, mask) = byte_and_mask(position);
            mask & !bloom[byte]
        };
        self.positions.iter().any(|&[a, b, c]| missing(a) | missing(b) | missing(c) == 0)
    }
}

/// Writes the indices of the filters that pass every test; returns their number.
pub(super) struct Sieve<'a> {
    /// The filters, of which the first [`BLOCK`] are tested.
    pub(super) blooms: &'a [Row],
    pub(super) stages: &'a [Stage],
    pub(super) clauses: &'a [Values],
    pub(super) passed: &'a mut [u32; BLOCK],
}

/// Keeps those of the first `count` indices whose filter passes `test`; returns their number.
/// `test` starts with byte `first`; the next stage will start with byte `next`, which is prefetched
/// for the filters that pass.
#[inline(always)]
fn keep(
    blooms: &[Row],
    indices: &mut [u32; BLOCK],
    count: usize,
    first: u8,
    next: Option<u8>,
    test: impl Fn(&Row) -> bool,
) -> usize {
    let mut kept = 0;
    for i in 0..count.min(BLOCK) {
        let index = indices[i];
        let bloom = &blooms[index as usize];
        let passes = test(bloom);
        if let Some(next) = next {
            fetch_if(passes, bloom, first, next);
        }
        // `kept` never exceeds `i`: the mask only lets the compiler omit the bounds check.
        indices[kept & (BLOCK - 1)] = index;
        kept += usize::from(passes);
    }
    kept
}

/// Writes the indices of all filters that pass `test`, which starts with byte `first`; returns
/// their number.
#[inline(always)]
fn keep_first(
    blooms: &[Row],
    indices: &mut [u32; BLOCK],
    first: u8,
    next: Option<u8>,
    test: impl Fn(&Row) -> bool,
) -> usize {
    let blooms = &blooms[..blooms.len().min(BLOCK)];
    // Read one byte of each filter in a loop that is short enough to keep many reads in flight.
    black_box(blooms.iter().fold(0, |all, bloom| all ^ bloom[usize::from(first)]));
    let mut kept = 0;
    for (index, bloom) in (0..).zip(blooms) {
        let passes = test(bloom);
        if let Some(next) = next {
            fetch_if(passes, bloom, first, next);
        }
        indices[kept & (BLOCK - 1)] = index;
        kept += usize::from(passes);
    }
    kept
}

/// Prefetches byte `next` of a filter that passes. If a filter does not pass, byte `first` is
/// prefetched instead, which is already in the cache: so no branch is needed.
#[inline(always)]
fn fetch_if(passes: bool, bloom: &Row, first: u8, next: u8) {
    let byte = first ^ (first ^ next) & u8::from(passes).wrapping_neg();
    prefetch(&bloom[usize::from(byte)]);
}

/// Tests the `N` bytes of a [`Stage`]: for the filters at the first `count` indices, or for all
/// filters if `count` is `None`.
fn sift<const N: usize>(
    blooms: &[Row],
    tests: &[Required; N],
    next: Option<u8>,
    indices: &mut [u32; BLOCK],
    count: Option<usize>,
) -> usize {
    let tests: [(u8, u8); N] = tests.map(|test| (test.byte, test.mask));
    let first = tests.first().map_or(0, |test| test.0);
    let passes = |bloom: &Row| {
        tests.iter().fold(0, |missing, (byte, mask)| missing | mask & !bloom[usize::from(*byte)])
            == 0
    };
    match count {
        None => keep_first(blooms, indices, first, next, passes),
        Some(count) => keep(blooms, indices, count, first, next, passes),
    }
}

impl Sieve<'_> {
    /// Runs the tests that need no SIMD lanes; returns the number of filters that pass.
    fn sift(&mut self) -> usize {
        let (blooms, passed) = (self.blooms, &mut *self.passed);
        let mut count = None;
        for (number, Stage(tests)) in self.stages.iter().enumerate() {
            let next = self.stages.get(number + 1).and_then(|Stage(tests)| tests.first());
            let next = next.map(|test| test.byte);
            count = Some(match tests.as_slice() {
                [] => continue,
                &[a] => sift(blooms, &[a], next, passed, count),
                &[a, b] => sift(blooms, &[a, b], next, passed, count),
                &[a, b, c] => sift(blooms, &[a, b, c], next, passed, count),
                &[a, b, c, d, ..] => sift(blooms, &[a, b, c, d], next, passed, count),
            });
        }
        count.unwrap_or_else(|| keep_first(blooms, passed, 0, None, |_| true))
    }
}

impl Kernel for Sieve<'_> {
    type Output = usize;

    fn scalar(mut self) -> usize {
        let mut count = self.sift();
        for clause in self.clauses {
            count = keep(self.blooms, self.passed, count, 0, None, |bloom| clause.passes(bloom));
        }
        count
    }

    #[inline(always)]
    fn vector<L: Lanes>(mut self, lanes: L) -> usize {
        let mut count = self.sift();
        let Self { blooms, clauses, passed, .. } = self;
        for clause in clauses {
            if clause.tiles.is_empty() {
                count = keep(blooms, passed, count, 0, None, |bloom| clause.passes(bloom));
                continue;
            }
            count = keep(
                blooms,
                passed,
                count,
                0,
                None,
                #[inline(always)]
                |bloom| lanes.any(bloom, &clause.tiles),
            );
        }
        count
    }
}

/// Tests values against one filter in SIMD lanes.
pub(super) trait RowLanes: Lanes {
    /// Returns the lanes whose value the filter may contain.
    #[inline(always)]
    fn contained(self, bloom: Self::Table<'_>, tile: &ValueTile) -> u16 {
        let [a, b, c] = tile;
        self.is_set(bloom, a) & self.is_set(bloom, b) & self.is_set(bloom, c)
    }

    #[inline(always)]
    fn is_set(self, bloom: Self::Table<'_>, indices: &[u32; 16]) -> u16 {
        let indices = self.load(indices);
        let words = self.look_up(bloom, self.shr::<5>(indices));
        self.test_bit(words, self.and(indices, self.splat(31)))
    }

    /// Returns `true` if the filter may contain any of the values.
    #[inline(always)]
    fn any(self, bloom: &Row, tiles: &[ValueTile]) -> bool {
        let bloom = self.table(bloom);
        for tile in tiles {
            if self.contained(bloom, tile) != 0 {
                return true;
            }
        }
        false
    }
}

impl<L: Lanes> RowLanes for L {}
