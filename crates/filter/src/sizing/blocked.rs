//! Sizes of blocked Bloom filters, where each key has one block and sets `k` positions anywhere in
//! it. Counting filters in blocks and the Bloom filters of `RocksDB` have this layout.
//!
//! A block with `j` keys is a classic filter of the block's size with `j` keys. `j` is binomially
//! distributed, and the rate of the filter is the mean over `j`. The best number of positions is
//! lower than in a classic filter: 9 instead of 11 for 16 bits per key in blocks of 512 bits.
//!
//! # Split blocks
//! In a **split-block** filter, each key sets one bit in each of its block's eight words. With `j`
//! keys in a block, the mean fraction of set bits in a word of `w` bits is `1 - (1 - 1/w)^j`. Words
//! are independent of each other, so the rate of the block is exactly the eighth power of this
//! fraction.
//!
//! The classic formula assumes the mean load for every block. The rate by this formula is too low,
//! because full blocks raise the rate more than empty blocks lower it (Putze, Sanders, Singler
//! 2007). Filters sized by the classic formula have up to 5 times the requested rate.
//!
//! This module ignores keys with equal hashes, and hash bits that a layout does not use. Parquet's
//! layout computes the positions in a block from 32 bits of the hash, so keys of one block that
//! agree in these bits have equal positions. Keys with equal positions add `load·2⁻³²` to the rate,
//! which matters for rates below 10⁻⁸.

use alloc::vec::Vec;

use super::classic::{self, Exact, checked_hash_funcs};
use super::math::{BuildError, any_of, ceil, checked, float, floor, least, mean_over_load, small};
use crate::words::NoMemory;

/// Greatest number of blocks. No computer has memory for more blocks.
const MAX_BLOCKS: u64 = 1 << 50;

/// Greatest number of counters that a key has in a counting filter.
pub(crate) const MAX_COUNTERS_OF_KEY: u32 = 16;

/// Returns the rate of a filter with `n` distinct keys in `num_blocks` blocks of `positions` positions
/// each.
pub fn fpr(n: u64, num_blocks: u64, positions: u32, hash_funcs: u32) -> f64 {
    // The rates of the smallest loads are computed exactly in one pass. At all higher loads nearly
    // all positions are set, and the rate is computed when it is needed.
    let mut exact = Exact::empty(positions.into(), hash_funcs);
    let tabled = if positions <= 1 << 12 { 4 * positions / hash_funcs.max(1) + 1 } else { 0 };
    let first = (0..tabled).map(|load| {
        exact.throw(if load == 0 { 0 } else { hash_funcs.into() });
        if load == 0 { 0.0 } else { exact.fpr() }
    });
    let first: Vec<f64> = first.collect();
    mean_over_load(n, num_blocks, |load| {
        let load = floor(load);
        let tabled = usize::try_from(load).ok().and_then(|load| first.get(load));
        tabled.copied().unwrap_or_else(|| classic::fpr(load, positions.into(), hash_funcs))
    })
}

/// Returns the smallest number of blocks for `n` keys with a rate of at most `fpr`. A block has
/// `positions` positions, of which a key sets `hash_funcs`. Zero keys need as many blocks as one key.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, if the number of hash functions is not from 1
/// to [`MAX_HASH_FUNCS`](super::MAX_HASH_FUNCS), or if the filter would be larger than any memory.
pub fn num_blocks(n: u64, fpr: f64, positions: u32, hash_funcs: u32) -> Result<u64, BuildError> {
    let n = n.max(1);
    let classic = classic::num_bits(n, checked_hash_funcs(hash_funcs)?, fpr)?;
    let guess = float(classic) / f64::from(positions.max(1));
    let fits = |blocks| self::fpr(n, blocks, positions, hash_funcs) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    blocks.ok_or(BuildError::NoMemory(NoMemory { words: MAX_BLOCKS }))
}

/// Returns the smallest number of blocks for `n` keys with a rate of at most `fpr`, and the number
/// of hash functions, at most `limit`, for which this number of blocks is sufficient.
pub(crate) fn size(limit: u32, n: u64, fpr: f64, positions: u32) -> Result<(u64, u32), BuildError> {
    let most = small(ceil(-libm::log2(checked(fpr)?))).min(limit);
    // The best number of hash functions is lower than that of a classic filter. The number of
    // blocks has a single minimum, so the search tries fewer and fewer hash functions, and stops
    // when the number of blocks rises.
    let mut best: Option<(u64, u32)> = None;
    for hash_funcs in (1..=most).rev() {
        let blocks = num_blocks(n, fpr, positions, hash_funcs)?;
        if best.is_some_and(|(least, _)| least < blocks) {
            break;
        }
        best = Some((blocks, hash_funcs));
    }
    best.ok_or(BuildError::Fpr { fpr })
}

/// Number of words in a split block, and number of bits that a key sets.
const WORDS: u32 = 8;

/// Returns the rate of a split-block filter with `n` distinct keys in `num_blocks` blocks of eight words.
/// `word_bits` is 64 for blocks of 512 bits, and 32 for blocks of 256 bits.
pub fn split_fpr(n: u64, num_blocks: u64, word_bits: u32) -> f64 {
    let cell = 1.0 / f64::from(word_bits.max(1));
    mean_over_load(n, num_blocks, |load| libm::pow(any_of(load, cell), f64::from(WORDS)))
}

/// Returns the smallest number of split blocks for `n` keys with a rate of at most `fpr`. Zero keys need
/// as many blocks as one key.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, or if the filter would be larger than any
/// memory.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::blocked;
/// let blocks = blocked::split_blocks(1_000_000, 0.01, 64)?;
/// assert_eq!(blocks * 512 / 1_000_000, 10);
/// # Ok::<(), chainsieve_filter::sizing::BuildError>(())
/// ```
pub fn split_blocks(n: u64, fpr: f64, word_bits: u32) -> Result<u64, BuildError> {
    let n = n.max(1);
    // The search starts at the size that would be right if every block had the mean load.
    let share = libm::exp(libm::log(checked(fpr)?) / f64::from(WORDS));
    let load = libm::log1p(-share) / libm::log1p(-1.0 / f64::from(word_bits.max(2)));
    let guess = float(n) / load;
    let fits = |blocks| split_fpr(n, blocks, word_bits) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    let words = MAX_BLOCKS * u64::from(WORDS);
    blocks.ok_or(BuildError::NoMemory(NoMemory { words }))
}
