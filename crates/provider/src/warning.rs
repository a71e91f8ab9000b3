//! What limits the worth of a result.

use std::fmt;
use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;

use crate::error::FetchError;

/// What a reader of a result should know. `Display` says it in words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The range ends at the finalised block, before the block that the query names.
    EndsAtFinalized {
        /// The tag that the query ends with.
        tag: BlockTag,
        /// The block that the tag names.
        last: u64,
        /// The finalised block.
        finalized: u64,
    },
    /// A node is more than [`MAX_LAG`](Self::MAX_LAG) blocks behind the highest block that a node
    /// names for a tag: it lags, or the other one claims too much. The lowest block counts.
    Lags {
        /// Scheme, host and port of the node.
        node: String,
        /// The tag.
        tag: BlockTag,
        /// The block that the node names.
        block: u64,
        /// The highest block that a node names.
        highest: u64,
    },
    /// No node has the block of an anchor.
    UnknownAnchor(B256),
    /// A node's chain does not hold an anchor.
    WithoutAnchor {
        /// Scheme, host and port of the node.
        node: String,
    },
    /// No anchor was named, and another node has another block in the place of the last one, or none.
    NotAgreed {
        /// The last block, as the node has it that gave the chain.
        tip: BlockRef,
    },
    /// A node did not give the chain, and another one did.
    NoChain {
        /// The blocks.
        blocks: RangeInclusive<u64>,
        /// Why it did not.
        error: FetchError,
    },
    /// Receipts that were not used.
    Receipts {
        /// Scheme, host and port of the node.
        node: String,
        /// The block.
        block: u64,
        /// The method, where several were tried.
        method: Option<&'static str>,
        /// What was wrong with them.
        why: String,
    },
    /// This many more warnings about receipts are not listed.
    MoreReceipts(u64),
}

impl Warning {
    /// How many blocks a node may be behind the highest without a warning. Nodes hear of blocks a
    /// little late, and finality moves by 32 blocks.
    pub const MAX_LAG: u64 = 64;
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndsAtFinalized { tag, last, finalized } => write!(
                f,
                "the range ends at block {finalized}, the finalised one; {} is block {last}",
                tag.name().unwrap_or("latest")
            ),
            Self::Lags { node, tag, block, highest } => write!(
                f,
                "the {} block is block {block} at {node}, and block {highest} at another node: the \
                 lowest counts",
                tag.name().unwrap_or("latest")
            ),
            Self::UnknownAnchor(hash) => write!(f, "no node has the block of anchor {hash}"),
            Self::WithoutAnchor { node } => {
                write!(f, "the chain of {node} does not hold the anchor")
            }
            Self::NotAgreed { tip } => {
                write!(f, "not every node has {tip}: that it is on the chain is one node's word")
            }
            Self::NoChain { blocks, error } => {
                write!(f, "blocks {} to {}: {error}", blocks.start(), blocks.end())
            }
            Self::Receipts { node, block, method, why } => {
                write!(f, "{node}, receipts of block {block}")?;
                if let Some(method) = method {
                    write!(f, ", {method}")?;
                }
                write!(f, ": {why}")
            }
            Self::MoreReceipts(count) => {
                write!(f, "and {count} more about receipts that are not used")
            }
        }
    }
}
