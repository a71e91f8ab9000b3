//! The key in the URL of a node does not reach clients, whatever the node says.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, Upstream, get, post};
use crate::{forgetful, provider, started, until};

const KEY: &str = "k3yS3cr3tk3yS3cr3t42";

#[test]
fn the_key_of_a_node_reaches_no_client() {
    let upstream = Upstream::of(Block::chain(1, 10));
    let url = format!("{}/v2/{KEY}", upstream.url());
    let builder = provider(&[]).url(&url).build().expect("a node").serve();
    let builder = builder.pass_unverified().limits(forgetful()).poll(Duration::from_millis(20));
    let server = started(builder);
    let said = format!("project {KEY} is over its limit, see {url}");
    let error = json!({ "code": -32000, "message": said, "data": { "see": [url], KEY: 1 } });
    let honest_cost = 12_345_678_901_u64;
    upstream.lie(move |method, _, _| match method {
        // Results that are passed on repeat it, too.
        "eth_gasPrice" => Some(Sent::Result(json!({ "node": said, "cost": honest_cost }))),
        _ => Some(Sent::ErrorObject(error.clone())),
    });
    let block = &upstream.blocks()[3];
    let by_hash = json!([block.hashes[0]]);
    let calls = [
        ("eth_gasPrice", json!([])),
        ("eth_getBalance", json!([])),
        ("eth_getLogs", json!([{ "fromBlock": "0x0" }])),
        ("eth_getLogs", json!([{ "blockHash": block.hash }])),
        ("eth_getBlockByNumber", json!(["0x3", true])),
        ("eth_getBlockByHash", json!([block.hash, true])),
        ("eth_getBlockReceipts", json!(["0x3"])),
        ("eth_getTransactionReceipt", by_hash.clone()),
        ("eth_getTransactionByHash", by_hash.clone()),
        ("debug_getRawTransaction", by_hash),
        ("eth_getBlockTransactionCountByNumber", json!(["0x3"])),
    ];
    let mut with_words = 0;
    for (method, params) in calls {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        for call in [call.clone(), json!([call])] {
            let (headers, answer) = post(server.address(), &call.to_string());
            let text = format!("{headers:?} {answer}");
            assert!(!text.contains(KEY), "{method}: {text}");
            with_words += u32::from(text.contains("is over its limit"));
        }
    }
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_gasPrice", "params": [] });
    let result: Value = post(server.address(), &call.to_string()).1["result"].clone();
    assert_eq!(result["cost"], 12_345_678_901_u64, "data stay as they are");
    // A text where an object belongs.
    let text = json!(format!("unauthorized: {url}"));
    upstream.lie(move |_, _, _| Some(Sent::Result(text.clone())));
    for method in
        ["eth_getTransactionByHash", "eth_getTransactionReceipt", "debug_getRawTransaction"]
    {
        let params = json!([block.hashes[0]]);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = post(server.address(), &call.to_string()).1;
        assert!(answer["error"].is_object() && !answer.to_string().contains(KEY), "{answer}");
    }
    until("a failure", || {
        let health = get(server.address(), "/health").1;
        assert!(!health.contains(KEY), "{health}");
        health.contains("is over its limit") || health.contains("unauthorized")
    });
    // What is not secret is still said.
    assert!(with_words > 10, "{with_words}");
}
