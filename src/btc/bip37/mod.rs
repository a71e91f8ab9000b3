//! BIP37: Bloom filters that a wallet loads on a node, and the merkle blocks that the node sends
//! back.
//!
//! - **The wallet** builds a [`BloomFilter`] and sends it (`filterload`).
//! - **The node** reads the filter ([`BloomFilter::decode`]) and matches blocks and transactions against it
//!   ([`BloomFilter::match_block`], [`BloomFilter::match_transaction`]). It answers with a [`MerkleBlock`] and
//!   the transactions that match.
//! - **The wallet** verifies the answer: a [`Proof`] states which transactions are in the block,
//!   and how much of that is proven.
//!
//! [`session::Session`] implements the wallet's side of a connection. An omitted transaction is
//! proven by [`session::OmissionEvidence`].
//!
//! Where implementations differ, this module gives bit for bit the results of Bitcoin Core 28.1.
//! The number of hash functions comes from an integer division (see [`core_sizing`]), flags are
//! masked with 3, a filter without data matches everything, and a bit position is the remainder of
//! a hash. Transactions are matched in the order of Core's `IsRelevantAndUpdate`, and witness data
//! is never tested.
//!
//! # What it does not do
//! A merkle block proves that transactions are in a block. A merkle block cannot prove that no
//! transaction was left out, so an answer that omits a transaction looks like any other answer.
//!
//! A filter also reveals to the node, almost exactly, which addresses belong to the wallet; see
//! [`session::PrivacyReport`].
//!
//! Sources: BIP37, BIP111; Bitcoin Core 28.1, `common/bloom.cpp` and `merkleblock.cpp`.

mod bit_array;
mod bloom_filter;
mod elements;
mod matching;
mod merkle_block;
mod payload;
mod probe;
mod proof;
#[cfg(test)]
mod proof_tests;
pub mod session;
#[cfg(test)]
mod tree_tests;

pub use bloom_filter::{BloomFilter, FilterError, UpdateMode, core_sizing};
pub use elements::{BlockElements, Elements};
pub use matching::{MatchReason, TxMatch};
pub use merkle_block::{MerkleBlock, MerkleBlockError};
pub use payload::{AddedData, PayloadError};
pub use proof::{HeaderLink, Inclusion, Policy, Proof};

/// Largest filter that a node accepts, in bytes (BIP37, Core's `MAX_BLOOM_FILTER_SIZE`).
pub const MAX_BLOOM_FILTER_SIZE: usize = 36_000;
/// Largest number of hash functions that a node accepts (BIP37, Core's `MAX_HASH_FUNCS`).
pub const MAX_HASH_FUNCS: u32 = 50;
/// Largest element that `filteradd` may carry, in bytes (BIP37, Core's `MAX_SCRIPT_ELEMENT_SIZE`).
pub const MAX_FILTERADD_SIZE: usize = 520;
