//! The system of equations of a shard: elimination while equations are added, and solution column
//! by column.

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::super::static_build::{BuildError, reserved, zeroed};
use super::super::words::NoMemory;
use super::layout::{Columns, Equation, MAX_COLUMNS, WIDTH, mixed, starts};

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

/// Returns 1 if an odd number of bits is set, and 0 otherwise.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn parity(bits: u128) -> u32 {
    (bits as u64 ^ (bits >> 64) as u64).count_ones() & 1
}
