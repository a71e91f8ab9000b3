//! Parsing of one Golomb-Rice stream at several positions at once.
//!
//! A Golomb-Rice stream synchronises itself. A parser that starts at an arbitrary bit soon reads
//! the true codes: with a probability of one divided by the mean code length, a code that it reads
//! ends where a true code ends. So `C` parsers start at equally spaced positions, and each reads
//! somewhat past the start of the next parser.
//!
//! The position where a parser stops is usually also the end of a code that the next parser has
//! read. The codes that the next parser read before this common position are dropped: these codes
//! are wrong, or the preceding parser has read them too. If two neighbouring parsers never reach a
//! common position, the attempt fails, and the caller parses the stream from its start with one
//! parser.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::chains::{BLOCK, Block, Chains};
use super::take as one;
use crate::bits::bit_stream::BitReader;

/// Least number of codes that a parser reads past the start of the next parser. At 72 codes, one in
/// thirty pairs of parsers has no common position yet. For pairs without a common position, the
/// search continues, which costs less than a longer overlap for all parsers.
const OVERLAP: usize = 72;

/// Number of blocks, around the overlap, for which the ends of the codes are kept.
const KEPT: usize = 6;

/// Replaces `sums` by the running sums of most of the `count` codes. Returns the bit where the last
/// of those codes ends. Returns `None` if the parsers do not synchronise, and leaves unspecified
/// contents in `sums`.
///
/// # Cost
/// A failed attempt costs at most about as much as parsing from the start.
#[inline(always)]
pub(super) fn take_sums<const C: usize>(
    chains: impl Chains<C>,
    codes: &[u8],
    p: u32,
    count: usize,
    sums: &mut Vec<u64>,
) -> Option<u64> {
    let plan = Plan::new(C, codes, count)?;
    // Because of the overlaps, `sums` usually gets more entries than there are codes.
    sums.resize(plan.each * C, 0);
    let mut starts = [0; C];
    for (start, index) in starts.iter_mut().zip(0..) {
        *start = plan.spacing * index;
    }
    let mut kept = [[[0; BLOCK]; C]; KEPT];
    let ends = parse(chains.at(&starts), &plan, sums, &mut kept)?;
    // A window that starts after this bit reaches past the end of the bytes, so its codes are
    // unreliable.
    let last_window = (codes.len() as u64 - 8) * 8;
    if ends.iter().any(|&end| end > last_window) {
        return None;
    }
    let found = find(&kept, &ends);
    Parsed { codes, p, plan, starts, ends, kept, found }.join(count, sums)
}

/// Division of the codes among the parsers.
pub(super) struct Plan {
    /// Number of codes that each parser reads.
    pub(super) each: usize,
    /// Bits between the starts of two neighbouring parsers.
    spacing: u64,
    /// The first block for which the ends of the codes are kept.
    first_kept: usize,
}

impl Plan {
    /// Returns the division of `count` codes among `chains` parsers. Returns `None` if there are
    /// too few codes for so many parsers, or if the codes are unusually long.
    pub(super) fn new(chains: usize, codes: &[u8], count: usize) -> Option<Self> {
        let bits = codes.len() as u64 * 8;
        // The last parser has to stop at least 8 bytes before the end of the bytes, because it
        // loads a window of 8 bytes. The position where the last parser stops is estimated from the
        // mean code length, so the error of this estimate is added to the required distance. The
        // error grows as the square root of the number of codes.
        let goal = count.checked_sub(8 + count.isqrt() / 8)?;
        let each = (goal + (chains - 1) * OVERLAP).div_ceil(chains).next_multiple_of(BLOCK);
        // Unusually long codes are rejected, because a window rarely contains two whole codes of
        // that length. No sum overflows: each is at most the number of bits times two to the power
        // `p`.
        let is_usual = (count as u64..26 * count as u64).contains(&bits) && bits < 1 << 38;
        if each >= goal || !is_usual {
            return None;
        }
        let apart = (goal - each) / (chains - 1);
        let spacing = (goal - each) as u64 * bits / (count * (chains - 1)) as u64;
        let first_kept = ((each - apart) / BLOCK).saturating_sub(KEPT / 2);
        // Each parser must read all blocks whose ends are kept.
        (first_kept + KEPT <= each / BLOCK).then_some(Self { each, spacing, first_kept })
    }
}

