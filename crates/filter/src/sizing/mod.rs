//! Bits, hash functions, rates and capacities from each other.
//!
//! A module for each layout, each with the rate of a given size, the smallest size for a rate, and
//! the keys that a size holds; [`Kind::cost`](super::Kind::cost) puts them side by side, beside
//! [`exact_table`] and [`floor`]. Rates are computed as exactly as the layout allows, and sizes are searched by the rates: whole numbers are tried, not
//! rounded to.
//!
//! | layout | the rate is | what it misses |
//! |---|---|---|
//! | [`classic`] | exact occupancy for small filters, mean and variance for large | nothing above 10⁻⁴ of the rate |
//! | [`partitioned`] | exact | |
//! | [`split_block`] | exact, over the binomial load of blocks | bits that the layout cuts off the hash, from 10⁻⁸ down |
//! | [`blocked`] | exact, over the binomial load of blocks | |
//! | [`cuckoo`] | by the mean load | the spread of the load among buckets: 10⁻⁴ of the rate for 8 bits, less for more |
//! | [`fixed`] | a power of two | |
//!
//! All of it is about hash functions that are random, and about strangers that were not chosen by
//! someone who knows the hash. A hash of 64 bits adds `n·2⁻⁶⁴` to every rate ([`hash_bits`]). And
//! rates are means over hash functions: that of one small filter is higher or lower, by its own
//! bits ([`Filter::expected_fpr`](super::Filter::expected_fpr)).
//!
//! What tutorials say otherwise: `(1 - e^(-kn/m))^k` is too low; the number of hash functions has
//! to be whole, and the better of the two neighbours isn't always the nearer; a size rounded up to
//! a power of two costs up to twice the memory; sizing a blocked filter by the classic formula
//! misses the rate by up to five times.

pub mod blocked;
pub mod classic;
pub(crate) mod cost;
pub mod cuckoo;
pub mod fixed;
mod math;
pub mod partitioned;
pub mod split_block;
pub mod stages;
#[cfg(test)]
mod tests;

pub(crate) use cost::in_words;
pub use cost::{Cost, exact_table, floor};

use super::words::NoMemory;
pub(super) use math::{checked, distinct, float};

/// The most hash functions that a filter has: enough for a rate of 2⁻¹²⁸.
pub const MAX_HASH_FUNCS: u32 = 128;

/// How wide a hash of keys has to be: 128 bits once the strangers that share 64 bits with one of
/// `n` keys are a hundredth of the rate, else 64.
pub fn hash_bits(n: u64, fpr: f64) -> u32 {
    if float(n) * libm::exp2(-64.0) > fpr / 100.0 { 128 } else { 64 }
}

/// Refuses hashes of so few bits that keys of equal hash would spoil the rate.
pub(crate) fn check_hash(capacity: u64, fpr: f64, bits: u32) -> Result<(), SizingError> {
    if float(capacity) * libm::exp2(-f64::from(bits)) > fpr / 100.0 {
        return Err(SizingError::HashTooShort { capacity, fpr, bits });
    }
    Ok(())
}

/// Why there is no filter of such a size.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// A rate of false positives that is none.
    #[error("a rate of false positives of {fpr}: it lies between 0 and 1, both excluded")]
    Fpr {
        /// What was asked for.
        fpr: f64,
    },
    /// An error, or a chance of one, that is not between 0 and 1.
    #[error("{what} of {value}: it lies between 0 and 1, both excluded")]
    Share {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: f64,
    },
    /// A rate that the layout can't have at any size.
    #[error("a rate of {fpr:e} is out of reach of {layout}, whose best is {best:e}")]
    OutOfReach {
        /// What was asked for.
        fpr: f64,
        /// Which filter.
        layout: &'static str,
        /// The lowest rate it can have.
        best: f64,
    },
    /// A parameter outside of what the layout can have.
    #[error("{what} of {value}: from {min} to {max} are possible")]
    Parameter {
        /// Which parameter.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The least there can be.
        min: u64,
        /// The most there can be.
        max: u64,
    },
    /// Keys that share a hash would spoil the rate.
    #[error("{capacity} keys at a rate of {fpr:e} take a hash of more than {bits} bits")]
    HashTooShort {
        /// Keys asked for.
        capacity: u64,
        /// Rate asked for.
        fpr: f64,
        /// Bits of the hash.
        bits: u32,
    },
    /// No memory for it.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl SizingError {
    /// An error unless the parameter is from 1 to `max`.
    pub(crate) fn unless_within(what: &'static str, value: u64, max: u64) -> Result<(), Self> {
        let (min, fits) = (1, (1..=max).contains(&value));
        if fits { Ok(()) } else { Err(Self::Parameter { what, value, min, max }) }
    }
}
