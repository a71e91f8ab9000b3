//! Two providers' answers beside each other.

use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::provider::Difference;
use serde_json::{Value, json};

use crate::output::{Page, count, grouped};

/// Rows of a page, and logs in JSON.
const ROWS: usize = 20;
const LISTED: usize = 1000;

/// In words.
pub(super) fn words(difference: &Difference<'_>) -> String {
    if difference.is_empty() {
        return "A and B answer the same".into();
    }
    format!(
        "A and B answer differently: {} of A alone, {} of B alone",
        count(difference.only_first.len(), "log"),
        count(difference.only_second.len(), "log")
    )
}

pub(super) fn show(difference: &Difference<'_>, page: &mut Page) {
    if difference.is_empty() {
        return;
    }
    let both = [("A", &difference.only_first), ("B", &difference.only_second)];
    let rows = both.into_iter().flat_map(|(letter, logs)| {
        logs.iter().take(ROWS).map(move |log| {
            let what = format!("log {} of {}", grouped(log.log_index), log.log.address);
            vec![grouped(log.block_number), letter.to_owned(), what]
        })
    });
    page.table(vec!["block", "of alone", "log"], rows.collect());
}

pub(super) fn json(difference: &Difference<'_>) -> Value {
    let list = |logs: &[&LocatedLog]| json!(&logs[..logs.len().min(LISTED)]);
    json!({
        "same": difference.is_empty(), "only_a": list(&difference.only_first),
        "only_b": list(&difference.only_second),
    })
}
