//! Block headers as received, and chains of headers.
//!
//! A header's hash is the Keccak-256 of its RLP. So headers are kept as the received bytes, and
//! [`HeaderView`] reads the fields in place. Unknown fields that later forks append are kept and
//! hashed, too. A header from JSON ([`HeaderBuf::from_json`]) or from alloy's type is encoded, and
//! its hash must equal the hash that its source claims.
//!
//! Sources for the fields: Yellow Paper 4.4.3; EIP-1559, 4895, 4844, 4788, 7685, 7928, 7843.

#[cfg(feature = "alloy-rpc")]
mod alloy_header;
mod block_ref;
mod chain;
mod json;
#[cfg(test)]
mod tests;
mod view;

pub use block_ref::BlockRef;
pub use chain::{ChainBlock, ChainError, Linked, LinkedHeaders};
pub use json::{HeaderBuf, JsonHeaderError};
pub use view::{HeaderError, HeaderLayout, HeaderView, bloom_at_fixed_place};
