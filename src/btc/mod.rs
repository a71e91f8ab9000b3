//! Bitcoin.

pub mod bip37;
mod raw;
pub mod script;

pub use raw::RawError;
