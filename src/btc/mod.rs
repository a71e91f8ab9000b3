//! Bitcoin.

pub mod bip37;
#[cfg(feature = "descriptors")]
pub mod descriptors;
mod raw;
pub mod script;

pub use raw::RawError;
