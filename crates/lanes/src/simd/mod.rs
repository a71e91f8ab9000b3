//! SIMD chosen at run time: the only unsafe code of the library.
//!
//! This module defines the vector operations, not the algorithms. An algorithm is a [`Kernel`]:
//! safe code in two versions. The scalar version is the oracle of the tests. The vector version
//! uses sixteen lanes of 32 bits, or four or eight lanes of 64 bits. [`Backend`] chooses one
//! version for each batch. Only detection creates a vector backend, so any existing vector backend
//! proves that the CPU has its instructions.

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

/// Prefetches the cache line where a value starts, as the value is soon to be read. Does nothing on
/// CPUs other than x86-64.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    x86_64::prefetch(value);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// An algorithm over slices with a scalar and a vector version, which return equal results.
pub trait Kernel {
    /// Result of the algorithm.
    type Output;

    /// Runs the scalar version.
    fn scalar(self) -> Self::Output;

    /// Runs the vector version on the given lanes. The implementation must be `#[inline(always)]`,
    /// and so must everything that it calls with lanes: it is compiled into a function that has the
    /// CPU features enabled.
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// The set of CPU instructions that the algorithms run on.
///
/// Every backend returns the same results; [`best`](Self::best) is the fastest one on this CPU.
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
    /// Returns the [best](Self::best) backend.
    fn default() -> Self {
        Self::best()
    }
}

impl Backend {
    /// Scalar code, which runs on every CPU.
    pub const SCALAR: Self = Self(Choice::Scalar);

    /// Returns the fastest backend of this CPU. With feature `std` the CPU is asked at run time;
    /// without `std`, the result follows from the CPU features for which the crate was compiled.
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

    /// Returns every backend of this CPU, from the slowest to the fastest.
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

    /// Returns the name: `scalar`, `avx2` or `avx512`.
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
