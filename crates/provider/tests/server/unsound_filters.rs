//! Filters that lack bits of logs, on a chain of which the operator assumes that they have all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, Log};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_provider::{RpcServer, RpcServerEvent};
use serde_json::{Value, json};

use crate::upstream::{Block, Upstream, ask, get};
use testkit::TestFolder;

use crate::{provider, started, until};

const SHOWN: Address = Address::repeat_byte(0x11);
const HIDDEN: Address = Address::repeat_byte(0x22);

/// A chain whose filters have the bits of one address, although each block has logs of two.
fn chain(count: u64) -> Vec<Block> {
    chain_of(count, |_| true)
}

/// A chain of blocks with logs of two addresses. The filters of some blocks have the bits of only one.
fn chain_of(count: u64, lacks: impl Fn(u64) -> bool) -> Vec<Block> {
    let log = |address| Log::new_unchecked(address, vec![B256::repeat_byte(1)], Bytes::new());
    let mut chain: Vec<Block> = Vec::new();
    for number in 0..count {
        let bloom: Bloom = [log(SHOWN)].iter().collect();
        let logs = vec![log(SHOWN), log(HIDDEN)];
        let block = Block::made_up(chain.last(), 1, logs, lacks(number).then_some(&bloom));
        chain.push(block);
    }
    chain
}

