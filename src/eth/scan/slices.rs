//! Engine for many values: tests 512 transposed filters at a time.
//!
//! Once the filters are transposed, testing a value takes three loads and two AND operations for
//! all 512 filters.

use alloc::vec::Vec;

use chainsieve_lanes::bits::transpose::{BITS, Column, ROWS, Row, column_of, transpose};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::rows::index_of;

/// Number of filters that are transposed at a time.
pub(super) const TILE: usize = ROWS;

/// Indices of the three columns of a value.
pub(super) type ValueColumns = [u16; 3];

/// Returns the columns of each value.
pub(super) fn columns_of(values: &[[u16; 3]]) -> Vec<ValueColumns> {
    let column = |position| column_of(usize::from(index_of(position)));
    let column = |position| u16::try_from(column(position)).expect("below 2048");
    values.iter().map(|value| value.map(column)).collect()
}

/// Buffer for the columns of 512 filters. The buffer takes 128 KiB after its first use.
#[derive(Debug, Clone, Default)]
pub(super) struct Tile(Vec<Column>);

impl Tile {
    /// Transposes at most 512 filters. If there are fewer filters, the missing filters are treated
    /// as empty.
    pub(super) fn turn<'a>(
        &mut self,
        backend: Backend,
        blooms: impl IntoIterator<Item = &'a Row>,
    ) -> &[Column; BITS] {
        self.0.resize(BITS, [0; ROWS / 32]);
        let mut rows = [&[0; BITS / 8]; ROWS];
        rows.iter_mut().zip(blooms).for_each(|(row, bloom)| *row = bloom);
        let columns = self.0.first_chunk_mut().expect("just made");
        transpose(backend, &rows, columns);
        columns
    }
}

/// Returns a mask of the filters `start` to `end - 1`.
pub(super) fn range_mask(start: usize, end: usize) -> Column {
    let below = |end: usize, word: usize| {
        let bits = end.saturating_sub(word * 32).min(32);
        u32::try_from((1_u64 << bits) - 1).expect("at most 32 bits")
    };
    core::array::from_fn(|word| below(end, word) & !below(start, word))
}

/// Calls `see` with the index of each filter in the mask, ascending.
#[inline]
pub(super) fn for_each(mask: &Column, mut see: impl FnMut(usize)) {
    for (word, &bits) in mask.iter().enumerate() {
        let mut bits = bits;
        while bits != 0 {
            see(word * 32 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// An AND of clauses, to be tested for the filters of a mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) clauses: &'a [Vec<ValueColumns>],
    pub(super) mask: Column,
}

/// Evaluates tasks on the columns of one tile. Calls `see` with the number of each task for which
/// filters remain, and with these filters.
pub(super) struct Select<'a, I, S> {
    pub(super) columns: &'a [Column; BITS],
    pub(super) tasks: I,
    pub(super) see: S,
}

impl<'a, I: Iterator<Item = (u32, Task<'a>)>, S: FnMut(u32, &Column)> Kernel for Select<'a, I, S> {
    type Output = ();

    fn scalar(mut self) {
        for (number, task) in self.tasks {
            let mut left = task.mask;
            for values in task.clauses {
                left = any_of(self.columns, values, &left);
                if left == [0; 16] {
                    break;
                }
            }
            if left != [0; 16] {
                (self.see)(number, &left);
            }
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(mut self, lanes: L) {
        let none = lanes.splat(0);
        for (number, task) in self.tasks {
            let mut left = lanes.load(&task.mask);
            for values in task.clauses {
                left = lanes.any_of(self.columns, values, left);
                if lanes.is_subset(left, none) {
                    break;
                }
            }
            if !lanes.is_subset(left, none) {
                let mut mask = [0; 16];
                lanes.store(left, &mut mask);
                (self.see)(number, &mask);
            }
        }
    }
}

/// Number of values that are tested before checking whether every filter has matched.
const STEP: usize = 8;

#[inline]
fn any_of(columns: &[Column; BITS], values: &[ValueColumns], of: &Column) -> Column {
    let mut any = [0; 16];
    for values in values.chunks(STEP) {
        for value in values {
            let [a, b, c] = value.map(|column| &columns[usize::from(column) & (BITS - 1)]);
            for lane in 0..16 {
                any[lane] |= a[lane] & b[lane] & c[lane];
            }
        }
        if any.iter().zip(of).fold(0, |missing, (any, of)| missing | of & !any) == 0 {
            break;
        }
    }
    core::array::from_fn(|lane| any[lane] & of[lane])
}

trait SliceLanes: Lanes {
    #[inline(always)]
    fn any_of(self, columns: &[Column; BITS], values: &[ValueColumns], of: Self::V) -> Self::V {
        let mut any = self.splat(0);
        for values in values.chunks(STEP) {
            for &[a, b, c] in values {
                let (a, b) = (self.column(columns, a), self.column(columns, b));
                any = self.or(any, self.and(self.and(a, b), self.column(columns, c)));
            }
            if self.is_subset(of, any) {
                break;
            }
        }
        self.and(any, of)
    }

    #[inline(always)]
    fn column(self, columns: &[Column; BITS], column: u16) -> Self::V {
        self.load(&columns[usize::from(column) & (BITS - 1)])
    }
}

impl<L: Lanes> SliceLanes for L {}
