//! BIP37: Bloom filters that a wallet loads on a node, and merkle blocks that the node answers.

mod bit_array;
mod bloom_filter;
mod elements;
mod matching;
mod payload;
mod probe;
mod sizing;

pub use bloom_filter::{BloomFilter, UnionError, UpdateMode};
pub use elements::{BlockElements, Elements};
pub use matching::{MatchReason, TxMatch};
pub use payload::{AddedData, PayloadError};
pub use sizing::{SizingError, core_sizing};

/// The largest filter in bytes that a node accepts (BIP37, Core's `MAX_BLOOM_FILTER_SIZE`).
pub const MAX_BLOOM_FILTER_SIZE: usize = 36_000;
/// The largest number of hash functions that a node accepts (BIP37, Core's `MAX_HASH_FUNCS`).
pub const MAX_HASH_FUNCS: u32 = 50;
/// The largest element in bytes that `filteradd` may carry (BIP37, Core's
/// `MAX_SCRIPT_ELEMENT_SIZE`).
pub const MAX_FILTERADD_SIZE: usize = 520;
