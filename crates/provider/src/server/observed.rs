//! What the operator is told of fetched blocks: counters, lines of the log, and the end of filters that may
//! have missed logs.

use std::sync::Arc;

use chainsieve::eth::header::BlockRef;

use super::events::{Events, RpcServerEvent};
use super::journal::Journal;
use super::metrics::Metrics;
use crate::node::Node;
use crate::proven::{Found, Observer, Wrong};

/// The counters and the log of an endpoint.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Events,
    /// Told when filters are refuted, because what was sent by them may lack logs.
    pub(super) journal: Arc<Journal>,
}

impl Observer for Observed {
    fn wrong(&self, node: &Node, wrong: Wrong) {
        self.metrics.wrong(node, wrong);
    }

    fn found(&self, found: Found) {
        self.metrics.found(found);
    }

    fn hashes_claimed(&self, _: BlockRef) {
        self.metrics.claimed_hashes();
    }

    fn filter_lacks_bits(&self, block: BlockRef, log_index: u64, is_first: bool) {
        self.metrics.lacking_filter();
        if is_first {
            self.events.log(&RpcServerEvent::FiltersRefuted { block, log_index });
            // Whatever filters and subscriptions got so far may lack logs.
            self.journal.push(&[], Vec::new(), true);
        }
    }
}
