//! Lies in the answers to `eth_getLogs`, each about one log.

use chainsieve::alloy_primitives::{Address, B256};
use serde_json::{Value, json};

use super::lie;
use crate::serve::lie::{Lie, Verdict};

/// A lie about one log of an answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLie {
    /// The description of the lie.
    pub lie: Lie,
    /// Changes an answer that contains the log into a false answer. All logs must be objects.
    pub tell: fn(logs: &mut Vec<Value>, log: &Value),
}

const fn told(
    id: &'static str,
    title: &'static str,
    by: &'static str,
    tell: fn(&mut Vec<Value>, &Value),
) -> LogLie {
    let source = "Yellow Paper 4.3.1 (receipts root), execution-apis eth_getLogs";
    LogLie { lie: lie(id, title, (Verdict::MustDetect, by), source), tell }
}

/// The evidence against a log that is missing or false: the header must be trusted.
const RECEIPTS: &str = "the receipts of the block, under the receipts root of a trusted header";
/// The evidence against a log of another place.
const PLACE: &str = "the trusted header of the log's block, and the receipts under its root";
/// The evidence in the answer itself.
const ANSWER: &str = "the answer itself";

/// The lies about logs. A node tells them about the log in the middle of each answer.
pub static LOG_LIES: [LogLie; 17] = [
    told("eth-log-omitted", "A log is left out", RECEIPTS, |logs, log| {
        logs.retain(|other| other != log);
    }),
    told("eth-logs-of-block-omitted", "All logs of a block are left out", RECEIPTS, |logs, log| {
        logs.retain(|other| other["blockHash"] != log["blockHash"]);
    }),
    told("eth-logs-empty", "The answer is empty", RECEIPTS, |logs, _| logs.clear()),
    told("eth-log-data-replaced", "A log has other data", RECEIPTS, |logs, log| {
        alter(logs, log, "data", json!("0x00ff"));
    }),
    told("eth-log-data-digit", "A digit of a log's data is changed", RECEIPTS, |logs, log| {
        let mut data = log["data"].as_str().unwrap_or("0x").to_owned();
        match data.pop() {
            Some('0') => data.push('1'),
            Some('x') | None => data = "0x00".into(),
            Some(_) => data.push('0'),
        }
        alter(logs, log, "data", json!(data));
    }),
    told("eth-log-address-replaced", "A log has another address", RECEIPTS, |logs, log| {
        alter(logs, log, "address", json!(Address::repeat_byte(0xff)));
    }),
    told("eth-log-topic-replaced", "The last topic of a log is another", RECEIPTS, |logs, log| {
        let mut topics = log["topics"].as_array().cloned().unwrap_or_default();
        topics.pop();
        topics.push(json!(B256::repeat_byte(0xcc)));
        alter(logs, log, "topics", json!(topics));
    }),
    told(
        "eth-log-topics-removed",
        "A log has no topics; a log without topics has one",
        RECEIPTS,
        |logs, log| {
            let has_none = log["topics"].as_array().is_none_or(Vec::is_empty);
            let other = if has_none { vec![B256::ZERO] } else { Vec::new() };
            alter(logs, log, "topics", json!(other));
        },
    ),
    told("eth-log-index-wrong", "A log has another index", RECEIPTS, |logs, log| {
        alter(logs, log, "logIndex", json!("0x3e8"));
    }),
    told(
        "eth-log-transaction-index-wrong",
        "A log has the index of another transaction",
        RECEIPTS,
        |logs, log| alter(logs, log, "transactionIndex", json!("0x3e8")),
    ),
    told(
        "eth-log-block-number-wrong",
        "A log has the number of another block",
        PLACE,
        |logs, log| alter(logs, log, "blockNumber", json!("0x1")),
    ),
    told("eth-log-block-hash-wrong", "A log has the hash of another block", PLACE, |logs, log| {
        alter(logs, log, "blockHash", json!(B256::repeat_byte(0xdd)));
    }),
    told("eth-log-twice", "A log occurs twice", ANSWER, |logs, log| {
        let at = position(logs, log);
        logs.insert(at, log.clone());
    }),
    told("eth-log-removed", "A log is marked as removed", RECEIPTS, |logs, log| {
        alter(logs, log, "removed", json!(true));
    }),
    told(
        "eth-log-invented",
        "A log is added that no transaction emitted",
        RECEIPTS,
        |logs, log| {
            let mut other = log.clone();
            other["data"] = json!("0xabcdef");
            other["logIndex"] = json!("0x3e8");
            logs.push(other);
        },
    ),
    told("eth-log-repeated", "A log occurs again with another index", RECEIPTS, |logs, log| {
        let mut other = log.clone();
        other["logIndex"] = json!("0x3e8");
        logs.push(other);
    }),
    told("eth-log-data-of-another", "A log has the data of another log", RECEIPTS, |logs, log| {
        let other = logs.iter().find(|other| other["data"] != log["data"]);
        let data = other.map_or(json!("0x01"), |other| other["data"].clone());
        alter(logs, log, "data", data);
    }),
];

fn alter(logs: &mut [Value], log: &Value, field: &str, to: Value) {
    if let Some(found) = logs.iter_mut().find(|other| *other == log) {
        found[field] = to;
    }
}

fn position(logs: &[Value], log: &Value) -> usize {
    logs.iter().position(|other| other == log).unwrap_or(logs.len())
}

impl LogLie {
    /// Tells the lie about the log in the middle of an answer.
    pub(super) fn alter(&self, method: &str, answer: &mut Value) {
        if let ("eth_getLogs", Some(logs)) = (method, answer["result"].as_array_mut())
            // A node behind the proxy may send anything.
            && logs.iter().all(Value::is_object)
            && let Some(log) = logs.get(logs.len() / 2).cloned()
        {
            (self.tell)(logs, &log);
        }
    }
}
