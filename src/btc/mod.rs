//! Bitcoin.

pub mod bip37;
mod compact_size;
pub mod proof_of_work;
mod raw;
pub mod script;

pub use raw::RawError;
