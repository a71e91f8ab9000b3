//! Foundation of chainsieve: SIMD instructions chosen at run time, hash functions and bit streams
//! that use these instructions, and tables of names that all packages share.
//!
//! This package is made for the other packages of chainsieve. The documentation of the other
//! packages names the parts of this package that users may use. The parts that are not named there
//! stay the same within a minor version.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[doc(hidden)]
pub mod bits;
pub mod hash;
pub mod names;
pub mod simd;
