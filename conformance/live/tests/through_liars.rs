//! Tests the command as a light client of several `btc test-node` nodes. Some of the nodes are behind a
//! proxy that stalls, disconnects and lies. The command must report exactly what is on the chain.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::sync::OnceLock;

use chainsieve::bitcoin::{Block, Network, ScriptBuf};
use chainsieve_conformance::serve::Count;
use chainsieve_conformance::serve::bitcoin::{FalseFilters, Fate, Proxy, Rule, rules};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::bcoin::Bcoin;
use crate::command::{self, Ended};
use crate::harness::{Scene, bitcoin_proxy, live, wait_until};
use crate::peers::Need;
use crate::regtest::{Branch, Event, KINDS, Move};
use crate::served::{Folder, Server};
use crate::wallet::{self, Wallet};

/// The peers of a test: which of them misbehave, and when the others answer.
#[derive(Clone, Copy)]
enum Peers {
    /// One bad peer and two honest peers, all available from the start.
    Three,
    /// One bad peer, and two honest peers that answer only after the bad peer has misbehaved. So
    /// the client certainly asks the bad peer.
    BadFirst,
    /// Two peers that misbehave in the same way, and an honest one.
    TwoBad,
}

/// Name of a case, its peers, and the rule that the bad peers follow.
type Case = (&'static str, Peers, fn(&Past, Count) -> Rule);

const BIP157: [Case; 15] = [
    ("damaged_filters", Peers::BadFirst, |_, n| rules::damaged_filters(n)),
    ("noisy_filter_headers", Peers::Three, |_, n| rules::noisy_filter_headers(n)),
    ("filters_that_hide_payments", Peers::Three, hiding_payments),
    ("two_that_hide_payments", Peers::TwoBad, hiding_payments),
    ("filters_that_hide_spends", Peers::Three, hiding_spends),
    ("two_that_hide_spends", Peers::TwoBad, hiding_spends),
    ("unproven_headers", Peers::BadFirst, |_, n| rules::unproven_headers(n)),
    ("altered_blocks", Peers::BadFirst, |_, n| rules::altered_blocks(n)),
    ("altered_witnesses", Peers::BadFirst, |_, n| rules::altered_witnesses(n)),
    ("a_stall_in_the_handshake", Peers::Three, |_, n| rules::stalls(1, n)),
    ("a_stall", Peers::BadFirst, |_, n| rules::stalls(5, n)),
    ("a_late_stall", Peers::BadFirst, |_, n| rules::stalls(100, n)),
    ("hanging_up", Peers::BadFirst, |_, n| rules::hangs_up(6, n)),
    ("garbage", Peers::BadFirst, |_, n| rules::garbage(4, n)),
    ("bytes_that_trickle", Peers::BadFirst, |_, n| rules::trickles(n)),
];

const BIP37: [Case; 10] = [
    ("withheld_transactions", Peers::BadFirst, |_, n| rules::withheld_transactions(n)),
    ("altered_transactions", Peers::BadFirst, |_, n| rules::altered_transactions(n)),
    ("false_proofs", Peers::BadFirst, |_, n| rules::false_proofs(n)),
    ("other_headers", Peers::BadFirst, |_, n| rules::other_headers(n)),
    ("unproven_headers", Peers::BadFirst, |_, n| rules::unproven_headers(n)),
    ("a_stall_in_the_handshake", Peers::Three, |_, n| rules::stalls(1, n)),
    ("a_stall", Peers::BadFirst, |_, n| rules::stalls(50, n)),
    ("hanging_up", Peers::BadFirst, |_, n| rules::hangs_up(40, n)),
    ("garbage", Peers::BadFirst, |_, n| rules::garbage(30, n)),
    ("bytes_that_trickle", Peers::BadFirst, |_, n| rules::trickles(n)),
];

pub(crate) fn tests() -> Vec<Trial> {
    let trial = |protocol: &'static str, case: &'static Case| {
        let name = format!("btc_watch_{protocol}_through_{}", case.0);
        let run = move |scene: &Scene| through(scene, protocol, case);
        live(String::leak(name), &[Need::Bcoin], run)
    };
    let mut tests: Vec<Trial> = BIP157.iter().map(|case| trial("bip157", case)).collect();
    tests.extend(BIP37.iter().map(|case| trial("bip37", case)));
    tests.extend([
        live("btc_watch_bip157_with_a_liar_alone_has_its_word", &[Need::Bcoin], alone_bip157),
        live("btc_watch_bip157_finds_a_liar_out_alone", &[Need::Bcoin], caught_alone),
        live("btc_watch_bip37_with_a_liar_alone_has_its_word", &[Need::Bcoin], alone_bip37),
        live("btc_watch_bip157_with_peers_behind", &[Need::Bcoin], |scene| behind(scene, "bip157")),
        live("btc_watch_bip37_with_peers_behind", &[Need::Bcoin], |scene| behind(scene, "bip37")),
    ]);
    tests
}

/// The chain that the tests share, and the events of a wallet on it.
struct Past {
    blocks: Vec<Block>,
    /// The blocks of a branch with less work.
    other: Vec<Block>,
    scripts: Vec<ScriptBuf>,
    events: BTreeSet<Event>,
}

fn past(scene: &Scene) -> &'static Past {
    static PAST: OnceLock<Past> = OnceLock::new();
    PAST.get_or_init(|| {
        let node = Bcoin::in_memory(scene);
        let mut branch = Branch::begin(&node);
        let mut wallet = Wallet::new(4, &KINDS);
        wallet::live(&node, &mut branch, &mut wallet);
        // The chain gets more blocks than one request for filters covers.
        wallet::idle(&node, &mut branch, 600);
        let mut other = branch.clone();
        wallet::live(&node, &mut branch, &mut wallet);
        let fork = other.height() as usize;
        let events = wallet.history(&node).into_iter().collect();
        let blocks = node.blocks_from(1);
        let mut other_blocks = blocks[..fork].to_vec();
        let mut elsewhere = Wallet::new(4, &KINDS);
        for _ in 0..10 {
            // Payments to the wallet on this branch must not be reported.
            let payment = elsewhere.receive(&mut other, &KINDS[..1]);
            other_blocks.push(other.mine(vec![payment]));
        }
        Past { blocks, other: other_blocks, scripts: wallet.scripts(), events }
    })
}

