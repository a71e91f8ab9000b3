//! Parameters of Golomb-coded sets.

use thiserror::Error;

/// Parameters of a Golomb-coded set: `P` and `M` of BIP158.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "json::Unchecked")
)]
pub struct GcsParams {
    p: u8,
    m: u32,
}

impl GcsParams {
    /// The parameters of basic filters: `P` = 19, `M` = 784,931.
    pub const BASIC: Self = Self { p: 19, m: 784_931 };
    /// The largest supported `P`. Bitcoin Core has no limit.
    pub const MAX_P: u8 = 32;

    /// Creates parameters with remainders of `p` bits and a false-positive rate of about one in
    /// `m`.
    ///
    /// # Errors
    /// Returns an error if `p` exceeds [`MAX_P`](Self::MAX_P), or if `m` is 0.
    pub const fn new(p: u8, m: u32) -> Result<Self, GcsParamsError> {
        if p > Self::MAX_P {
            return Err(GcsParamsError::RemainderBits(p));
        }
        if m == 0 {
            return Err(GcsParamsError::ZeroM);
        }
        Ok(Self { p, m })
    }

    /// Returns the number of bits of a remainder, `P`.
    pub const fn p(self) -> u8 {
        self.p
    }

    /// Returns the inverse of the false-positive rate, `M`.
    pub const fn m(self) -> u32 {
        self.m
    }
}

/// Reason why parameters are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GcsParamsError {
    /// The number of bits of a remainder exceeds the limit.
    #[error("remainders of {0} bits, the limit is {max}", max = GcsParams::MAX_P)]
    RemainderBits(u8),
    /// `M` is 0, which leaves no range for the values.
    #[error("M is 0, the least is 1")]
    ZeroM,
}

/// Reads parameters from JSON with the checks of [`GcsParams::new`].
#[cfg(feature = "serde")]
mod json {
    use super::{GcsParams, GcsParamsError};

    #[derive(serde::Deserialize)]
    pub(super) struct Unchecked {
        p: u8,
        m: u32,
    }

    impl TryFrom<Unchecked> for GcsParams {
        type Error = GcsParamsError;

        fn try_from(Unchecked { p, m }: Unchecked) -> Result<Self, Self::Error> {
            Self::new(p, m)
        }
    }
}
