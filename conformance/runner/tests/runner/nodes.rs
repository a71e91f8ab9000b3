//! `logs.node` against a simulated node: contracts, placeholders, labels, and malformed answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use chainsieve_conformance::{Outcome, Pack, RpcNode, RunError, StartError, SubjectRun};
use serde_json::{Value, json};

use crate::{load, pack_with, run_all};

/// A node that mines a block for each transaction, and whose contracts log what their call data
/// says. `eth_getLogs` is answered by `logs`.
struct Node {
    transactions: Vec<Value>,
    logs: Vec<Value>,
    queries: Vec<Value>,
    answer: fn(&Self, &Value) -> Value,
}

fn word(number: usize) -> String {
    format!("0x{number:064x}")
}

impl Node {
    /// Starts a node that stops with the test.
    fn start(answer: fn(&Self, &Value) -> Value) -> (String, Arc<Mutex<Self>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let node = Self { transactions: Vec::new(), logs: Vec::new(), queries: Vec::new(), answer };
        let node = Arc::new(Mutex::new(node));
        let served = Arc::clone(&node);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let node = Arc::clone(&served);
                thread::spawn(move || serve(&stream.expect("a connection"), &node));
            }
        });
        (url, node)
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let result = match method {
            "web3_clientVersion" => json!("Geth/v1.16.5-stable/linux"),
            "eth_accounts" => json!(["0xaa"]),
            "eth_blockNumber" => json!(format!("{:#x}", 100 + self.transactions.len())),
            "eth_sendTransaction" => self.mine(&params[0]),
            "eth_getTransactionReceipt" => {
                let hash = params[0].as_str().expect("a hash");
                let number = usize::from_str_radix(&hash[2..], 16).expect("a number");
                json!({
                    "status": "0x1",
                    "transactionHash": hash,
                    "blockNumber": format!("{:#x}", 100 + number),
                    "blockHash": word(1000 + number),
                    "contractAddress": format!("0xc{number}"),
                })
            }
            "eth_getLogs" => {
                self.queries.push(params[0].clone());
                return (self.answer)(self, &params[0]);
            }
            other => panic!("{other}"),
        };
        json!({ "result": result })
    }

    fn mine(&mut self, transaction: &Value) -> Value {
        self.transactions.push(transaction.clone());
        let number = self.transactions.len();
        if let Some(to) = transaction["to"].as_str() {
            let data = transaction["data"].as_str().expect("call data").trim_start_matches("0x");
            let words: Vec<_> = data
                .as_bytes()
                .chunks(64)
                .map(|word| format!("0x{}", str::from_utf8(word).expect("text")))
                .collect();
            let (data, topics) = words.split_last().expect("data");
            self.logs.push(json!({
                "address": to, "topics": topics, "data": data,
                "transactionHash": word(number), "blockHash": word(1000 + number),
            }));
        }
        json!(word(number))
    }
}

/// Answers one request after another.
fn serve(stream: &TcpStream, node: &Mutex<Node>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let request: Value = serde_json::from_slice(&body).expect("JSON");
        let method = request["method"].as_str().expect("a method");
        let answer = node.lock().expect("no panic").call(method, &request["params"]);
        let (status, body) = match answer.as_str() {
            // A string stands for an answer that is not JSON-RPC.
            Some(text) => ("500 Internal Server Error", text.to_owned()),
            None => ("200 OK", answer.to_string()),
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut stream = stream;
        stream.write_all(answer.as_bytes()).expect("sent");
    }
}

fn pack(queries: &[(Value, Value)]) -> Pack {
    let params = json!({
        "setup": [
            {"contract": 0, "topics": [], "label": "a"},
            {"contract": 2, "topics": ["T1", "T2"], "label": "b"},
            {"contract": 4, "topics": ["T1", "T1", "T2", "T2"], "label": "c"},
        ],
        "topics": {"T1": format!("0x{}", "11".repeat(32)), "T2": format!("0x{}", "22".repeat(32))},
    });
    let cases: Vec<_> = queries
        .iter()
        .zip(1..)
        .map(|((query, expect), number)| {
            json!({
                "id": format!("logs.node/{number:04}"), "comment": "", "level": "open",
                "input": {"query": query}, "expect": expect,
            })
        })
        .collect();
    load(&pack_with("logs.node", &params, &cases))
}

fn run(pack: &Pack, url: &str) -> Result<SubjectRun, RunError> {
    run_all(pack, &mut RpcNode::new(url, Duration::from_secs(60)))
}

