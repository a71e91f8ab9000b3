//! Several parsers of one Golomb-Rice stream that advance together.
//!
//! Each parser depends on its own previous code only. So the CPU can work on several parsers at the
//! same time, and does not have to wait for the end of one code before it reads the next code.

use super::in_window;
use crate::bits::bit_stream::{WINDOW_BITS, window_at};
use crate::simd::Lanes;

/// Number of codes that each parser reads in one step.
pub(super) const BLOCK: usize = 8;

/// One number for each code of a block.
pub(super) type Block = [u64; BLOCK];

/// `C` parsers of the same codes, each with the running sum of the values it has read.
pub(super) trait Chains<const C: usize>: Copy {
    /// Working memory.
    type Scratch: Default;

    /// Returns the parsers placed at these bit positions, with sums of 0.
    fn at(self, positions: &[u64; C]) -> Self;

    /// Returns the bit position of each parser.
    fn positions(&self) -> [u64; C];

    /// Reads one block of codes with each parser. Writes the running sum after each code to block
    /// `at` of the `sums` of the parser that read the code. With `KEEP`, also writes the bit
    /// position where each code ends to `ends`.
    ///
    /// With `CAREFUL`, the method is slower, but reads longer codes. Returns `false` if a code was
    /// longer than the window. If the method returns `false`, all results are wrong.
    ///
    /// If a parser ends fewer than 8 bytes before the end of the codes, the results are wrong,
    /// although the method may return `true`: the caller has to check the positions.
    fn take<const CAREFUL: bool, const KEEP: bool>(
        &mut self,
        scratch: &mut Self::Scratch,
        sums: &mut [&mut [Block]; C],
        at: usize,
        ends: &mut [Block; C],
    ) -> bool;
}

/// Four parsers in general-purpose registers: there are not enough registers for more.
#[derive(Clone, Copy)]
pub(super) struct PlainChains<'a, const P: u32> {
    codes: &'a [u8],
    positions: [u64; 4],
    sums: [u64; 4],
}

impl<'a, const P: u32> PlainChains<'a, P> {
    pub(super) fn new(codes: &'a [u8]) -> Self {
        Self { codes, positions: [0; 4], sums: [0; 4] }
    }
}

impl<const P: u32> Chains<4> for PlainChains<'_, P> {
    type Scratch = ();

    #[inline(always)]
    fn at(self, positions: &[u64; 4]) -> Self {
        Self { positions: *positions, ..self }
    }

    #[inline(always)]
    fn positions(&self) -> [u64; 4] {
        self.positions
    }

    #[inline(always)]
    fn take<const CAREFUL: bool, const KEEP: bool>(
        &mut self,
        (): &mut (),
        sums: &mut [&mut [Block]; 4],
        at: usize,
        ends: &mut [Block; 4],
    ) -> bool {
        let [a, b, c, d] = sums;
        let sums = [&mut a[at], &mut b[at], &mut c[at], &mut d[at]];
        let mut longest = 0;
        for pair in 0..BLOCK / 2 {
            for chain in 0..4 {
                let start = self.positions[chain];
                let Some(window) = window_at(self.codes, start) else { return false };
                let (first, first_bits) = in_window(!window, P);
                let middle = start + u64::from(first_bits);
                let (second, second_bits);
                if CAREFUL {
                    let Some(window) = window_at(self.codes, middle) else { return false };
                    (second, second_bits) = in_window(!window, P);
                    longest = longest.max(first_bits).max(second_bits);
                } else {
                    (second, second_bits) = in_window(!window << (first_bits & 63), P);
                    longest = longest.max(first_bits + second_bits);
                }
                let sum = self.sums[chain] + first;
                let end = middle + u64::from(second_bits);
                (self.sums[chain], self.positions[chain]) = (sum + second, end);
                sums[chain][pair * 2] = sum;
                sums[chain][pair * 2 + 1] = sum + second;
                if KEEP {
                    ends[chain][pair * 2] = middle;
                    ends[chain][pair * 2 + 1] = end;
                }
            }
        }
        longest <= WINDOW_BITS
    }
}

