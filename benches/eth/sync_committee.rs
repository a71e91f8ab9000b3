//! The light client of the beacon chain: what a bootstrap, a period, a finality update and its stored
//! state cost, and the signature of 511 members compared with `blst`. The data are the recorded ones of mainnet.

use std::time::Duration;

use alloy_primitives::B256;
use bitcoin::hashes::{Hash as _, sha256};
use blst::BLST_ERROR;
use blst::min_pk::{PublicKey, Signature};
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Bootstrap, Event, LightClient, SyncCommittee, Update, UpdateKind,
};

use testkit::timer::Report;

const SUITE: &[u8] = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";

pub(crate) fn run(report: &mut Report) {
    let Some((root, _)) = testkit::corpus::index("anchors") else { return };
    let network = Network::mainnet();
    let preset = network.preset();
    let read = |name: &str| {
        let name = root.join(format!("light_client/mainnet/fulu/{name}.ssz"));
        std::fs::read(&name).unwrap_or_else(|error| panic!("{}: {error}", name.display()))
    };
    let update = |name: &str, kind| Update::from_ssz(&read(name), kind, Fork::Fulu, preset);
    let bootstrap =
        Bootstrap::from_ssz(&read("bootstrap_14017856"), Fork::Fulu, preset).expect("valid");
    let full = update("update_1711", UpdateKind::Full).expect("valid");
    let finality = update("finality_14018020", UpdateKind::Finality).expect("valid");
    let now = network.time_of_slot(finality.signature_slot);
    let trusted = bootstrap.header.beacon.root();
    let start = || LightClient::new(network.clone(), trusted, &bootstrap, now).expect("valid");
    let client = start();

    report.figure("start from a bootstrap: verify it, decompress 512 keys", 1, start);
    report.figure_of(
        "update of a period: verify it, decompress the next 512 keys",
        1,
        || client.clone(),
        |client| client.handle(Event::Update(&full), now).expect("valid"),
    );
    let mut known = client.clone();
    known.handle(Event::Update(&full), now).expect("valid");
    let stored = known.to_json();
    assert_eq!(read_stored(&stored, &network, now).finalized(), known.finalized());
    report.figure("go on from a stored light client: parse it, decompress 1,024 keys", 1, || {
        read_stored(&stored, &network, now)
    });
    let bytes = u32::try_from(stored.len()).expect("small");
    report.value("stored light client", f64::from(bytes), "bytes");
    let keys = keys(&bootstrap.committee, &finality);
    let keys: Vec<_> = keys.iter().collect();
    let message = signing_root(finality.attested.beacon.root(), &network);
    let peer = || {
        let signature = Signature::from_bytes(&finality.aggregate.signature.0).expect("a point");
        signature.fast_aggregate_verify(true, &message, SUITE, &keys)
    };
    assert_eq!(peer(), BLST_ERROR::BLST_SUCCESS);
    let mut ours = client.clone();
    ours.handle(Event::Update(&finality), now).expect("valid");
    report.ratio(
        "verify a finality update vs blst: its signature alone",
        1,
        || client.clone().handle(Event::Update(&finality), now),
        peer,
    );
}

fn read_stored(text: &str, network: &Network, now: Duration) -> LightClient {
    LightClient::from_json(text, network.clone(), now).expect("stored")
}

/// Returns the decompressed keys of the participants.
fn keys(committee: &SyncCommittee, update: &Update) -> Vec<PublicKey> {
    let bit = |index: usize| update.aggregate.bits[index / 8] >> (index % 8) & 1 == 1;
    let participants = committee.keys.iter().enumerate().filter(|(index, _)| bit(*index));
    participants.map(|(_, key)| PublicKey::from_bytes(&key.0).expect("a point")).collect()
}

/// Returns the message that a committee of Fulu signs.
fn signing_root(header: B256, network: &Network) -> [u8; 32] {
    let hash =
        |left: &[u8], right: &[u8]| sha256::Hash::hash(&[left, right].concat()).to_byte_array();
    let mut version = [0; 32];
    version[0] = 6;
    let data = hash(&version, network.genesis_validators_root().as_slice());
    let mut domain = [0; 32];
    domain[0] = 7;
    domain[4..].copy_from_slice(&data[..28]);
    hash(header.as_slice(), &domain)
}
