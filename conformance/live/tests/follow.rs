//! Tests `eth follow` on anvil. The node's answer to `eth_getLogs` is the expected result. However
//! a provider or the process fails, the command must print that result or an error.

use std::collections::BTreeMap;

use chainsieve::alloy_primitives::B256;
use chainsieve_conformance::serve::json_rpc::Fate;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::anvil::{Anvil, number};
use crate::command::{Running, run};
use crate::ethereum::{Chain, STEPS, Step};
use crate::harness::{Scene, live, rpc_proxy, wait_until};
use crate::peers::Need;
use testkit::Rng;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        live("eth_follow_prints_what_the_node_has", &[Need::Anvil], past),
        live("eth_follow_takes_back_what_leaves_the_chain", &[Need::Anvil], reorganisations),
        live("eth_follow_goes_on_after_kills", &[Need::Anvil], kills),
        live("eth_follow_waits_for_a_provider_that_is_slow_to_know", &[Need::Anvil], slow_to_know),
        live("eth_follow_prints_nothing_of_what_is_not_proven", &[Need::Anvil], lies),
        live("eth_follow_ends_where_a_reorganisation_is_too_deep", &[Need::Anvil], too_deep),
    ]
}

/// Flags that declare the blooms exact, because anvil builds blooms by geth's rules.
pub(crate) const EXACT: [&str; 4] = ["--assume-bloom", "exact", "--assume-receipts", "every-log"];

/// Returns the logs that a reader has after these lines. If several lines concern the same log,
/// only the last of these lines is used.
pub(crate) fn kept(lines: &[Value]) -> BTreeMap<(String, u64), Value> {
    let mut logs = BTreeMap::new();
    for line in lines.iter().filter(|line| line["kind"] == "log") {
        let mut log = line.clone();
        let fields = log.as_object_mut().expect("an object");
        fields.remove("kind");
        assert_eq!(fields.remove("evidence"), Some(json!("receipts")));
        let removed = fields.insert("removed".into(), json!(false)) == Some(json!(true));
        let hash = line["blockHash"].as_str().expect("a hash").to_owned();
        let key = (hash, number(&line["logIndex"]));
        if removed {
            logs.remove(&key);
        } else {
            logs.insert(key, log);
        }
    }
    logs
}

/// Returns the logs of the node's answer, in the same form as [`kept`].
pub(crate) fn answered(node: &Anvil, filter: &Value) -> BTreeMap<(String, u64), Value> {
    let logs = node.logs(filter).into_iter();
    logs.map(|log| {
        let hash = log["blockHash"].as_str().expect("a hash").to_owned();
        ((hash, number(&log["logIndex"])), log)
    })
    .collect()
}

/// Returns for each log the number of lines that print it, minus the number of lines that remove
/// it.
fn balance(lines: &[Value]) -> BTreeMap<(String, u64), i64> {
    let mut balance = BTreeMap::new();
    for line in lines.iter().filter(|line| line["kind"] == "log") {
        let hash = line["blockHash"].as_str().expect("a hash").to_owned();
        let count = balance.entry((hash, number(&line["logIndex"]))).or_default();
        *count += if line["removed"] == json!(true) { -1 } else { 1 };
        assert!((0..=1).contains(count), "a log is printed once, and is removed once: {line}");
    }
    balance
}

/// Waits until everything up to the node's head is printed.
fn until_head(node: &Anvil, follow: &mut Running) {
    let hash = json!(node.hash_at(node.height()));
    follow.wait("the node's head", |lines| {
        let last = lines.iter().rfind(|line| line["kind"] == "checkpoint")?;
        (last["hash"] == hash).then_some(())
    });
}

