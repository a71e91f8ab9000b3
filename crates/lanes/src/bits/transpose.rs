//! Transposition of 512 rows of 2048 bits to 2048 columns of 512 bits.
//!
//! A matrix of 32 by 32 bits is transposed in five steps, each of which exchanges the halves of
//! pairs of rows (Warren, Hacker's Delight, 7-3). Vectors transpose sixteen matrices at a time:
//! each vector holds 64 bytes of one row. The words of one column then lie in sixteen different
//! vectors, so those vectors are transposed word by word.

use crate::simd::{Backend, Kernel, Lanes};

/// Number of rows that are transposed at a time.
pub const ROWS: usize = 512;

/// Number of bits of a row.
pub const BITS: usize = 2048;

/// A row of 2048 bits.
pub type Row = [u8; BITS / 8];

/// One bit of each of [`ROWS`] rows: the bit of row `i` is bit `i % 32` of word `i / 32`.
pub type Column = [u32; ROWS / 32];

/// Returns the position of the column of a bit. Bit `index` of a row is bit `index % 8` of its byte
/// `index / 8`.
#[inline]
pub const fn column_of(index: usize) -> usize {
    // Columns are stored in the order in which the vectors yield them. They are sorted by the
    // 64-byte block of the row, then by the bit of the word, then by the word.
    index & !511 | (index & 31) << 4 | index >> 5 & 15
}

/// Writes the columns of `rows` at the positions that [`column_of`] gives.
#[inline]
pub fn transpose(backend: Backend, rows: &[&Row; ROWS], columns: &mut [Column; BITS]) {
    backend.run(Transpose { rows, to: columns });
}

#[cfg(any(test, feature = "std"))]
/// The column of one bit for each of `N` groups of [`ROWS`] rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))] // vectors that straddle two lines of the cache take twice as long
pub struct Strip<const N: usize>(pub [Column; N]);

#[cfg(any(test, feature = "std"))]
/// Writes each column of `rows` to column `number` of the strip at the position that [`column_of`]
/// gives.
#[inline]
pub fn transpose_into<const N: usize>(
    backend: Backend,
    rows: &[&Row; ROWS],
    number: usize,
    strips: &mut [Strip<N>; BITS],
) {
    backend.run(Transpose { rows, to: Strips(strips, number) });
}

/// Mask of the low bits in each step, which exchanges rows `1 << step` apart.
const LOW: [u32; 5] = [0x5555_5555, 0x3333_3333, 0x0f0f_0f0f, 0x00ff_00ff, 0x0000_ffff];

/// Destination of the columns.
trait Columns {
    /// Returns the column at this position.
    fn column(&mut self, place: usize) -> &mut Column;
}

impl Columns for &mut [Column; BITS] {
    #[inline(always)]
    fn column(&mut self, place: usize) -> &mut Column {
        &mut self[place]
    }
}

#[cfg(any(test, feature = "std"))]
struct Strips<'a, const N: usize>(&'a mut [Strip<N>; BITS], usize);

#[cfg(any(test, feature = "std"))]
impl<const N: usize> Columns for Strips<'_, N> {
    #[inline(always)]
    fn column(&mut self, place: usize) -> &mut Column {
        &mut self.0[place].0[self.1]
    }
}

struct Transpose<'a, C> {
    rows: &'a [&'a Row; ROWS],
    to: C,
}

impl<C: Columns> Kernel for Transpose<'_, C> {
    type Output = ();

    fn scalar(mut self) {
        let (groups, _) = self.rows.as_chunks::<32>();
        for (number, group) in groups.iter().enumerate() {
            // Four words of a row are processed at a time.
            for quad in 0..BITS / 128 {
                let mut matrices = [[0; 4]; 32];
                for (row, words) in group.iter().zip(&mut matrices) {
                    let (bytes, _) = row[quad * 16..][..16].as_chunks::<4>();
                    *words = core::array::from_fn(|word| u32::from_le_bytes(bytes[word]));
                }
                exchange::<4>(&mut matrices);
                exchange::<3>(&mut matrices);
                exchange::<2>(&mut matrices);
                exchange::<1>(&mut matrices);
                exchange::<0>(&mut matrices);
                for (bit, words) in matrices.iter().enumerate() {
                    for (word, column) in words.iter().enumerate() {
                        let index = (quad * 4 + word) * 32 + bit;
                        self.to.column(column_of(index))[number] = *column;
                    }
                }
            }
        }
    }

    #[expect(clippy::large_stack_arrays, reason = "32 KiB on the stack need no allocation")]
    #[inline(always)]
    fn vector<L: Lanes>(mut self, lanes: L) {
        let (groups, _) = self.rows.as_chunks::<32>();
        let mut between = [[[0; 16]; 16]; 32];
        for part in 0..BITS / 512 {
            for (number, group) in groups.iter().enumerate() {
                lanes.transpose_matrices(group, part, number, &mut between);
            }
            for (bit, vectors) in between.iter().enumerate() {
                let mut rows = [lanes.splat(0); 16];
                for (row, vector) in rows.iter_mut().zip(vectors) {
                    *row = lanes.load(vector);
                }
                let rows = lanes.transpose_words(rows);
                for (word, row) in rows.iter().enumerate() {
                    lanes.store(*row, self.to.column(part * 512 + bit * 16 + word));
                }
            }
        }
    }
}

