//! Membership filters: Bloom and its family, cuckoo, fuse, ribbon, and the watch sets that backends
//! keep.
//!
//! A filter stands for a set of keys in a few bits each. Asked for a key it says "not here", which
//! is certain, or "maybe here", which for strangers is wrong at a rate that was chosen.
//!
//! # Which filter when
//! Bits are for a key, at the rate in brackets; no filter takes fewer than log2(1/rate).
//!
//! | the set | take | it takes |
//! |---|---|---|
//! | has fewer than 10⁵ keys | a hash table: it is exact, and as fast | 64 and more |
//! | is the keys that a backend watches, and changes | `WatchSet`: exact counts, growth, readers beside writers | 30 beside the keys |
//! | never changes: shipped, or written with a segment | [`BinaryFuse8`], [`BinaryFuse16`] | 9.1 (0.4 %), 18.1 (0.0015 %) |
//! | never changes, and every byte counts | [`RibbonFilter`]: any rate, slower | 1.07 · log2(1/rate) |
//! | grows to a known size, rate of 0.1 % and more | [`SplitBlockFilter512`]: one line of memory a question, the fastest | 10.1 (1 %), 15.7 (0.1 %) |
//! | grows to a known size, lower rates | [`BloomFilter`]; [`CuckooFilter16`] if it may be full | 19.2 (0.01 %); 17.0 (0.011 %) |
//! | gets keys from several threads | `AtomicBloomFilter` | as [`BloomFilter`] |
//! | loses keys, too | [`CuckooFilter12`], [`CuckooFilter16`] | 12.8 (0.18 %), 17.0 (0.011 %) |
//! | is the last `n` of an endless stream | [`RollingBloomFilter`]: those for certain | 43 (0.1 %), 86 (10⁻⁶) |
//! | has a size that nobody knows, and its keys are nowhere else | [`ScalableBloomFilter`]: the rate holds | 6 more than [`BloomFilter`] after a hundredfold growth |
//! | goes into a Parquet file | [`SplitBlockFilter256`] | 10.5 (1 %), 16.9 (0.1 %) |
//! | is a Bloom filter's, to be shipped as one | [`CompressedBloomFilter`] | less than it had, more than fuse |
//! | is a textbook's | [`CountingBloomFilter`], [`PartitionedBloomFilter`] | 43 (1 %), 9.6 (1 %) |
//!
//! Each type's page says when not to take it and what beats it; [`sizing`] computes what any of
//! them costs for a number of keys and a rate.
//!
//! # What holds for all
//! - Keys are bytes. A [`KeyHasher`] hashes them: [`random`](KeyHasher::random) where the set
//!   changes and strangers choose keys, an explicit seed whenever bytes leave the process, fast
//!   unkeyed hashes for sets that nobody attacks. Filters merge, and are read elsewhere, only with
//!   equal hashers.
//! - [`Filter`], [`Insert`], [`Remove`], [`Merge`] are what they have in common. Hash once, ask many
//!   filters ([`contains_hash`](Filter::contains_hash)); ask in batches, which large filters are
//!   fast by ([`contains_batch`](Filter::contains_batch)).
//! - "Not here" stays certain under removal only if what is removed was in: a [`Witness`] says so.
//! - [`Portable`] filters have bytes in one format, read forever; the `…Ref` types ask those bytes
//!   where they lie. [`AnyFilter`] is for who doesn't know what the bytes hold, [`interop`] for
//!   bytes of others.
//! - Whoever has a filter can ask it for any key: a filter of watched scripts, published, shows the
//!   wallet.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod any;
mod bloom;
mod counting;
mod cuckoo;
mod encoding;
mod fuse;
mod hashing;
pub mod interop;
mod kind;
mod membership;
mod ribbon;
mod rolling;
mod scalable;
pub mod sizing;
mod split_block;
mod static_build;
#[cfg(feature = "std")]
mod watch_set;
mod words;

pub use any::{AnyFilter, OpenedBloomFilter, Param};
#[cfg(feature = "std")]
pub use bloom::AtomicBloomFilter;
pub use bloom::{
    Bloom, BloomFilter, BloomFilterRef, CompressedBloomFilter, PartitionedBloomFilter,
    PartitionedBloomFilterRef,
};
pub use counting::CountingBloomFilter;
pub use cuckoo::{
    CuckooFilter, CuckooFilter8, CuckooFilter8Ref, CuckooFilter12, CuckooFilter12Ref,
    CuckooFilter16, CuckooFilter16Ref,
};
pub use encoding::{DecodeError, EncodeError, Portable};
pub use fuse::{
    BinaryFuse, BinaryFuse8, BinaryFuse8Ref, BinaryFuse16, BinaryFuse16Ref, FuseFingerprint,
};
pub use hashing::{HashFunction, KeyHash, KeyHasher};
pub use kind::Kind;
pub use membership::{
    Filter, Fold, Full, Insert, Merge, MergeError, NotContained, Remove, Stats, Witness,
};
pub use ribbon::{RibbonFilter, RibbonFilterRef};
pub use rolling::RollingBloomFilter;
pub use scalable::ScalableBloomFilter;
pub use sizing::SizingError;
pub use split_block::{
    Bits256, Bits512, BlockShape, SplitBlockFilter, SplitBlockFilter256, SplitBlockFilter256Ref,
    SplitBlockFilter512, SplitBlockFilter512Ref,
};
pub use static_build::BuildError;
#[cfg(feature = "std")]
pub use watch_set::{
    Acquired, Added, Answer, ExportError, Exposure, Hit, KeepError, Kept, KeptKeys, KeyStore,
    Probe, Progress, Released, Removed, ShardStats, WatchError, WatchSet, WatchSetBuilder,
    WatchStats,
};
pub use words::{NoMemory, Words};

/// The snippet of the README compiles.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
