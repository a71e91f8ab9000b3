//! `fixtures/ethereum/anchor_mainnet.json`: from a checkpoint of mainnet to a finalised execution
//! header, without a corpus.

use std::path::Path;

use alloy_primitives::{hex, keccak256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Bootstrap, Event, Evidence, LightClient, Update, UpdateKind,
};
use chainsieve::eth::header::HeaderView;
use serde_json::Value;

use crate::corpus::{number, root};

#[test]
fn the_fixture_leads_from_its_checkpoint_to_its_header() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ethereum/anchor_mainnet.json");
    let fixture: Value =
        serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    let bytes = |value: &Value| hex::decode(value.as_str().expect("hex")).expect("hex");
    assert_eq!((&fixture["chain"], &fixture["fork"]), (&"mainnet".into(), &"fulu".into()));
    let network = Network::mainnet();
    let preset = network.preset();
    let update = |name: &str, kind| {
        Update::from_ssz(&bytes(&fixture[name]), kind, Fork::Fulu, preset).expect(name)
    };
    let bootstrap = Bootstrap::from_ssz(&bytes(&fixture["bootstrap"]), Fork::Fulu, preset);
    let (first, last) =
        (update("update", UpdateKind::Full), update("finality_update", UpdateKind::Finality));
    let now = network.time_of_slot(last.signature_slot);
    let checkpoint = root(&fixture["checkpoint"]);
    let bootstrap = bootstrap.expect("a bootstrap");
    let mut client = LightClient::new(network, checkpoint, &bootstrap, now).expect("a checkpoint");
    let start = client.finalized().beacon.slot;
    client.handle(Event::Update(&first), now).expect("an update");
    assert!(client.is_next_committee_known());
    assert_eq!(client.finalized().beacon.slot, start, "the update finalises an earlier block");
    client.handle(Event::Update(&last), now).expect("a finality update");
    let anchor = client.finalized();
    assert_eq!(anchor.beacon.slot, number(&fixture["finalized_slot"]));
    assert_eq!(anchor.grade(), Grade::Finalized);
    let Evidence::Finalized(by) = anchor.evidence else { panic!("{}", anchor.evidence) };
    assert_eq!((by.signed, by.of), (511, 512));

    let execution = &fixture["execution"];
    let header = bytes(&execution["header"]);
    let hash = root(&execution["hash"]);
    assert_eq!((anchor.execution.bound_hash(), keccak256(&header)), (Some(hash), hash));
    let bound = anchor.execution.header().expect("a header");
    assert_eq!(bound.block_number, number(&execution["number"]));
    // The fields that both headers have are the same, the filter of the logs included.
    let header = HeaderView::decode(&header).expect("a header");
    assert_eq!(bound.block_number, header.number());
    assert_eq!(bound.parent_hash, header.parent_hash());
    assert_eq!(bound.state_root, header.state_root());
    assert_eq!(bound.receipts_root, header.receipts_root());
    assert_eq!(bound.timestamp, header.timestamp());
    assert_eq!(header.logs_bloom().bytes(), Some(&bound.logs_bloom.0.0));
}
