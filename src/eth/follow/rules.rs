//! Rules of a run: the configuration with all tags and anchors resolved.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::eth::chain_profile::ChainProfile;
use crate::eth::log_query::{LogQuery, Semantics};

/// The configuration of a run with all tags and anchors resolved.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The queries; a log is wanted if any of these queries matches.
    pub(super) queries: Vec<LogQuery>,
    pub(super) subject: Subject,
    pub(super) profile: ChainProfile,
    pub(super) to: Option<u64>,
    pub(super) confirmations: u64,
    pub(super) keep: usize,
    /// `true` to prove the transaction hashes of logs.
    pub(super) transaction_hashes: bool,
    /// Last block for which an index supplies the candidates.
    pub(super) index_to: Option<u64>,
}

/// The chain, the queries and the first block that a cursor belongs to. A follower refuses a cursor
/// whose subject differs from its own subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) chain_id: u64,
    /// The query without its block range, in the JSON format of `eth_getLogs`; a JSON list for
    /// several queries.
    pub(super) query: String,
    pub(super) semantics: Semantics,
    /// Number of the first header to link; this header is before `from` if an anchor is before
    /// `from`.
    pub(super) start: u64,
    /// First block whose logs are wanted.
    pub(super) from: u64,
}
