//! `eth audit --rpc` against an anvil whose headers and receipts a proxy alters. Evidence with a
//! wrong hash is refused: it neither confirms an answer nor contradicts it.

use chainsieve_conformance::serve::ethereum::lies::RECEIPT_LIES;
use chainsieve_conformance::serve::json_rpc::Fate;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::audit::{audit, shapes};
use super::number;
use crate::ethereum::Query;
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Anvil];
    vec![
        live("anvil_false_receipts_are_refused", needs, receipts),
        live("anvil_receipts_come_one_by_one_where_they_must", needs, one_by_one),
        live("anvil_false_headers_are_refused", needs, headers),
    ]
}

/// The lie that needs two receipts.
const OF_OTHERS: &str = "eth-receipts-swapped";

fn receipts(scene: &Scene) {
    let (node, _) = shapes(scene, 10);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let query = Query::everything();
    let truth = node.logs(&query.filter(0, head));
    // Blocks with logs: the first, one with several transactions, and the last.
    let number_of = |log: &Value| number(&log["blockNumber"]);
    let crowded = truth.iter().find(|log| log["transactionIndex"] == "0x1").expect("one");
    for block in [&truth[0], crowded, &truth[truth.len() - 1]].map(number_of) {
        for lie in &RECEIPT_LIES {
            let name = lie.lie.id;
            let alone = node.rpc().call("eth_getBlockReceipts", &json!([format!("{block:#x}")]));
            if name == OF_OTHERS && alone.as_array().map(Vec::len) == Some(1) {
                continue;
            }
            let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
                let number = json!(format!("{block:#x}"));
                if let (true, Some(receipts)) =
                    (method == "eth_getBlockReceipts", answer["result"].as_array_mut())
                    && receipts[0]["blockNumber"] == number
                {
                    (lie.tell)(receipts);
                }
                // Single receipts of the block are withheld. Otherwise, the command would fetch the
                // true receipts one by one.
                if method == "eth_getTransactionReceipt"
                    && answer["result"]["blockNumber"] == number
                {
                    answer["result"] = Value::Null;
                }
                Fate::Answered
            });
            let ended = audit(scene, &[&proxy.url()], &query, head, &["--anchor", &anchor]);
            let story = || format!("{name} of block {block}: {}{}", ended.stdout, ended.stderr);
            assert!(proxy.calls()["eth_getBlockReceipts"] > 0);
            if ended.code == 5 {
                assert_eq!(ended.stdout, "", "{}", story());
                continue;
            }
            assert_eq!(ended.code, 4, "{}", story());
            let report = ended.json();
            assert_eq!(report["status"], "undecided", "{}", story());
            assert_eq!(report["findings"], json!([]), "{}", story());
            let undecided = report["undecided"].as_array().expect("blocks");
            assert_eq!(undecided.len(), 1, "{}", story());
            assert_eq!(undecided[0]["number"], block, "{}", story());
        }
    }
}

/// A node without `eth_getBlockReceipts` is asked for the receipt of each transaction.
fn one_by_one(scene: &Scene) {
    let (node, _) = shapes(scene, 11);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let query = Query::everything();
    let without = |method: &str, answer: &mut Value| {
        if method == "eth_getBlockReceipts" {
            let id = answer["id"].clone();
            let error = json!({ "code": -32601, "message": "the method does not exist" });
            *answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
        }
    };
    let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
        without(method, answer);
        Fate::Answered
    });
    let ended = audit(scene, &[&proxy.url()], &query, head, &["--anchor", &anchor]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    assert!(proxy.calls()["eth_getTransactionReceipt"] > 0);

    // One of the receipts is altered.
    let target = node.logs(&query.filter(0, head)).pop().expect("a log")["transactionHash"].clone();
    let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
        without(method, answer);
        if method == "eth_getTransactionReceipt" && answer["result"]["transactionHash"] == target {
            answer["result"]["logs"] = json!([]);
        }
        Fate::Answered
    });
    let ended = audit(scene, &[&proxy.url()], &query, head, &["--anchor", &anchor]);
    assert_eq!(ended.code, 4, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.json()["findings"], json!([]));
}

/// Every field that a header's hash commits to, by its name in JSON-RPC.
const HASHED: [&str; 20] = [
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
];

fn headers(scene: &Scene) {
    let (node, _) = shapes(scene, 12);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let query = Query::everything();
    for (at, field) in HASHED.into_iter().chain(["requestsHash", "hash"]).enumerate() {
        assert!(node.block(head).get(field).is_some(), "anvil's headers have no {field}");
        // The fields are changed in five blocks in turn: the first two, one in the middle, and the
        // last two.
        let block = [0, 1, head / 2, head - 1, head][at % 5];
        let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
            let header = &mut answer["result"];
            if method.starts_with("eth_getBlockBy") && header["number"] == format!("{block:#x}") {
                let text = header[field].as_str().expect("hex").to_owned();
                let last = if text.ends_with('1') { "2" } else { "1" };
                let other = match text.len() {
                    ..=2 => String::from("0x01"),
                    length => [&text[..length - 1], last].concat(),
                };
                header[field] = json!(other);
            }
            Fate::Answered
        });
        let url = proxy.url();
        let anchored = ["--anchor", &anchor];
        for more in [&anchored[..], &[]] {
            let ended = audit(scene, &[&url], &query, head, more);
            let story = || format!("{field} of block {block}: {}{}", ended.stdout, ended.stderr);
            assert!(ended.code == 5 || ended.code == 4, "{}", story());
            if ended.code == 5 {
                assert_eq!(ended.stdout, "", "{}", story());
                assert!(ended.stderr.contains("error: "), "{}", story());
            } else {
                let report = ended.json();
                assert_eq!(report["status"], "undecided", "{}", story());
                assert_eq!(report["findings"], json!([]), "{}", story());
            }
        }
    }
}
