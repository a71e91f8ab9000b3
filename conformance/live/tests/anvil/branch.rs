//! A provider that invents a whole branch: the headers have valid hashes and links, one of them
//! hides the logs of its block, and all answers are consistent with these headers. Only a trusted
//! block hash reveals the lie.

use std::collections::BTreeMap;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{HeaderBuf, HeaderError};
use chainsieve_conformance::serve::json_rpc::{Fate, Proxy};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::audit::{audit, shapes};
use super::{Anvil, number};
use crate::ethereum::Query;
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;
use testkit::eth::http_rpc::HttpRpc;

pub(super) fn tests() -> Vec<Trial> {
    vec![live("anvil_branch_that_is_made_up_fails_at_the_anchor", &[Need::Anvil], made_up)]
}

/// The receipts root of an empty block: keccak-256 of the RLP of the empty string.
const NO_RECEIPTS: &str = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";

/// Returns forged headers from block `from` on; the header of `from` hides its logs.
fn forged(node: &Anvil, from: u64) -> BTreeMap<u64, Value> {
    let mut headers = BTreeMap::new();
    let mut parent = None;
    for number in from..=node.height() {
        let mut header = node.block(number);
        if let Some(parent) = parent {
            header["parentHash"] = json!(parent);
        } else {
            header["logsBloom"] = json!(format!("0x{}", "0".repeat(512)));
            header["receiptsRoot"] = json!(NO_RECEIPTS);
        }
        let computed = match HeaderBuf::from_json(&header.to_string()) {
            Err(HeaderError::HashMismatch { computed, .. }) => computed,
            other => panic!("{other:?}"),
        };
        header["hash"] = json!(computed);
        parent = Some(computed);
        headers.insert(number, header);
    }
    headers
}

/// Starts a proxy that answers as if the forged headers were the chain.
fn forger(node: &Anvil, from: u64) -> Proxy {
    let headers = forged(node, from);
    let hashes: BTreeMap<B256, u64> = headers
        .iter()
        .map(|(number, header)| {
            (serde_json::from_value(header["hash"].clone()).expect("a hash"), *number)
        })
        .collect();
    let direct: HttpRpc = node.rpc().clone();
    rpc_proxy(node.rpc(), move |method, params, answer| {
        // The number of the forged block whose hash is requested; the node does not know that hash.
        let asked = &params[0];
        let hash = if asked["blockHash"].is_string() { &asked["blockHash"] } else { asked };
        let hash: Option<B256> = serde_json::from_value(hash.clone()).ok();
        let by_hash = hash.and_then(|hash| hashes.get(&hash)).copied();
        let range = by_hash.map(|number| format!("{number:#x}"));
        match (method, &range) {
            ("eth_getBlockByHash", Some(_)) => {
                answer["result"] = by_hash.map_or(Value::Null, |number| headers[&number].clone());
            }
            ("eth_getLogs", Some(number)) => {
                let filter = json!([{ "fromBlock": number, "toBlock": number }]);
                answer["result"] = direct.call(method, &filter);
            }
            ("eth_getBlockReceipts", Some(number)) => {
                answer["result"] = direct.call(method, &json!([number]));
            }
            _ => {}
        }
        if range.is_some() {
            answer.as_object_mut().expect("an answer").remove("error");
        }
        match &mut answer["result"] {
            Value::Array(entries) => {
                let of = |entry: &Value| number(&entry["blockNumber"]);
                entries.retain(|entry| of(entry) != from);
                for entry in entries.iter_mut().filter(|entry| of(entry) > from) {
                    entry["blockHash"] = headers[&of(entry)]["hash"].clone();
                }
            }
            header if header["logsBloom"].is_string() && header["parentHash"].is_string() => {
                if let Some(other) = headers.get(&number(&header["number"])) {
                    *header = other.clone();
                }
            }
            _ => {}
        }
        Fate::Answered
    })
}

fn made_up(scene: &Scene) {
    let (node, _) = shapes(scene, 13);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let query = Query::everything();
    let truth = node.logs(&query.filter(0, head));
    let last = number(&truth[truth.len() - 1]["blockNumber"]);
    for from in [number(&truth[0]["blockNumber"]), last] {
        let proxy = forger(&node, from);
        let url = proxy.url();
        // The forged branch is consistent in itself. The report names the provider that claims the
        // branch.
        let ended = audit(scene, &[&url], &query, head, &[]);
        let story = || format!("from {from}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, 0, "{}", story());
        let report = ended.json();
        assert_eq!(report["anchor_from"], "provider", "{}", story());
        assert_eq!(report["anchored_to"], Value::Null, "{}", story());
        assert!(report["logs"].as_u64().expect("a count") < truth.len() as u64, "{}", story());

        let ended = audit(scene, &[&url], &query, head, &["--anchor", &anchor]);
        assert!(ended.code == 5 || ended.code == 4, "{}{}", ended.stdout, ended.stderr);
        assert!(!ended.stdout.contains("complete"), "{}", ended.stdout);

        // If the other of two providers is honest, the forged branch is not accepted.
        let ended = audit(scene, &[node.rpc().url(), &url], &query, head, &["--anchor", &anchor]);
        assert_ne!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
        let ended = audit(scene, &[node.rpc().url(), &url], &query, head, &[]);
        let agreed = ended.stdout.contains("\"anchor_agreed\": true");
        assert!(ended.code != 0 && !agreed, "{}{}", ended.stdout, ended.stderr);
    }
}
