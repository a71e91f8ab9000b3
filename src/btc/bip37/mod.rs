//! BIP37: Bloom filters that a wallet loads on a node, and merkle blocks that the node answers.

mod bank;
mod bit_array;
mod bloom_filter;
mod elements;
mod matching;
mod merkle_block;
mod merkle_tree;
mod partial_tree;
mod payload;
mod probe;
mod proof;
#[cfg(test)]
mod proof_tests;
mod sizing;
#[cfg(test)]
mod tree_tests;
pub mod wallet;

pub use bank::{BankError, FilterBank};
pub use bloom_filter::{BloomFilter, UnionError, UpdateMode};
pub use elements::{BlockElements, Elements};
pub use matching::{MatchReason, TxMatch};
pub use merkle_block::{MerkleBlock, MerkleBlockError};
pub use merkle_tree::{MAX_BLOCK_TRANSACTIONS, MerklePath, PathError, merkle_root};
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
