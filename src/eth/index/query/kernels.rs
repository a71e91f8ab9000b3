//! SIMD kernels that combine the rows of a section, 64 bytes at a time.

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Kernel, Lanes};

use crate::eth::index::format::SECTION;
use crate::eth::index::format::segment::ROW;

/// One bit for each header of a section.
pub(super) type Mask = [u64; SECTION / 64];

/// Highest number of rows that are combined with masks in one pass.
pub(super) const TOGETHER: usize = 16;

fn word(piece: &[u8; ROW], number: usize) -> u64 {
    u64::from_le_bytes(piece.as_chunks().0[number])
}

/// Writes the AND of rows into the masks of at most 32 consecutive sections; if `are_set` is
/// `true`, the AND includes the previous masks.
///
/// Returns the set of sections in which a bit remains, and the number of remaining bits. In the
/// set, bit `i` represents section `i`.
pub(super) struct And<'a> {
    /// The rows, each with as many sections as there are masks.
    pub(super) rows: &'a [&'a [[u8; ROW]]],
    pub(super) are_set: bool,
    pub(super) masks: &'a mut [Mask],
}

impl Kernel for And<'_> {
    type Output = (u32, u64);

    fn scalar(self) -> (u32, u64) {
        let (mut left, mut ones) = (0, 0);
        for (section, mask) in self.masks.iter_mut().enumerate() {
            let mut any = 0;
            for (number, mask) in mask.iter_mut().enumerate() {
                let before = if self.are_set { *mask } else { u64::MAX };
                let rows = self.rows.iter().map(|row| word(&row[section], number));
                *mask = rows.fold(before, |mask, row| mask & row);
                any |= *mask;
                ones += u64::from(mask.count_ones());
            }
            left |= u32::from(any != 0) << section;
        }
        (left, ones)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> (u32, u64) {
        let (mut left, mut ones) = (0, 0);
        for (section, mask) in self.masks.iter_mut().enumerate() {
            let before = ones;
            for (block, mask) in mask.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let parts = mask.as_chunks_mut::<8>().0;
                let mut bits = [lanes.splat(u32::MAX); 4];
                if self.are_set {
                    for (bits, part) in bits.iter_mut().zip(&*parts) {
                        *bits = lanes.load_long(part);
                    }
                }
                bits = and_block(lanes, self.rows, section, block, bits);
                for (bits, part) in bits.iter().zip(parts) {
                    lanes.store_long(*bits, part);
                }
                for word in mask {
                    ones += u64::from(word.count_ones());
                }
            }
            left |= u32::from(ones != before) << section;
        }
        (left, ones)
    }
}

/// Combines 256 bytes of each row with `bits`.
#[inline(always)]
fn and_block<L: Lanes>(
    lanes: L,
    rows: &[&[[u8; ROW]]],
    section: usize,
    block: usize,
    mut bits: [L::V; 4],
) -> [L::V; 4] {
    for row in rows {
        let row = &row[section].as_chunks::<256>().0[block];
        for (bits, row) in bits.iter_mut().zip(row.as_chunks::<64>().0) {
            *bits = lanes.and(*bits, lanes.load_bytes(row));
        }
    }
    bits
}

/// Appends the AND of rows to `words`; returns the number of set bits.
///
/// The result is written directly to `words`, so that stores to memory overlap with loads of the
/// rows.
pub(super) struct AndTo<'a> {
    /// The rows: at least one, all with the same number of sections.
    pub(super) rows: &'a [&'a [[u8; ROW]]],
    pub(super) words: &'a mut Vec<u64>,
}

impl Kernel for AndTo<'_> {
    type Output = u64;

    fn scalar(self) -> u64 {
        let mut ones = 0;
        for section in 0..self.rows[0].len() {
            for number in 0..SECTION / 64 {
                let rows = self.rows.iter().map(|row| word(&row[section], number));
                let bits = rows.fold(u64::MAX, |bits, row| bits & row);
                self.words.push(bits);
                ones += u64::from(bits.count_ones());
            }
        }
        ones
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> u64 {
        let mut ones = 0;
        for section in 0..self.rows[0].len() {
            for block in 0..ROW / 256 {
                let all = [lanes.splat(u32::MAX); 4];
                let bits = and_block(lanes, self.rows, section, block, all);
                let mut words = [0; 32];
                for (bits, words) in bits.iter().zip(words.as_chunks_mut::<8>().0) {
                    lanes.store_long(*bits, words);
                }
                for word in words {
                    ones += u64::from(word.count_ones());
                }
                self.words.extend_from_slice(&words);
            }
        }
        ones
    }
}

/// For each value, sets those bits in `any` that are set in all three rows of the value. Returns
/// `true` if all bits of the mask `of` are then set in `any`.
pub(super) struct AnyOf<'a> {
    pub(super) values: &'a [[&'a [u8; ROW]; 3]],
    pub(super) of: &'a Mask,
    pub(super) any: &'a mut Mask,
}

impl Kernel for AnyOf<'_> {
    type Output = bool;

    fn scalar(self) -> bool {
        for value in self.values {
            for (number, any) in self.any.iter_mut().enumerate() {
                let [a, b, c] = value.map(|row| word(row, number));
                *any |= a & b & c;
            }
        }
        self.any.iter().zip(self.of).fold(0, |missing, (any, of)| missing | of & !any) == 0
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> bool {
        for (block, any) in self.any.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let any = any.as_chunks_mut::<8>().0;
            let mut bits = [lanes.splat(0); 4];
            for (bits, any) in bits.iter_mut().zip(&*any) {
                *bits = lanes.load_long(any);
            }
            for value in self.values {
                let [a, b, c] =
                    value.map(|row| row.as_chunks::<256>().0[block].as_chunks::<64>().0);
                for (((bits, a), b), c) in bits.iter_mut().zip(a).zip(b).zip(c) {
                    let value = lanes.and(lanes.load_bytes(a), lanes.load_bytes(b));
                    *bits = lanes.or(*bits, lanes.and(value, lanes.load_bytes(c)));
                }
            }
            for (bits, any) in bits.iter().zip(any) {
                lanes.store_long(*bits, any);
            }
        }
        for (any, of) in self.any.as_chunks::<8>().0.iter().zip(self.of.as_chunks::<8>().0) {
            if !lanes.is_subset(lanes.load_long(of), lanes.load_long(any)) {
                return false;
            }
        }
        true
    }
}

/// Counts the set bits of words. The code is the same for every backend: the compiler uses the
/// popcount instructions of the CPU.
pub(super) struct CountOnes<'a>(pub(super) &'a [u64]);

impl Kernel for CountOnes<'_> {
    type Output = u64;

    #[inline(always)]
    fn scalar(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) -> u64 {
        let mut ones = 0;
        for word in self.0 {
            ones += u64::from(word.count_ones());
        }
        ones
    }
}
