//! Clients that do not read, send half a request, hang up, or ask for more than their share: the endpoint stays
//! within its limits, and serves the others.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log, U256};
use chainsieve_provider::{RpcServer, RpcServerBuilder, RpcServerLimits};
use serde_json::{Value, json};
use testkit::eth::raw_client::{self, WebSocket, call, connect_from, is_closed, post};

use crate::upstream::{Block, Upstream, ask, get};
use crate::{counter, provider, started, until};

/// The client that misbehaves, and the one that is to be served all the same.
const HOSTILE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PAGE: &str = "http://localhost";

fn trusting(upstream: &Upstream) -> RpcServerBuilder {
    let provider = provider(&[upstream]).build().expect("nodes");
    provider.serve().without_comparison().poll(Duration::from_millis(10))
}

/// Returns a chain whose blocks have so many logs each, of some 300 bytes.
fn blocks_with(count: u64, logs: usize) -> Vec<Block> {
    let log = Log::new_unchecked(
        Address::repeat_byte(1),
        vec![B256::repeat_byte(2); 3],
        Bytes::from(vec![3; 150]),
    );
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..count {
        let block = Block::made_up(blocks.last(), 0, vec![log.clone(); logs], None);
        blocks.push(block);
    }
    blocks
}

fn all_logs() -> Value {
    json!([{ "fromBlock": "earliest", "toBlock": "latest" }])
}

/// Asks as the client with this address. Returns the answer.
fn ask_from(address: Ipv4Addr, server: SocketAddr, method: &str, params: &Value) -> Value {
    raw_client::ask_from(address, server, method, params).expect("an answer")
}

/// Runs a test in a process of its own, because it measures the memory of the process.
fn in_own_process(name: &str, test: impl FnOnce()) {
    const MARK: &str = "CHAINSIEVE_TEST_IN_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    let name = format!("hostile_clients::{name}");
    let output = command.args(["--exact", &name, "--nocapture"]).env(MARK, "1").output();
    let output = output.expect("it runs");
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// Returns the largest resident size of the process until now, in MiB; 0 where the system does not tell it.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse::<u64>().expect("a size") >> 10)
}

/// 40 answers of 45 MB each, which nobody reads.
#[test]
fn unread_answers_take_no_more_than_their_budget() {
    in_own_process("unread_answers_take_no_more_than_their_budget", || {
        let upstream = Upstream::of(blocks_with(60, 1000));
        let mut limits = RpcServerLimits::default();
        (limits.memory, limits.answer_memory) = (32 << 20, 160 << 20);
        (limits.max_calls, limits.max_wait) = (2, Duration::from_secs(60));
        let server = started(trusting(&upstream).limits(limits));
        let address = server.address();
        let count = || {
            let logs = ask_from(HONEST, address, "eth_getLogs", &all_logs());
            logs["result"].as_array().map(Vec::len)
        };
        assert_eq!(count(), Some(60_000));
        let before = peak();
        let request = call("eth_getLogs", &all_logs());
        let unread: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut stream = connect_from(HOSTILE, address);
                post(&mut stream, &request).expect("it listens");
                stream
            })
            .collect();
        // The first answer takes most of the budget until its reader is cut off as too slow. So most of the
        // others are refused.
        let calls = "chainsieve_requests_total{method=\"eth_getLogs\"";
        until("all are answered or refused", || counter(&server, calls) == 41);
        let grown = peak() - before;
        assert!(grown < 400, "{grown} MiB more for 40 unread answers");
        // An answer may be written still.
        until("others are served", || count() == Some(60_000));
        drop(unread);
    });
}

/// 2,000 subscriptions that nobody reads, and one that is read.
#[test]
fn unread_subscriptions_take_no_more_than_their_budget() {
    in_own_process("unread_subscriptions_take_no_more_than_their_budget", || {
        let blocks = blocks_with(10, 500);
        let upstream = Upstream::of(blocks.clone());
        upstream.set_head(2);
        let mut limits = RpcServerLimits::default();
        (limits.memory, limits.answer_memory) = (32 << 20, 64 << 20);
        let server = started(trusting(&upstream).limits(limits));
        let address = server.address();
        let subscribe: Value =
            serde_json::from_str(&call("eth_subscribe", &json!(["logs", {}]))).expect("JSON");
        let unread: Vec<WebSocket> = (0..20)
            .map(|_| {
                let stream = connect_from(HOSTILE, address);
                let mut socket = WebSocket::over(stream, PAGE).expect("it opens");
                for _ in 0..100 {
                    assert!(socket.ask(&subscribe)["result"].is_string());
                }
                socket
            })
            .collect();
        let mut read = WebSocket::over(connect_from(HONEST, address), PAGE).expect("it opens");
        read.0.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        assert!(read.ask(&subscribe)["result"].is_string());
        let before = peak();
        for head in 3..10 {
            upstream.set_head(head);
            for log in &blocks[usize::try_from(head).expect("small")].logs {
                let message = read.receive().expect("a message").expect("it is open");
                assert_eq!(message["params"]["result"], json!(log));
            }
        }
        let grown = peak() - before;
        assert!(grown < 300, "{grown} MiB more for 2,000 unread subscriptions");
        drop(unread);
    });
}

