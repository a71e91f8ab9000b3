//! Compares what upstreams answer to `eth_getLogs` with the proven logs, and counts what they left out.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;

use super::events::{Events, LogDifferences, RpcServerEvent};
use super::metrics::Metrics;
use crate::node::{Node, RpcError};

/// Number of answers that may wait for their comparison. Further ones are not compared.
const WAITING: usize = 16;

/// Number of logs more than the proven ones after which a node's answer is read no further.
const MOST_INVENTED: usize = 10_000;

/// The queue of answers to compare.
#[derive(Debug)]
pub(super) struct Compare {
    /// `None` if nothing is compared.
    waiting: Option<SyncSender<Proven>>,
}

/// A query, and its proven logs.
#[derive(Debug)]
struct Proven {
    query: LogQuery,
    range: RangeInclusive<u64>,
    /// Hash of the last block of the range.
    last: B256,
    logs: Vec<LocatedLog>,
}

impl Compare {
    pub(super) const fn nothing() -> Self {
        Self { waiting: None }
    }

    /// Starts the thread that asks the upstreams. It ends when the queue is dropped.
    pub(super) fn start(
        nodes: Vec<Node>,
        metrics: Arc<Metrics>,
        events: Events,
    ) -> std::io::Result<Self> {
        let (waiting, proven) = mpsc::sync_channel::<Proven>(WAITING);
        let thread = thread::Builder::new().name("chainsieve-compare".into());
        thread.spawn(move || {
            for proven in proven {
                for node in &nodes {
                    compare(node, &proven, &metrics, &events);
                }
            }
        })?;
        Ok(Self { waiting: Some(waiting) })
    }

    /// Compares the answers of the upstreams to a query, soon. `range` is that of the query, and
    /// `logs` are the proven ones.
    pub(super) fn queue(
        &self,
        query: &LogQuery,
        range: &RangeInclusive<u64>,
        last: B256,
        logs: &[LocatedLog],
    ) {
        // Where nodes themselves differ on what a query selects, a difference accuses nobody.
        if query.ends_in_any() {
            return;
        }
        if let Some(waiting) = &self.waiting {
            let (query, range, logs) = (query.clone(), range.clone(), logs.to_vec());
            // A full queue loses a comparison, and no answer.
            let _ = waiting.try_send(Proven { query, range, last, logs });
        }
    }
}

fn compare(node: &Node, proven: &Proven, metrics: &Metrics, events: &Events) {
    let Proven { query, range, last, logs } = proven;
    // A node that has another last block, or none, is on another branch or lags, which is no omission.
    let has_last = || matches!(node.header(*range.end()), Ok(Some(own)) if own.hash() == *last);
    if !has_last() {
        return;
    }
    let mut answered = Vec::new();
    let most = logs.len() + MOST_INVENTED;
    let asked = node.logs(query, range.clone(), |_, found| {
        answered.extend(found);
        // An answer without end must not fill the memory.
        let too_many = answered.len() > most;
        if too_many { Err(RpcError::Malformed("too many logs".into())) } else { Ok(()) }
    });
    // A reorganisation meanwhile may have changed any block.
    let is_cut = answered.len() > most;
    if !is_cut && (asked.is_err() || !has_last()) {
        return;
    }
    let mut found = differences(logs, &answered);
    if is_cut {
        // What was not read may have the rest.
        found.omitted = 0;
    }
    metrics.compared(node, found);
    if !found.are_none() {
        events.log(&RpcServerEvent::WrongLogs {
            upstream: node.name(),
            range: range.clone(),
            found,
        });
    }
}

/// Returns how an answer differs from the proven logs. Both may have any order.
pub(super) fn differences(proven: &[LocatedLog], answered: &[LocatedLog]) -> LogDifferences {
    let place = |log: &LocatedLog| (log.block_hash, log.log_index);
    let mut open: HashMap<_, &LocatedLog> = proven.iter().map(|log| (place(log), log)).collect();
    let mut found = LogDifferences::default();
    for log in answered {
        match open.remove(&place(log)) {
            // Nodes may leave the time out.
            Some(known) => {
                let block_timestamp = log.block_timestamp.and(known.block_timestamp);
                let known = LocatedLog { block_timestamp, ..known.clone() };
                found.altered += u64::from(known != *log);
            }
            None => found.invented += 1,
        }
    }
    found.omitted = open.len() as u64;
    found
}
