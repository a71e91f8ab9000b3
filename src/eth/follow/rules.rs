//! What is followed, all of it known.

use alloc::vec::Vec;

use crate::eth::chain_profile::ChainProfile;
use crate::eth::log_query::{LogQuery, Semantics};

/// What is followed, all of it known.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// A log is wanted if any of them wants it.
    pub(super) queries: Vec<LogQuery>,
    pub(super) semantics: Semantics,
    pub(super) profile: ChainProfile,
    /// The first header that is linked: before `from` where an anchor is.
    pub(super) start: u64,
    /// The first block whose logs are wanted.
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) confirmations: u64,
    pub(super) keep: usize,
    /// Up to this block an index says which blocks are candidates.
    pub(super) index_to: Option<u64>,
}
