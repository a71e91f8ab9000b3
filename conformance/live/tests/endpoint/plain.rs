//! Calls of JSON-RPC without a client library, as `curl` and `cast rpc` send them: one by one and in
//! batches. Whole objects are compared with anvil's.

use std::fs;
use std::path::Path;

use chainsieve_conformance::serve::ethereum::LyingNode;
use serde_json::{Value, json};
use testkit::eth::http_rpc::HttpRpc;

use super::truth::{self, Truth, check};
use super::{Endpoint, questions};
use crate::command::Running;
use crate::ethereum::Step;
use crate::harness::Scene;

/// Returns a receipt without `blobGasPrice`, which no block commits to, and without anvil's own
/// member `blockTimestamp`.
fn receipt(receipt: &Value) -> Value {
    let mut receipt = receipt.clone();
    let members = receipt.as_object_mut().expect("an object");
    members.remove("blobGasPrice");
    members.remove("blockTimestamp");
    receipt
}

/// Returns a block without the members that are optional: `totalDifficulty`, and `blockTimestamp` of
/// transactions.
fn full(block: &Value) -> Value {
    let mut block = block.clone();
    block["size"] = truth::size(&block);
    block.as_object_mut().expect("an object").remove("totalDifficulty");
    for transaction in block["transactions"].as_array_mut().expect("transactions") {
        transaction.as_object_mut().expect("an object").remove("blockTimestamp");
    }
    block
}

/// Returns a block with the hashes of its transactions.
fn short(block: &Value) -> Value {
    let mut block = full(block);
    let transactions = block["transactions"].as_array().expect("transactions").iter();
    block["transactions"] = transactions.map(|one| one["hash"].clone()).collect();
    block
}

/// Returns calls, each with its right result.
pub(super) fn all(truth: &Truth, filters: &[Value]) -> Vec<(&'static str, Value, Value)> {
    let head = truth.blocks.last().expect("blocks");
    let hex = |number: u64| format!("{number:#x}");
    let mut calls = vec![
        ("eth_chainId", json!([]), json!("0x7a69")),
        ("net_version", json!([]), json!("31337")),
        ("eth_blockNumber", json!([]), json!(hex(truth.height()))),
        ("eth_getBlockByNumber", json!(["latest", true]), full(&head.json)),
        ("eth_getBlockByNumber", json!(["earliest", false]), short(&truth.blocks[0].json)),
        ("eth_getBlockByNumber", json!([hex(truth.height() + 1), false]), Value::Null),
        ("eth_getBlockByHash", json!([format!("0x{:064x}", 7), false]), Value::Null),
        ("eth_getTransactionReceipt", json!([format!("0x{:064x}", 7)]), Value::Null),
    ];
    for filter in filters {
        let logs = truth.logs(filter).into_iter().cloned().collect();
        calls.push(("eth_getLogs", json!([filter]), logs));
    }
    // The head is the default of both ends, and tags name blocks.
    let of_head: Value = head.logs().cloned().collect();
    calls.push(("eth_getLogs", json!([{}]), of_head.clone()));
    calls.push(("eth_getLogs", json!([{ "fromBlock": "latest", "toBlock": "latest" }]), of_head));
    let everything = truth.logs(&json!({ "fromBlock": "0x0" })).into_iter().cloned().collect();
    let range = json!({ "fromBlock": "earliest", "toBlock": "latest" });
    calls.push(("eth_getLogs", json!([range]), everything));
    for block in &truth.blocks {
        let (number, hash) = (&block.json["number"], &block.json["hash"]);
        calls.push(("eth_getBlockByNumber", json!([number, true]), full(&block.json)));
        calls.push(("eth_getBlockByNumber", json!([number, false]), short(&block.json)));
        calls.push(("eth_getBlockByHash", json!([hash, true]), full(&block.json)));
        let receipts: Value = block.receipts.iter().map(receipt).collect();
        for of in [json!(number), json!(hash), json!({ "blockHash": hash })] {
            calls.push(("eth_getBlockReceipts", json!([of]), receipts.clone()));
        }
        for one in &block.receipts {
            let hash = &one["transactionHash"];
            calls.push(("eth_getTransactionReceipt", json!([hash]), receipt(one)));
        }
        calls.extend(parts(block));
    }
    calls
}

