//! Blooms of a made-up chain that resembles mainnet.
//!
//! The fill of the blooms follows mainnet's years, with a wide spread from block to block. Values
//! are drawn from a heavy-tailed distribution: each octave of ranks (1, 2 to 3, 4 to 7 …) is drawn
//! as often as any other, so that the n-th most frequent value is about n times rarer than the
//! first. The first values are in nearly every block and make hot rows. From the 16th on, all
//! values are replaced from time to time, as contracts come and go.
//!
//! The values of queries are real ones, hashed by Keccak-256, and are put into known blocks, so
//! that no answer is empty. All other values are three bits of an integer hash, because 8 billion
//! Keccak hashes would take hours.

use alloy_primitives::{Address, B256, b256};
use chainsieve::eth::bloom;

use testkit::Rng;

/// A bloom.
pub(crate) type Filter = [u8; 256];

/// Years of mainnet: millions of blocks, and the average fill of their blooms.
const MAINNET: [(f64, f64); 9] = [
    (2.9, 0.01), // 2015 and 2016
    (4.1, 0.17), // 2017 and 2018
    (4.6, 0.31), // 2019 and 2020
    (2.3, 0.51), // 2021
    (2.4, 0.56), // 2022
    (2.6, 0.51), // 2023
    (2.6, 0.36), // 2024
    (2.6, 0.39), // 2025
    (2.4, 0.66), // 2026
];
/// A chain with little activity.
const SPARSE: [(f64, f64); 2] = [(1.0, 0.005), (1.0, 0.03)];

/// Base-2 logarithm of the highest rank.
const OCTAVES: u32 = 26;
/// Number of the first ranks, whose values stay for the whole chain.
const HOT: usize = 16;
/// Number of times that all other values are replaced over the whole chain.
const GENERATIONS: usize = 24;
/// Number of steps in which the number of values varies from block to block.
const SPREAD: usize = 64;
/// One in this many blocks has a value of the queries.
const PLANTED: usize = 4096;
/// Number of blooms that are generated from one seed.
const STRETCH: usize = 8192;

/// `Transfer(address,address,uint256)`: in nearly every block.
pub(crate) const TRANSFER: B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// A chain: the parameters from which its blooms are generated.
pub(crate) struct Chain {
    blocks: usize,
    /// First block after each era, and the numbers of values to draw for its blocks.
    eras: Vec<(usize, [u32; SPREAD])>,
    hot: [[u16; 3]; HOT],
    planted: Vec<Planted>,
}

/// A log that is put into known blocks.
pub(crate) struct Planted {
    pub(crate) address: Address,
    pub(crate) topics: [B256; 2],
    bits: [[u16; 3]; 3],
}

impl Chain {
    pub(crate) fn mainnet(blocks: usize) -> Self {
        Self::new(blocks, &MAINNET)
    }

    pub(crate) fn sparse(blocks: usize) -> Self {
        Self::new(blocks, &SPARSE)
    }

    fn new(blocks: usize, years: &[(f64, f64)]) -> Self {
        let all: f64 = years.iter().map(|(millions, _)| millions).sum();
        let mut until = 0.0;
        let eras = years.iter().map(|(millions, fill)| {
            until += millions / all;
            (whole(until * blocks as f64), draws(*fill))
        });
        let mut random = Rng::new(7);
        let hot = std::array::from_fn(|rank| match rank {
            1 => bloom::positions(TRANSFER.as_slice()),
            _ => bloom::positions(random.word().as_slice()),
        });
        let planted = (0..1_000).map(|_| {
            let (address, topics) = (random.address(), [random.word(), random.word()]);
            let bits = [address.as_slice(), topics[0].as_slice(), topics[1].as_slice()];
            Planted { address, topics, bits: bits.map(bloom::positions) }
        });
        Self { blocks, eras: eras.collect(), hot, planted: planted.collect() }
    }

    /// Returns the logs that queries ask for.
    pub(crate) fn planted(&self) -> &[Planted] {
        &self.planted
    }

