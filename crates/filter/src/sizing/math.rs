//! Arithmetic that the layouts share: chances, and searches over whole numbers.

use super::SizingError;

/// More bits than any memory has; here the searches end.
pub(super) const MAX_BITS: u64 = 1 << 56;

/// Counts as floats: exact below 2^53, and nobody needs to know larger ones to the last digit.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

/// The least whole number not below `x`; 0 below zero, `u64::MAX` above it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn ceil(x: f64) -> u64 {
    libm::ceil(x) as u64
}

/// The greatest whole number not above `x`; 0 below zero, `u64::MAX` above it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn floor(x: f64) -> u64 {
    libm::floor(x) as u64
}

/// A number that was bounded before: of hash functions, of bits of a rate; never 0.
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

/// The rate, if it is one.
pub(crate) fn checked(fpr: f64) -> Result<f64, SizingError> {
    if fpr > 0.0 && fpr < 1.0 { Ok(fpr) } else { Err(SizingError::Fpr { fpr }) }
}

/// `1 - (1 - p)^n`: the chance that one of `n` independent events of chance `p` happens.
pub(super) fn any_of(n: f64, p: f64) -> f64 {
    if n == 0.0 {
        return 0.0;
    }
    -libm::expm1(n * libm::log1p(-p))
}

/// How many distinct keys have occupied the share `fill` of places, each of which a key takes by
/// this chance; none if nothing is free.
pub(crate) fn distinct(fill: f64, chance: f64) -> Option<f64> {
    (fill < 1.0).then(|| libm::log1p(-fill) / libm::log1p(-chance))
}

/// The least number from 1 to `most` that `fits`, where every larger one fits too. Asks few
/// numbers, near to the `guess` at first.
pub(super) fn least(guess: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let guess = guess.clamp(1, most);
    // Strides that double, until one end fits and the other doesn't.
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

/// The greatest number of keys up to `most` that `fits`, where every smaller one fits too; 0 if
/// none does.
pub(super) fn greatest(guess: u64, most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    // The least that doesn't fit, less one.
    least(guess, most, |n| !fits(n)).map_or(most, |n| n - 1)
}

/// The mean of `f(j)`, where `j` of `n` keys fall into one of `places` places: binomial, which
/// for many places is Poisson's. `f` must grow from 0 to at most 1.
pub(super) fn mean_over_load(n: u64, places: u64, f: impl Fn(f64) -> f64) -> f64 {
    if places <= 1 {
        return f(float(n));
    }
    let (keys, others) = (float(n), float(places - 1));
    let mode = float(n.saturating_add(1) / places);
    // Where hardly any place has a load so low (fewer than one of 10^30) that strangers are not
    // all found, the mean is one, and its sum might have no end: `j + 1` is `j` from 2^53 on.
    if f(libm::floor(mode - 12.0 * libm::sqrt(mode + 1.0)).max(0.0)) >= 1.0 {
        return 1.0;
    }
    // From the most likely load outwards, each chance by its ratio to the one before, in units of
    // the most likely one.
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
        // `f` is at most 1, so this bounds what is left; the ratio is far below 1 by then.
        if chance <= total * 1e-16 || chance < 1e-300 {
            break;
        }
    }
    total / chances
}
