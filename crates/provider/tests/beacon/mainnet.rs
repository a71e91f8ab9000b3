//! Real objects of mainnet over HTTP, from a checkpoint to a finalised block.

use std::path::PathBuf;
use std::time::Duration;

use chainsieve::alloy_primitives::{B256, Bytes, hex, keccak256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{HeaderProof, ProofKind};
use chainsieve::eth::anchor::links::LinkKind;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Anchor, Bootstrap, Update, UpdateKind};
use chainsieve_provider::{AnchorSource, BeaconClient, BeaconError, LinkOptions, Provider};
use serde_json::Value;
use testkit::eth::beacon_server::{BeaconData, BeaconServer, Quirk};
use testkit::eth::json_rpc;
use testkit::eth::rpc_methods::{self, BlockId, RpcBlock};

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
        for update in Update::list_from_ssz(&body, &network).expect(name) {
            data.updates.insert(network.period_of_slot(update.attested.beacon.slot), update);
        }
    }
    assert_eq!(data.updates.len(), 28);
    let anchor = both(root, &data);
    assert_eq!(network.period_of_slot(anchor.beacon.slot), 1406);
    let last = data.updates[&1406].finality.as_ref().expect("finality");
    assert_eq!(anchor.beacon, last.header.as_ref().expect("a header").beacon);
}

/// A block, and a proof of its header.
struct Proven {
    number: u64,
    header: Bytes,
    proof: HeaderProof,
}

/// Returns the header proofs of the corpus that belong to a header.
fn proven() -> Option<Vec<Proven>> {
    let (root, files) = testkit::corpus::index("anchors")?;
    let read = |name: &str| std::fs::read(root.join(name));
    let proofs = files.iter().filter_map(|file| {
        let name = file["file"].as_str()?.strip_suffix(".proof.ssz")?;
        let kind = ProofKind::from_code(file["proof_type"].as_u64()?).ok()?;
        let ssz = read(&format!("{name}.proof.ssz")).expect(name);
        Some(Proven {
            number: file["number"].as_u64()?,
            header: read(&format!("{name}.header.rlp")).ok()?.into(),
            proof: HeaderProof::decode(kind, &ssz).expect(name),
        })
    });
    Some(proofs.collect())
}

/// What an archive has for a block.
type Archive<'a> = &'a dyn Fn(u64) -> Result<Option<(Bytes, HeaderProof)>, String>;

/// The light client of the fixture knows a block of 2026. Archives have proofs of earlier headers.
#[test]
fn links_by_the_header_proofs_of_archives() {
    let Some(cases) = proven() else { return };
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ethereum/anchor_mainnet.json");
    let fixture: Value =
        serde_json::from_slice(&std::fs::read(fixture).expect("a fixture")).expect("JSON");
    let bytes = |value: &Value| hex::decode(value.as_str().expect("hex")).expect("hex");
    let network = Network::mainnet();
    let (fork, preset) = (Fork::Fulu, network.preset());
    let mut data = BeaconData::default();
    let bootstrap = Bootstrap::from_ssz(&bytes(&fixture["bootstrap"]), fork, preset);
    let root = data.add_bootstrap(bootstrap.expect("a bootstrap"));
    let update = |name: &str, kind| {
        Update::from_ssz(&bytes(&fixture[name]), kind, fork, preset).expect(name)
    };
    data.updates.insert(1711, update("update", UpdateKind::Full));
    data.finality = Some(update("finality_update", UpdateKind::Finality));
    let server = BeaconServer::start(&network, data);
    let client = BeaconClient::builder(network.clone()).checkpoint(root).url(server.url());
    let client = client.retries(0).build().expect("a client");
    client.sync().expect("a bootstrap");

    // A node with the finalised block alone.
    let head = bytes(&fixture["execution"]["header"]);
    let hash = keccak256(&head);
    assert_eq!(fixture["execution"]["hash"], hash.to_string());
    let address = json_rpc::serve(move |method, params| {
        rpc_methods::result(method, params, |id| {
            let block = RpcBlock {
                header_rlp: &head,
                hash,
                transactions: vec![],
                bodies: vec![],
                receipts: vec![],
            };
            (BlockId::of(id) == Some(BlockId::Hash(hash))).then_some(block)
        })
    });
    let provider =
        Provider::builder().url(&format!("http://{address}")).retries(0).trust_head().build();
    let provider = provider.expect("a provider");
    // Archives are asked in order; each answers with what it has for a block.
    let link = |number: u64, archives: &[Archive<'_>]| {
        let mut find = |number, accept: &mut dyn FnMut(Bytes, HeaderProof) -> bool| {
            for archive in archives {
                if let Some((header, proof)) = archive(number)?
                    && accept(header, proof)
                {
                    break;
                }
            }
            Ok(())
        };
        let mut options = LinkOptions::new(provider.nodes());
        options.proofs = Some(&mut find);
        client.link(number, options)
    };
    let refused = |number: u64, error: BeaconError, words: &str| {
        let BeaconError::TooManyHeaders { failures, .. } = &error else { panic!("{error}") };
        assert!(failures.iter().any(|it| it.contains(words)), "{number}: {failures:?}");
    };
    let mut embedded = Vec::new();
    for case in &cases {
        let Proven { number, header, proof } = case;
        let honest = |asked: u64| {
            assert_eq!(asked, *number);
            Ok(Some((header.clone(), proof.clone())))
        };
        let linked = link(*number, &[&honest]);
        if proof.kind().uses_summaries() {
            // No server has the summaries.
            refused(*number, linked.expect_err("no summaries"), "historical summaries");
            continue;
        }
        embedded.push(case);
        let (shown, linked) = linked.unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!((shown.number, shown.hash), (Some(*number), keccak256(header)));
        assert_eq!(shown.by, [LinkKind::HeaderProof(proof.kind())], "{number}");
        // The proof rests on a list that this library embeds, not on the light client.
        assert_eq!((shown.grade, shown.checkpoint), (Grade::ReleaseCheckpoint, None), "{number}");
        assert_eq!(linked.verify(&linked.origin, &network), Ok(shown), "{number}");
    }
    assert!(embedded.len() >= 10, "{}", embedded.len());
    for pair in embedded.windows(2) {
        let [one, other] = pair else { continue };
        let number = one.number;
        let honest = |_| Ok(Some((one.header.clone(), one.proof.clone())));
        let refused = |answer: Result<Option<(Bytes, HeaderProof)>, String>, words: &str| {
            let first = |_| answer.clone();
            refused(number, link(number, &[&first]).expect_err(words), words);
            // Another archive has the block.
            if answer.is_ok() {
                let (shown, _) = link(number, &[&first, &honest]).expect(words);
                assert_eq!((shown.number, shown.hash), (Some(number), keccak256(&one.header)));
            }
        };
        refused(Ok(None), &format!("no archive has a proof of block {number}"));
        refused(Err("an archive is cut off".into()), "an archive is cut off");
        let words = format!("an archive names block {} as block {number}", other.number);
        refused(Ok(Some((other.header.clone(), other.proof.clone()))), &words);
        refused(Ok(Some((one.header.clone(), other.proof.clone()))), "link 0");
        refused(Ok(Some((Bytes::from_static(b"\xc0"), one.proof.clone()))), "header 0");
    }
}
