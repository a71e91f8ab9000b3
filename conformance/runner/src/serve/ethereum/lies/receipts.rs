//! Lies in the answers to `eth_getBlockReceipts`, each about something that the receipts root
//! commits to.

use chainsieve::alloy_primitives::B256;
use serde_json::{Value, json};

use super::{lie, withhold};
use crate::serve::lie::{Lie, Verdict};

/// A lie about the receipts of a block.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReceiptLie {
    /// The description of the lie.
    pub lie: Lie,
    /// Replaces the receipts of a block by false ones. All receipts and logs must be objects, and
    /// one receipt must have a log.
    pub tell: fn(receipts: &mut Vec<Value>),
}

const fn told(id: &'static str, title: &'static str, tell: fn(&mut Vec<Value>)) -> ReceiptLie {
    let expected = (Verdict::MustDetect, "the receipts root of a trusted header");
    ReceiptLie { lie: lie(id, title, expected, "Yellow Paper 4.3.1 (receipts root)"), tell }
}

/// The lies about receipts. A node tells them about each block with logs.
pub static RECEIPT_LIES: [ReceiptLie; 14] = [
    told("eth-receipt-log-omitted", "A receipt lacks a log", |receipts| {
        logs_of(receipts).remove(0);
    }),
    told("eth-receipt-log-invented", "A receipt has a log too many", |receipts| {
        let logs = logs_of(receipts);
        logs.extend(logs.first().cloned());
    }),
    told("eth-receipt-log-data", "A log in a receipt has other data", |receipts| {
        replace(logs_of(receipts), "data", &["0x00ff00", "0x00ff01"]);
    }),
    told("eth-receipt-log-address", "A log in a receipt has another address", |receipts| {
        let address = "0x00000000000000000000000000000000000000ff";
        replace(logs_of(receipts), "address", &[address]);
    }),
    told("eth-receipt-log-topic", "A log in a receipt has other topics", |receipts| {
        if let Some(log) = logs_of(receipts).first_mut() {
            log["topics"] = json!([B256::repeat_byte(0xcc)]);
        }
    }),
    told("eth-receipt-logs-empty", "A receipt has no logs", |receipts| logs_of(receipts).clear()),
    told("eth-receipt-status", "A receipt has the other status", |receipts| {
        replace(receipts, "status", &["0x0", "0x1"]);
    }),
    told("eth-receipt-gas", "A receipt has other gas", |receipts| {
        replace(receipts, "cumulativeGasUsed", &["0x5208", "0x5209"]);
    }),
    told("eth-receipt-type", "A receipt has another type", |receipts| {
        replace(receipts, "type", &["0x3", "0x2"]);
    }),
    told("eth-receipt-bloom", "A receipt has an empty filter", |receipts| {
        if let Some(receipt) = receipts.iter_mut().find(|receipt| has_logs(receipt)) {
            receipt["logsBloom"] = json!(format!("0x{}", "0".repeat(512)));
        }
    }),
    told("eth-receipt-omitted", "The last receipt is left out", |receipts| drop(receipts.pop())),
    told("eth-receipt-twice", "The first receipt occurs twice", |receipts| {
        receipts.extend(receipts.first().cloned());
    }),
    told("eth-receipts-empty", "A block has no receipts", Vec::clear),
    told(
        "eth-receipts-swapped",
        "The first two receipts of a block have each other's index; a single one has index 1",
        |receipts| {
            let index = "transactionIndex";
            match receipts.as_mut_slice() {
                [first, second, ..] => std::mem::swap(&mut first[index], &mut second[index]),
                [single] => single[index] = json!("0x1"),
                [] => {}
            }
        },
    ),
];

fn has_logs(receipt: &Value) -> bool {
    receipt["logs"].as_array().is_some_and(|logs| !logs.is_empty())
}

/// Returns the logs of the first receipt that has logs.
///
/// # Panics
/// Panics if no receipt has logs.
fn logs_of(receipts: &mut [Value]) -> &mut Vec<Value> {
    let found = receipts.iter_mut().find(|receipt| has_logs(receipt));
    found.and_then(|receipt| receipt["logs"].as_array_mut()).expect("a receipt with logs")
}

/// Sets a member of the first object to the first of the texts that differs from it.
fn replace(objects: &mut [Value], member: &str, texts: &[&str]) {
    if let Some(object) = objects.first_mut() {
        let other = texts.iter().find(|text| object[member] != **text);
        object[member] = json!(other);
    }
}

impl ReceiptLie {
    /// Tells the lie about the receipts of a block with logs, and withholds the receipts in every
    /// other form: otherwise a client would fetch the true receipts.
    pub(super) fn alter(&self, method: &str, answer: &mut Value) {
        match method {
            "eth_getBlockReceipts" => {
                let Some(receipts) = answer["result"].as_array_mut() else { return };
                let is_log_list = |logs: &Vec<Value>| logs.iter().all(Value::is_object);
                // A node behind the proxy may send anything.
                let is_readable = |receipt: &Value| {
                    receipt.is_object() && receipt["logs"].as_array().is_none_or(is_log_list)
                };
                if receipts.iter().all(is_readable) && receipts.iter().any(has_logs) {
                    (self.tell)(receipts);
                }
            }
            "eth_getTransactionReceipt" | "debug_getRawReceipts" => withhold(method, answer),
            _ => {}
        }
    }
}
