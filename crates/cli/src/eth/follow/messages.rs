//! What the machine is told at the start, what it asks for, and what it has ready.

use std::ops::RangeInclusive;

use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::log_query::{LogQuery, Semantics};

use super::blocks::{Block, Point};

/// Headers that are asked for at a time.
pub(super) const STRETCH: u64 = 8192;
/// Blocks that an index is asked about at a time.
pub(super) const INDEXED: u64 = 1 << 20;
/// What is followed.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) query: LogQuery,
    pub(super) semantics: Semantics,
    pub(super) profile: ChainProfile,
    /// The first header that is linked: below `from` where an anchor is.
    pub(super) start: u64,
    /// The first block whose logs are of interest.
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) confirmations: u64,
    pub(super) keep: usize,
    /// Up to this block an index says which blocks are candidates.
    pub(super) index_to: Option<u64>,
    pub(super) anchors: Vec<Point>,
}

/// What would bring it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    /// Headers by number.
    Headers(RangeInclusive<u64>),
    /// Candidates of an index.
    Index(RangeInclusive<u64>),
    /// A header by hash: of a branch.
    Header(Point),
    /// The header of this number, which may be another by now.
    Check(u64),
    /// Receipts of these blocks.
    Receipts(Vec<Point>),
    /// A head that is further on.
    Head,
    /// Nothing: the last block was printed.
    End,
}

/// What is ready to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Logs of blocks that left the chain.
    Reorg,
    /// So many blocks.
    Blocks(usize),
}

/// Blocks that were printed left the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reorg {
    /// The last one that stays; none if none does.
    pub(super) ancestor: Option<Point>,
    /// Those that left, the highest first.
    pub(super) removed: Vec<Block>,
}

/// How a provider's head stands to the chain that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its last block, or one behind it.
    Ahead,
    /// One of its earlier blocks, or one below those that are known: the provider lags.
    Behind,
    /// Another branch.
    Other,
}
