//! Bitcoin.

pub mod bip37;
pub mod script;
