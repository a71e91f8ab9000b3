//! Tests `btc watch` on several instances of `btc test-node`: first with past blocks, then live,
//! through reorganisations, node restarts, and a kill of the command.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::bcoin::Bcoin;
use crate::command::Running;
use crate::harness::{Scene, live};
use crate::peers::Need;
use crate::regtest::{Branch, Event, KINDS, reported};
use crate::served::{Folder, Server};
use crate::wallet::{self, Wallet};

pub(crate) fn tests() -> Vec<Trial> {
    let needs = &[Need::Bcoin];
    vec![
        live("btc_watch_bip157_keeps_up_with_btc_test_node", needs, |scene| {
            keeps_up(scene, "bip157");
        }),
        live("btc_watch_bip37_keeps_up_with_btc_test_node", needs, |scene| {
            keeps_up(scene, "bip37");
        }),
    ]
}

/// The command, and the lines of all its runs.
struct Watch<'a> {
    scene: &'a Scene,
    arguments: Vec<String>,
    running: Option<Running>,
    /// The lines of the runs that have ended.
    before: Vec<Value>,
}

impl Watch<'_> {
    fn start(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.running = Some(Running::start(self.scene, &arguments));
    }

    fn kill(&mut self) {
        self.before.extend(self.running.take().expect("it runs").kill());
    }

    /// Waits until the events from all lines are exactly the expected ones.
    fn wait_for(&mut self, what: &str, expected: &BTreeSet<Event>) {
        let before = &self.before;
        self.running
            .as_mut()
            .expect("it runs")
            .wait(what, |lines| (reported(&[before, lines].concat()) == *expected).then_some(()));
    }

    /// Waits for a line of the current run.
    fn wait_for_line(&mut self, what: &str, is: impl Fn(&Value) -> bool) {
        self.running.as_mut().expect("it runs").wait_for(what, is);
    }
}

fn keeps_up(scene: &Scene, protocol: &str) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mut wallet = Wallet::new(5, &KINDS);
    wallet::live(&node, &mut branch, &mut wallet);
    let folder = Folder::new(scene, "blocks", &node.blocks_from(1));
    let mut servers = [(); 2].map(|()| Server::start(scene, &folder, &[]));
    let fixed = "btc watch --json --network regtest --timeout 5 --protocol";
    let mut arguments: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
    let data = scene.path("data").to_str().expect("a UTF-8 path").to_owned();
    arguments.extend([protocol.to_owned(), "--data".to_owned(), data]);
    for server in &servers {
        arguments.extend(["--peer".to_owned(), server.address().to_string()]);
    }
    let items = wallet.scripts().into_iter().map(|script| script.to_hex_string());
    arguments.extend(items.map(|script| format!("script:{script}")));
    let mut watch = Watch { scene, arguments, running: None, before: Vec::new() };
    let history =
        |wallet: &Wallet| -> BTreeSet<Event> { wallet.history(&node).into_iter().collect() };

    watch.start();
    watch.wait_for("the past", &history(&wallet));

    // A payment and a spend that are in no block at first.
    let mut other = (branch.clone(), wallet.clone());
    let payment = wallet.receive(&mut branch, &KINDS[3..]);
    let spend = wallet.spend(2);
    folder.put_transaction(&payment);
    folder.put_transaction(&spend);
    if protocol == "bip37" {
        for tx in [&payment, &spend] {
            let txid = tx.compute_txid().to_string();
            watch.wait_for_line("a transaction without a block", |line| {
                line["kind"] == "hit" && line["txid"] == *txid && line["height"].is_null()
            });
        }
    }
    let blocks = [branch.mine(vec![payment, spend]), branch.mine(Vec::new())];
    for block in &blocks {
        node.submit(block);
    }
    folder.put("second.dat", &blocks);
    watch.wait_for("what is new", &history(&wallet));

    // One node stops, and the other one gets the next block. Then the two nodes change roles.
    let addresses = servers.each_ref().map(|server| server.address().to_string());
    for number in [0, 1] {
        servers[number].kill();
        let spend = wallet.spend(1);
        let block = branch.mine(vec![spend]);
        node.submit(&block);
        folder.put(&format!("{number}.dat"), &[block]);
        watch.wait_for("the next block", &history(&wallet));
        servers[number] = Server::start_at(scene, &folder, &addresses[number], &[]);
    }

    // While the command is not running, a branch that starts before the payment becomes the longest
    // one.
    watch.kill();
    let mut longer = Vec::new();
    for _ in 0..2 {
        let payment = other.1.receive(&mut other.0, &KINDS[..2]);
        longer.push(other.0.mine(vec![payment]));
        longer.push(other.0.mine(vec![other.1.spend(1)]));
    }
    longer.push(other.0.mine(Vec::new()));
    for block in &longer {
        node.submit(block);
    }
    assert_eq!(node.tip(), other.0.tip());
    folder.put("longer.dat", &longer);
    for server in &mut servers {
        server.wait_for_tip(other.0.tip());
    }
    watch.start();
    watch.wait_for("the other branch", &history(&other.1));

    // Another reorganisation while the command is running.
    let payment = wallet.receive(&mut branch, &KINDS[..1]);
    let back = [branch.mine(vec![payment]), branch.mine(Vec::new())];
    for block in &back {
        node.submit(block);
    }
    assert_eq!(node.tip(), branch.tip());
    folder.put("back.dat", &back);
    watch.wait_for("the first branch again", &history(&wallet));
    let running = watch.running.take().expect("it runs");
    let (code, lines, log) = running.interrupt();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(lines.last().expect("a last line")["ended"], "interrupted");
}
