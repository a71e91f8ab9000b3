//! Hash functions over byte slices, one file for each function.

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
pub use siphash::{Packed, siphash_each};
#[cfg(feature = "btc")]
pub use siphash::{SipKey, siphash_2_4};
