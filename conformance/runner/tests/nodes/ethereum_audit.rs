//! Audits of Ethereum nodes: honest ones, and those that lie.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chainsieve_conformance::audit::ethereum::audit_node;
use chainsieve_conformance::audit::{AuditError, AuditReport};
use chainsieve_conformance::serve::ethereum::{FIRST, LAST, LyingNode};
use chainsieve_conformance::serve::json_rpc::{Fate, Fault, Proxy, Source};
use chainsieve_conformance::serve::{self, Protocol};
use chainsieve_provider::{Provider, RpcError};
use serde_json::{Value, json};

fn audit_url(url: &str, timeout: Duration) -> Result<AuditReport, AuditError> {
    let provider = Provider::builder()
        .url(url)
        .trust_head()
        .retries(0)
        .timeout(timeout)
        .build()
        .expect("a URL");
    audit_node(&provider.nodes()[0], FIRST..=LAST, |_| {})
}

fn audit(lie: Option<&str>) -> Result<AuditReport, AuditError> {
    let mut builder = LyingNode::builder();
    if let Some(lie) = lie {
        builder = builder.lie(lie).expect("a lie of JSON-RPC");
    }
    let node = builder.start().expect("started");
    let timeout = Duration::from_secs(if lie == Some("eth-slow") { 1 } else { 60 });
    let report = audit_url(&node.url(), timeout);
    assert_eq!(node.told() > 0, lie.is_some(), "{lie:?}");
    report
}

#[test]
fn an_honest_node_agrees() {
    let report = audit(None).unwrap();
    assert!(report.agrees(), "{report:?}");
    assert_eq!((report.blocks, report.undecided), (2, 0));
    assert_eq!(report.notes, ["queries that end in \"any\": geth's rules"]);
    assert!(report.checks["logs.node"] > 60, "{report:?}");
}

#[test]
fn each_lie_breaks_its_rule() {
    for lie in serve::lies().filter(|lie| lie.protocol == Protocol::EthereumJsonRpc) {
        let rule = match lie.id {
            "eth-header-bloom" | "eth-header-receipts-root" => "header.json",
            id if id.starts_with("eth-header") => "header.chain",
            id if id.starts_with("eth-receipt") => "receipts.root",
            id if id.starts_with("eth-log") => "logs.node",
            _ => {
                let error = audit(Some(lie.id)).unwrap_err();
                assert!(matches!(error, AuditError::Rpc { .. }), "{}: {error:?}", lie.id);
                continue;
            }
        };
        let report = audit(Some(lie.id)).unwrap();
        let first = report.differences.first();
        let first = first.unwrap_or_else(|| panic!("{}: {report:?}", lie.id));
        assert_eq!(first.rule, rule, "{}: {report:?}", lie.id);
        assert!(report.differences.iter().all(|it| it.rule == rule), "{}: {report:?}", lie.id);
    }
}

#[test]
fn the_smallest_query_names_one_block_and_few_conditions() {
    let report = audit(Some("eth-log-omitted")).unwrap();
    for difference in &report.differences {
        let query = difference.query.as_ref().expect("a query").as_object().expect("an object");
        assert!(query.contains_key("blockHash") || query["fromBlock"] == query["toBlock"]);
        assert!(!query.contains_key("address") && !query.contains_key("topics"), "{query:?}");
        assert_eq!(difference.what, "a log is missing");
    }
}

/// Audits a node that answers honestly, unless `answer` gives another answer.
pub(super) fn audit_with(
    answer: impl Fn(&str, &Value, &str) -> Option<Result<Value, Fault>> + Send + Sync + 'static,
) -> Result<AuditReport, AuditError> {
    let honest = LyingNode::builder().start().expect("started");
    let url = honest.url();
    let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), Source::node(url.clone()), {
        move |method, params, reply: &mut Value| {
            if let Some(result) = answer(method, params, &url) {
                let id = reply["id"].clone();
                *reply = match result {
                    Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                    Err(Fault { code, message, .. }) => json!({
                        "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message },
                    }),
                };
            }
            Fate::Answered
        }
    });
    audit_url(&proxy.expect("started").url(), Duration::from_secs(60))
}

/// Nodes built on alloy ignore "any" at the end of the topics.
fn without_any_at_the_end(params: &Value) -> Value {
    let mut filter = params[0].clone();
    if let Some(topics) = filter["topics"].as_array_mut() {
        let is_any = |topic: &Value| {
            let list = topic.as_array();
            topic.is_null() || list.is_some_and(|all| all.is_empty() || all.contains(&Value::Null))
        };
        while topics.last().is_some_and(is_any) {
            topics.pop();
        }
    }
    filter
}

fn logs(url: &str, filter: &Value) -> Value {
    let provider = Provider::trusting_head(url).expect("a URL");
    provider.nodes()[0].call("eth_getLogs", &json!([filter])).expect("logs")
}

