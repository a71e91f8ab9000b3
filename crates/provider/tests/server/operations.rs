//! Health, counters, limits, methods that are not proven, filters, and what is kept on disk.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::Address;
use chainsieve_provider::{BuildError, Provider, RpcServer, RpcServerBuilder, RpcServerLimits};
use redb::{ReadableTable as _, TableDefinition};
use serde_json::{Value, json};
use testkit::eth::json_rpc::{Sent, is_in_batch};
use testkit::eth::log_chains::{Chain, Corpus};
use testkit::eth::raw_client::WebSocket;

use crate::upstream::{CHAIN_ID, Upstream, ask, get, post};
use testkit::TestFolder;

use crate::{endpoint, forgetful, provider, started, until};

/// Returns a chain, and a node that serves it.
fn chain() -> Option<(&'static Chain, Upstream)> {
    let chain = &Corpus::open()?.chains["ethtest"];
    Some((chain, Upstream::start(chain)))
}

fn all() -> Value {
    json!([{ "fromBlock": "earliest", "toBlock": "latest" }])
}

/// Returns the value of a counter.
fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().expect("a number"))
}

#[test]
fn health_and_counters() {
    let Some((chain, upstream)) = chain() else { return };
    upstream.lie(|_, _, _| Some(Sent::Status(500)));
    let url = upstream.url();
    let builder = provider(&[&upstream]).anchor(chain.run.tip());
    // Without a chain id, nothing starts.
    let failed = builder.build().expect("nodes").serve().start("127.0.0.1:0".parse().expect("one"));
    assert!(failed.expect_err("no chain").to_string().contains("500"));
    upstream.lie(|method, _, _| (method != "eth_chainId").then_some(Sent::Status(500)));
    let server = endpoint(&[&upstream], chain.run.tip()).poll(Duration::from_millis(20));
    let server = server.start("127.0.0.1:0".parse().expect("one")).expect("it starts");
    let address = server.address();
    let (status, health) = get(address, "/health");
    assert_eq!(status, 503, "{health}");
    until("the reason", || get(address, "/health").1.contains("HTTP status 500"));
    let answer = ask(address, "eth_getLogs", &all());
    assert_eq!(answer["error"]["data"]["reason"], "not_ready", "{answer}");
    upstream.be_honest();
    until("a head", || get(address, "/health").0 == 200);
    let health: Value = serde_json::from_str(&get(address, "/health").1).expect("JSON");
    assert_eq!(health["head"]["hash"], chain.run.tip().to_string());
    assert_eq!(health["head_failure"], Value::Null);

    // Before the first question, the counters of each upstream are there.
    let text = get(address, "/metrics").1;
    let omitted = format!("chainsieve_upstream_omitted_logs_total{{upstream=\"{url}\"}}");
    assert!(text.contains(&format!("{omitted} 0\n")), "{text}");

    // The upstream leaves one log out of its answer, and the client gets it all the same.
    upstream.lie(|method, _, honest| {
        let Sent::Result(Value::Array(logs)) = honest else { return None };
        (method == "eth_getLogs").then(|| Sent::Result(Value::Array(logs[1..].to_vec())))
    });
    let answer = ask(address, "eth_getLogs", &all());
    let expected: usize = upstream.blocks().iter().map(|block| block.logs.len()).sum();
    assert_eq!(answer["result"].as_array().map(Vec::len), Some(expected), "{}", answer["error"]);
    until("it is counted", || counter(&get(address, "/metrics").1, &omitted) == 1);
    let text = get(address, "/metrics").1;
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert_eq!(counter(&text, "chainsieve_verified_head"), chain.run.last());
    let ok = "chainsieve_requests_total{method=\"eth_getLogs\",outcome=\"ok\"}";
    assert_eq!(counter(&text, ok), 1);
    assert_eq!(
        counter(&text, "chainsieve_requests_total{method=\"eth_getLogs\",outcome=\"not_ready\"}"),
        1
    );
}

