#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # What holds for all
//! - Keys are bytes. A [`KeyHasher`] hashes them: [`random`](KeyHasher#method.random) where the set
//!   changes and strangers choose keys, an explicit seed whenever bytes leave the process, fast
//!   unkeyed hashes for sets that nobody attacks. Filters merge, and are read elsewhere, only with
//!   equal hashers.
//! - [`Filter`], [`Insert`], [`Remove`], [`Merge`], [`Fold`] are what they have in common. Hash
//!   once, ask many filters ([`contains_hash`](Filter::contains_hash)); ask in batches, which large
//!   filters are fast by ([`contains_batch`](Filter::contains_batch)).
//! - "Not here" stays certain under removal only if what is removed was in: a [`Witness`] says so.
//! - [`Portable`] filters have bytes in one format, read forever; the `…Ref` types ask those bytes
//!   where they lie. [`AnyFilter`] is for who doesn't know what the bytes hold, [`interop`] for
//!   bytes of others.
//! - Each type's page says when not to take it and what beats it. [`Kind::cost`] computes what a
//!   kind of filter costs for a number of keys and a rate, [`sizing`] each figure alone.

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
#[doc(inline)]
pub use encoding::Portable;
#[doc(inline)]
pub use hashing::KeyHasher;
pub use kind::Kind;
#[doc(inline)]
pub use membership::{Filter, Fold, Insert, Merge, Remove, Witness};
