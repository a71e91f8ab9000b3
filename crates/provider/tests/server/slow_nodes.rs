//! A first node that refuses for a while, or never answers, beside one that answers at once: no call
//! waits for it.

use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_provider::{Provider, RpcServer};
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, Upstream, ask};
use crate::{forgetful, started};

/// Seconds that the limited node asks for. A call that waits for it once exceeds [`MOMENT`].
const RETRY_AFTER: u64 = 120;
/// An upper bound of what takes no wait, also on a busy machine.
const MOMENT: Duration = Duration::from_secs(60);
/// Timeout of a request to a node that never answers.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Starts an endpoint over two nodes with the default number of retries. The first one goes on to fail.
fn server(upstreams: [&Upstream; 2]) -> RpcServer {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().profile(profile).trust_head().timeout(TIMEOUT);
    let builder = upstreams.iter().fold(builder, |builder, node| builder.url(&node.url()));
    let serve = builder.build().expect("nodes").serve();
    started(serve.limits(forgetful()).without_comparison().pass_unverified())
}

/// Asks for everything that one node has, and for what nobody has.
fn calls(upstream: &Upstream) -> Vec<(&'static str, Value)> {
    let block = &upstream.blocks()[60];
    let number = format!("{:#x}", block.number);
    vec![
        ("eth_getLogs", json!([{ "fromBlock": number, "toBlock": number }])),
        ("eth_getBlockReceipts", json!([number])),
        ("eth_getBlockByNumber", json!(["latest", true])),
        ("eth_getBlockByHash", json!([block.hash, false])),
        ("eth_getTransactionByHash", json!([block.hashes[0]])),
        ("eth_getTransactionReceipt", json!([block.hashes[0]])),
        // Clients poll for the receipt of a transaction that is in no block yet.
        ("eth_getTransactionReceipt", json!([B256::repeat_byte(1)])),
        ("eth_getTransactionByHash", json!([B256::repeat_byte(1)])),
        ("eth_gasPrice", json!([])),
    ]
}

#[test]
fn no_call_waits_for_a_limited_node() {
    let (limited, good) = (Upstream::of(Block::chain(1, 100)), Upstream::of(Block::chain(1, 100)));
    let server = server([&limited, &good]);
    limited.lie(|_, _, _| Some(Sent::Limited(RETRY_AFTER)));
    limited.take_calls();
    let began = Instant::now();
    for (method, params) in calls(&good) {
        let answer = ask(server.address(), method, &params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
    }
    assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
    // It rests for the time that it asks for. The head may be asked for at the same time.
    let asked = limited.take_calls();
    assert!(asked.len() <= 4, "{asked:?}");
}

/// The first call costs one timeout, and the others none.
#[test]
fn a_hung_node_costs_one_timeout() {
    let (hung, good) = (Upstream::of(Block::chain(1, 100)), Upstream::of(Block::chain(1, 100)));
    let server = server([&hung, &good]);
    hung.lie(|_, _, _| {
        loop {
            std::thread::park();
        }
    });
    hung.take_calls();
    let began = Instant::now();
    for _ in 0..20 {
        for (method, params) in calls(&good) {
            let answer = ask(server.address(), method, &params);
            assert!(answer["error"].is_null(), "{method}: {answer}");
        }
    }
    assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
    let asked = hung.take_calls();
    assert!(asked.len() <= 8, "{asked:?}");
}
