//! A JSON-RPC endpoint for clients that cannot verify: an answer is sent only if it is proven.
//!
//! | file | contents |
//! |---|---|
//! | `builder` | configuration, start and end |
//! | `head`, `chain` | the verified head, the headers that lead to it, and what changed |
//! | `index` | the filters of final blocks, on disk |
//! | `logs`, `filters` | answers about logs, once and whenever the chain changes |
//! | `listen`, `http`, `websocket` | connections of clients, `/health` and `/metrics` |
//! | `clients` | the limits, and what each client holds |
//! | `rpc`, `call`, `methods`, `json`, `error` | JSON-RPC: calls, methods, results, errors |
//! | `alloy_layer` | the same methods for alloy's provider, in one process |
//! | `compare`, `operator` | the logs that upstreams left out, and the reports to the operator |
//!
//! `crate::proven` provides the blocks themselves, from memory, the disk and the nodes.

#[cfg(feature = "alloy-layer")]
mod alloy_layer;
mod builder;
mod call;
mod chain;
mod clients;
mod compare;
mod error;
mod filters;
mod head;
mod http;
mod index;
mod json;
mod listen;
mod logs;
mod methods;
mod operator;
mod rpc;
mod websocket;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use crate::anchor::AnchorSource;
use crate::proven::Blocks;
use crate::stop::Stop;

#[cfg(feature = "alloy-layer")]
pub use alloy_layer::{ProvenLayer, ProvenProvider};
pub use builder::{RpcServer, RpcServerBuilder};
pub use clients::RpcServerLimits;
pub use error::RpcServerError;
pub use operator::{LogDifferences, RpcServerEvent};

/// The state that all calls share.
#[derive(Debug)]
struct Proven {
    chain_id: u64,
    chain: chain::Chain,
    /// The blocks that the anchor trusts.
    trusted: head::TrustedBlocks,
    /// Index of the node that named the head; 0 if an anchor named it.
    head_named_by: AtomicUsize,
    /// Why the last attempt to move the head failed; `None` if it did not fail.
    head_failure: Mutex<Option<String>>,
    journal: Arc<chain::Journal>,
    blocks: Blocks,
    lookups: methods::Lookups,
    index: Option<index::FilterIndex>,
    filters: filters::Filters,
    compare: compare::Compare,
    metrics: Arc<operator::Metrics>,
    events: operator::Events,
    /// Source of the trusted head; `None` if the head that upstreams name is trusted.
    anchor: Option<Arc<dyn AnchorSource>>,
    pass_unverified: bool,
    /// Age of the head from which on the endpoint is not ready.
    max_head_age: Option<Duration>,
    clients: clients::Clients,
    /// Bytes of requests and answers, and of filters and subscriptions.
    passing: Arc<clients::Budget>,
    standing: Arc<clients::Budget>,
    connections: Arc<AtomicU64>,
    subscriptions: Arc<AtomicU64>,
    /// A permit for each call that may be processed at the same time.
    calls: Arc<Semaphore>,
    /// Permits for the work of subscriptions, and for calls that are passed on.
    background: Arc<Semaphore>,
    passed: Arc<Semaphore>,
    limits: RpcServerLimits,
    stop: Stop,
    /// New blocks whose data for installed filters is fetched in advance.
    ahead: SyncSender<Arc<chain::BlockHeader>>,
    /// Wakes the thread that writes the index, after a block became final or left the chain.
    newly_final: SyncSender<()>,
    /// Woken when the endpoint ends.
    stopped: Arc<Notify>,
}

/// Creates a folder unless it exists. The error names the folder.
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
    /// Returns the basis of trust of the answers, in words.
    fn trust(&self) -> &'static str {
        if self.anchor.is_some() { "anchor" } else { "head named by the nodes" }
    }

    /// Sets the gauges: the known blocks, and the memory and the numbers of things that clients
    /// hold. Each figure is read from the part of the program that changes it, so that no gauge is
    /// outdated.
    fn measure(&self) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let metrics = &self.metrics;
        if let Some((head, time)) = self.chain.head_and_time() {
            metrics.head.set(head.number);
            metrics.head_time.set(time);
        }
        metrics.finalized.set(self.chain.finalized().map_or(0, |block| block.number));
        let indexed = self.index.as_ref().and_then(index::FilterIndex::numbers);
        // Without an index that is used, both are 0.
        metrics.index_first.set(indexed.as_ref().map_or(0, |blocks| *blocks.start()));
        metrics.index_last.set(indexed.as_ref().map_or(0, |blocks| *blocks.end()));
        metrics.filters.set(self.filters.len() as u64);
        metrics.subscriptions.set(count(&self.subscriptions));
        metrics.connections.set(count(&self.connections));
        metrics.passing.set(self.passing.held());
        metrics.standing.set(self.standing.held());
    }
}
