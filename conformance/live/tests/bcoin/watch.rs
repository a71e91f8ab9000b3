//! `btc watch --protocol bip37` against bcoin: past blocks first, then live, through
//! reorganisations, a node restart, and kills.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{fs, slice};

use chainsieve::bitcoin::{Address, Network, Transaction};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{Bcoin, SAME_ADDRESS};
use crate::command::{self, Running};
use crate::harness::{Scene, live};
use crate::peers::Need;
use crate::regtest::{Branch, Coin, Event, History, KINDS, Key, Kind, reported};
use testkit::Rng;

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Bcoin];
    vec![
        live("bcoin_watch_bip37_finds_the_past_of_every_type_of_script", needs, past),
        live("bcoin_watch_bip37_by_key_and_by_outpoint", needs, by_key_and_outpoint),
        live("bcoin_watch_bip37_keeps_up_live", needs, keeps_up),
    ]
}

/// A key with scripts of every type, and its unspent coins.
#[derive(Clone, Debug)]
pub(crate) struct Purse {
    pub(crate) key: Key,
    coins: Vec<Coin>,
}

impl Purse {
    pub(crate) fn new(number: u32) -> Self {
        Self { key: Key::new(number), coins: Vec::new() }
    }

    /// Returns a payment to the purse's script of type `kind`.
    pub(crate) fn receive(&mut self, branch: &mut Branch, kind: Kind) -> Transaction {
        let paid = branch.pay(vec![self.key.output(kind, 100_000)]);
        self.coins.push(self.key.coin(&paid, 0));
        paid
    }

    /// Returns a spend of the purse's oldest coin: half of the value is paid to someone else. If
    /// `back` is given, the rest is paid back to a script of this type.
    pub(crate) fn spend(&mut self, back: Option<Kind>) -> Option<Transaction> {
        let coin = (!self.coins.is_empty()).then(|| self.coins.remove(0))?;
        let left = coin.output.value.to_sat() - 1_000;
        let mut outputs = vec![Key::new(77).output(Kind::P2wpkh, left / 2)];
        outputs.extend(back.map(|kind| self.key.output(kind, left / 2)));
        let spent = self.key.spend(slice::from_ref(&coin), outputs);
        if back.is_some() && left > 20_000 {
            self.coins.push(self.key.coin(&spent, 1));
        }
        Some(spent)
    }

    /// Writes a file with the purse's scripts. A script that has an address is written as this
    /// address.
    pub(crate) fn items(&self, scene: &Scene) -> PathBuf {
        let mut text = String::from("# every type of script\n");
        for kind in KINDS {
            let script = self.key.script(kind);
            let address = Address::from_script(&script, Network::Regtest);
            let script = || ["script:", &script.to_hex_string()].concat();
            text += &address.map_or_else(|_| script(), |address| address.to_string());
            text.push('\n');
        }
        let path = scene.path("items");
        fs::write(&path, text).expect("a file");
        path
    }

    /// Returns the events of these scripts on the node's best chain.
    pub(crate) fn history(&self, node: &Bcoin, from: u32) -> BTreeSet<Event> {
        let scripts = KINDS.map(|kind| self.key.script(kind));
        History::of_scripts(scripts).read(from, &node.blocks_from(from))
    }
}

/// Returns more than a hundred transactions for a block: payments to every script type, spends, and
/// a coin that is paid and spent in this block.
fn crowded(branch: &mut Branch, purse: &mut Purse, rng: &mut Rng) -> Vec<Transaction> {
    let mut transactions = branch.filler(95);
    // The purse's transactions keep their order, at random positions among the other transactions.
    let mut ours: Vec<_> =
        KINDS.into_iter().filter_map(|kind| purse.spend(rng.one_in(2).then_some(kind))).collect();
    ours.extend(KINDS.map(|kind| purse.receive(branch, kind)));
    let brief = branch.pay(vec![purse.key.output(*rng.pick(&KINDS), 50_000)]);
    let coin = purse.key.coin(&brief, 0);
    let gone = purse.key.spend(&[coin], vec![purse.key.output(Kind::P2pkh, 40_000)]);
    ours.extend([brief, gone]);
    let mut places: Vec<usize> = ours.iter().map(|_| rng.below(95)).collect();
    places.sort_unstable();
    for (place, transaction) in places.into_iter().zip(ours).rev() {
        transactions.insert(place, transaction);
    }
    transactions
}

/// Returns the arguments with which `btc watch` watches these items.
fn arguments<'a>(items: &'a str, data: &'a str, peer: &'a str, birthday: &'a str) -> Vec<&'a str> {
    vec![
        "btc",
        "watch",
        "--protocol",
        "bip37",
        "--network",
        "regtest",
        "--file",
        items,
        "--data",
        data,
        "--peer",
        peer,
        "--birthday",
        birthday,
        "--json",
    ]
}

