//! Soak test of `eth follow` against anvil, behind a proxy that fails at times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use chainsieve_conformance::serve::json_rpc::Fate;
use serde_json::{Value, json};

use super::watched::Watched;
use super::{Figures, Times};
use crate::anvil::Anvil;
use crate::ethereum::{Chain, STEPS};
use crate::follow::{answered, kept};
use crate::harness::{Scene, rpc_proxy};
use testkit::Rng;

/// One in this number of requests fails.
const FAILING: u64 = 25;

pub(super) fn run(scene: &Scene, times: Times, seed: u64) -> Figures {
    let mut rng = Rng::new(seed ^ 0xe7);
    let mut figures = Figures::default();
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, seed);
    let requests = AtomicU64::new(seed);
    let proxy = rpc_proxy(node.rpc(), move |_, _, _| {
        match Rng::new(requests.fetch_add(1, Ordering::Relaxed)).u64() % (3 * FAILING) {
            0 => Fate::Status(503),
            1 => Fate::Status(429),
            2 => Fate::Closed,
            _ => Fate::Answered,
        }
    });
    let (url, state) = (proxy.url(), scene.path("follow-state"));
    let arguments = [
        "eth",
        "follow",
        "--rpc",
        &url,
        "--from",
        "0",
        "--poll",
        "0.1",
        "--retries",
        "20",
        "--cursor",
        state.to_str().expect("text"),
        "--json",
    ];
    let mut follower = Watched::start(scene, "eth follow", &arguments);
    while !times.is_over() {
        match rng.below(20) {
            0..=11 => {
                chain.mine(&node, *rng.pick(&STEPS));
                figures.add("blocks of Ethereum", 1);
            }
            12..=14 => {
                chain.reorganise(&node, 1 + rng.below(5) as u64);
                figures.add("reorganisations", 1);
            }
            15..=16 if times.is_first_third() => {
                follower.kill();
                figures.add("kills of eth follow", 1);
            }
            17 => {
                follower.resume(scene);
                compare(&mut follower, &node);
            }
            _ => {
                follower.resume(scene);
                catch_up(&mut follower, &node);
                if !times.is_first_third() {
                    follower.weigh();
                }
            }
        }
    }
    // Compare the logs once more. After the end of the command, the lines must still give the same
    // result.
    follower.resume(scene);
    compare(&mut follower, &node);
    let lines = follower.end();
    let logs = check(&lines, &follower, &node);
    figures.add("log lines", lines.iter().filter(|line| line["kind"] == "log").count());
    figures.add("logs that stand", logs.len());
    figures.add("calls", proxy.calls().values().sum());
    figures
}

fn catch_up(follower: &mut Watched, node: &Anvil) {
    let (head, hash) = (node.height(), json!(node.hash_at(node.height())));
    follower.wait_for_newest(
        |line: &Value| line["kind"] == "checkpoint",
        |newest| newest["block"] == head && newest["hash"] == hash,
    );
}

fn compare(follower: &mut Watched, node: &Anvil) {
    catch_up(follower, node);
    check(&follower.lines(), follower, node);
}

/// Checks that the logs are those of the node, and returns them.
///
/// If the transactions of blocks can't be had three times in a row, their logs are delivered with
/// claimed transaction hashes. The claims must be true here, few, and each block must be noted.
fn check(lines: &[Value], follower: &Watched, node: &Anvil) -> BTreeMap<(String, u64), Value> {
    let (mut kept, mut unproven) = (kept(lines), BTreeSet::new());
    let blocks: BTreeSet<_> = kept.keys().map(|(block, _)| block.clone()).collect();
    for ((block, _), log) in &mut kept {
        let log = log.as_object_mut().expect("an object");
        if let Some(claim) = log.remove("claimedTransactionHash") {
            log.insert("transactionHash".into(), claim);
            unproven.insert(block.clone());
        }
    }
    assert_eq!(kept, answered(node, &json!({ "fromBlock": "0x0" })));
    let log = follower.log();
    let notes =
        log.lines().filter_map(|line| line.split_once(": transaction hashes are not proven"));
    let noted = notes.map(|(blocks, _)| {
        let more = blocks.split_once(" and ").and_then(|(_, more)| more.split_once(" more blocks"));
        1 + more.map_or(0, |(more, _)| more.parse::<usize>().expect("a number"))
    });
    assert!(unproven.len() <= noted.sum(), "{unproven:?} in\n{log}");
    assert!(unproven.len() <= 3 + blocks.len() / 20, "{unproven:?} of {} blocks", blocks.len());
    kept
}
