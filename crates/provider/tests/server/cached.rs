//! What is proven once is not fetched again: headers, receipts and bodies of a block, for all methods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use chainsieve_provider::RpcServer;
use serde_json::{Value, json};

use crate::upstream::{Block, Upstream, ask};
use crate::{provider, started};

/// Starts an endpoint over a node of a chain that it makes up, and that does not grow.
fn with_chain() -> (Upstream, RpcServer) {
    let upstream = Upstream::of(Block::chain(1, 400));
    let provider = provider(&[&upstream]).build().expect("nodes").serve();
    let server = started(provider.poll(Duration::from_secs(3600)).without_comparison());
    // The chain of headers is known from now on, and the whole headers of the newest blocks alone.
    let all = json!([{ "fromBlock": "0x0", "toBlock": "latest", "address": "0x5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c" }]);
    assert_eq!(ask(server.address(), "eth_getLogs", &all)["result"], json!([]));
    (upstream, server)
}

/// Asks the same question again and again, one after the other, and returns the answer, which is always the same.
fn ask_often(address: SocketAddr, method: &str, params: &Value) -> Value {
    let first = ask(address, method, params);
    assert!(first["error"].is_null() && !first["result"].is_null(), "{method}: {first}");
    for _ in 1..100 {
        assert_eq!(ask(address, method, params), first);
    }
    first["result"].clone()
}

fn counts(upstream: &Upstream) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in upstream.take_calls() {
        *counts.entry(call).or_default() += 1;
    }
    counts
}

/// Returns the questions about a block that has not been asked for before. `first` is the number of the
/// first block of which nothing but the header is known.
fn questions(upstream: &Upstream, first: usize) -> Vec<(&'static str, Value)> {
    let hash = |at: usize| json!(upstream.blocks()[first + at].hash);
    let number = |at: usize| json!(format!("{:#x}", upstream.blocks()[first + at].number));
    let transaction = |at: usize| json!(upstream.blocks()[first + at].hashes[0]);
    vec![
        ("eth_getBlockByNumber", json!(["latest", false])),
        ("eth_getBlockByNumber", json!([number(0), true])),
        ("eth_getBlockByHash", json!([hash(1), true])),
        ("eth_getTransactionReceipt", json!([transaction(2)])),
        ("eth_getTransactionByHash", json!([transaction(3)])),
        ("eth_getBlockReceipts", json!([number(4)])),
        ("eth_getLogs", json!([{ "blockHash": hash(5) }])),
        ("eth_getHeaderByHash", json!([hash(6)])),
        ("debug_getRawBlock", json!([number(7)])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash(8), "0x0"])),
    ]
}

/// The same question a hundred times costs no more than the first one: each part of the block is fetched
/// at most once.
#[test]
fn a_hundred_questions_cost_one_fetch() {
    let (upstream, server) = with_chain();
    for (method, params) in questions(&upstream, 5) {
        upstream.take_calls();
        ask_often(server.address(), method, &params);
        let counts = counts(&upstream);
        let calls: usize = counts.values().sum();
        // Header, body and receipts, these once by a method that the node does not serve; and where a
        // node says that the transaction is.
        assert!((1..=5).contains(&calls), "{method} {params}: {counts:?}");
        let bodies = counts.get("eth_getBlockByHash").copied().unwrap_or_default();
        assert!(bodies <= 2, "{method} {params}: {counts:?}");
    }
}

/// The same question fifty times at once costs no more than one of them.
#[test]
fn fifty_questions_at_once_cost_one_fetch() {
    let (upstream, server) = with_chain();
    let address = server.address();
    for (method, params) in questions(&upstream, 20) {
        upstream.take_calls();
        let answers: Vec<Value> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                (0..50).map(|_| scope.spawn(|| ask(address, method, &params))).collect();
            asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for answer in &answers {
            assert!(answer["error"].is_null() && !answer["result"].is_null(), "{method}: {answer}");
            assert_eq!(answer, &answers[0]);
        }
        let counts = counts(&upstream);
        let calls: usize = counts.values().sum();
        assert!((1..=5).contains(&calls), "{method} {params}: {counts:?}");
    }
}

/// Different methods about the same block share what is known of it.
#[test]
fn methods_share_a_block() {
    let (upstream, server) = with_chain();
    let block = &upstream.blocks()[40];
    let hash = json!(block.hash);
    upstream.take_calls();
    for (method, params) in [
        ("eth_getBlockByHash", json!([hash, false])),
        ("eth_getBlockByHash", json!([hash, true])),
        ("eth_getHeaderByHash", json!([hash])),
        ("eth_getBlockReceipts", json!([hash])),
        ("eth_getLogs", json!([{ "blockHash": hash }])),
        ("debug_getRawBlock", json!([hash])),
        ("debug_getRawReceipts", json!([hash])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"])),
        ("eth_getBlockTransactionCountByHash", json!([hash])),
        ("eth_getUncleCountByBlockHash", json!([hash])),
    ] {
        let answer = ask(server.address(), method, &params);
        assert!(answer["error"].is_null() && !answer["result"].is_null(), "{method}: {answer}");
    }
    let counts = counts(&upstream);
    let calls: usize = counts.values().sum();
    // The header, the body and the receipts, these by the second method that is tried.
    assert!(calls <= 4, "{counts:?}");
}

/// Where a transaction is remembered to be is of no use after its block has left the chain.
#[test]
fn a_transaction_leaves_with_its_block() {
    let old = Block::chain(1, 10);
    let mut new = old[..8].to_vec();
    Block::extend(&mut new, 2, 4);
    let (upstream, other) = (Upstream::of(old), Upstream::of(new));
    let provider = provider(&[&upstream]).build().expect("nodes").serve();
    let server = started(provider.poll(Duration::from_millis(10)).without_comparison());
    let of = |from: &Upstream| json!([from.blocks()[9].hashes[0]]);
    let asked = |params: &Value| ask(server.address(), "eth_getTransactionReceipt", params);
    let before = asked(&of(&upstream));
    assert_eq!(before["result"]["blockHash"], json!(upstream.blocks()[9].hash), "{before}");
    upstream.answer_like(&other);
    crate::until("the other branch", || {
        ask(server.address(), "eth_blockNumber", &json!([]))["result"] == "0xb"
    });
    assert_eq!(asked(&of(&upstream))["result"], Value::Null);
    let now = asked(&of(&other));
    assert_eq!(now["result"]["blockHash"], json!(other.blocks()[9].hash), "{now}");
}
