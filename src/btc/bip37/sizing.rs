//! Size and number of hash functions of a filter.
//!
//! Implementations differ in these numbers, and filters of different sizes have different bits.
//! This module computes what Bitcoin Core's `CBloomFilter` constructor computes: it divides
//! integers to get the number of hash functions, and it keeps Core's order of floating-point
//! operations. bitcoinj and btcd divide in floating point, and for about 29 % of small filters
//! their number of hash functions differs from Core's.

use thiserror::Error;

use super::{MAX_BLOOM_FILTER_SIZE, MAX_HASH_FUNCS};

/// The square of ln 2, as Core writes it.
const LN2SQUARED: f64 = 0.480_453_013_918_201_424_667_102_526_326_664_971_730_552_951_594_545_586_866_864_133_623_665_382_259_834;
/// ln 2, as Core writes it.
const LN2: f64 = core::f64::consts::LN_2;

/// Returns the size in bytes and the number of hash functions that Bitcoin Core chooses for
/// `elements` elements at the false-positive rate `fpr`.
///
/// The results are at most 36,000 bytes and 50 hash functions. Either result may be 0. A filter
/// with 0 bytes or 0 hash functions matches everything, so
/// [`BloomFilter::new`](super::BloomFilter::new) rejects such results.
///
/// Unlike Core's arithmetic, the function is defined for all arguments. If `elements` is 0 or `fpr`
/// is not a number, the result is `(0, 0)`. If `fpr` is below 0 or above 1, the size is 0 bytes. If
/// `fpr` is 0 or the filter would need more than 2^32 bits, the size is the largest possible size.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::core_sizing;
/// assert_eq!(core_sizing(1_000, 1e-4), (2_396, 13));
/// // 4 * 8 / 7 is 4 in integers, which gives two hash functions; bitcoinj uses three.
/// assert_eq!(core_sizing(7, 0.1), (4, 2));
/// ```
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the same casts as in Core; Rust saturates where C++ has no defined result"
)]
pub fn core_sizing(elements: u32, fpr: f64) -> (u32, u32) {
    if elements == 0 || fpr.is_nan() {
        return (0, 0);
    }
    let bits = (-1.0 / LN2SQUARED * f64::from(elements) * ln(fpr)) as u32;
    let bytes = bits.min(MAX_BLOOM_FILTER_SIZE as u32 * 8) / 8;
    let hash_funcs = (f64::from(bytes * 8 / elements) * LN2) as u32;
    (bytes, hash_funcs.min(MAX_HASH_FUNCS))
}

/// Reason why a filter cannot be sized.
#[derive(Debug, Clone, Copy, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum SizingError {
    /// The number of elements is 0.
    #[error("a filter for 0 elements has no size: at least 1 element is needed")]
    NoElements,
    /// The false-positive rate is not in (0, 1). For
    /// [`BloomFilter::with_core_sizing`](super::BloomFilter::with_core_sizing), 1 is allowed.
    #[error("false-positive rate {0} is not between 0 and 1")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::fpr"))]
    RateOutOfRange(f64),
    /// The elements are so few, and the rate so high, that the filter has 0 bytes and matches
    /// everything.
    #[error("{elements} elements at rate {fpr} need 0 bytes: such a filter matches everything")]
    ZeroBytes {
        /// The requested number of elements.
        elements: u32,
        /// The requested false-positive rate.
        fpr: f64,
    },
    /// The filter has 0 hash functions and matches everything. The reason is that there are more
    /// than 144,000 elements at the size limit, or that the rate is above about 0.38.
    #[error(
        "{elements} elements at rate {fpr} allow 0 hash functions: such a filter matches everything \
        (the limit is {MAX_BLOOM_FILTER_SIZE} bytes)"
    )]
    ZeroHashFuncs {
        /// The requested number of elements.
        elements: u32,
        /// The requested false-positive rate.
        fpr: f64,
    },
}

impl SizingError {
    /// Returns a key for comparison. The key contains the bits of the rate, so that NaN equals NaN.
    fn key(self) -> (u8, u32, u64) {
        match self {
            Self::NoElements => (0, 0, 0),
            Self::RateOutOfRange(fpr) => (1, 0, fpr.to_bits()),
            Self::ZeroBytes { elements, fpr } => (2, elements, fpr.to_bits()),
            Self::ZeroHashFuncs { elements, fpr } => (3, elements, fpr.to_bits()),
        }
    }
}

impl PartialEq for SizingError {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for SizingError {}

/// Returns the natural logarithm, from `libm` if there is no standard library.
pub(super) fn ln(x: f64) -> f64 {
    #[cfg(feature = "std")]
    return x.ln();
    #[cfg(not(feature = "std"))]
    return libm::log(x);
}

/// Returns `base` to the power of `exponent`, from `libm` if there is no standard library.
pub(super) fn powf(base: f64, exponent: f64) -> f64 {
    #[cfg(feature = "std")]
    return base.powf(exponent);
    #[cfg(not(feature = "std"))]
    return libm::pow(base, exponent);
}

#[cfg(test)]
mod tests {
    use super::{SizingError, core_sizing};

    #[test]
    fn total_where_core_is_undefined() {
        assert_eq!(core_sizing(0, 0.01), (0, 0));
        assert_eq!(core_sizing(10, f64::NAN), (0, 0));
        assert_eq!(core_sizing(10, 1.0), (0, 0));
        assert_eq!(core_sizing(10, f64::INFINITY), (0, 0));
        assert_eq!(core_sizing(10, 0.0), (36_000, 50));
        assert_eq!(core_sizing(u32::MAX, 1e-300), (36_000, 0));
        assert_eq!(core_sizing(400_000_000, 1e-6), (36_000, 0));
    }

    #[test]
    fn errors_equal_themselves() {
        let error = SizingError::RateOutOfRange(f64::NAN);
        assert_eq!(error, error.clone());
        assert_ne!(error, SizingError::RateOutOfRange(0.0));
    }
}