/// The command finds exactly what is on the chain, if at least one peer is honest.
fn through(scene: &Scene, protocol: &str, (_, peers, rule): &Case) {
    let past = past(scene);
    let folder = Folder::new(scene, "blocks", &past.blocks);
    let servers = [(); 3].map(|()| Server::start(scene, &folder, &[]));
    let count = Count::default();
    let mut number = 0;
    let proxies = servers.each_ref().map(|server| {
        number += 1;
        let rule = match (peers, number) {
            (_, 1) | (Peers::TwoBad, 2) => rule(past, count.clone()),
            (Peers::BadFirst, _) => comes_after(count.clone()),
            _ => rules::honest(),
        };
        bitcoin_proxy(server.address(), rule)
    });
    let ended = watch(scene, past, protocol, &proxies.each_ref().map(Proxy::address));
    assert!(count.get() > 0, "the rule never misbehaved: {}", ended.stderr);
    check(&ended, past);
}

/// Nothing protects from a single peer that lies consistently. The report must say that the result
/// is the claim of one peer.
fn alone_bip157(scene: &Scene) {
    let past = past(scene);
    let ended = alone(scene, hiding(past, |_| true), &["--spot-audits", "0"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines = ended.lines();
    assert_eq!(found(&lines), BTreeSet::new());
    let grades = lines.last().expect("a last line")["grades"].as_array().expect("a list").clone();
    for event in &past.events {
        let covers = |grade: &&Value| {
            let within = |field: &str| grade[field].as_u64().expect("a height");
            (within("from")..=within("to")).contains(&event.height.into())
        };
        let grade = grades.iter().find(covers).expect("a grade of every height");
        assert_eq!(grade["grade"], "one_peer", "{event:?}");
    }
}

/// A lie in the filter of a block that is fetched is detected without any other peer.
fn caught_alone(scene: &Scene) {
    let past = past(scene);
    // The command fetches these blocks, because their filters still match the spends.
    let paid = |what| matches!(what, Move::Paid { .. });
    let ended = alone(scene, hiding(past, paid), &["--spot-audits", "0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("is false: the block proves it"), "{}", ended.stderr);
    let lines = ended.lines();
    let last = lines.last().expect("a last line");
    assert_eq!(last["ended"], "gave_up");
    let finding = lines.iter().find(|line| line["finding"] == "false_filter").expect("a finding");
    let [claimed] = last["false_filters"].as_array().expect("a list").as_slice() else {
        panic!("{last}");
    };
    assert_eq!((&claimed["height"], &claimed["block"]), (&finding["height"], &finding["block"]));
    let peer = &last["peers"][0];
    assert_eq!((&peer["state"], &peer["address"]), (&json!("banned"), &claimed["peer"]));
    let why = peer["banned_for"].as_str().expect("a reason");
    assert!(why.contains(claimed["filter_hash"].as_str().expect("a hash")), "{why}");
    let proof = scene.path("proof.hex");
    fs::write(&proof, claimed["proof"].as_str().expect("hex")).expect("written");
    let block = claimed["block"].as_str().expect("a hash");
    let proof = proof.to_str().expect("UTF-8");
    let filter = claimed["filter_hash"].as_str().expect("a hash");
    let what = ["--json", "btc", "cf", "audit", "--proof", proof, "--network", "regtest"];
    let verified = command::run(
        scene,
        &[&what[..], &["--block-hash", block, "--filter-hash", filter][..]].concat(),
    );
    assert_eq!((verified.code, &verified.json()["holds"]), (0, &json!(true)));
}

/// Runs the command with one peer that serves false filters.
fn alone(scene: &Scene, filters: FalseFilters, options: &[&str]) -> Ended {
    let past = past(scene);
    let folder = Folder::new(scene, "blocks", &past.blocks);
    let server = Server::start(scene, &folder, &[]);
    let count = Count::default();
    let liar = bitcoin_proxy(server.address(), filters.rule(count.clone()));
    let ended = watch_with(scene, past, "bip157", &[liar.address()], options);
    assert!(count.get() > 0, "the rule never misbehaved: {}", ended.stderr);
    ended
}

/// Tests a single peer whose merkle blocks hide the matches. Results by BIP37 have no grades.
fn alone_bip37(scene: &Scene) {
    let past = past(scene);
    let folder = Folder::new(scene, "blocks", &past.blocks);
    let server = Server::start(scene, &folder, &[]);
    let count = Count::default();
    let liar = bitcoin_proxy(server.address(), rules::hidden_matches(count.clone()));
    let ended = watch(scene, past, "bip37", &[liar.address()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(count.get() > 0);
    let lines = ended.lines();
    assert_eq!(found(&lines), BTreeSet::new());
    for line in &lines {
        let claims = line["grade"].as_str().into_iter();
        let in_list = line["grades"].as_array().into_iter().flatten();
        let claims = claims.chain(in_list.filter_map(|grade| grade["grade"].as_str()));
        assert!(claims.into_iter().all(|grade| grade == "one_peer"), "{line}");
    }
}

/// Tests one peer that lacks the last blocks, and one peer on a branch with less work.
fn behind(scene: &Scene, protocol: &str) {
    let past = past(scene);
    let whole = Folder::new(scene, "whole", &past.blocks);
    let short = Folder::new(scene, "short", &past.blocks[..past.blocks.len() - 20]);
    let other = Folder::new(scene, "other", &past.other);
    let servers = [&short, &other, &whole].map(|folder| Server::start(scene, folder, &[]));
    let addresses = servers.each_ref().map(Server::address);
    check(&watch(scene, past, protocol, &addresses), past);
}

fn watch(scene: &Scene, past: &Past, protocol: &str, peers: &[SocketAddr]) -> Ended {
    watch_with(scene, past, protocol, peers, &[])
}

fn watch_with(
    scene: &Scene,
    past: &Past,
    protocol: &str,
    peers: &[SocketAddr],
    options: &[&str],
) -> Ended {
    let data = scene.path("data");
    let data = data.to_str().expect("a UTF-8 path");
    let fixed = "btc watch --json --once --network regtest --timeout 3 --give-up 90";
    let mut arguments: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
    arguments.extend(["--data", data, "--protocol", protocol].map(str::to_owned));
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    for peer in peers {
        arguments.extend(["--peer".to_owned(), peer.to_string()]);
    }
    arguments
        .extend(past.scripts.iter().map(|script| format!("script:{}", script.to_hex_string())));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command::run(scene, &arguments)
}

/// Checks that the command reports exactly the events of the chain.
fn check(ended: &Ended, past: &Past) {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines = ended.lines();
    let end = lines.last().expect("a last line");
    assert_eq!(end["ended"], "caught_up", "{end}");
    let tip = past.blocks.last().expect("blocks").block_hash().to_string();
    assert_eq!(end["tip"]["block"], tip, "{end}");
    assert_eq!(found(&lines), past.events, "{}", ended.stderr);
}

/// Returns the confirmed events that the command reports. Each event must be reported once, and
/// each spend as certain.
fn found(lines: &[Value]) -> BTreeSet<Event> {
    let mut events = BTreeSet::new();
    for line in lines.iter().filter(|line| line["kind"] == "hit" && !line["height"].is_null()) {
        let hash = |field: &str| line[field].as_str().expect("hex").to_owned();
        let number = |value: &Value| u32::try_from(value.as_u64().expect("a number")).expect("u32");
        let mut note = |what| {
            let event = Event {
                height: number(&line["height"]),
                block: hash("block").parse().expect("a hash"),
                txid: hash("txid").parse().expect("a hash"),
                what,
            };
            assert!(events.insert(event) || line["again"] == true, "twice: {line}");
        };
        for received in line["received"].as_array().expect("a list") {
            note(Move::Paid { vout: number(&received["vout"]) });
        }
        for spent in line["spent"].as_array().expect("a list") {
            assert_eq!(spent["certain"], true, "{line}");
            note(Move::Spent { vin: number(&spent["vin"]) });
        }
    }
    events
}

/// Returns a rule with filters that hide the wallet's payments.
fn hiding_payments(past: &Past, lies: Count) -> Rule {
    hiding(past, |what| matches!(what, Move::Paid { .. })).rule(lies)
}

/// Returns a rule with filters that hide the wallet's spends.
fn hiding_spends(past: &Past, lies: Count) -> Rule {
    hiding(past, |what| matches!(what, Move::Spent { .. })).rule(lies)
}

/// Returns filters of altered blocks. If `such` returns `true` for an event of the wallet, the
/// event's transaction is removed from its block. So the filters contain neither the scripts that
/// this transaction spends nor the scripts that it pays.
fn hiding(past: &Past, such: impl Fn(Move) -> bool) -> FalseFilters {
    let hidden = past.events.iter().filter(|event| such(event.what));
    let hidden: BTreeSet<_> = hidden.map(|event| (event.height as usize, event.txid)).collect();
    let filters = FalseFilters::new(Network::Regtest, past.blocks.clone(), |height, block| {
        block.txdata.retain(|tx| !hidden.contains(&(height, tx.compute_txid())));
    });
    filters.expect("all scripts are there")
}

/// Forwards everything unchanged, but only after another rule has misbehaved.
fn comes_after(other: Count) -> Rule {
    Box::new(move |_| {
        wait_until("a lie", || other.get() > 0);
        Fate::Pass
    })
}