/// One step of the transposition of four matrices.
#[inline]
fn exchange<const STEP: usize>(matrices: &mut [[u32; 4]; 32]) {
    for low in (0..32).filter(|row| row >> STEP & 1 == 0) {
        let (mut upper, mut lower) = (matrices[low], matrices[low | 1 << STEP]);
        for (a, b) in upper.iter_mut().zip(&mut lower) {
            let differing = (*a >> (1 << STEP) ^ *b) & LOW[STEP];
            *a ^= differing << (1 << STEP);
            *b ^= differing;
        }
        (matrices[low], matrices[low | 1 << STEP]) = (upper, lower);
    }
}

trait TransposeLanes: Lanes {
    /// Transposes sixteen matrices of 32 rows, which are stored in the 64-byte block with index
    /// `part` of each row.
    #[inline(always)]
    fn transpose_matrices(
        self,
        rows: &[&Row; 32],
        part: usize,
        number: usize,
        to: &mut [[Column; 16]; 32],
    ) {
        // Exchange the rows 16 and 8 apart first, then the rows within each group of eight
        // neighbours.
        let mut half_done = [[0; 16]; 32];
        for row in 0..8 {
            let [a, b, c, d] = [
                self.part(rows[row], part),
                self.part(rows[row + 8], part),
                self.part(rows[row + 16], part),
                self.part(rows[row + 24], part),
            ];
            let (a, c) = self.exchange::<16>(a, c);
            let (b, d) = self.exchange::<16>(b, d);
            let (a, b) = self.exchange::<8>(a, b);
            let (c, d) = self.exchange::<8>(c, d);
            self.store(a, &mut half_done[row]);
            self.store(b, &mut half_done[row + 8]);
            self.store(c, &mut half_done[row + 16]);
            self.store(d, &mut half_done[row + 24]);
        }
        let (eights, _) = half_done.as_chunks::<8>();
        let (to, _) = to.as_chunks_mut::<8>();
        for (eight, to) in eights.iter().zip(to) {
            let [a, b, c, d] = [
                self.load(&eight[0]),
                self.load(&eight[1]),
                self.load(&eight[2]),
                self.load(&eight[3]),
            ];
            let [e, f, g, h] = [
                self.load(&eight[4]),
                self.load(&eight[5]),
                self.load(&eight[6]),
                self.load(&eight[7]),
            ];
            let (a, e) = self.exchange::<4>(a, e);
            let (b, f) = self.exchange::<4>(b, f);
            let (c, g) = self.exchange::<4>(c, g);
            let (d, h) = self.exchange::<4>(d, h);
            let (a, c) = self.exchange::<2>(a, c);
            let (b, d) = self.exchange::<2>(b, d);
            let (e, g) = self.exchange::<2>(e, g);
            let (f, h) = self.exchange::<2>(f, h);
            let (a, b) = self.exchange::<1>(a, b);
            let (c, d) = self.exchange::<1>(c, d);
            let (e, f) = self.exchange::<1>(e, f);
            let (g, h) = self.exchange::<1>(g, h);
            self.store(a, &mut to[0][number]);
            self.store(b, &mut to[1][number]);
            self.store(c, &mut to[2][number]);
            self.store(d, &mut to[3][number]);
            self.store(e, &mut to[4][number]);
            self.store(f, &mut to[5][number]);
            self.store(g, &mut to[6][number]);
            self.store(h, &mut to[7][number]);
        }
    }

    /// Loads the 64-byte block with index `part` of a row.
    #[inline(always)]
    fn part(self, row: &Row, part: usize) -> Self::V {
        let (parts, _) = row.as_chunks::<64>();
        self.load_bytes(&parts[part & 3])
    }

    /// One step of the transposition, for two rows `APART` from each other.
    #[inline(always)]
    fn exchange<const APART: u32>(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        let low = self.splat(LOW[APART.ilog2() as usize]);
        let differing = self.and(self.xor(self.shr::<APART>(a), b), low);
        (self.xor(a, self.shl::<APART>(differing)), self.xor(b, differing))
    }
}

impl<L: Lanes> TransposeLanes for L {}

#[cfg(test)]
mod tests {
    use super::{BITS, Column, ROWS, Row, Strip, column_of, transpose, transpose_into};
    use crate::simd::Backend;
    use testkit::Rng;

    #[test]
    fn every_bit_finds_its_place() {
        let mut rng = Rng::new(1);
        for round in 0..8 {
            let mut rows = vec![[0; BITS / 8]; ROWS];
            for byte in rows.as_flattened_mut() {
                let bits = rng.u64();
                *byte = (bits >> 40).to_le_bytes()[0] & (bits >> round * 3 + 30).to_le_bytes()[0];
            }
            let rows: Vec<&Row> = rows.iter().collect();
            let rows: &[&Row; ROWS] = rows.as_slice().try_into().unwrap();
            for backend in Backend::available() {
                let mut columns: Box<[Column; BITS]> =
                    vec![[u32::MAX; ROWS / 32]; BITS].try_into().unwrap();
                transpose(backend, rows, &mut columns);
                let untouched = Strip([[7; ROWS / 32]; 3]);
                let mut strips: Box<[Strip<3>; BITS]> = vec![untouched; BITS].try_into().unwrap();
                transpose_into(backend, rows, 1, &mut strips);
                for (strip, column) in strips.iter().zip(columns.iter()) {
                    assert_eq!(strip.0, [[7; ROWS / 32], *column, [7; ROWS / 32]]);
                }
                for (number, row) in rows.iter().enumerate() {
                    for index in 0..BITS {
                        let column = &columns[column_of(index)];
                        assert_eq!(
                            column[number / 32] >> (number % 32) & 1,
                            u32::from(row[index / 8] >> (index % 8) & 1),
                            "{backend:?}, bit {index} of row {number}"
                        );
                    }
                }
            }
        }
    }
}
