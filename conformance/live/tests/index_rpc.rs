//! Tests `eth index build --rpc` on anvil: whatever happens during the build, the index must equal one that is built from a file of anvil's headers.

use std::fs;
use std::path::PathBuf;

use chainsieve_conformance::serve::json_rpc::Fate;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::anvil::Anvil;
use crate::command::{Ended, Running, run};
use crate::ethereum::{Chain, STEPS, Step};
use crate::follow::{EXACT, answered, kept};
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        live("eth_index_build_has_what_the_node_has", &[Need::Anvil], build),
        live("eth_index_build_takes_reorganisations_back", &[Need::Anvil], reorganisations),
    ]
}

/// Keeps anvil from writing the states of thousands of blocks to disk, which takes minutes.
const STATES: [&str; 2] = ["--prune-history", "400"];
/// Number of blocks in a section.
const SECTION: u64 = 8192;

/// Writes a file with all headers, as the node returns them one by one.
fn headers_file(scene: &Scene, node: &Anvil) -> PathBuf {
    let path = scene.path("headers.json");
    let numbers: Vec<u64> = (0..=node.height()).collect();
    let mut text = String::new();
    for numbers in numbers.chunks(500) {
        let calls: Vec<Value> = numbers
            .iter()
            .map(|number| {
                let parameters = json!([format!("{number:#x}"), false]);
                json!({ "jsonrpc": "2.0", "id": number, "method": "eth_getBlockByNumber", "params": parameters })
            })
            .collect();
        let (_, answer) = node.rpc().post(&json!(calls).to_string()).expect("an answer");
        let mut answers: Vec<Value> = serde_json::from_str(&answer).expect("a batch");
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers.len(), numbers.len());
        for answer in answers {
            text += &answer["result"].to_string();
            text.push('\n');
        }
    }
    fs::write(&path, text).expect("written");
    path
}

/// Returns the last line of a successful command.
fn last(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.lines().last().expect("a last line").clone()
}

