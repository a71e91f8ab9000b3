//! The equation of a key, and where the columns of its slots are.

use super::super::encoding::{DecodeError, parameter};
use super::super::hashing::fmix64;
use super::super::static_build::mul_high;

/// Slots that an equation spans, and slots of a block: one bit of each in a word of 128.
pub(super) const WIDTH: u32 = 128;
/// Columns there can be: bits of a key's result.
pub(super) const MAX_COLUMNS: u32 = 32;

/// The equation of a key: the slots from `start` on whose coefficients are set give `result`, by
/// exclusive or.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Equation {
    pub(super) start: u32,
    /// The lowest bit, that of `start`, is set.
    pub(super) coefficients: u128,
    /// As many of the lowest bits count as there are columns.
    pub(super) result: u32,
}

/// What a shard's equations come from.
#[inline(always)]
pub(super) fn mixed(hash: u64, seed: u64, attempt: u32) -> u64 {
    let seed = seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    fmix64(hash.wrapping_add(seed))
}

impl Equation {
    /// Of a mixed hash, among so many starts. Rises with the hash.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "starts are below 2^32; halves of words")]
    pub(super) fn of(mixed: u64, starts: u32) -> Self {
        let folded = |factor: u64| {
            let product = u128::from(mixed) * u128::from(factor);
            product as u64 ^ (product >> 64) as u64
        };
        // Odd numbers without a pattern: of the roots of 2, 3 and 5.
        let low = folded(0x6a09_e667_f3bc_c909) | 1;
        let high = folded(0xbb67_ae85_84ca_a73b);
        let result = (folded(0x3c6e_f372_fe94_f82b) >> 32) as u32;
        let coefficients = u128::from(high) << 64 | u128::from(low);
        Self { start: mul_high(mixed, starts.into()) as u32, coefficients, result }
    }
}

/// How many columns the blocks of a filter have: some of the first of each shard one fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// 1 to 32.
    pub(super) most: u32,
    /// The share of the starts that have one column fewer, in 2⁻³².
    pub(super) lower_share: u32,
}

impl Columns {
    pub(super) fn new(most: u64, lower_share: u64) -> Result<Self, DecodeError> {
        let columns = u32::try_from(most).ok().filter(|most| (1..=MAX_COLUMNS).contains(most));
        let most = columns.ok_or(parameter("number of columns", most, "1 to 32"))?;
        let share = u32::try_from(lower_share).ok().filter(|share| most > 1 || *share == 0);
        let limit = "below 2^32, and 0 with one column";
        let lower_share =
            share.ok_or(parameter("share of blocks with fewer columns", lower_share, limit))?;
        Ok(Self { most, lower_share })
    }

    /// For this rate: the columns that 1/rate has bits, rounded up, and one fewer for as many
    /// starts as the rate allows.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 32; a share")]
    pub(super) fn for_fpr(fpr: f64) -> Self {
        let most = libm::ceil(-libm::log2(fpr)).clamp(1.0, MAX_COLUMNS.into());
        let lower = (fpr * libm::exp2(most) - 1.0).clamp(0.0, 1.0);
        let share = if most > 1.0 { libm::floor(lower * 4_294_967_295.0) } else { 0.0 };
        Self { most: most as u32, lower_share: share as u32 }
    }

    pub(super) fn param(self) -> u64 {
        u64::from(self.lower_share) << 32 | u64::from(self.most)
    }

    /// Of so many blocks, how many of the first have a column fewer.
    #[inline(always)]
    pub(super) fn lower_blocks(self, blocks: u32) -> u32 {
        let starts = u64::from(starts(blocks));
        (starts * u64::from(self.lower_share) >> 32) as u32 / WIDTH
    }

    /// Where block `at` begins, in words of 128 bits from the shard's first.
    #[inline(always)]
    pub(super) fn block_start(self, at: u32, lower_blocks: u32) -> usize {
        at as usize * self.most as usize - at.min(lower_blocks) as usize
    }

    /// Words of 128 bits of a shard.
    pub(super) fn words_of(self, blocks: u32) -> usize {
        self.block_start(blocks, self.lower_blocks(blocks))
    }

    /// Columns of block `at`.
    #[inline(always)]
    pub(super) fn of_block(self, at: u32, lower_blocks: u32) -> u32 {
        self.most - u32::from(at < lower_blocks)
    }

    /// The rate of a shard.
    pub(super) fn fpr(self, blocks: u32) -> f64 {
        let lower = f64::from(self.lower_blocks(blocks) * WIDTH) / f64::from(starts(blocks));
        libm::exp2(-f64::from(self.most)) * (1.0 + lower)
    }
}

/// Slots that an equation can start at.
#[inline(always)]
pub(super) fn starts(blocks: u32) -> u32 {
    blocks * WIDTH - (WIDTH - 1)
}
