//! Health, counters, limits, methods that are not proven, filters, and what is kept on disk.

use std::time::{Duration, Instant};

use chainsieve_provider::Limits;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::{Chain, Corpus};

use crate::upstream::{Upstream, ask, get, post};
use crate::{endpoint, forgetful, provider, started};

fn chain() -> Option<&'static Chain> {
    Some(&Corpus::open()?.chains["ethtest"])
}

fn all() -> Value {
    json!([{ "fromBlock": "earliest", "toBlock": "latest" }])
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the value of a counter.
fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().expect("a number"))
}

#[test]
fn health_and_counters() {
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
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
    let answer = ask(address, "eth_getLogs", &all());
    assert_eq!(answer["error"]["data"]["reason"], "not_ready", "{answer}");
    upstream.be_honest();
    until("a head", || get(address, "/health").0 == 200);
    let health: Value = serde_json::from_str(&get(address, "/health").1).expect("JSON");
    assert_eq!(health["head"]["hash"], chain.run.tip().to_string());

    // The upstream leaves one log out of its answer, and the client gets it all the same.
    upstream.lie(|method, _, honest| {
        let Sent::Result(Value::Array(logs)) = honest else { return None };
        (method == "eth_getLogs").then(|| Sent::Result(Value::Array(logs[1..].to_vec())))
    });
    let answer = ask(address, "eth_getLogs", &all());
    let expected: usize = upstream.blocks().iter().map(|block| block.logs.len()).sum();
    assert_eq!(answer["result"].as_array().map(Vec::len), Some(expected), "{}", answer["error"]);
    let omitted = format!("chainsieve_upstream_omitted_logs_total{{upstream=\"{url}\"}}");
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
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "eth_gasPrice", "params": [] });
    let refusing = started(endpoint(&[&upstream], chain.run.tip()));
    let (headers, answer) = post(refusing.address(), &call.to_string());
    assert_eq!(answer["error"]["code"], -32004, "{answer}");
    assert!(headers.get("chainsieve-unverified").is_none());

    let passing = started(endpoint(&[&upstream], chain.run.tip()).pass_unverified());
    let (headers, answer) = post(passing.address(), &call.to_string());
    assert_eq!((&answer["result"], &answer["id"]), (&json!("0x7"), &json!(7)));
    assert_eq!(headers["chainsieve-unverified"], "1");
    // Errors of the upstream are passed on, too.
    let unknown = json!({ "jsonrpc": "2.0", "id": 7, "method": "eth_nonsense", "params": [] });
    let (headers, answer) = post(passing.address(), &unknown.to_string());
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(headers.get("chainsieve-unverified").is_some());
    // Not in a batch, where a mark on the whole answer would say nothing.
    let number = json!({ "jsonrpc": "2.0", "id": 8, "method": "eth_blockNumber" });
    let (headers, answer) = post(passing.address(), &json!([call, number]).to_string());
    assert_eq!(answer[0]["error"]["code"], -32004, "{answer}");
    assert_eq!(answer[0]["error"]["data"]["reason"], "unverified_method");
    assert_eq!(answer[1]["result"], format!("{:#x}", chain.run.last()));
    assert!(headers.get("chainsieve-unverified").is_none());
    // A proven answer has no mark.
    let (headers, _) = post(passing.address(), &number.to_string());
    assert!(headers.get("chainsieve-unverified").is_none());
}

#[test]
fn each_limit_has_its_error() {
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
    let limited = |set: fn(&mut Limits)| {
        let mut limits = Limits::default();
        set(&mut limits);
        let server = started(endpoint(&[&upstream], chain.run.tip()).limits(limits));
        let answer = ask(server.address(), "eth_getLogs", &all());
        assert_eq!(answer["error"]["code"], -32005, "{answer}");
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
    assert_eq!(limited(|limits| limits.max_calls = 0)["what"], "calls at once");
    let mut limits = Limits::default();
    (limits.max_filters, limits.max_request, limits.max_batch) = (2, 500, 2);
    let server = started(endpoint(&[&upstream], chain.run.tip()).limits(limits));
    let new = || ask(server.address(), "eth_newFilter", &json!([{}]));
    let first = new()["result"].as_str().expect("an id").to_owned();
    assert!(new()["result"].is_string());
    assert_eq!(new()["error"]["data"]["what"], "filters");
    assert_eq!(ask(server.address(), "eth_uninstallFilter", &json!([first]))["result"], true);
    assert!(new()["result"].is_string());
    // The codes of jsonrpsee for a request and a batch that are too large.
    let number = json!({ "jsonrpc": "2.0", "id": 8, "method": "eth_blockNumber" });
    let (_, answer) = post(server.address(), &format!("{number}{}", " ".repeat(500)));
    assert_eq!(answer["error"]["code"], -32007, "{answer}");
    let (_, answer) = post(server.address(), &json!([number, number, number]).to_string());
    assert_eq!(answer["error"]["code"], -32010, "{answer}");
}

#[test]
fn a_page_of_another_host_is_refused() {
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
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
}

/// The head advances with the upstream's; filters say what is new.
#[test]
fn filters_of_a_growing_chain() {
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
    upstream.set_head(100);
    let provider = provider(&[&upstream]).build().expect("nodes");
    let failed = provider.serve().start("127.0.0.1:0".parse().expect("one"));
    assert!(failed.expect_err("nothing is trusted").to_string().contains("trust"));
    let server = started(provider.serve().trust_head().poll(Duration::from_millis(10)));
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
    std::thread::sleep(Duration::from_millis(100));
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
    let Some(chain) = chain() else { return };
    let upstream = Upstream::start(chain);
    let folder = std::env::temp_dir().join(format!("chainsieve-store-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let run = || {
        let builder = endpoint(&[&upstream], chain.run.tip()).limits(forgetful());
        let server = started(builder.without_comparison().folder(&folder));
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
    let _ = std::fs::remove_dir_all(&folder);
}
