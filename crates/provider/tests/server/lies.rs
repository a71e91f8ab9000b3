//! Nodes that lie in every way: an answer that leaves the endpoint is the one of the chain's own
//! blocks, or an error.
//!
//! `CHAINSIEVE_EXCHANGES=COUNT` sets the number of exchanges with a lie (300 unless given).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chainsieve::alloy_primitives::{Bytes, hex, keccak256};
use chainsieve::eth::header::HeaderBuf;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve_provider::AnchorSource;
use serde_json::{Value, json};
use testkit::Rng;
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::final_blocks::FinalBlocks;
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::Corpus;

use crate::anchored::light_client;
use crate::upstream::{Block, Upstream, ask, get};
use testkit::TestFolder;

use crate::{endpoint, forgetful, started, until};

/// A query, and its logs by brute force over the chain's own blocks.
pub(crate) fn question(rng: &mut Rng, blocks: &[Block]) -> (Value, Vec<Value>) {
    let last = blocks.last().expect("blocks").number;
    let from = rng.below(usize::try_from(last).expect("small")) as u64;
    let to = (from + rng.below(60) as u64).min(last);
    let logs: Vec<_> = blocks.iter().flat_map(|block| &block.logs).collect();
    let like = rng.pick(&logs);
    let mut filter = json!({ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}") });
    if rng.below(2) == 0 {
        filter["address"] = json!(like.log.address);
    }
    let topics = like.log.topics();
    if rng.below(2) == 0 && !topics.is_empty() {
        filter["topics"] = json!([topics[0]]);
    }
    let query = LogQuery::from_json(&filter.to_string(), Semantics::Geth).expect("a query");
    let in_range = logs.iter().filter(|log| (from..=to).contains(&log.block_number));
    let matching = in_range.filter(|log| query.matches(&log.log, Semantics::Geth));
    let expected = matching.map(|log| serde_json::to_value(log).expect("JSON")).collect();
    (filter, expected)
}

/// Changes one leaf of a JSON value: a bit of hex, a truth value, or it becomes null.
fn change_leaf(rng: &mut Rng, value: &mut Value) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let name = rng.pick(&names);
            if rng.below(20) == 0 {
                members.remove(name);
            } else {
                change_leaf(rng, members.get_mut(name).expect("a member"));
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let at = rng.below(list.len());
            match rng.below(8) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                2 => list.swap(0, at),
                _ => change_leaf(rng, &mut list[at]),
            }
        }
        Value::String(text) if text.starts_with("0x") && text.len() > 2 => {
            let mut digits = text.as_bytes()[2..].to_vec();
            let at = rng.below(digits.len());
            digits[at] = *rng.pick(b"0123456789abcdef");
            *text = format!("0x{}", String::from_utf8(digits).expect("hex"));
        }
        other => *other = rng.pick(&[json!(null), json!("0x1"), json!([]), json!(true)]).clone(),
    }
}

/// Returns a false answer in place of the honest one.
fn false_answer(rng: &mut Rng, method: &str, honest: &Value, blocks: &[Block]) -> Sent {
    let other = rng.pick(blocks);
    match rng.below(12) {
        0 => Sent::Result(Value::Null),
        1 => Sent::Result(json!([])),
        2 => Sent::Error(-32000, "header not found"),
        3 => Sent::Status(502),
        4 => Sent::Result(json!({ "unexpected": 1 })),
        // What is true of another block.
        5 if method == "debug_getRawHeader" => {
            Sent::Result(json!(hex::encode_prefixed(&other.header)))
        }
        5 if method == "eth_getTransactionReceipt" => {
            Sent::Result(json!({ "blockHash": other.hash }))
        }
        _ => {
            let mut changed = honest.clone();
            for _ in 0..=rng.below(2) {
                change_leaf(rng, &mut changed);
            }
            Sent::Result(changed)
        }
    }
}

/// Lets an upstream lie in one of `every` answers.
fn lies(upstream: &Upstream, seed: u64, every: usize, told: &Arc<AtomicU64>) {
    let rng = std::sync::Mutex::new(Rng::new(seed));
    let (own, told) = (upstream.clone(), Arc::clone(told));
    upstream.lie(move |method, _, honest| {
        let mut rng = rng.lock().expect("no panic");
        let Sent::Result(honest) = honest else { return None };
        if method == "eth_chainId" || rng.below(every) > 0 {
            return None;
        }
        told.fetch_add(1, Ordering::Relaxed);
        Some(false_answer(&mut rng, method, honest, own.blocks()))
    });
}

fn exchanges() -> u64 {
    std::env::var("CHAINSIEVE_EXCHANGES").map_or(300, |count| count.parse().expect("a number"))
}

