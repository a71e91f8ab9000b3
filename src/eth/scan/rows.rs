//! One filter at a time: the engine for few values.
//!
//! What every match needs is tested by 64-byte lines of the filters, since memory is read in
//! those: the line that rejects most first, for a thousand filters, then the next line of those
//! that are left. No branch depends on a bit, and reads of a line don't wait for each other.

use alloc::vec::Vec;

use crate::bits::transpose::Row;
use crate::eth::bloom::{self, BitPositions, byte_and_mask};
use crate::simd::{Kernel, Lanes};

/// Filters that go through all tests together.
pub(super) const BLOCK: usize = 1024;

/// The three bits of sixteen values, counted from the first byte's lowest bit.
pub(super) type ValueTile = [[u32; 16]; 3];

/// The place of a bit in the bytes, counted from the first byte's lowest bit.
pub(super) fn index_of(position: u16) -> u16 {
    let (byte, mask) = byte_and_mask(position);
    let byte = u16::try_from(byte).expect("below 256");
    byte * 8 + u16::try_from(mask.trailing_zeros()).expect("below 8")
}

/// Puts a value into a lane.
pub(super) fn fill_tile(tile: &mut ValueTile, lane: usize, value: &BitPositions) {
    for (indices, &position) in tile.iter_mut().zip(value) {
        indices[lane] = u32::from(index_of(position));
    }
}

/// Whether the bit of an index below 2048 is set.
#[inline]
pub(super) fn is_set(bloom: &Row, index: u32) -> bool {
    bloom[index as usize >> 3 & 255] >> (index & 7) & 1 != 0
}

/// Bits of one of the four lines, all of which must be set.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) part: usize,
    pub(super) bits: [u32; 16],
}

impl Line {
    #[inline(always)]
    fn of<'a>(&self, bloom: &'a Row) -> &'a [u8; 64] {
        &bloom.as_chunks().0[self.part & 3]
    }

    #[inline]
    pub(super) fn passes(&self, bloom: &Row) -> bool {
        let (words, _) = self.of(bloom).as_chunks::<4>();
        let pairs = self.bits.iter().zip(words);
        pairs.fold(0, |missing, (bits, word)| missing | bits & !u32::from_le_bytes(*word)) == 0
    }

    pub(super) fn num_bits(&self) -> u32 {
        self.bits.iter().map(|bits| bits.count_ones()).sum()
    }
}

/// The lines that have any of the bits.
pub(super) fn lines(positions: impl Iterator<Item = u16>) -> Vec<Line> {
    let mut bits = [[0; 16]; 4];
    for index in positions.map(index_of).map(usize::from) {
        bits[index >> 9][index >> 5 & 15] |= 1 << (index & 31);
    }
    let lines = bits.into_iter().enumerate().map(|(part, bits)| Line { part, bits });
    lines.filter(|line| line.num_bits() > 0).collect()
}

/// The values of a clause.
#[derive(Debug, Clone)]
pub(super) struct Values {
    pub(super) positions: Vec<BitPositions>,
    /// The last one is filled up with its last value.
    tiles: Vec<ValueTile>,
}

impl Values {
    /// Of at least one value.
    pub(super) fn new(positions: &[BitPositions]) -> Self {
        let tiles = positions.chunks(16).map(|values| {
            let mut tile = [[0; 16]; 3];
            for lane in 0..16 {
                fill_tile(&mut tile, lane, &values[lane.min(values.len() - 1)]);
            }
            tile
        });
        Self { positions: positions.to_vec(), tiles: tiles.collect() }
    }

    #[inline]
    pub(super) fn passes(&self, bloom: &Row) -> bool {
        self.positions.iter().any(|value| bloom::contains(bloom, value))
    }
}

/// Writes the indices of the filters that pass every test and returns how many they are.
pub(super) struct Sieve<'a> {
    /// At most [`BLOCK`].
    pub(super) blooms: &'a [Row],
    pub(super) lines: &'a [Line],
    pub(super) clauses: &'a [Values],
    pub(super) passed: &'a mut [u32; BLOCK],
}

/// Keeps the indices whose filter passes `test`, the first `count` of `indices`.
#[inline(always)]
fn keep(
    blooms: &[Row],
    indices: &mut [u32; BLOCK],
    count: usize,
    test: impl Fn(&Row) -> bool,
) -> usize {
    let mut kept = 0;
    for i in 0..count.min(BLOCK) {
        let index = indices[i];
        let passes = test(&blooms[index as usize]);
        // Never past `i`: the mask is for the compiler.
        indices[kept & (BLOCK - 1)] = index;
        kept += usize::from(passes);
    }
    kept
}

/// The indices of all filters that pass `test`.
#[inline(always)]
fn keep_first(blooms: &[Row], indices: &mut [u32; BLOCK], test: impl Fn(&Row) -> bool) -> usize {
    let mut kept = 0;
    for (index, bloom) in (0..).zip(blooms) {
        indices[kept & (BLOCK - 1)] = index;
        kept += usize::from(test(bloom));
    }
    kept
}

impl Kernel for Sieve<'_> {
    type Output = usize;

    fn scalar(self) -> usize {
        let Self { blooms, lines, clauses, passed } = self;
        let (first, rest) = match lines.split_first() {
            Some((line, rest)) => (keep_first(blooms, passed, |bloom| line.passes(bloom)), rest),
            None => (keep_first(blooms, passed, |_| true), lines),
        };
        let count = rest
            .iter()
            .fold(first, |count, line| keep(blooms, passed, count, |bloom| line.passes(bloom)));
        clauses
            .iter()
            .fold(count, |count, clause| keep(blooms, passed, count, |bloom| clause.passes(bloom)))
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> usize {
        let Self { blooms, lines, clauses, passed } = self;
        let mut count = match lines.first() {
            Some(line) => {
                let bits = lanes.load(&line.bits);
                keep_first(
                    blooms,
                    passed,
                    #[inline(always)]
                    |bloom| lanes.is_subset(bits, lanes.load_bytes(line.of(bloom))),
                )
            }
            None => keep_first(blooms, passed, |_| true),
        };
        for line in lines.iter().skip(1) {
            let bits = lanes.load(&line.bits);
            count = keep(
                blooms,
                passed,
                count,
                #[inline(always)]
                |bloom| lanes.is_subset(bits, lanes.load_bytes(line.of(bloom))),
            );
        }
        for clause in clauses {
            count = keep(
                blooms,
                passed,
                count,
                #[inline(always)]
                |bloom| lanes.any(bloom, &clause.tiles),
            );
        }
        count
    }
}

/// Values looked up in a filter.
pub(super) trait RowLanes: Lanes {
    /// The lanes whose value is in the filter.
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

    /// Whether any of the values is in the filter.
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
