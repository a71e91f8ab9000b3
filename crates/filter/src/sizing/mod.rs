//! Formulas for size, number of hash functions, false-positive rate and capacity of every layout.
//!
//! Each layout has a module of its own, with functions for the rate of a given size, the smallest
//! size for a given rate, and the number of keys that a size can hold at a given rate.
//! [`Kind::cost`](super::Kind::cost), [`exact_table`] and [`floor`] compute comparable costs of all
//! layouts. Rates are computed as exactly as the layout allows. Sizes are found by a search over
//! whole numbers that computes the rate of each candidate, not by rounding a real number.
//!
//! | layout | the rate is | what the rate ignores |
//! |---|---|---|
//! | [`classic`] | exact for small filters, from mean and variance for large ones | nothing above 10⁻⁴ of the rate |
//! | [`partitioned`] | exact | |
//! | [`split_block`] | exact, over the binomial load of blocks | hash bits that the layout does not use; relevant below 10⁻⁸ |
//! | [`blocked`] | exact, over the binomial load of blocks | |
//! | [`cuckoo`] | computed from the mean load | the variation of the load between buckets: 10⁻⁴ of the rate for 8 bits, less for more |
//! | [`fixed`] | a power of two | |
//!
//! All formulas assume random hash functions, and keys that nobody chose with knowledge of the
//! hash. A 64-bit hash adds `n·2⁻⁶⁴` to every rate ([`hash_bits`]). The rates are averages over all
//! hash functions. A particular small filter may have a rate above or below the average.
//! [`Filter::expected_fpr`](super::Filter::expected_fpr) computes the rate of one filter from its
//! own bits.
//!
//! These formulas correct four errors that are common in tutorials. The formula `(1 - e^(-kn/m))^k`
//! gives too low a rate. The number of hash functions must be a whole number, and of the two whole
//! numbers next to the optimum, the nearer one is not always the better one. Rounding the size up
//! to a power of two costs up to twice the memory. A blocked filter that was sized by the classic
//! formula can have five times the requested rate.

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

/// Greatest number of hash functions of a filter, enough for a rate of 2⁻¹²⁸.
pub const MAX_HASH_FUNCS: u32 = 128;

/// Returns the width in bits that key hashes need, 64 or 128.
///
/// The width is 128 if collisions of 64-bit hashes, `n·2⁻⁶⁴`, would exceed a hundredth of the rate
/// `fpr`.
pub fn hash_bits(n: u64, fpr: f64) -> u32 {
    if float(n) * libm::exp2(-64.0) > fpr / 100.0 { 128 } else { 64 }
}

/// Returns an error if hashes of this width would collide so often that collisions exceed a
/// hundredth of the rate.
pub(crate) fn check_hash(capacity: u64, fpr: f64, bits: u32) -> Result<(), SizingError> {
    if float(capacity) * libm::exp2(-f64::from(bits)) > fpr / 100.0 {
        return Err(SizingError::HashTooShort { capacity, fpr, bits });
    }
    Ok(())
}

/// The reason why no filter can have a requested size or rate.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// The false-positive rate is not between 0 and 1.
    #[error("the false-positive rate is {fpr}, but must be between 0 and 1, both excluded")]
    Fpr {
        /// The requested rate.
        fpr: f64,
    },
    /// A relative error, or the probability of such an error, is not between 0 and 1.
    #[error("{what} of {value}: it must be between 0 and 1, both excluded")]
    Share {
        /// Name of the argument.
        what: &'static str,
        /// Requested value.
        value: f64,
    },
    /// The layout can't reach the requested rate at any size.
    #[error("a rate of {fpr:e} is out of reach of {layout}, whose lowest rate is {best:e}")]
    OutOfReach {
        /// The requested rate.
        fpr: f64,
        /// Name of the layout.
        layout: &'static str,
        /// Lowest rate that the layout can reach.
        best: f64,
    },
    /// A parameter is outside the range that the layout allows.
    #[error("{what} of {value} is out of range: values from {min} to {max} are possible")]
    Parameter {
        /// Name of the parameter.
        what: &'static str,
        /// Requested value.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Greatest value allowed.
        max: u64,
    },
    /// Collisions of hashes would exceed the requested rate.
    #[error("{capacity} keys at a rate of {fpr:e} need a hash of more than {bits} bits")]
    HashTooShort {
        /// Requested number of keys.
        capacity: u64,
        /// Requested rate.
        fpr: f64,
        /// Width of the hash in bits.
        bits: u32,
    },
    /// There is no memory for the filter.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl SizingError {
    /// Returns [`SizingError::Parameter`] unless the parameter is from 1 to `max`.
    pub(crate) fn unless_within(what: &'static str, value: u64, max: u64) -> Result<(), Self> {
        let (min, fits) = (1, (1..=max).contains(&value));
        if fits { Ok(()) } else { Err(Self::Parameter { what, value, min, max }) }
    }
}
