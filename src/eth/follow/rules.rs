//! What is followed, all of it known.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::eth::chain_profile::ChainProfile;
use crate::eth::log_query::{LogQuery, Semantics};

/// What is followed, all of it known.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// A log is wanted if any of them wants it.
    pub(super) queries: Vec<LogQuery>,
    pub(super) subject: Subject,
    pub(super) profile: ChainProfile,
    pub(super) to: Option<u64>,
    pub(super) confirmations: u64,
    pub(super) keep: usize,
    /// Up to this block an index says which blocks are candidates.
    pub(super) index_to: Option<u64>,
}

/// What a cursor is of: another follower may not go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) chain_id: u64,
    /// The query without its range, as `eth_getLogs` takes it; of several, the list of them.
    pub(super) query: String,
    pub(super) semantics: Semantics,
    /// The first header that is linked: before `from` where an anchor is.
    pub(super) start: u64,
    /// The first block whose logs are wanted.
    pub(super) from: u64,
}