/// Runs every query over blocks of every shape, with and without use of the blooms.
fn past(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 11);
    for step in STEPS {
        chain.mine(&node, step);
        node.mine(3);
    }
    let runner = |index: usize| chain.runners[index].to_string();
    let topic = |index: usize| chain.topics[index].to_string();
    let address = runner(0).to_lowercase();
    let queries: [(Vec<String>, Value); 7] = [
        (vec![], json!({})),
        (vec!["--address".into(), runner(0)], json!({ "address": address })),
        (
            vec!["--address".into(), runner(1), "--address".into(), runner(2)],
            json!({ "address": [runner(1).to_lowercase(), runner(2).to_lowercase()] }),
        ),
        (vec!["--topic0".into(), topic(0)], json!({ "topics": [topic(0)] })),
        (vec!["--topic1".into(), topic(1)], json!({ "topics": [null, topic(1)] })),
        (
            vec![
                "--topic0".into(),
                topic(2),
                "--topic2".into(),
                topic(3),
                "--topic2".into(),
                topic(4),
            ],
            json!({ "topics": [topic(2), null, [topic(3), topic(4)]] }),
        ),
        (
            vec!["--address".into(), format!("0x{}", "77".repeat(20))],
            json!({ "address": format!("0x{}", "77".repeat(20)) }),
        ),
    ];
    let mut found = 0;
    for (flags, filter) in &queries {
        let mut receipts = Vec::new();
        for trust in [&[][..], &EXACT[..]] {
            let url = node.rpc().url().to_owned();
            let mut arguments =
                vec!["--json", "eth", "follow", "--once", "--from", "0", "--rpc", &url];
            arguments.extend(flags.iter().map(String::as_str));
            arguments.extend(trust);
            let ended = run(scene, &arguments);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            let lines = ended.lines();
            let mut filter = filter.clone();
            filter["fromBlock"] = json!("0x0");
            let logs = answered(&node, &filter);
            assert_eq!(kept(&lines), logs, "{filter}");
            assert!(balance(&lines).values().all(|&count| count == 1));
            // The lines are in the node's order.
            let printed: Vec<_> = lines
                .iter()
                .filter(|line| line["address"].is_string())
                .map(|line| &line["data"])
                .collect();
            let ordered = node.logs(&filter);
            assert_eq!(printed, ordered.iter().map(|log| &log["data"]).collect::<Vec<_>>());
            found += logs.len();
            let last = lines.last().expect("a last line");
            assert_eq!(last["last"], json!(node.height()));
            assert_eq!(last["last_hash"], json!(node.hash_at(node.height())));
            receipts.push(last["receipts"].as_u64().expect("a count"));
        }
        // Without blooms, the receipts of each block with transactions are fetched. With blooms, at
        // most as many receipts are fetched.
        assert!(receipts[1] <= receipts[0], "{receipts:?}");
        assert!(filter["topics"].is_null() || receipts[1] < receipts[0], "{filter}: {receipts:?}");
    }
    assert!(found > 300, "{found} logs");
}

/// Random reorganisations while the command follows: deep and shallow, to longer and to shorter
/// branches.
fn reorganisations(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 12);
    let url = node.rpc().url().to_owned();
    let mut arguments =
        vec!["--json", "eth", "follow", "--from", "0", "--poll", "0.05", "--rpc", &url];
    arguments.extend(EXACT);
    let mut follow = Running::start(scene, &arguments);
    let mut rng = Rng::new(5);
    let mut reorgs = 0;
    for _ in 0..14 {
        let snapshot = node.rpc().call("evm_snapshot", &json!([]));
        for _ in 0..=rng.below(4) {
            let step = *rng.pick(&STEPS);
            chain.mine(&node, step);
        }
        if rng.below(4) > 0 {
            until_head(&node, &mut follow);
        }
        if rng.below(3) == 0 {
            let depth = 1 + rng.below(5) as u64;
            node.reorganise(depth, &[]);
            reorgs += 1;
        } else {
            // The head moves back, and a new branch, which may be shorter than the old one, grows
            // from this head.
            let height = node.height();
            assert_eq!(node.rpc().call("evm_revert", &json!([snapshot])), json!(true));
            wait_until("the older head", || node.height() < height);
            for _ in 0..=rng.below(3) {
                let step = *rng.pick(&[Step::Several(2), Step::One(2), Step::EveryAddress]);
                chain.mine(&node, step);
            }
            reorgs += 1;
        }
        if rng.below(3) > 0 {
            until_head(&node, &mut follow);
        }
    }
    // Finally, the chain grows far beyond all earlier heads.
    node.mine(20);
    chain.mine(&node, Step::Several(3));
    until_head(&node, &mut follow);
    let (code, lines, log) = follow.interrupt();
    assert_eq!(code, Some(0), "{log}");
    let logs = answered(&node, &json!({ "fromBlock": "0x0" }));
    assert_eq!(kept(&lines), logs);
    assert_eq!(balance(&lines).into_iter().filter(|(_, count)| *count == 1).count(), logs.len());
    let seen = lines.iter().filter(|line| line["kind"] == "reorg").count();
    assert!(reorgs > 10 && seen >= 5, "{seen} of {reorgs} reorganisations were followed");
    // A reorganisation line contains the number of removed logs. One line for each removed log
    // follows.
    let mut left = 0;
    for line in &lines {
        if line["kind"] == "reorg" {
            assert_eq!(left, 0);
            left = line["logs"].as_u64().expect("a number");
        } else if line["removed"] == json!(true) {
            left -= 1;
        } else {
            assert_eq!(left, 0, "{line}");
        }
    }
    let last = lines.last().expect("a last line");
    let removed = lines.iter().filter(|line| line["removed"] == json!(true)).count();
    assert_eq!(last["removed"], json!(removed));
}

