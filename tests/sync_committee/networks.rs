//! Fork schedules, digests and times of networks.

use std::time::Duration;

use alloy_primitives::{B256, FixedBytes};
use chainsieve::eth::anchor::header_proof::ForkSlots;
use chainsieve::eth::anchor::network::{
    Fork, MIN_WEAK_SUBJECTIVITY_EPOCHS, Network, weak_subjectivity_epochs,
};
use serde_json::{Value, json};

fn digest(hex: &str) -> FixedBytes<4> {
    hex.parse().expect("4 bytes")
}

/// Digests as mainnet and Sepolia use them on the wire. Those of mainnet are in the recorded
/// answers of nodes. Those of Sepolia are published in a test of another client.
#[test]
fn fork_digests_of_public_networks() {
    let mainnet = Network::mainnet();
    for (epoch, fork, expected) in [
        (74_240, Fork::Altair, "afcaaba0"),
        (144_896, Fork::Bellatrix, "4a26c58b"),
        (194_048, Fork::Capella, "bba4da96"),
        (269_568, Fork::Deneb, "6a95a1a9"),
        (364_032, Fork::Electra, "ad532ceb"),
        (411_392, Fork::Fulu, "cc2c5cdb"),
        (412_672, Fork::Fulu, "cb0d1acc"),
        (419_072, Fork::Fulu, "8c9f62fe"),
    ] {
        assert_eq!(mainnet.fork_digest(epoch), digest(expected), "{epoch}");
        assert_eq!(mainnet.fork_of_digest(digest(expected)), Some(fork), "{epoch}");
        assert_ne!(mainnet.fork_digest(epoch - 1), digest(expected), "{epoch}");
    }
    assert_eq!(mainnet.fork_of_digest(digest("00000000")), None);

    let sepolia = Network::sepolia();
    for (epoch, fork, expected) in [
        (222_464, Fork::Electra, "14045b5a"),
        (272_640, Fork::Fulu, "7e0d3447"),
        (274_176, Fork::Fulu, "fd32b622"),
        (275_712, Fork::Fulu, "74d01459"),
        (353_023, Fork::Fulu, "74d01459"),
        (353_024, Fork::Gloas, "669e6c11"),
    ] {
        assert_eq!(sepolia.fork_digest(epoch), digest(expected), "{epoch}");
        assert_eq!(sepolia.fork_of_digest(digest(expected)), Some(fork), "{epoch}");
    }
    assert_eq!(mainnet.fork_of_digest(digest("669e6c11")), None);
}

#[test]
fn schedules_of_public_networks() {
    for name in ["mainnet", "sepolia", "hoodi"] {
        let network = Network::named(name).expect("built in");
        assert_eq!(network.name(), name);
        // What is built in obeys the rules for networks that are read.
        let json = serde_json::to_value(&network).expect("JSON");
        assert_eq!(json["forks"].as_array().map(Vec::len), Some(8));
        assert_eq!(serde_json::from_value::<Network>(json).expect("valid"), network);
    }
    assert_eq!(Network::named("goerli"), None);
    let hoodi = Network::hoodi();
    assert_eq!(hoodi.first_epoch(Fork::Deneb), Some(0));
    assert_eq!(hoodi.first_epoch(Fork::Gloas), None);
    assert_eq!(hoodi.fork_at_slot(2048 * 32 - 1), Fork::Deneb);
    assert_eq!(hoodi.fork_at_slot(2048 * 32), Fork::Electra);
    assert_eq!(hoodi.signing_version(50_688 * 32).as_slice(), [0x60, 0, 0x09, 0x10]);
    assert_eq!(hoodi.signing_version(50_688 * 32 + 1).as_slice(), [0x70, 0, 0x09, 0x10]);
    assert_eq!(hoodi.signing_version(0).as_slice(), [0x50, 0, 0x09, 0x10]);
}

/// The slots of mainnet that `History` has as a constant are those of its schedule.
#[test]
fn slots_of_header_proofs() {
    assert_eq!(Network::mainnet().fork_slots(), Some(ForkSlots::MAINNET));
    let sepolia = Network::sepolia().fork_slots().expect("Capella and Deneb");
    assert_eq!((sepolia.capella, sepolia.deneb), (1_818_624, 4_243_456));
    assert_eq!(sepolia.gloas, Some(11_296_768));
    // The minimal preset has shorter periods of block roots, so proofs have other forms.
    let mut minimal = devnet();
    let forks = minimal["forks"].as_array_mut().expect("a list");
    for (version, name) in [("0x03000001", "capella"), ("0x04000001", "deneb")] {
        forks.push(json!({"name": name, "version": version, "epoch": 0}));
    }
    forks[2]["epoch"] = 0.into();
    let minimal: Network = serde_json::from_value(minimal).expect("valid");
    assert_eq!(minimal.first_epoch(Fork::Deneb), Some(0));
    assert_eq!(minimal.fork_slots(), None);
}

