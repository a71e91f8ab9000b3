//! Findings: the differences between an answer and the chain.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use alloy_primitives::B256;
use chainsieve_lanes::names;
use serde::{Deserialize, Serialize};

use super::{ForgedLog, OmittedLog};
use crate::eth::chain_profile::BloomSoundness;
use crate::eth::log::LocatedLog;
use crate::eth::receipts::ReceiptProof;

/// A difference between an answer and the complete, correct answer.
///
/// A finding refers to a set of logs and to a chain. A finding does not show which provider gave
/// the answer. [`Display`](fmt::Display) writes the finding as one line.
///
/// # JSON
/// `serde` writes one object. Numbers are JSON numbers. Hashes, logs and the nodes of proofs are
/// written as in JSON-RPC.
///
/// | member | value |
/// |---|---|
/// | `block` | [number](Self::block) or null |
/// | `grounds` | `"answer"`, `"anchored"` or `"unanchored"` ([`Grounds`]) |
/// | `kind` | the name of the [`FindingKind`], for example `"omitted_log"` |
/// | the rest | the members that the table of [`FindingKind`] lists for this kind |
///
/// Unknown members are ignored. Reading a finding verifies nothing: use [`OmittedLog::verify`] or
/// [`ForgedLog::verify`] to verify an omission or a forgery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Number of the block on the chain, or `None` if the finding belongs to no block of the chain.
    pub block: Option<u64>,
    /// The data that the finding depends on.
    pub grounds: Grounds,
    /// The kind of difference, with its evidence.
    #[serde(flatten)]
    pub kind: FindingKind,
}

impl Finding {
    /// Returns `true` if the finding proves that the answer is wrong.
    ///
    /// Proofs are: an omission, a forgery, a wrong field (except a timestamp of zero), a duplicate,
    /// and a log that the query does not select. A finding that depends on headers above the anchor
    /// is never a proof.
    pub fn is_proof(&self) -> bool {
        // Anyone can make headers above the anchor, so even an honest answer can differ from them.
        self.grounds != Grounds::Unanchored
            && match self.kind {
                FindingKind::WrongField { field, .. } => {
                    // Some honest nodes write a timestamp of 0 instead of the true timestamp.
                    !matches!(field, WrongField::BlockTimestamp { answered: 0, .. })
                }
                FindingKind::OmittedLog(_)
                | FindingKind::ForgedLog(_)
                | FindingKind::Duplicate { .. }
                | FindingKind::NotMatching { .. }
                | FindingKind::OutOfRange { .. } => true,
                // An honest provider can cause a finding of each kind below, as the docs of the
                // kinds explain.
                FindingKind::BeyondTag { .. }
                | FindingKind::OtherFork { .. }
                | FindingKind::ArityDependent { .. }
                | FindingKind::Removed { .. }
                | FindingKind::ProfileContradicted { .. } => false,
            }
    }

    /// Returns the log that the finding refers to, as an index into the answer.
    ///
    /// Returns `None` if the finding refers to no log of the answer, for example for an omission.
    pub fn at(&self) -> Option<usize> {
        match &self.kind {
            FindingKind::ForgedLog(forged) => Some(forged.at),
            FindingKind::WrongField { at, .. }
            | FindingKind::Duplicate { at, .. }
            | FindingKind::NotMatching { at }
            | FindingKind::OutOfRange { at }
            | FindingKind::BeyondTag { at }
            | FindingKind::OtherFork { at }
            | FindingKind::Removed { at } => Some(*at),
            FindingKind::ArityDependent { at, .. } => *at,
            FindingKind::OmittedLog(_) | FindingKind::ProfileContradicted { .. } => None,
        }
    }
}

/// The data that a finding depends on.
///
/// `serde` and `Display` write the [name](Self::name), for example `anchored`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grounds {
    /// Only the query and the answer: no header and no receipt is needed.
    Answer,
    /// Authentic headers: blocks up to the highest anchor.
    Anchored,
    /// Headers above the highest anchor. Anyone can make such headers, so the finding proves
    /// nothing against the answer.
    Unanchored,
}

names! {
    Grounds, "the grounds of a finding":
    Answer = "answer", Anchored = "anchored", Unanchored = "unanchored",
}

impl Grounds {
    pub(super) fn of_block(number: u64, anchored_to: Option<u64>) -> Self {
        if anchored_to.is_some_and(|anchored| number <= anchored) {
            Self::Anchored
        } else {
            Self::Unanchored
        }
    }
}

