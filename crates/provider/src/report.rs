//! Notes: the progress and the events of an operation, for a log. Results do not depend on notes. Also
//! warnings, which are part of a result.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::follow;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;
use serde::Serializer;

use crate::error::FetchError;
use crate::nodes::error::RpcError;

/// A note about progress or an event, for a log. Its `Display` is a line of text. Results do not
/// depend on notes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Requests use plain http through the proxy of the environment. The proxy sees the whole URL
    /// and all headers.
    OpenToProxy,
    /// A request failed and is sent again: after a wait of five seconds or more, or because the node
    /// sent no complete answer within the timeout.
    Waits {
        /// Reason why the request failed.
        error: RpcError,
        /// Time until the request is sent again.
        wait: Duration,
    },
    /// The node does not serve `debug_getRawHeader`, so headers are requested as JSON.
    NoRawHeaders,
    /// Receipts are requested by another method from now on.
    ReceiptsBy {
        /// The method used before.
        before: &'static str,
        /// Reason why the old method failed.
        error: RpcError,
        /// The method used from now on.
        now: &'static str,
    },
    /// A block is not a child of the block before it, so earlier blocks are fetched again.
    Reorganized {
        /// Number of the block that is not a child of the block before it.
        block: u64,
        /// Number of the first block that is fetched again.
        from: u64,
    },
    /// The node returned this many logs.
    Logs(usize),
    /// The receipts of several blocks are being fetched.
    FetchesReceipts {
        /// Number of blocks.
        blocks: u64,
        /// Estimated size of the receipts in bytes.
        bytes: u64,
    },
    /// The node or server could not provide the data, for this reason, and another node or server
    /// is asked.
    NoChain(String),
    /// The server sent an object that is proven invalid, for this reason. The object is not used.
    Refused(String),
    /// The anchor source of a follower failed for this reason, and is asked again after its
    /// interval. The note names the first node, although the source may not have asked this node.
    NoNewerAnchor(String),
    /// A note of a follower.
    Follow(follow::FollowNote),
    /// Progress of a long operation.
    Progress {
        /// The kind of items that are counted.
        stage: Stage,
        /// Number of items done.
        done: u64,
        /// Total number of items.
        total: u64,
    },
}

/// The kind of items that the progress of a long operation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Headers that were linked.
    Headers,
    /// Blocks whose logs were requested from the node.
    Logs,
    /// Blocks whose receipts were requested.
    Receipts,
    /// Blocks whose transactions were verified.
    Transactions,
    /// Periods of sync committees.
    Periods,
}

impl Stage {
    /// Returns the name that `serde` writes: `headers`, `logs`, `receipts`, `transactions` or
    /// `periods`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Logs => "logs",
            Self::Receipts => "receipts",
            Self::Transactions => "transactions",
            Self::Periods => "periods",
        }
    }
}

/// Writes the kind of the items in words, unlike [`name`](Stage::name).
impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "headers",
            Self::Logs => "blocks asked for logs",
            Self::Receipts => "blocks of receipts",
            Self::Transactions => "blocks of transactions",
            Self::Periods => "sync committees",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenToProxy => f.write_str(
                "requests go through the proxy of the environment, which sees the whole URL and \
                 all headers: the URL is not https",
            ),
            Self::Waits { error, wait } if wait.as_secs() == 0 => write!(f, "{error}; asked again"),
            Self::Waits { error, wait } => write!(f, "{error}; again in {} s", wait.as_secs()),
            Self::NoRawHeaders => f.write_str("no debug_getRawHeader: headers are read from JSON"),
            Self::ReceiptsBy { before, error, now } => {
                write!(f, "{before}: {error}; from now on, {now} is used")
            }
            Self::Reorganized { block, from } => write!(
                f,
                "block {block} is not a child of the block before it: the chain was reorganised, \
                 blocks from {from} on are fetched again"
            ),
            Self::Logs(count) => write!(f, "{count} logs"),
            Self::FetchesReceipts { blocks, bytes } => {
                write!(f, "fetching receipts of {blocks} blocks, about {bytes} bytes")
            }
            Self::NoChain(error) => f.write_str(error),
            Self::Refused(why) => write!(f, "invalid, and not used: {why}"),
            Self::NoNewerAnchor(error) => write!(f, "no newer anchor: {error}"),
            Self::Follow(note) => note.fmt(f),
            Self::Progress { stage, done, total } => write!(f, "{done} of {total} {stage}"),
        }
    }
}

