//! Bitcoin test support: blocks, filters and answers of Bitcoin Core.

pub mod bip37_cases;
pub mod bitcoin_sets;
pub mod coins;
pub mod corpus;
pub mod entry_points;
pub mod filter_world;
pub mod fixtures;
pub mod fuzzed_sets;
pub mod fuzzed_sync;
pub mod gcs_cases;
pub mod naive_gcs;
pub mod oracle;
pub mod random_block;
pub mod random_filters;
pub mod random_sets;
pub mod regtest;
pub mod slow_bip37;
pub mod spent_block;
mod tree_cases;