/// The command is killed at random moments and started again, while the chain grows and changes.
fn kills(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 13);
    let url = node.rpc().url().to_owned();
    let state = scene.path("state.json");
    let mut arguments = vec![
        "--json",
        "eth",
        "follow",
        "--from",
        "0",
        "--poll",
        "0.05",
        "--cursor",
        state.to_str().expect("a path"),
        "--rpc",
        &url,
    ];
    arguments.extend(EXACT);
    let mut rng = Rng::new(6);
    let mut all: Vec<Value> = Vec::new();
    for round in 0..16 {
        let mut follow = Running::start(scene, &arguments);
        let wanted = 1 + rng.below(12);
        for _ in 0..=rng.below(3) {
            let step = *rng.pick(&STEPS);
            chain.mine(&node, step);
        }
        if rng.below(2) == 0 {
            node.reorganise(1 + rng.below(3) as u64, &[]);
        }
        chain.mine(&node, Step::Several(5));
        // Kill the command after some line, while more lines follow.
        follow.wait("some lines", |lines| (lines.len() >= wanted).then_some(()));
        if round % 3 == 0 {
            until_head(&node, &mut follow);
        }
        all.extend(follow.kill());
        // The blocks printed last may be reorganised away while the command is not running.
        if rng.below(2) == 0 {
            node.reorganise(1 + rng.below(4) as u64, &[]);
            chain.mine(&node, Step::One(3));
        }
    }
    // Mine a new block, as nothing is printed for a head that an earlier run has already printed.
    chain.mine(&node, Step::Several(2));
    let mut follow = Running::start(scene, &arguments);
    until_head(&node, &mut follow);
    let (code, lines, log) = follow.interrupt();
    assert_eq!(code, Some(0), "{log}");
    assert!(lines[0]["resumed"].is_u64(), "{}", lines[0]);
    all.extend(lines);
    assert_eq!(kept(&all), answered(&node, &json!({ "fromBlock": "0x0" })));

    // The same cursor file is refused for another query.
    arguments.extend([
        "--topic0",
        "any",
        "--topic1",
        "0x0101010101010101010101010101010101010101010101010101010101010101",
    ]);
    let other = run(scene, &arguments);
    assert_eq!(other.code, 5);
    assert!(other.stderr.contains("--cursor belongs to the query"), "{}", other.stderr);
}

/// Heads that move back, and late headers and receipts: no log is lost, and none is removed.
fn slow_to_know(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 14);
    for step in STEPS {
        chain.mine(&node, step);
    }
    let calls = std::sync::atomic::AtomicU64::new(0);
    let proxy = rpc_proxy(node.rpc(), move |method, parameters, answer| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match method {
            // Some nodes behind the address lag behind the others.
            "eth_getBlockReceipts" if call.is_multiple_of(3) => answer["result"] = json!(null),
            "eth_getBlockByNumber" if parameters[0] != "latest" && call.is_multiple_of(5) => {
                answer["result"] = json!(null);
            }
            "eth_getBlockByNumber" if call.is_multiple_of(7) => return Fate::Status(503),
            _ => {}
        }
        Fate::Answered
    });
    let url = proxy.url();
    let mut arguments = vec![
        "--json", "eth", "follow", "--from", "0", "--poll", "0.05", "--batch", "3", "--rpc", &url,
    ];
    arguments.extend(EXACT);
    let mut follow = Running::start(scene, &arguments);
    until_head(&node, &mut follow);
    for step in [Step::Several(2), Step::Empty, Step::One(1)] {
        chain.mine(&node, step);
        until_head(&node, &mut follow);
    }
    let (code, lines, log) = follow.interrupt();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(kept(&lines), answered(&node, &json!({ "fromBlock": "0x0" })));
    assert!(balance(&lines).values().all(|&count| count == 1));
    assert!(log.contains("again in"), "the log states why the command waits: {log}");
}

