//! How full the filters of a chain are, and what share of them a query that finds nothing passes.

#![expect(clippy::cast_precision_loss, reason = "counts become shares and sums of estimates")]

use alloc::vec::Vec;

use super::bloom::{self, BITS, BloomView};

/// How many filters have how many bits set.
///
/// The share of false "maybe" must be taken block by block: fills differ so much that the mean
/// fill says little. With this histogram the sum over all blocks is one over at most 2,049 fills.
///
/// # Cost
/// 16 kB, however many filters there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillHistogram {
    /// Index: bits set.
    filters: Vec<u64>,
}

impl Default for FillHistogram {
    fn default() -> Self {
        Self { filters: alloc::vec![0; BITS + 1] }
    }
}

impl FillHistogram {
    /// Adds filters. One that has not 256 bytes counts as one with all bits set: both say nothing.
    pub fn add<'a>(&mut self, blooms: impl IntoIterator<Item: Into<BloomView<'a>>>) {
        for bloom in blooms {
            let ones = bloom.into().count_ones();
            self.filters[ones.map_or(BITS, |ones| ones as usize)] += 1;
        }
    }

    /// Counts in what another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        for (filters, others) in self.filters.iter_mut().zip(&other.filters) {
            *filters += others;
        }
    }

    /// Counts in so many filters that have so many bits set.
    #[cfg(feature = "std")]
    pub(super) fn add_count(&mut self, ones: usize, filters: u64) {
        self.filters[ones] += filters;
    }

    /// How many filters were counted.
    pub fn filters(&self) -> u64 {
        self.filters.iter().sum()
    }

    /// How many of them have all bits set, and so say nothing.
    pub fn uninformative(&self) -> u64 {
        self.filters[BITS]
    }

    /// How many of them have no bit set: blocks without logs.
    pub fn empty(&self) -> u64 {
        self.filters[0]
    }

    /// The mean share of bits that are set, 0 to 1; 0 without filters.
    pub fn mean_fill(&self) -> f64 {
        self.mean(|ones| f64::from(ones) / 2048.0)
    }

    /// The fill that a share of the filters, 0 to 1, does not exceed: the median at 0.5.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = libm::ceil(share.clamp(0.0, 1.0) * self.filters() as f64).max(1.0);
        let mut counted = 0;
        for (ones, filters) in self.fills() {
            counted += filters;
            if counted as f64 >= rank {
                return f64::from(ones) / 2048.0;
            }
        }
        0.0
    }

    /// How many distinct values the filters hold in all, those with all bits set left out.
    pub fn estimated_values(&self) -> f64 {
        let informative =
            self.fills().filter(|&(ones, _)| bloom::estimated_values(ones).is_finite());
        informative.map(|(ones, filters)| bloom::estimated_values(ones) * filters as f64).sum()
    }

    /// The mean share of filters in which `bits` given bits are all set by chance: the rate of
    /// false "maybe" of a query for a value (3 bits), for two values (6), for three (9).
    ///
    /// Assumes that a block's set bits are spread evenly, which holds for Keccak.
    pub fn false_positive_rate(&self, bits: u32) -> f64 {
        self.mean(|ones| libm::pow(f64::from(ones) / 2048.0, f64::from(bits)))
    }

    /// The sum over all filters of what `of` says of a number of set bits.
    pub(crate) fn sum(&self, of: impl Fn(u32) -> f64) -> f64 {
        self.fills().map(|(ones, filters)| of(ones) * filters as f64).sum()
    }

    fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        match self.filters() {
            0 => 0.0,
            filters => self.sum(of) / filters as f64,
        }
    }

    /// Each fill that occurs, in bits set, with how many filters have it.
    pub(super) fn fills(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(&self.filters).filter(|&(_, &filters)| filters > 0).map(|(ones, &n)| (ones, n))
    }
}