/// Each ping has an answer, which this client does not read.
#[test]
fn unread_pongs_take_no_memory() {
    in_own_process("unread_pongs_take_no_memory", || {
        let (_upstream, server) = quick(|_| {});
        let mut socket =
            WebSocket::over(connect_from(HOSTILE, server.address()), PAGE).expect("it opens");
        socket.0.set_write_timeout(Some(Duration::from_secs(5))).expect("a time");
        let ping = [&[0x89, 0x80 | 0x7d, 0, 0, 0, 0][..], &[7; 0x7d]].concat();
        let many = ping.repeat(1000);
        let before = peak();
        // The endpoint may stop reading, or end the connection.
        let sent = (0..2000).take_while(|_| socket.0.write_all(&many).is_ok()).count();
        let grown = peak() - before;
        assert!(grown < 100, "{grown} MiB more for {sent} thousand pings");
        assert_eq!(
            ask_from(HONEST, server.address(), "eth_blockNumber", &json!([]))["result"],
            "0x4"
        );
    });
}

/// A message of any number of frames is one message.
#[test]
fn empty_frames_without_end_are_cut_off() {
    let (_upstream, server) = quick(|_| {});
    let mut socket =
        WebSocket::over(connect_from(HOSTILE, server.address()), PAGE).expect("it opens");
    socket.0.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let _ = socket.0.write_all(&[0x01, 0x80, 0, 0, 0, 0]);
    let empty = [0x00, 0x80, 0, 0, 0, 0].repeat(10_000);
    let sent = (0..100).take_while(|_| socket.0.write_all(&empty).is_ok()).count();
    assert!(sent < 100 || is_closed(&mut socket.0), "{sent}");
}

fn quick(set: impl FnOnce(&mut RpcServerLimits)) -> (Upstream, RpcServer) {
    let upstream = Upstream::of(blocks_with(5, 1));
    let mut limits = RpcServerLimits::default();
    set(&mut limits);
    let server = started(trusting(&upstream).limits(limits));
    (upstream, server)
}

fn limit_reached(server: &RpcServer, limit: &str) -> bool {
    get(server.address(), "/metrics")
        .1
        .contains(&format!("limits_reached_total{{limit=\"{limit}\"}} "))
}

#[test]
fn half_sent_requests_delay_nobody_and_end() {
    let (_upstream, server) = quick(|limits| {
        limits.request_timeout = Duration::from_millis(500);
        limits.max_connections_of_client = 50;
    });
    let address = server.address();
    let begin = |text: &str| {
        let mut stream = connect_from(HOSTILE, address);
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let _ = stream.write_all(text.as_bytes());
        stream
    };
    let half = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
    let halves = [half, "POST / HT", ""];
    let mut streams: Vec<_> = (0..120).map(|at| begin(halves[at % 3])).collect();
    let answer = ask_from(HONEST, address, "eth_blockNumber", &json!([]));
    assert_eq!(answer["result"], "0x4");
    for stream in &mut streams {
        assert!(is_closed(stream));
    }
    assert!(limit_reached(&server, "connections_of_client"));
    assert!(limit_reached(&server, "request_timeout"));
    assert_eq!(ask(address, "eth_blockNumber", &json!([]))["result"], "0x4");
}

/// Messages that are not complete yet are counted, too.
#[test]
fn half_sent_messages_take_no_more_than_their_budget() {
    let (_upstream, server) = quick(|limits| limits.answer_memory = 1 << 20);
    let address = server.address();
    let open = |client| WebSocket::over(connect_from(client, address), PAGE).expect("it opens");
    let mut sockets = [open(HOSTILE), open(HOSTILE), open(HOSTILE)];
    for socket in &mut sockets {
        // A text of 900,000 bytes, of which a part follows.
        let head = [&[0x81, 0xff], &900_000_u64.to_be_bytes()[..], &[0; 4]].concat();
        let _ = socket.0.write_all(&head).and_then(|()| socket.0.write_all(&vec![b' '; 300_000]));
    }
    let number: Value = serde_json::from_str(&call("eth_blockNumber", &json!([]))).expect("JSON");
    assert_eq!(open(HONEST).ask(&number)["result"], "0x4");
    let closed = sockets.iter_mut().filter_map(|WebSocket(stream)| {
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
        is_closed(stream).then_some(())
    });
    assert!(closed.count() >= 2);
}

