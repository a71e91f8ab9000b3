#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # Common properties of all filters
//! - Keys are byte strings, and a [`KeyHasher`] hashes them. Use a
//!   [`random`](KeyHasher#method.random) key if the set changes and untrusted parties choose keys.
//!   Use an explicit seed if the filter's bytes leave the process, and a fast unkeyed hash for sets
//!   that nobody attacks. Filters can be merged only if their hashers are equal, and a program that
//!   reads a filter needs the same hasher.
//! - The traits [`Filter`], [`Insert`], [`Remove`], [`Merge`] and [`Fold`] contain the common
//!   operations. One hash can be used to query many filters
//!   ([`contains_hash`](Filter::contains_hash)). Large filters are fastest with batch queries
//!   ([`contains_batch`](Filter::contains_batch)).
//! - The answer "not in the set" stays certain only if every removed key was in the set. For each
//!   removal, the caller declares by a [`Witness`] that the key is in the set.
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
pub mod interop;
mod kind;
pub mod membership;
pub mod ribbon;
pub mod rolling;
pub mod scalable;
pub mod sizing;
pub mod split_block;
mod static_build;
pub mod textbook;
#[cfg(feature = "std")]
pub mod watch_set;
pub mod words;

#[doc(inline)]
pub use any::AnyFilter;
pub use chainsieve_lanes::names::UnknownName;
#[doc(inline)]
pub use encoding::Portable;
#[doc(inline)]
pub use hashing::KeyHasher;
pub use kind::Kind;
#[doc(inline)]
pub use membership::{Filter, Fold, Insert, Merge, Remove, Witness};
