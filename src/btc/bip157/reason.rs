//! Why a peer is disconnected, and whether it is to be banned.

use core::fmt;
use core::time::Duration;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};

use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::headers::BlockAt;

/// Why a peer is to be disconnected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its filter is not that of the block.
    FalseFilter(Box<FalseFilter>),
    /// It contradicts itself: a filter without the hash that it claimed, hashes that do not lead
    /// from one of its filter headers to the next.
    ContradictsItself(Contradiction),
    /// It contradicts a filter header that the caller trusts, or one that follows from the
    /// genesis block.
    ContradictsCheckpoint {
        /// The height.
        height: u32,
        /// The header that it claims.
        claimed: FilterHeader,
        /// The header trusted.
        trusted: FilterHeader,
    },
    /// An answer that is not one to what was asked, or that nothing was asked for.
    Violation(Violation),
    /// Its block has the hash asked for and not the transactions.
    FalseBlock(BlockHash),
    /// An answer is overdue by this long.
    Stalled(Duration),
    /// More peers than the limit.
    TooManyPeers(usize),
}

/// A filter that is not that of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FalseFilter {
    /// The block.
    pub at: BlockAt,
    /// The hash of the filter that it claims.
    pub hash: FilterHash,
    /// What shows it; `None` where the true filter is known by scripts of previous outputs.
    pub proof: Option<InvalidFilter>,
}

/// How a peer contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contradiction {
    /// A filter with another hash than it claimed.
    Filter {
        /// The block.
        at: BlockAt,
        /// The hash claimed.
        claimed: FilterHash,
        /// The hash of what it sent.
        sent: FilterHash,
    },
    /// Filter hashes that do not lead to the filter header that it claimed.
    Headers {
        /// The height of that header.
        height: u32,
        /// The header claimed before.
        claimed: FilterHeader,
        /// The header that follows from its hashes, or that it says comes before them.
        sent: FilterHeader,
    },
}

/// An answer that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Nothing of the kind was asked for.
    Unsolicited,
    /// Another filter type than asked for.
    FilterType(u8),
    /// Another block than asked for, or out of order.
    WrongBlock(BlockHash),
    /// Another number of hashes or headers.
    Count {
        /// How many came.
        sent: usize,
        /// How many the range has.
        expected: usize,
    },
    /// A filter larger than that of any block.
    OversizedFilter {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl Reason {
    /// Returns `true` if the peer lied or broke the protocol, so that it is to be banned; `false`
    /// if it was only slow, or one too many.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Stalled(_) | Self::TooManyPeers(_) => false,
            Self::FalseFilter(_)
            | Self::ContradictsItself(_)
            | Self::ContradictsCheckpoint { .. }
            | Self::Violation(_)
            | Self::FalseBlock(_) => true,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FalseFilter(filter) => {
                let how = match &filter.proof {
                    Some(_) => "the block proves it",
                    None => "the scripts that the block spends show it",
                };
                write!(f, "its filter {} of {} is false: {how}", filter.hash, filter.at)
            }
            Self::ContradictsItself(Contradiction::Filter { at, claimed, sent }) => {
                write!(f, "it claimed filter {claimed} of {at}, and sent {sent}")
            }
            Self::ContradictsItself(Contradiction::Headers { height, claimed, sent }) => {
                write!(f, "it claimed filter header {claimed} at height {height}, and then {sent}")
            }
            Self::ContradictsCheckpoint { height, claimed, trusted } => write!(
                f,
                "it claims filter header {claimed} at height {height}, {trusted} is trusted"
            ),
            Self::Violation(violation) => violation.fmt(f),
            Self::FalseBlock(hash) => {
                write!(f, "it sent a block {hash} whose transactions are not those of its header")
            }
            Self::Stalled(overdue) => {
                write!(f, "an answer about filters is overdue by {} s", overdue.as_secs())
            }
            Self::TooManyPeers(limit) => write!(f, "more than {limit} peers"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsolicited => f.write_str("it answered about filters without being asked"),
            Self::FilterType(kind) => write!(f, "it answered with filters of type {kind}"),
            Self::WrongBlock(hash) => write!(f, "it answered about block {hash}, not asked for"),
            Self::Count { sent, expected } => {
                write!(f, "it answered with {sent} filter hashes, {expected} were asked for")
            }
            Self::OversizedFilter { bytes, limit } => {
                write!(f, "a filter of {bytes} bytes, the limit is {limit}")
            }
        }
    }
}
