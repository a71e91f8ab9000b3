//! Code that the layouts share: the error type, checks of arguments, probabilities, and searches
//! over whole numbers.

use crate::words::NoMemory;

/// Greatest number of bits that the searches try. No computer has memory for more bits.
pub(super) const MAX_BITS: u64 = 1 << 56;

/// Converts a count to a float. The result is exact below 2^53. Larger counts are rounded, which
/// does not matter for rates.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

/// Returns the least whole number not below `x`, limited to the range of `u64`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn ceil(x: f64) -> u64 {
    libm::ceil(x) as u64
}

/// Returns the greatest whole number not above `x`, limited to the range of `u64`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn floor(x: f64) -> u64 {
    libm::floor(x) as u64
}

/// Converts a small count (of hash functions, or of bits) to `u32`, limited to 1 to 2^16.
#[expect(clippy::cast_possible_truncation, reason = "bounded")]
pub(super) const fn small(count: u64) -> u32 {
    if count == 0 {
        1
    } else if count > 1 << 16 {
        1 << 16
    } else {
        count as u32
    }
}

/// Returns the rate, or an error if it is not between 0 and 1.
pub(crate) fn checked(fpr: f64) -> Result<f64, BuildError> {
    if fpr > 0.0 && fpr < 1.0 { Ok(fpr) } else { Err(BuildError::Fpr { fpr }) }
}

/// Returns `1 - (1 - p)^n`: the probability that at least one of `n` independent events of
/// probability `p` happens.
pub(super) fn any_of(n: f64, p: f64) -> f64 {
    if n == 0.0 {
        return 0.0;
    }
    -libm::expm1(n * libm::log1p(-p))
}

/// Estimates how many distinct keys occupy the fraction `fill` of all positions, if each key
/// occupies a position with probability `chance`. Returns `None` if all positions are occupied.
pub(crate) fn distinct(fill: f64, chance: f64) -> Option<f64> {
    (fill < 1.0).then(|| libm::log1p(-fill) / libm::log1p(-chance))
}

/// Returns the least number from 1 to `most` for which `fits` is true. If `fits` is true for a
/// number, it must be true for every greater number. The search starts near `guess` and tries few
/// numbers.
pub(super) fn least(guess: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let guess = guess.clamp(1, most);
    // The stride doubles until one end of the range fits and the other end does not.
    let mut stride = guess / 1024 + 1;
    let (mut below, mut fitting);
    if fits(guess) {
        fitting = guess;
        loop {
            below = fitting.saturating_sub(stride);
            if below == 0 || !fits(below) {
                break;
            }
            fitting = below;
            stride = stride.saturating_mul(2);
        }
    } else {
        below = guess;
        loop {
            if below == most {
                return None;
            }
            fitting = below.saturating_add(stride).min(most);
            if fits(fitting) {
                break;
            }
            below = fitting;
            stride = stride.saturating_mul(2);
        }
    }
    while fitting - below > 1 {
        let middle = below + (fitting - below) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            below = middle;
        }
    }
    Some(fitting)
}

/// Returns the mean of `f(j)`, where `j` is the number of keys in one of `blocks` blocks after `n`
/// keys were distributed at random. `j` is binomially distributed. `f` must grow from 0 to at most
/// 1.
pub(super) fn mean_over_load(n: u64, blocks: u64, f: impl Fn(f64) -> f64) -> f64 {
    if blocks <= 1 {
        return f(float(n));
    }
    let (keys, others) = (float(n), float(blocks - 1));
    let mode = float(n.saturating_add(1) / blocks);
    // A load this low occurs with a probability below 10^-30. If even a block with so few keys
    // returns `true` for every key, the mean is 1. Without this case the loop below might not end,
    // because `j + 1` equals `j` from 2^53 on.
    if f(libm::floor(mode - 12.0 * libm::sqrt(mode + 1.0)).max(0.0)) >= 1.0 {
        return 1.0;
    }
    // The sum starts at the most likely load and continues to both sides. Each probability is
    // computed from the probability of the neighbouring load, and is relative to the probability of
    // the most likely load.
    let (mut total, mut chances) = (f(mode), 1.0);
    let (mut chance, mut j) = (1.0, mode);
    while j > 0.0 {
        chance *= j / (keys - j + 1.0) * others;
        j -= 1.0;
        total += chance * f(j);
        chances += chance;
        if chance < 1e-18 {
            break;
        }
    }
    (chance, j) = (1.0, mode);
    while j < keys {
        chance *= (keys - j) / (j + 1.0) / others;
        j += 1.0;
        total += chance * f(j);
        chances += chance;
        // `f` is at most 1, and here each probability is far smaller than the one before it. So the
        // current probability bounds the remaining sum.
        if chance <= total * 1e-16 || chance < 1e-300 {
            break;
        }
    }
    total / chances
}

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
pub(crate) fn check_hash(capacity: u64, fpr: f64, bits: u32) -> Result<(), BuildError> {
    if float(capacity) * libm::exp2(-f64::from(bits)) > fpr / 100.0 {
        return Err(BuildError::HashTooShort { capacity, fpr, bits });
    }
    Ok(())
}

/// The reason why a filter can't be built, for example because no filter can have the requested size
/// or rate.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
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
    /// No seed led to a static filter. Each try fails with a probability below one half, so this
    /// happens only if an attacker chose the keys for that purpose. Build with another seed, and hash
    /// with another key.
    #[error(
        "no filter of {keys} keys after {tries} seeds: try another seed, and hash with another key"
    )]
    NoSeed {
        /// Number of keys of the set, or of the shard that failed.
        keys: u64,
        /// Number of seeds tried.
        tries: u32,
    },
    /// A static filter would have more keys than its layout can index.
    #[error("{keys} keys in one shard, but at most {limit} are possible")]
    TooManyKeys {
        /// Number of keys found.
        keys: u64,
        /// Greatest number of keys possible.
        limit: u64,
    },
    /// There is no memory for the filter.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl BuildError {
    /// Returns [`BuildError::Parameter`] unless the parameter is from 1 to `max`.
    pub(crate) fn unless_within(what: &'static str, value: u64, max: u64) -> Result<(), Self> {
        let (min, fits) = (1, (1..=max).contains(&value));
        if fits { Ok(()) } else { Err(Self::Parameter { what, value, min, max }) }
    }
}
