//! Split-block Bloom filters: a key has one block, and one bit in each of its eight words.
//!
//! With `j` keys in a block a word of `w` bits has the share `1 - (1 - 1/w)^j` of its bits set on
//! average, words don't depend on each other, and the rate is that to the eighth power: exact.
//! `j` is binomial (`n` keys over the blocks); the rate of the filter is the mean over `j`. Taking
//! the mean load for every block instead, as sizing by the classic formula does, is too low,
//! because full blocks cost more than empty ones gain (Putze, Sanders, Singler 2007): filters so
//! sized have up to 5 times the rate asked for.
//!
//! What this misses: keys of equal hash, and what a layout cuts off a hash. Parquet's takes the
//! positions in the block from 32 bits, so keys of a block that agree in those have equal
//! positions: `load·2⁻³²` more, which counts from 10⁻⁸ downwards.

use super::SizingError;
use super::math::{any_of, ceil, checked, float, floor, greatest, least, mean_over_load};
use crate::words::NoMemory;

/// Words of a block, and bits of a key.
const WORDS: u32 = 8;
/// No memory has more blocks.
const MAX_BLOCKS: u64 = 1 << 50;

/// The rate with `n` distinct keys in so many blocks of eight words of `word_bits` bits: 64 for
/// blocks of 512 bits, 32 for blocks of 256.
pub fn fpr(n: u64, num_blocks: u64, word_bits: u32) -> f64 {
    let cell = 1.0 / f64::from(word_bits.max(1));
    mean_over_load(n, num_blocks, |load| libm::pow(any_of(load, cell), f64::from(WORDS)))
}

/// The fewest blocks for `n` keys at the rate `fpr`. No keys take as much as one.
///
/// # Errors
/// If the rate is none, or no memory could be as large.
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
    // What the mean load would take.
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(WORDS));
    let load = libm::log1p(-share) / libm::log1p(-1.0 / f64::from(word_bits.max(2)));
    let guess = float(n) / load;
    let fits = |blocks| self::fpr(n, blocks, word_bits) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    let words = MAX_BLOCKS * u64::from(WORDS);
    blocks.ok_or(SizingError::NoMemory(NoMemory { words }))
}

/// How many keys so many blocks hold at the rate `fpr`.
///
/// # Errors
/// If the rate is none.
pub fn capacity(num_blocks: u64, fpr: f64, word_bits: u32) -> Result<u64, SizingError> {
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(WORDS));
    let load = libm::log1p(-share) / libm::log1p(-1.0 / f64::from(word_bits.max(2)));
    let fits = |n| self::fpr(n, num_blocks, word_bits) <= fpr;
    Ok(greatest(floor(load * float(num_blocks)), MAX_BLOCKS << 6, fits))
}
