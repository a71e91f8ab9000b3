//! BIP158: building, matching, scanning and auditing compact block filters.
//!
//! A filter is a Golomb-coded set of the scripts of a block's outputs and of the outputs that the
//! block spends. Every node computes the same filter for a block. A client can therefore match the
//! filter locally, without revealing its scripts to anyone.
//!
//! | task | type |
//! |---|---|
//! | build a filter | [`BlockFilter::new`], [`gcs::encode`] |
//! | parse a filter | [`gcs::GcsFilter`], strictly or as Bitcoin Core does |
//! | match one filter | [`Matcher`] over [`PreparedScripts`] |
//! | match one filter repeatedly | [`DecodedFilter`] |
//! | match many filters for many wallets | [`scan::FilterScan`] |
//! | find a wallet's transactions in a block | [`WatchedItems::scan`](super::wallet::WatchedItems::scan) of a [`BoundBlock`] |
//! | check a filter against its block | [`audit::audit`] |
//! | store filters in files | `container` (feature `std`) |
//!
//! # What an answer is worth
//! A "no" is only as good as the filter, because filter headers are not part of consensus. A
//! malformed filter is an error, never a "no".
//!
//! Sources: BIP158; Bitcoin Core 28.1, `blockfilter.cpp`.

pub mod audit;
mod block_filter;
#[cfg(test)]
mod block_filter_tests;
mod bound_block;
#[cfg(feature = "std")]
pub mod container;
pub mod gcs;
mod matcher;
pub(super) mod revealed;
pub mod scan;
mod scripts;

pub use block_filter::{
    BlockFilter, BuildError, filter_elements, filter_hash, filter_header, filter_key,
};
pub use bound_block::{BindError, BoundBlock, Witnesses};
pub use gcs::{Acceptance, GcsError, GcsFilter, GcsParams};
pub use matcher::{DecodedFilter, Matcher};
pub use scripts::PreparedScripts;
