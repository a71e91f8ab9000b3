//! The system of a shard's equations, eliminated as they come, and its solution by columns.

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::super::static_build::{BuildError, reserved, zeroed};
use super::super::words::NoMemory;
use super::layout::{Columns, Equation, MAX_COLUMNS, WIDTH, mixed, starts};

/// Seeds tried for one shard.
const TRIES: u32 = 100;
/// A directory has 16 bits for blocks, of which late tries take up to half as many again.
const MAX_KEYS: u64 = 1 << 22;
const MAX_BLOCKS: u32 = (1 << 16) - 1;

/// The solution of one shard.
#[derive(Debug)]
pub(super) struct Solved {
    pub(super) attempt: u32,
    pub(super) blocks: u32,
    /// Distinct ones.
    pub(super) keys: u64,
    /// Block after block, of each block column after column, of each column two words.
    pub(super) words: Vec<u64>,
}

/// Solves for these hashes. Those that are there twice count once.
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
        // By their starts, so that the elimination walks through memory from front to back.
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

/// Blocks for so many keys.
///
/// With 2 % more slots than keys an elimination works for about 19 of 20 sets of up to 2¹³ keys and
/// for 9 of 10 of 2¹⁴; every try after the second has half a percent more.
fn blocks_for(keys: usize, attempt: u32) -> Result<u32, BuildError> {
    let more = 20 + 5 * attempt.saturating_sub(1) as usize;
    let slots = keys + keys * more / 1000 + 20;
    let blocks = slots.div_ceil(WIDTH as usize);
    let too_many = BuildError::TooManyKeys { keys: keys as u64, limit: MAX_KEYS };
    u32::try_from(blocks).ok().filter(|blocks| *blocks <= MAX_BLOCKS).ok_or(too_many)
}

/// Equations in echelon form: that in row `i` starts at slot `i`.
#[derive(Debug, Default)]
pub(super) struct System {
    /// Zero where there is none.
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl System {
    /// Whether all equations can hold.
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

    /// Adds an equation; `false` if it contradicts the others.
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

    /// The solution. Slots that no equation decides are zero.
    fn solve(&self, blocks: u32, columns: Columns) -> Result<Vec<u64>, NoMemory> {
        let mut words = zeroed::<u64>(columns.words_of(blocks) * 2)?;
        Backend::best().run(Solution { system: self, blocks, columns, words: &mut words });
        Ok(words)
    }

    /// From the last slot to the first.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    fn solve_into(&self, blocks: u32, columns: Columns, words: &mut [u64]) {
        let lower = columns.lower_blocks(blocks);
        // Of each column the slots that are solved, the lowest bit that of the last solved.
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
                    // A slot without an equation is zero: its result is.
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

// The loops below are no faster over lanes: what they gain is one instruction to count bits.

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

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) -> bool {
        self.scalar()
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

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) {
        self.scalar();
    }
}

/// Whether an odd number of bits is set.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn parity(bits: u128) -> u32 {
    (bits as u64 ^ (bits >> 64) as u64).count_ones() & 1
}
