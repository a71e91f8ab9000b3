//! Golomb-Rice codes: a quotient in unary, followed by a remainder of `p` bits, with `p` at most
//! 32.
//!
//! Source: BIP158, "Golomb-Rice Coding".

mod chains;
mod lockstep;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::chains::{Chains, LaneChains, PlainChains};
use super::bit_stream::{BitReader, BitWriter, WINDOW_BITS};
use crate::simd::{Backend, Kernel, Lanes};

/// Reads one code. Returns `None` if the bytes end first. A value that does not fit 64 bits
/// saturates.
#[inline]
pub fn take(reader: &mut BitReader<'_>, p: u32) -> Option<u64> {
    if let Some(window) = reader.window() {
        let (value, bits) = in_window(!window, p);
        if bits <= WINDOW_BITS {
            reader.skip(bits);
            return Some(value);
        }
    }
    let quotient = reader.take_unary()?;
    let remainder = reader.take_bits(p)?;
    Some(quotient.saturating_mul(1 << p) | remainder)
}

/// Decodes the code at the top of a window whose bits are inverted. Returns the value and the
/// length of the code, in bits. If the window does not show the whole code, the length is above
/// [`WINDOW_BITS`], and the value is wrong.
#[inline(always)]
fn in_window(inverted: u64, p: u32) -> (u64, u32) {
    // The lowest bit lies outside the [`WINDOW_BITS`] guaranteed bits. The lowest bit is set, so
    // that the search always finds the end of a quotient.
    let quotient = (inverted | 1).leading_zeros();
    // The zero and the remainder after it, both inverted.
    let rest = inverted << quotient >> (63 - p);
    ((u64::from(quotient) << p) + ((2 << p) - 1 - rest), quotient + 1 + p)
}

/// The remainder size that is parsed in lockstep: the `P` of BIP158's basic filter.
const BASIC_P: u32 = 19;

/// Below this number of codes, four parsers are no faster than one: the overlaps are too large a
/// part of the work.
const PLAIN_CHAINS_FROM: usize = 600;

/// Below this number of codes, sixteen parsers are no faster than four.
const LANE_CHAINS_FROM: usize = 1_100;

/// Replaces `sums` by the running sums of the values of `count` codes, one sum after each code.
/// Returns the bit where the last code ends. Sums saturate. Returns `None` if the bytes end first;
/// `sums` then contains the sums of the codes that were read.
///
/// Allocates memory for up to 2.1 times `count` sums, so the caller has to bound `count`.
pub fn sums(
    backend: Backend,
    codes: &[u8],
    p: u8,
    count: usize,
    sums: &mut Vec<u64>,
) -> Option<u64> {
    backend.run(TakeAll { codes, p: p.into(), count, sums })
}

struct TakeAll<'a> {
    codes: &'a [u8],
    p: u32,
    count: usize,
    sums: &'a mut Vec<u64>,
}

impl TakeAll<'_> {
    #[inline(always)]
    fn one_by_one(self) -> Option<u64> {
        self.sums.clear();
        self.from(0)
    }

    /// Reads most of the codes in lockstep where that is faster, and the remaining ones one by one.
    #[inline(always)]
    fn in_lockstep<const C: usize>(self, chains: impl Chains<C>) -> Option<u64> {
        match lockstep::take_sums(chains, self.codes, self.p, self.count, self.sums) {
            Some(position) => self.from(position),
            None => self.one_by_one(),
        }
    }

    /// Reads the remaining codes, from bit `position` on.
    #[inline(always)]
    fn from(self, position: u64) -> Option<u64> {
        let mut reader = BitReader::at(self.codes, position);
        take_sums(&mut reader, self.p, self.count, self.sums)?;
        Some(reader.position())
    }
}

impl Kernel for TakeAll<'_> {
    type Output = Option<u64>;

    #[inline(always)]
    fn scalar(self) -> Option<u64> {
        if self.p != BASIC_P || self.count < PLAIN_CHAINS_FROM {
            return self.one_by_one();
        }
        let chains = PlainChains::<BASIC_P>::new(self.codes);
        self.in_lockstep(chains)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Option<u64> {
        // Four lanes of 64 bits are no faster than general-purpose registers.
        if L::LANES < 8 || self.p != BASIC_P || self.count < LANE_CHAINS_FROM {
            return self.scalar();
        }
        let chains = LaneChains::<L, BASIC_P>::new(lanes, self.codes);
        self.in_lockstep(chains)
    }
}

/// Reads codes until `sums` has `count` entries. Each entry is the sum of the previous entry (0
/// before the first) and the value of the code. Returns `None` if the bytes end first. Sums
/// saturate.
///
/// # Cost
/// About 7 cycles per code: the position of each code depends on the previous code.
#[inline(always)]
fn take_sums(reader: &mut BitReader<'_>, p: u32, count: usize, sums: &mut Vec<u64>) -> Option<()> {
    sums.reserve(count - sums.len());
    let mut sum = sums.last().copied().unwrap_or(0);
    while sums.len() < count {
        if let Some(window) = reader.window() {
            let (first, first_bits) = in_window(!window, p);
            let (second, second_bits) = in_window(!window << (first_bits & 63), p);
            let bits = first_bits + second_bits;
            if bits <= WINDOW_BITS && sums.len() + 1 < count {
                reader.skip(bits);
                let pair = [sum.saturating_add(first), sum.saturating_add(first + second)];
                sums.extend(pair);
                [_, sum] = pair;
                continue;
            }
        }
        sum = sum.saturating_add(take(reader, p)?);
        sums.push(sum);
    }
    Some(())
}

/// Returns the length of the code of `value`, in bits.
#[inline]
pub fn code_bits(value: u64, p: u8) -> u64 {
    (value >> p) + 1 + u64::from(p)
}

/// Writes the code of `value`.
#[inline]
pub fn put(writer: &mut BitWriter, value: u64, p: u8) {
    let p = u32::from(p);
    let mut quotient = value >> p;
    let remainder = value & ((1 << p) - 1);
    if quotient + u64::from(p) < 32 {
        let ones = (2 << quotient) - 2;
        #[expect(clippy::cast_possible_truncation, reason = "below 32")]
        return writer.put(ones << p | remainder, quotient as u32 + 1 + p);
    }
    while quotient > 0 {
        let ones = quotient.min(32);
        writer.put((1 << ones) - 1, ones as u32);
        quotient -= ones;
    }
    writer.put(0, 1);
    writer.put(remainder, p);
}
