//! Requests to providers of JSON-RPC: their limits, splitting of ranges, budgets, retries, and
//! comparison of answers.
//!
//! This module has no sockets and no clock; the package `chainsieve-provider` does the I/O.

mod budget;
mod limit;
mod windows;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256};

use crate::eth::log::LocatedLog;

pub use budget::{Budget, Retry, Spending};
pub use limit::Limit;
pub use windows::{SingleBlock, WindowAction, WindowEvent, WindowSize, Windows};

/// The logs that only one of two answers contains.
///
/// Logs are compared by the fields that every node must return: block hash, log index, transaction
/// index, address, topics, data and `removed`. Timestamps and transaction hashes are ignored,
/// because nodes may omit them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Difference<'a> {
    /// The logs of the first answer that the second answer lacks, in the order of the first answer.
    pub only_first: Vec<&'a LocatedLog>,
    /// The logs of the second answer that the first answer lacks, in the order of the second
    /// answer.
    pub only_second: Vec<&'a LocatedLog>,
}

type Key<'a> = (B256, u64, u64, Address, &'a [B256], &'a [u8], bool);

fn key(log: &LocatedLog) -> Key<'_> {
    let LocatedLog { log: inner, block_hash, log_index, transaction_index, removed, .. } = log;
    let (topics, data) = (inner.topics(), inner.data.data.as_ref());
    (*block_hash, *log_index, *transaction_index, inner.address, topics, data, *removed)
}

fn only<'a>(these: &'a [LocatedLog], others: &'a [LocatedLog]) -> Vec<&'a LocatedLog> {
    // Count equal logs, so that a log that one answer repeats is reported as a difference.
    let mut left: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    for log in others {
        *left.entry(key(log)).or_default() += 1;
    }
    let is_new = |log: &&'a LocatedLog| match left.get_mut(&key(log)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(is_new).collect()
}

impl<'a> Difference<'a> {
    /// Compares two answers as multisets: a log that occurs more often in one answer is a
    /// difference.
    ///
    /// # Cost
    /// Makes O((n + m) · log(n + m)) comparisons for answers of n and m logs, and builds a map of
    /// each answer.
    pub fn new(first: &'a [LocatedLog], second: &'a [LocatedLog]) -> Self {
        Self { only_first: only(first, second), only_second: only(second, first) }
    }

    /// Returns `true` if both answers contain the same logs.
    pub fn is_empty(&self) -> bool {
        self.only_first.is_empty() && self.only_second.is_empty()
    }
}
