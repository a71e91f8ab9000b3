//! What is wrong with an answer.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::{ForgedLog, OmittedLog};
use crate::eth::chain_profile::BloomSoundness;
use crate::eth::log::LocatedLog;
use crate::eth::receipts::ReceiptProof;

/// Something about an answer that is not as it would be if it were complete and true.
///
/// It speaks of a set of logs relative to a chain. Whose answer that is, nothing here shows.
///
/// [`Display`](fmt::Display) says it in a line.
///
/// # JSON
/// As `serde` it is one object. Numbers are JSON numbers; hashes, logs and the nodes of proofs are
/// as in JSON-RPC.
///
/// | member | value |
/// |---|---|
/// | `block` | [number](Self::block) or null |
/// | `grounds` | `"answer"`, `"anchored"` or `"unanchored"` ([`Grounds`]) |
/// | `kind` | the name of the [`FindingKind`], as `"omitted_log"` |
/// | the rest | the members that the table of [`FindingKind`] has for this kind |
///
/// Other members are ignored. Nothing is verified by being read: an omission or a forgery is
/// shown by [`OmittedLog::verify`] or [`ForgedLog::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Number of the block on the chain; none where the finding belongs to no block of it.
    pub block: Option<u64>,
    /// What shows it.
    pub grounds: Grounds,
    /// What it is.
    #[serde(flatten)]
    pub kind: FindingKind,
}

impl Finding {
    /// Whether the answer is proven not to be the right one: an omission, a forgery, a wrong field
    /// (other than a timestamp of zero), a log twice or one that was not asked for, and not only
    /// relative to headers above the anchor.
    pub fn is_proof(&self) -> bool {
        self.grounds != Grounds::Unanchored
            && match self.kind {
                FindingKind::WrongField { field, .. } => {
                    !matches!(field, WrongField::BlockTimestamp { answered: 0, .. })
                }
                FindingKind::OmittedLog(_)
                | FindingKind::ForgedLog(_)
                | FindingKind::Duplicate { .. }
                | FindingKind::NotMatching { .. }
                | FindingKind::OutOfRange { .. } => true,
                FindingKind::BeyondTag { .. }
                | FindingKind::OtherFork { .. }
                | FindingKind::ArityDependent { .. }
                | FindingKind::Removed { .. }
                | FindingKind::ProfileContradicted { .. } => false,
            }
    }

    /// The log that it is about, as an index into the answer; none for what the answer lacks.
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

/// What shows a finding. As `serde` it is the name in lower case, as `"anchored"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grounds {
    /// The query and the answer alone.
    Answer,
    /// Blocks up to the anchor.
    Anchored,
    /// Blocks above the anchor, which anyone can make: it proves nothing against the answer.
    Unanchored,
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

/// The kinds of findings. `at` is an index into the answer, from 0.
///
/// # JSON
/// As `serde` it is an object with the kind's name and the kind's members:
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
    /// A log that the block has and the query wants is not in the answer.
    OmittedLog(Box<OmittedLog>),
    /// A log that is not in the block that it names. If it is another log with an altered address,
    /// topic or data, that log is omitted besides.
    ForgedLog(Box<ForgedLog>),
    /// The log is in the block; this the answer says wrongly of it.
    WrongField {
        /// Which log.
        at: usize,
        /// Which field, and what is right.
        #[serde(flatten)]
        field: WrongField,
    },
    /// The same log of the same block for a second time.
    Duplicate {
        /// The repetition.
        at: usize,
        /// The log that it repeats.
        first: usize,
    },
    /// The query does not want a log like this.
    NotMatching {
        /// Which log.
        at: usize,
    },
    /// The log is of a block that was not asked for.
    OutOfRange {
        /// Which log.
        at: usize,
    },
    /// The log is of a block outside the range, where the range ends by a tag as `latest`, not by
    /// a number of the query. No lie by itself: the provider may have had another head than the
    /// one by which the tag was resolved.
    BeyondTag {
        /// Which log.
        at: usize,
    },
    /// The log's block has a number of the range, and is not on the chain. No lie by itself: the
    /// answer, or this log of it, is of another fork.
    OtherFork {
        /// Which log.
        at: usize,
    },
    /// Whether the query wants this log is where [geth and alloy
    /// differ](crate::eth::log_query): the answer is right by the rules that were not chosen.
    ArityDependent {
        /// The log in the answer, which the chosen rules don't want; none for a log that they
        /// want and that is missing.
        at: Option<usize>,
        /// The log.
        log: Box<LocatedLog>,
    },
    /// The log is marked as removed from the chain by a reorganisation: it delivers nothing.
    Removed {
        /// Which log.
        at: usize,
    },
    /// The filter of the header and the block's receipts are not to each other as the profile
    /// says. It is about the chain or the choice of the profile, not about the answer.
    ///
    /// Where bits are missing, the filters are not used for any block of which the profile says
    /// the same.
    ProfileContradicted {
        /// What the profile says.
        claimed: BloomSoundness,
        /// How many bits of logs the filter lacks.
        missing_bits: u32,
        /// How many bits it has that no log explains.
        extra_bits: u32,
    },
}

