//! The JSON-RPC server under clients that stay, and under nodes that do not answer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use chainsieve_conformance::serve::ethereum::LyingNode;
use chainsieve_provider::Provider;
use serde_json::{Value, json};

/// Pause between two attempts. No test measures a time.
const PAUSE: Duration = Duration::from_millis(5);

fn request(method: &str, params: &Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends a call, and returns the status line of the response.
fn status(address: SocketAddr, method: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(&request(method, &json!([]))).expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("a response");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_server_ends_while_a_client_reads_nothing() {
    let node = LyingNode::builder().start().expect("started");
    let mut stream = TcpStream::connect(node.address()).expect("connected");
    let request = request("eth_getBlockReceipts", &json!(["latest"]));
    // Once the server waits for this client, it reads no more of its requests.
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("set");
    while stream.write_all(&request).is_ok() {}
    drop(node);
}

#[test]
fn a_server_ends_while_the_node_behind_it_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    let node = LyingNode::builder().upstream(url).start().expect("started");
    let mut stream = TcpStream::connect(node.address()).expect("connected");
    stream.write_all(&request("eth_chainId", &json!([]))).expect("sent");
    let asked = silent.accept().expect("the node asks");
    drop(node);
    drop(asked);
}

/// Clients that wait for a node that does not answer keep their places only until they leave.
#[test]
fn a_place_is_free_once_its_client_leaves() {
    let node = LyingNode::builder().lie("eth-slow").expect("a lie").start().expect("started");
    let address = node.address();
    assert_eq!(status(address, "eth_chainId"), "HTTP/1.1 200");
    let wait = || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(&request("eth_chainId", &json!([]))).expect("sent");
        stream
    };
    let mut waiting: Vec<TcpStream> = Vec::new();
    for number in 1..=256 {
        // The first client may still have its place.
        let mut next = wait();
        while node.told() < number {
            next.set_nonblocking(true).expect("set");
            let is_refused = matches!(next.peek(&mut [0]), Ok(1));
            next.set_nonblocking(false).expect("set");
            if is_refused {
                next = wait();
            }
            thread::sleep(PAUSE);
        }
        waiting.push(next);
    }
    assert_eq!(status(address, "eth_chainId"), "HTTP/1.1 503");
    waiting.pop();
    // The next client gets the place.
    let mut next = wait();
    while node.told() < 257 {
        next.set_nonblocking(true).expect("set");
        let is_refused = matches!(next.peek(&mut [0]), Ok(1));
        next.set_nonblocking(false).expect("set");
        if is_refused {
            next = wait();
        }
        thread::sleep(PAUSE);
    }
    assert_eq!(node.num_calls(), 258);
}

#[test]
fn receipts_are_found_by_each_name() {
    let node = LyingNode::builder().start().expect("started");
    let provider =
        Provider::builder().url(&node.url()).retries(0).trust_head().build().expect("a URL");
    let call =
        |method: &'static str, params: &Value| provider.nodes()[0].call::<Value>(method, params);
    let block = call("eth_getBlockByNumber", &json!(["latest", false])).expect("a block");
    let receipts = call("eth_getBlockReceipts", &json!([block["hash"]])).expect("receipts");
    for name in [
        json!({ "blockHash": block["hash"] }),
        json!({ "blockHash": block["hash"], "requireCanonical": true }),
        json!({ "blockNumber": block["number"] }),
        json!({ "blockNumber": "latest" }),
    ] {
        assert_eq!(call("eth_getBlockReceipts", &json!([name])).as_ref(), Ok(&receipts), "{name}");
    }
    for name in [
        json!({}),
        json!({ "blockHash": "0x1" }),
        json!({ "blockHash": 7 }),
        json!({ "blockHash": block["hash"], "blockNumber": "latest" }),
    ] {
        assert!(call("eth_getBlockReceipts", &json!([name])).is_err(), "{name}");
    }
    let transaction = block["transactions"][5].as_str().expect("a hash");
    let upper = format!("0x{}", transaction[2..].to_uppercase());
    let receipt = call("eth_getTransactionReceipt", &json!([upper])).expect("a receipt");
    assert_eq!(receipt, receipts[5]);
    assert!(call("eth_getTransactionReceipt", &json!(["0x7"])).is_err());
}