/// Returns calls for the header and the transactions of a block.
fn parts(block: &truth::Block) -> Vec<(&'static str, Value, Value)> {
    let (number, hash) = (&block.json["number"], &block.json["hash"]);
    let whole = full(&block.json);
    let mut header = whole.clone();
    for part in ["transactions", "uncles", "size", "withdrawals"] {
        header.as_object_mut().expect("an object").remove(part);
    }
    let transactions = whole["transactions"].as_array().expect("transactions");
    let count = json!(format!("{:#x}", transactions.len()));
    let mut calls = vec![
        ("eth_getHeaderByNumber", json!([number]), header.clone()),
        ("eth_getHeaderByHash", json!([hash]), header),
        ("eth_getBlockTransactionCountByNumber", json!([number]), count.clone()),
        ("eth_getBlockTransactionCountByHash", json!([hash]), count),
        ("eth_getUncleCountByBlockNumber", json!([number]), json!("0x0")),
        ("eth_getUncleByBlockHashAndIndex", json!([hash, "0x0"]), Value::Null),
    ];
    for transaction in transactions {
        let index = &transaction["transactionIndex"];
        let by_hash = json!([transaction["hash"]]);
        calls.push(("eth_getTransactionByHash", by_hash, transaction.clone()));
        for (method, block) in [
            ("eth_getTransactionByBlockNumberAndIndex", number),
            ("eth_getTransactionByBlockHashAndIndex", hash),
        ] {
            calls.push((method, json!([block, index]), transaction.clone()));
        }
    }
    calls
}

pub(super) fn calls(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 46);
    let endpoint = Endpoint::of(scene, &node);
    let truth = Truth::of(&node);
    let calls = all(&truth, &questions::filters(&truth, &chain));
    for (method, params, right) in &calls {
        check(&format!("{method} {params}"), &endpoint.call(method, params), right);
    }
    for batch in calls.chunks(60) {
        check_batch(&endpoint, batch);
    }
    // Encodings are those of anvil.
    for block in &truth.blocks {
        for transaction in block.json["transactions"].as_array().expect("transactions") {
            let params = json!([transaction["hash"]]);
            let right = node.rpc().call("eth_getRawTransactionByHash", &params);
            assert_eq!(endpoint.call("eth_getRawTransactionByHash", &params), right);
            assert_eq!(endpoint.call("debug_getRawTransaction", &params), right);
        }
    }

    // Filters.
    let filter = json!({ "address": chain.runners });
    let logs = endpoint.call("eth_newFilter", &json!([filter]));
    let blocks = endpoint.call("eth_newBlockFilter", &json!([]));
    let changes = |id: &Value| endpoint.call("eth_getFilterChanges", &json!([id]));
    assert_eq!((changes(&logs), changes(&blocks)), (json!([]), json!([])));
    chain.mine(&node, Step::EveryAddress);
    chain.mine(&node, Step::Empty);
    endpoint.until_head(&node);
    let truth = Truth::of(&node);
    let new = &truth.blocks[truth.blocks.len() - 2..];
    let hashes: Value = new.iter().map(|block| block.json["hash"].clone()).collect();
    let found: Value = new[0].logs().cloned().collect();
    assert_eq!((changes(&logs), changes(&blocks)), (found, hashes));
    assert_eq!((changes(&logs), changes(&blocks)), (json!([]), json!([])));
    let of_range = json!({ "fromBlock": "earliest", "address": chain.runners[0] });
    let id = endpoint.call("eth_newFilter", &json!([of_range]));
    let of_range = json!({ "fromBlock": "0x0", "address": chain.runners[0] });
    let right: Value = truth.logs(&of_range).into_iter().cloned().collect();
    assert_eq!(endpoint.call("eth_getFilterLogs", &json!([id])), right);
    for (id, was_there) in [(&logs, true), (&logs, false), (&blocks, true), (&json!("0x1"), false)]
    {
        assert_eq!(endpoint.call("eth_uninstallFilter", &json!([id])), json!(was_there));
    }
    assert_eq!(
        endpoint.error("eth_getFilterChanges", &json!([logs]))["message"],
        "filter not found"
    );
    endpoint.end();
}

/// Sends calls in one batch, with calls that fail between them. Every answer has the id of its call.
fn check_batch(endpoint: &Endpoint, calls: &[(&str, Value, Value)]) {
    let call = |id: Value, method: &str, params: &Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let mut batch = vec![call(json!("a balance"), "eth_getBalance", &json!([]))];
    batch.extend(
        calls.iter().zip(0..).map(|((method, params, _), id)| call(json!(id), method, params)),
    );
    batch.push(call(json!("no filter"), "eth_getLogs", &json!([{ "address": 7 }])));
    let (status, text) = endpoint.rpc.post(&json!(batch).to_string()).expect("an answer");
    assert_eq!(status, 200, "{text}");
    let answers: Vec<Value> = serde_json::from_str(&text).expect("a batch");
    assert_eq!(answers.len(), batch.len());
    for answer in answers {
        let right = match &answer["id"] {
            Value::String(name) => {
                let code = if name == "a balance" { -32601 } else { -32602 };
                assert_eq!(answer["error"]["code"], code, "{answer}");
                continue;
            }
            id => &calls[usize::try_from(id.as_u64().expect("an id")).expect("short")].2,
        };
        check(&format!("answer {}", answer["id"]), &answer["result"], right);
    }
}

