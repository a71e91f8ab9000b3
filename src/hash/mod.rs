//! Hash functions over byte slices, one file each.

pub mod murmur3;
#[cfg(feature = "btc")]
pub(crate) mod sha256d;

pub use murmur3::murmur3_32;