#[test]
fn alloys_rules_are_as_good_as_geths_but_not_both() {
    let report = audit_with(|method, params, url| {
        (method == "eth_getLogs").then(|| Ok(logs(url, &without_any_at_the_end(params))))
    });
    let report = report.unwrap();
    assert!(report.agrees(), "{report:?}");
    assert_eq!(report.notes, ["queries that end in \"any\": alloy's rules"]);

    let report = audit_with(|method, params, url| {
        let is_pair = params[0]["topics"].as_array().is_some_and(|topics| topics.len() == 2);
        let is_changed = method == "eth_getLogs" && is_pair;
        is_changed.then(|| Ok(logs(url, &without_any_at_the_end(params))))
    });
    let report = report.unwrap();
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    assert_eq!(difference.rule, "logs.node");
    assert!(difference.query.is_some());
}

/// Hardhat answers `[[]]` with no logs.
#[test]
fn an_empty_list_is_any() {
    let report = audit_with(|method, params, _| {
        let is_empty = params[0]["topics"] == json!([[]]);
        (method == "eth_getLogs" && is_empty).then(|| Ok(json!([])))
    });
    let report = report.unwrap();
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    let query = difference.query.as_ref().expect("a query");
    assert_eq!(query["topics"], json!([[]]));
    assert_eq!(query["fromBlock"], query["toBlock"]);
}

#[test]
fn a_limit_of_the_range_is_no_difference() {
    let report = audit_with(|method, params, _| {
        let refused = method == "eth_getLogs" && params[0]["fromBlock"] != params[0]["toBlock"];
        refused.then(|| Err(Fault::new(-32005, "block range is too wide, max is 1 block")))
    });
    assert!(report.unwrap().agrees());
    let by_hash = |code: i64, message: &'static str| {
        let report = audit_with(move |method, params, _| {
            let refused = method == "eth_getLogs" && !params[0]["blockHash"].is_null();
            refused.then(|| Err(Fault::new(code, message)))
        });
        report.unwrap()
    };
    // A node may have no answer.
    let report = by_hash(-32000, "logs of old blocks are not kept");
    assert!(report.differences.is_empty() && report.undecided > 0, "{report:?}");
    // To call a valid query invalid is a difference.
    let report = by_hash(-32602, "blockHash is not allowed");
    assert!(!report.differences.is_empty());
    assert!(report.differences.iter().all(|it| it.what == "no logs, but an error"), "{report:?}");
}

#[test]
fn a_limit_in_unknown_words_is_no_difference() {
    for code in [-32000, -32602] {
        let report = audit_with(move |method, params, _| {
            let refused = method == "eth_getLogs" && params[0]["fromBlock"] != params[0]["toBlock"];
            refused.then(|| Err(Fault::new(code, "block span too large")))
        });
        assert!(report.unwrap().agrees(), "{code}");
    }
}

#[test]
fn a_null_among_alternatives_may_be_refused() {
    let report = audit_with(|method, params, _| {
        let refused = method == "eth_getLogs" && params[0]["topics"] == json!([[null]]);
        refused.then(|| Err(Fault::new(-32602, "a topic is a string")))
    });
    let report = report.unwrap();
    assert!(report.agrees(), "{report:?}");
    assert!(report.notes.iter().any(|note| note.starts_with("null among alternatives: refused")));
}

#[test]
fn a_reorganisation_is_no_difference() {
    let strange = [
        ("eth_getBlockByHash", Value::Null, 17_686_111),
        ("eth_getBlockReceipts", json!([]), 17_686_111),
        ("eth_getLogs", json!([]), 17_686_112),
    ];
    for (strange, answer, block) in strange {
        let asked = AtomicBool::new(false);
        let report = audit_with(move |method, _, _| {
            if method == strange {
                asked.store(true, Ordering::Relaxed);
                return Some(Ok(answer.clone()));
            }
            // The blocks are gone since.
            let is_gone = method == "eth_getBlockByNumber" && asked.load(Ordering::Relaxed);
            is_gone.then_some(Ok(Value::Null))
        });
        let error = report.unwrap_err();
        let is_expected = matches!(error, AuditError::Reorganised(number) if number == block);
        assert!(is_expected, "{strange}: {error:?}");
    }
}

#[test]
fn what_is_proven_outlasts_a_failure() {
    let report = audit_with(|method, params, url| match method {
        "eth_getBlockByNumber" if params[0] == "0x10dde60" => Some(Ok(Value::Null)),
        "eth_getBlockReceipts" => {
            let provider = Provider::trusting_head(url).expect("a URL");
            let mut receipts: Value =
                provider.nodes()[0].call("eth_getBlockReceipts", params).unwrap();
            receipts[3]["blockNumber"] = json!("0x1");
            Some(Ok(receipts))
        }
        _ => None,
    });
    let report = report.unwrap();
    assert_eq!(report.differences[0].rule, "receipts.place", "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("ended early")), "{report:?}");
}

#[test]
fn a_node_without_the_blocks_is_not_audited() {
    let report =
        audit_with(|method, _, _| method.starts_with("eth_getBlockBy").then_some(Ok(Value::Null)));
    let error = report.unwrap_err();
    assert!(
        matches!(&error, AuditError::Rpc { error: RpcError::NotFound { .. }, .. }),
        "{error:?}"
    );
    // Without receipts, nothing is known about logs.
    let report = audit_with(|method, _, _| method.contains("Receipt").then_some(Ok(Value::Null)));
    let report = report.unwrap();
    assert_eq!((report.differences.len(), report.undecided), (0, 2));
    assert!(!report.agrees() && !report.checks.contains_key("logs.node"), "{report:?}");
}
