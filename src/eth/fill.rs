//! Fill of a chain's filters, and the false-positive rate that follows from it.

#![expect(clippy::cast_precision_loss, reason = "rounding does not matter in shares and estimates")]

use alloc::vec::Vec;

use super::bloom::{self, BITS, BloomView};

/// Number of filters for each number of set bits.
///
/// The false-positive rate must be computed block by block: fills vary so much that the mean fill
/// does not predict the rate. With this histogram the sum over all blocks becomes a sum over at
/// most 2,049 distinct fills.
///
/// `serde` writes the list of the 2,049 counts, from 0 set bits to 2048. A list of another length is
/// rejected.
///
/// # Cost
/// The histogram uses 16 kB of memory for any number of filters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "Wire")]
pub struct FillHistogram {
    /// Number of filters; the index is the number of set bits, 0 to 2048.
    filters: Vec<u64>,
}

/// A histogram in its JSON form.
#[derive(serde::Deserialize)]
struct Wire(Vec<u64>);

/// Error: the list has this length.
#[derive(Debug, thiserror::Error)]
#[error("a histogram of {0} counts, expected 2049")]
struct Length(usize);

impl TryFrom<Wire> for FillHistogram {
    type Error = Length;

    fn try_from(Wire(filters): Wire) -> Result<Self, Length> {
        if filters.len() == BITS + 1 { Ok(Self { filters }) } else { Err(Length(filters.len())) }
    }
}

impl serde::Serialize for FillHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.filters.serialize(serializer)
    }
}

impl Default for FillHistogram {
    fn default() -> Self {
        Self { filters: alloc::vec![0; BITS + 1] }
    }
}

impl FillHistogram {
    /// Adds filters to the histogram.
    ///
    /// A filter whose length is not 256 bytes is recorded as a filter with all bits set, because
    /// neither of the two filters carries information.
    pub fn add<'a>(&mut self, blooms: impl IntoIterator<Item: Into<BloomView<'a>>>) {
        for bloom in blooms {
            let ones = bloom.into().count_ones();
            self.filters[ones.map_or(BITS, |ones| ones as usize)] += 1;
        }
    }

    /// Adds the counts of another histogram to this histogram.
    pub fn merge(&mut self, other: &Self) {
        for (filters, others) in self.filters.iter_mut().zip(&other.filters) {
            *filters += others;
        }
    }

    /// Adds `filters` filters with `ones` set bits each.
    #[cfg(feature = "std")]
    pub(super) fn add_count(&mut self, ones: usize, filters: u64) {
        self.filters[ones] += filters;
    }

    /// Returns the number of filters in the histogram.
    pub fn filters(&self) -> u64 {
        self.filters.iter().sum()
    }

    /// Returns the number of filters that carry no information: all their bits are set.
    pub fn uninformative(&self) -> u64 {
        self.filters[BITS]
    }

    /// Returns the number of filters without any set bit: the filters of blocks without logs.
    pub fn empty(&self) -> u64 {
        self.filters[0]
    }

    /// Returns the mean share of set bits, 0 to 1, or 0 if the histogram is empty.
    pub fn mean_fill(&self) -> f64 {
        self.mean(|ones| f64::from(ones) / 2048.0)
    }

    /// Returns the quantile of the fill at `share`; for example, a `share` of 0.5 gives the median.
    ///
    /// The result is a fill, 0 to 1: the lowest fill for which at least `share` of all filters have
    /// this fill or a lower fill. `share` is clamped to 0 to 1. Returns 0 if the histogram is
    /// empty.
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

    /// Estimates the number of distinct values per filter and returns the sum over all filters.
    ///
    /// Filters with all bits set are left out. A value that is in two filters is counted twice.
    pub fn estimated_values(&self) -> f64 {
        let informative =
            self.fills().filter(|&(ones, _)| bloom::estimated_values(ones).is_finite());
        informative.map(|(ones, filters)| bloom::estimated_values(ones) * filters as f64).sum()
    }

    /// Returns the expected share of filters, 0 to 1, in which `bits` given bits are set by chance.
    ///
    /// The share is the false-positive rate of a query for one value (3 bits), for two values (6
    /// bits) or for three values (9 bits). The calculation assumes that a block's set bits are
    /// spread evenly, which is true for Keccak.
    pub fn false_positive_rate(&self, bits: u32) -> f64 {
        self.mean(|ones| libm::pow(f64::from(ones) / 2048.0, f64::from(bits)))
    }

    /// Calls `of` with the number of set bits of each filter, and returns the sum of the results.
    pub(crate) fn sum(&self, of: impl Fn(u32) -> f64) -> f64 {
        self.fills().map(|(ones, filters)| of(ones) * filters as f64).sum()
    }

    fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        match self.filters() {
            0 => 0.0,
            filters => self.sum(of) / filters as f64,
        }
    }

    /// Returns each number of set bits that occurs, and the number of filters with that many set
    /// bits.
    pub(super) fn fills(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(&self.filters).filter(|&(_, &filters)| filters > 0).map(|(ones, &n)| (ones, n))
    }
}
