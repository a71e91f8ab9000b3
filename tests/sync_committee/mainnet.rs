//! Recorded data of mainnet and Sepolia: bootstraps, updates and REST answers.

use std::time::Duration;

use alloy_primitives::{B256, keccak256};
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Action, Anchor, Bootstrap, BoundExecution, Event, Evidence, Finality, LightClient,
    LightClientError, Request, Update, UpdateKind,
};
use serde_json::Value;

use crate::corpus::{Anchors, number, root};
use testkit::eth::beacon_world;

const FOLDER: &str = "light_client/mainnet/";

/// Starts from a bootstrap of the corpus at the time of its slot.
pub(crate) fn start(anchors: &Anchors, name: &str) -> LightClient {
    let network = Network::mainnet();
    let name = format!("{FOLDER}{name}.ssz");
    let bootstrap = anchors.bootstrap(&name, &network);
    let trusted = root(&anchors.files[&name]["block_root"]);
    let now = network.time_of_slot(bootstrap.header.beacon.slot);
    LightClient::new(network, trusted, &bootstrap, now)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn kind_of(entry: &Value) -> UpdateKind {
    match entry["kind"].as_str().expect("a kind") {
        "light-client update" => UpdateKind::Full,
        "light-client finality" => UpdateKind::Finality,
        "light-client optimistic" => UpdateKind::Optimistic,
        other => panic!("{other} is no update"),
    }
}

/// Decodes an update of the corpus, and checks its numbers against the index.
pub(crate) fn update(anchors: &Anchors, name: &str) -> Update {
    let name = format!("{FOLDER}{name}.ssz");
    let entry = &anchors.files[&name];
    let update = anchors.update(&name, kind_of(entry), &Network::mainnet());
    assert_eq!(update.attested.beacon.slot, number(&entry["slot"]), "{name}");
    assert_eq!(update.signature_slot, number(&entry["signature_slot"]), "{name}");
    assert_eq!(
        update.aggregate.participation().signed as u64,
        number(&entry["participants"]),
        "{name}"
    );
    let finalized = update.finality.as_ref().map(Finality::slot);
    assert_eq!(finalized, entry.get("finalized_slot").map(number), "{name}");
    update
}

/// Applies an update of the corpus at the time of its signature.
fn apply(
    client: &mut LightClient,
    anchors: &Anchors,
    name: &str,
) -> Result<Vec<Action>, LightClientError> {
    let update = update(anchors, name);
    let now = client.network().time_of_slot(update.signature_slot);
    client.handle(Event::Update(&update), now)
}

/// Checks a bound execution block against an entry of the index.
fn check_execution(name: &str, execution: &BoundExecution, expected: &Value) {
    let header = execution.header().unwrap_or_else(|| panic!("{name}: {execution:?}"));
    assert_eq!(header.block_number, number(&expected["number"]), "{name}");
    assert_eq!(header.block_hash, root(&expected["hash"]), "{name}");
    assert!(!execution.lags());
}

/// Runs of objects from a checkpoint, with the period that is known at the end of each.
#[test]
fn runs_of_mainnet_from_bellatrix_to_fulu() {
    let Some(anchors) = Anchors::open() else { return };
    let runs: [(&str, &[&str], u64); 9] = [
        ("bellatrix/bootstrap_4700000", &["bellatrix/update_573", "bellatrix/update_574"], 575),
        ("capella/bootstrap_6718368", &["capella/optimistic_6718464"], 820),
        ("capella/bootstrap_6718368", &["capella/finality_6718464"], 820),
        (
            "deneb/bootstrap_10248000",
            &[
                "deneb/update_1250",
                "deneb/update_1251",
                "deneb/finality_10248454",
                "deneb/optimistic_10248458",
            ],
            1252,
        ),
        (
            "deneb/bootstrap_11624480",
            &["deneb/update_1419", "deneb/optimistic_derived_11635711"],
            1420,
        ),
        ("deneb/bootstrap_11640864", &["deneb/update_1421"], 1422),
        (
            "electra/bootstrap_11649056",
            &["electra/optimistic_derived_11650269", "electra/update_1422"],
            1423,
        ),
        ("electra/bootstrap_12890400", &["electra/optimistic_derived_12890487"], 1573),
        ("fulu/bootstrap_14017856", &["fulu/update_1711", "fulu/finality_14018020"], 1712),
    ];
    let mut applied = 0;
    for (bootstrap, updates, period) in runs {
        let mut client = start(&anchors, bootstrap);
        assert_eq!(client.finalized().evidence, Evidence::Checkpoint);
        for name in updates {
            let entry = &anchors.files[&format!("{FOLDER}{name}.ssz")];
            let actions = apply(&mut client, &anchors, name)
                .unwrap_or_else(|error| panic!("{bootstrap}, {name}: {error}"));
            assert!(!actions.is_empty(), "{name}");
            for action in &actions {
                let (anchor, expected) = match action {
                    Action::Finalized(anchor) => (anchor, "finalized_execution"),
                    Action::Optimistic(anchor) => (anchor, "attested_execution"),
                    _ => continue,
                };
                match entry.get(expected) {
                    Some(expected) => check_execution(name, &anchor.execution, expected),
                    None => assert_eq!(anchor.execution, BoundExecution::Nothing, "{name}"),
                }
            }
            applied += 1;
        }
        let finalized = client.network().period_of_slot(client.finalized().beacon.slot);
        assert_eq!(finalized + u64::from(client.is_next_committee_known()), period, "{bootstrap}");
    }
    assert_eq!(applied, 16);
}

/// Returns a client that starts in a period with a given committee, as if the caller trusted it.
///
/// For some recorded updates there is no bootstrap of their period, but the update before it proves
/// the committee. The made-up checkpoint vouches for that committee and for nothing else.
pub(crate) fn vouched(anchors: &Anchors, before: &str) -> LightClient {
    let network = Network::mainnet();
    let before = update(anchors, before);
    let (committee, _) = before.next_committee.expect("a committee");
    let slot = (network.period_of_slot(before.attested.beacon.slot) + 1) * 8192;
    let (header, branch) = beacon_world::checkpoint(&network, slot, &committee);
    let bootstrap = Bootstrap { committee, committee_branch: branch, header };
    let trusted = bootstrap.header.beacon.root();
    let now = network.time_of_slot(slot);
    LightClient::new(network, trusted, &bootstrap, now).expect("a made-up checkpoint")
}

#[test]
fn updates_under_the_committee_that_the_update_before_proves() {
    let Some(anchors) = Anchors::open() else { return };
    let mut client = vouched(&anchors, "capella/update_816");
    for (name, period) in
        [("capella/update_817", 818), ("capella/update_818", 819), ("capella/update_819", 820)]
    {
        let actions = apply(&mut client, &anchors, name).expect(name);
        assert!(actions.contains(&Action::NextCommittee { period }), "{name}: {actions:?}");
    }
    // The first slots of an epoch were empty, so the checkpoint's block is of the slot before.
    assert_eq!(client.finalized().beacon.slot, 6_710_623);
    apply(&mut client, &anchors, "capella/finality_6718464").expect("the next period");
    assert_eq!(client.finalized().beacon.slot, 6_718_368);
    assert!(!client.is_next_committee_known(), "a finality update brings no committee");
    let now = client.network().time_of_slot(6_718_500);
    assert_eq!(client.request(now), Request::Updates { start_period: 820, count: 1 });

    let mut client = vouched(&anchors, "electra/update_1573");
    apply(&mut client, &anchors, "electra/update_1574").expect("a committee");
    assert!(client.is_next_committee_known());
    assert_eq!(client.finalized().beacon.slot, 12_894_208);
}

/// An update that was made early in its period finalises a block of the period before. It is valid,
/// but it does not move the committee.
#[test]
fn early_updates_do_not_move_the_committee() {
    let Some(anchors) = Anchors::open() else { return };
    let mut client = vouched(&anchors, "electra/update_1571");
    let before = client.request(client.network().time_of_slot(12_877_834));
    let actions = apply(&mut client, &anchors, "electra/update_1572").expect("valid");
    assert!(matches!(&actions[..], [Action::Optimistic(_)]), "{actions:?}");
    assert!(!client.is_next_committee_known());
    assert_eq!(client.request(client.network().time_of_slot(12_877_834)), before);
    let error = apply(&mut client, &anchors, "electra/update_1573").expect_err("a period later");
    let expected = LightClientError::UnknownCommittee { found: 1573, first: 1572, last: 1572 };
    assert_eq!(error, expected);
    assert!(error.is_about_progress());

    let mut client = start(&anchors, "electra/bootstrap_12890400");
    let update = update(&anchors, "electra/update_1573");
    let now = client.network().time_of_slot(12_890_400);
    assert_eq!(client.handle(Event::Update(&update), now), Ok(Vec::new()));
    assert!(client.force_from().is_some(), "kept as the best update");
}

/// Objects whose committee is not recorded are refused for that reason alone. Their execution
/// branches are checked all the same.
#[test]
fn objects_of_other_periods() {
    let Some(anchors) = Anchors::open() else { return };
    let mut client = start(&anchors, "fulu/bootstrap_14017856");
    for name in ["bellatrix/finality_4953281", "bellatrix/optimistic_4953267", "capella/update_816"]
    {
        let period = number(&anchors.files[&format!("{FOLDER}{name}.ssz")]["signature_period"]);
        let refused = update(&anchors, name);
        let now = client.network().time_of_slot(15_308_190);
        let expected =
            LightClientError::UnknownCommittee { found: period, first: 1711, last: 1711 };
        assert_eq!(client.handle(Event::Update(&refused), now), Err(expected), "{name}");
    }
    let name = "fulu/finality_15308190";
    let error = apply(&mut client, &anchors, name).expect_err("a later period");
    assert!(error.is_about_progress(), "{error}");
    let update = update(&anchors, name);
    let header = update.finality.and_then(|finality| finality.header).expect("a header");
    let bound = header.bound_execution(client.network()).expect("a valid branch");
    let expected = &anchors.files[&format!("{FOLDER}{name}.ssz")]["finalized_execution"];
    check_execution(name, &bound, expected);
    let rlp = anchors.read("proofs/eip2935/26069545.header.rlp");
    assert_eq!(bound.bound_hash(), Some(keccak256(rlp)));
}

/// Two answers of 14 updates each lead from one recorded checkpoint to the committee of another.
#[test]
fn twenty_eight_periods_from_two_answers() {
    let Some(anchors) = Anchors::open() else { return };
    let mut client = start(&anchors, "deneb/bootstrap_11296800");
    let network = client.network().clone();
    let mut periods = Vec::new();
    for (name, first) in [("updates_1379_count_14", 1379), ("updates_1393_count_14", 1393)] {
        let now = network.time_of_slot((first + 14) * 8192);
        assert_eq!(client.request(now), Request::Updates { start_period: first, count: 14 });
        let body = anchors.read(&format!("light_client/rest/{name}.ssz"));
        for update in Update::list_from_ssz(&body, &network).expect(name) {
            let now = network.time_of_slot(update.signature_slot);
            for action in client.handle(Event::Update(&update), now).expect(name) {
                if let Action::NextCommittee { period } = action {
                    periods.push(period);
                }
            }
            let kept = match client.network().period_of_slot(update.signature_slot) {
                1393 => "deneb/optimistic_derived_11412862",
                1395 => "deneb/optimistic_derived_11434569",
                _ => continue,
            };
            // These are signed by the committee of the same period.
            let actions = apply(&mut client, &anchors, kept).expect(kept);
            assert!(matches!(&actions[..], [Action::Optimistic(_)]), "{kept}: {actions:?}");
        }
    }
    assert_eq!(periods, (1380..=1407).collect::<Vec<_>>());
    // The committee that 28 updates led to is that of the recorded bootstrap.
    let later = start(&anchors, "deneb/bootstrap_11526688");
    assert_eq!(network.period_of_slot(later.finalized().beacon.slot), 1407);
    let body = anchors.read("light_client/rest/updates_1393_count_14.ssz");
    let last = Update::list_from_ssz(&body, &network).expect("valid").pop().expect("an update");
    let (committee, _) = last.next_committee.expect("a committee");
    let name = format!("{FOLDER}deneb/bootstrap_11526688.ssz");
    assert_eq!(committee, anchors.bootstrap(&name, &network).committee);
}

#[test]
fn a_checkpoint_of_sepolia() {
    let Some(anchors) = Anchors::open() else { return };
    let network = Network::sepolia();
    let name = "light_client/sepolia/capella/bootstrap_4148256.ssz";
    let bootstrap = anchors.bootstrap(name, &network);
    let trusted = root(&anchors.files[name]["block_root"]);
    let now = network.time_of_slot(4_148_256) + Duration::from_secs(3 * 86_400);
    let client = LightClient::new(network, trusted, &bootstrap, now).expect("valid");
    assert!(client.finalized().execution.header().is_some());
    let checkpoint = client.trust().checkpoint;
    assert_eq!(checkpoint.age, Duration::from_secs(3 * 86_400));
    assert!(checkpoint.is_stale(), "older than 256 epochs");
    // Under the root of another network, the fork of the slot differs, or the root does.
    let error = LightClient::new(Network::mainnet(), B256::ZERO, &bootstrap, now);
    assert!(error.is_err());
}

/// From a checkpoint to a finalised execution block, by the JSON that a node answered.
#[test]
fn rest_answers_of_fulu() {
    let Some(anchors) = Anchors::open() else { return };
    let network = Network::mainnet();
    let preset = network.preset();
    let json = |name: &str| anchors.text(&format!("light_client/rest/{name}.json"));
    let bootstrap = Bootstrap::from_json(&json("fulu_bootstrap"), preset).expect("a bootstrap");
    let updates = Update::list_from_json(&json("fulu_updates"), preset).expect("updates");
    let finality = Update::from_json(&json("fulu_finality"), UpdateKind::Finality, preset);
    let finality = finality.expect("a finality update");
    // The same objects as SSZ.
    let ssz = |name: &str| format!("{FOLDER}fulu/{name}.ssz");
    assert_eq!(bootstrap, anchors.bootstrap(&ssz("bootstrap_14017856"), &network));
    assert_eq!(updates, [anchors.update(&ssz("update_1711"), UpdateKind::Full, &network)]);
    let same = anchors.update(&ssz("finality_14018020"), UpdateKind::Finality, &network);
    assert_eq!(finality, same);

    let chain = anchors.json("chains/fulu_finality/chain.json");
    let now = network.time_of_slot(14_018_020);
    let trusted = root(&chain["trusted_block_root"]);
    let mut client = LightClient::new(network, trusted, &bootstrap, now).expect("valid");
    for update in updates.iter().chain([&finality]) {
        client.handle(Event::Update(update), now).expect("valid");
    }
    let expected = &chain["expect"];
    let finalized = client.finalized();
    assert_eq!(finalized.beacon.slot, number(&expected["finalized_slot"]));
    assert_eq!(finalized.execution.bound_hash(), Some(root(&expected["execution_hash"])));
    let rlp = anchors.read("chains/fulu_finality/24784163.header.rlp");
    assert_eq!(finalized.execution.bound_hash(), Some(keccak256(rlp)));
    assert_eq!(client.request(now), Request::Finality);
    let Evidence::Finalized(by) = finalized.evidence else { panic!("{}", finalized.evidence) };
    assert_eq!((by.signed, by.of), (511, 512));
    assert_eq!(finalized.evidence.to_string(), "finalised, signed by 511 of 512");
    assert!(!finalized.trust.checkpoint.is_stale());
    // An anchor can be stored, or sent to others, as JSON.
    let json = serde_json::to_string(finalized).expect("JSON");
    assert_eq!(serde_json::from_str::<Anchor>(&json).expect("an anchor"), *finalized);
    // Without the member that names a forced update, the anchor would be worth more than it is.
    let other = json.replace("\"forced\"", "\"forcd\"");
    let error = serde_json::from_str::<Anchor>(&other).expect_err("a missing member");
    assert!(error.to_string().starts_with("missing field `forced`"), "{error}");
    assert_eq!(client.network().fork_at_slot(finalized.beacon.slot), Fork::Fulu);

    let name = "chains/fulu_2935/finality_update.json";
    let json = anchors.text(name);
    let finality = Update::from_json(&json, UpdateKind::Finality, preset).expect(name);
    let name = ssz("finality_15308190");
    assert_eq!(finality, anchors.update(&name, UpdateKind::Finality, client.network()));
}
