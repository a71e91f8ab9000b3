//! What a set is coded with.

use thiserror::Error;

/// What a set is coded with: `P` and `M` of BIP158.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GcsParams {
    p: u8,
    m: u32,
}

impl GcsParams {
    /// Those of the basic filter: `P` = 19, `M` = 784,931.
    pub const BASIC: Self = Self { p: 19, m: 784_931 };
    /// The largest `P` taken here; Bitcoin Core has no limit.
    pub const MAX_P: u8 = 32;

    /// Remainders of `p` bits, and about one false positive in `m` questions.
    ///
    /// # Errors
    /// A `p` over [`MAX_P`](Self::MAX_P), or an `m` of 0.
    pub const fn new(p: u8, m: u32) -> Result<Self, GcsParamsError> {
        if p > Self::MAX_P {
            return Err(GcsParamsError::RemainderBits(p));
        }
        if m == 0 {
            return Err(GcsParamsError::ZeroM);
        }
        Ok(Self { p, m })
    }

    /// The bits of a remainder.
    pub const fn p(self) -> u8 {
        self.p
    }

    /// The inverse of the rate of false positives.
    pub const fn m(self) -> u32 {
        self.m
    }
}

/// Why parameters are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GcsParamsError {
    /// More bits of a remainder than are taken here.
    #[error("remainders of {0} bits, the limit is {max}", max = GcsParams::MAX_P)]
    RemainderBits(u8),
    /// An `M` of 0 leaves no range for values.
    #[error("M is 0, the least is 1")]
    ZeroM,
}
