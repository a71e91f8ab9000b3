//! Filters for light clients, and what an answer proves.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "btc")]
pub mod btc;
pub mod hash;
#[cfg(feature = "btc")]
pub mod simd;

#[cfg(feature = "btc")]
pub use bitcoin;
#[cfg(feature = "btc")]
pub use secp256k1;
