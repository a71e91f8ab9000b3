//! Sizes of blocked Bloom filters, where each key has one block and sets `k` positions anywhere in
//! it. Counting filters in blocks and the Bloom filters of `RocksDB` have this layout.
//!
//! A block with `j` keys is a classic filter of the block's size with `j` keys. `j` is binomially
//! distributed, and the rate of the filter is the mean over `j`. The best number of positions is
//! lower than in a classic filter: 9 instead of 11 for 16 bits per key in blocks of 512 bits.

use alloc::vec::Vec;

use super::classic::{self, Exact, checked_hash_funcs};
use super::math::{ceil, checked, float, floor, greatest, least, mean_over_load};
use super::{MAX_HASH_FUNCS, SizingError};
use crate::words::NoMemory;

/// Greatest number of blocks. No computer has memory for more blocks.
const MAX_BLOCKS: u64 = 1 << 50;

/// Greatest number of counters that a key has in a counting filter.
pub(crate) const MAX_COUNTERS_OF_KEY: u32 = 16;

/// Returns the rate of a filter with `n` distinct keys in `num_blocks` blocks of `places` positions
/// each.
pub fn fpr(n: u64, num_blocks: u64, places: u32, hash_funcs: u32) -> f64 {
    BlockRates::new(places, hash_funcs).fpr(n, num_blocks)
}

/// Rates of a block by the number of its keys.
struct BlockRates {
    places: u32,
    hash_funcs: u32,
    /// Rates of the smallest loads, computed exactly in one pass. At all higher loads nearly all
    /// positions are set, and the rate is computed when it is needed.
    first: Vec<f64>,
}

impl BlockRates {
    fn new(places: u32, hash_funcs: u32) -> Self {
        let mut exact = Exact::empty(places.into(), hash_funcs);
        let tabled = if places <= 1 << 12 { 4 * places / hash_funcs.max(1) + 1 } else { 0 };
        let first = (0..tabled).map(|load| {
            exact.throw(if load == 0 { 0 } else { hash_funcs.into() });
            if load == 0 { 0.0 } else { exact.fpr() }
        });
        Self { places, hash_funcs, first: first.collect() }
    }

    fn fpr(&self, n: u64, num_blocks: u64) -> f64 {
        mean_over_load(n, num_blocks, |load| {
            let load = floor(load);
            let tabled = usize::try_from(load).ok().and_then(|load| self.first.get(load));
            let computed = || classic::fpr(load, self.places.into(), self.hash_funcs);
            tabled.copied().unwrap_or_else(computed)
        })
    }
}

/// Returns the smallest number of blocks for `n` keys with a rate of at most `fpr`. A block has
/// `places` positions, of which a key sets `hash_funcs`. Zero keys need as many blocks as one key.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, if the number of hash functions is not from 1
/// to [`MAX_HASH_FUNCS`], or if the filter would be larger than any memory.
pub fn num_blocks(n: u64, fpr: f64, places: u32, hash_funcs: u32) -> Result<u64, SizingError> {
    let n = n.max(1);
    let classic = classic::num_bits(n, checked_hash_funcs(hash_funcs)?, fpr)?;
    let guess = float(classic) / f64::from(places.max(1));
    let fits = |blocks| self::fpr(n, blocks, places, hash_funcs) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    blocks.ok_or(SizingError::NoMemory(NoMemory { words: MAX_BLOCKS }))
}

/// Returns the smallest number of blocks for `n` keys with a rate of at most `fpr`, and the number
/// of hash functions for which so few blocks are sufficient.
///
/// # Errors
/// Returns the same errors as [`num_blocks`].
pub fn size(n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    size_up_to(MAX_HASH_FUNCS, n, fpr, places)
}

/// Computes [`size`] for a counting filter, whose keys have at most [`MAX_COUNTERS_OF_KEY`]
/// counters.
pub(crate) fn counting_size(n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    size_up_to(MAX_COUNTERS_OF_KEY, n, fpr, places)
}

fn size_up_to(limit: u32, n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    let most = super::math::small(ceil(-libm::log2(checked(fpr)?))).min(limit);
    // The best number of hash functions is lower than that of a classic filter. The number of
    // blocks has a single minimum, so the search tries fewer and fewer hash functions, and stops
    // when the number of blocks rises.
    let mut best: Option<(u64, u32)> = None;
    for hash_funcs in (1..=most).rev() {
        let blocks = num_blocks(n, fpr, places, hash_funcs)?;
        if best.is_some_and(|(least, _)| least < blocks) {
            break;
        }
        best = Some((blocks, hash_funcs));
    }
    best.ok_or(SizingError::Fpr { fpr })
}

/// Returns the greatest number of keys for which `num_blocks` blocks have a rate of at most `fpr`.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn capacity(
    num_blocks: u64,
    fpr: f64,
    places: u32,
    hash_funcs: u32,
) -> Result<u64, SizingError> {
    let num_bits = num_blocks.saturating_mul(places.into());
    let guess = classic::capacity(classic::Size { num_bits, hash_funcs }, checked(fpr)?)?;
    let rates = BlockRates::new(places, hash_funcs);
    Ok(greatest(guess, MAX_BLOCKS, |n| rates.fpr(n, num_blocks) <= fpr))
}