/// A field of a log that is otherwise in the block, with the right value.
///
/// # JSON
/// As `serde` it is an object: `field` is the field's name in JSON-RPC, as `"logIndex"`, and
/// `actual` the right value: a JSON number, or for `"transactionHash"` a hash or null.
/// `"blockTimestamp"` has `answered` too, a JSON number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "field", rename_all = "camelCase")]
#[non_exhaustive]
pub enum WrongField {
    /// `blockNumber`: the block with the log's `blockHash` has another.
    BlockNumber {
        /// The number of that block.
        actual: u64,
    },
    /// `blockTimestamp`.
    BlockTimestamp {
        /// The answer's, in seconds. Some nodes write 0 where they don't fill it in: it proves
        /// nothing against the answer, but nobody should read it.
        answered: u64,
        /// The block's, in seconds.
        actual: u64,
    },
    /// `transactionIndex`.
    TransactionIndex {
        /// Index of the receipt that has the log.
        actual: u64,
    },
    /// `logIndex`.
    LogIndex {
        /// Index of the log in the block.
        actual: u64,
    },
    /// `transactionHash`, known only if the block's transactions were given.
    TransactionHash {
        /// Hash of the transaction at the log's index; none if the block has no such transaction.
        actual: Option<B256>,
    },
}

/// How a forgery is shown.
///
/// # JSON
/// As `serde` it is an object: `shown_by` is `"bloom"` or `"receipts"`, and `receipt_proof` the
/// [proof](ReceiptProof), where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "shown_by", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Forgery {
    /// The header's filter lacks bits of the log: the header shows it, if its filter is what the
    /// profile says.
    Bloom,
    /// The block's receipts don't have the log.
    Receipts {
        /// The proof of the receipt in which it would be; none if there is none of this index.
        #[serde(rename = "receipt_proof", default, skip_serializing_if = "Option::is_none")]
        proof: Option<Arc<ReceiptProof>>,
    },
}

/// What is wrong, and what shows it, as `twice: log 5 of the answer is log 3 again`.
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
                write!(f, "twice: log {at} of the answer is log {first} again")
            }
            Self::NotMatching { at } => {
                write!(f, "not asked for: log {at} of the answer does not match the query")
            }
            Self::OutOfRange { at } => {
                write!(f, "not asked for: log {at} of the answer is of a block outside the range")
            }
            Self::BeyondTag { at } => write!(
                f,
                "beyond a tag: log {at} of the answer is of a block outside what the tag was taken \
                 for"
            ),
            Self::OtherFork { at } => write!(
                f,
                "of another fork: the block of log {at} of the answer is not on this chain"
            ),
            Self::ArityDependent { at: Some(at), .. } => {
                write!(f, "by other rules: log {at} of the answer matches by them alone")
            }
            Self::ArityDependent { at: None, log } => {
                write!(f, "by other rules: {} is rightly missing by them", place(log))
            }
            Self::Removed { at } => {
                write!(f, "removed: log {at} of the answer says that its block left the chain")
            }
            Self::ProfileContradicted { claimed, missing_bits, extra_bits } => write!(
                f,
                "the filter is not {claimed} as the chain's profile says: {missing_bits} bits \
                 missing, {extra_bits} too many"
            ),
        }
    }
}

impl fmt::Display for WrongField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockNumber { actual } => write!(f, "blockNumber is {actual}"),
            Self::BlockTimestamp { answered: 0, actual } => {
                write!(f, "blockTimestamp is {actual}, not filled in by the node, perhaps")
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
