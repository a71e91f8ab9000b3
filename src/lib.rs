//! Filters for light clients, and what an answer proves.
//!
//! A Bloom filter may say "maybe" wrongly, never "no" wrongly. Where a block header commits to
//! the filter, a "no" is a proof; elsewhere an answer is worth what comes with it. chainsieve
//! matches filters bit for bit as consensus code does, turns the answer of a node that nobody
//! trusts into a verdict, and grades the verdict by its evidence.
//!
//! | module | what |
//! |---|---|
//! | [`eth`] | logs of Ethereum: queries, scans over headers, receipts, audits that prove an answer complete, certificates |
//! | `eth::files` | headers, bodies and receipts in files: era1 and ere archives, RLP, JSON, hex (feature `std`, archives `era`) |
//! | `eth::index` | the filters of a whole chain on disk, asked in milliseconds (feature `std`) |
//! | [`btc::bip37`] | Bloom filters that a wallet loads on a node, merkle blocks, their proof; the wallet's side and the node's |
//! | [`btc::bip158`] | compact block filters: built, matched, scanned, audited |
//! | `btc::bip157` | compact filters between peers: the client's side, the node's (feature `std`) |
//! | [`btc::wallet`] | what a wallet watches, and what of a block or transaction is its own |
//! | [`btc::headers`] | the chain of block headers with most work, from headers nobody vouches for |
//! | [`btc::merkle_tree`] | merkle roots and the paths of transactions |
//! | [`btc::script`] | data pushes and output types as Bitcoin Core reads them |
//! | [`btc::proof_of_work`] | a header's work against its own target and the network's limit |
//! | `btc::descriptors` | the scripts of output descriptors (feature `descriptors`) |
//! | `filter` | membership filters that know no chain, and watch sets of a hundred million keys (feature `filter`) |
//! | [`hash`] | the hash functions behind the filters |
//! | [`simd`] | the instructions that matching runs on, chosen at run time |
//!
//! # Features
//! - `std` (default): SIMD is chosen at run time, and the messages of `bitcoin::p2p` convert.
//!   Without it the crate is `no_std` with `alloc`.
//! - `btc` (default): everything under [`btc`].
//! - `eth` (default): everything under [`eth`].
//! - `filter`: the package `chainsieve-filter`, as `filter`.
//! - `era`: era1 and ere archives, in `eth::files`.
//! - `descriptors`: scripts of output descriptors, through `miniscript`.
//! - `alloy-rpc`: queries, logs, headers and receipts from the types of `alloy-rpc-types-eth`,
//!   queries and logs back; its major versions are not this crate's.
//! - `op`: receipts of OP-stack chains, deposits included.
//! - `rayon`: scans on all cores.
//!
//! Types of `bitcoin` 0.32 and `alloy-primitives` 1 are taken and returned as they are; both are
//! re-exported as [`bitcoin`] and [`alloy_primitives`], and the `secp256k1` that goes with the
//! former as [`secp256k1`].
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "btc")]
pub mod btc;
#[cfg(feature = "eth")]
pub mod eth;

/// The hash functions of the filters.
pub mod hash {
    pub use chainsieve_lanes::hash::murmur3_32;
    #[cfg(feature = "btc")]
    pub use chainsieve_lanes::hash::{SipKey, siphash_2_4};
    #[cfg(feature = "eth")]
    pub use chainsieve_lanes::hash::{keccak256, keccak256_each};
}

/// The instructions that matching runs on, chosen at run time.
pub mod simd {
    pub use chainsieve_lanes::simd::Backend;
}

#[cfg(feature = "eth")]
pub use alloy_primitives;
#[cfg(feature = "btc")]
pub use bitcoin;
#[cfg(feature = "filter")]
pub use chainsieve_filter as filter;
#[cfg(feature = "btc")]
pub use secp256k1;
