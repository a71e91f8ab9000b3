//! The native part of the Python package `chainsieve`. The classes stand in the Python modules
//! `chainsieve.filter`, `chainsieve.btc` and `chainsieve.eth`, which import them from here.

mod answers;
mod btc;
mod errors;
mod eth;
mod filter;
mod keys;

/// The native part of the package. Use the modules of `chainsieve` instead.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::btc::{BlockFilter, BloomFilter, MerkleBlock, match_any};
    #[pymodule_export]
    use crate::eth::{Following, LogQuery, Provider, Update, scan_function, verify_certificate};
    #[pymodule_export]
    use crate::filter::{Bloom, Fuse8, Fuse16, SplitBlock};
}