    /// Returns the blocks that contain logs of `planted()`, each with the index of its log.
    pub(crate) fn planted_blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let places = (0..self.blocks.div_ceil(PLANTED)).map(|nth| self.place(nth));
        places.filter(|(block, _)| *block < self.blocks)
    }

    /// Returns the block number `nth` that has a log, and the index of the log. In the middle half
    /// of the chain, every other of these is the first log. The others take turns.
    fn place(&self, nth: usize) -> (usize, usize) {
        let random = Rng::new(nth as u64).u64() as usize;
        let block = nth * PLANTED + random % PLANTED;
        let is_first = nth.is_multiple_of(2) && block.abs_diff(self.blocks / 2) < self.blocks / 4;
        (block, if is_first { 0 } else { 1 + nth % (self.planted.len() - 1) })
    }

    /// Returns all blooms, generated on all cores.
    pub(crate) fn filters(&self) -> Vec<Filter> {
        let mut filters = vec![[0; 256]; self.blocks];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut parts: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
        for (nth, stretch) in filters.chunks_mut(STRETCH).enumerate() {
            parts[nth % threads].push((nth, stretch));
        }
        std::thread::scope(|scope| {
            for part in parts {
                scope.spawn(|| {
                    for (nth, stretch) in part {
                        self.fill(nth, stretch);
                    }
                });
            }
        });
        filters
    }

    /// Generates the blooms of one range.
    fn fill(&self, nth: usize, filters: &mut [Filter]) {
        let mut random = Rng::new((nth as u64).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        for (block, filter) in (nth * STRETCH..).zip(filters) {
            let seed = random.u64();
            if seed.is_multiple_of(300_000) {
                *filter = [0xff; 256]; // no information
                continue;
            }
            let era = self.eras.iter().find(|(until, _)| block < *until);
            let (_, draws) = era.or(self.eras.last()).expect("eras");
            let generation = (block * GENERATIONS / self.blocks) as u64;
            for _ in 0..draws[seed as usize / 512 % SPREAD] {
                accrue(filter, self.value(random.u64(), generation));
            }
            let (place, log) = self.place(block / PLANTED);
            if place == block {
                for bits in &self.planted[log].bits {
                    accrue(filter, *bits);
                }
            }
        }
    }

    /// Returns the bits of a value drawn from the distribution.
    #[inline]
    fn value(&self, random: u64, generation: u64) -> [u16; 3] {
        let octave = (random >> 32) * u64::from(OCTAVES) >> 32;
        let rank = 1 << octave | random & ((1 << octave) - 1);
        if let Some(bits) = self.hot.get(rank as usize) {
            return *bits;
        }
        let mut hash = (rank ^ generation << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        [(hash >> 53) as u16, (hash >> 42) as u16 & 0x7ff, (hash >> 31) as u16 & 0x7ff]
    }
}

/// Prints the average fill of the blooms in each era.
pub(crate) fn describe(chain: &Chain, filters: &[Filter]) {
    let mut from = 0;
    let fills = chain.eras.iter().map(|(until, _)| {
        let era = &filters[from..*until];
        from = *until;
        let ones: u64 =
            era.iter().step_by(7).map(|filter| u64::from(bloom::count_ones(filter))).sum();
        format!("{:.3}", ones as f64 / (era.len().div_ceil(7) * 2048) as f64)
    });
    println!("# full, by era: {}", fills.collect::<Vec<_>>().join(" "));
}

#[inline]
fn accrue(filter: &mut Filter, bits: [u16; 3]) {
    for bit in bits {
        filter[255 - usize::from(bit >> 3)] |= 1 << (bit & 7);
    }
}

/// Returns the numbers of values to draw for blocks that are `fill` full on average.
fn draws(fill: f64) -> [u32; SPREAD] {
    // Log-logistic: one block in twenty has more than twice as many values as the median.
    let factors: [f64; SPREAD] = std::array::from_fn(|step| {
        let part = (step as f64 + 0.5) / SPREAD as f64;
        (part / (1.0 - part)).powf(0.265)
    });
    let average = |median: f64| {
        let fills = factors.iter().map(|factor| full(whole(median * factor) as f64));
        fills.sum::<f64>() / SPREAD as f64
    };
    let median = bisect(20_000.0, |median| average(median) < fill);
    factors.map(|factor| u32::try_from(whole(median * factor)).expect("few values"))
}

/// Returns the expected fill of a bloom after this many draws.
fn full(draws: f64) -> f64 {
    let distinct: f64 = (0..OCTAVES)
        .map(|octave| {
            let ranks = f64::from(1_u32 << octave);
            ranks * (1.0 - (1.0 - 1.0 / (ranks * f64::from(OCTAVES))).powf(draws))
        })
        .sum();
    1.0 - (1.0 - 1.0 / 2048.0_f64).powf(3.0 * distinct)
}

/// Returns the point where `is_below` stops being true.
fn bisect(end: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut from, mut to) = (0.0, end);
    for _ in 0..60 {
        let middle = f64::midpoint(from, to);
        if is_below(middle) { from = middle } else { to = middle }
    }
    to
}

fn whole(value: f64) -> usize {
    value.round() as usize
}
