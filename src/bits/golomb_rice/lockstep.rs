//! One stream parsed at several places at once.
//!
//! A parser that starts at any bit soon falls in with the true codes: each of its codes ends where
//! a true one does by a chance of one in their mean length. So the bits are parsed from places
//! equally far apart, each parser somewhat past the start of the next. Where it then stands is the
//! end of a code that the next parser has read too, mostly; what that read before was wrong, and
//! is dropped. Where the two never meet, nothing comes of it, and the caller parses from the
//! start.

use alloc::vec::Vec;
use core::ops::Range;

use super::chains::{BLOCK, Chains, Rows};
use super::take;
use crate::bits::bit_stream::BitReader;

/// How many codes a parser reads, at least, past the start of the next. One in thirty pairs of
/// parsers has not met by then; more codes cost more than looking on.
const OVERLAP: usize = 72;

/// The codes that are left for the end, so that no parser reads past it.
const LEFT: usize = 8;

/// The blocks of which the ends of codes are kept: those around the overlap.
const KEPT: usize = 6;

/// Replaces `sums` by those of most of the `count` codes, and returns the bit where they end.
/// `None` where this is not faster or does not work out; `sums` is undefined then.
///
/// # Cost
/// Where it does not work out, at most about as much as parsing from the start.
#[inline(always)]
pub(super) fn take_sums<const C: usize>(
    chains: impl Chains<C>,
    codes: &[u8],
    p: u8,
    count: usize,
    sums: &mut Vec<u64>,
) -> Option<u64> {
    let plan = Plan::new(C, codes, p, count)?;
    // A tenth or two more than there are codes.
    sums.resize(plan.each * C, 0);
    let mut starts = [0; C];
    for (start, index) in starts.iter_mut().zip(0..) {
        *start = plan.spacing * index;
    }
    let mut kept = [[[0; C]; BLOCK]; KEPT];
    let ends = parse(chains.at(&starts), &plan, sums, &mut kept)?;
    // The last windows were true if they lay inside.
    let last_window = (codes.len() as u64 - 8) * 8;
    if ends.iter().any(|&end| end > last_window) {
        return None;
    }
    let found = find(&kept, &ends);
    Parsed { codes, p: p.into(), plan, starts, ends, kept, found }.join(count, sums)
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
    /// `None` where `chains` parsers are no faster than one.
    pub(super) fn new(chains: usize, codes: &[u8], p: u8, count: usize) -> Option<Self> {
        let bits = codes.len() as u64 * 8;
        let goal = count.checked_sub(LEFT)?;
        let each = (goal + (chains - 1) * OVERLAP).div_ceil(chains).next_multiple_of(BLOCK);
        // With few codes most are read twice; of two long ones, a window rarely shows both. No sum
        // overflows: none is more than the bits times two to the `p`.
        if goal < each * 3 || bits > 26 * count as u64 || p > 24 || bits > 1 << 38 {
            return None;
        }
        let apart = (goal - each) / (chains - 1);
        let spacing = (goal - each) as u64 * bits / (count * (chains - 1)) as u64;
        let first_kept = ((each - apart) / BLOCK).saturating_sub(KEPT / 2);
        Some(Self { each, spacing, first_kept })
    }
}

/// Has the parsers read their codes, and returns where they end. Parser `c` has its sums from
/// `c * each` on.
#[inline(always)]
fn parse<const C: usize>(
    mut chains: impl Chains<C>,
    plan: &Plan,
    sums: &mut [u64],
    kept: &mut [Rows<C>; KEPT],
) -> Option<[u64; C]> {
    let mut block_sums = [[0; C]; BLOCK];
    let mut block_ends = [[0; C]; BLOCK];
    for block in 0..plan.each / BLOCK {
        let before = chains;
        if !chains.take::<false>(&mut block_sums, &mut block_ends) {
            chains = before;
            if !chains.take::<true>(&mut block_sums, &mut block_ends) {
                return None;
            }
        }
        if let Some(kept) =
            block.checked_sub(plan.first_kept).and_then(|kept_at| kept.get_mut(kept_at))
        {
            *kept = block_ends;
        }
        for chain in 0..C {
            let to: &mut [u64; BLOCK] =
                sums.get_mut(chain * plan.each + block * BLOCK..)?.first_chunk_mut()?;
            for code in 0..BLOCK {
                to[code] = block_sums[code][chain];
            }
        }
    }
    Some(block_ends[BLOCK - 1])
}

/// Of each parser, the number of its kept codes up to where the one before ended; 0 if it is not
/// among them.
#[inline(always)]
fn find<const C: usize>(kept: &[Rows<C>; KEPT], ends: &[u64; C]) -> [u64; C] {
    let mut wanted = [u64::MAX; C];
    wanted[1..].copy_from_slice(&ends[..C - 1]);
    let mut found = [0; C];
    for (number, row) in (1..).zip(kept.as_flattened()) {
        for chain in 0..C {
            found[chain] = if row[chain] == wanted[chain] { number } else { found[chain] };
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
    kept: [Rows<C>; KEPT],
    found: [u64; C],
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
            let found = usize::try_from(self.found[chain]).ok()?;
            let (missing, wrong) = if found > 0 {
                (0, self.plan.first_kept * BLOCK + found)
            } else {
                self.look_on(chain, &mut steps)?
            };
            // What is moved stays at the start of what is read.
            let from = chain * each + wrong;
            if wrong > each || length + missing > from {
                return None;
            }
            // Sums from wrong codes may be larger than the right one; so the base wraps.
            let of_wrong = if wrong == 0 { 0 } else { sums[from - 1] };
            for _ in 0..missing {
                sums[length] = sums[length - 1] + take(&mut reader, self.p)?;
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
        let kept = self.kept.as_flattened().iter().map(|ends| ends[chain]);
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
                take(&mut reader, self.p)?;
                missing += 1;
            } else {
                take(&mut other, self.p)?;
                wrong += 1;
            }
        }
        Some((missing, wrong))
    }
}

/// Adds `base` to sums, and moves them to `to`, which is before them.
#[inline(always)]
fn add_and_move(sums: &mut [u64], mut from: Range<usize>, mut to: usize, base: u64) {
    while from.len() >= BLOCK {
        let mut block: [u64; BLOCK] = *sums[from.start..].first_chunk().expect("a block's length");
        for sum in &mut block {
            *sum = sum.wrapping_add(base);
        }
        sums[to..][..BLOCK].copy_from_slice(&block);
        from.start += BLOCK;
        to += BLOCK;
    }
    for at in from {
        sums[to] = sums[at].wrapping_add(base);
        to += 1;
    }
}
