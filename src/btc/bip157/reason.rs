//! Why a peer is disconnected, and whether it is to be banned.

use core::time::Duration;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use thiserror::Error;

use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::headers::BlockAt;

/// Why a peer is to be disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// Its filter is not that of the block.
    #[error("its filter {} of {} is false: {}", .0.hash, .0.at, .0.how())]
    FalseFilter(Box<FalseFilter>),
    /// It contradicts itself: a filter without the hash that it claimed, hashes that do not lead
    /// from one of its filter headers to the next.
    #[error(transparent)]
    ContradictsItself(Contradiction),
    /// It contradicts a filter header that the caller trusts, or one that follows from the
    /// genesis block.
    #[error("it claims filter header {claimed} at height {height}, {trusted} is trusted")]
    ContradictsCheckpoint {
        /// The height.
        height: u32,
        /// The header that it claims.
        claimed: FilterHeader,
        /// The header trusted.
        trusted: FilterHeader,
    },
    /// An answer that is not one to what was asked, or that nothing was asked for.
    #[error(transparent)]
    Violation(Violation),
    /// Its block has the hash asked for and not the transactions.
    #[error("it sent a block {0} whose transactions are not those of its header")]
    FalseBlock(BlockHash),
    /// An answer is overdue by this long.
    #[error("an answer about filters is overdue by {} s", .0.as_secs())]
    Stalled(Duration),
    /// More peers than the limit.
    #[error("more than {0} peers")]
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

impl FalseFilter {
    fn how(&self) -> &'static str {
        match self.proof {
            Some(_) => "the block proves it",
            None => "the scripts that the block spends show it",
        }
    }
}

/// How a peer contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// A filter with another hash than it claimed.
    #[error("it claimed filter {claimed} of {at}, and sent {sent}")]
    Filter {
        /// The block.
        at: BlockAt,
        /// The hash claimed.
        claimed: FilterHash,
        /// The hash of what it sent.
        sent: FilterHash,
    },
    /// Filter hashes that do not lead to the filter header that it claimed.
    #[error("it claimed filter header {claimed} at height {height}, and then {sent}")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// Nothing of the kind was asked for.
    #[error("it answered about filters without being asked")]
    Unsolicited,
    /// Another filter type than asked for.
    #[error("it answered with filters of type {0}")]
    FilterType(u8),
    /// Another block than asked for, or out of order.
    #[error("it answered about block {0}, not asked for")]
    WrongBlock(BlockHash),
    /// Another number of hashes or headers.
    #[error("it answered with {sent} filter hashes, {expected} were asked for")]
    Count {
        /// How many came.
        sent: usize,
        /// How many the range has.
        expected: usize,
    },
    /// A filter larger than that of any block.
    #[error("a filter of {bytes} bytes, the limit is {limit}")]
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
