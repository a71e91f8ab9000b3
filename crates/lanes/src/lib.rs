//! Foundation of chainsieve: SIMD instructions chosen at run time, hash functions and bit streams
//! that use these instructions, and tables of names that all packages share.
//!
//! This package is made for the other packages of chainsieve. The documentation of the other
//! packages names the parts of this package that users may use. The parts that are not named there
//! stay the same within a minor version.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

/// Bit-level encodings and layouts, independent of what the bits mean.
#[doc(hidden)]
pub mod bits {
    pub mod bit_stream;
    pub mod golomb_rice;
    pub mod transpose;
}

/// Hash functions over byte slices, one file for each function.
pub mod hash {
    #[cfg(feature = "eth")]
    pub mod keccak;
    pub mod murmur3;
    #[cfg(feature = "btc")]
    pub mod sha256d;
    #[cfg(feature = "btc")]
    pub mod siphash;

    #[cfg(feature = "eth")]
    pub use keccak::{keccak256, keccak256_each};
    pub use murmur3::murmur3_32;
    #[cfg(feature = "btc")]
    pub use siphash::{Packed, SipKey, siphash_2_4, siphash_each};
}

pub mod names;
pub mod simd;
