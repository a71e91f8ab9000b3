//! The lies of a node with JSON-RPC: about logs, receipts and headers, and failures of delivery.

mod delivery;
mod headers;
mod logs;
mod receipts;

use serde_json::Value;

pub use self::logs::{LOG_LIES, LogLie};
pub use self::receipts::{RECEIPT_LIES, ReceiptLie};

use crate::serve::json_rpc::{Fate, Rule};
use crate::serve::lie::{Count, Lie, Protocol, Verdict};

const fn lie(
    id: &'static str,
    title: &'static str,
    expected: (Verdict, &'static str),
    source: &'static str,
) -> Lie {
    Lie::new(Protocol::EthereumJsonRpc, id, title, expected, source)
}

/// Returns the descriptions of all lies.
pub(in crate::serve) fn lies() -> impl Iterator<Item = &'static Lie> {
    let logs = LOG_LIES.iter().map(|told| &told.lie);
    let receipts = RECEIPT_LIES.iter().map(|told| &told.lie);
    let headers = headers::LIES.iter().map(|told| &told.lie);
    let delivery = delivery::LIES.iter().map(|told| &told.lie);
    logs.chain(receipts).chain(headers).chain(delivery)
}

/// Returns the rule of a proxy that tells the lie with this id, and counts how often.
pub(super) fn rule(id: &str, count: &Count) -> Option<Rule> {
    let is = |lie: &Lie| lie.id == id;
    if let Some(told) = LOG_LIES.iter().find(|told| is(&told.lie)) {
        return Some(changing(count.clone(), |method, answer| told.alter(method, answer)));
    }
    if let Some(told) = RECEIPT_LIES.iter().find(|told| is(&told.lie)) {
        return Some(changing(count.clone(), |method, answer| told.alter(method, answer)));
    }
    if let Some(told) = headers::LIES.iter().find(|told| is(&told.lie)) {
        return Some(changing(count.clone(), |method, answer| told.alter(method, answer)));
    }
    let told = delivery::LIES.iter().find(|told| is(&told.lie))?;
    Some(told.rule(count.clone()))
}

/// Returns a rule that changes results. Only an answer that differs from the truth counts as a lie.
fn changing(count: Count, alter: impl Fn(&str, &mut Value) + Send + Sync + 'static) -> Rule {
    Box::new(move |method, _, answer| {
        let truth = answer.clone();
        alter(method, answer);
        if *answer != truth {
            count.add_one();
        }
        Fate::Answered
    })
}

/// Replaces an answer by the error for a method that the node does not serve, so that the true data
/// cannot be fetched by another method.
fn withhold(method: &str, answer: &mut Value) {
    let fault = crate::serve::json_rpc::Fault::method_not_found(method);
    *answer = fault.answer(&answer["id"].take());
}
