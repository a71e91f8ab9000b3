//! Compares the answers of upstreams to `eth_getLogs` with the proven logs, and counts the logs that an
//! upstream left out.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::RangeInclusive;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;
use quick_cache::sync::Cache;

use super::Proven;
use super::operator::{LogDifferences, RpcServerEvent};
use crate::nodes::{Node, RpcError};

/// Maximum number of answers that wait for their comparison. Further answers are not compared.
const WAITING: usize = 16;

/// Number of proven logs of all answers that wait together. An answer that would exceed it is not compared, so
/// that long answers do not fill the memory.
const MOST_WAITING_LOGS: usize = 200_000;

/// Maximum number of logs in a node's answer beyond the number of proven logs. The rest of the
/// answer is not read.
const MOST_INVENTED: usize = 10_000;

/// Maximum number of blocks per answer whose receipts are read because a node returned logs that
/// their filters rule out.
const MOST_CLAIMS: usize = 4;

/// Maximum number of remembered queries without a candidate that have been compared.
const RECENT: usize = 4096;

/// The queue of answers to compare.
#[derive(Debug)]
pub(super) struct Compare {
    /// `None` if nothing is compared.
    waiting: Option<SyncSender<Answer>>,
    /// Number of proven logs of all waiting answers.
    waiting_logs: AtomicUsize,
    /// Hashes of the queries without a candidate that were queued.
    recent: Cache<u64, ()>,
    hasher: RandomState,
}

/// A query, and its proven logs.
#[derive(Debug)]
pub(super) struct Answer {
    query: LogQuery,
    range: RangeInclusive<u64>,
    /// Hash of the last block of the range.
    last: B256,
    logs: Vec<LocatedLog>,
    /// `true` if the answer relies on filters that are not trusted any more.
    without_filters: bool,
}

impl Compare {
    /// Returns the queue and the receiver of its answers. Without `is_on`, no answer is queued.
    pub(super) fn new(is_on: bool) -> (Self, Receiver<Answer>) {
        let (waiting, answers) = mpsc::sync_channel(WAITING);
        let waiting = is_on.then_some(waiting);
        let (recent, hasher) = (Cache::new(RECENT), RandomState::new());
        (Self { waiting, waiting_logs: AtomicUsize::new(0), recent, hasher }, answers)
    }

    /// Returns `true` if a query without a candidate was not queued yet.
    pub(super) fn is_new(&self, query: &LogQuery, range: &RangeInclusive<u64>) -> bool {
        self.waiting.is_some() && self.recent.get(&self.hash(query, range)).is_none()
    }

    fn hash(&self, query: &LogQuery, range: &RangeInclusive<u64>) -> u64 {
        self.hasher.hash_one((query, range))
    }
}

impl Proven {
    /// Queues a comparison of the upstreams' answers to a query. `range` is the range of the query,
    /// and `logs` are the proven logs.
    pub(super) fn queue_comparison(
        &self,
        query: &LogQuery,
        range: &RangeInclusive<u64>,
        logs: &[LocatedLog],
    ) {
        // Where nodes themselves differ on what a query selects, a difference accuses nobody.
        if query.ends_in_any() {
            return;
        }
        // A reorganisation meanwhile loses a comparison, and no answer.
        if let (Some(waiting), Ok(Some(last))) =
            (&self.compare.waiting, self.hash_at(*range.end(), &self.stop))
        {
            let count = logs.len();
            let before = self.compare.waiting_logs.fetch_add(count, Ordering::Relaxed);
            if before.saturating_add(count) > MOST_WAITING_LOGS {
                self.compare.waiting_logs.fetch_sub(count, Ordering::Relaxed);
                return;
            }
            let (query, range, logs) = (query.clone(), range.clone(), logs.to_vec());
            let without_filters = self.blocks.filters.are_refuted();
            let hash = logs.is_empty().then(|| self.compare.hash(&query, &range));
            let answer = Answer { query, range, last, logs, without_filters };
            // A full queue loses a comparison, and no answer.
            if waiting.try_send(answer).is_err() {
                self.compare.waiting_logs.fetch_sub(count, Ordering::Relaxed);
            } else if let Some(hash) = hash {
                self.compare.recent.insert(hash, ());
            }
        }
    }