#[test]
fn methods_that_are_not_proven() {
    let Some((chain, upstream)) = chain() else { return };
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "eth_gasPrice", "params": [] });
    let refusing = started(endpoint(&[&upstream], chain.run.tip()));
    let (headers, answer) = post(refusing.address(), &call.to_string());
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(headers.get("chainsieve-unverified").is_none());
    let refused = "chainsieve_requests_total{method=\"other\",outcome=\"not_supported\"}";
    assert_eq!(counter(&get(refusing.address(), "/metrics").1, refused), 1);

    let passing = started(endpoint(&[&upstream], chain.run.tip()).pass_unverified());
    let (headers, answer) = post(passing.address(), &call.to_string());
    assert_eq!((&answer["result"], &answer["id"]), (&json!("0x7"), &json!(7)));
    assert_eq!(headers["chainsieve-unverified"], "1");
    // Errors of the upstream are passed on, too.
    let unknown = json!({ "jsonrpc": "2.0", "id": 7, "method": "eth_nonsense", "params": [] });
    let (headers, answer) = post(passing.address(), &unknown.to_string());
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(headers.get("chainsieve-unverified").is_some());
    // In a batch, each answer that was passed on is marked.
    let number = json!({ "jsonrpc": "2.0", "id": 8, "method": "eth_blockNumber" });
    let logs = json!({ "jsonrpc": "2.0", "id": 9, "method": "erigon_getLogs", "params": [{}] });
    let (headers, answer) = post(passing.address(), &json!([call, number, logs]).to_string());
    let head = format!("{:#x}", chain.run.last());
    let passed = json!({ "jsonrpc": "2.0", "id": 7, "result": "0x7", "unverified": true });
    let proven = json!({ "jsonrpc": "2.0", "id": 8, "result": head });
    assert_eq!((&answer[0], &answer[1]), (&passed, &proven));
    assert_eq!(answer[2]["error"]["data"]["reason"], "unverified_method", "{answer}");
    assert_eq!(headers["chainsieve-unverified"], "1");
    let (headers, answer) = post(passing.address(), &json!([number]).to_string());
    assert_eq!((&answer, headers.get("chainsieve-unverified")), (&json!([proven]), None));
    // A subscription needs a connection that stays open.
    let heads =
        json!({ "jsonrpc": "2.0", "id": 9, "method": "eth_subscribe", "params": ["newHeads"] });
    let single = post(passing.address(), &heads.to_string()).1;
    let batch = post(passing.address(), &json!([heads]).to_string()).1;
    assert_eq!(
        (&single["error"]["code"], &batch[0]["error"]["code"]),
        (&json!(-32601), &json!(-32601))
    );
    let missing = &ask(passing.address(), "eth_getLogs", &json!([]))["error"];
    assert_eq!(missing["message"], "missing value for required argument 0");
    // A proven answer has no mark.
    let (headers, _) = post(passing.address(), &number.to_string());
    assert!(headers.get("chainsieve-unverified").is_none());
    // Over WebSocket, the answer alone has the mark.
    let mut socket = WebSocket::open(passing.address(), "http://localhost:3000").expect("it opens");
    assert_eq!((socket.ask(&call), socket.ask(&number)), (passed, proven));
}

