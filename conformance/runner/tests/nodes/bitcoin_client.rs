//! Each lie of a Bitcoin peer against the light client of this repository. The client reaches the
//! expected verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Network, OutPoint, Txid};
use chainsieve_client::{Birthday, Builder, Client, Grade, Item, Protocol, Wallet};
use chainsieve_conformance::serve::bitcoin::{Fate, LyingNode, Proxy, blocks, known_scripts};
use chainsieve_conformance::serve::{self, Lie, Verdict};

/// Limit of each wait: far longer than anything takes, since no times are measured.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the transactions of the built-in chain that pay to a known script or spend from one, with
/// their heights.
fn history() -> BTreeMap<Txid, u32> {
    let scripts: Vec<_> = known_scripts().into_iter().map(|known| known.script).collect();
    let (mut found, mut coins) = (BTreeMap::new(), BTreeSet::new());
    let blocks = (1..).zip(blocks());
    for (height, tx) in
        blocks.flat_map(|(at, block)| block.txdata.into_iter().map(move |tx| (at, tx)))
    {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            if scripts.contains(&output.script_pubkey) {
                coins.insert(OutPoint { txid, vout });
                found.insert(txid, height);
            }
        }
        if tx.input.iter().any(|input| coins.contains(&input.previous_output)) {
            found.insert(txid, height);
        }
    }
    found
}

fn truth() -> BTreeSet<Txid> {
    history().into_keys().collect()
}

fn client(protocol: Protocol, peers: &[String]) -> Client {
    let items = known_scripts().into_iter().map(|known| Item::Script(known.script)).collect();
    let wallet = Wallet::new(Birthday::Height(0), items);
    let builder = Builder::new(Network::Regtest).protocol(protocol).spot_audits(0);
    let builder = builder.timeout(Duration::from_secs(1)).wallet("test", wallet);
    peers.iter().fold(builder, Builder::peer).start().expect("started")
}

fn hits(client: &Client) -> BTreeSet<Txid> {
    let hits = client.hits("test").expect("running");
    hits.iter().filter(|hit| hit.place.is_some()).map(|hit| hit.txid).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn lying(lie: &Lie) -> LyingNode {
    LyingNode::builder().lie(lie.id).expect("a lie of a peer").start().expect("started")
}

/// The client meets the liar, and an honest peer that answers only after the lie was told. The
/// client finds everything that is on the chain.
fn with_an_honest_peer(lie: &'static Lie, protocol: Protocol) {
    let liar = std::sync::Arc::new(lying(lie));
    let honest = LyingNode::builder().start().expect("started");
    let first = std::sync::Arc::clone(&liar);
    let after =
        Proxy::start(([127, 0, 0, 1], 0).into(), Network::Regtest, honest.address(), move |_| {
            wait_until(lie.id, || first.told() > 0);
            Fate::Pass
        });
    let after = after.expect("started");
    let liar_address = liar.address().to_string();
    let client = client(protocol, &[liar_address.clone(), after.address().to_string()]);
    let expected = truth();
    wait_until(lie.id, || hits(&client) == expected);
    let status = client.status().expect("running");
    let peer = status.peers.iter().find(|peer| peer.address == liar_address);
    let peer = peer.expect("dialled");
    if lie.expected.verdict == Verdict::MustDetect {
        // The client only ends the connection where a peer may have failed, and may dial it again.
        let may_be_failure =
            ["btc-merkleblock-other-header", "btc-tx-withheld", "btc-tx-altered"].contains(&lie.id);
        assert!(may_be_failure || peer.state == "banned", "{}: {peer:?}", lie.id);
    }
}

/// The client meets the liar alone. It finds less than is on the chain, and claims no more than the
/// word of one peer.
fn alone(lie: &'static Lie, protocol: Protocol) {
    let liar = lying(lie);
    let client = client(protocol, &[liar.address().to_string()]);
    wait_until(lie.id, || client.status().expect("running").is_caught_up);
    assert!(liar.told() > 0, "{}", lie.id);
    let (found, expected) = (hits(&client), truth());
    assert!(found.is_subset(&expected) && found != expected, "{}", lie.id);
    // By BIP37 there are no grades: every answer is the word of one peer.
    let grades = client.grades().expect("running");
    for (txid, height) in history() {
        let of_height = grades.iter().find(|graded| (graded.from..=graded.to).contains(&height));
        let grade = of_height.map_or(Grade::OnePeer, |graded| graded.grade);
        assert!(found.contains(&txid) || grade == Grade::OnePeer, "{}: {height}: {grade}", lie.id);
    }
}

/// The protocols in which a lie can be told.
fn protocols(lie: &Lie) -> &'static [Protocol] {
    match lie.id {
        id if id.contains("merkleblock") || id.starts_with("btc-tx") => &[Protocol::Bip37],
        id if id.contains("filter") => &[Protocol::Bip157],
        "btc-block-altered" | "btc-witness-altered" => &[Protocol::Bip157],
        _ => &[Protocol::Bip157, Protocol::Bip37],
    }
}

#[test]
fn the_client_reaches_the_expected_verdict_about_each_lie() {
    let of_bitcoin = serve::lies().filter(|lie| lie.protocol == serve::Protocol::BitcoinP2p);
    for lie in of_bitcoin {
        for &protocol in protocols(lie) {
            if lie.expected.verdict == Verdict::CannotDetectAlone {
                alone(lie, protocol);
            }
            // By BIP37, the client asks one peer about each block, and no peer is found out.
            if lie.id != "btc-merkleblock-hides-matches" {
                with_an_honest_peer(lie, protocol);
            }
        }
    }
}

#[test]
fn an_honest_node_has_everything() {
    let node = LyingNode::builder().start().expect("started");
    for protocol in [Protocol::Bip157, Protocol::Bip37] {
        let client = client(protocol, &[node.address().to_string()]);
        let expected = truth();
        assert_eq!(expected.len(), 40);
        wait_until("everything", || hits(&client) == expected);
    }
    assert_eq!(node.told(), 0);
}
