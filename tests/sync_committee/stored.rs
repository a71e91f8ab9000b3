//! A light client as text: read back in every state, and never as another client than the one that
//! was written.

use std::path::PathBuf;
use std::time::Duration;

use alloy_primitives::B256;
use bitcoin::hashes::{Hash as _, sha256};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::{
    BoundExecution, DecodeError, Event, Evidence, LightClient, Request,
};
use serde_json::{Value, json};
use testkit::Rng;
use testkit::eth::beacon_world::{Draft, FORKS, World, at};

/// Returns the time of a client's newest finalised header: no pause.
fn no_pause(client: &LightClient) -> Duration {
    client.network().time_of_slot(client.finalized().beacon.slot)
}

fn read(client: &LightClient, text: &str) -> Result<LightClient, DecodeError> {
    LightClient::from_json(text, client.network().clone(), no_pause(client))
}

/// Checks that two clients have the same state, and use the same updates.
fn same(read: &LightClient, client: &LightClient) {
    assert_eq!(read.to_json(), client.to_json());
    assert_eq!(read.finalized(), client.finalized());
    assert_eq!(read.optimistic(), client.optimistic());
    assert_eq!(read.supermajority(), client.supermajority());
    assert_eq!(read.trust(), client.trust());
    assert_eq!(read.is_next_committee_known(), client.is_next_committee_known());
    assert_eq!(read.safety_threshold(), client.safety_threshold());
    let now = no_pause(client) + Duration::from_secs(6 * 70);
    assert_eq!(read.request(now), client.request(now));
}

/// Returns clients in every state, with a name: at a checkpoint, with a known next committee, after
/// a finality update across periods, after a forced update, and in each fork.
fn states(world: &World) -> Vec<(String, LightClient)> {
    let mut states = Vec::new();
    let mut add = |name: &str, period: u64, client: &LightClient| {
        let fork = client.network().fork_at_slot(client.finalized().beacon.slot);
        states.push((format!("{name}, {fork}, period {period}"), client.clone()));
    };
    for period in 0..8 {
        let mut client = world.start(at(period, 1));
        add("checkpoint", period, &client);
        world.apply(&mut client, Draft::full(at(period, 30), at(period, 9)).by(24)).expect("valid");
        assert!(client.is_next_committee_known());
        add("next committee", period, &client);
        world.apply(&mut client, Draft::optimistic(at(period, 40)).by(31)).expect("valid");
        add("optimistic", period, &client);
        let crossing = Draft::finality(at(period + 1, 30), at(period + 1, 16));
        let mut crossed = client.clone();
        world.apply(&mut crossed, crossing).expect("valid");
        assert!(!crossed.is_next_committee_known());
        add("crossed", period + 1, &crossed);
        let weak = Draft::full(at(period + 1, 12), at(period + 1, 2)).by(5);
        world.apply(&mut client, weak).expect("valid");
        let now = world.network.time_of_slot(at(period + 2, 20));
        client.handle(Event::Force, now).expect("forced");
        assert!(client.trust().forced.is_some());
        add("forced", period + 1, &client);
    }
    states
}

#[test]
fn every_state_is_read_back() {
    let world = World::new();
    let states = states(&world);
    let mut forks: Vec<_> = Vec::new();
    for (name, client) in &states {
        let text = client.to_json();
        let read = read(client, &text).unwrap_or_else(|error| panic!("{name}: {error}"));
        same(&read, client);
        forks.push(client.network().fork_at_slot(client.finalized().beacon.slot));
        // The same update moves both.
        let period = client.network().period_of_slot(client.finalized().beacon.slot);
        let draft = Draft::full(at(period, 50), at(period, 33));
        let (mut read, mut client) = (read, client.clone());
        let results = [&mut read, &mut client].map(|client| world.apply(client, draft));
        assert_eq!(results[0], results[1], "{name}");
        assert!(results[0].is_ok(), "{name}: {:?}", results[0]);
        same(&read, &client);
    }
    forks.sort();
    forks.dedup();
    assert_eq!(forks, FORKS[1..]);
}

