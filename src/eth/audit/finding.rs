//! What is wrong with an answer.

use alloc::boxed::Box;

use alloy_primitives::B256;

use super::{ForgedLog, OmittedLog};
use crate::eth::chain_profile::BloomSoundness;
use crate::eth::log::LocatedLog;

/// Something about an answer that is not as it would be if it were complete and true.
///
/// It speaks of a set of logs relative to a chain. Whose answer that is, nothing here shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Number of the block on the chain; none where the finding belongs to no block of it.
    pub block: Option<u64>,
    /// What shows it.
    pub grounds: Grounds,
    /// What it is.
    pub kind: FindingKind,
}

impl Finding {
    /// Whether the answer is proven not to be the right one: an omission, a forgery, a wrong
    /// field (a timestamp of zero is none), a log twice or one that was not asked for, and not only relative to headers above
    /// the anchor.
    pub fn is_proof(&self) -> bool {
        self.grounds != Grounds::Unanchored
            && match self.kind {
                FindingKind::WrongField { field, .. } => {
                    !matches!(field, WrongField::ZeroTimestamp { .. })
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

/// What shows a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// The kinds of findings. `at` is an index into the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrongField {
    /// `blockNumber`: the block with the log's `blockHash` has another.
    BlockNumber {
        /// The number of that block.
        actual: u64,
    },
    /// `blockTimestamp`.
    BlockTimestamp {
        /// The block's, in seconds.
        actual: u64,
    },
    /// `blockTimestamp` is 0, as some nodes write that don't fill it in: proves nothing against the
    /// answer, but nobody should read it.
    ZeroTimestamp {
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forgery {
    /// The header's filter lacks bits of the log: the header shows it, if its filter is what the
    /// profile says.
    Bloom,
    /// The block's receipts don't have the log.
    Receipts {
        /// The proof of the receipt in which it would be; none if there is none of this index.
        proof: Option<alloc::sync::Arc<crate::eth::receipts::ReceiptProof>>,
    },
}
