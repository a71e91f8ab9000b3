//! Soak test of `btc watch`: with BIP37 against bcoin, and with BIP157 against `btc test-node`, which
//! serves the same blocks.

use std::collections::VecDeque;

use chainsieve::bitcoin::{Block, Transaction};
use serde_json::json;

use super::watched::Watched;
use super::{Figures, Times};
use crate::bcoin::{Bcoin, Purse};
use crate::harness::Scene;
use crate::regtest::{Branch, KINDS, reported};
use crate::served::{Folder, Server};
use testkit::Rng;

/// Depth of the deepest reorganisation.
const DEEPEST: usize = 4;

pub(super) fn run(scene: &Scene, times: Times, seed: u64) -> Figures {
    let mut soak = Soak::begin(scene, seed);
    while !times.is_over() {
        soak.step(scene, times);
    }
    soak.end(scene)
}

struct Soak {
    rng: Rng,
    figures: Figures,
    node: Bcoin,
    folder: Folder,
    server: Server,
    /// The current state of the chain and the wallet. `before` contains their states before each of
    /// the last blocks.
    now: State,
    before: VecDeque<State>,
    birthday: u32,
    watchers: [Watched; 2],
    files: usize,
}

#[derive(Clone)]
struct State {
    branch: Branch,
    purse: Purse,
    /// Transactions that were sent to the node and are in no block of this chain.
    unconfirmed: Vec<Transaction>,
}

impl Soak {
    fn begin(scene: &Scene, seed: u64) -> Self {
        let node = Bcoin::on_disk(scene, "soak-chain");
        let branch = Branch::begin(&node);
        let birthday = branch.height() + 1;
        let folder = Folder::new(scene, "soak-blocks", &node.blocks_from(1));
        let server = Server::start(scene, &folder, &[]);
        let purse = Purse::new(40);
        let items = purse.items(scene);
        let birthday_text = birthday.to_string();
        let watch = |name, protocol, peer: String, data: &str| {
            let data = scene.path(data);
            let arguments = [
                "btc",
                "watch",
                "--protocol",
                protocol,
                "--network",
                "regtest",
                "--file",
                items.to_str().expect("text"),
                "--data",
                data.to_str().expect("text"),
                "--peer",
                &peer,
                "--birthday",
                &birthday_text,
                "--json",
            ];
            Watched::start(scene, name, &arguments)
        };
        let watchers = [
            watch("btc watch, BIP37", "bip37", node.address().to_string(), "soak-bip37"),
            watch("btc watch, BIP157", "bip157", server.address().to_string(), "soak-bip157"),
        ];
        Self {
            rng: Rng::new(seed),
            figures: Figures::default(),
            node,
            folder,
            server,
            now: State { branch, purse, unconfirmed: Vec::new() },
            before: VecDeque::new(),
            birthday,
            watchers,
            files: 0,
        }
    }

    fn step(&mut self, scene: &Scene, times: Times) {
        match self.rng.below(40) {
            0..=17 => self.mine(),
            18..=21 => self.send(),
            22..=26 => self.reorganise(),
            27..=28 => {
                self.node.disconnect_all();
                self.figures.add("times that bcoin dropped its peers", 1);
            }
            29 => {
                self.node.stop();
                self.node.restart(scene);
                self.figures.add("restarts of bcoin", 1);
            }
            30 => {
                let address = self.server.address().to_string();
                self.server.kill();
                self.server = Server::start_at(scene, &self.folder, &address, &[]);
                self.figures.add("kills of btc test-node", 1);
            }
            31..=34 if times.is_first_third() => {
                let which = self.rng.below(2);
                self.watchers[which].kill();
                self.figures.add("kills of btc watch", 1);
            }
            35 => self.compare(scene),
            _ => {
                self.catch_up(scene);
                if !times.is_first_third() {
                    self.watchers.iter_mut().for_each(Watched::weigh);
                }
            }
        }
    }

    /// Returns a block with payments, spends, and the pending transactions of the node's memory
    /// pool.
    fn next_block(&mut self) -> Block {
        self.before.push_back(self.now.clone());
        if self.before.len() > DEEPEST {
            self.before.pop_front();
        }
        let State { branch, purse, unconfirmed } = &mut self.now;
        let mut transactions = std::mem::take(unconfirmed);
        transactions.extend(branch.filler(self.rng.below(40)));
        for _ in 0..self.rng.below(5) {
            let kind = *self.rng.pick(&KINDS);
            transactions.push(purse.receive(branch, kind));
        }
        for _ in 0..self.rng.below(4) {
            let back = self.rng.one_in(2).then(|| *self.rng.pick(&KINDS));
            transactions.extend(purse.spend(back));
        }
        transactions.extend(branch.filler(self.rng.below(10)));
        self.figures.add("blocks of Bitcoin", 1);
        self.figures.add("transactions", transactions.len());
        branch.mine(transactions)
    }

    fn put(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.node.submit(block);
        }
        self.files += 1;
        self.folder.put(&format!("{:06}.dat", self.files), blocks);
    }

    fn mine(&mut self) {
        let blocks: Vec<_> = (0..=self.rng.below(2)).map(|_| self.next_block()).collect();
        self.put(&blocks);
        assert_eq!(self.node.tip(), self.now.branch.tip());
    }

    /// Sends a payment that is announced before it is in a block.
    fn send(&mut self) {
        let payment = self.now.purse.receive(&mut self.now.branch, *self.rng.pick(&KINDS));
        self.node.send(&payment);
        self.now.unconfirmed.push(payment);
        self.figures.add("unconfirmed payments", 1);
    }

    /// Replaces the last blocks by a branch that is one block longer.
    fn reorganise(&mut self) {
        if self.before.is_empty() {
            return;
        }
        let depth = 1 + self.rng.below(self.before.len());
        let fork = self.before[self.before.len() - depth].clone();
        self.before.truncate(self.before.len() - depth);
        self.now = State { branch: fork.branch.fork(), ..fork };
        let blocks: Vec<_> = (0..=depth).map(|_| self.next_block()).collect();
        self.put(&blocks);
        assert_eq!(self.node.tip(), self.now.branch.tip());
        self.figures.add("reorganisations", 1);
    }

    fn catch_up(&mut self, scene: &Scene) {
        let tip = json!(self.now.branch.tip().to_string());
        for watcher in &mut self.watchers {
            watcher.resume(scene);
            watcher
                .wait_for_newest(|line| line["kind"] == "caught_up", |line| line["block"] == tip);
        }
    }

    fn compare(&mut self, scene: &Scene) {
        self.catch_up(scene);
        let history = self.now.purse.history(&self.node, self.birthday);
        for watcher in &mut self.watchers {
            assert_eq!(reported(&watcher.lines()), history, "{}", watcher.name);
        }
    }

    fn end(mut self, scene: &Scene) -> Figures {
        self.compare(scene);
        let history = self.now.purse.history(&self.node, self.birthday);
        for watcher in &mut self.watchers {
            let lines = watcher.end();
            assert_eq!(reported(&lines), history, "{}", watcher.name);
            let hits = lines.iter().filter(|line| line["kind"] == "hit");
            self.figures.add("hits", hits.count());
        }
        self.figures.add("events that stand", history.len());
        self.figures
    }
}