#[test]
fn slots_and_times() {
    let mainnet = Network::mainnet();
    let genesis = Duration::from_secs(1_606_824_023);
    assert_eq!(mainnet.slot_at(genesis.saturating_sub(Duration::from_nanos(1))), None);
    assert_eq!(mainnet.slot_at(genesis), Some(0));
    assert_eq!(mainnet.slot_at(genesis + Duration::from_millis(11_999)), Some(0));
    assert_eq!(mainnet.slot_at(genesis + Duration::from_secs(12)), Some(1));
    assert_eq!(mainnet.time_of_slot(1), genesis + Duration::from_secs(12));
    // The time stamp of block 24,784,163, which is of slot 14,017,952.
    assert_eq!(mainnet.time_of_slot(14_017_952).as_secs(), 1_775_039_447);
    assert_eq!(mainnet.period_of_slot(14_017_952), 1711);
    assert_eq!(mainnet.epoch_of_slot(14_017_952), 438_061);
    assert_eq!(mainnet.slot_at(Duration::MAX), Some((u64::MAX - 1_606_824_023) / 12));
    assert_eq!(mainnet.time_of_slot(u64::MAX), Duration::from_secs(u64::MAX));
}

/// The table of `electra/weak-subjectivity.md`, for a safety decay of 10 %.
#[test]
fn weak_subjectivity_periods_of_the_specification() {
    for (eth, epochs) in [
        (1_048_576, 665),
        (2_097_152, 1075),
        (4_194_304, 1894),
        (8_388_608, 3532),
        (16_777_216, 3532),
    ] {
        assert_eq!(weak_subjectivity_epochs(eth), epochs, "{eth}");
    }
    assert_eq!(weak_subjectivity_epochs(0), MIN_WEAK_SUBJECTIVITY_EPOCHS);
    let days = Network::mainnet().weak_subjectivity_period().as_secs_f64() / 86_400.0;
    assert!((15.6..15.8).contains(&days), "{days}");
}

fn devnet() -> Value {
    json!({
        "name": "devnet",
        "preset": "minimal",
        "genesis_time": 5,
        "genesis_validators_root": B256::repeat_byte(1),
        "forks": [
            {"name": "phase0", "version": "0x00000001", "epoch": 0},
            {"name": "altair", "version": "0x01000001", "epoch": 0},
            {"name": "bellatrix", "version": "0x02000001", "epoch": null},
        ],
    })
}

#[test]
fn networks_from_json() {
    type Change = fn(&mut Value);
    let network: Network = serde_json::from_value(devnet()).expect("valid");
    assert_eq!((network.name(), network.seconds_per_slot()), ("devnet", 6));
    assert_eq!(network.fork_at_slot(u64::MAX), Fork::Altair);
    let mut other = devnet();
    other["seconds_per_slot"] = 2.into();
    other["weak_subjectivity_epochs"] = 10.into();
    let network: Network = serde_json::from_value(other).expect("valid");
    assert_eq!(network.weak_subjectivity_period(), Duration::from_secs(10 * 8 * 2));

    let begin = "the fork schedule does not begin with phase0 at epoch 0";
    let early = "fork bellatrix is scheduled before the preceding fork";
    let twice = "fork bellatrix has the version of an earlier fork";
    let changes: [(&str, Change); 15] = [
        (begin, |json| json["forks"] = json!([])),
        (begin, |json| json["forks"][0]["epoch"] = 1.into()),
        (begin, |json| json["forks"][0]["name"] = "altair".into()),
        ("fork capella follows altair, expected the fork after it", |json| {
            json["forks"][2]["name"] = "capella".into();
        }),
        ("fork altair follows altair, expected the fork after it", |json| {
            json["forks"][2]["name"] = "altair".into();
        }),
        (early, |json| {
            json["forks"][1]["epoch"] = 9.into();
            json["forks"][2]["epoch"] = 8.into();
        }),
        (early, |json| {
            json["forks"][1]["epoch"] = Value::Null;
            json["forks"][2]["epoch"] = 8.into();
        }),
        (twice, |json| json["forks"][2]["version"] = "0x01000001".into()),
        (twice, |json| json["forks"][2]["version"] = "0x00000001".into()),
        ("the blob schedule does not ascend at epoch 4", |json| {
            let blobs = json!({"epoch": 4, "max_blobs_per_block": 9});
            json["blob_schedule"] = json!([blobs, blobs]);
        }),
        ("a slot of 0 seconds", |json| json["seconds_per_slot"] = 0.into()),
        // A misspelt or missing epoch would be another fork schedule.
        ("unknown field `fork`", |json| json["fork"] = json!([])),
        ("unknown field `eppoch`", |json| json["forks"][1]["eppoch"] = 1.into()),
        ("missing field `epoch`", |json| {
            json["forks"][1].as_object_mut().expect("an object").remove("epoch");
        }),
        ("unknown variant", |json| json["preset"] = "gnosis".into()),
    ];
    for (expected, change) in changes {
        let mut json = devnet();
        change(&mut json);
        let text = serde_json::from_value::<Network>(json).expect_err("refused").to_string();
        assert!(text.starts_with(expected), "{expected:?}: {text}");
    }
}
