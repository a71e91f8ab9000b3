//! The ground of chainsieve: instructions chosen at run time, and the hash functions and bit
//! streams that run on them.
//!
//! Made for the packages of chainsieve, whose documentation names what of it is for users. The rest
//! does not change within a minor version.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[doc(hidden)]
pub mod bits;
pub mod hash;
pub mod simd;