/// With `--anchor`, the head stays that block, whatever the node has.
pub(super) fn anchored(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 47);
    let mut truth = Truth::of(&node);
    let anchor = truth.blocks.len() - 5;
    truth.blocks.truncate(anchor + 1);
    let hash = truth.blocks[anchor].json["hash"].clone();
    let mut endpoint =
        Endpoint::start(scene, node.rpc().url(), &["--anchor", hash.as_str().expect("text")]);
    let head = endpoint.running.wait_for("a head", |line| line["kind"] == "head");
    assert_eq!(head["head"]["hash"], hash);
    assert_eq!(endpoint.listening["trust"], "anchor");
    let filters = questions::filters(&truth, &chain);
    for _ in 0..2 {
        for (method, params, right) in all(&truth, &filters) {
            check(&format!("{method} {params}"), &endpoint.call(method, &params), &right);
        }
        // A block after the anchor is known to the node only.
        let after = node.block(truth.height() + 1);
        let beyond = json!([{ "fromBlock": "0x0", "toBlock": after["number"] }]);
        assert_eq!(
            endpoint.error("eth_getLogs", &beyond)["data"]["reason"],
            "beyond_verified_head"
        );
        let of_hash = json!([{ "blockHash": after["hash"] }]);
        assert_eq!(endpoint.error("eth_getLogs", &of_hash)["data"]["reason"], "unknown_block");
        assert_eq!(endpoint.call("eth_getBlockByHash", &json!([after["hash"], true])), Value::Null);
        let transaction = &node.block(truth.height() + 2)["transactions"][0];
        assert!(transaction.is_string());
        assert_eq!(endpoint.call("eth_getTransactionReceipt", &json!([transaction])), Value::Null);
        // The node's chain changes after the anchor.
        chain.reorganise(&node, 3);
        chain.mine(&node, Step::Several(2));
    }
    endpoint.end();
}

/// The commands of the page show what the page says: the node omits a log, and the endpoint names it.
pub(super) fn trial_of_the_page(scene: &Scene) {
    const NODE: &str = "127.0.0.1:28545";
    const ENDPOINT: &str = "127.0.0.1:28546";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/endpoint.md");
    let page = fs::read_to_string(page).expect("a page");
    let line = |start: &str| page.lines().find(|line| line.starts_with(start)).expect("a command");
    let lie = line("chainsieve-conformance serve-node --lie ").split(' ').nth(3).expect("a lie");
    let node = LyingNode::builder().lie(lie).expect("a lie").start().expect("started");
    let command = line(&format!("chainsieve eth serve --rpc http://{NODE} "));
    let command = command.replace(NODE, &node.address().to_string());
    let command = command.replace(ENDPOINT, "127.0.0.1:0");
    let arguments: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    let mut running = Running::start(scene, &arguments);
    let listening = running.wait_for("listening", |line| line["kind"] == "listening");
    running.wait_for("a verified head", |line| line["kind"] == "head");
    let address = listening["address"].as_str().expect("an address").to_owned();

    let (_, query) = page.split_once("query='").expect("a query");
    let query: Value =
        serde_json::from_str(query.split('\'').next().expect("its end")).expect("JSON");
    let shown = |at: &str| -> usize {
        let command = line(&format!("curl -s http://{at} "));
        command.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count")
    };
    let ask = |at: &str| {
        let logs = HttpRpc::to(format!("http://{at}")).call("eth_getLogs", &query["params"]);
        logs.as_array().expect("a list").clone()
    };
    let (lying, proven) = (ask(&node.address().to_string()), ask(&address));
    assert_eq!((lying.len(), proven.len()), (shown(NODE), shown(ENDPOINT)));
    // The receipts of the built-in blocks have these logs.
    let contract = &query["params"][0]["address"];
    let receipts = ["fromBlock", "toBlock"].map(|end| {
        let block = json!([query["params"][0][end]]);
        HttpRpc::to(node.url()).call("eth_getBlockReceipts", &block)
    });
    let receipts = receipts.iter().flat_map(|list| list.as_array().expect("receipts"));
    let logs = receipts.flat_map(|receipt| receipt["logs"].as_array().expect("logs"));
    assert_eq!(logs.filter(|log| log["address"] == *contract).count(), proven.len());

    let wrong = running.wait_for("the omitted log", |line| line["kind"] == "wrong_logs");
    let omitted: Vec<_> = proven.iter().filter(|log| !lying.contains(log)).collect();
    let [omitted] = omitted[..] else { panic!("{omitted:?}") };
    assert_eq!(
        omitted["blockNumber"],
        json!(format!("{:#x}", wrong["block"].as_u64().expect("it")))
    );
    let index = wrong["log_index"].as_u64().expect("an index");
    assert_eq!(omitted["logIndex"], json!(format!("{index:#x}")));
    let place = format!("the first of them is log {index} of block {}", wrong["block"]);
    let is_of_it = |line: &&str| line.starts_with(&format!("http://{NODE} omitted 1, "));
    assert!(page.lines().find(is_of_it).expect("the line").ends_with(&place), "{place}");
    running.interrupt();
}