#[test]
fn placeholders_stand_for_what_was_deployed() {
    let (url, node) = Node::start(|node, _| json!({ "result": node.logs }));
    let query = json!({
        "address": ["$contract:0", "$contract:4"],
        "topics": ["$topic:T1", null, ["$topic:T2", "0x00"]],
        "fromBlock": "$block:a", "toBlock": "$block:c+1", "blockHash": "$hash:b",
        "further": ["$block:b-1", "$head", "$head+1", "latest"],
    });
    let expect = json!({"value": {"logs": ["a", "b", "c"]}});
    let run = run(&pack(&[(query, expect.clone()), (json!({}), expect)]), &url).expect("it runs");
    assert!(run.is_clean(), "{run:?}");
    assert_eq!(run.counts().agree, 2);
    assert_eq!(
        (run.subject.name.as_str(), run.subject.version.as_str()),
        ("geth", "1.16.5-stable")
    );

    let node = node.lock().expect("no panic");
    // Five contracts, and a transaction for each log, once for both cases.
    assert_eq!(node.transactions.len(), 8);
    let one = format!("0x{}", "11".repeat(32));
    let two = format!("0x{}", "22".repeat(32));
    assert_eq!(node.logs[1]["topics"], json!([one, two]));
    assert_eq!(node.logs[2]["data"], word(3));
    let expected = json!({
        "address": ["0xc1", "0xc5"],
        "topics": [one, null, [two, "0x00"]],
        "fromBlock": "0x6a", "toBlock": "0x6d", "blockHash": word(1007),
        "further": ["0x6a", "0x6c", "0x6d", "latest"],
    });
    assert_eq!(node.queries, [expected, json!({})]);
}

#[test]
fn wrong_and_foreign_logs_are_no_labels() {
    let (url, _node) = Node::start(|node, _| {
        let mut logs = node.logs.clone();
        logs[1]["topics"][0] = logs[1]["topics"][1].clone();
        logs[2]["transactionHash"] = json!("0xff");
        json!({ "result": logs })
    });
    let run = run(&pack(&[(json!({}), json!({"value": {"logs": ["a", "b", "c"]}}))]), &url);
    match &run.expect("it runs").areas[0].cases[0].outcome {
        Outcome::Differs { got, at } => {
            assert_eq!(at, "/logs/1");
            assert_eq!(got["logs"][1], "b, altered");
            assert!(got["logs"][2].as_str().expect("text").starts_with("unknown log {"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_without_logs_are_told_apart() {
    let (url, _node) = Node::start(|_, query| match query["kind"].as_str() {
        Some("error") => json!({"error": {"code": -32602, "message": "too many topics"}}),
        Some("method") => json!({"error": {"code": -32601, "message": "not found"}}),
        Some("null") => json!({"result": null}),
        Some("html") => json!("<html>"),
        _ => json!({}),
    });
    let value = json!({"value": {"logs": []}});
    let kinds = ["error", "method", "null", "html", "neither", "$nothing", "$contract:7"];
    let cases = kinds.map(|kind| (json!({ "kind": kind }), value.clone()));
    let run = run(&pack(&cases), &url).expect("it runs");
    let mut cases = run.areas[0].cases.iter().collect::<Vec<_>>();
    cases.sort_by_key(|case| &case.id);
    let text = |number: usize| match &cases[number].outcome {
        Outcome::Refused(text) => format!("refused: {text}"),
        Outcome::Skipped(text) => format!("skipped: {text}"),
        Outcome::Error(text) => format!("error: {text}"),
        Outcome::Differs { got, .. } => format!("differs: {got}"),
        Outcome::NotRun(text) => format!("not run: {text}"),
        other => other.word().to_owned(),
    };
    assert_eq!(text(0), "refused: too many topics (-32602)");
    assert_eq!(text(1), "skipped: not found (-32601)");
    assert_eq!(text(2), "differs: {\"logs\":null}");
    assert!(text(3).starts_with("error: eth_getLogs: no answer of JSON-RPC"), "{}", text(3));
    assert_eq!(text(4), "error: eth_getLogs: neither a result nor an error");
    assert_eq!(text(5), "error: $nothing stands for nothing");
    assert_eq!(text(6), "error: $contract:7 stands for nothing");
}

#[test]
fn a_node_that_is_not_there_cannot_be_run() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let run = run(&pack(&[(json!({}), json!({"value": {}}))]), &url);
    assert!(matches!(run, Err(RunError::Start(StartError::NoIntroduction(_)))), "{run:?}");
}
