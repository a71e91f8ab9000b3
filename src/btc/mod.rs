//! Bitcoin.

pub mod bip37;
#[cfg(feature = "descriptors")]
pub mod descriptors;
pub mod script;