/// Sixteen parsers in two groups of eight lanes.
#[derive(Clone, Copy)]
pub(super) struct LaneChains<'a, L: Lanes, const P: u32> {
    lanes: L,
    codes: &'a [u8],
    groups: [Group<L>; 2],
}

/// Eight parsers, one in each lane.
#[derive(Clone, Copy)]
struct Group<L: Lanes> {
    position: L::W,
    sum: L::W,
    /// The bits from the position on, inverted; zeros after the last bit that was loaded.
    window: L::W,
    /// Number of bits that the loaded word has before the position.
    passed: L::W,
}

/// For each code of a block, the sum and the end of each of the eight parsers of a group.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Rows {
    sums: [[u64; 8]; BLOCK],
    ends: [[u64; 8]; BLOCK],
}

/// The code at the top of each lane's window.
struct Code<L: Lanes> {
    quotient: L::W,
    value: L::W,
    /// The rest of the window, which begins with the zero that ends the quotient.
    rest: L::W,
}

/// Two codes of each parser of a group: the running sum after each code, and the bit where each
/// ends.
struct Pair<L: Lanes> {
    sums: [L::W; 2],
    ends: [L::W; 2],
}

impl<'a, L: Lanes, const P: u32> LaneChains<'a, L, P> {
    /// Bits of a code without the ones of its quotient: the zero and the remainder.
    const FIXED: u64 = P as u64 + 1;

    /// Returns parsers of `codes`, which must have at least eight bytes.
    #[inline(always)]
    pub(super) fn new(lanes: L, codes: &'a [u8]) -> Self {
        let zero = lanes.splat_64(0);
        let group = Group { position: zero, sum: zero, window: zero, passed: zero };
        Self { lanes, codes, groups: [group; 2] }
    }

    /// Loads the window at each position. Returns the window, and the number of bits of the loaded
    /// word that precede the position.
    #[inline(always)]
    fn look(&self, position: L::W) -> (L::W, L::W) {
        let lanes = self.lanes;
        let offset = lanes.shr_each_64(position, lanes.splat_64(3));
        let passed = lanes.and_64(position, lanes.splat_64(7));
        let word = lanes.gather_big_endian_64(self.codes, offset);
        let inverted = lanes.xor_64(word, lanes.splat_64(u64::MAX));
        (lanes.shl_each_64(inverted, passed), passed)
    }

    /// Decodes the code at the top of each window.
    #[inline(always)]
    fn code(&self, window: L::W) -> Code<L> {
        let lanes = self.lanes;
        let quotient = lanes.leading_zeros_64(window);
        let rest = lanes.shl_each_64(window, quotient);
        // The zero and the remainder after it, both inverted.
        let inverted = lanes.shr_each_64(rest, lanes.splat_64(64 - Self::FIXED));
        let high = lanes.shl_each_64(quotient, lanes.splat_64(P.into()));
        let high = lanes.add_64(high, lanes.splat_64((2 << P) - 1));
        Code { quotient, value: lanes.sub_64(high, inverted), rest }
    }