/// No change of one byte, and no cut, makes another client of the text.
#[test]
fn damage_is_never_another_client() {
    let world = World::new();
    let mut rng = Rng::new(11);
    let mut whitespace = 0;
    for (index, (name, client)) in states(&world).into_iter().enumerate() {
        let text = client.to_json();
        // Every byte of a few texts, and some bytes of the others.
        let step = if index % 9 == 0 { 1 } else { 37 };
        for at in (rng.below(step)..text.len()).step_by(step) {
            read(&client, &text[..at]).expect_err(&name);
            let mut changed = text.clone().into_bytes();
            changed[at] = match rng.below(4) {
                0 => changed[at] ^ 1 << rng.below(7),
                1 => *rng.pick(b"0123456789abcdef\"{}[],: "),
                2 => changed[at] ^ 0x20,
                _ => 0x20 + u8::try_from(rng.below(95)).expect("ASCII"),
            };
            let Ok(changed) = String::from_utf8(changed) else { panic!("{name}") };
            if let Ok(read) = read(&client, &changed) {
                same(&read, &client);
            }
            let mut longer = text.clone();
            longer.insert(at, char::from(*rng.pick(b" 0fx\n\"")));
            if let Ok(read) = read(&client, &longer) {
                same(&read, &client);
                whitespace += 1;
            }
        }
    }
    assert!(whitespace > 0, "JSON allows whitespace between members");
}

/// Members that contradict each other are refused, although the checksum is right.
#[test]
fn contradictions() {
    let world = World::new();
    let mut client = world.start(at(5, 0));
    world.apply(&mut client, Draft::full(at(5, 30), at(5, 9))).expect("valid");
    let text = client.to_json();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut stored: Value = serde_json::from_str(&text).expect("JSON");
        change(&mut stored["client"]);
        let inner = serde_json::to_string(&stored["client"]).expect("JSON");
        let sum = sha256::Hash::hash(inner.as_bytes());
        format!(r#"{{"version":1,"sha256":"0x{sum}","client":{inner}}}"#)
    };
    // The members may be in any order.
    same(&read(&client, &changed(&|_| {})).expect("the same members"), &client);
    let refused = |change: &dyn Fn(&mut Value)| read(&client, &changed(change)).expect_err("false");
    for anchor in ["finalized", "optimistic"] {
        let error = refused(&|stored| stored[anchor]["beacon"]["slot"] = json!(at(5, 10)));
        assert!(matches!(error, DecodeError::Contradiction(_)), "{error}");
    }
    let error = refused(&|stored| stored["optimistic"] = json!(world.start(at(2, 3)).finalized()));
    assert!(matches!(error, DecodeError::Contradiction(_)), "{error}");
    for committee in ["current_committee", "next_committee"] {
        let error = refused(&|stored| {
            let keys = stored[committee]["keys"].as_str().expect("hex").len();
            let shorter = stored[committee]["keys"].as_str().expect("hex")[..keys - 2].to_owned();
            stored[committee]["keys"] = json!(shorter);
        });
        let (found, expected) = (32 * 48 - 1, 32 * 48);
        assert_eq!(error, DecodeError::CommitteeSize { found, expected });
        let error = refused(&|stored| {
            let keys = stored[committee]["keys"].as_str().expect("hex");
            stored[committee]["keys"] = json!(format!("0xff{}", &keys[4..]));
        });
        assert!(matches!(error, DecodeError::Key { .. }), "{error}");
    }
    // A member that is not there is never taken for one without a value.
    for member in ["next_committee", "trust", "optimistic", "current_max_participants"] {
        let error = refused(&|stored| {
            stored.as_object_mut().expect("members").remove(member);
        });
        let DecodeError::Stored(words) = error else { panic!("{error}") };
        assert!(words.contains(member), "{words}");
    }
    let error = refused(&|stored| {
        stored["trust"].as_object_mut().expect("members").remove("forced");
    });
    assert!(matches!(error, DecodeError::Stored(_)), "{error}");
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(read(&client, &newer).expect_err("newer"), DecodeError::Version(2));
    let flipped = text.replacen("\"slot\":", "\"slot\" :", 1);
    assert!(matches!(read(&client, &flipped), Err(DecodeError::Checksum { .. })));
}

#[test]
fn other_networks_and_newer_fork_schedules() {
    let world = World::new();
    let described = |change: &dyn Fn(&mut Value)| -> Network {
        let mut network = serde_json::to_value(&world.network).expect("JSON");
        change(&mut network);
        serde_json::from_value(network).expect("a network")
    };
    let old = described(&|network| network["forks"][7]["epoch"] = Value::Null);
    let bootstrap = world.bootstrap(at(5, 0));
    let now = world.network.time_of_slot(at(5, 0));
    let root = bootstrap.header.beacon.root();
    let mut client = LightClient::new(old, root, &bootstrap, now).expect("valid");
    let full = Draft::full(at(5, 40), at(5, 20));
    world.apply(&mut client, full).expect("valid");
    let text = client.to_json();
    let gloas = Draft::full(at(6, 40), at(6, 20));
    world.apply(&mut client, gloas).expect_err("the schedule lacks Gloas");
    let now = no_pause(&client);
    let mut read = LightClient::from_json(&text, world.network.clone(), now).expect("newer");
    world.apply(&mut read, gloas).expect("Gloas is known");
    assert!(read.finalized().execution.lags());

    let other = described(&|network| {
        network["genesis_validators_root"] = json!(B256::repeat_byte(0xac));
    });
    let (stored, expected) = (world.network.genesis_validators_root(), B256::repeat_byte(0xac));
    let error = LightClient::from_json(&text, other, now).expect_err("another network");
    assert_eq!(error, DecodeError::OtherNetwork { stored, expected });
    let error =
        LightClient::from_json(&text, Network::mainnet(), now).expect_err("another network");
    assert!(matches!(error, DecodeError::OtherNetwork { .. }), "{error}");
}

