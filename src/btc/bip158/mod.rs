//! BIP158: compact block filters, built, matched, scanned and audited.
//!
//! A filter holds the scripts of a block's outputs and of the outputs that it spends, as a
//! Golomb-coded set. Everyone computes the same one, so a client asks it without telling anyone
//! what it looks for.
//!
//! | step | type |
//! |---|---|
//! | build | [`BlockFilter::new`], [`gcs::encode`] |
//! | read | [`gcs::GcsFilter`], strictly or as Bitcoin Core does |
//! | match one filter | [`Matcher`] over [`PreparedScripts`] |
//! | ask one filter again and again | [`DecodedFilter`] |
//! | ask many filters for many wallets | [`scan::Scan`] |
//! | find what concerns a wallet in a block | [`Watch::scan`](super::wallet::Watch::scan) of a [`BoundBlock`] |
//! | judge a filter by its block | [`audit::audit`] |
//! | keep them in files | `container` (feature `std`) |
//!
//! # What an answer is worth
//! A "no" is as good as the filter: filter headers are no part of consensus. A filter that cannot
//! be read is an error, never a "no".
//!
//! Sources: BIP158; Bitcoin Core 28.1, `blockfilter.cpp`.

pub mod audit;
mod block_filter;
#[cfg(test)]
mod block_filter_tests;
mod bound_block;
#[cfg(feature = "std")]
pub mod container;
mod decoded;
pub mod gcs;
mod matcher;
pub(super) mod revealed;
pub mod scan;
mod scripts;
mod slots;
mod values;

pub use block_filter::{
    BlockFilter, BuildError, filter_elements, filter_hash, filter_header, filter_key,
};
pub use bound_block::{BindError, BoundBlock, Witnesses};
pub use decoded::DecodedFilter;
pub use gcs::{Acceptance, GcsError, GcsFilter, GcsParams};
pub use matcher::Matcher;
pub use scripts::PreparedScripts;
