//! The verified head: who may move it, and what a node that lags or is of another chain may not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve_provider::RpcServer;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, Upstream, ask, get};
use crate::{provider, started, until};

fn chain(count: u64) -> Vec<Block> {
    Block::chain(1, count)
}

fn trusting(upstreams: &[&Upstream]) -> RpcServer {
    let provider = provider(upstreams).build().expect("nodes");
    started(provider.serve().without_comparison().poll(Duration::from_millis(10)))
}

fn head(server: &RpcServer) -> u64 {
    server.head().expect("a head").number
}

fn result(server: &RpcServer, method: &str, params: &Value) -> Value {
    let answer = ask(server.address(), method, params);
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

/// Waits until the upstream was asked for its newest block often enough that the answers before were taken.
fn until_asked(upstream: &Upstream) {
    upstream.take_calls();
    let mut polls = 0;
    until("some polls", || {
        let calls = upstream.take_calls();
        polls += calls.iter().filter(|method| *method == "eth_getBlockByNumber").count();
        // Each poll asks for the newest and for the final block.
        polls > 8
    });
}

/// The age in `/health` and the time in `/metrics` are those of the head that stands beside them, also while
/// the head moves.
#[test]
fn the_age_is_that_of_the_head() {
    let upstream = Upstream::of(chain(400));
    upstream.set_head(1);
    let endpoint = provider(&[&upstream]).build().expect("nodes").serve();
    let server = started(endpoint.without_comparison().poll(Duration::from_millis(1)));
    let time_of = |number: u64| {
        let header = &upstream.blocks()[usize::try_from(number).expect("few")].header;
        Header::decode(&mut &header[..]).expect("a header").timestamp
    };
    let unix = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    for number in 2..400 {
        upstream.set_head(number);
        // Some of the answers are given while the head moves.
        let mut head = 0;
        while head < number {
            let before = unix();
            let (_, text) = get(server.address(), "/health");
            let health: Value = serde_json::from_str(&text).expect("JSON");
            head = health["head"]["number"].as_u64().expect("a head");
            let now = health["age"].as_u64().expect("an age") + time_of(head);
            assert!((before..=unix()).contains(&now), "{health}");
            let (_, text) = get(server.address(), "/metrics");
            let gauge = |name: &str| {
                let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
                values.next().expect(name).trim().parse::<u64>().expect("a number")
            };
            let time = gauge("chainsieve_verified_head_timestamp ");
            assert_eq!(time, time_of(gauge("chainsieve_verified_head ")));
        }
    }
}

/// Right after the start, a node names earlier blocks, one after the other: it lags. Filters and
/// subscriptions go on.
#[test]
fn a_lagging_node_moves_nothing_back_after_the_start() {
    for lag in [1, 39, 40, 300] {
        let upstream = Upstream::of(chain(400));
        upstream.set_head(350);
        let server = trusting(&[&upstream]);
        let logs = result(&server, "eth_newFilter", &json!([{}]));
        let blocks = result(&server, "eth_newBlockFilter", &json!([]));
        upstream.set_head(350 - lag);
        until_asked(&upstream);
        assert_eq!(head(&server), 350, "a node that is {lag} blocks late");
        upstream.set_head(351);
        until("the next head", || head(&server) == 351);
        let block = &upstream.blocks()[351];
        assert_eq!(result(&server, "eth_getFilterChanges", &json!([logs])), json!(block.logs));
        assert_eq!(result(&server, "eth_getFilterChanges", &json!([blocks])), json!([block.hash]));
    }
}

/// A node that lags by more than what is loaded at the start has neither the head nor the headers that show
/// how its block leads there. It still takes nothing back, however often it is asked.
#[test]
fn a_node_that_lags_far_moves_nothing_back() {
    let upstream = Upstream::of(chain(400));
    let server = trusting(&[&upstream]);
    let filter = result(&server, "eth_newFilter", &json!([{}]));
    upstream.set_head(50);
    for _ in 0..5 {
        until_asked(&upstream);
        assert_eq!(head(&server), 399);
    }
    assert_eq!(result(&server, "eth_getFilterChanges", &json!([filter])), json!([]));
    // The headers that are there from now on show that it leads to the head.
    upstream.set_head(398);
    until_asked(&upstream);
    assert_eq!(head(&server), 399);
}

/// A test network that was started anew has other blocks with the same numbers, and nobody has the old ones.
#[test]
fn a_chain_that_was_started_anew_is_followed() {
    for count in [200, 30] {
        let upstream = Upstream::of(chain(150));
        let server = trusting(&[&upstream]);
        let other = Upstream::of(Block::chain(2, count));
        upstream.answer_like(&other);
        until("the new chain", || head(&server) == count - 1);
        let all = json!([{ "fromBlock": "0x0" }]);
        let logs: Vec<_> = other.blocks().iter().flat_map(|block| block.logs.clone()).collect();
        assert_eq!(result(&server, "eth_getLogs", &all), json!(logs));
    }
}

/// The second node names a block far ahead, while the first one is not reached. Nothing leads there, so the
/// first one's head stays; and if the endpoint began with such a block, the first one takes it back.
#[test]
fn a_made_up_head_far_ahead_does_not_stay() {
    let mut far = Block::made_up(None, 7, Vec::new(), None);
    for begins in [false, true] {
        let upstream = Upstream::of(chain(100));
        far = far.with_number(1_000_000);
        let liar = Upstream::of(vec![far.clone()]);
        // Not a failure after which others are asked before it for a while.
        let busy = |method: &str| (method != "eth_chainId").then_some(Sent::Error(-32000, "busy"));
        if begins {
            upstream.lie(move |method, _, _| busy(method));
        }
        let server = trusting(&[&upstream, &liar]);
        upstream.lie(move |method, _, _| busy(method));
        until_asked(&liar);
        assert_eq!(head(&server), if begins { 1_000_000 } else { 99 });
        upstream.be_honest();
        until("the head of the first node", || head(&server) == 99);
    }
}

/// The block of the start leaves the chain: filters get its logs as removed, and those of the new block.
#[test]
fn the_block_of_the_start_can_leave_the_chain() {
    for depth in [1, 3] {
        let mut branch = chain(100 - depth);
        Block::extend(&mut branch, 2, depth + 1);
        let (upstream, other) = (Upstream::of(chain(100)), Upstream::of(branch));
        let server = trusting(&[&upstream]);
        let logs = result(&server, "eth_newFilter", &json!([{}]));
        let blocks = result(&server, "eth_newBlockFilter", &json!([]));
        upstream.reorganise_to(&other);
        until("the other branch", || head(&server) == 100);
        let fork = 100 - usize::try_from(depth).expect("few");
        let removed = upstream.blocks()[fork..].iter().rev().flat_map(|block| {
            block.logs.iter().cloned().map(|mut log| {
                log.removed = true;
                log
            })
        });
        let new = &other.blocks()[fork..];
        let expected: Vec<_> =
            removed.chain(new.iter().flat_map(|block| block.logs.clone())).collect();
        assert_eq!(result(&server, "eth_getFilterChanges", &json!([logs])), json!(expected));
        let expected: Vec<_> = new.iter().map(|block| block.hash).collect();
        assert_eq!(result(&server, "eth_getFilterChanges", &json!([blocks])), json!(expected));
    }
}

/// What was final stays final, whatever block a node names that lags, or one that knows no final block.
#[test]
fn the_final_block_does_not_go_back() {
    let upstream = Upstream::of(chain(100));
    let server = trusting(&[&upstream]);
    let finalized = || -> Value {
        let health: Value =
            serde_json::from_str(&get(server.address(), "/health").1).expect("JSON");
        health["finalized"]["number"].clone()
    };
    assert_eq!(finalized(), 99);
    for named in [json!("0x14"), json!("0x1000")] {
        let own = upstream.clone();
        let named = named.clone();
        upstream.lie(move |method, params, _| {
            (params[0] == "finalized").then(|| own.answer(method, &json!([named, false])))
        });
        until_asked(&upstream);
        assert_eq!(finalized(), 99);
    }
}

/// A node of another chain that could not be reached at the start is not asked when it comes back, also
/// if it is the only one that answers.
#[test]
fn a_node_of_another_chain_does_not_take_over() {
    let (upstream, other) = (Upstream::of(chain(100)), Upstream::of(Block::chain(2, 200)));
    other.lie(|_, _, _| Some(Sent::Status(503)));
    let provider = provider(&[&upstream, &other]).build().expect("nodes");
    let serve = provider.serve().pass_unverified();
    let server = started(serve.poll(Duration::from_millis(10)));
    other.lie(|method, _, _| (method == "eth_chainId").then(|| Sent::Result(json!("0x7"))));
    upstream.lie(|_, _, _| Some(Sent::Status(503)));
    until_asked(&upstream);
    assert_eq!(head(&server), 99);
    let latest = json!([{ "fromBlock": "latest" }]);
    let answer = ask(server.address(), "eth_getLogs", &latest);
    assert!(answer["result"].is_null(), "{answer}");
    assert!(answer["error"]["message"].as_str().expect("a text").contains("chain 7"), "{answer}");
    // Nor is anything passed on to it.
    let answer = ask(server.address(), "eth_gasPrice", &json!([]));
    assert!(answer["result"].is_null(), "{answer}");
    let asked: Vec<_> = other.take_calls();
    assert!(!asked.is_empty() && asked.iter().all(|method| method == "eth_chainId"), "{asked:?}");
    // A node of the same chain is asked from then on.
    upstream.be_honest();
    until("an answer", || ask(server.address(), "eth_getLogs", &latest)["result"].is_array());
}