/// Tests incomplete receipts, a header with a wrong bloom, and a chain that does not contain the
/// anchor.
fn lies(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 15);
    for step in STEPS {
        chain.mine(&node, step);
    }
    let omitting = rpc_proxy(node.rpc(), |method, _, answer| {
        let omit = |receipt: &mut Value| {
            if let Some(logs) = receipt["logs"].as_array_mut() {
                logs.pop();
            }
        };
        match method {
            "eth_getBlockReceipts" => {
                answer["result"].as_array_mut().into_iter().flatten().for_each(omit);
            }
            "eth_getTransactionReceipt" => omit(&mut answer["result"]),
            _ => {}
        }
        Fate::Answered
    });
    let follow = |url: &str, more: &[&str]| {
        let mut arguments = vec![
            "--json",
            "eth",
            "follow",
            "--from",
            "0",
            "--once",
            "--poll",
            "0.05",
            "--retries",
            "0",
            "--rpc",
            url,
        ];
        arguments.extend(EXACT);
        arguments.extend(more);
        run(scene, &arguments)
    };
    let ended = follow(&omitting.url(), &[]);
    assert_eq!(ended.code, 4);
    let printed = ended.lines().into_iter().filter(|line| line["address"].is_string()).count();
    assert_eq!(printed, 0);
    assert!(ended.stderr.contains("not the receipts of the block"), "{}", ended.stderr);
    assert!(ended.stderr.contains("eth_getTransactionReceipt"), "{}", ended.stderr);

    // If one method returns wrong receipts, another method is used.
    let one_way = rpc_proxy(node.rpc(), |method, _, answer| {
        if method == "eth_getBlockReceipts"
            && let Some(receipts) = answer["result"].as_array_mut()
        {
            receipts.pop();
        }
        Fate::Answered
    });
    let ended = follow(&one_way.url(), &["--address", &chain.runners[0].to_string()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let filter = json!({ "fromBlock": "0x0", "address": chain.runners[0] });
    assert_eq!(kept(&ended.lines()), answered(&node, &filter));
    assert!(ended.stderr.contains("returned the right receipts"), "{}", ended.stderr);

    let forging = rpc_proxy(node.rpc(), |method, _, answer| {
        if method == "eth_getBlockByNumber" {
            answer["result"]["logsBloom"] = json!(format!("0x{}", "00".repeat(256)));
        }
        Fate::Answered
    });
    let ended = follow(&forging.url(), &[]);
    assert_eq!(ended.code, 5);
    assert!(ended.stderr.contains("the fields hash to"), "{}", ended.stderr);

    // The trusted hash is first that of a block on the chain, and later that of a block that has
    // left the chain.
    let height = node.height();
    let old = node.hash_at(height).to_string();
    let ended = follow(node.rpc().url(), &["--anchor", &old]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let anchor = json!({ "kind": "anchor", "number": height, "hash": old });
    assert!(ended.lines().contains(&anchor));
    let unknown = B256::repeat_byte(7).to_string();
    let ended = follow(node.rpc().url(), &["--anchor", &unknown]);
    assert_eq!(ended.code, 4);
    assert!(ended.stderr.contains("does not have the anchor"), "{}", ended.stderr);
    // The node still has the block, but not on its chain.
    let header = node.rpc().call("eth_getBlockByHash", &json!([old, false]));
    node.reorganise(1, &[]);
    let anchor = old.clone();
    let remembering = rpc_proxy(node.rpc(), move |method, parameters, answer| {
        if method == "eth_getBlockByHash" && parameters[0] == json!(old) {
            answer["result"] = header.clone();
        }
        Fate::Answered
    });
    let ended = follow(&remembering.url(), &["--anchor", &anchor]);
    assert_eq!(ended.code, 3);
    assert!(ended.stderr.contains("another chain"), "{}", ended.stderr);
}

/// A reorganisation deeper than the kept blocks, while running and while not running.
fn too_deep(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 16);
    for step in STEPS {
        chain.mine(&node, step);
    }
    let state = scene.path("state.json");
    let mut arguments =
        vec!["--json", "eth", "follow", "--from", "0", "--poll", "0.05", "--keep", "4"];
    let url = node.rpc().url().to_owned();
    arguments.extend(["--cursor", state.to_str().expect("a path"), "--rpc", &url]);
    arguments.extend(EXACT);
    let mut follow = Running::start(scene, &arguments);
    until_head(&node, &mut follow);
    let before = kept(follow.lines());
    // The deepest reorganisation that can be followed, to a longer branch.
    node.reorganise(4, &[]);
    chain.mine(&node, Step::Several(2));
    until_head(&node, &mut follow);
    assert_ne!(kept(follow.lines()), before);
    assert_eq!(kept(follow.lines()), answered(&node, &json!({ "fromBlock": "0x0" })));

    let count = follow.lines().len();
    node.reorganise(5, &[]);
    assert_eq!(follow.process().wait().code(), Some(4));
    let log = follow.process().log();
    assert!(log.contains("a reorganisation too deep to follow"), "{log}");
    assert_eq!(follow.lines().len(), count, "no line about the reorganisation is printed");

    // The cursor file is unchanged: the next run fails in the same way.
    let again = run(scene, &arguments);
    assert_eq!(again.code, 4);
    assert!(again.stderr.contains("a reorganisation too deep to follow"), "{}", again.stderr);
    assert_eq!(again.lines().len(), 1, "only the first line is printed, and no log");
}
