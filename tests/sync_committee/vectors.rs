//! The step vectors of consensus-specs, and its ranked updates: every step with the expected state
//! of the store.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy_primitives::{B256, FixedBytes};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::{
    Anchor, Bootstrap, BoundExecution, Event, LightClient, Update, UpdateKind,
};
use serde_json::{Value, json};

use crate::corpus::{Anchors, fork, number, root};

/// Returns the network of a case.
pub(crate) fn network_of(case: &Value) -> Network {
    let mut network = json!({
        "name": case["name"],
        "preset": case["preset"],
        "genesis_time": 1000,
        "genesis_validators_root": case["genesis_validators_root"],
        "forks": case["forks"],
        "blob_schedule": case["blob_schedule"],
    });
    if let Some(blobs) = case["max_blobs_per_block_electra"].as_u64() {
        network["max_blobs_per_block_electra"] = blobs.into();
    }
    let network: Network = serde_json::from_value(network).expect("a network");
    let preset = network.preset();
    let timeout = number(&case["update_timeout"]);
    assert_eq!(preset.slots_per_epoch(), number(&case["slots_per_epoch"]));
    assert_eq!(preset.update_timeout(), timeout);
    assert_eq!(preset.slots_per_period(), timeout);
    assert_eq!(preset.sync_committee_size() as u64, number(&case["sync_committee_size"]));
    network
}

/// `get_lc_execution_root`.
fn execution_root(execution: &BoundExecution) -> B256 {
    match execution {
        BoundExecution::Nothing => B256::ZERO,
        BoundExecution::Header(header) => header.root(),
        BoundExecution::ParentHash(hash) => *hash,
        other => panic!("{other:?} in a store"),
    }
}

fn check(name: &str, anchor: &Anchor, expected: &Value) {
    assert_eq!(anchor.beacon.slot, number(&expected["slot"]), "{name}");
    assert_eq!(anchor.root, root(&expected["beacon_root"]), "{name}");
    assert_eq!(anchor.root, anchor.beacon.root(), "{name}");
    if let Some(expected) = expected.get("execution_root") {
        assert_eq!(execution_root(&anchor.execution), root(expected), "{name}");
    }
}

/// Returns the digest that a case states for a file, after a check that it marks the file's fork.
fn check_digest(name: &str, entry: &Value, slot: u64, network: &Network) {
    let digest: FixedBytes<4> =
        entry["fork_digest"].as_str().expect("hex").parse().expect("4 bytes");
    assert_eq!(network.fork_digest(network.epoch_of_slot(slot)), digest, "{name}");
    // Altair and Bellatrix share their containers.
    assert_eq!(network.fork_of_digest(digest), Some(fork(&entry["fork"])), "{name}");
}

/// Runs a case. Returns the number of steps of each kind.
fn run(anchors: &Anchors, name: &str, steps: &mut BTreeMap<String, usize>) {
    let case = anchors.json(name);
    let network = network_of(&case);
    let folder = name.strip_suffix("case.json").expect("a case");
    let file = |entry: &Value| format!("{folder}{}", entry["file"].as_str().expect("a file"));
    let at = |slot: u64| network.time_of_slot(slot) + Duration::from_secs(1);

    let entry = &case["bootstrap"];
    let bootstrap = file(entry);
    let ssz = anchors.read(&bootstrap);
    let bootstrap = Bootstrap::from_ssz(&ssz, fork(&entry["fork"]), network.preset())
        .unwrap_or_else(|error| panic!("{bootstrap}: {error}"));
    let slot = bootstrap.header.beacon.slot;
    check_digest(name, entry, slot, &network);
    let trusted = root(&case["trusted_block_root"]);
    let mut client = LightClient::new(network.clone(), trusted, &bootstrap, at(slot))
        .unwrap_or_else(|error| panic!("{name}: {error}"));

    for (index, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let op = step["op"].as_str().expect("an operation");
        let name = format!("{name} step {index} {op}");
        match op {
            "process_update" => {
                let ssz = anchors.read(&file(step));
                let fork = fork(&step["fork"]);
                let update = Update::from_ssz(&ssz, UpdateKind::Full, fork, network.preset())
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                check_digest(&name, step, update.attested.beacon.slot, &network);
                let now = at(number(&step["current_slot"]));
                client
                    .handle(Event::Update(&update), now)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            "force_update" => {
                let now = at(number(&step["current_slot"]));
                client.handle(Event::Force, now).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            // Headers keep the form in which they came, so there is nothing to upgrade.
            "upgrade_store" => {}
            other => panic!("{name}: unknown operation {other}"),
        }
        check(&name, client.finalized(), &step["expect"]["finalized_header"]);
        check(&name, client.optimistic(), &step["expect"]["optimistic_header"]);
        *steps.entry(op.to_owned()).or_default() += 1;
    }
}

#[test]
fn each_step_of_the_official_cases() {
    let Some(anchors) = Anchors::open() else { return };
    for (folder, cases, expected) in [
        (
            "light_client/vectors/",
            35,
            [("force_update", 14), ("process_update", 108), ("upgrade_store", 3)].as_slice(),
        ),
        (
            "light_client/vectors_older_release/",
            4,
            [("force_update", 2), ("process_update", 15)].as_slice(),
        ),
    ] {
        let mut steps = BTreeMap::new();
        let mut count = 0;
        for (name, _) in anchors.of(folder, "sync case") {
            run(&anchors, name, &mut steps);
            count += 1;
        }
        let steps: Vec<_> = steps.iter().map(|(op, count)| (op.as_str(), *count)).collect();
        assert_eq!((count, &steps[..]), (cases, expected), "{folder}");
    }
}

/// The files of a folder are in the order of their rank, the best one first.
#[test]
fn ranked_updates_compare_as_the_specification_ranks_them() {
    let Some(anchors) = Anchors::open() else { return };
    let minimal =
        network_of(&anchors.json("light_client/vectors/gloas/light_client_sync/case.json"));
    let mut pairs = 0;
    for fork in ["altair", "capella", "deneb", "electra", "gloas"] {
        let folder = format!("light_client/ranking/{fork}/");
        let mut ranks: Vec<(u64, Update)> = Vec::new();
        for (name, entry) in anchors.of(&folder, "ranked update") {
            let update = anchors.update(name, UpdateKind::Full, &minimal);
            ranks.push((number(&entry["rank"]), update));
        }
        assert_eq!(ranks.len(), 57, "{fork}");
        for (index, (place, better)) in ranks.iter().enumerate() {
            for (other, below) in &ranks[index + 1..] {
                let is_better = better.is_better_than(below, minimal.preset());
                assert!(place < other && is_better, "{fork}: {place} and {other}");
                pairs += 1;
            }
        }
    }
    assert_eq!(pairs, 5 * 1596);
}
