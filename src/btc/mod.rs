//! Bitcoin.

pub mod bip37;
mod compact_size;
pub mod script;