/// A client that goes on after a long pause is as stale as one that starts from an old checkpoint.
#[test]
fn the_age_after_a_pause() {
    let world = World::new();
    let bootstrap = world.bootstrap(at(2, 0));
    let root = bootstrap.header.beacon.root();
    let second = Duration::from_secs(1);
    let start = second * 500;
    let now = world.network.time_of_slot(at(2, 0)) + start;
    let mut client = LightClient::new(world.network.clone(), root, &bootstrap, now).expect("valid");
    world.apply(&mut client, Draft::full(at(2, 50), at(2, 30))).expect("valid");
    let limit = world.network.weak_subjectivity_period();
    let finalized = no_pause(&client);
    for (pause, age) in [
        (Duration::ZERO, start),
        (start + second, start),
        (limit, start),
        (limit + second, limit + second),
    ] {
        let text = client.to_json();
        let network = world.network.clone();
        let read = LightClient::from_json(&text, network, finalized + pause).expect("stored");
        assert_eq!(read.trust().checkpoint.age, age);
        assert_eq!(read.trust().checkpoint.is_stale(), pause > limit);
        // What was stale once stays so, also after newer headers and another pause.
        let mut later = read.clone();
        world.apply(&mut later, Draft::full(at(3, 50), at(3, 30))).expect("valid");
        assert_eq!(later.finalized().trust.checkpoint.age, age);
        let again =
            LightClient::from_json(&later.to_json(), world.network.clone(), no_pause(&later));
        assert_eq!(again.expect("stored").trust().checkpoint.age, age);
    }
    // A clock that is late makes nothing younger.
    let read = LightClient::from_json(&client.to_json(), world.network.clone(), Duration::ZERO);
    assert_eq!(read.expect("stored").trust().checkpoint.age, start);
}

fn golden(name: &str) -> (PathBuf, LightClient) {
    let world = World::new();
    let client = match name {
        "altair" => world.start(at(0, 3)),
        "fulu" => {
            let mut client = world.start(at(5, 3));
            world.apply(&mut client, Draft::full(at(5, 40), at(5, 17)).by(30)).expect("valid");
            world.apply(&mut client, Draft::optimistic(at(5, 50)).by(31)).expect("valid");
            client
        }
        _ => {
            let mut client = world.start(at(6, 3));
            world.apply(&mut client, Draft::full(at(6, 30), at(6, 8)).by(15)).expect("valid");
            let now = world.network.time_of_slot(at(7, 30));
            client.handle(Event::Force, now).expect("forced");
            world.apply(&mut client, Draft::finality(at(7, 40), at(7, 24))).expect("valid");
            client
        }
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/light_client");
    (PathBuf::from(folder).join(format!("{name}.json")), client)
}

/// Files of version 1 are read forever, and written byte for byte.
#[test]
fn golden_files() {
    for name in ["altair", "fulu", "gloas"] {
        let (path, client) = golden(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let stored = read(&client, &text).unwrap_or_else(|error| panic!("{name}: {error}"));
        same(&stored, &client);
        assert_eq!(stored.to_json(), text, "{name}");
        let finalized = stored.finalized();
        let now = no_pause(&stored);
        match name {
            "altair" => {
                assert_eq!(finalized.evidence, Evidence::Checkpoint);
                assert_eq!(finalized.execution, BoundExecution::Nothing);
                let expected = Request::Updates { start_period: 0, count: 1 };
                assert_eq!(stored.request(now), expected);
            }
            "fulu" => {
                assert!(finalized.execution.header().is_some_and(|it| it.blob_gas.is_some()));
                assert!(stored.is_next_committee_known());
                assert_eq!(finalized.beacon.slot, at(5, 17));
                assert_eq!(stored.optimistic().beacon.slot, at(5, 50));
            }
            _ => {
                assert!(finalized.execution.lags() && !stored.is_next_committee_known());
                assert_eq!(stored.trust().forced.expect("forced").signed, 15);
                assert_eq!(finalized.beacon.slot, at(7, 24));
            }
        }
    }
}
