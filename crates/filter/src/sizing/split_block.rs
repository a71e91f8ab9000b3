//! Sizes of split-block Bloom filters: each key has one block, and sets one bit in each of the
//! block's eight words.
//!
//! With `j` keys in a block, the mean fraction of set bits in a word of `w` bits is `1 - (1 -
//! 1/w)^j`. Words are independent of each other, so the rate of the block is exactly the eighth
//! power of this fraction. `j` is binomially distributed, because `n` keys are spread over the
//! blocks, and the rate of the filter is the mean over `j`.
//!
//! The classic formula assumes the mean load for every block. The rate by this formula is too low,
//! because full blocks raise the rate more than empty blocks lower it (Putze, Sanders, Singler
//! 2007). Filters sized by the classic formula have up to 5 times the requested rate.
//!
//! This module ignores keys with equal hashes, and hash bits that a layout does not use. Parquet's
//! layout computes the positions in a block from 32 bits of the hash, so keys of one block that
//! agree in these bits have equal positions. Keys with equal positions add `load·2⁻³²` to the rate,
//! which matters for rates below 10⁻⁸.

use super::SizingError;
use super::math::{any_of, ceil, checked, float, floor, greatest, least, mean_over_load};
use crate::words::NoMemory;

/// Number of words in a block, and number of bits that a key sets.
const WORDS: u32 = 8;
/// Greatest number of blocks. No computer has memory for more blocks.
const MAX_BLOCKS: u64 = 1 << 50;

/// Returns the rate of a filter with `n` distinct keys in `num_blocks` blocks of eight words.
/// `word_bits` is 64 for blocks of 512 bits, and 32 for blocks of 256 bits.
pub fn fpr(n: u64, num_blocks: u64, word_bits: u32) -> f64 {
    let cell = 1.0 / f64::from(word_bits.max(1));
    mean_over_load(n, num_blocks, |load| libm::pow(any_of(load, cell), f64::from(WORDS)))
}

/// Returns the smallest number of blocks for `n` keys with a rate of at most `fpr`. Zero keys need
/// as many blocks as one key.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, or if the filter would be larger than any
/// memory.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::split_block;
/// let blocks = split_block::num_blocks(1_000_000, 0.01, 64)?;
/// assert_eq!(blocks * 512 / 1_000_000, 10);
/// # Ok::<(), chainsieve_filter::sizing::SizingError>(())
/// ```
pub fn num_blocks(n: u64, fpr: f64, word_bits: u32) -> Result<u64, SizingError> {
    let n = n.max(1);
    // The search starts at the size that would be right if every block had the mean load.
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(WORDS));
    let load = libm::log1p(-share) / libm::log1p(-1.0 / f64::from(word_bits.max(2)));
    let guess = float(n) / load;
    let fits = |blocks| self::fpr(n, blocks, word_bits) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    let words = MAX_BLOCKS * u64::from(WORDS);
    blocks.ok_or(SizingError::NoMemory(NoMemory { words }))
}

/// Returns the greatest number of keys for which `num_blocks` blocks have a rate of at most `fpr`.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn capacity(num_blocks: u64, fpr: f64, word_bits: u32) -> Result<u64, SizingError> {
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(WORDS));
    let load = libm::log1p(-share) / libm::log1p(-1.0 / f64::from(word_bits.max(2)));
    let fits = |n| self::fpr(n, num_blocks, word_bits) <= fpr;
    Ok(greatest(floor(load * float(num_blocks)), MAX_BLOCKS << 6, fits))
}
