//! Bitcoin and Ethereum filters for light clients, with a verdict on what each answer proves.
//!
//! A Bloom filter can give a false "maybe" but never a false "no". If a block header commits to the
//! filter, a "no" is a proof of absence. Without such a commitment, an answer is worth only the
//! evidence that accompanies it. chainsieve matches filters bit for bit as consensus code does.
//! chainsieve turns the answer of an untrusted node into a verdict, and grades the verdict by its
//! evidence.
//!
//! # What to call
//! | to | call |
//! |---|---|
//! | find the blocks that may contain logs, from headers alone | [`LinkedHeaders::candidates`](eth::header::LinkedHeaders::candidates) with a compiled [`LogQuery`](eth::log_query::LogQuery) |
//! | prove that an answer to `eth_getLogs` is complete, or what it leaves out | [`Audit`](eth::audit::Audit), and [`Certificate`](eth::certificate::Certificate) to show it to others |
//! | find a wallet's scripts in compact filters (BIP158) | [`FilterScan`](btc::bip158::scan::FilterScan) for files of filters, [`Matcher`](btc::bip158::Matcher) for one |
//! | check what a node served | [`bip158::audit`](btc::bip158::audit) for a compact filter, [`Proof::verify`](btc::bip37::Proof::verify) for a transaction in a merkle block |
//!
//! This package opens no sockets. For programs that do, the package `chainsieve-client` is a light
//! client for Bitcoin wallets, and `chainsieve-provider` returns proven logs from Ethereum nodes.
//!
//! # Modules
//! | module | contents |
//! |---|---|
//! | [`eth`] | Ethereum logs: queries, files and an index of headers, scans, receipts, audits that prove an answer complete, certificates, and why a block hash is believed; its page lists its modules |
//! | [`btc`] | Bitcoin: Bloom filters that a wallet loads on a node (BIP37), compact block filters (BIP157, BIP158), headers, the scripts and coins of a wallet, a light client, a node that serves filters; its page lists its modules |
//! | `filter` | membership filters independent of any chain, and watch sets of a hundred million keys (feature `filter`) |
//! | [`hash`] | the hash functions that the filters use |
//! | [`simd`] | the SIMD instruction sets for matching, chosen at run time |
//!
//! # Time
//! The library reads no clock. Where a method needs the time, its argument `now` is the current
//! time as a [`Duration`](core::time::Duration) since the Unix epoch, for example from
//! `SystemTime::now().duration_since(UNIX_EPOCH)`. If the clock is set back, timeouts continue to
//! run from that moment. If the clock is set forward, timeouts expire early, unless the machine is
//! told with an event that time was paused.
//!
//! # Features
//! - `std` (default): chooses SIMD at run time and converts the messages of `bitcoin::p2p`.
//!   Without `std` the crate is `no_std` with `alloc`.
//! - `btc` (default): everything under [`btc`].
//! - `eth` (default): everything under [`eth`].
//! - `filter`: the package `chainsieve-filter`, as `filter`.
//! - `anchor`: a light client of Ethereum's beacon chain, the history contract, header proofs and
//!   chains of links, in `eth::anchor`; with `era` also the check that an archive is part of the
//!   chain. Embeds 85 kB of roots.
//! - `era`: era1 and ere archives, in `eth::files`.
//! - `descriptors`: scripts of output descriptors, through `miniscript`.
//! - `alloy-rpc`: converts queries, logs, headers and receipts from the types of
//!   `alloy-rpc-types-eth`, and converts queries and logs back to these types. A new major version
//!   of `alloy-rpc-types-eth` does not make a new major version of this crate. This feature needs
//!   Rust 1.94.
//! - `op`: receipts of OP-stack chains, deposits included.
//! - `rayon`: scans on all cores.
//! - `serde`: `Serialize` and `Deserialize` for the data types of [`btc`] that users store or send:
//!   updates, hits, findings, grades, verdicts, evidence, wallets, parameters, cursors and
//!   statistics. The types of [`eth`] implement `Serialize` and `Deserialize` without this feature.
//!
//! Public signatures use the types of `bitcoin` 0.32 and `alloy-primitives` 1 directly. Both crates
//! are re-exported as [`bitcoin`] and [`alloy_primitives`], and the `secp256k1` version that
//! `bitcoin` uses is re-exported as [`secp256k1`].
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "btc")]
pub mod btc;
#[cfg(feature = "eth")]
pub mod eth;
#[cfg(any(feature = "btc", feature = "eth"))]
mod steady_clock;

/// The hash functions that the filters use.
pub mod hash {
    pub use chainsieve_lanes::hash::murmur3_32;
    #[cfg(feature = "btc")]
    pub use chainsieve_lanes::hash::{SipKey, siphash_2_4};
    #[cfg(feature = "eth")]
    pub use chainsieve_lanes::hash::{keccak256, keccak256_each};
}

/// The SIMD instruction sets for matching, chosen at run time.
pub mod simd {
    pub use chainsieve_lanes::simd::Backend;
}

#[cfg(feature = "eth")]
pub use alloy_primitives;
#[cfg(feature = "btc")]
pub use bitcoin;
#[cfg(feature = "filter")]
pub use chainsieve_filter as filter;
#[cfg(any(feature = "btc", feature = "eth"))]
pub use chainsieve_lanes::names::UnknownName;
#[cfg(feature = "btc")]
pub use secp256k1;
