//! Reports to the operator while the endpoint runs: events for a log, and counters in the text format of
//! Prometheus.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chainsieve::eth::header::BlockRef;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::chain::Journal;
use crate::nodes::Node;
use crate::proven::{Found, Observer, Wrong};

/// Differences between an upstream's answer to `eth_getLogs` and the proven logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LogDifferences {
    /// Number of logs that the answer lacks.
    pub omitted: u64,
    /// Number of logs of which a member differs from the proven log.
    pub altered: u64,
    /// Number of logs that are in no block of the range.
    pub invented: u64,
}

/// An event for a log. Its `Display` is a line of text; `serde` writes an object whose member `kind`
/// names the event.
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
    /// Blocks could not be added to the index, or the index does not belong to the verified chain. The
    /// endpoint tries again.
    IndexFailed {
        /// The reason.
        why: String,
    },
    /// No newer head could be verified. The endpoint tries again.
    HeadFailed {
        /// The reason.
        why: String,
    },
    /// The filter in the header of a block lacks bits of a log in the block's receipts. The operator's
    /// assumption about the chain is wrong: from now on, filters prove nothing, and the receipts of every
    /// block are read. Installed filters and subscriptions end, because they may have missed logs.
    FiltersRefuted {
        /// The block.
        block: BlockRef,
        /// Index of the first such log in the block.
        log_index: u64,
    },
    /// An upstream's answer to `eth_getLogs` differs from the proven logs.
    WrongLogs {
        /// Scheme, host and port of the upstream.
        upstream: String,
        /// The blocks that were asked for.
        range: RangeInclusive<u64>,
        /// The differences.
        found: LogDifferences,
        /// Number of the first block with a difference.
        block: u64,
        /// Index of the first such log in this block.
        log_index: u64,
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
            Self::WrongLogs { upstream, range, found, block, log_index } => write!(
                f,
                "{upstream} omitted {}, altered {} and invented {} logs in its answer for blocks {} to \
                 {}; the first of them is log {log_index} of block {block}",
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

/// The callback for events.
#[derive(Clone, Default)]
pub(super) struct Events(pub(super) Option<Arc<OnEvent>>);

debug_by!(Events:);

impl Events {
    pub(super) fn log(&self, event: &RpcServerEvent) {
        if let Some(on_event) = &self.0 {
            on_event(event);
        }
    }
}

/// The names and values of the labels of a counter.
type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

fn of(name: &'static str, value: impl Into<Cow<'static, str>>) -> Labels<1> {
    [(name, value.into())]
}

fn wrong_of(node: &Node, wrong: Wrong) -> Labels<2> {
    let what = match wrong {
        Wrong::Receipts => "receipts",
        Wrong::Transactions => "transactions",
        Wrong::Withdrawals => "withdrawals",
    };
    [("upstream", node.name().into()), ("what", what.into())]
}

#[derive(Debug)]
struct Durations(Family<Labels<1>, Histogram>);

impl Default for Durations {
    fn default() -> Self {
        let buckets = || Histogram::new(exponential_buckets(0.0005, 4.0, 9));
        Self(Family::new_with_constructor(buckets))
    }
}

/// Counters by labels.
type Counts<const N: usize> = Family<Labels<N>, Counter>;
type Level = Gauge<u64, AtomicU64>;

/// Defines the counters, each with its name and its help text.
macro_rules! metrics {
    ($($visible:vis $member:ident: $type:ty = $name:literal, $help:literal;)+) => {
        #[derive(Debug, Default)]
        pub(super) struct Metrics {
            registry: Registry,
            calls: AtomicU64,
            durations: Durations,
            $($visible $member: $type,)+
        }

        impl Metrics {
            fn register(&mut self) {
                let help = "Time from the call of a client to its answer";
                let durations = self.durations.0.clone();
                self.registry.register_with_unit("request_duration", help, Unit::Seconds, durations);
                $(self.registry.register($name, $help, self.$member.clone());)+
            }
        }
    };
}

metrics! {
    requests: Counts<2> = "requests", "Calls of clients, by method and outcome";
    omitted: Counts<1> = "upstream_omitted_logs", "Logs that an answer of eth_getLogs of the node lacked";
    altered: Counts<1> = "upstream_altered_logs", "Logs of the node with a member that differs from the proven log";
    invented: Counts<1> = "upstream_invented_logs", "Logs of the node that are in no block";
    compared: Counts<1> = "upstream_compared_answers",
        "Answers of the node to eth_getLogs that were compared with the proven logs";
    wrong: Counts<2> = "upstream_wrong_blocks",
        "Blocks whose receipts, transactions or withdrawals from the node have a wrong root";
    pub(super) lacking_filters: Counter = "lacking_filters",
        "Blocks whose filter lacks bits of a log, although the chain's profile rules that out";
    pub(super) claimed_hashes: Counter = "claimed_transaction_hashes",
        "Blocks whose logs were given with transaction hashes that a node only claims";
    found: Counts<1> = "blocks_found", "Where the receipts of blocks were found";
    pub(super) head: Level = "verified_head", "Number of the verified head";
    pub(super) head_time: Level = "verified_head_timestamp",
        "Unix time of the verified head: its lag is the time since then";
    pub(super) finalized: Level = "finalized_head", "Number of the newest final block";
    pub(super) index_first: Level = "index_first_block", "Number of the first block of the index";
    pub(super) index_last: Level = "index_last_block", "Number of the last block of the index";
    pub(super) head_failures: Counter = "head_failures", "Failed attempts to verify a newer head";
    pub(super) filters: Level = "filters", "Installed filters";
    pub(super) subscriptions: Level = "subscriptions", "Open subscriptions";
    pub(super) connections: Level = "connections", "Open connections";
    pub(super) passing: Level = "answer_memory_bytes", "Bytes of requests and answers that clients have not read yet";
    pub(super) standing: Level = "filter_memory_bytes", "Bytes of installed filters and subscriptions";
    limits: Counts<1> = "limits_reached", "Times that a limit refused a client something, or ended its connection";
    unverified: Counter = "unverified_calls", "Calls that were passed to a node without a proof";
}

impl Metrics {
    /// Creates the counters. Those of each upstream begin at 0, so that the first increase is
    /// visible.
    pub(super) fn new(nodes: &[Node]) -> Self {
        let registry = Registry::with_prefix("chainsieve");
        let mut metrics = Self { registry, ..Self::default() };
        metrics.register();
        for node in nodes {
            let upstream = of("upstream", node.name());
            for family in [&metrics.omitted, &metrics.altered, &metrics.invented, &metrics.compared]
            {
                drop(family.get_or_create(&upstream));
            }
            for wrong in [Wrong::Receipts, Wrong::Transactions, Wrong::Withdrawals] {
                drop(metrics.wrong.get_or_create(&wrong_of(node, wrong)));
            }
        }
        metrics
    }

    /// Returns all counters as text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("a string can be written");
        out
    }

    pub(super) fn answered(&self, method: &'static str, outcome: &'static str, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let labels = [("method", method.into()), ("outcome", outcome.into())];
        self.requests.get_or_create(&labels).inc();
        self.durations.0.get_or_create(&of("method", method)).observe(took.as_secs_f64());
    }

    /// Counts a call of a method that is not proven. Method names that clients choose do not become
    /// labels.
    pub(super) fn refused(&self, outcome: &'static str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let labels = [("method", "other".into()), ("outcome", outcome.into())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a call that is passed on without a proof.
    pub(super) fn passed(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.unverified.inc();
    }

    pub(super) fn num_calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn wrong(&self, node: &Node, wrong: Wrong) {
        self.wrong.get_or_create(&wrong_of(node, wrong)).inc();
    }

    pub(super) fn compared(&self, node: &Node, found: LogDifferences) {
        let upstream = of("upstream", node.name());
        self.compared.get_or_create(&upstream).inc();
        self.omitted.get_or_create(&upstream).inc_by(found.omitted);
        self.altered.get_or_create(&upstream).inc_by(found.altered);
        self.invented.get_or_create(&upstream).inc_by(found.invented);
    }

    pub(super) fn found(&self, found: Found) {
        let place = match found {
            Found::Memory => "memory",
            Found::Disk => "disk",
            Found::Nodes => "upstream",
        };
        self.found.get_or_create(&of("place", place)).inc();
    }

    pub(super) fn limit_reached(&self, limit: &'static str) {
        self.limits.get_or_create(&of("limit", limit)).inc();
    }
}

/// The counters and the log of an endpoint.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Events,
    /// The journal, which records that filters were refuted: filters and subscriptions may have
    /// missed logs.
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
        self.metrics.claimed_hashes.inc();
    }

    fn filter_lacks_bits(&self, block: BlockRef, log_index: u64, is_first: bool) {
        self.metrics.lacking_filters.inc();
        if is_first {
            self.events.log(&RpcServerEvent::FiltersRefuted { block, log_index });
            // Whatever filters and subscriptions got so far may lack logs.
            self.journal.push(&[], Vec::new(), true);
        }
    }
}
