//! `btc sync --headers-only` against bcoin: a chain, kills, a reorganisation, a restart of the
//! node.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::Bcoin;
use crate::command::{self, Ended, Running};
use crate::harness::{Scene, live};
use crate::peers::Need;
use crate::regtest::{Branch, Key};

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Bcoin];
    vec![
        live("bcoin_sync_takes_headers_through_kills_and_a_reorganisation", needs, headers),
        live("bcoin_sync_says_that_no_peer_has_compact_filters", needs, no_filters),
    ]
}

/// Runs `btc sync` with additional arguments.
fn run(scene: &Scene, node: &Bcoin, more: &[&str]) -> Ended {
    let (data, peer) = (scene.path("data"), node.address().to_string());
    let data = data.to_str().expect("text");
    let always = ["btc", "sync", "--network", "regtest", "--data", data, "--peer", &peer, "--json"];
    command::run(scene, &[always.as_slice(), more].concat())
}

/// Syncs the headers to the end, and returns the report.
fn sync(scene: &Scene, node: &Bcoin) -> Value {
    let ended = run(scene, node, &["--headers-only"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(report["ended"], "caught_up", "{report}");
    report
}

fn assert_is_at(report: &Value, node: &Bcoin) {
    let (height, tip) = (node.height(), node.tip());
    assert_eq!(report["tip"]["height"], height, "{report}");
    assert_eq!(report["tip"]["block"], json!(tip.to_string()), "{report}");
    // Each regtest block has a work of two hashes.
    let work = report["work"].as_str().expect("hex").trim_start_matches("0x");
    let work = u64::from_str_radix(work.trim_start_matches('0'), 16).expect("a number");
    assert_eq!(work, 2 * (u64::from(height) + 1), "{report}");
}

fn headers(scene: &Scene) {
    let mut node = Bcoin::on_disk(scene, "chain");
    let mut branch = Branch::begin(&node);
    // The chain gets more headers than one message can contain.
    node.generate(1_700, Key::new(3).hash());
    branch.adopt(&node);
    let (data, peer) = (scene.path("data"), node.address().to_string());
    let data = data.to_str().expect("text");
    let arguments =
        ["btc", "sync", "--headers-only", "--network", "regtest", "--data", data, "--peer", &peer];
    for polls in 0..4 {
        // Kill the command at different points: before the first header, or after the first headers
        // message.
        let killed = Running::start(scene, &arguments);
        for _ in 0..polls {
            // The command continues to run during one round trip to the node.
            assert!(node.height() > 0);
        }
        killed.kill();
    }
    assert_is_at(&sync(scene, &node), &node);
    assert_is_at(&sync(scene, &node), &node);

    let mut other = branch.fork();
    for _ in 0..3 {
        node.submit(&branch.mine(Vec::new()));
    }
    assert_is_at(&sync(scene, &node), &node);
    for _ in 0..4 {
        node.submit(&other.mine(Vec::new()));
    }
    assert_eq!(node.tip(), other.tip());
    assert_is_at(&sync(scene, &node), &node);
    node.stop();
    node.restart(scene);
    node.submit(&other.mine(Vec::new()));
    assert_is_at(&sync(scene, &node), &node);
}

/// bcoin does not serve BIP157: the command reports that, and claims nothing.
fn no_filters(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    node.generate(5, Key::new(3).hash());
    let ended = run(scene, &node, &["--give-up", "3"]);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(report["ended"], "gave_up", "{report}");
    // The filter of the genesis block needs no peer, so the command may process this block before
    // it gives up.
    assert_eq!(report["answered_to"].as_u64().unwrap_or(0), 0, "{report}");
}
