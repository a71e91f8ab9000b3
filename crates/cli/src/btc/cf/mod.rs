//! `btc cf …`: compact block filters.

pub(crate) mod audit;
mod block_hashes;
pub(crate) mod build;
mod files;
pub(crate) mod headers;
pub(crate) mod scan;
pub(crate) mod scripts;
mod target;

