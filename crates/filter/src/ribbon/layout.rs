//! The equation of a key, and the positions of its slots' columns.

use super::super::encoding::{DecodeError, parameter};
use super::super::hashing::fmix64;
use super::super::static_build::mul_high;

/// Number of slots that an equation spans, and number of slots in a block. A column of a block is a
/// word of 128 bits.
pub(super) const WIDTH: u32 = 128;
/// Greatest number of columns: the number of bits in the result of a key.
pub(super) const MAX_COLUMNS: u32 = 32;

/// The equation of a key: the exclusive or of the slots whose coefficients are set equals `result`.
/// The coefficients belong to the slots from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Equation {
    pub(super) start: u32,
    /// The coefficients. The lowest bit belongs to slot `start` and is always set.
    pub(super) coefficients: u128,
    /// The result. Only its lowest bits are used, one bit for each column.
    pub(super) result: u32,
}

/// Mixes a hash with the seed and the attempt. The equation of a key is computed from the result.
#[inline(always)]
pub(super) fn mixed(hash: u64, seed: u64, attempt: u32) -> u64 {
    let seed = seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    fmix64(hash.wrapping_add(seed))
}

impl Equation {
    /// Computes the equation of a mixed hash, for `starts` possible starts. Greater hashes have
    /// greater or equal starts.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "starts are below 2^32; halves of words")]
    pub(super) fn of(mixed: u64, starts: u32) -> Self {
        let folded = |factor: u64| {
            let product = u128::from(mixed) * u128::from(factor);
            product as u64 ^ (product >> 64) as u64
        };
        // The factors are odd numbers without a pattern: digits of the square roots of 2, 3 and 5.
        let low = folded(0x6a09_e667_f3bc_c909) | 1;
        let high = folded(0xbb67_ae85_84ca_a73b);
        let result = (folded(0x3c6e_f372_fe94_f82b) >> 32) as u32;
        let coefficients = u128::from(high) << 64 | u128::from(low);
        Self { start: mul_high(mixed, starts.into()) as u32, coefficients, result }
    }
}

/// The number of columns in each block of a filter. In each shard, some of the first blocks may
/// have one column less than the other blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// Greatest number of columns in a block, from 1 to 32.
    pub(super) most: u32,
    /// The share of the starts that have one column less, in units of 2⁻³².
    pub(super) lower_share: u32,
}

impl Columns {
    pub(super) fn new(most: u64, lower_share: u64) -> Result<Self, DecodeError> {
        let columns = u32::try_from(most).ok().filter(|most| (1..=MAX_COLUMNS).contains(most));
        let most = columns.ok_or(parameter("number of columns", most, "from 1 to 32"))?;
        let share = u32::try_from(lower_share).ok().filter(|share| most > 1 || *share == 0);
        let limit = "below 2^32, and 0 with one column";
        let lower_share =
            share.ok_or(parameter("share of blocks with fewer columns", lower_share, limit))?;
        Ok(Self { most, lower_share })
    }

    /// Returns the columns for a rate: log2(1/rate) rounded up, and one column less for as many
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

    /// Returns how many of the first blocks have one column less.
    #[inline(always)]
    pub(super) fn lower_blocks(self, blocks: u32) -> u32 {
        let starts = u64::from(starts(blocks));
        (starts * u64::from(self.lower_share) >> 32) as u32 / WIDTH
    }

    /// Returns the index at which block `at` starts, in words of 128 bits from the start of the
    /// shard.
    #[inline(always)]
    pub(super) fn block_start(self, at: u32, lower_blocks: u32) -> usize {
        at as usize * self.most as usize - at.min(lower_blocks) as usize
    }

    /// Returns the number of 128-bit words in a shard.
    pub(super) fn words_of(self, blocks: u32) -> usize {
        self.block_start(blocks, self.lower_blocks(blocks))
    }

    /// Returns the number of columns in block `at`.
    #[inline(always)]
    pub(super) fn of_block(self, at: u32, lower_blocks: u32) -> u32 {
        self.most - u32::from(at < lower_blocks)
    }

    /// Returns the rate of a shard.
    pub(super) fn fpr(self, blocks: u32) -> f64 {
        let lower = f64::from(self.lower_blocks(blocks) * WIDTH) / f64::from(starts(blocks));
        libm::exp2(-f64::from(self.most)) * (1.0 + lower)
    }
}

/// Returns the number of slots at which an equation can start.
#[inline(always)]
pub(super) fn starts(blocks: u32) -> u32 {
    blocks * WIDTH - (WIDTH - 1)
}
