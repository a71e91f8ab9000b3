//! Operations on the bits of a whole filter: counting and folding.

use super::places::word_and_bit;
use crate::words::{NoMemory, Words};

/// A mask of the even bits of a word: bits 0, 2, 4, and so on.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Combines each pair of bits as [`fold`] does, but leaves the result at the position of the pair's
/// first bit.
pub(super) const fn pairs(word: u64) -> u64 {
    (word | word >> 1) & EVEN
}

fn count(words: &[u64], kept: impl Fn(u64) -> u64) -> u64 {
    words.iter().map(|word| u64::from(kept(*word).count_ones())).sum()
}

/// Counts the bits that are set at positions `from..to`, after `kept` was applied to each word.
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

/// Returns half as many bits: bit `i` of the result is the bitwise OR of bits `2i` and `2i + 1` of
/// `words`.
pub(super) fn fold(words: &[u64], num_bits: u64) -> Result<Words, NoMemory> {
    let mut folded = Words::zeroed((num_bits / 2).div_ceil(64))?;
    for (to, from) in folded.as_mut().iter_mut().zip(words.chunks(2)) {
        let half = |at: usize| from.get(at).map_or(0, |word| gather_even(word | word >> 1));
        *to = half(0) | half(1) << 32;
    }
    Ok(folded)
}

/// Moves the even bits of a word together into its low half.
const fn gather_even(word: u64) -> u64 {
    let mut bits = word & EVEN;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) & 0xffff_ffff
}
