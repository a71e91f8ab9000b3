//! Bits counted become rates.
#![expect(clippy::cast_precision_loss, reason = "nobody needs counts above 2^53 to the last digit")]

use super::BlockShape;

/// The rate of so many blocks, filled by `len` keys.
pub(super) fn fpr<B: BlockShape>(
    blocks: impl Iterator<Item = B::Block>,
    num_blocks: u64,
    len: u64,
) -> f64 {
    let hits: u128 = blocks.map(|block| u128::from(B::hits(&block))).sum();
    let choices = libm::pow(f64::from(B::WORD_BITS), 8.0);
    let same_low_half = len as f64 / libm::exp2(32.0);
    ((hits as f64 / choices + same_low_half) / num_blocks as f64).min(1.0)
}

/// `part` of `whole`.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// How many keys leave the share `1 - fill` of `places` free, each of which takes one; none if
/// nothing is free.
pub(super) fn keys(fill: f64, places: u64) -> Option<f64> {
    (fill < 1.0).then(|| libm::log1p(-fill) / libm::log1p(-1.0 / places as f64))
}

/// The nearest count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
#[cfg(feature = "parquet")]
pub(super) fn count(len: f64) -> u64 {
    libm::round(len) as u64
}
