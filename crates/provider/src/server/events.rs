//! What the endpoint says to its operator while it runs.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use chainsieve::eth::header::BlockRef;

/// How an answer of `eth_getLogs` of an upstream differs from the proven logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LogDifferences {
    /// Number of logs that the answer lacks.
    pub omitted: u64,
    /// Number of logs with another member than the proven one.
    pub altered: u64,
    /// Number of logs that are in no block of the range.
    pub invented: u64,
}

impl LogDifferences {
    pub(super) const fn are_none(self) -> bool {
        self.omitted == 0 && self.altered == 0 && self.invented == 0
    }
}

/// An event for a log. Its `Display` is a line of text; `serde` writes an object whose member `kind`
/// names it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RpcServerEvent {
    /// The verified head moved.
    Head {
        /// The new head.
        head: BlockRef,
        /// Number of the newest final block, if it is known.
        finalized: Option<u64>,
        /// Number of blocks that left the chain.
        removed: usize,
    },
    /// The index is used for these blocks, from now on.
    Indexed {
        /// Numbers of the first and the last block.
        blocks: RangeInclusive<u64>,
    },
    /// Blocks could not be added to the index, or it is not one of the verified chain. It is tried again.
    IndexFailed {
        /// The reason.
        why: String,
    },
    /// No newer head could be verified. It is tried again.
    HeadFailed {
        /// The reason.
        why: String,
    },
    /// The filter in the header of a block lacks bits of a log that its receipts have. What the operator
    /// assumed of the chain is wrong: from now on, filters prove nothing, and the receipts of every block
    /// are read. Installed filters and subscriptions end, because they may have missed logs.
    FiltersRefuted {
        /// The block.
        block: BlockRef,
        /// Index of the first such log in the block.
        log_index: u64,
    },
    /// An upstream's answer of `eth_getLogs` differs from the proven logs.
    WrongLogs {
        /// Scheme, host and port of the upstream.
        upstream: String,
        /// The blocks that were asked for.
        range: RangeInclusive<u64>,
        /// The differences.
        found: LogDifferences,
    },
}

impl fmt::Display for RpcServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { head, finalized, removed } => {
                write!(f, "verified head: block {}, {}", head.number, head.hash)?;
                if let Some(finalized) = finalized {
                    write!(f, "; final: block {finalized}")?;
                }
                match removed {
                    0 => Ok(()),
                    removed => write!(f, "; {removed} blocks left the chain"),
                }
            }
            Self::Indexed { blocks } => {
                write!(f, "index: blocks {} to {}", blocks.start(), blocks.end())
            }
            Self::IndexFailed { why } => write!(f, "the index is incomplete: {why}"),
            Self::HeadFailed { why } => write!(f, "no newer head: {why}"),
            Self::FiltersRefuted { block, log_index } => write!(
                f,
                "filters of this chain prove nothing: that of block {}, {}, lacks bits of log \
                 {log_index}; the receipts of every block are read from now on",
                block.number, block.hash
            ),
            Self::WrongLogs { upstream, range, found } => write!(
                f,
                "{upstream} omitted {} logs, altered {} and invented {} in its answer for blocks {} \
                 to {}",
                found.omitted,
                found.altered,
                found.invented,
                range.start(),
                range.end()
            ),
        }
    }
}

type OnEvent = dyn Fn(&RpcServerEvent) + Send + Sync;

/// Where events go.
#[derive(Clone, Default)]
pub(super) struct Events(pub(super) Option<Arc<OnEvent>>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    pub(super) fn log(&self, event: &RpcServerEvent) {
        if let Some(on_event) = &self.0 {
            on_event(event);
        }
    }
}