/// The kind of a finding, with its evidence. `at` is an index into the answer, from 0.
///
/// # JSON
/// `serde` writes an object with the kind's name and the kind's members:
///
/// | `kind` | other members |
/// |---|---|
/// | `omitted_log` | those of an [`OmittedLog`] |
/// | `forged_log` | those of a [`ForgedLog`] |
/// | `wrong_field` | `at`, and those of a [`WrongField`] |
/// | `duplicate` | `at`, `first` |
/// | `not_matching`, `out_of_range`, `beyond_tag`, `other_fork`, `removed` | `at` |
/// | `arity_dependent` | `at` (number or null), `log` ([`LocatedLog`]) |
/// | `profile_contradicted` | `claimed` ([`BloomSoundness`]), `missing_bits`, `extra_bits` |
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The block contains a matching log that is not in the answer.
    OmittedLog(Box<OmittedLog>),
    /// The answer contains a log that is not in the block that the log names.
    ///
    /// If the log is a real log with an altered address, topic or data, the real log is reported as
    /// omitted too.
    ForgedLog(Box<ForgedLog>),
    /// The log is in the block, but the answer has a wrong value in one of its fields.
    WrongField {
        /// Index of the log in the answer.
        at: usize,
        /// The wrong field, and the correct value.
        #[serde(flatten)]
        field: WrongField,
    },
    /// The answer contains the same log of the same block twice.
    Duplicate {
        /// Index of the repetition in the answer.
        at: usize,
        /// Index of the log that is repeated.
        first: usize,
    },
    /// The address or topics of the log do not match the query.
    NotMatching {
        /// Index of the log in the answer.
        at: usize,
    },
    /// The log belongs to a block that the query does not select.
    OutOfRange {
        /// Index of the log in the answer.
        at: usize,
    },
    /// The log belongs to a block outside the resolved range, and the query gives this end of the
    /// range by a tag such as `latest`.
    ///
    /// Such a log is no proof of a lie: the provider may have had another head than the head to
    /// which the tag was resolved.
    BeyondTag {
        /// Index of the log in the answer.
        at: usize,
    },
    /// The log's block number is in the range, but its block is not on this chain.
    ///
    /// Such a log is no proof of a lie: the log, or the whole answer, may be from another branch.
    OtherFork {
        /// Index of the log in the answer.
        at: usize,
    },
    /// The log matches by the rules of [geth or alloy](crate::eth::log_query), but not by both.
    ///
    /// By the rules that the audit does not use, the answer is correct.
    ArityDependent {
        /// Index of the log in the answer, if the log does not match by the rules that the audit
        /// uses; `None` if the log matches by these rules, but the answer lacks the log.
        at: Option<usize>,
        /// The log.
        log: Box<LocatedLog>,
    },
    /// The log is marked as removed from the chain by a reorganisation. The audit treats the log as
    /// not delivered.
    Removed {
        /// Index of the log in the answer.
        at: usize,
    },
    /// The relation of the header's filter to the block's receipts is not the relation that the
    /// profile states.
    ///
    /// The finding concerns the chain or the choice of the profile, not the answer. If the filter
    /// lacks bits, the audit uses no filter in the whole range of blocks for which the profile
    /// makes this statement.
    ProfileContradicted {
        /// The relation that the profile states.
        claimed: BloomSoundness,
        /// Number of bits of the block's logs that the filter lacks.
        missing_bits: u32,
        /// Number of bits in the filter that belong to no log of the block.
        extra_bits: u32,
    },
}

/// A wrong field of a log that is in the block, with the correct value.
///
/// # JSON
/// `serde` writes an object. `field` is the field's name in JSON-RPC, for example `"logIndex"`.
/// `actual` is the correct value: a JSON number, or for `"transactionHash"` a hash or null.
/// `"blockTimestamp"` also has `answered`, a JSON number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "field", rename_all = "camelCase")]
#[non_exhaustive]
pub enum WrongField {
    /// `blockNumber` is wrong: the block with the log's `blockHash` has another number.
    BlockNumber {
        /// Number of the block with the log's `blockHash`.
        actual: u64,
    },
    /// `blockTimestamp` is wrong.
    BlockTimestamp {
        /// Timestamp in the answer, in seconds. Some nodes write 0 instead of the timestamp: a 0
        /// proves nothing against the answer, but must not be used as a timestamp.
        answered: u64,
        /// Timestamp of the block, in seconds.
        actual: u64,
    },
    /// `transactionIndex` is wrong.
    TransactionIndex {
        /// Index of the receipt that contains the log.
        actual: u64,
    },
    /// `logIndex` is wrong.
    LogIndex {
        /// Index of the log in the block.
        actual: u64,
    },
    /// `transactionHash` is wrong. The hash is checked only if the block's transactions were given.
    TransactionHash {
        /// Hash of the transaction at the log's index, or `None` if the block has no transaction
        /// with this index.
        actual: Option<B256>,
    },
}

