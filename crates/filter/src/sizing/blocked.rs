//! Blocked Bloom filters: a key has one block, and `k` places anywhere in it. Counting filters in
//! blocks are of this kind, and `RocksDB`'s Bloom filters.
//!
//! A block with `j` keys is a classic filter of its size with `j` keys; `j` is binomial, and the
//! rate is the mean over `j`. The best number of places is lower than the classic one: for 16
//! bits a key in blocks of 512, 9 and not 11.

use alloc::vec::Vec;

use super::classic::{self, Exact, checked_hash_funcs};
use super::math::{ceil, checked, float, floor, greatest, least, mean_over_load};
use super::{MAX_HASH_FUNCS, SizingError};
use crate::words::NoMemory;

/// No memory has more blocks.
const MAX_BLOCKS: u64 = 1 << 50;

/// Most counters of a key in a counting filter.
pub(crate) const MAX_COUNTERS_OF_KEY: u32 = 16;

/// The rate with `n` distinct keys in so many blocks of `places` each.
pub fn fpr(n: u64, num_blocks: u64, places: u32, hash_funcs: u32) -> f64 {
    BlockRates::new(places, hash_funcs).fpr(n, num_blocks)
}

/// The rates of a block by the number of its keys.
struct BlockRates {
    places: u32,
    hash_funcs: u32,
    /// Until most places are taken.
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

/// The fewest blocks for `n` keys at the rate `fpr`, with so many places in a block of which a
/// key has `hash_funcs`. No keys take as much as one.
///
/// # Errors
/// If the rate is none, the number of hash functions is not from 1 to [`MAX_HASH_FUNCS`], or no
/// memory could be as large.
pub fn num_blocks(n: u64, fpr: f64, places: u32, hash_funcs: u32) -> Result<u64, SizingError> {
    let n = n.max(1);
    let classic = classic::num_bits(n, checked_hash_funcs(hash_funcs)?, fpr)?;
    let guess = float(classic) / f64::from(places.max(1));
    let fits = |blocks| self::fpr(n, blocks, places, hash_funcs) <= fpr;
    let blocks =
        if guess < float(MAX_BLOCKS) { least(ceil(guess), MAX_BLOCKS, fits) } else { None };
    blocks.ok_or(SizingError::NoMemory(NoMemory { words: MAX_BLOCKS }))
}

/// The fewest blocks for `n` keys at the rate `fpr`, and the number of places of a key that takes
/// so few.
///
/// # Errors
/// As [`num_blocks`].
pub fn size(n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    size_up_to(MAX_HASH_FUNCS, n, fpr, places)
}

/// As [`size`], of a counting filter.
pub(crate) fn counting_size(n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    size_up_to(MAX_COUNTERS_OF_KEY, n, fpr, places)
}

fn size_up_to(limit: u32, n: u64, fpr: f64, places: u32) -> Result<(u64, u32), SizingError> {
    let most = super::math::small(ceil(-libm::log2(checked(fpr)?))).min(limit);
    // The best is below the classic number, and the blocks it takes have one least.
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

/// How many keys so many blocks hold at the rate `fpr`.
///
/// # Errors
/// If the rate is none.
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