#[test]
fn filters_of_one_client_leave_room_for_others() {
    let (_upstream, server) = quick(|limits| limits.max_filters_of_client = 20);
    let install = |client, params| ask_from(client, server.address(), "eth_newFilter", &params);
    for count in 0..25 {
        let answer = install(HOSTILE, json!([{}]));
        assert_eq!(answer["result"].is_string(), count < 20, "{answer}");
        assert_eq!(answer["error"]["code"] == -32005, count >= 20, "{answer}");
    }
    assert!(install(HONEST, json!([{}]))["result"].is_string());
    assert!(limit_reached(&server, "filters"));
    // Filters with many values are counted by their size.
    let (_upstream, server) = quick(|limits| limits.filter_memory = 4 << 20);
    let topics =
        |at: u64| (0..1000).map(|of| B256::from(U256::from(at << 32 | of))).collect::<Vec<_>>();
    let install = |client, at| {
        let params = json!([{ "topics": [topics(at)] }]);
        ask_from(client, server.address(), "eth_newFilter", &params)["result"].is_string()
    };
    let installed = (0..20).filter(|&at| install(HOSTILE, at)).count();
    assert!((1..10).contains(&installed), "{installed}");
    assert!(install(HONEST, 21));
}

#[test]
fn calls_that_nobody_waits_for_end() {
    let upstream = Upstream::of(blocks_with(3000, 1));
    let mut limits = RpcServerLimits::default();
    (limits.max_calls, limits.max_wait) = (1, Duration::ZERO);
    let server = started(trusting(&upstream).limits(limits));
    let address = server.address();
    let slow = |method: &str| method == "debug_getRawHeader";
    upstream.lie(move |method, _, _| {
        if slow(method) {
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    });
    upstream.take_calls();
    let mut stream = connect_from(HOSTILE, address);
    let block = json!([{ "fromBlock": "0x5", "toBlock": "0x5" }]);
    post(&mut stream, &call("eth_getLogs", &block)).expect("it listens");
    until("it is worked on", || upstream.take_calls().iter().any(|method| slow(method)));
    // Another call has to wait, but for those that read little.
    let now = json!([{ "fromBlock": "latest", "toBlock": "latest" }]);
    let logs = || ask_from(HONEST, address, "eth_getLogs", &now);
    assert_eq!(logs()["error"]["data"]["reason"], "busy");
    assert_eq!(ask_from(HONEST, address, "eth_blockNumber", &json!([]))["result"], "0xbb7");
    let began = Instant::now();
    drop(stream);
    until("the work ends", || logs()["result"].is_array());
    // All headers take a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// Clients of Ethereum expect an ended connection where something is lost, and connect again.
#[test]
fn a_subscription_that_lost_something_ends_the_connection() {
    let blocks = Block::chain(0, 600);
    let mut others = blocks[..100].to_vec();
    Block::extend(&mut others, 1, 520);
    let [upstream, other] = [Upstream::of(blocks), Upstream::of(others)];
    upstream.set_head(500);
    let server = started(trusting(&upstream));
    let subscribe: Value =
        serde_json::from_str(&call("eth_subscribe", &json!(["newHeads"]))).expect("JSON");
    let mut socket = WebSocket::open(server.address(), PAGE).expect("it opens");
    socket.0.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let id = socket.ask(&subscribe)["result"].clone();
    upstream.set_head(501);
    let message = socket.receive().expect("a message").expect("it is open");
    assert_eq!(message["method"], "eth_subscription");
    let params = &message["params"];
    assert_eq!((&params["subscription"], &params["result"]["number"]), (&id, &json!("0x1f5")));
    // The fork lies below all headers that the endpoint has.
    upstream.answer_like(&other);
    while let Some(message) = socket.receive().expect("a close") {
        assert!(message["params"]["result"].is_object(), "{message}");
    }
    let unsubscribe = call("eth_unsubscribe", &json!([id]));
    let mut next = WebSocket::open(server.address(), PAGE).expect("it opens");
    let answer = next.ask(&serde_json::from_str(&unsubscribe).expect("JSON"));
    assert_eq!(answer["error"]["message"], "subscription not found");
    let own = next.ask(&subscribe)["result"].clone();
    let unsubscribe = call("eth_unsubscribe", &json!([own]));
    assert_eq!(next.ask(&serde_json::from_str(&unsubscribe).expect("JSON"))["result"], true);
}
