//! Parsers of one stream that go forward together, so that none waits for another.

use super::in_window;
use crate::bits::bit_stream::{WINDOW_BITS, window_at};
use crate::simd::Lanes;

/// The codes that each parser takes at a time.
pub(super) const BLOCK: usize = 8;

/// Of each code of a block, one number for each parser.
pub(super) type Rows<const C: usize> = [[u64; C]; BLOCK];

/// `C` parsers of the same codes, each with the sum of what it has read.
pub(super) trait Chains<const C: usize>: Copy {
    /// At these bits of the codes, with sums of 0.
    fn at(self, positions: &[u64; C]) -> Self;

    /// Takes a block of codes in each parser, with the sums up to each code and the bits where it
    /// ends. `CAREFUL` is slower and sees codes of more bits. False, and all the results wrong, if
    /// it doesn't see one.
    ///
    /// What it reads is wrong without notice once a parser ends fewer than 8 bytes before the end.
    fn take<const CAREFUL: bool>(&mut self, sums: &mut Rows<C>, ends: &mut Rows<C>) -> bool;
}

/// Four parsers in plain registers: more don't find room.
#[derive(Clone, Copy)]
pub(super) struct PlainChains<'a> {
    codes: &'a [u8],
    p: u32,
    positions: [u64; 4],
    sums: [u64; 4],
}

impl<'a> PlainChains<'a> {
    pub(super) fn new(codes: &'a [u8], p: u8) -> Self {
        Self { codes, p: p.into(), positions: [0; 4], sums: [0; 4] }
    }
}

impl Chains<4> for PlainChains<'_> {
    #[inline(always)]
    fn at(self, positions: &[u64; 4]) -> Self {
        Self { positions: *positions, ..self }
    }

    #[inline(always)]
    fn take<const CAREFUL: bool>(&mut self, sums: &mut Rows<4>, ends: &mut Rows<4>) -> bool {
        let mut longest = 0;
        for (sums, ends) in sums.as_chunks_mut::<2>().0.iter_mut().zip(ends.as_chunks_mut().0) {
            let ([sums_1, sums_2], [ends_1, ends_2]) = (sums, ends);
            for chain in 0..4 {
                let start = self.positions[chain];
                let Some(window) = window_at(self.codes, start) else { return false };
                let (first, first_bits) = in_window(!window, self.p);
                let middle = start + u64::from(first_bits);
                let (second, second_bits);
                if CAREFUL {
                    let Some(window) = window_at(self.codes, middle) else { return false };
                    (second, second_bits) = in_window(!window, self.p);
                    longest = longest.max(first_bits).max(second_bits);
                } else {
                    (second, second_bits) = in_window(!window << (first_bits & 63), self.p);
                    longest = longest.max(first_bits + second_bits);
                }
                sums_1[chain] = self.sums[chain] + first;
                sums_2[chain] = sums_1[chain] + second;
                ends_1[chain] = middle;
                ends_2[chain] = middle + u64::from(second_bits);
                (self.sums[chain], self.positions[chain]) = (sums_2[chain], ends_2[chain]);
            }
        }
        longest <= WINDOW_BITS
    }
}

/// Sixteen parsers in two times eight lanes.
#[derive(Clone, Copy)]
pub(super) struct LaneChains<'a, L: Lanes> {
    lanes: L,
    codes: &'a [u8],
    p: u32,
    groups: [Group<L>; 2],
}

/// Eight parsers.
#[derive(Clone, Copy)]
struct Group<L: Lanes> {
    position: L::W,
    sum: L::W,
    /// The bits from the position on, inverted; zeros where there are no more in sight.
    window: L::W,
    /// The bits of the word that the window was cut from that lie before the position.
    passed: L::W,
}

impl<'a, L: Lanes> LaneChains<'a, L> {
    /// Of at least eight bytes.
    #[inline(always)]
    pub(super) fn new(lanes: L, codes: &'a [u8], p: u8) -> Self {
        let zero = lanes.splat_64(0);
        let group = Group { position: zero, sum: zero, window: zero, passed: zero };
        Self { lanes, codes, p: p.into(), groups: [group; 2] }
    }

    /// The window at a position, and what lies before it.
    #[inline(always)]
    fn look(&self, position: L::W) -> (L::W, L::W) {
        let lanes = self.lanes;
        let offset = lanes.shr_each_64(position, lanes.splat_64(3));
        let passed = lanes.and_64(position, lanes.splat_64(7));
        let word = lanes.gather_big_endian_64(self.codes, offset);
        let inverted = lanes.xor_64(word, lanes.splat_64(u64::MAX));
        (lanes.shl_each_64(inverted, passed), passed)
    }

