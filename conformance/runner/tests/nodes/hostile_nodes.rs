//! Nodes that answer nonsense. The audits end with an error or a report, and blame the right part.

use std::time::Duration;

use chainsieve_conformance::audit::bitcoin::audit_rpc;
use chainsieve_conformance::audit::ethereum::audit_node;
use chainsieve_conformance::audit::{AuditError, AuditReport};
use chainsieve_conformance::serve::ethereum::{FIRST, LAST, LyingNode};
use chainsieve_conformance::serve::json_rpc::{Fate, Proxy, Source};
use chainsieve_provider::{Provider, RpcError};
use serde_json::Value;

/// Returns the proxy of an honest node, with HTTP responses that `respond` may replace by others.
fn node(
    respond: impl Fn(&str, &Value) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (LyingNode, Proxy) {
    let honest = LyingNode::builder().start().expect("started");
    let source = Source::node(honest.url());
    let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, move |method, _, answer| {
        respond(method, &answer["id"]).map_or(Fate::Answered, Fate::Bytes)
    });
    (honest, node.expect("started"))
}

fn audit(node: &Proxy) -> Result<AuditReport, AuditError> {
    let provider = Provider::builder()
        .url(&node.url())
        .trust_head()
        .retries(0)
        .timeout(Duration::from_secs(60));
    audit_node(&provider.build().expect("a URL").nodes()[0], FIRST..=LAST, |_| {})
}

fn http(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const METHODS: [(&str, &str); 5] = [
    ("eth_chainId", "eth_chainId"),
    ("eth_getBlockByNumber", "block 17686111 by number"),
    ("eth_getBlockByHash", "block 17686111 by hash"),
    ("eth_getBlockReceipts", "eth_getBlockReceipts by hash"),
    ("eth_getLogs", "eth_getLogs"),
];

#[test]
fn an_answer_that_is_not_json_rpc_breaks_no_rule() {
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "<html>busy</html>",
        "null",
        "7",
        "[]",
        "{}",
        r#"{"jsonrpc":"2.0","id":99999999,"result":"0x1"}"#,
        r#"{"jsonrpc":"2.0","id":1e400,"result":"0x1"}"#,
        r#"{"jsonrpc":"2.0","id":null}"#,
        "\u{feff}{}",
        &deep,
    ] {
        for (method, what) in METHODS {
            let response = http(body.as_bytes());
            let (_honest, node) = node(move |it, _| (it == method).then(|| response.clone()));
            let error = audit(&node).expect_err(body);
            let AuditError::NotJsonRpc { what: found, .. } = &error else {
                panic!("{method}: {body}: {error:?}")
            };
            assert_eq!(found, what, "{body}");
            assert!(error.to_string().contains("the node's answer is not JSON-RPC"), "{error}");
        }
    }
}

/// The form of JSON-RPC is right, and the results are nonsense.
#[test]
fn results_of_any_form_end_in_a_report_or_an_error() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let member = format!(r#"{{"hash":{deep}}}"#);
    let unknown = format!(r#"{{"x":{deep},"transactions":{deep}}}"#);
    let many = format!("[{}{{}}]", "{},".repeat(100_000));
    let names = (0..10_000).map(|name| format!("\"m{name}\":1")).collect::<Vec<_>>().join(",");
    let names = format!(r#"{{"hash":"0x{}",{names}}}"#, "ab".repeat(32));
    for result in [
        "7",
        "1e999999",
        "-1",
        r#""""#,
        r#""0x""#,
        r#""0xffffffffffffffffffffffffffffffffff""#,
        "true",
        "{}",
        "[]",
        "[[]]",
        r#"[{"logs":[]}]"#,
        r#"[{"logs":[],"cumulativeGasUsed":"0x1","transactionIndex":"0xffffffffffffffff"}]"#,
        &deep,
        &member,
        &unknown,
        &many,
        &names,
    ] {
        for (method, _) in METHODS {
            let text = result.to_owned();
            let (_honest, node) = node(move |it, id| {
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{text}}}"#);
                (it == method).then(|| http(body.as_bytes()))
            });
            match audit(&node) {
                Ok(report) => {
                    let is_honest = method == "eth_chainId" || report.differences.is_empty();
                    assert!(is_honest || !report.agrees(), "{method}: {report:?}");
                    for difference in &report.differences {
                        let longest = difference.got.len().max(difference.expected.len());
                        assert!(longest < 1 << 20, "{method}");
                    }
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// A longer answer than any honest one is not read to its end, and is held against nobody.
#[test]
fn an_answer_without_end_is_too_long() {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
    response.resize((64 << 20) + 1_000, b' ');
    let (_honest, node) =
        node(move |it, _| (it == "eth_getBlockByNumber").then(|| response.clone()));
    let error = audit(&node).expect_err("too long");
    let is_too_large =
        matches!(error, AuditError::Rpc { error: RpcError::TooLarge { limit: 67_108_864 }, .. });
    assert!(is_too_large, "{error:?}");
}

/// The key in a node's URL is not shown, even if the node repeats it in its answers.
#[test]
fn no_secret_is_shown() {
    const KEY: &str = "S3CRET-key-of-the-url-0123";
    for (method, _) in METHODS {
        for result in [
            format!("\"{KEY}\""),
            format!("[{{\"{KEY}\":\"{KEY}\",\"topics\":[\"{KEY}\"]}}]"),
            format!(r#"{{"{KEY}":1,"hash":"0x{}"}}"#, "ab".repeat(32)),
        ] {
            let (_honest, node) = node(move |it, id| {
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
                (it == method).then(|| http(body.as_bytes()))
            });
            let url = format!("{}/{KEY}", node.url());
            let provider =
                Provider::builder().url(&url).retries(0).trust_head().build().expect("a URL");
            let shown = match audit_node(&provider.nodes()[0], FIRST..=LAST, |_| {}) {
                Ok(report) => serde_json::to_string(&report).expect("JSON"),
                Err(error) => error.to_string(),
            };
            assert!(!shown.contains("S3CRET"), "{method}: {shown}");
        }
    }
}

#[test]
fn a_bitcoin_node_may_answer_anything() {
    let deep = "[".repeat(100_000);
    for result in ["7", "{}", "[]", "null", r#""""#, r#"{"chain":"regtest","blocks":1e400}"#, &deep]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let response = http(body.as_bytes());
        let source = Source::function(|_, _| Ok(Value::Null));
        let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, move |_, _, _| {
            Fate::Bytes(response.clone())
        });
        let node = node.expect("started");
        let provider =
            Provider::builder().url(&node.url()).retries(0).trust_head().build().expect("a URL");
        let error = audit_rpc(&provider.nodes()[0], 0..=1, |_| {}).expect_err("no node");
        let is_malformed = matches!(error, AuditError::Rpc { error: RpcError::Malformed(_), .. });
        assert!(is_malformed, "{result}: {error:?}");
    }
}
