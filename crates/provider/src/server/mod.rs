//! A JSON-RPC endpoint for clients that cannot verify: an answer leaves only if it is proven.
//!
//! | file | contents |
//! |---|---|
//! | `builder` | configuration, start and end |
//! | `head`, `chain`, `journal` | the verified head, the headers that lead to it, and what changed |
//! | `blocks`, `store`, `flight` | proven receipts and transactions: in memory, on disk, fetched once |
//! | `index` | the filters of final blocks, on disk |
//! | `logs`, `filters`, `subscriptions` | answers about logs |
//! | `methods`, `block_parts`, `json`, `refusal` | JSON-RPC: methods, results, errors |
//! | `unverified`, `http` | what is not proven, `/health` and `/metrics` |
//! | `alloy_layer` | the same methods for alloy's provider, in one process |
//! | `compare`, `metrics`, `events` | what upstreams left out, for the operator |

#[cfg(feature = "alloy-layer")]
mod alloy_layer;
mod block_parts;
mod blocks;
mod builder;
mod chain;
mod compare;
mod events;
mod filters;
mod flight;
mod head;
mod http;
mod index;
mod journal;
mod json;
mod logs;
mod methods;
mod metrics;
mod refusal;
mod store;
mod subscriptions;
mod unverified;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::SyncSender;

use jsonrpsee::types::ErrorObjectOwned;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};

#[cfg(feature = "alloy-layer")]
pub use alloy_layer::{ProvenLayer, ProvenProvider};
pub use builder::{RpcServer, RpcServerBuilder, RpcServerError, RpcServerLimits};
pub use events::{LogDifferences, RpcServerEvent};

use crate::anchor::AnchorSource;
use crate::nodes::in_turn;
use crate::stop::Stop;
use refusal::Refusal;

/// What all calls share.
#[derive(Debug)]
struct Proven {
    chain_id: u64,
    chain: chain::Chain,
    /// The blocks that the anchor trusts.
    trusted: head::TrustedBlocks,
    /// Index of the node that named the head; 0 if an anchor did.
    head_named_by: AtomicUsize,
    journal: Arc<journal::Journal>,
    blocks: blocks::Blocks,
    index: Option<index::FilterIndex>,
    filters: filters::Filters,
    compare: compare::Compare,
    metrics: Arc<metrics::Metrics>,
    events: events::Events,
    /// Source of the trusted head; `None` if the head that upstreams name is trusted.
    anchor: Option<Arc<dyn AnchorSource>>,
    pass_unverified: bool,
    /// A permit for each call that may be worked on at the same time.
    calls: Arc<Semaphore>,
    /// Permits for the work of subscriptions, and for calls that are passed on.
    background: Arc<Semaphore>,
    passed: Arc<Semaphore>,
    limits: RpcServerLimits,
    stop: Stop,
    /// New blocks, of which is fetched what filters will ask for.
    ahead: SyncSender<Arc<journal::BlockHeader>>,
    /// Wakes the thread that writes the index, after a block became final or left the chain.
    newly_final: SyncSender<()>,
    /// Woken when the endpoint ends.
    stopped: Arc<Notify>,
}

/// Creates a folder unless it is there. The error names it.
fn create_folder(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).map_err(|error| {
        if folder.is_file() {
            format!("{shown} is a file, and a folder is needed")
        } else {
            format!("{shown}: {error}")
        }
    })
}

impl Proven {
    /// Returns what the answers rest on, in words.
    fn trust(&self) -> &'static str {
        if self.anchor.is_some() { "anchor" } else { "head named by the upstreams" }
    }

    fn count_filters(&self) {
        self.metrics.filters.set(i64::try_from(self.filters.len()).unwrap_or(i64::MAX));
    }

    /// Passes a call to the first upstream that answers, and returns its answer without any check.
    fn forward(&self, method: &str, params: &str) -> Result<Box<RawValue>, ErrorObjectOwned> {
        let mut failed = None;
        // Each node is asked once: the call may send a transaction.
        for node in in_turn(self.blocks.nodes()) {
            match node.forward(method, params) {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => {
                    let error = serde_json::from_str::<ErrorObjectOwned>(error.get());
                    let why = "the error of the upstream is malformed";
                    let malformed = |_| ErrorObjectOwned::owned(-32000, why, None::<()>);
                    return Err(error.unwrap_or_else(malformed));
                }
                Err(error) => failed.get_or_insert(format!("{}: {error}", node.name())),
            };
        }
        Err(Refusal::Upstream(failed.unwrap_or_default()).into())
    }
}
