//! Conformance vectors of Bitcoin's and Ethereum's filters, as JSON: BIP37, BIP157, BIP158, logsBloom,
//! `eth_getLogs`, headers and receipts.
//!
//! Each area has one file, `vectors/<area>.json`, with a JSON Schema and a page that explains its
//! members. `README.md` in this package documents the format. The package `chainsieve-conformance`
//! runs the vectors against an implementation, in this process or in another one.
//!
//! Inputs may refer to chain data in [`FIXTURES`]. `chainsieve-conformance export` writes the vectors
//! with all references resolved.
//!
//! ```
//! let pack = chainsieve_vectors::file("pack.json").expect("the index of the pack");
//! assert!(pack.contains("bip37.sizing"));
//! assert!(chainsieve_vectors::file("vectors/bip37.sizing.json").is_some());
//! ```
#![no_std]

mod files;

pub use files::{FILES, FIXTURES};

/// Returns the text of a file of the pack, by its path: `pack.json`, or a path that `pack.json`
/// names.
pub fn file(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

/// Returns the text of a file of chain data, by the path that references in inputs have.
pub fn fixture(path: &str) -> Option<&'static str> {
    FIXTURES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}
