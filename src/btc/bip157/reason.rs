//! Reasons to disconnect a peer, and whether the peer should be banned.

use core::fmt;
use core::time::Duration;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use thiserror::Error;

use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::headers::BlockAt;

/// Reason why a peer must be disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The peer claimed a filter that is not the filter of its block.
    #[error("the peer's {0}")]
    FalseFilter(Box<FalseFilter>),
    /// The peer contradicted itself: it sent a filter with another hash than it claimed, or hashes
    /// that do not lead from one of its filter headers to the next.
    #[error(transparent)]
    ContradictsItself(Contradiction),
    /// The peer contradicted a filter header that the caller trusts, or the one that follows from
    /// the genesis block.
    #[error("the peer claims filter header {claimed} at height {height}, {trusted} is trusted")]
    ContradictsCheckpoint {
        /// The height of the filter header.
        height: u32,
        /// The filter header that the peer claims.
        claimed: FilterHeader,
        /// The trusted filter header.
        trusted: FilterHeader,
    },
    /// The peer sent an answer that does not fit its request, or that was not requested.
    #[error(transparent)]
    Violation(Violation),
    /// The peer sent a block with the requested hash whose transactions do not match its header.
    #[error("the peer sent a block {0} whose transactions do not match its header")]
    FalseBlock(BlockHash),
    /// An answer of the peer is overdue by this duration.
    #[error("an answer of the peer is overdue by {} s", .0.as_secs())]
    Stalled(Duration),
    /// The limit on connected peers is reached.
    #[error("more than {0} peers")]
    TooManyPeers(usize),
}

/// A claimed filter that is not the filter of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct FalseFilter {
    /// The height and the hash of the block.
    pub at: BlockAt,
    /// The hash of the false filter.
    #[cfg_attr(feature = "serde", serde(rename = "filter_hash"))]
    pub hash: FilterHash,
    /// Proof that the filter is false. `None` if nothing can be shown to others: the sync knows the
    /// block's true filter, or has refuted the hash before.
    pub proof: Option<InvalidFilter>,
}

impl fmt::Display for FalseFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, hash, proof } = self;
        let how = match proof {
            Some(_) => "the block proves it",
            None => "an audit of the block shows it",
        };
        write!(f, "filter {hash} of {at} is false: {how}")
    }
}

/// The way in which a peer contradicted itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// The peer sent a filter with another hash than it claimed.
    #[error("the peer claimed filter {claimed} of {at}, and sent {sent}")]
    Filter {
        /// The height and the hash of the filter's block.
        at: BlockAt,
        /// The filter hash that the peer claimed.
        claimed: FilterHash,
        /// The hash of the filter that the peer sent.
        sent: FilterHash,
    },
    /// The peer sent filter hashes that do not lead to the filter header that it claimed.
    #[error("the peer claimed filter header {claimed} at height {height}, and later {sent}")]
    Headers {
        /// The height of the contradictory filter header.
        height: u32,
        /// The filter header that the peer claimed first.
        claimed: FilterHeader,
        /// The filter header that follows from the peer's hashes, or that the peer sent as the
        /// header before its hashes.
        sent: FilterHeader,
    },
}

/// A violation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The peer sent an answer that was not requested.
    #[error("the peer sent an answer about filters without a request")]
    Unsolicited,
    /// The answer is for another filter type than requested.
    #[error("the peer answered with filters of type {0}")]
    FilterType(u8),
    /// The answer is for a block that was not requested, or is out of order.
    #[error("the peer answered about block {0}, which was not requested")]
    WrongBlock(BlockHash),
    /// The answer has another number of hashes or headers than requested.
    #[error("the peer sent {sent} filter hashes or headers, {expected} were requested")]
    Count {
        /// The number of hashes or headers sent.
        sent: usize,
        /// The number of hashes or headers that were requested.
        expected: usize,
    },
    /// The filter is larger than that of any valid block.
    #[error("the peer sent a filter of {bytes} bytes, the limit is {limit}")]
    OversizedFilter {
        /// The size of the filter in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Reason {
    /// Returns `true` if the peer lied or broke the protocol and should be banned. Returns `false`
    /// if the peer was only slow or exceeded the limit on peers.
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
