#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # Common properties of all filters
//! - Keys are byte strings, and a [`KeyHasher`] hashes them. Use a
//!   [`random`](KeyHasher#method.random) key if the set changes and untrusted parties choose keys.
//!   Use an explicit seed if the filter's bytes leave the process, and a fast unkeyed hash for sets
//!   without attackers. Filters can be merged only if their hashers are equal, and a program that
//!   reads a filter needs the same hasher.
//! - The traits [`Filter`], [`Insert`], [`Remove`], [`Merge`] and [`Fold`] contain the common
//!   operations. One hash can be used to query many filters
//!   ([`contains_hash`](Filter::contains_hash)). Large filters are fastest with batch queries
//!   ([`contains_batch`](Filter::contains_batch)).
//! - The answer "not in the set" stays certain only if every removed key was in the set. The caller
//!   has to know that from elsewhere: see [`Remove`].
//! - [`Portable`] filters are encoded in one common format, which every later version of this crate
//!   can read. The `…Ref` types query encoded bytes in place. [`AnyFilter`] decodes bytes whose
//!   kind is not known in advance. [`interop`] reads and writes the formats of other libraries.
//! - The docs of each type name the cases in which another filter is better. [`Kind::cost`]
//!   computes the cost of a kind of filter for a number of keys and a rate. [`sizing`] contains the
//!   individual formulas.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod any;
pub mod bloom;
pub mod count_min;
mod counting;
pub mod cuckoo;
pub mod encoding;
pub mod fuse;
pub mod hashing;

/// Byte formats of Bloom and fuse filters that other libraries read and write.
pub mod interop {
    #[cfg(feature = "guava")]
    pub mod guava;
    #[cfg(feature = "parquet")]
    pub mod parquet;
    #[cfg(feature = "xor-singleheader")]
    pub mod xor_singleheader;
}

pub mod membership;
pub mod ribbon;
pub mod rolling;
pub mod scalable;
pub mod sizing;
pub mod split_block;
mod static_build;

/// Filters from textbooks that are not recommended for new programs.
///
/// For each of these filters, this crate has another filter that is smaller or faster. Use the
/// filters of this module as a baseline for measurements, or to read filters that other programs
/// wrote.
pub mod textbook {
    pub use super::bloom::{PartitionedBloomFilter, PartitionedBloomFilterRef};
    pub use super::counting::CountingBloomFilter;
}

#[cfg(feature = "std")]
pub mod watch_set;
pub mod words;

#[doc(inline)]
pub use any::AnyFilter;
pub use chainsieve_lanes::names::UnknownName;
#[doc(inline)]
pub use encoding::{Kind, Portable};
#[doc(inline)]
pub use hashing::KeyHasher;
#[doc(inline)]
pub use membership::{Filter, Fold, Insert, Merge, Remove};