    /// The code at the top of a window: its quotient, its value, and the window from its zero on.
    #[inline(always)]
    fn code(&self, window: L::W) -> (L::W, L::W, L::W) {
        let lanes = self.lanes;
        let p = u64::from(self.p);
        let quotient = lanes.leading_zeros_64(window);
        let rest = lanes.shl_each_64(window, quotient);
        // The zero and the remainder behind it, both inverted.
        let inverted = lanes.shr_each_64(rest, lanes.splat_64(63 - p));
        let high = lanes.shl_each_64(quotient, lanes.splat_64(p));
        let value = lanes.sub_64(lanes.add_64(high, lanes.splat_64((2 << p) - 1)), inverted);
        (quotient, value, rest)
    }
}

impl<L: Lanes> Chains<16> for LaneChains<'_, L> {
    #[inline(always)]
    fn at(mut self, positions: &[u64; 16]) -> Self {
        for group in 0..2 {
            let position = self.lanes.load_slice_64(&positions[group * 8..]);
            let (window, passed) = self.look(position);
            let sum = self.lanes.splat_64(0);
            self.groups[group] = Group { position, sum, window, passed };
        }
        self
    }

    #[inline(always)]
    fn take<const CAREFUL: bool>(&mut self, sums: &mut Rows<16>, ends: &mut Rows<16>) -> bool {
        let lanes = self.lanes;
        let fixed_bits = u64::from(self.p) + 1;
        let fixed = lanes.splat_64(fixed_bits);
        // Negative as soon as a window ended before its code.
        let mut left = lanes.splat_64(0);
        for pair in 0..BLOCK / 2 {
            for group in 0..2 {
                let Group { position, sum, window, passed } = self.groups[group];
                let next = if CAREFUL {
                    let limit = lanes.splat_64(64 - fixed_bits);
                    let (window, passed) = self.look(position);
                    let (quotient, first, _) = self.code(window);
                    let bits = lanes.add_64(passed, quotient);
                    left = lanes.or_64(left, lanes.sub_64(limit, bits));
                    let middle = lanes.add_64(lanes.add_64(position, fixed), quotient);
                    let (window, passed) = self.look(middle);
                    let (quotient, second, _) = self.code(window);
                    let bits = lanes.add_64(passed, quotient);
                    left = lanes.or_64(left, lanes.sub_64(limit, bits));
                    let position = lanes.add_64(lanes.add_64(middle, fixed), quotient);
                    let sum_1 = lanes.add_64(sum, first);
                    let sum_2 = lanes.add_64(sum_1, second);
                    lanes.store_slice_64(sum_1, &mut sums[pair * 2][group * 8..]);
                    lanes.store_slice_64(middle, &mut ends[pair * 2][group * 8..]);
                    let (window, passed) = self.look(position);
                    Group { position, sum: sum_2, window, passed }
                } else {
                    // The next window, while this one is worked on: it takes the memory as long.
                    let next_least = lanes.add_64(position, lanes.splat_64(2 * fixed_bits));
                    let (next, next_passed) = self.look(next_least);
                    let (quotient_1, first, rest) = self.code(window);
                    let (quotient_2, second, _) = self.code(lanes.shl_each_64(rest, fixed));
                    let ones = lanes.add_64(quotient_1, quotient_2);
                    let limit = lanes.sub_64(lanes.splat_64(64 - 2 * fixed_bits), passed);
                    left = lanes.or_64(left, lanes.sub_64(limit, ones));
                    let middle = lanes.add_64(lanes.add_64(position, fixed), quotient_1);
                    let sum_1 = lanes.add_64(sum, first);
                    let sum_2 = lanes.add_64(sum_1, second);
                    lanes.store_slice_64(sum_1, &mut sums[pair * 2][group * 8..]);
                    lanes.store_slice_64(middle, &mut ends[pair * 2][group * 8..]);
                    Group {
                        position: lanes.add_64(next_least, ones),
                        sum: sum_2,
                        window: lanes.shl_each_64(next, ones),
                        passed: lanes.add_64(next_passed, ones),
                    }
                };
                lanes.store_slice_64(next.sum, &mut sums[pair * 2 + 1][group * 8..]);
                lanes.store_slice_64(next.position, &mut ends[pair * 2 + 1][group * 8..]);
                self.groups[group] = next;
            }
        }
        lanes.test_bit_64(left, lanes.splat_64(63)) == 0
    }
}
