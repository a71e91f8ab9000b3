//! Foundation of chainsieve: SIMD instructions chosen at run time, and the hash functions and bit
//! streams that run on them, and the tables of names that all packages share.
//!
//! This package is made for the other packages of chainsieve. The documentation of those packages
//! names the parts that are meant for users. The other parts do not change within a minor version.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[doc(hidden)]
pub mod bits;
pub mod hash;
pub mod names;
pub mod simd;