    /// Reads two codes with each parser of a group.
    ///
    /// A lane of `left` turns negative as soon as a code in this lane is longer than its window.
    #[inline(always)]
    fn pair<const CAREFUL: bool>(&mut self, group: usize, left: &mut L::W) -> Pair<L> {
        let lanes = self.lanes;
        let fixed = lanes.splat_64(Self::FIXED);
        let Group { position, sum, window, passed } = self.groups[group];
        let (first, second, middle, next);
        if CAREFUL {
            let limit = lanes.splat_64(64 - Self::FIXED);
            let (window, passed) = self.look(position);
            first = self.code(window);
            let bits = lanes.add_64(passed, first.quotient);
            *left = lanes.or_64(*left, lanes.sub_64(limit, bits));
            middle = lanes.add_64(lanes.add_64(position, fixed), first.quotient);
            let (window, passed) = self.look(middle);
            second = self.code(window);
            let bits = lanes.add_64(passed, second.quotient);
            *left = lanes.or_64(*left, lanes.sub_64(limit, bits));
            let position = lanes.add_64(lanes.add_64(middle, fixed), second.quotient);
            let (window, passed) = self.look(position);
            next = Group { position, sum, window, passed };
        } else {
            // Load the next window already: the load takes as long as decoding the codes of this
            // window.
            let least = lanes.add_64(position, lanes.splat_64(2 * Self::FIXED));
            let (next_window, next_passed) = self.look(least);
            first = self.code(window);
            second = self.code(lanes.shl_each_64(first.rest, fixed));
            middle = lanes.add_64(lanes.add_64(position, fixed), first.quotient);
            let ones = lanes.add_64(first.quotient, second.quotient);
            let limit = lanes.sub_64(lanes.splat_64(64 - 2 * Self::FIXED), passed);
            *left = lanes.or_64(*left, lanes.sub_64(limit, ones));
            next = Group {
                position: lanes.add_64(least, ones),
                sum,
                window: lanes.shl_each_64(next_window, ones),
                passed: lanes.add_64(next_passed, ones),
            };
        }
        let sum_1 = lanes.add_64(sum, first.value);
        let sum_2 = lanes.add_64(sum_1, second.value);
        self.groups[group] = Group { sum: sum_2, ..next };
        Pair { sums: [sum_1, sum_2], ends: [middle, next.position] }
    }

    /// Transposes the rows: writes the number of parser `j` in row `i` to element `i` of `to[j]`.
    #[inline(always)]
    fn turn(&self, rows: &[Block; BLOCK], to: [&mut Block; 8]) {
        let lanes = self.lanes;
        let rows = [
            lanes.load_64(&rows[0]),
            lanes.load_64(&rows[1]),
            lanes.load_64(&rows[2]),
            lanes.load_64(&rows[3]),
            lanes.load_64(&rows[4]),
            lanes.load_64(&rows[5]),
            lanes.load_64(&rows[6]),
            lanes.load_64(&rows[7]),
        ];
        lanes.store_columns_64(rows, to);
    }
}

impl<L: Lanes, const P: u32> Chains<16> for LaneChains<'_, L, P> {
    type Scratch = [Rows; 2];

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
    fn positions(&self) -> [u64; 16] {
        let mut positions = [0; 16];
        for group in 0..2 {
            self.lanes.store_slice_64(self.groups[group].position, &mut positions[group * 8..]);
        }
        positions
    }

    #[inline(always)]
    fn take<const CAREFUL: bool, const KEEP: bool>(
        &mut self,
        scratch: &mut [Rows; 2],
        sums: &mut [&mut [Block]; 16],
        at: usize,
        ends: &mut [Block; 16],
    ) -> bool {
        // A lane turns negative as soon as a code was longer than its window.
        let lanes = self.lanes;
        let mut left = lanes.splat_64(0);
        for pair in 0..BLOCK / 2 {
            // Alternate between the groups, so that the loads of both are in flight at the same
            // time.
            for (group, rows) in scratch.iter_mut().enumerate() {
                let Pair { sums, ends } = self.pair::<CAREFUL>(group, &mut left);
                lanes.store_64(sums[0], &mut rows.sums[pair * 2]);
                lanes.store_64(sums[1], &mut rows.sums[pair * 2 + 1]);
                if KEEP {
                    lanes.store_64(ends[0], &mut rows.ends[pair * 2]);
                    lanes.store_64(ends[1], &mut rows.ends[pair * 2 + 1]);
                }
            }
        }
        for (group, rows) in scratch.iter().enumerate() {
            let [a, b, c, d, e, f, g, h] = &mut sums.as_chunks_mut().0[group];
            let to = [
                &mut a[at], &mut b[at], &mut c[at], &mut d[at], &mut e[at], &mut f[at], &mut g[at],
                &mut h[at],
            ];
            self.turn(&rows.sums, to);
            if KEEP {
                let to: &mut [Block; 8] = &mut ends.as_chunks_mut().0[group];
                self.turn(&rows.ends, to.each_mut());
            }
        }
        lanes.test_bit_64(left, lanes.splat_64(63)) == 0
    }
}
