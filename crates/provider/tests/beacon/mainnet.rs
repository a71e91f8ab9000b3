//! Real objects of mainnet over HTTP, from a checkpoint to a finalised block.

use std::path::PathBuf;
use std::time::Duration;

use chainsieve::alloy_primitives::{B256, hex};
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Anchor, Bootstrap, Update, UpdateChunks, UpdateKind,
};
use chainsieve_provider::{AnchorSource, BeaconClient};
use serde_json::Value;
use testkit::eth::beacon_server::{BeaconData, BeaconServer, Quirk};

/// Runs a light client over the server, and returns the newest finalised header.
fn run(root: B256, data: &BeaconData, quirk: Option<Quirk>) -> Anchor {
    let network = Network::mainnet();
    let server = BeaconServer::with(&network, data.clone(), quirk);
    let client = BeaconClient::builder(network)
        .checkpoint(root)
        .url(server.url())
        .timeout(Duration::from_secs(60))
        .retries(0)
        .build()
        .expect("a client");
    let round = client.sync().expect("a bootstrap");
    let forms: Vec<_> = server.take_asked().into_iter().map(|asked| asked.accept).collect();
    assert!(forms.iter().all(|accept| accept.starts_with("application/octet-stream")));
    let hash = round.finalized.execution.bound_hash();
    let blocks = client.blocks().expect("no further request");
    assert_eq!(Some(blocks), hash.map(|hash| vec![hash]));
    round.finalized
}

/// Runs the light client with SSZ and with JSON, and compares the results.
fn both(root: B256, data: &BeaconData) -> Anchor {
    let mut ssz = run(root, data, None);
    let json = run(root, data, Some(Quirk::OnlyJson));
    // The checkpoint's age is that of the moment of the start.
    ssz.trust.checkpoint.age = json.trust.checkpoint.age;
    assert_eq!(ssz, json);
    ssz
}

fn corpus(name: &str) -> Option<Vec<u8>> {
    let (root, _) = testkit::corpus::index("anchors")?;
    Some(std::fs::read(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn from_a_checkpoint_to_a_finalised_block_of_fulu() {
    let ssz = |name: &str| corpus(&format!("light_client/mainnet/fulu/{name}.ssz"));
    let Some(bootstrap) = ssz("bootstrap_14017856") else { return };
    let preset = Network::mainnet().preset();
    let update = |name: &str, kind| {
        let ssz = ssz(name).expect("a corpus");
        Update::from_ssz(&ssz, kind, Fork::Fulu, preset).expect(name)
    };
    let bootstrap = Bootstrap::from_ssz(&bootstrap, Fork::Fulu, preset).expect("a bootstrap");
    let mut data = BeaconData::default();
    let root = data.add_bootstrap(bootstrap);
    data.updates.insert(1711, update("update_1711", UpdateKind::Full));
    data.finality = Some(update("finality_14018020", UpdateKind::Finality));
    let anchor = both(root, &data);
    let chain = corpus("chains/fulu_finality/chain.json").expect("a corpus");
    let chain: Value = serde_json::from_slice(&chain).expect("JSON");
    let expected = &chain["expect"];
    assert_eq!(expected["finalized_slot"], anchor.beacon.slot);
    let hash = anchor.execution.bound_hash().expect("a block of Fulu");
    assert_eq!(expected["execution_hash"], hash.to_string());
    assert_eq!(anchor.execution.header().expect("a header").block_number, 24_784_163);

    // The same objects as they were published elsewhere.
    let facts = std::env::var_os("CHAINSIEVE_CORPUS").map(PathBuf::from).expect("a corpus");
    let facts = facts.join("../facts/ethereum/anchor_mainnet.json");
    let Ok(facts) = std::fs::read(&facts) else {
        return println!("skipped: {} does not exist", facts.display());
    };
    let facts: Value = serde_json::from_slice(&facts).expect("JSON");
    let bytes = |name: &str| hex::decode(facts[name].as_str().expect("hex")).expect("hex");
    let fork = Fork::Fulu;
    let mut data = BeaconData::default();
    let bootstrap = Bootstrap::from_ssz(&bytes("bootstrap"), fork, preset).expect("a bootstrap");
    let root = data.add_bootstrap(bootstrap);
    assert_eq!(facts["checkpoint"], root.to_string());
    let update = Update::from_ssz(&bytes("update"), UpdateKind::Full, fork, preset);
    data.updates.insert(1711, update.expect("an update"));
    let finality = bytes("finality_update");
    let finality = Update::from_ssz(&finality, UpdateKind::Finality, fork, preset);
    data.finality = Some(finality.expect("a finality update"));
    let mut from_facts = both(root, &data);
    assert_eq!(facts["finalized_slot"], from_facts.beacon.slot);
    assert_eq!(facts["execution"]["hash"], hash.to_string());
    from_facts.trust.checkpoint.age = anchor.trust.checkpoint.age;
    assert_eq!(from_facts, anchor);
}

#[test]
fn twenty_eight_periods_of_deneb() {
    let Some(ssz) = corpus("light_client/mainnet/deneb/bootstrap_11296800.ssz") else { return };
    let network = Network::mainnet();
    let bootstrap = Bootstrap::from_ssz(&ssz, Fork::Deneb, network.preset()).expect("a bootstrap");
    let mut data = BeaconData::default();
    let root = data.add_bootstrap(bootstrap);
    for name in ["updates_1379_count_14", "updates_1393_count_14"] {
        let body = corpus(&format!("light_client/rest/{name}.ssz")).expect("a corpus");
        for update in UpdateChunks::new(&body, &network) {
            let update = update.expect(name);
            data.updates.insert(network.period_of_slot(update.attested.beacon.slot), update);
        }
    }
    assert_eq!(data.updates.len(), 28);
    let anchor = both(root, &data);
    assert_eq!(network.period_of_slot(anchor.beacon.slot), 1406);
    let last = data.updates[&1406].finality.as_ref().expect("finality");
    assert_eq!(anchor.beacon, last.header.as_ref().expect("a header").beacon);
}
