//! The objects that the test server writes: byte for byte those of real nodes and of the official
//! vectors, and read by the library as what they were written from.

use std::path::{Path, PathBuf};

use chainsieve::eth::anchor::network::{Fork, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};
use serde_json::Value;
use testkit::eth::beacon_objects::{
    bootstrap_json, bootstrap_ssz, update_chunks, update_json, update_ssz,
};

use testkit::eth::beacon_world::FORKS;

use crate::setup::MADE_UP;

const KINDS: [UpdateKind; 3] = [UpdateKind::Full, UpdateKind::Finality, UpdateKind::Optimistic];

fn check_bootstrap(name: &str, ssz: &[u8], fork: Fork, preset: Preset) {
    let read = Bootstrap::from_ssz(ssz, fork, preset).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(bootstrap_ssz(&read, fork), ssz, "{name}");
    let json = bootstrap_json(&read, fork).to_string();
    assert_eq!(Bootstrap::from_json(&json, preset).expect(name), read, "{name}");
}

fn check_update(name: &str, ssz: &[u8], kind: UpdateKind, fork: Fork, preset: Preset) {
    let read = Update::from_ssz(ssz, kind, fork, preset).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(update_ssz(&read, kind, fork, preset), ssz, "{name}");
    let json = update_json(&read, kind, fork, preset).to_string();
    assert_eq!(Update::from_json(&json, kind, preset).expect(name), read, "{name}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn objects_of_mainnet_and_sepolia() {
    let Some((root, entries)) = testkit::corpus::index("anchors") else { return };
    let mut count = 0;
    for entry in entries {
        let name = entry["file"].as_str().expect("a name");
        let Some(kind) = entry["kind"].as_str().and_then(|it| it.strip_prefix("light-client "))
        else {
            continue;
        };
        if !name.starts_with("light_client/mainnet") && !name.starts_with("light_client/sepolia") {
            continue;
        }
        let ssz = std::fs::read(root.join(name)).expect("a file");
        let fork = entry["fork"].as_str().expect("a fork").parse().expect("a fork");
        let kind = match kind {
            "bootstrap" => {
                check_bootstrap(name, &ssz, fork, Preset::Mainnet);
                count += 1;
                continue;
            }
            "update" => UpdateKind::Full,
            "finality" => UpdateKind::Finality,
            _ => UpdateKind::Optimistic,
        };
        check_update(name, &ssz, kind, fork, Preset::Mainnet);
        count += 1;
    }
    assert!(count >= 39, "{count}");

    let network = Network::mainnet();
    for name in ["updates_1379_count_14", "updates_1393_count_14"] {
        let body = std::fs::read(root.join(format!("light_client/rest/{name}.ssz"))).expect(name);
        let updates = Update::list_from_ssz(&body, &network).expect(name);
        assert_eq!(update_chunks(&updates, &network), body, "{name}");
    }
    // What a node answered as JSON.
    let json = |name: &str| -> Value {
        let text = std::fs::read(root.join(format!("light_client/rest/{name}.json")));
        serde_json::from_slice(&text.expect(name)).expect(name)
    };
    let (fork, preset) = (Fork::Fulu, Preset::Mainnet);
    let bootstrap = json("fulu_bootstrap");
    let read = Bootstrap::from_json(&bootstrap.to_string(), preset).expect("a bootstrap");
    assert_eq!(bootstrap_json(&read, fork), bootstrap);
    let finality = json("fulu_finality");
    let kind = UpdateKind::Finality;
    let read = Update::from_json(&finality.to_string(), kind, preset).expect("an update");
    assert_eq!(update_json(&read, kind, fork, preset), finality);
    let updates = json("fulu_updates");
    let read = Update::list_from_json(&updates.to_string(), preset).expect("updates");
    let written: Value =
        read.iter().map(|update| update_json(update, UpdateKind::Full, fork, preset)).collect();
    assert_eq!(written, updates);
}

/// Updates of the specification's generator, with and without committee and finality.
#[test]
fn objects_of_the_official_vectors() {
    let Some((root, _)) = testkit::corpus::index("anchors") else { return };
    let mut count = 0;
    for fork in ["altair", "capella", "deneb", "electra", "gloas"] {
        for file in files(&root.join("light_client/ranking").join(fork)) {
            let name = file.display().to_string();
            if file.extension().is_none_or(|end| end != "ssz") {
                continue;
            }
            let ssz = std::fs::read(&file).expect("a file");
            let fork = fork.parse().expect("a fork");
            check_update(&name, &ssz, UpdateKind::Full, fork, Preset::Minimal);
            count += 1;
        }
    }
    assert_eq!(count, 5 * 57);
}

#[test]
fn objects_of_the_made_up_chain() {
    let setup = &*MADE_UP;
    let (network, preset) = (setup.network(), setup.network().preset());
    let mut forks = Vec::new();
    for (&period, update) in &setup.data.updates {
        let fork = network.fork_at_slot(update.attested.beacon.slot);
        forks.push(fork);
        for kind in KINDS {
            let ssz = update_ssz(update, kind, fork, preset);
            check_update(&format!("{period} {kind}"), &ssz, kind, fork, preset);
        }
        let bootstrap = setup.chain.bootstrap(update.attested.beacon.slot);
        check_bootstrap("a bootstrap", &bootstrap_ssz(&bootstrap, fork), fork, preset);
    }
    forks.dedup();
    assert_eq!(forks, FORKS[1..]);
    let updates: Vec<_> = setup.data.updates.values().cloned().collect();
    let body = update_chunks(&updates, network);
    let read = Update::list_from_ssz(&body, network).expect("chunks");
    assert_eq!(read, updates);
}
