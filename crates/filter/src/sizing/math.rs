//! Arithmetic that the layouts share: probabilities, and searches over whole numbers.

use super::SizingError;

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
pub(crate) fn checked(fpr: f64) -> Result<f64, SizingError> {
    if fpr > 0.0 && fpr < 1.0 { Ok(fpr) } else { Err(SizingError::Fpr { fpr }) }
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

/// Returns the greatest number up to `most` for which `fits` is true, or 0 if none fits. If `fits`
/// is true for a number, it must be true for every smaller number.
pub(super) fn greatest(guess: u64, most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    // The result is one less than the least number that does not fit.
    least(guess, most, |n| !fits(n)).map_or(most, |n| n - 1)
}

/// Returns the mean of `f(j)`, where `j` is the number of keys in one of `places` places after `n`
/// keys were distributed at random. `j` is binomially distributed. `f` must grow from 0 to at most
/// 1.
pub(super) fn mean_over_load(n: u64, places: u64, f: impl Fn(f64) -> f64) -> f64 {
    if places <= 1 {
        return f(float(n));
    }
    let (keys, others) = (float(n), float(places - 1));
    let mode = float(n.saturating_add(1) / places);
    // A load this low occurs with a probability below 10^-30. If even a place with so few keys
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
