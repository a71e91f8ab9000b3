//! SIMD chosen at run time: the only unsafe code of the library.
//!
//! This module holds the vocabulary, not the algorithms. A kernel is safe code written twice:
//! plainly (the oracle), and over the lanes that a vector unit offers: sixteen of 32 bits, four or
//! eight of 64. [`Backend`] runs one of the two, one decision per batch. A vector backend can only
//! be had by detection, so that owning one proves that the CPU has its instructions.

mod lanes;
mod lanes64;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use lanes::Lanes;
pub use lanes64::Lanes64;
#[cfg(target_arch = "x86_64")]
use x86_64::{Avx2, Avx512};

/// Asks for the line where a value begins from memory: it is soon to be read. Nothing, on other
/// CPUs than x86-64.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    x86_64::prefetch(value);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// An algorithm over slices, written plainly and over lanes, with equal results.
pub trait Kernel {
    /// What it computes.
    type Output;

    /// The plain version.
    fn scalar(self) -> Self::Output;

    /// The version over lanes. Must be `#[inline(always)]`, as everything it calls that handles
    /// lanes: it is compiled into a function that has the CPU features.
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// The instructions that matching runs on.
///
/// Every backend gives the same answers; [`best`](Self::best) is the fastest that this CPU has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Backend(Choice);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Default for Backend {
    /// The [best](Self::best).
    fn default() -> Self {
        Self::best()
    }
}

impl Backend {
    /// Plain code, on every CPU.
    pub const SCALAR: Self = Self(Choice::Scalar);

    /// The fastest backend of this CPU, asked at run time with feature `std`, else by the
    /// features that the crate was compiled for.
    #[inline]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = Avx512::detect() {
                return Self(Choice::Avx512(avx512));
            }
            if let Some(avx2) = Avx2::detect() {
                return Self(Choice::Avx2(avx2));
            }
        }
        Self::SCALAR
    }

    /// Every backend of this CPU, from the slowest to the fastest.
    pub fn available() -> impl Iterator<Item = Self> {
        let backends = [
            Some(Self::SCALAR),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(|avx2| Self(Choice::Avx2(avx2))),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(|avx512| Self(Choice::Avx512(avx512))),
        ];
        backends.into_iter().flatten()
    }

    /// `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Choice::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(_) => "avx512",
        }
    }

    /// Runs an algorithm on this backend.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Choice::Scalar => kernel.scalar(),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(avx2) => avx2.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(avx512) => avx512.run(kernel),
        }
    }
}

impl core::fmt::Debug for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
