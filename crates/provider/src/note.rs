//! Notes: the progress and the events of an operation, for a log. Results do not depend on notes.

use std::fmt;
use std::time::Duration;

use chainsieve::eth::follow;

use crate::node::error::RpcError;

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
    /// The node or server could not provide the data, for this reason, and another one is asked.
    NoChain(String),
    /// The server sent an object that is proven invalid, for this reason. It is not used.
    Refused(String),
    /// The anchor source of a follower failed for this reason, and is asked again after its
    /// interval. The node of this note is the first one; the source need not have asked it.
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