/// Lets each parser read its codes, and returns the positions where the parsers end. The sums of
/// parser `c` start at `c * each`.
#[inline(always)]
fn parse<const C: usize, K: Chains<C>>(
    mut chains: K,
    plan: &Plan,
    sums: &mut [u64],
    kept: &mut [[Block; C]; KEPT],
) -> Option<[u64; C]> {
    let blocks = plan.each / BLOCK;
    let mut rest = sums.as_chunks_mut().0;
    let mut sums: [&mut [Block]; C] = [(); C].map(|()| Default::default());
    for sums in &mut sums {
        (*sums, rest) = mem::take(&mut rest).split_at_mut_checked(blocks)?;
    }
    let mut scratch = K::Scratch::default();
    let mut none = [[0; BLOCK]; C];
    for block in 0..blocks {
        let before = chains;
        let kept = block.checked_sub(plan.first_kept).and_then(|block| kept.get_mut(block));
        let (keep, ends) = (kept.is_some(), kept.unwrap_or(&mut none));
        let is_whole = if keep {
            chains.take::<false, true>(&mut scratch, &mut sums, block, ends)
        } else {
            chains.take::<false, false>(&mut scratch, &mut sums, block, ends)
        };
        // Read the block again in the slower mode, which handles longer codes.
        if !is_whole {
            chains = before;
            if !chains.take::<true, true>(&mut scratch, &mut sums, block, ends) {
                return None;
            }
        }
    }
    Some(chains.positions())
}

/// Returns for each parser the number of its kept codes that the previous parser has parsed too:
/// those that end at or before the position at which the previous parser stopped. The number is 0
/// if no kept code ends exactly where the previous parser stopped.
#[inline(always)]
fn find<const C: usize>(kept: &[[Block; C]; KEPT], ends: &[u64; C]) -> [usize; C] {
    let mut found = [0; C];
    for chain in 1..C {
        for (block, columns) in kept.iter().enumerate() {
            for (code, end) in columns[chain].iter().enumerate() {
                if *end == ends[chain - 1] {
                    found[chain] = block * BLOCK + code + 1;
                }
            }
        }
    }
    found
}

/// Results of the parsers, besides the sums.
struct Parsed<'a, const C: usize> {
    codes: &'a [u8],
    p: u32,
    plan: Plan,
    starts: [u64; C],
    ends: [u64; C],
    kept: [[Block; C]; KEPT],
    found: [usize; C],
}

impl<const C: usize> Parsed<'_, C> {
    /// Joins the sums of all parsers: moves each parser's sums to the end of the joined sums, and
    /// adds the last joined sum to each of them.
    #[inline(always)]
    fn join(&self, count: usize, sums: &mut Vec<u64>) -> Option<u64> {
        let each = self.plan.each;
        // Bounds the total work of the search for common positions after the overlaps.
        let mut steps = count / 4;
        let mut length = each;
        for chain in 1..C {
            let mut reader = BitReader::at(self.codes, self.ends[chain - 1]);
            let (missing, wrong) = match self.found[chain] {
                0 => self.look_on(chain, &mut steps)?,
                found => (0, self.plan.first_kept * BLOCK + found),
            };
            // The joined sums must not overwrite sums that are still to be read.
            let from = chain * each + wrong;
            if wrong > each || length + missing > from {
                return None;
            }
            // The subtraction wraps, because the difference may be negative: the sum of the wrong
            // codes may be larger than the joined sum.
            let of_wrong = if wrong == 0 { 0 } else { sums[from - 1] };
            for _ in 0..missing {
                sums[length] = sums[length - 1] + one(&mut reader, self.p)?;
                length += 1;
            }
            let base = sums[length - 1].wrapping_sub(of_wrong);
            add_and_move(sums, from..chain * each + each, length, base);
            length += each - wrong;
        }
        sums.truncate(length);
        (length <= count).then_some(self.ends[C - 1])
    }

    /// Continues code by code from the end of the previous parser, until it reaches the end of a
    /// code of parser `chain`. Returns the number of codes that both parsers missed, and the number
    /// of codes of `chain` that are wrong.
    #[cold]
    fn look_on(&self, chain: usize, steps: &mut usize) -> Option<(usize, usize)> {
        let mut reader = BitReader::at(self.codes, self.ends[chain - 1]);
        let kept = self.kept.iter().flat_map(|columns| columns[chain]);
        let mut missing = 0;
        let (mut wrong, mut start) = (0, self.starts[chain]);
        for (number, end) in (self.plan.first_kept * BLOCK + 1..).zip(kept) {
            if end <= reader.position() {
                (wrong, start) = (number, end);
            }
        }
        let mut other = BitReader::at(self.codes, start);
        while reader.position() != other.position() {
            *steps = steps.checked_sub(1)?;
            if reader.position() < other.position() {
                one(&mut reader, self.p)?;
                missing += 1;
            } else {
                one(&mut other, self.p)?;
                wrong += 1;
            }
        }
        Some((missing, wrong))
    }
}

/// Adds `base` to the sums of the range `from`, and moves them to `to`, which is at most
/// `from.start`.
#[inline(always)]
fn add_and_move(sums: &mut [u64], mut from: Range<usize>, mut to: usize, base: u64) {
    let apart = from.start - to;
    if apart == 0 {
        for sum in &mut sums[from] {
            *sum = sum.wrapping_add(base);
        }
        return;
    }
    while !from.is_empty() {
        let (before, behind) = sums.split_at_mut(from.start);
        let moved = apart.min(from.len());
        for (to, from) in before[to..].iter_mut().zip(&behind[..moved]) {
            *to = from.wrapping_add(base);
        }
        from.start += moved;
        to += moved;
    }
}
