//! Hostile requests to the nodes: each is refused, and the node goes on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use chainsieve_conformance::serve::json_rpc::{Fate, Proxy, Source};
use chainsieve_conformance::serve::{bitcoin, ethereum};
use serde_json::{Value, json};

/// Sends bytes, and returns everything that the node answers until it closes the connection.
fn sent(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    // The node may close the connection before it has read everything.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(body: &[u8]) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn answer(address: SocketAddr, body: &[u8]) -> Value {
    let text = sent(address, &post(body));
    let body = text.split_once("\r\n\r\n").expect("a response").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn hostile_http_is_refused() {
    let node = ethereum::LyingNode::builder().start().expect("started");
    let line = "x".repeat(1 << 20);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("POST / HTTP/1.1\r\n\r\n".to_owned(), "411"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "411"),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n".to_owned(), "413"),
        ("POST / HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n".to_owned(), "413"),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nnonsense\r\n\r\n".to_owned(), "400"),
        (format!("POST / HTTP/1.1\r\n{}", "a: b\r\n".repeat(200)), "431"),
        (line.clone(), ""),
        (format!("POST / HTTP/1.1\r\na: {line}\r\n\r\n"), ""),
        ("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n{".to_owned(), ""),
        ("\0\r\n\r\n".to_owned(), "405"),
    ] {
        let answer = sent(node.address(), request.as_bytes());
        let expected = if status.is_empty() { String::new() } else { format!("HTTP/1.1 {status}") };
        assert!(answer.starts_with(&expected), "{answer}");
        assert_eq!(answer.is_empty(), status.is_empty(), "{answer}");
    }
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_chainId" });
    assert_eq!(answer(node.address(), call.to_string().as_bytes())["result"], "0x1");
}