/// A warning about the reliability of a result. Its `Display` is a line of text.
///
/// `serde` writes an object: the name of the `warning`, for example `"not_agreed"`, and its fields.
/// Errors are written as text, so warnings can't be read back.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The range ends at the finalised block, before the block that the query names.
    EndsAtFinalized {
        /// The tag of the query's last block.
        tag: BlockTag,
        /// Number of the block that the tag names.
        last: u64,
        /// Number of the finalised block.
        finalized: u64,
    },
    /// The block that a node names for a tag is more than [`MAX_LAG`](Self::MAX_LAG) blocks below
    /// the highest block that another node names. Either this node lags, or another node claims a
    /// block that does not exist. The lowest block is used.
    Lags {
        /// Scheme, host and port of the node.
        node: String,
        /// The tag.
        tag: BlockTag,
        /// Number of the block that the node names.
        block: u64,
        /// Number of the highest block that a node names.
        highest: u64,
    },
    /// No node has the block of an anchor.
    UnknownAnchor {
        /// The anchor.
        hash: B256,
    },
    /// The chain of a node does not contain an anchor.
    WithoutAnchor {
        /// Scheme, host and port of the node.
        node: String,
    },
    /// No anchor was named, and another node has a different block, or none, at the height of the
    /// tip.
    NotAgreed {
        /// The tip, as named by the node that provided the chain.
        tip: BlockRef,
    },
    /// A node could not provide the headers, so another node was asked.
    NoChain {
        /// The range of blocks whose headers were requested.
        blocks: RangeInclusive<u64>,
        /// Reason why the node could not provide the headers.
        #[serde(serialize_with = "as_text")]
        error: FetchError,
    },
    /// A node's receipts of a block were missing or unusable.
    Receipts {
        /// Scheme, host and port of the node.
        node: String,
        /// Number of the block.
        block: u64,
        /// The method, if several methods were tried.
        method: Option<&'static str>,
        /// Reason why the receipts are missing or unusable.
        why: String,
    },
    /// There are further warnings about receipts, which are not listed.
    MoreReceipts {
        /// Number of these warnings.
        count: u64,
    },
    /// The transaction hashes of the logs in some blocks are not proven, because no node returned
    /// the right transactions. The logs themselves are proven.
    UnprovenHashes {
        /// Number of these blocks.
        blocks: u64,
        /// Number of the first of these blocks.
        first: u64,
        /// Scheme, host and port of the first node whose transactions of a block were missing or
        /// unusable.
        node: String,
        /// Reason why they are missing or unusable.
        why: String,
    },
}

/// Writes an error as its text.
fn as_text<S: Serializer>(error: &FetchError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

impl Warning {
    /// Maximum number of blocks by which a node may lag without a warning. Nodes receive new blocks
    /// with a short delay, and the finalised block advances in steps of 32 blocks.
    pub const MAX_LAG: u64 = 64;
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndsAtFinalized { tag, last, finalized } => write!(
                f,
                "the range ends at the finalised block, {finalized}; the {} block is {last}",
                tag.name().unwrap_or("latest")
            ),
            Self::Lags { node, tag, block, highest } => write!(
                f,
                "the {} block is block {block} at {node}, and block {highest} at another node: the \
                 lowest is used",
                tag.name().unwrap_or("latest")
            ),
            Self::UnknownAnchor { hash } => write!(
                f,
                "no node has the block of anchor {hash}: it may be the hash of a block of another chain"
            ),
            Self::WithoutAnchor { node } => {
                write!(f, "the chain of {node} does not contain the anchor")
            }
            Self::NotAgreed { tip } => {
                write!(f, "not every node confirms that {tip} is on the chain")
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
            Self::MoreReceipts { count } => {
                write!(f, "{count} further warnings about unusable receipts")
            }
            Self::UnprovenHashes { blocks, first, node, why } => {
                write!(f, "block {first}")?;
                if let more @ 1.. = blocks.saturating_sub(1) {
                    write!(f, " and {more} more blocks")?;
                }
                write!(f, ": transaction hashes are not proven: {node}: {why}")
            }
        }
    }
}
