//! Bitcoin.

pub mod bip37;
mod compact_size;
pub mod proof_of_work;
pub mod script;
