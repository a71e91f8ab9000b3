//! One shard of a ribbon filter: the equation of a key, the positions of its slots' columns, and the
//! system of equations. The system is eliminated while equations are added, and solved column by
//! column.

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Backend, Kernel};

use super::super::encoding::{DecodeError, parameter};
use super::super::hashing::fmix64;
use super::super::sizing::BuildError;
use super::super::static_build::mul_high;
use super::super::words::{NoMemory, reserved, zeroed};

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

/// Number of seeds tried for one shard.
const TRIES: u32 = 100;
/// Greatest number of keys in a shard. The directory stores the number of blocks in 16 bits, and
/// the last attempts use about 1.5 times as many blocks as the first.
const MAX_KEYS: u64 = 1 << 22;
/// Greatest number of blocks in a shard: the directory stores the number in 16 bits.
const MAX_BLOCKS: u32 = (1 << 16) - 1;

/// The solution of one shard's equations.
#[derive(Debug)]
pub(super) struct Solved {
    pub(super) attempt: u32,
    pub(super) blocks: u32,
    /// Number of distinct keys.
    pub(super) keys: u64,
    /// The solution, block by block. Each block is stored column by column, with two words per
    /// column.
    pub(super) words: Vec<u64>,
}

/// Solves the equations of these hashes. Duplicate hashes are counted once.
pub(super) fn build(hashes: &[u64], seed: u64, columns: Columns) -> Result<Solved, BuildError> {
    let given = hashes.len() as u64;
    if given > MAX_KEYS {
        return Err(BuildError::TooManyKeys { keys: given, limit: MAX_KEYS });
    }
    let mut order = reserved(hashes.len())?;
    let mut system = System::default();
    for attempt in 0..TRIES {
        order.clear();
        order.extend(hashes.iter().map(|hash| mixed(*hash, seed, attempt)));
        // Sorting orders the equations by their starts, so the elimination accesses memory from
        // front to back.
        order.sort_unstable();
        order.dedup();
        let blocks = blocks_for(order.len(), attempt)?;
        if system.eliminate(&order, blocks)? {
            let keys = order.len() as u64;
            return Ok(Solved { attempt, blocks, keys, words: system.solve(blocks, columns)? });
        }
    }
    Err(BuildError::NoSeed { keys: given, tries: TRIES })
}

/// Returns the number of blocks for a number of keys and an attempt.
///
/// With 2 % more slots than keys, the elimination succeeds for about 19 of 20 sets of up to 2¹³
/// keys, and for 9 of 10 sets of 2¹⁴ keys. Each attempt after the second has half a percent more
/// slots than the attempt before.
fn blocks_for(keys: usize, attempt: u32) -> Result<u32, BuildError> {
    let more = 20 + 5 * attempt.saturating_sub(1) as usize;
    let slots = keys + keys * more / 1000 + 20;
    let blocks = slots.div_ceil(WIDTH as usize);
    let too_many = BuildError::TooManyKeys { keys: keys as u64, limit: MAX_KEYS };
    u32::try_from(blocks).ok().filter(|blocks| *blocks <= MAX_BLOCKS).ok_or(too_many)
}

/// A system of equations in echelon form: the equation in row `i` starts at slot `i`.
#[derive(Debug, Default)]
pub(super) struct System {
    /// The coefficients of each row. Zero marks a row without an equation.
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl System {
    /// Adds the equations of all hashes. Returns `true` if the system has a solution.
    pub(super) fn eliminate(&mut self, order: &[u64], blocks: u32) -> Result<bool, NoMemory> {
        let slots = (blocks * WIDTH) as usize;
        self.coefficients.clear();
        self.results.clear();
        if self.coefficients.capacity() < slots {
            (self.coefficients, self.results) = (reserved(slots)?, reserved(slots)?);
        }
        self.coefficients.resize(slots, 0);
        self.results.resize(slots, 0);
        Ok(Backend::best().run(Elimination { system: self, order, starts: starts(blocks) }))
    }

    /// Adds an equation. Returns `false` if the equation contradicts the others.
    #[inline(always)]
    fn add(&mut self, equation: Equation) -> bool {
        let Equation { start, mut coefficients, mut result } = equation;
        let mut slot = start as usize;
        loop {
            let (row, its_result) = (&mut self.coefficients[slot], &mut self.results[slot]);
            if *row == 0 {
                (*row, *its_result) = (coefficients, result);
                return true;
            }
            coefficients ^= *row;
            result ^= *its_result;
            if coefficients == 0 {
                return result == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros as usize;
        }
    }

    /// Returns the solution. Slots that no equation determines are zero.
    fn solve(&self, blocks: u32, columns: Columns) -> Result<Vec<u64>, NoMemory> {
        let mut words = zeroed::<u64>(columns.words_of(blocks) * 2)?;
        Backend::best().run(Solution { system: self, blocks, columns, words: &mut words });
        Ok(words)
    }

    /// Solves the system from the last slot to the first.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    fn solve_into(&self, blocks: u32, columns: Columns, words: &mut [u64]) {
        let lower = columns.lower_blocks(blocks);
        // For each column, the bits of the slots after the current one. The lowest bit belongs to
        // the slot that was solved last.
        let mut solved = [0_u128; MAX_COLUMNS as usize];
        for block in (0..blocks).rev() {
            let count = columns.of_block(block, lower) as usize;
            let solved = &mut solved[..count];
            let first = (block * WIDTH) as usize;
            let rows = first..first + WIDTH as usize;
            let rows = self.coefficients[rows.clone()].iter().zip(&self.results[rows]);
            for (coefficients, result) in rows.rev() {
                for (at, column) in solved.iter_mut().enumerate() {
                    let shifted = *column << 1;
                    let bit = parity(shifted & coefficients) ^ (result >> at & 1);
                    // A row without an equation has coefficients and result zero, so its slot
                    // becomes zero.
                    *column = shifted | u128::from(bit);
                }
            }
            let at = columns.block_start(block, lower) * 2;
            let to = words[at..at + 2 * count].as_chunks_mut::<2>().0;
            for (to, column) in to.iter_mut().zip(solved.iter()) {
                *to = [*column as u64, (*column >> 64) as u64];
            }
        }
    }
}

// Vector lanes do not make these loops faster. The loops run on a backend only to use its
// instruction that counts bits.

struct Elimination<'a> {
    system: &'a mut System,
    order: &'a [u64],
    starts: u32,
}

impl Kernel for Elimination<'_> {
    type Output = bool;

    #[inline(always)]
    fn scalar(self) -> bool {
        let starts = self.starts;
        self.order.iter().all(|mixed| self.system.add(Equation::of(*mixed, starts)))
    }
}

struct Solution<'a> {
    system: &'a System,
    blocks: u32,
    columns: Columns,
    words: &'a mut [u64],
}

impl Kernel for Solution<'_> {
    type Output = ();

    #[inline(always)]
    fn scalar(self) {
        self.system.solve_into(self.blocks, self.columns, self.words);
    }
}

/// Returns 1 if an odd number of bits is set, and 0 otherwise.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn parity(bits: u128) -> u32 {
    (bits as u64 ^ (bits >> 64) as u64).count_ones() & 1
}
