//! Bitcoin.

#[cfg(feature = "std")]
pub mod bip157;
pub mod bip158;
pub mod bip37;
mod compact_size;
#[cfg(feature = "descriptors")]
pub mod descriptors;
pub mod headers;
pub mod merkle_tree;
pub mod peer;
pub mod proof_of_work;
mod raw;
pub mod script;

pub use raw::RawError;
