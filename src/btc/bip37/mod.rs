//! BIP37: Bloom filters that a wallet loads on a node, and merkle blocks that the node answers.
//!
//! **The wallet** builds a [`BloomFilter`] and sends it (`filterload`). **The node** matches blocks
//! and transactions against it and answers with a [`MerkleBlock`] and the transactions that match.
//! **The wallet** asks of the answer what it proves: a [`Proof`] of inclusion, with its grade.
//! [`session::Session`] does the wallet's side of a connection, and finds what was left out where
//! that can be shown.
//!
//! Everything is bit for bit as in Bitcoin Core 28.1, where implementations differ: integer
//! division in the [size](core_sizing), flags masked with 3, filters without data that match
//! everything, hashes reduced by the remainder. The order of matching is that of Core's
//! `IsRelevantAndUpdate`; witness data is never looked at.
//!
//! # What it does not do
//! A node that leaves out a transaction sends an answer that is as good as any other: a merkle
//! block proves what is in it, never that nothing is missing. And a filter tells the node nearly
//! which addresses are the wallet's; see [`session::PrivacyReport`].
//!
//! Sources: BIP37, BIP111; Bitcoin Core 28.1, `common/bloom.cpp` and `merkleblock.cpp`.

mod bank;
#[cfg(test)]
mod bank_tests;
mod bit_array;
mod bloom_filter;
mod elements;
mod matching;
mod merkle_block;
mod partial_tree;
mod payload;
mod probe;
mod proof;
#[cfg(test)]
mod proof_tests;
pub mod session;
mod sizing;
#[cfg(test)]
mod tree_tests;

pub use bank::{BankError, FilterBank};
pub use bloom_filter::{BloomFilter, UnionError, UpdateMode};
pub use elements::{BlockElements, Elements};
pub use matching::{MatchReason, TxMatch};
pub use merkle_block::{MerkleBlock, MerkleBlockError};
pub use partial_tree::{InnerNode, TreeError, TreeMatches};
pub use payload::{AddedData, PayloadError};
pub use proof::{Depth, HeaderLink, Inclusion, Policy, Proof, ProofError};
pub use sizing::{SizingError, core_sizing};

/// The largest filter in bytes that a node accepts (BIP37, Core's `MAX_BLOOM_FILTER_SIZE`).
pub const MAX_BLOOM_FILTER_SIZE: usize = 36_000;
/// The largest number of hash functions that a node accepts (BIP37, Core's `MAX_HASH_FUNCS`).
pub const MAX_HASH_FUNCS: u32 = 50;
/// The largest element in bytes that `filteradd` may carry (BIP37, Core's
/// `MAX_SCRIPT_ELEMENT_SIZE`).
pub const MAX_FILTERADD_SIZE: usize = 520;
