//! `eth index build --rpc`, `query` and `eth scan --rpc` against anvil.

use std::collections::BTreeSet;

use chainsieve::alloy_primitives::Bloom;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{Anvil, number};
use crate::command;
use crate::ethereum::{Chain, Query, STEPS, Step};
use crate::follow::EXACT;
use crate::harness::{Scene, live};
use crate::peers::Need;

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Anvil];
    vec![live(
        "anvil_index_has_every_block_with_logs_before_and_after_a_reorganisation",
        needs,
        index,
    )]
}

fn index(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 5);
    for step in STEPS {
        chain.mine(&node, step);
    }
    node.mine(300);
    for step in STEPS {
        chain.mine(&node, step);
    }
    let folder = scene.path("index");
    let folder = folder.to_str().expect("text");
    let url = node.rpc().url().to_owned();
    let build = [
        "eth",
        "index",
        "build",
        folder,
        "--rpc",
        &url,
        "--from",
        "0",
        "--block-hashes",
        "--label",
        "anvil",
    ];
    let ended = command::run(scene, &[&build[..], &["--json"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let head = node.height();
    let report = ended.lines().pop().expect("a report");
    assert_eq!(report["added"], head + 1, "{report}");
    assert_eq!(report["last_hash"], json!(node.hash_at(head)), "{report}");
    compare(scene, &node, &chain, folder);

    // The chain changes to another branch, which then grows: the old blocks above the fork are
    // removed and listed.
    let old: BTreeSet<_> = (head - 2..=head).map(|number| node.hash_at(number)).collect();
    chain.reorganise(&node, 3);
    chain.mine(&node, Step::Several(3));
    let append = ["eth", "index", "build", folder, "--rpc", &url, "--json"];
    let ended = command::run(scene, &append);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = ended.lines().pop().expect("a report");
    assert_eq!((&report["added"], &report["removed_blocks"]), (&json!(4), &json!(3)), "{report}");
    let removed: BTreeSet<_> = report["removed"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| serde_json::from_value(block["hash"].clone()).expect("a hash"))
        .collect();
    assert_eq!(removed, old);
    compare(scene, &node, &chain, folder);
}

/// Checks that the candidates are exactly the blocks whose bloom may match the query, as tested
/// with alloy. The candidates include all blocks in which the node has logs.
fn compare(scene: &Scene, node: &Anvil, chain: &Chain, folder: &str) {
    let head = node.height();
    let bloom = |number| serde_json::from_value(node.block(number)["logsBloom"].clone());
    let blooms: Vec<(u64, Bloom)> =
        (0..=head).map(|number| (number, bloom(number).expect("a filter"))).collect();
    for query in Query::all(chain) {
        let flags = query.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let asked = ["eth", "index", "query", folder, "--json"];
        let ended = command::run(scene, &[&asked[..], &flags].concat());
        let lines = ended.lines();
        let (_, candidates) = lines.split_last().expect("a report");
        assert_eq!(ended.code, i32::from(candidates.is_empty()), "{}", ended.stderr);
        let candidates: BTreeSet<u64> = candidates
            .iter()
            .map(|line| {
                let number = line["number"].as_u64().expect("a number");
                assert_eq!(line["hash"], json!(node.hash_at(number)));
                number
            })
            .collect();
        let with_logs: BTreeSet<u64> = node
            .logs(&query.filter(0, head))
            .iter()
            .map(|log: &Value| number(&log["blockNumber"]))
            .collect();
        assert!(candidates.is_superset(&with_logs), "{query:?}: {with_logs:?} of {candidates:?}");
        let in_filter = blooms.iter().filter(|(_, bloom)| query.may_be_in(bloom));
        assert_eq!(candidates, in_filter.map(|(number, _)| *number).collect(), "{query:?}");

        // Without an index, a scan of the provider's headers finds the same candidates.
        let (url, anchor, head) =
            (node.rpc().url(), node.hash_at(head).to_string(), head.to_string());
        let asked = ["eth", "scan", "--rpc", url, "--from", "0", "--to", &head, "--unfinalized"];
        let asked = [&asked[..], &EXACT, &["--anchor", &anchor, "--json"], &flags].concat();
        let ended = command::run(scene, &asked);
        let lines = ended.lines();
        let (report, found) = lines.split_last().expect("a report");
        assert_eq!(report["anchored_to"], node.height(), "{report}");
        let found: BTreeSet<u64> =
            found.iter().map(|line| line["number"].as_u64().expect("a number")).collect();
        assert_eq!(found, candidates, "{query:?}: {}", ended.stderr);
    }
}
