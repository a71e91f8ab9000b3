//! `eth audit --rpc` against an anvil whose answers to `eth_getLogs` a proxy alters. Each lie is
//! found and proven, whichever log it concerns.

use std::collections::BTreeSet;

use chainsieve::alloy_primitives::B256;
use chainsieve_conformance::serve::ethereum::lies::{LOG_LIES, LogLie};
use chainsieve_conformance::serve::json_rpc::{Fate, Proxy};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::audit::{audit, shapes, verify};
use super::{Anvil, number};
use crate::ethereum::{Query, is_in_receipt, receipt_of_proof};
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Anvil];
    vec![
        live("anvil_lies_about_logs_are_proven", needs, about_logs),
        live("anvil_lies_about_the_question_are_proven", needs, about_the_question),
    ]
}

/// Returns the kinds of the findings that an audit of a lie must report.
fn findings(lie: &LogLie) -> &'static [&'static str] {
    match lie.lie.id {
        "eth-log-omitted" | "eth-logs-of-block-omitted" | "eth-logs-empty" => &["omitted_log"],
        "eth-log-index-wrong"
        | "eth-log-transaction-index-wrong"
        | "eth-log-block-number-wrong" => &["wrong_field"],
        "eth-log-block-hash-wrong" => &["omitted_log", "other_fork"],
        "eth-log-twice" => &["duplicate"],
        "eth-log-removed" => &["omitted_log", "removed"],
        "eth-log-invented" | TWIN => &["forged_log"],
        _ => &["forged_log", "omitted_log"],
    }
}

/// The lie that repeats a log under another index.
const TWIN: &str = "eth-log-repeated";

/// Starts a proxy that applies a lie to every answer that contains `log`.
fn liar(node: &Anvil, lie: &'static LogLie, log: Value) -> Proxy {
    rpc_proxy(node.rpc(), move |method, _, answer| {
        if let (true, Some(logs)) = (method == "eth_getLogs", answer["result"].as_array_mut())
            && logs.contains(&log)
        {
            (lie.tell)(logs, &log);
        }
        Fate::Answered
    })
}

/// Returns logs at different positions in an answer and in their blocks.
pub(crate) fn targets(logs: &[Value]) -> Vec<Value> {
    let crowd =
        logs.iter().max_by_key(|log| number(&log["logIndex"])).expect("logs")["blockHash"].clone();
    let crowd: Vec<_> = logs.iter().filter(|log| log["blockHash"] == crowd).collect();
    let bare = logs.iter().find(|log| log["topics"] == json!([]));
    [logs.first(), Some(crowd[crowd.len() / 2]), bare, logs.last()]
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}

/// Returns the kinds of an audit's findings, after checking each finding.
fn kinds(node: &Anvil, lie: &str, report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().expect("findings");
    for finding in findings {
        if let Some(nodes) = finding["receipt_proof"]["nodes"].as_array() {
            // Verify the proof independently, against the receipts root of the node's header.
            let block = finding["block"].as_u64().expect("a block");
            let header = node.block(block);
            let root: B256 =
                serde_json::from_value(header["receiptsRoot"].clone()).expect("a root");
            let index = finding["receipt_proof"]["transactionIndex"].clone();
            let index = index.as_u64().unwrap_or_else(|| number(&index));
            let nodes: Vec<_> =
                nodes.iter().map(|node| serde_json::from_value(node.clone())).collect();
            let nodes: Vec<_> = nodes.into_iter().map(|node| node.expect("hex")).collect();
            let receipt = receipt_of_proof(root, index, &nodes);
            let held = is_in_receipt(&finding["log"], &receipt);
            assert_eq!(held, finding["kind"] == "omitted_log" || lie == TWIN, "{finding}");
        } else {
            assert_ne!(finding["kind"], "omitted_log", "{finding}");
        }
    }
    findings.iter().map(|finding| finding["kind"].as_str().expect("a kind").to_owned()).collect()
}

fn about_logs(scene: &Scene) {
    let (node, _) = shapes(scene, 8);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let query = Query::everything();
    let truth = node.logs(&query.filter(0, head));
    let certificate = scene.path("certificate");
    let certificate = certificate.to_str().expect("text");
    for lie in &LOG_LIES {
        let name = lie.lie.id;
        for log in targets(&truth) {
            let proxy = liar(&node, lie, log.clone());
            let url = proxy.url();
            let more = ["--anchor", &anchor, "--certificate", certificate, "--embed"];
            let ended = audit(scene, &[&url], &query, head, &more);
            let story = || format!("{name}, {log}: {}{}", ended.stdout, ended.stderr);
            assert_eq!(ended.code, 3, "{}", story());
            let report = ended.json();
            assert_eq!(report["status"], "wrong", "{}", story());
            let expected = findings(lie).iter().map(|kind| (*kind).to_owned()).collect();
            assert_eq!(kinds(&node, name, &report), expected, "{}", story());
            let proven = report["findings"].as_array().expect("findings");
            assert!(proven.iter().any(|finding| finding["proof"] == true), "{}", story());
            // A certificate of a wrong answer must not verify.
            if std::path::Path::new(certificate).exists() {
                let verified = verify(scene, certificate, &query, head, &anchor);
                assert_ne!(verified.code, 0, "{}", story());
            }
        }
    }
}

/// Tests false answers with genuine logs that were not queried, and with invented logs of blocks
/// that have no logs.
fn about_the_question(scene: &Scene) {
    let (node, chain) = shapes(scene, 9);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let truth = node.logs(&Query::everything().filter(0, head));
    let with_logs: BTreeSet<u64> = truth.iter().map(|log| number(&log["blockNumber"])).collect();
    let empty = (1..head).find(|number| !with_logs.contains(number)).expect("one without logs");
    let mut nowhere = truth[0].clone();
    nowhere["blockNumber"] = json!(format!("{empty:#x}"));
    nowhere["blockHash"] = json!(node.hash_at(empty));
    nowhere["blockTimestamp"] = node.block(empty)["timestamp"].clone();
    let last = truth.last().expect("logs").clone();
    let before_last = number(&last["blockNumber"]) - 1;
    for (query_number, query) in Query::all(&chain).into_iter().enumerate() {
        let wanted = node.logs(&query.filter(0, head));
        let unwanted = truth.iter().find(|log| !wanted.contains(log)).expect("not all").clone();
        let cases = [
            ("not asked for", unwanted, head, vec!["not_matching"]),
            ("behind the range", last.clone(), before_last, vec!["out_of_range"]),
            ("of a block that has none", nowhere.clone(), head, vec!["forged_log"]),
        ];
        for (name, log, to, mut expected) in cases {
            if name != "not asked for" {
                // For some queries, the log has this fault too: it does not match the query.
                expected.push("not_matching");
            }
            // Add the log to the first answer only, so that it occurs once.
            let told = std::sync::atomic::AtomicBool::new(false);
            let added = log.clone();
            let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
                if let (true, Some(logs)) =
                    (method == "eth_getLogs", answer["result"].as_array_mut())
                    && !told.swap(true, std::sync::atomic::Ordering::Relaxed)
                {
                    logs.push(added.clone());
                }
                Fate::Answered
            });
            let ended = audit(scene, &[&proxy.url()], &query, to, &["--anchor", &anchor]);
            let story =
                || format!("{query_number} {name}, {log}: {}{}", ended.stdout, ended.stderr);
            assert_eq!(ended.code, 3, "{}", story());
            let found = kinds(&node, name, &ended.json());
            assert!(
                !found.is_empty() && found.iter().all(|kind| expected.contains(&kind.as_str())),
                "{}",
                story()
            );
        }
    }
}