/// Returns an endpoint of a chain whose properties differ in blocks 2 and 3, with an index of its blocks or without.
fn with_other_blocks_between(
    upstream: &Upstream,
    (bloom, receipts): (BloomSoundness, ReceiptsScope),
    index: Option<&TestFolder>,
) -> RpcServer {
    let all = (BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let profile = ChainProfile::assumed("test", all.0, all.1).with_range(2, bloom, receipts, "");
    let profile = profile.with_range(4, all.0, all.1, "");
    let serve = provider(&[upstream]).profile(profile).build().expect("nodes").serve();
    let Some(folder) = index else { return started(serve) };
    let server = started(serve.index(folder.path()).index_from(0));
    until("the index", || {
        let health = get(server.address(), "/health").1;
        let health: Value = serde_json::from_str(&health).expect("JSON");
        health["index"] == json!({ "start": 0, "end": 6 })
    });
    server
}

/// Both ends of a range have filters that prove absence, and blocks between them have not: these are never
/// ruled out.
#[test]
fn filters_between_two_sound_ones_rule_nothing_out() {
    let upstream = Upstream::of(chain_of(7, |number| (2..=3).contains(&number)));
    let folder = TestFolder::absent("sound-ends");
    for index in [None, Some(&folder)] {
        let between = (BloomSoundness::Unsound, ReceiptsScope::EveryLog);
        let server = with_other_blocks_between(&upstream, between, index);
        assert_eq!(logs(&server, &all_of(HIDDEN)), truth(&upstream, HIDDEN));
        assert!(!lacking(&server));
    }
}

/// Both ends of a range have all logs in receipts, and blocks between them need not.
#[test]
fn receipts_between_two_complete_ones_prove_nothing() {
    let upstream = Upstream::of(chain_of(7, |_| false));
    let between = (BloomSoundness::Exact, ReceiptsScope::NotEveryLog);
    let server = with_other_blocks_between(&upstream, between, None);
    let answer = ask(server.address(), "eth_getLogs", &json!([all_of(HIDDEN)]));
    assert_eq!(answer["error"]["data"]["reason"], "chain_profile", "{answer}");
    for (first, last) in [("0x0", "0x1"), ("0x4", "0x5")] {
        logs(&server, &json!({ "fromBlock": first, "toBlock": last, "address": HIDDEN }));
    }
}

type Events = Arc<Mutex<Vec<RpcServerEvent>>>;

fn start(upstream: &Upstream, compare: bool) -> (RpcServer, Events) {
    let events = Events::default();
    let sink = Arc::clone(&events);
    let provider = provider(&[upstream]).build().expect("nodes");
    let mut serve = provider.serve().poll(Duration::from_millis(10));
    if !compare {
        serve = serve.without_comparison();
    }
    let serve = serve.on_event(move |event| sink.lock().expect("no panic").push(event.clone()));
    let server = serve.start("127.0.0.1:0".parse().expect("an address")).expect("it starts");
    until("a head", || get(server.address(), "/health").0 == 200);
    (server, events)
}

fn logs(server: &RpcServer, filter: &Value) -> Value {
    let answer = ask(server.address(), "eth_getLogs", &json!([filter]));
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

fn all_of(address: Address) -> Value {
    json!({ "fromBlock": "0x0", "toBlock": "0x5", "address": address })
}

/// Returns the logs of an address in blocks 0 to 5.
fn truth(upstream: &Upstream, address: Address) -> Value {
    let all = upstream.blocks()[..=5].iter().flat_map(|block| &block.logs);
    json!(all.filter(|log| log.log.address == address).collect::<Vec<_>>())
}

fn lacking(server: &RpcServer) -> bool {
    let text = get(server.address(), "/metrics").1;
    let line = text.lines().find_map(|line| line.strip_prefix("chainsieve_lacking_filters_total "));
    line.is_some_and(|count| count != "0")
}

/// Receipts in hand show a log that its filter lacks: from then on, filters prove nothing.
#[test]
fn receipts_in_hand_end_the_assumption() {
    let upstream = Upstream::of(chain(10));
    upstream.set_head(6);
    let (server, events) = start(&upstream, false);
    let filter =
        ask(server.address(), "eth_newFilter", &json!([{ "address": HIDDEN }]))["result"].clone();
    assert!(!lacking(&server));
    // The question that shows it: one block, all logs.
    assert_eq!(logs(&server, &all_of(SHOWN)), truth(&upstream, SHOWN));
    assert_eq!(logs(&server, &all_of(HIDDEN)), truth(&upstream, HIDDEN));
    assert!(lacking(&server));
    let told = events
        .lock()
        .expect("no panic")
        .iter()
        .filter(|event| matches!(event, RpcServerEvent::FiltersRefuted { log_index: 1, .. }))
        .count();
    assert_eq!(told, 1);
    // What the filter had got until then may lack logs.
    let error = &ask(server.address(), "eth_getFilterChanges", &json!([filter]))["error"];
    assert_eq!(error["message"], "filter not found");
    // New filters do not rest on the headers any more.
    let filter =
        ask(server.address(), "eth_newFilter", &json!([{ "address": HIDDEN }]))["result"].clone();
    upstream.set_head(7);
    until("the head", || server.head().is_some_and(|head| head.number == 7));
    let changes = &ask(server.address(), "eth_getFilterChanges", &json!([filter]))["result"];
    assert_eq!(*changes, json!([upstream.blocks()[7].logs[1]]));
}

/// Nothing is in hand, but a node has logs where filters say there are none: the receipts of such a block
/// are read, and decide. The node is not counted as one that invents logs.
#[test]
fn logs_of_a_node_are_looked_into() {
    let upstream = Upstream::of(chain(10));
    upstream.set_head(6);
    let (server, _) = start(&upstream, true);
    // Not even a proof exists yet, so the first answer rests on the assumption.
    assert_eq!(logs(&server, &all_of(HIDDEN)), json!([]));
    until("receipts", || lacking(&server));
    assert_eq!(logs(&server, &all_of(HIDDEN)), truth(&upstream, HIDDEN));
    let text = get(server.address(), "/metrics").1;
    let invented =
        format!("chainsieve_upstream_invented_logs_total{{upstream=\"{}\"}} 0", upstream.url());
    assert!(text.contains(&invented), "{text}");
}

/// A node that invents logs where sound filters rule them out refutes nothing, and is counted.
#[test]
fn invented_logs_refute_nothing() {
    let upstream = Upstream::of(Block::chain(1, 10));
    let absent = Address::repeat_byte(0x5c);
    let mut invented = upstream.blocks()[3].logs[0].clone();
    invented.log.address = absent;
    upstream.lie(move |method, _, _| {
        let logs = || testkit::eth::json_rpc::Sent::Result(json!([invented]));
        (method == "eth_getLogs").then(logs)
    });
    let (server, _) = start(&upstream, true);
    assert_eq!(logs(&server, &all_of(absent)), json!([]));
    let counted =
        format!("chainsieve_upstream_invented_logs_total{{upstream=\"{}\"}} 1", upstream.url());
    until("a count", || get(server.address(), "/metrics").1.contains(&counted));
    assert!(!lacking(&server));
    assert_eq!(logs(&server, &all_of(absent)), json!([]));
    assert_eq!(
        logs(&server, &all_of(Address::repeat_byte(0x11))).as_array().map(Vec::len),
        Some(6)
    );
}

/// A block that shows it was made up and leaves the chain: the filters are believed again.
#[test]
fn a_block_that_left_the_chain_refutes_nothing() {
    let honest = Block::chain(1, 12);
    let log = Log::new_unchecked(HIDDEN, vec![B256::repeat_byte(1)], Bytes::new());
    let made_up = Block::made_up(honest.get(9), 5, vec![log], Some(&Bloom::ZERO));
    let liar = Upstream::of([&honest[..=9], &[made_up]].concat());
    let upstream = Upstream::of(honest);
    upstream.set_head(9);
    let (server, _) = start(&upstream, true);
    upstream.reorganise_to(&liar);
    let number = |number: u64| server.head().is_some_and(|head| head.number == number);
    until("the made-up block", || number(10));
    let latest = json!({ "fromBlock": "0xa", "address": HIDDEN });
    logs(&server, &latest);
    until("receipts", || lacking(&server));
    upstream.be_honest();
    upstream.set_head(11);
    until("the chain", || number(11));
    // Only its filter says that a block has nothing of this address, without its receipts.
    upstream.take_calls();
    let absent = json!({ "fromBlock": "0x0", "address": Address::repeat_byte(0x5c) });
    assert_eq!(logs(&server, &absent), json!([]));
    let asked = upstream.take_calls();
    assert!(!asked.iter().any(|method| method.contains("Receipts")), "{asked:?}");
}