/// Compares every bit of the index with the node's headers.
fn verify(scene: &Scene, node: &Anvil, index: &str) {
    let headers = headers_file(scene, node);
    let ended =
        run(scene, &["--json", "eth", "index", "verify", index, headers.to_str().expect("a path")]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let verified: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(verified["compared"]["blocks"], json!(node.height() + 1), "{verified}");
}

/// Indexes a chain longer than a section; the build is killed once, interrupted once, and then
/// finished.
fn build(scene: &Scene) {
    let node = Anvil::start(scene, &STATES);
    let mut chain = Chain::begin(&node, 21);
    for step in STEPS {
        chain.mine(&node, step);
        node.mine(400);
    }
    node.mine(SECTION + 500 - node.height());
    for step in [Step::Several(3), Step::EveryAddress, Step::Full(40)] {
        chain.mine(&node, step);
    }
    let index = scene.path("index");
    let index = index.to_str().expect("a path");
    let url = node.rpc().url().to_owned();
    let arguments = [
        "--json",
        "eth",
        "index",
        "build",
        index,
        "--label",
        "anvil",
        "--block-hashes",
        "--batch",
        "50",
        "--sync-every",
        "100",
        "--rpc",
        &url,
    ];
    let mut building = Running::start(scene, &arguments);
    building.wait("synced blocks", |lines| (lines.last()?["number"].as_u64()? > 300).then_some(()));
    let lines = building.kill();
    let synced = lines.last().expect("a line")["number"].as_u64().expect("a number");
    assert!(synced < node.height(), "killed before the end");

    let mut building = Running::start(scene, &arguments);
    building.wait("more blocks", |lines| {
        (lines.last()?["number"].as_u64()? > synced + 100).then_some(())
    });
    let (code, lines, log) = building.interrupt();
    assert_eq!(code, Some(0), "{log}");
    let stopped = lines.last().expect("a last line").clone();
    let first = lines[0]["number"].as_u64().expect("a number");
    assert!(first > synced, "the build continues after the synced blocks");
    if stopped["last"].as_u64() < Some(node.height()) {
        assert!(stopped["warnings"][0].as_str().is_some_and(|words| words.contains("stopped at")));
    }

    let built = last(&run(scene, &arguments));
    assert_eq!(built["last"], json!(node.height()));
    assert_eq!(built["last_hash"], json!(node.hash_at(node.height())));
    let before = stopped["last"].as_u64().expect("a number");
    assert_eq!(built["added"], json!(node.height() - before));
    verify(scene, &node, index);

    // The candidates are the same as those of a scan of the headers.
    let headers = scene.path("headers.json");
    let headers = headers.to_str().expect("a path");
    let address = chain.runners[0].to_string();
    let candidates = |arguments: &[&str]| -> Vec<(Value, Value)> {
        let ended = run(scene, arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let lines = ended.lines();
        let (_, lines) = lines.split_last().expect("a last line");
        lines.iter().map(|line| (line["number"].clone(), line["hash"].clone())).collect()
    };
    let scanned = candidates(&["--json", "eth", "scan", headers, "--address", &address]);
    assert!(!scanned.is_empty());
    assert_eq!(
        candidates(&["--json", "eth", "index", "query", index, "--address", &address]),
        scanned
    );

    follow_by(scene, &node, index, &address);

    // Without new blocks, nothing is added. Then an index of a given range is built, and a
    // range beyond the head is requested.
    assert_eq!(last(&run(scene, &arguments))["added"], json!(0));
    let other = scene.path("other");
    let other = other.to_str().expect("a path");
    let part = [
        "--json", "eth", "index", "build", other, "--label", "anvil", "--rpc", &url, "--from",
        "40", "--to", "90",
    ];
    let built = last(&run(scene, &part));
    assert_eq!((&built["first"], &built["last"]), (&json!(40), &json!(90)));
    let beyond = run(
        scene,
        &["eth", "index", "build", other, "--label", "anvil", "--rpc", &url, "--to", "1000000"],
    );
    assert_eq!(beyond.code, 5);
    assert!(beyond.stderr.contains("--to is 1000000"), "{}", beyond.stderr);
    // The chain label contradicts the provider's chain id.
    let fresh = scene.path("fresh");
    let fresh = fresh.to_str().expect("a path");
    let mainnet = run(scene, &["eth", "index", "build", fresh, "--rpc", &url]);
    assert_eq!(mainnet.code, 5);
    assert!(mainnet.stderr.contains("chain id is 31337"), "{}", mainnet.stderr);
}

/// `eth follow` with an index prints the logs that the node returns, and requests few headers.
fn follow_by(scene: &Scene, node: &Anvil, index: &str, address: &str) {
    let proxy = rpc_proxy(node.rpc(), |_, _, _| Fate::Answered);
    let url = proxy.url();
    let anchor = node.hash_at(5).to_string();
    for from in ["0", "4000"] {
        let mut arguments = vec![
            "--json",
            "eth",
            "follow",
            "--once",
            "--from",
            from,
            "--index",
            index,
            "--keep",
            "100",
            "--address",
            address,
            "--rpc",
            &url,
            "--anchor",
            &anchor,
        ];
        arguments.extend(EXACT);
        let ended = run(scene, &arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let lines = ended.lines();
        assert_eq!(lines[0]["index_to"], json!(node.height() - 100));
        assert_eq!((&lines[1]["kind"], &lines[1]["number"]), (&json!("anchor"), &json!(5)));
        let from: u64 = from.parse().expect("a number");
        let filter =
            json!({ "fromBlock": format!("{from:#x}"), "address": address.to_lowercase() });
        let logs = answered(node, &filter);
        assert!(!logs.is_empty());
        assert_eq!(kept(&lines), logs);
        assert_eq!(lines.last().expect("a last line")["last"], json!(node.height()));
    }
    let asked = proxy.calls()["eth_getBlockByNumber"];
    assert!(asked < 300, "{asked} headers were requested by number in two runs");
    // The provider returns a wrong header for an old block.
    let other = node.hash_at(6).to_string();
    let lying = rpc_proxy(node.rpc(), |method, parameters, answer| {
        if method == "eth_getBlockByHash" && parameters[1] == json!(false) {
            answer["result"]["number"] = json!("0x5");
        }
        Fate::Answered
    });
    let url = lying.url();
    let ended = run(
        scene,
        &[
            "eth", "follow", "--once", "--from", "0", "--index", index, "--rpc", &url, "--anchor",
            &other,
        ],
    );
    assert_eq!(ended.code, 5);
    assert!(ended.stderr.contains("the fields hash to"), "{}", ended.stderr);
    // Without `--assume-bloom`, blooms of an unknown chain prove nothing.
    let url = node.rpc().url().to_owned();
    let ended =
        run(scene, &["eth", "follow", "--once", "--from", "0", "--index", index, "--rpc", &url]);
    assert_eq!(ended.code, 5);
    assert!(ended.stderr.contains("proves nothing"), "{}", ended.stderr);
}

fn reorganisations(scene: &Scene) {
    let node = Anvil::start(scene, &STATES);
    let mut chain = Chain::begin(&node, 22);
    node.mine(SECTION + 40 - node.height());
    let index = scene.path("index");
    let index = index.to_str().expect("a path");
    let url = node.rpc().url().to_owned();
    let arguments = |command| {
        ["--json", "eth", "index", command, index, "--confirmations", "32", "--rpc", &url]
            .map(str::to_owned)
    };
    let run_it = |command, more: &[&str]| {
        let arguments = arguments(command);
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.extend(more);
        run(scene, &arguments)
    };
    let built = last(&run_it("build", &["--label", "anvil"]));
    assert_eq!(built["sealed_sections"], json!(1));

    for (depth, more) in [(5, &["--label", "anvil"][..]), (20, &[])] {
        let height = node.height();
        let old: Vec<_> =
            (height + 1 - depth..=height).map(|number| node.hash_at(number)).collect();
        node.reorganise(depth, &[]);
        chain.mine(&node, Step::Several(2));
        let built = last(&run_it("build", more));
        let removed = built["removed"].as_array().expect("a list");
        let removed: Vec<_> = removed.iter().map(|block| block["hash"].clone()).collect();
        assert_eq!(removed, old.iter().map(|hash| json!(hash)).collect::<Vec<_>>());
        assert_eq!(built["added"], json!(depth + 1));
        assert_eq!(built["last_hash"], json!(node.hash_at(node.height())));
    }
    verify(scene, &node, index);

    // The headers change while they are fetched, as if from two nodes behind one address.
    let height = node.height();
    node.mine(200);
    let first = std::sync::atomic::AtomicBool::new(true);
    let foreign = node.block(height);
    let changing = rpc_proxy(node.rpc(), move |method, parameters, answer| {
        let wanted = format!("{:#x}", height + 150);
        let once = method == "eth_getBlockByNumber" && parameters[0] == json!(wanted);
        if once && first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            // The header and its hash are genuine, but belong to a block other than the requested
            // one.
            answer["result"] = foreign.clone();
        }
        Fate::Answered
    });
    let ended = run(
        scene,
        &["--json", "eth", "index", "build", index, "--batch", "20", "--rpc", &changing.url()],
    );
    if ended.code != 0 {
        // A header whose number is not the requested one is refused; the headers before it are
        // kept.
        assert_eq!(ended.code, 5);
        assert!(ended.stderr.contains("was requested"), "{}", ended.stderr);
    }
    assert_eq!(last(&run_it("build", &[]))["last"], json!(node.height()));
    verify(scene, &node, index);

    // A reorganisation below the sealed blocks is refused, and changes nothing.
    let before = fs::read_dir(index).expect("a folder").count();
    node.reorganise(node.height() - SECTION + 10, &[]);
    let ended = run_it("build", &[]);
    assert_eq!(ended.code, 5);
    assert!(ended.stderr.contains("lower blocks cannot be removed"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(index).expect("a folder").count(), before);
}