fn past(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mut purse = Purse::new(20);
    let mut rng = Rng::new(20);
    let birthday = branch.height() + 1;
    for _ in 0..6 {
        let transactions = crowded(&mut branch, &mut purse, &mut rng);
        assert!(transactions.len() > 100);
        node.submit(&branch.mine(transactions));
        let filler = branch.filler(100);
        node.submit(&branch.mine(filler));
    }
    let items = purse.items(scene);
    let (peer, birthday_text) = (node.address().to_string(), birthday.to_string());
    let data = scene.path("data");
    let mut arguments = arguments(
        items.to_str().expect("text"),
        data.to_str().expect("text"),
        &peer,
        &birthday_text,
    );
    arguments.push("--once");
    let ended = command::run(scene, &arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines = ended.lines();
    let expected = purse.history(&node, birthday);
    assert!(expected.len() > 100, "{}", expected.len());
    assert_eq!(reported(&lines), expected);
    let tip = node.height();
    for hit in lines.iter().filter(|line| line["kind"] == "hit") {
        assert_eq!(hit["evidence"], "merkle_proof", "{hit}");
        let height = hit["height"].as_u64().expect("confirmed");
        assert_eq!(hit["confirmations"], u64::from(tip) - height + 1, "{hit}");
    }
    // bcoin's own address index lists the same transactions.
    for kinds in SAME_ADDRESS {
        let scripts = kinds.iter().map(|&kind| purse.key.script(kind));
        let events = History::of_scripts(scripts).read(birthday, &node.blocks_from(birthday));
        let known = events.iter().map(|event| event.txid).collect();
        assert_eq!(node.transactions_of(&purse.key.script(kinds[0])), known);
        let txids: BTreeSet<_> = expected.iter().map(|event| event.txid).collect();
        assert!(txids.is_superset(&known));
    }
    // A second run reports nothing new, and repeats only hits that are marked as repeated.
    let again = command::run(scene, &arguments);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let news =
        again.lines().into_iter().filter(|line| line["kind"] == "hit" && line["again"] == false);
    assert_eq!(news.count(), 0, "{}", again.stdout);
}

fn by_key_and_outpoint(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mut purse = Purse::new(21);
    let mut rng = Rng::new(21);
    let birthday = branch.height() + 1;
    // A coin that belongs to someone else.
    let other = Key::new(22);
    let paid = branch.pay(vec![other.output(Kind::P2wshMultisig, 70_000)]);
    let coin = other.coin(&paid, 0);
    node.submit(&branch.mine(vec![paid]));
    for _ in 0..2 {
        let transactions = crowded(&mut branch, &mut purse, &mut rng);
        node.submit(&branch.mine(transactions));
    }
    let spent = other.spend(slice::from_ref(&coin), vec![other.output(Kind::P2pkh, 60_000)]);
    let mut transactions = branch.filler(30);
    transactions.push(spent);
    node.submit(&branch.mine(transactions));

    let peer = node.address().to_string();
    let birthday_text = birthday.to_string();
    let run = |data: &str, items: &[String]| {
        let data = scene.path(data);
        let mut arguments = vec!["btc", "watch", "--protocol", "bip37", "--network", "regtest"];
        arguments.extend(["--data", data.to_str().expect("text"), "--peer", &peer]);
        arguments.extend(["--birthday", &birthday_text, "--once", "--json"]);
        arguments.extend(items.iter().map(String::as_str));
        let ended = command::run(scene, &arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        reported(&ended.lines())
    };
    let blocks = node.blocks_from(birthday);

    // A key item covers four types of scripts.
    let of_key = [Kind::P2pk, Kind::P2pkh, Kind::P2wpkh, Kind::P2shP2wpkh];
    let expected = History::of_scripts(of_key.map(|kind| purse.key.script(kind)));
    let expected = expected.read(birthday, &blocks);
    assert_eq!(run("key", &[purse.key.public().to_string()]), expected);

    // With an outpoint as the item, only this coin is reported, and no other coin of its script.
    let item = format!(
        "outpoint:{}:{}={}",
        coin.outpoint.txid,
        coin.outpoint.vout,
        coin.output.script_pubkey.to_hex_string()
    );
    let mut of_coin = History::default();
    of_coin.watch(coin.outpoint);
    let expected = of_coin.read(birthday, &blocks);
    assert_eq!(expected.len(), 1);
    let found = run("outpoint", &[item]);
    assert!(found.is_superset(&expected), "{found:?}");
}

/// Waits until the command has caught up with the node's tip, and returns its lines.
pub(crate) fn caught_up(watcher: &mut Running, node: &Bcoin) -> Vec<Value> {
    let tip = json!(node.tip().to_string());
    watcher.wait("the node's best block", |lines| {
        let last = lines.iter().rev().find(|line| line["kind"] == "caught_up")?;
        (last["block"] == tip).then(|| lines.to_vec())
    })
}

fn keeps_up(scene: &Scene) {
    let mut node = Bcoin::on_disk(scene, "chain");
    let mut branch = Branch::begin(&node);
    let mut purse = Purse::new(23);
    let mut rng = Rng::new(23);
    let birthday = branch.height() + 1;
    let items = purse.items(scene);
    let (peer, birthday_text) = (node.address().to_string(), birthday.to_string());
    let data = scene.path("data");
    let arguments = arguments(
        items.to_str().expect("text"),
        data.to_str().expect("text"),
        &peer,
        &birthday_text,
    );
    let mut all: Vec<Value> = Vec::new();
    let mut watcher = Running::start(scene, &arguments);
    let check = |all: &[Value], node: &Bcoin, purse: &Purse, what: &str| {
        let expected = purse.history(node, birthday);
        assert_eq!(reported(all), expected, "{what}");
        assert!(!expected.is_empty());
    };

    // New blocks, one at a time.
    for _ in 0..3 {
        let transactions = crowded(&mut branch, &mut purse, &mut rng);
        node.submit(&branch.mine(transactions));
        let lines = caught_up(&mut watcher, &node);
        check(&lines, &node, &purse, "live");
    }

    // A payment is first unconfirmed, and then in a block.
    let payment = purse.receive(&mut branch, Kind::P2wpkh);
    let txid = json!(node.send(&payment).to_string());
    let hit = watcher.wait_for("an unconfirmed hit", |line| {
        line["kind"] == "hit" && line["txid"] == txid && line["height"].is_null()
    });
    assert_eq!(hit["evidence"], "unconfirmed", "{hit}");
    node.submit(&branch.mine(vec![payment]));
    let lines = caught_up(&mut watcher, &node);
    check(&lines, &node, &purse, "confirmed");

    // Three blocks with payments and spends are replaced by four others.
    let (mut other, mut other_purse) = (branch.fork(), purse.clone());
    for _ in 0..3 {
        let transactions = crowded(&mut branch, &mut purse, &mut rng);
        node.submit(&branch.mine(transactions));
    }
    let lines = caught_up(&mut watcher, &node);
    check(&lines, &node, &purse, "before the reorganisation");
    for _ in 0..4 {
        let transactions = crowded(&mut other, &mut other_purse, &mut rng);
        node.submit(&other.mine(transactions));
    }
    assert_eq!(node.tip(), other.tip());
    let (mut branch, mut purse) = (other, other_purse);
    let lines = caught_up(&mut watcher, &node);
    check(&lines, &node, &purse, "after the reorganisation");
    let reorg = lines.iter().find(|line| line["kind"] == "reorg").expect("said");
    assert_eq!(reorg["disconnected"].as_array().map(Vec::len), Some(3), "{reorg}");

    // The node stops, and starts again.
    node.stop();
    node.restart(scene);
    let transactions = crowded(&mut branch, &mut purse, &mut rng);
    node.submit(&branch.mine(transactions));
    let lines = caught_up(&mut watcher, &node);
    check(&lines, &node, &purse, "after the node's restart");

    // The command is killed while idle and while busy, with blocks and a reorganisation in between.
    all.extend(watcher.kill());
    for round in 0..4 {
        let (mut other, mut other_purse) = (branch.fork(), purse.clone());
        for _ in 0..2 {
            let transactions = crowded(&mut branch, &mut purse, &mut rng);
            node.submit(&branch.mine(transactions));
        }
        let mut watcher = Running::start(scene, &arguments);
        if round % 2 == 0 {
            caught_up(&mut watcher, &node);
        } else {
            watcher.wait("a line", |lines| (!lines.is_empty()).then_some(()));
        }
        all.extend(watcher.kill());
        for _ in 0..3 {
            let transactions = crowded(&mut other, &mut other_purse, &mut rng);
            node.submit(&other.mine(transactions));
        }
        assert_eq!(node.tip(), other.tip());
        (branch, purse) = (other, other_purse);
    }
    let mut watcher = Running::start(scene, &arguments);
    caught_up(&mut watcher, &node);
    let (code, lines, log) = watcher.interrupt();
    assert_eq!(code, Some(0), "{log}");
    all.extend(lines);
    check(&all, &node, &purse, "after kills");
}