/// Asks until enough lies were told. Returns the numbers of right answers and of errors. Each round has an
/// anchor of its own, and an index that goes on with that of the round before, if it has one.
fn run<A: AnchorSource + 'static>(
    upstreams: &[&Upstream],
    anchor: impl Fn() -> A,
    seed: u64,
) -> [u64; 2] {
    let index = TestFolder::absent(&format!("lies-{seed}"));
    let told = Arc::new(AtomicU64::new(0));
    let blocks = upstreams[0].blocks();
    let mut rng = Rng::new(seed);
    let [mut right, mut refused, mut with_index] = [0, 0, 0];
    let mut round = 0;
    while told.load(Ordering::Relaxed) < exchanges() || round < 12 {
        upstreams[0].be_honest();
        let mut limits = forgetful();
        if round % 4 < 2 {
            // Room for some blocks, so that receipts and transactions come together.
            limits.memory = 1 << 16;
        }
        let mut builder = endpoint(upstreams, anchor()).limits(limits).without_comparison();
        if round % 2 == 0 {
            builder = builder.index(index.path()).index_from(0);
        }
        let server = started(builder);
        let is_indexed = || !get(server.address(), "/health").1.contains("\"index\":null");
        if round == 0 {
            until("an index", is_indexed);
        }
        round += 1;
        lies(upstreams[0], seed + round, *rng.pick(&[1, 30, 300, 1000]), &told);
        for _ in 0..20 {
            let (filter, expected) = question(&mut rng, blocks);
            let answer = ask(server.address(), "eth_getLogs", &json!([filter]));
            if let Value::Array(logs) = &answer["result"] {
                assert_eq!(logs, &expected, "seed {seed}, round {round}: {filter}");
                right += 1;
            } else {
                assert!(answer["error"]["code"].is_i64(), "{answer}");
                refused += 1;
            }
            // One block, by its hash, and a receipt of it.
            let block = rng.pick(blocks);
            let filter = json!([{ "blockHash": block.hash }]);
            let answer = ask(server.address(), "eth_getLogs", &filter);
            if let Value::Array(logs) = &answer["result"] {
                assert_eq!(json!(logs), json!(block.logs), "round {round}: block {}", block.number);
            }
            let number = format!("{:#x}", block.number);
            let answer = ask(server.address(), "eth_getBlockByNumber", &json!([number, false]));
            if answer["error"].is_null() {
                // The block is on the chain: no answer may say that it does not exist.
                let found = &answer["result"];
                assert_eq!(found["hash"], json!(block.hash), "block {}", block.number);
                assert_eq!(found["transactions"], json!(block.hashes), "block {}", block.number);
            }
            let answer = ask(server.address(), "eth_getBlockReceipts", &json!([number]));
            if answer["error"].is_null() {
                let receipts = answer["result"].as_array().expect("receipts");
                let hashes: Vec<_> = receipts.iter().map(|of| &of["transactionHash"]).collect();
                assert_eq!(json!(hashes), json!(block.hashes), "block {}", block.number);
                let logs = receipts.iter().flat_map(|of| of["logs"].as_array().expect("logs"));
                let logs: Vec<_> = logs.collect();
                assert_eq!(json!(logs), json!(block.logs), "block {}", block.number);
            }
            if let Some(hash) = block.hashes.first() {
                let answer = ask(server.address(), "eth_getTransactionReceipt", &json!([hash]));
                let receipt = &answer["result"];
                if receipt.is_object() {
                    assert_eq!(receipt["blockHash"], json!(block.hash));
                    let of_first = block.logs.iter().filter(|log| log.transaction_index == 0);
                    assert_eq!(receipt["logs"], json!(of_first.collect::<Vec<_>>()));
                }
                let answer = ask(server.address(), "eth_getRawTransactionByHash", &json!([hash]));
                if let Some(raw) = answer["result"].as_str() {
                    assert_eq!(keccak256(raw.parse::<Bytes>().expect("hex")), *hash);
                }
            }
            let answer = ask(server.address(), "eth_getHeaderByNumber", &json!([number]));
            if answer["error"].is_null() {
                let header = HeaderBuf::from_json(&answer["result"].to_string());
                assert_eq!(header.expect("a header").hash(), block.hash);
            }
        }
        with_index += u64::from(is_indexed());
    }
    assert!(with_index > 1, "the index was used in {with_index} rounds of {round}");
    [right, refused]
}

#[test]
fn a_liar_alone_gets_no_false_answer_through() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    let [right, refused] = run(&[&upstream], || chain.run.tip(), 1);
    assert!(right > 10 && refused > 10, "{right} {refused}");
}

#[test]
fn an_honest_second_node_answers_for_the_liar() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let (liar, honest) = (Upstream::start(chain), Upstream::start(chain));
    let [right, refused] = run(&[&liar, &honest], || chain.run.tip(), 2);
    assert!(right > 10, "{right} {refused}");
    assert!(refused * 1000 <= right, "{refused} of {right} were refused");
}

/// The head is that of a light client, whose beacon node may stop to answer.
#[test]
fn a_liar_beside_a_light_client_gets_no_false_answer_through() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let (liar, honest) = (Upstream::start(chain), Upstream::start(chain));
    let tip = &liar.blocks().last().expect("blocks").header;
    let mut blocks = FinalBlocks::new(false);
    let network = blocks.world.network.clone();
    let beacon = BeaconServer::start(&network, blocks.finalise(tip));
    let client = || light_client(&blocks, &beacon);
    let [right, refused] = run(&[&liar], client, 3);
    assert!(right > 10 && refused > 10, "{right} {refused}");
    let [right, refused] = run(&[&liar, &honest], client, 4);
    assert!(right > 10, "{right} {refused}");
    assert!(refused * 1000 <= right, "{refused} of {right} were refused");
}