/// The evidence for a forged log.
///
/// # JSON
/// `serde` writes an object. `shown_by` is `"bloom"` or `"receipts"`. `receipt_proof` is the
/// [proof](ReceiptProof), if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "shown_by", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Forgery {
    /// The header's filter lacks bits of the log. No other evidence is needed, if the profile's
    /// statement about the filter is true.
    Bloom,
    /// The block's receipts do not contain the log.
    Receipts {
        /// Proof of the receipt with the log's transaction index, or `None` if the block has no
        /// such receipt.
        #[serde(rename = "receipt_proof", default, skip_serializing_if = "Option::is_none")]
        proof: Option<Arc<ReceiptProof>>,
    },
}

/// Writes the finding with its evidence as one line, for example `duplicate: log 5 of the answer
/// repeats log 3`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OmittedLog(omitted) => {
                write!(f, "omitted: {}; {}", place(&omitted.log), proven(&omitted.proof))
            }
            Self::ForgedLog(forged) => {
                let ForgedLog { at, log, forgery, .. } = &**forged;
                write!(f, "forged: log {at} of the answer, {}; {forgery}", place(log))
            }
            Self::WrongField { at, field } => write!(f, "wrong: log {at} of the answer: {field}"),
            Self::Duplicate { at, first } => {
                write!(f, "duplicate: log {at} of the answer repeats log {first}")
            }
            Self::NotMatching { at } => {
                write!(f, "not requested: log {at} of the answer does not match the query")
            }
            Self::OutOfRange { at } => {
                write!(f, "not requested: the block of log {at} of the answer is outside the range")
            }
            Self::BeyondTag { at } => write!(
                f,
                "beyond the tag: the block of log {at} of the answer is outside the range that the \
                 tag was resolved to"
            ),
            Self::OtherFork { at } => write!(
                f,
                "of another fork: the block of log {at} of the answer is not on this chain"
            ),
            Self::ArityDependent { at: Some(at), .. } => {
                write!(
                    f,
                    "other rules: log {at} of the answer does not match by the rules of this audit, but by \
                     the other ones (geth's or alloy's)"
                )
            }
            Self::ArityDependent { at: None, log } => {
                write!(
                    f,
                    "other rules: {} matches by the rules of this audit, but not by the other ones \
                     (geth's or alloy's)",
                    place(log)
                )
            }
            Self::Removed { at } => {
                write!(f, "removed: log {at} of the answer is marked as removed from the chain")
            }
            Self::ProfileContradicted { claimed, missing_bits, extra_bits } => write!(
                f,
                "the filter is not {claimed} as the chain's profile claims: it lacks \
                 {missing_bits} bits and has {extra_bits} bits too many"
            ),
        }
    }
}

impl fmt::Display for WrongField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockNumber { actual } => write!(f, "blockNumber is {actual}"),
            Self::BlockTimestamp { answered: 0, actual } => {
                write!(f, "blockTimestamp is {actual}; the node may have left it unset")
            }
            Self::BlockTimestamp { actual, .. } => write!(f, "blockTimestamp is {actual}"),
            Self::TransactionIndex { actual } => write!(f, "transactionIndex is {actual}"),
            Self::LogIndex { actual } => write!(f, "logIndex is {actual}"),
            Self::TransactionHash { actual: Some(actual) } => {
                write!(f, "transactionHash is {actual}")
            }
            Self::TransactionHash { actual: None } => f.write_str("there is no such transaction"),
        }
    }
}

impl fmt::Display for Forgery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bloom => f.write_str("the header's filter lacks its bits"),
            Self::Receipts { proof: Some(proof) } => {
                write!(f, "not in the receipt; {}", proven(proof))
            }
            Self::Receipts { proof: None } => f.write_str("the block has no such transaction"),
        }
    }
}

fn place(log: &LocatedLog) -> String {
    format!("log {} (transaction {}) of {}", log.log_index, log.transaction_index, log.log.address)
}

fn proven(proof: &ReceiptProof) -> String {
    let nodes = proof.nodes.len();
    format!("receipt {} is proven by {nodes} nodes of the trie", proof.transaction_index)
}
