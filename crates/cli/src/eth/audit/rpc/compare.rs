//! Two providers' answers beside each other.

use std::collections::HashMap;

use chainsieve::alloy_primitives::{Address, B256};
use chainsieve::eth::log::LocatedLog;
use serde_json::{Value, json};

use crate::output::{Page, count, grouped};

/// Rows of a page, and logs in JSON.
const ROWS: usize = 20;
const LISTED: usize = 1000;

/// What one answer has and the other has not.
pub(super) struct Compared<'a> {
    only: [Vec<&'a LocatedLog>; 2],
}

/// What of a log both must say; a timestamp or a transaction's hash may be left out by one.
type Key<'a> = (B256, u64, u64, Address, &'a [B256], &'a [u8], bool);

fn key(log: &LocatedLog) -> Key<'_> {
    let LocatedLog { log: inner, block_hash, log_index, transaction_index, removed, .. } = log;
    let (topics, data) = (inner.topics(), inner.data.data.as_ref());
    (*block_hash, *log_index, *transaction_index, inner.address, topics, data, *removed)
}

/// Compares two answers as sets in which a log may be more than once.
pub(super) fn compare<'a>(first: &'a [LocatedLog], second: &'a [LocatedLog]) -> Compared<'a> {
    let only = |these: &'a [LocatedLog], others: &'a [LocatedLog]| {
        let mut left: HashMap<Key<'_>, usize> = HashMap::new();
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
    };
    Compared { only: [only(first, second), only(second, first)] }
}

impl Compared<'_> {
    /// Whether both said the same.
    pub(super) fn same(&self) -> bool {
        self.only.iter().all(Vec::is_empty)
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        let [first, second] = &self.only;
        if self.same() {
            return "A and B answer the same".into();
        }
        format!(
            "A and B answer differently: {} of A alone, {} of B alone",
            count(first.len(), "log"),
            count(second.len(), "log")
        )
    }

    pub(super) fn show(&self, page: &mut Page) {
        if self.same() {
            return;
        }
        let rows = ["A", "B"].into_iter().zip(&self.only).flat_map(|(letter, logs)| {
            logs.iter().take(ROWS).map(move |log| {
                let what = format!("log {} of {}", grouped(log.log_index), log.log.address);
                vec![grouped(log.block_number), letter.to_owned(), what]
            })
        });
        page.table(vec!["block", "of alone", "log"], rows.collect());
    }

    pub(super) fn json(&self) -> Value {
        let [first, second] = &self.only;
        json!({
            "same": self.same(),
            "only_a": first.iter().take(LISTED).collect::<Vec<_>>(),
            "only_b": second.iter().take(LISTED).collect::<Vec<_>>(),
        })
    }
}