    fn compare(&self, node: &Node, answer: &Answer) {
        let Answer { query, range, last, logs, without_filters } = answer;
        // A node that has another last block, or does not have the last block, is on another branch
        // or lags. This is no omission.
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
        let mut differences = Differences::between(logs, &answered);
        if differences.found.invented > 0 && !without_filters {
            self.read_claimed_blocks(range, logs, &answered);
        }
        // The answer rests on filters that lack bits: the node may be right.
        if self.blocks.filters.are_refuted() != *without_filters {
            return;
        }
        if is_cut {
            // What was not read may have the rest.
            differences.found.omitted = 0;
            differences.first_omitted = None;
        }
        let Differences { found, first_omitted, first_false } = differences;
        self.metrics.compared(node, found);
        if let Some((block, log_index)) = first_omitted.into_iter().chain(first_false).min() {
            self.events.log(&RpcServerEvent::WrongLogs {
                upstream: node.name(),
                range: range.clone(),
                found,
                block,
                log_index,
            });
        }
    }

    /// Reads the receipts of some blocks in which a node has logs that are not among the proven logs. If
    /// the filter of such a block lacks bits, the receipts show it.
    fn read_claimed_blocks(
        &self,
        range: &RangeInclusive<u64>,
        proven: &[LocatedLog],
        answered: &[LocatedLog],
    ) {
        let known: BTreeSet<B256> = proven.iter().map(|log| log.block_hash).collect();
        let claimed = answered.iter().map(|log| log.block_hash);
        let claimed: BTreeSet<B256> = claimed.filter(|hash| !known.contains(hash)).collect();
        for hash in claimed.into_iter().take(MOST_CLAIMS) {
            // The headers of the range are known, so that a made-up number costs nothing.
            if let Ok(Some(header)) = self.blocks.header_with(hash, true)
                && range.contains(&header.at.number)
                && self.is_on_chain(header.at, &self.stop).unwrap_or_default()
            {
                let _ = self.blocks.receipts(&ChainBlock::from(&*header));
            }
        }
    }
}

/// Compares answers until the queue is dropped.
pub(super) fn run(proven: &Weak<Proven>, answers: &Receiver<Answer>) {
    while let Ok(answer) = answers.recv() {
        // The thread holds no reference while it waits, so that the last one to leave ends it.
        let Some(proven) = proven.upgrade() else { return };
        // One that rests would delay the comparisons with the others.
        for node in proven.blocks.nodes().iter().filter(|node| !node.rests()) {
            proven.compare(node, &answer);
        }
        proven.compare.waiting_logs.fetch_sub(answer.logs.len(), Ordering::Relaxed);
    }
}

/// Number of a block, and index of a log in it.
type Place = (u64, u64);

/// The differences between an answer and the proven logs.
struct Differences {
    found: LogDifferences,
    first_omitted: Option<Place>,
    /// The first log that is altered, or invented. The place of an invented log is the place that
    /// the answer claims.
    first_false: Option<Place>,
}

impl Differences {
    /// Compares an answer with the proven logs. The two lists may have any order.
    fn between(proven: &[LocatedLog], answered: &[LocatedLog]) -> Self {
        let key = |log: &LocatedLog| (log.block_hash, log.log_index);
        let place = |log: &LocatedLog| (log.block_number, log.log_index);
        let mut open: HashMap<_, &LocatedLog> = proven.iter().map(|log| (key(log), log)).collect();
        let mut found = LogDifferences::default();
        let mut first_false = None;
        for log in answered {
            let (count, at) = match open.remove(&key(log)) {
                Some(known) if is_same(known, log) => continue,
                Some(known) => (&mut found.altered, place(known)),
                None => (&mut found.invented, place(log)),
            };
            *count += 1;
            first_false = first_false.into_iter().chain([at]).min();
        }
        found.omitted = open.len() as u64;
        let first_omitted = open.into_values().map(place).min();
        Self { found, first_omitted, first_false }
    }
}

/// Returns `true` if a node's log does not differ from the proven log.
fn is_same(proven: &LocatedLog, answered: &LocatedLog) -> bool {
    // Nodes may leave the time out.
    let block_timestamp = answered.block_timestamp.and(proven.block_timestamp);
    let mut known = LocatedLog { block_timestamp, ..proven.clone() };
    // Where the hash of the transaction is not proven, another one accuses nobody.
    if known.transaction_hash.is_none() {
        known.transaction_hash = answered.transaction_hash;
        known.claimed_transaction_hash = answered.claimed_transaction_hash;
    }
    known == *answered
}