#[test]
fn each_limit_has_its_error() {
    let Some((chain, upstream)) = chain() else { return };
    let limited = |set: fn(&mut RpcServerLimits)| {
        let mut limits = RpcServerLimits::default();
        set(&mut limits);
        let server = started(endpoint(&[&upstream], chain.run.tip()).limits(limits));
        let answer = ask(server.address(), "eth_getLogs", &all());
        // What will never be granted is not to be asked for again.
        let code = if answer["error"]["data"]["reason"] == "busy" { -32005 } else { -32602 };
        assert_eq!(answer["error"]["code"], code, "{answer}");
        answer["error"]["data"].clone()
    };
    let blocks = chain.run.last() + 1;
    assert_eq!(
        limited(|limits| limits.max_blocks = 10),
        json!({ "reason": "limit", "what": "blocks", "found": blocks, "limit": 10 })
    );
    assert_eq!(limited(|limits| limits.max_candidates = 5)["limit"], 5);
    assert_eq!(limited(|limits| limits.max_logs = 6)["limit"], 6);
    assert_eq!(limited(|limits| limits.max_headers = 7)["limit"], 7);
    let none = |limits: &mut RpcServerLimits| {
        (limits.max_calls, limits.max_wait) = (0, Duration::ZERO);
    };
    let busy = json!({ "reason": "busy", "what": "calls at once", "limit": 0 });
    assert_eq!(limited(none), busy);
    assert_eq!(limited(|limits| limits.answer_memory = 1 << 16)["limit"], 1 << 16);
    let mut limits = RpcServerLimits::default();
    (limits.max_filters, limits.max_request, limits.max_batch) = (2, 500, 2);
    let server = started(endpoint(&[&upstream], chain.run.tip()).limits(limits));
    let new = || ask(server.address(), "eth_newFilter", &json!([{}]));
    let first = new()["result"].as_str().expect("an id").to_owned();
    assert!(new()["result"].is_string());
    assert_eq!(new()["error"]["data"]["what"], "filters");
    assert_eq!(ask(server.address(), "eth_uninstallFilter", &json!([first]))["result"], true);
    assert!(new()["result"].is_string());
    let number = json!({ "jsonrpc": "2.0", "id": 8, "method": "eth_blockNumber" });
    let (_, answer) = post(server.address(), &format!("{number}{}", " ".repeat(500)));
    assert_eq!(answer, "the request has more than 500 bytes");
    // The code of go-ethereum.
    let (_, answer) = post(server.address(), &json!([number, number, number]).to_string());
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    // What is refused before it is a call is counted, too.
    let (_, metrics) = get(server.address(), "/metrics");
    for limit in ["batch", "filters", "request_bytes"] {
        let line = format!("limits_reached_total{{limit=\"{limit}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

/// What is no call gets an error by the specification of JSON-RPC 2.0.
#[test]
fn requests_that_are_no_calls() {
    let Some((chain, upstream)) = chain() else { return };
    let server = started(endpoint(&[&upstream], chain.run.tip()));
    let post = |text: &str| post(server.address(), text).1;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": CHAIN_ID });
    assert_eq!((post(call), post(&format!(" [{call}]\n"))), (answer.clone(), json!([answer])));
    for (text, code) in [
        ("", -32700),
        ("{", -32700),
        ("[1,", -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId""#, -32700),
        ("[]", -32600),
        ("1", -32600),
        ("null", -32600),
        ("{}", -32600),
        (r#"["2.0",1,"eth_chainId"]"#, -32600),
        (r#"{"id":1,"method":"eth_chainId"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"eth_chainId"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_nonsense"}"#, -32601),
    ] {
        let answer = post(text);
        let error = if answer.is_array() { &answer[0]["error"] } else { &answer["error"] };
        assert_eq!(error["code"], code, "{text}: {answer}");
    }
    // Each wrong call of a batch has an error; ids are returned as they are; notifications are not answered.
    let text = r#"[1,{"jsonrpc":"2.0","id":"\u0061","method":"eth_chainId"},{"jsonrpc":"2.0","method":"eth_chainId"}]"#;
    let answer = post(text);
    assert_eq!(answer.as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!((&answer[0]["error"]["code"], &answer[1]["id"]), (&json!(-32600), &json!("a")));
    for text in
        [r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#, r#"[{"jsonrpc":"2.0","method":"x"}]"#]
    {
        assert_eq!(post(text), "", "{text}");
    }
    let null = post(r#"{"jsonrpc":"2.0","id":null,"method":"eth_chainId"}"#);
    assert_eq!(null, json!({ "jsonrpc": "2.0", "id": null, "result": CHAIN_ID }));
    // A page in a browser may post plain text to any host.
    let request = ureq::post(format!("http://{}", server.address()));
    let request = request.config().http_status_as_error(false).build();
    let status = request.content_type("text/plain").send(call).expect("an answer").status();
    assert_eq!(status.as_u16(), 415);
}

/// A head that is too old is not ready for clients, and its age is told.
#[test]
fn the_age_of_the_head() {
    let Some((chain, upstream)) = chain() else { return };
    let health = |builder: RpcServerBuilder| {
        let server = builder.start("127.0.0.1:0".parse().expect("one")).expect("it starts");
        until("a head", || server.head().is_some());
        let (status, text) = get(server.address(), "/health");
        (status, serde_json::from_str::<Value>(&text).expect("JSON"))
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let header = &upstream.blocks().last().expect("a block").header;
    let header = Header::decode(&mut &header[..]).expect("a header");
    let expected = now - header.timestamp;
    let (status, old) = health(endpoint(&[&upstream], chain.run.tip()));
    let age = old["age"].as_u64().expect("an age");
    assert_eq!((status, &old["ready"], &old["max_age"]), (200, &json!(true), &Value::Null));
    assert!((expected..expected + 3600).contains(&age), "{age}, {expected}");
    for (limit, status) in [(age - 1, 503), (age + 3600, 200)] {
        let builder = endpoint(&[&upstream], chain.run.tip());
        let found = health(builder.max_head_age(Duration::from_secs(limit)));
        assert_eq!((found.0, &found.1["max_age"]), (status, &json!(limit)), "{found:?}");
        assert_eq!(found.1["ready"], status == 200);
    }
}

#[test]
fn a_page_of_another_host_is_refused() {
    let Some((chain, upstream)) = chain() else { return };
    let server = started(endpoint(&[&upstream], chain.run.tip()));
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let call = json!({ "jsonrpc": "2.0", "id": 8, "method": "eth_blockNumber" }).to_string();
    let status = |host: &str| {
        let request = agent.post(format!("http://{}", server.address()));
        let request = request.header("Content-Type", "application/json").header("Host", host);
        request.send(&call).expect("an answer").status().as_u16()
    };
    assert_eq!(status("evil.example"), 403);
    assert_eq!(status("localhost:8546"), 200);
    // A browser lets any page open a WebSocket, and says which page it is.
    for (origin, refused) in [
        ("https://evil.example", Some("403")),
        ("http://localhost.evil.example", Some("403")),
        ("http://127.0.0.1.evil.example:80", Some("403")),
        ("null", Some("403")),
        ("http://localhost:3000", None),
        ("http://[::1]:80", None),
    ] {
        let opened = WebSocket::open(server.address(), origin);
        assert_eq!(opened.err().as_deref(), refused, "{origin}");
    }
}

/// A browser asks which pages may read answers.
#[test]
fn pages_of_allowed_origins() {
    let Some((chain, upstream)) = chain() else { return };
    let builder = || endpoint(&[&upstream], chain.run.tip());
    let app = "https://app.example";
    let servers = [
        (started(builder()), [false, false]),
        (started(builder().allow_origins([app])), [true, false]),
        (started(builder().allow_origins(["*"])), [true, true]),
    ];
    for (server, allowed) in servers {
        for (origin, is_allowed) in [app, "https://evil.example"].into_iter().zip(allowed) {
            let agent =
                ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
            let request = agent.options(format!("http://{}", server.address()));
            let request = request.header("Origin", origin);
            let request = request.header("Access-Control-Request-Method", "POST");
            let asked = request.header("Access-Control-Request-Headers", "content-type");
            let answer = asked.call().expect("an answer");
            let named = answer.headers().get("access-control-allow-origin");
            let named = named.map(|value| value.to_str().expect("text").to_owned());
            let is_named = named.as_deref() == Some(origin) || named.as_deref() == Some("*");
            assert_eq!(is_named, is_allowed, "{origin}: {named:?}");
            assert_eq!(WebSocket::open(server.address(), origin).is_ok(), is_allowed, "{origin}");
        }
    }
    for wrong in ["app.example", "https://app.example/", "https://a\nb"] {
        let failed = builder().allow_origins([wrong]).start("127.0.0.1:0".parse().expect("one"));
        assert!(failed.expect_err(wrong).to_string().contains("not an origin"), "{wrong}");
    }
}

/// Waits until the head was asked for a few times.
fn until_polled(upstream: &Upstream) {
    upstream.take_calls();
    let mut asked = 0;
    until("some polls", || {
        asked += upstream.take_calls().len();
        asked > 8
    });
}

/// Starts an endpoint at block 100 whose answers have at most 2,000 bytes.
fn with_short_answers(upstream: &Upstream) -> RpcServer {
    upstream.set_head(100);
    let mut limits = RpcServerLimits::default();
    limits.max_answer = 2000;
    let provider = provider(&[upstream]).build().expect("nodes");
    started(provider.serve().limits(limits).poll(Duration::from_millis(10)))
}

/// A filter whose changes are too large for an answer keeps them.
#[test]
fn a_too_large_answer_loses_no_change() {
    let Some((_, upstream)) = chain() else { return };
    let server = with_short_answers(&upstream);
    let changes = |id: &Value| ask(server.address(), "eth_getFilterChanges", &json!([id]));
    let id = ask(server.address(), "eth_newBlockFilter", &json!([]))["result"].clone();
    upstream.set_head(200);
    until("the head", || ask(server.address(), "eth_blockNumber", &json!([]))["result"] == "0xc8");
    for _ in 0..2 {
        let error = &changes(&id)["error"];
        assert_eq!((&error["code"], &error["data"]["limit"]), (&json!(-32602), &json!(2000)));
    }
}

/// A node that never answers is asked again only after a while.
#[test]
fn a_hung_node_delays_few_calls() {
    let Some((chain, upstream)) = chain() else { return };
    let hung = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = hung.local_addr().expect("bound");
    let connections = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        let streams = hung.incoming().inspect(|_| {
            let _ = counted.fetch_add(1, Ordering::SeqCst);
        });
        // They stay open.
        streams.collect::<Vec<_>>()
    });
    let builder = provider(&[]).url(&format!("http://{address}")).url(&upstream.url());
    // The honest node, too, must answer within this time, also on a busy machine.
    let builder = builder.timeout(Duration::from_secs(6)).anchor(chain.run.tip());
    let server = started(builder.build().expect("nodes").serve().limits(forgetful()));
    let began = Instant::now();
    for block in &upstream.blocks()[..100] {
        let logs = ask(server.address(), "eth_getLogs", &json!([{ "blockHash": block.hash }]));
        assert_eq!(logs["result"], json!(block.logs), "{}", logs["error"]);
    }
    let connections = connections.load(Ordering::SeqCst);
    // After half a minute, it is asked again.
    let most = 4 * (1 + began.elapsed().as_secs() / 30);
    assert!((1..=most).contains(&connections), "{connections} connections");
}

/// A node whose chain changes between two calls: the final block is one of the head's chain.
#[test]
fn a_final_block_of_another_branch_is_not_taken() {
    let Some(corpus) = Corpus::open() else { return };
    let upstream = Upstream::start(&corpus.chains["ethtest"]);
    let other = Upstream::start(&corpus.chains["ea2026"]);
    upstream.set_head(100);
    other.set_head(40);
    let from_other = other.clone();
    upstream.lie(move |method, params, _| {
        (params[0] == "finalized").then(|| from_other.answer(method, params))
    });
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = started(provider.serve().poll(Duration::from_millis(10)));
    let health =
        || -> Value { serde_json::from_str(&get(server.address(), "/health").1).expect("JSON") };
    // The headers down to block 40 are known from here on.
    let range = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    assert!(ask(server.address(), "eth_getLogs", &range)["result"].is_array());
    other.set_head(41);
    upstream.set_head(101);
    until("the head", || health()["head"]["number"] == 101);
    until_polled(&upstream);
    assert_ne!(health()["finalized"]["hash"], json!(other.blocks()[41].hash));
    upstream.be_honest();
    until("a final block", || health()["finalized"]["number"] == 101);
}

/// The calls of a batch share the room for its answer. What finds no room has an error, and keeps its changes.
#[test]
fn a_too_large_batch_loses_no_change() {
    let Some((_, upstream)) = chain() else { return };
    let server = with_short_answers(&upstream);
    let address = server.address();
    let filter = || ask(address, "eth_newBlockFilter", &json!([]))["result"].clone();
    let ids = [filter(), filter()];
    let poll = |ids: &[&Value]| {
        let calls = ids.iter().map(|id| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getFilterChanges", "params": [id, 7] })
        });
        post(address, &calls.collect::<Value>().to_string()).1
    };
    upstream.set_head(120);
    until("the head", || ask(address, "eth_blockNumber", &json!([]))["result"] == "0x78");
    // Each answer fits, but not both.
    let answers = poll(&[&ids[0], &ids[1]]);
    let count = |answer: &Value| answer["result"].as_array().map(Vec::len);
    let refused = answers.as_array().expect("a list").iter().position(|it| it["error"].is_object());
    let refused = refused.expect("one does not fit");
    assert_eq!(answers[refused]["error"]["data"]["what"], "bytes of the answer", "{answers}");
    assert_eq!(count(&answers[1 - refused]), Some(20), "{answers}");
    for (id, expected) in [(refused, 20), (1 - refused, 0)] {
        assert_eq!(count(&poll(&[&ids[id]])[0]), Some(expected));
    }
}

/// Of two answers of which each fits alone, but not both, one comes, however they are written.
#[test]
fn one_of_two_answers_that_share_the_room_comes() {
    let Some((_, upstream)) = chain() else { return };
    let mut sizes = HashMap::<_, usize>::new();
    for log in upstream.blocks().iter().flat_map(|block| &block.logs) {
        *sizes.entry(log.log.address).or_default() += json!(log).to_string().len();
    }
    let fitting = sizes.into_iter().filter(|(_, size)| *size < 100_000);
    let (address, size) = fitting.max_by_key(|(_, size)| *size).expect("logs");
    let mut limits = RpcServerLimits::default();
    limits.max_answer = u32::try_from(size * 3 / 2).expect("a length");
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = started(provider.serve().limits(limits));
    let filter = json!({ "address": address, "fromBlock": "0x0" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [filter] });
    let batch = json!([call, call]).to_string();
    for round in 0..1000 {
        let answers = post(server.address(), &batch).1;
        let come = answers.as_array().expect("a list").iter().filter(|it| it["result"].is_array());
        assert_eq!(come.count(), 1, "round {round}: {answers}");
    }
}

/// Receipts and transactions come in one request where the blocks before had matching logs, unless the
/// node refuses that.
#[test]
fn blocks_with_logs_need_one_request_each() {
    let Some((chain, upstream)) = chain() else { return };
    let mut blocks_of = HashMap::<_, BTreeSet<u64>>::new();
    for log in chain.run.blocks.iter().flat_map(|block| &block.logs) {
        blocks_of.entry(log.log.address).or_default().insert(log.block_number);
    }
    let (address, blocks) = blocks_of.into_iter().max_by_key(|(_, of)| of.len()).expect("logs");
    let blocks = blocks.len() as u64;
    let requests = |upstream: &Upstream| {
        let server = started(endpoint(&[upstream], chain.run.tip()).without_comparison());
        let logs = |address: Address| {
            let filter = json!([{ "address": address, "fromBlock": "0x0" }]);
            ask(server.address(), "eth_getLogs", &filter)["result"].clone()
        };
        assert_eq!(logs(Address::repeat_byte(0x5c)), json!([]), "now the headers are known");
        let before = upstream.num_requests();
        let own = upstream.blocks().iter().flat_map(|block| &block.logs);
        let own: Vec<_> = own.filter(|log| log.log.address == address).collect();
        assert_eq!(logs(address), json!(own));
        let metrics = get(server.address(), "/metrics").1;
        let fetched = counter(&metrics, "chainsieve_blocks_found_total{place=\"upstream\"}");
        let kept = counter(&metrics, "chainsieve_blocks_found_total{place=\"memory\"}");
        assert!(fetched >= blocks && kept == 0, "{fetched} of {blocks} fetched, {kept} kept");
        upstream.num_requests() - before
    };
    let found = requests(&upstream);
    assert!(blocks > 50 && found * 4 < blocks * 5, "{found} requests for {blocks} blocks");
    upstream.lie(|method, params, _| {
        let is_body = method == "eth_getBlockByHash" && params[1] == json!(true);
        (is_body && is_in_batch()).then_some(Sent::Status(400))
    });
    let found = requests(&upstream);
    assert!(found >= blocks * 2, "{found} requests for {blocks} blocks");
}

/// The head advances with the upstream's; filters say what is new.
#[test]
fn filters_of_a_growing_chain() {
    let Some((_, upstream)) = chain() else { return };
    upstream.set_head(100);
    let provider = provider(&[&upstream]).build().expect("nodes");
    // Nothing is trusted by silence.
    let silent = Provider::builder().url(&upstream.url()).build();
    assert_eq!(silent.map(drop), Err(BuildError::NoAnchor));
    let server = started(provider.serve().poll(Duration::from_millis(10)));
    let address = server.address();
    let id = |method: &str, params: Value| {
        ask(address, method, &params)["result"].as_str().expect("an id").to_owned()
    };
    let logs = id("eth_newFilter", json!([{}]));
    let blocks = id("eth_newBlockFilter", json!([]));
    let head = || ask(address, "eth_blockNumber", &json!([]))["result"].clone();
    let changes = |id: &str| ask(address, "eth_getFilterChanges", &json!([id]))["result"].clone();
    assert_eq!((changes(&logs), changes(&blocks)), (json!([]), json!([])));
    for (from, to) in [(101_u64, 101_u64), (102, 150), (151, 400)] {
        upstream.set_head(to);
        until("the head", || head() == format!("{to:#x}"));
        let new = || upstream.blocks().iter().filter(|block| (from..=to).contains(&block.number));
        let expected: Vec<Value> =
            new().flat_map(|block| &block.logs).map(|log| json!(log)).collect();
        assert_eq!(changes(&logs), json!(expected), "{from} to {to}");
        let expected: Vec<_> = new().map(|block| block.hash).collect();
        assert_eq!(changes(&blocks), json!(expected));
        assert_eq!((changes(&logs), changes(&blocks)), (json!([]), json!([])));
    }
    // A node that lags is no reorganisation.
    upstream.set_head(350);
    until_polled(&upstream);
    assert_eq!((head(), changes(&logs)), (json!("0x190"), json!([])));
    assert_eq!(
        ask(address, "eth_getFilterLogs", &json!([blocks]))["error"]["message"],
        "filter not found"
    );
    assert_eq!(
        ask(address, "eth_getFilterChanges", &json!(["0x1"]))["error"]["message"],
        "filter not found"
    );
}

/// What is on disk is used by the next run, and believed only if its root is right.
#[test]
fn blocks_on_disk() {
    let Some((chain, upstream)) = chain() else { return };
    let folder = TestFolder::absent("store");
    let run = || {
        let builder = endpoint(&[&upstream], chain.run.tip()).limits(forgetful());
        let server = started(builder.without_comparison().folder(folder.path()));
        upstream.take_calls();
        let answer = ask(server.address(), "eth_getLogs", &all());
        let calls = upstream.take_calls();
        let asked = calls.iter().filter(|call| *call == "debug_getRawReceipts").count();
        (answer["result"].clone(), asked)
    };
    let (first, asked) = run();
    assert!(asked > 100, "{asked}");
    // What does not fit into the queue of the writer is stored by a later run.
    let mut left = asked;
    while left > 0 {
        let (again, asked) = run();
        assert_eq!(again, first);
        assert!(asked < left, "{asked} of {left}");
        left = asked;
    }
    // Values that stand under another root are not believed.
    let path = folder.path().join("blocks.redb");
    let rotated = rotate(&path);
    assert!(rotated > 100, "{rotated}");
    let (again, asked) = run();
    assert_eq!(again, first);
    assert!(asked > 100, "{asked}");
    // A file that is no store is an error that names it.
    std::fs::write(&path, b"not a store").expect("it can be written");
    let builder = endpoint(&[&upstream], chain.run.tip()).folder(folder.path());
    let failed = builder.start("127.0.0.1:0".parse().expect("an address"));
    assert!(failed.expect_err("damaged").to_string().contains("blocks.redb"));
}

/// Puts each value of a store under the key of the next one. Returns their number.
fn rotate(path: &Path) -> usize {
    let values = TableDefinition::<[u8; 33], &[u8]>::new("values");
    let database = redb::Database::open(path).expect("a store");
    let write = database.begin_write().expect("a transaction");
    let all: Vec<([u8; 33], Vec<u8>)> = {
        let table = write.open_table(values).expect("the values");
        let entries = table.iter().expect("the values").map(|entry| entry.expect("a value"));
        entries.map(|(key, value)| (key.value(), value.value().to_vec())).collect()
    };
    {
        let mut table = write.open_table(values).expect("the values");
        for ((key, _), (_, value)) in all.iter().zip(all.iter().cycle().skip(1)) {
            table.insert(key, &value[..]).expect("it can be written");
        }
    }
    write.commit().expect("it can be written");
    all.len()
}
