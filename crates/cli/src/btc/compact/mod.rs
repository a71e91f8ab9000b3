//! `btc filter …` of compact block filters.

pub(crate) mod audit;
mod block_hashes;
mod blocks;
pub(crate) mod build;
mod files;
pub(crate) mod headers;
pub(crate) mod scan;
mod scripts;
mod target;
