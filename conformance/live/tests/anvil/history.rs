//! `eth anchor header` against an anvil: another EVM runs the history contract (EIP-2935), and another
//! implementation makes the states and their proofs. A made-up beacon chain finalises anvil's newest
//! block.

use std::fs;

use chainsieve::eth::anchor::history_contract::{ADDRESS, CODE_HASH, SERVE_WINDOW};
use chainsieve::eth::header::HeaderBuf;
use chainsieve_conformance::serve::json_rpc::Fate;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::final_blocks::FinalBlocks;

use super::Anvil;
use crate::command;
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;

pub(super) fn tests() -> Vec<Trial> {
    vec![live("anvil_history_contract_links_earlier_blocks", &[Need::Anvil], earlier_blocks)]
}

/// Number of blocks, unless `CHAINSIEVE_ANVIL_BLOCKS` says otherwise. After 8,191, the contract
/// overwrites its oldest hash with each block.
const BLOCKS: u64 = 300;
/// Number of blocks that are mined by one call.
const MINED: u64 = 50;

fn earlier_blocks(scene: &Scene) {
    let blocks = std::env::var("CHAINSIEVE_ANVIL_BLOCKS");
    let blocks = blocks.map_or(BLOCKS, |blocks| blocks.parse().expect("a number of blocks"));
    let node = Anvil::start(scene, &["--hardfork", "prague"]);
    while node.height() < blocks {
        node.mine(MINED.min(blocks - node.height()));
    }
    let head = node.height();
    let header = HeaderBuf::from_json(&node.block(head).to_string()).expect("a header");
    assert_eq!(header.hash(), node.hash_at(head));

    let mut chain = FinalBlocks::new(false);
    let data = chain.finalise(header.rlp());
    let network = &chain.world.network;
    let file = scene.path("network.json");
    fs::write(&file, serde_json::to_string(network).expect("JSON")).expect("a file");
    let server = BeaconServer::start(network, data);
    let (root, url) = (chain.checkpoint().to_string(), node.rpc().url());
    let run = |url: &str, number: u64| {
        let number = number.to_string();
        let file = file.to_str().expect("UTF-8");
        let light = ["--beacon", server.url(), "--checkpoint", &root, "--network", file];
        let block = ["eth", "anchor", "header", &number, "--rpc", url, "--json"];
        command::run(scene, &[&block[..], &light].concat())
    };
    // The oldest block in the contract, and the one before it, which one parent hash adds.
    let oldest = head.saturating_sub(SERVE_WINDOW);
    let middle = u64::midpoint(oldest, head);
    for number in [head, head - 1, head - 64, middle, oldest + 1, oldest, oldest.saturating_sub(1)]
    {
        let ended = run(url, number);
        let story = format!("block {number} of {head}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, 0, "{story}");
        let verdict = ended.json();
        assert_eq!(verdict["hash"], json!(node.hash_at(number)), "{story}");
        let by: Vec<&str> =
            verdict["by"].as_array().expect("links").iter().filter_map(Value::as_str).collect();
        let expected: &[&str] = match head - number {
            0 => &["the header itself"],
            1 => &["1 parent hash"],
            far if far > SERVE_WINDOW => &["history contract", "1 parent hash"],
            _ => &["history contract"],
        };
        assert_eq!(by, expected, "{story}");
    }

    // A proof without its last node proves nothing: the headers in between are fetched.
    let proof = node.rpc().call("eth_getProof", &json!([ADDRESS, [], "latest"]));
    assert_eq!(proof["codeHash"], json!(CODE_HASH), "{proof}");
    let proxy = rpc_proxy(node.rpc(), |method, _, answer| {
        if method == "eth_getProof" {
            let proof = answer["result"]["storageProof"][0]["proof"].as_array_mut();
            proof.expect("nodes").pop();
        }
        Fate::Answered
    });
    let ended = run(&proxy.url(), middle);
    let verdict = ended.json();
    assert!(proxy.calls()["eth_getProof"] > 0, "{}", ended.stderr);
    assert_eq!((ended.code, &verdict["hash"]), (0, &json!(node.hash_at(middle))));
    let by = verdict["by"][0].as_str().expect("a link");
    assert!(by.ends_with(" parent hashes"), "{by}");
}
