//! One stream parsed at several places at once.
//!
//! A parser that starts at any bit soon falls in with the true codes: each of its codes ends where
//! a true one does by a chance of one in their mean length. So the bits are parsed from places
//! equally far apart, each parser somewhat past the start of the next. Where it then stands is the
//! end of a code that the next parser has read too, mostly; what that read before was wrong, and
//! is dropped. Where the two never meet, nothing comes of it, and the caller parses from the
//! start.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::chains::{BLOCK, Block, Chains};
use super::take as one;
use crate::bits::bit_stream::BitReader;

/// How many codes a parser reads, at least, past the start of the next. One in thirty pairs of
/// parsers has not met by then; more codes cost more than looking on.
const OVERLAP: usize = 72;

/// The blocks of which the ends of codes are kept: those around the overlap.
const KEPT: usize = 6;

/// Replaces `sums` by those of most of the `count` codes, and returns the bit where they end.
/// `None` where it does not work out; `sums` is undefined then.
///
/// # Cost
/// Where it does not work out, at most about as much as parsing from the start.
#[inline(always)]
pub(super) fn take_sums<const C: usize>(
    chains: impl Chains<C>,
    codes: &[u8],
    p: u32,
    count: usize,
    sums: &mut Vec<u64>,
) -> Option<u64> {
    let plan = Plan::new(C, codes, count)?;
    // A tenth or two more than there are codes.
    sums.resize(plan.each * C, 0);
    let mut starts = [0; C];
    for (start, index) in starts.iter_mut().zip(0..) {
        *start = plan.spacing * index;
    }
    let mut kept = [[[0; BLOCK]; C]; KEPT];
    let ends = parse(chains.at(&starts), &plan, sums, &mut kept)?;
    // The last windows were true if they lay inside.
    let last_window = (codes.len() as u64 - 8) * 8;
    if ends.iter().any(|&end| end > last_window) {
        return None;
    }
    let found = find(&kept, &ends);
    Parsed { codes, p, plan, starts, ends, kept, found }.join(count, sums)
}

/// Who parses how much.
pub(super) struct Plan {
    /// The codes of each parser.
    pub(super) each: usize,
    /// The bits between the starts of two.
    spacing: u64,
    /// The first block of which the ends are kept.
    first_kept: usize,
}

impl Plan {
    /// `None` where there is too little for `chains` parsers, or the codes are long.
    pub(super) fn new(chains: usize, codes: &[u8], count: usize) -> Option<Self> {
        let bits = codes.len() as u64 * 8;
        // The last parser, too, is to stop before the end: by the 8 bytes of a window, and by how
        // far off the mean length of a code leads, which grows as the square root.
        let goal = count.checked_sub(8 + count.isqrt() / 8)?;
        let each = (goal + (chains - 1) * OVERLAP).div_ceil(chains).next_multiple_of(BLOCK);
        // Of two long codes, a window rarely shows both. No sum overflows: none is more than the
        // bits times two to the `p`.
        let is_usual = (count as u64..26 * count as u64).contains(&bits) && bits < 1 << 38;
        if each >= goal || !is_usual {
            return None;
        }
        let apart = (goal - each) / (chains - 1);
        let spacing = (goal - each) as u64 * bits / (count * (chains - 1)) as u64;
        let first_kept = ((each - apart) / BLOCK).saturating_sub(KEPT / 2);
        // All that are kept are read.
        (first_kept + KEPT <= each / BLOCK).then_some(Self { each, spacing, first_kept })
    }
}

/// Has the parsers read their codes, and returns where they end. Parser `c` has its sums from
/// `c * each` on.
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
        if !is_whole {
            chains = before;
            if !chains.take::<true, true>(&mut scratch, &mut sums, block, ends) {
                return None;
            }
        }
    }
    Some(chains.positions())
}

/// Of each parser, the number of its kept codes up to where the one before ended; 0 if it is not
/// among them.
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

/// What the parsers have read, besides the sums.
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
    /// Moves the sums together, each parser's on top of those before.
    #[inline(always)]
    fn join(&self, count: usize, sums: &mut Vec<u64>) -> Option<u64> {
        let each = self.plan.each;
        // For parsers that have not met.
        let mut steps = count / 4;
        let mut length = each;
        for chain in 1..C {
            let mut reader = BitReader::at(self.codes, self.ends[chain - 1]);
            let (missing, wrong) = match self.found[chain] {
                0 => self.look_on(chain, &mut steps)?,
                found => (0, self.plan.first_kept * BLOCK + found),
            };
            // What is moved stays at the start of what is read.
            let from = chain * each + wrong;
            if wrong > each || length + missing > from {
                return None;
            }
            // Sums from wrong codes may be larger than the right one; so the base wraps.
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

    /// Goes on, code by code, from where the parser before `chain` ended to the end of a code of
    /// `chain`: the codes up to there, and those of `chain`.
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

/// Adds `base` to sums, and moves them to `to`, which is not behind them.
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
