//! Whole filters as bits: counted, folded.

use super::places::word_and_bit;
use crate::words::{NoMemory, Words};

/// Every second bit, from the lowest.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The bits of a word after [`fold`], each where the first of its two was.
pub(super) const fn pairs(word: u64) -> u64 {
    (word | word >> 1) & EVEN
}

fn count(words: &[u64], kept: impl Fn(u64) -> u64) -> u64 {
    words.iter().map(|word| u64::from(kept(*word).count_ones())).sum()
}

/// How many bits are set of those that `kept` leaves, from one place to before another.
pub(super) fn count_between(
    words: &[u64],
    from: u64,
    to: u64,
    kept: impl Fn(u64) -> u64 + Copy,
) -> u64 {
    let ((first, skipped), (last, taken)) = (word_and_bit(from), word_and_bit(to));
    let low_bits = |at: usize, bits: u32| {
        let word = kept(words.get(at).copied().unwrap_or_default());
        u64::from((word & ((1 << bits) - 1)).count_ones())
    };
    let whole = count(words.get(first..last).unwrap_or_default(), kept);
    whole + low_bits(last, taken) - low_bits(first, skipped)
}

/// Half as many bits: bit `i` is bit `2i` or bit `2i + 1`.
pub(super) fn fold(words: &[u64], num_bits: u64) -> Result<Words, NoMemory> {
    let mut folded = Words::zeroed((num_bits / 2).div_ceil(64))?;
    for (to, from) in folded.as_mut().iter_mut().zip(words.chunks(2)) {
        let half = |at: usize| from.get(at).map_or(0, |word| gather_even(word | word >> 1));
        *to = half(0) | half(1) << 32;
    }
    Ok(folded)
}

/// The even bits of a word, moved together.
const fn gather_even(word: u64) -> u64 {
    let mut bits = word & EVEN;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) & 0xffff_ffff
}