#[test]
fn hostile_calls_get_an_error() {
    let node = ethereum::LyingNode::builder().start().expect("started");
    let code = |body: &[u8]| answer(node.address(), body)["error"]["code"].clone();
    for (body, expected) in [
        ("", -32700),
        ("{", -32700),
        ("\u{fffd}", -32700),
        (&"[".repeat(100_000), -32700),
        ("[]", -32600),
        ("1", -32600),
        ("null", -32600),
        (r#"{"id":1}"#, -32600),
        (r#"{"id":1,"method":7}"#, -32600),
        (r#"{"id":1,"method":"eth_sendTransaction"}"#, -32601),
        (r#"{"id":1,"method":"eth_getLogs"}"#, -32602),
        (r#"{"id":1,"method":"eth_getLogs","params":"x"}"#, -32602),
        (r#"{"id":1,"method":"eth_getLogs","params":[{"topics":[1,2,3,4,5]}]}"#, -32602),
        (r#"{"id":1,"method":"eth_getLogs","params":[{"fromBlock":"0x0"}]}"#, -32602),
        (r#"{"id":1,"method":"eth_getLogs","params":[{"toBlock":"0xffffffff"}]}"#, -32602),
        (r#"{"id":1,"method":"eth_getBlockByNumber","params":[7]}"#, -32602),
        (r#"{"id":1,"method":"eth_getBlockByNumber","params":["0xzz",false]}"#, -32602),
    ] {
        assert_eq!(code(body.as_bytes()), expected, "{body}");
    }
    let batch = vec![json!({ "id": 1, "method": "eth_chainId" }); 1_001];
    assert_eq!(code(json!(batch).to_string().as_bytes()), -32600);
    // A long name of a method is not repeated as a whole.
    let name = "m".repeat(100_000);
    let call = json!({ "id": 1, "method": name });
    let error = answer(node.address(), call.to_string().as_bytes());
    assert!(error["error"]["message"].as_str().expect("text").len() < 200);
}

#[test]
fn batches_are_answered_call_by_call() {
    let node = ethereum::LyingNode::builder().start().expect("started");
    let batch = json!([
        { "id": 7, "method": "eth_blockNumber" },
        { "id": "a", "method": "eth_nothing" },
        { "method": "eth_chainId" },
        3,
    ]);
    let answers = answer(node.address(), batch.to_string().as_bytes());
    let answers = answers.as_array().expect("a list");
    assert_eq!(answers.len(), 3, "a call without an id is a notification: {answers:?}");
    assert_eq!((&answers[0]["id"], &answers[0]["result"]), (&json!(7), &json!("0x10dde60")));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!("a"), &json!(-32601)));
    assert_eq!(answers[2]["error"]["code"], -32600);
    let only_notifications = post(br#"{"method":"eth_chainId"}"#);
    assert!(sent(node.address(), &only_notifications).starts_with("HTTP/1.1 204"));
}

#[test]
fn blocks_are_found_by_each_of_their_names() {
    let node = ethereum::LyingNode::builder().start().expect("started");
    let block = |method: &str, name: &str| {
        let call = json!({ "id": 1, "method": method, "params": [name, false] });
        answer(node.address(), call.to_string().as_bytes())["result"].clone()
    };
    let last = block("eth_getBlockByNumber", "latest");
    assert_eq!(last["number"], "0x10dde60");
    let hash = last["hash"].as_str().expect("a hash");
    assert_eq!(block("eth_getBlockByHash", hash), last);
    for tag in ["finalized", "safe", "0x10dde60"] {
        assert_eq!(block("eth_getBlockByNumber", tag), last);
    }
    assert_eq!(block("eth_getBlockByNumber", "earliest")["number"], "0x10dde5f");
    for absent in ["0x1", "0x10dde61", "pending"] {
        assert_eq!(block("eth_getBlockByNumber", absent), Value::Null);
    }
    let receipts = block("eth_getBlockReceipts", hash);
    let transaction = last["transactions"][5].as_str().expect("a hash");
    assert_eq!(block("eth_getTransactionReceipt", transaction), receipts[5]);
}

/// A proxy must not trust the node behind it.
#[test]
fn lies_about_strange_answers_do_not_panic() {
    for result in [
        json!(null),
        json!(7),
        json!([]),
        json!([1, 2]),
        json!([{}]),
        json!([{ "logs": 1 }]),
        json!([{ "logs": [1] }, 3]),
        json!({ "logsBloom": 7 }),
        json!({ "hash": "0x00" }),
    ] {
        let strange = result.clone();
        let source = Source::function(move |_, _| Ok(strange.clone()));
        let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, |_, _, _| Fate::Answered);
        let node = node.expect("started");
        for lie in chainsieve_conformance::serve::lies().filter(|lie| {
            lie.id.starts_with("eth-log")
                || lie.id.starts_with("eth-re")
                || lie.id.starts_with("eth-he")
        }) {
            let liar = ethereum::LyingNode::builder().lie(lie.id).expect("a lie");
            let liar = liar.upstream(node.url()).start().expect("started");
            for method in ["eth_getLogs", "eth_getBlockReceipts", "eth_getBlockByNumber"] {
                let call = json!({ "id": 1, "method": method, "params": [] });
                let answer = answer(liar.address(), call.to_string().as_bytes());
                assert!(answer.get("result").is_some(), "{}: {result}: {answer}", lie.id);
            }
        }
    }
}

#[test]
fn answers_of_an_upstream_that_are_no_objects_are_a_bad_gateway() {
    for body in ["7", "\"x\"", "[1]", "null"] {
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        let source = Source::function(|_, _| Ok(Value::Null));
        let strange = Proxy::start(([127, 0, 0, 1], 0).into(), source, move |_, _, _| {
            Fate::Bytes(response.clone().into_bytes())
        });
        let strange = strange.expect("started");
        let liar = ethereum::LyingNode::builder().lie("eth-log-omitted").expect("a lie");
        let liar = liar.upstream(strange.url()).start().expect("started");
        let call = json!({ "id": 1, "method": "eth_getLogs", "params": [{}] });
        let answer = sent(liar.address(), &post(call.to_string().as_bytes()));
        assert!(answer.starts_with("HTTP/1.1 502"), "{body}: {answer}");
        assert_eq!(strange.calls()["eth_getLogs"], 1, "{body}");
    }
}

#[test]
fn a_peer_survives_bytes_that_are_no_messages() {
    let node = bitcoin::LyingNode::builder().start().expect("started");
    for bytes in [&[0; 100][..], &[0xff; 5_000], b"GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(sent(node.address(), bytes), "");
    }
    // A header that announces more than any message may have.
    let mut header = chainsieve::bitcoin::Network::Regtest.magic().to_bytes().to_vec();
    header.extend(b"block\0\0\0\0\0\0\0");
    header.extend([0xff; 8]);
    assert_eq!(sent(node.address(), &header), "");
}
