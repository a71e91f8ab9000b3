//! Progress, and what happens on the way: results do not depend on it.

use std::fmt;
use std::time::Duration;

use chainsieve::eth::follow;

use crate::node::error::RpcError;

/// Progress, and what happens on the way: results do not depend on it. `Display` says it in words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Requests go over http through the proxy of the environment, which sees the URL and the
    /// headers.
    OpenToProxy,
    /// A request failed and is sent again after a wait of five seconds or more.
    Waits {
        /// Why.
        error: RpcError,
        /// How long.
        wait: Duration,
    },
    /// The node does not serve `debug_getRawHeader`: headers come as JSON.
    NoRawHeaders,
    /// Receipts come by another method from now on.
    ReceiptsBy {
        /// The method before.
        before: &'static str,
        /// Why it is left.
        error: RpcError,
        /// The method from now on.
        now: &'static str,
    },
    /// A block does not follow on the one before, so that blocks are fetched again.
    Reorganized {
        /// The block.
        block: u64,
        /// The first block that is fetched again.
        from: u64,
    },
    /// The node gave this many logs.
    Logs(usize),
    /// Receipts of this many blocks are fetched, of about this many bytes.
    FetchesReceipts {
        /// The number of blocks.
        blocks: u64,
        /// The estimate.
        bytes: u64,
    },
    /// The node did not give what was asked for, and another one is asked.
    NoChain(String),
    /// What a follower tells.
    Follow(follow::Note),
    /// How far a long operation is.
    Progress {
        /// What is counted.
        stage: Stage,
        /// How many are done.
        done: u64,
        /// Of how many.
        total: u64,
    },
}

/// What a long operation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Headers that were linked.
    Headers,
    /// Blocks whose logs the node was asked for.
    Logs,
    /// Blocks whose receipts were fetched.
    Receipts,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "headers",
            Self::Logs => "blocks asked for logs",
            Self::Receipts => "blocks of receipts",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenToProxy => f.write_str(
                "through the proxy of the environment, which sees all of the URL and of the \
                 headers: it is not https",
            ),
            Self::Waits { error, wait } => write!(f, "{error}; again in {} s", wait.as_secs()),
            Self::NoRawHeaders => f.write_str("no debug_getRawHeader: headers come as JSON"),
            Self::ReceiptsBy { before, error, now } => {
                write!(f, "{before}: {error}; from now on {now}")
            }
            Self::Reorganized { block, from } => write!(
                f,
                "block {block} does not follow on the one before: its chain was reorganised, \
                 blocks from {from} on are fetched again"
            ),
            Self::Logs(count) => write!(f, "{count} logs"),
            Self::FetchesReceipts { blocks, bytes } => {
                write!(f, "fetching receipts of {blocks} blocks, about {bytes} bytes")
            }
            Self::NoChain(error) => f.write_str(error),
            Self::Follow(note) => note.fmt(f),
            Self::Progress { stage, done, total } => write!(f, "{done} of {total} {stage}"),
        }
    }
}
