//! What a node is accused of: never of what an honest one does while its chain is reorganised.

use std::time::Duration;

use chainsieve_provider::RpcServer;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, Upstream, ask, get};
use crate::{forgetful, provider, started};

/// Number of the block whose logs are asked for.
const ASKED: u64 = 95;

/// Starts an endpoint whose head stays as it is.
fn server(upstream: &Upstream) -> RpcServer {
    let serve = provider(&[upstream]).build().expect("a node").serve();
    let serve = serve.limits(forgetful()).without_comparison();
    started(serve.poll(Duration::from_secs(3600)))
}

/// Returns the number of blocks with wrong receipts that a node is accused of.
fn accused(server: &RpcServer) -> u64 {
    let (_, text) = get(server.address(), "/metrics");
    let counts = text.lines().filter(|line| {
        line.starts_with("chainsieve_upstream_wrong_blocks_total") && line.contains("receipts")
    });
    counts.map(|line| line.rsplit(' ').next().map_or(0, |count| count.parse().expect("one"))).sum()
}

/// A node answers a request for receipts in this way. Returns whether it is accused, after the endpoint
/// refused to give logs.
fn is_accused(
    is_by_hash: bool,
    receipts: impl Fn(&Block) -> Value + Send + Sync + 'static,
) -> bool {
    let mut chain = Block::chain(1, 90);
    let mut branch = chain.clone();
    Block::extend(&mut chain, 1, 10);
    Block::extend(&mut branch, 2, 10);
    let upstream = Upstream::of(chain);
    let server = server(&upstream);
    // Its chain is reorganised. It knows the other branch no more, as many nodes, and has receipts by one
    // method only.
    let other = branch[usize::try_from(ASKED).expect("small")].clone();
    upstream.lie(move |method, params, _| match method {
        "eth_getBlockReceipts" if params[0].as_str().expect("one").len() == 66 => {
            Some(if is_by_hash {
                Sent::Result(receipts(&other))
            } else {
                Sent::Error(-32000, "not by hash")
            })
        }
        "eth_getBlockReceipts" => Some(Sent::Result(receipts(&other))),
        "debug_getRawReceipts" | "eth_getTransactionReceipt" => {
            Some(Sent::Error(-32000, "no such method"))
        }
        _ => None,
    });
    let number = format!("{ASKED:#x}");
    let query = json!([{ "fromBlock": number, "toBlock": number }]);
    let answer = ask(server.address(), "eth_getLogs", &query);
    assert!(answer["result"].is_null(), "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "no_receipts", "{answer}");
    accused(&server) > 0
}

/// A request by number is answered by the receipts of the new block.
#[test]
fn receipts_of_another_block_accuse_nobody() {
    assert!(!is_accused(false, Block::typed_receipts), "their blockHash says so");
    let without_hash = |block: &Block| {
        let mut receipts = block.typed_receipts();
        receipts[0].as_object_mut().expect("a receipt").remove("blockHash");
        receipts
    };
    assert!(!is_accused(false, without_hash), "nothing says which block");
    assert!(!is_accused(false, |_| json!([])), "the new block is empty");
}

/// Receipts that claim to be of the right block are a lie.
#[test]
fn false_receipts_of_the_block_accuse() {
    // The block of the chain that the endpoint follows, as each test makes it.
    let chain = Block::chain(1, 100);
    let asked = chain[usize::try_from(ASKED).expect("small")].clone();
    let altered = move |_: &Block| {
        let mut receipts = asked.typed_receipts();
        receipts[0]["logs"].as_array_mut().expect("logs").pop();
        receipts
    };
    assert!(is_accused(false, altered.clone()), "by number");
    assert!(is_accused(true, altered), "by hash");
    assert!(is_accused(true, |_| json!([])), "none, by hash");
}
