//! The result of an audit.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use chainsieve_client::peers::frame::FrameError;
use chainsieve_client::peers::handshake::HandshakeError;
use chainsieve_provider::RpcError;
use serde::Serialize;
use serde_json::Value;

/// The rules that audits check. Most of them are areas of the conformance vectors.
pub mod rules {
    /// Headers of Bitcoin have proof of work and link to each other.
    pub const BITCOIN_HEADER: &str = "bitcoin.header";
    /// A block has the transactions and witnesses to which its header commits.
    pub const BITCOIN_BLOCK: &str = "bitcoin.block";
    /// A filter is the basic filter of its block.
    pub const BASIC_FILTER: &str = "bip158.basic";
    /// A filter header follows from the filter and the filter header before it.
    pub const FILTER_HEADER: &str = "bip157.header";
    /// The fields of a header in JSON hash to the claimed hash.
    pub const HEADER_JSON: &str = "header.json";
    /// Headers link to each other, and a header can be fetched by its hash.
    pub const HEADER_CHAIN: &str = "header.chain";
    /// The receipts of a block have the receipts root of the header.
    pub const RECEIPTS_ROOT: &str = "receipts.root";
    /// Receipts in JSON claim the place that they have.
    pub const RECEIPTS_PLACE: &str = "receipts.place";
    /// Filters of headers and receipts have exactly the bits of the logs.
    pub const LOGS_BLOOM: &str = "logsbloom.build";
    /// An answer to `eth_getLogs` has exactly the logs that match the query.
    pub const LOGS: &str = "logs.node";
}

/// A rule that a node broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The rule, one of [`rules`].
    pub rule: &'static str,
    /// Height or number of the first block that the difference is about.
    pub block: u64,
    /// What differs, in words.
    pub what: String,
    /// The value that follows from the rules.
    pub expected: String,
    /// The value that the node sent.
    pub got: String,
    /// The smallest query found whose answer differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Value>,
}

impl Difference {
    pub(super) fn new(
        rule: &'static str,
        block: u64,
        what: impl Into<String>,
        (expected, got): (impl ToString, impl ToString),
    ) -> Self {
        let (expected, got) = (bounded(expected.to_string()), bounded(got.to_string()));
        Self { rule, block, what: what.into(), expected, got, query: None }
    }
}

/// Maximum length of a value in a difference, in bytes: the largest honest value is the filter of a
/// full block of Bitcoin, some 200,000 hex digits. A node may send values of any length.
const MAX_VALUE: usize = 1 << 18;

/// Cuts a value to [`MAX_VALUE`] bytes.
fn bounded(mut value: String) -> String {
    if value.len() > MAX_VALUE {
        let cut = format!("… ({} bytes)", value.len());
        let end = (0..=MAX_VALUE).rev().find(|&end| value.is_char_boundary(end));
        value.truncate(end.unwrap_or(0));
        value.push_str(&cut);
        value.shrink_to_fit();
    }
    value
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// The first block of the range.
    pub from: u64,
    /// The last block of the range.
    pub to: u64,
    /// Number of blocks that were examined. An audit of Bitcoin ends at the first difference.
    pub blocks: u64,
    /// Number of comparisons by each rule.
    pub checks: BTreeMap<&'static str, u64>,
    /// The differences, in the order of the blocks. At most 100 are listed.
    pub differences: Vec<Difference>,
    /// Number of comparisons that could not be decided.
    pub undecided: u64,
    /// The reason of the first comparison that could not be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_undecided: Option<String>,
    /// What the audit took on trust or left out.
    pub notes: Vec<String>,
}

/// Maximum number of differences that are listed: a node that is wrong everywhere needs no more.
const MAX_DIFFERENCES: usize = 100;

impl AuditReport {
    pub(super) fn new(range: &RangeInclusive<u64>) -> Self {
        Self {
            from: *range.start(),
            to: *range.end(),
            blocks: 0,
            checks: BTreeMap::new(),
            differences: Vec::new(),
            undecided: 0,
            why_undecided: None,
            notes: Vec::new(),
        }
    }

    /// Counts a comparison, and adds its difference if there is one.
    pub(super) fn check(&mut self, rule: &'static str, difference: Option<Difference>) {
        *self.checks.entry(rule).or_default() += 1;
        self.differences.extend(difference);
    }

    pub(super) fn is_full(&self) -> bool {
        self.differences.len() >= MAX_DIFFERENCES
    }

    pub(super) fn leave_undecided(&mut self, why: impl FnOnce() -> String) {
        self.undecided += 1;
        self.why_undecided.get_or_insert_with(why);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns `true` if all comparisons were decided and none differs.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty() && self.undecided == 0
    }
}

/// Reason why an audit has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The range has no blocks.
    #[error("the range ends at {to}, before it begins, at {from}")]
    EmptyRange {
        /// The first block.
        from: u64,
        /// The last block.
        to: u64,
    },
    /// The range ends after the node's last block.
    #[error("the range ends at {to}, the node's last block is {last}")]
    BeyondTip {
        /// The last block of the range.
        to: u64,
        /// The node's last block.
        last: u64,
    },
    /// The node is on another network than the caller named, or on an unknown one.
    #[error("the node's network is {0:?}")]
    Network(String),
    /// The node's chain changed during the audit.
    #[error("block {0}: the chain was reorganised during the audit; start again")]
    Reorganised(u64),
    /// A call of JSON-RPC failed.
    #[error("{what}: {error}")]
    Rpc {
        /// The data that was requested.
        what: String,
        /// Reason why the call failed.
        error: RpcError,
    },
    /// The node answers a call with something other than JSON-RPC, although the HTTP status is a
    /// success.
    #[error("{what}: the node's answer is not JSON-RPC: {words:?}")]
    NotJsonRpc {
        /// The data that was requested.
        what: String,
        /// Reason why the answer cannot be read.
        words: String,
    },
    /// No connection to the peer.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// The handshake with the peer failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// No message could be read from the peer.
    #[error("{what}: {error}")]
    Frame {
        /// The data that was requested.
        what: &'static str,
        /// Reason why no message could be read.
        error: FrameError,
    },
    /// The peer does not offer what the audit needs.
    #[error("the peer does not offer {0}")]
    NotOffered(&'static str),
    /// The peer sent many messages, but not the one that was requested.
    #[error("{0}: no answer among the peer's messages")]
    NoAnswer(&'static str),
    /// The caller stopped the audit.
    #[error("stopped")]
    Stopped,
}

// The cause is in the text already, so that it is no source: a chain of errors would have it twice.
impl From<std::io::Error> for AuditError {
    fn from(error: std::io::Error) -> Self {
        Self::Connect(error)
    }
}

impl AuditError {
    pub(super) fn rpc(what: impl Into<String>, error: RpcError) -> Self {
        match error {
            RpcError::Stopped => Self::Stopped,
            error => Self::Rpc { what: what.into(), error },
        }
    }
}

/// Returns the number of blocks of a range.
///
/// # Errors
/// Returns an error if the range has none.
pub(super) fn length(range: &RangeInclusive<u64>) -> Result<u64, AuditError> {
    let (from, to) = (*range.start(), *range.end());
    if from > to {
        return Err(AuditError::EmptyRange { from, to });
    }
    Ok((to - from).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_length_is_cut() {
        let values = ("é".repeat(MAX_VALUE), "0x00");
        let difference = Difference::new(rules::LOGS, 1, "a log", values);
        assert!(difference.expected.len() < MAX_VALUE + 40);
        assert!(difference.expected.ends_with("… (524288 bytes)"));
        assert_eq!(difference.got, "0x00");
    }
}
