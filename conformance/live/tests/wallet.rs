//! A test wallet on a chain: payments to every script type, and spends of them.

use chainsieve::bitcoin::{Block, ScriptBuf, Transaction};

use crate::bcoin::Bcoin;
use crate::regtest::{Branch, Coin, Event, History, Key, Kind};

/// Value of each output of the wallet, in satoshis.
const EACH: u64 = 20_000;

/// A key, with coins of some script types.
#[derive(Clone, Debug)]
pub(crate) struct Wallet {
    key: Key,
    kinds: Vec<Kind>,
    coins: Vec<Coin>,
}

impl Wallet {
    pub(crate) fn new(number: u32, kinds: &[Kind]) -> Self {
        Self { key: Key::new(number), kinds: kinds.to_vec(), coins: Vec::new() }
    }

    /// Returns the wallet's scripts.
    pub(crate) fn scripts(&self) -> Vec<ScriptBuf> {
        self.kinds.iter().map(|&kind| self.key.script(kind)).collect()
    }

    /// Returns a stranger's transaction that pays one output to each of these script types.
    pub(crate) fn receive(&mut self, branch: &mut Branch, kinds: &[Kind]) -> Transaction {
        let outputs = kinds.iter().map(|&kind| self.key.output(kind, EACH)).collect();
        let tx = branch.pay(outputs);
        let vouts = 0..u32::try_from(kinds.len()).expect("few");
        self.coins.extend(vouts.map(|vout| self.key.coin(&tx, vout)));
        tx
    }

    /// Returns a transaction that spends the oldest coins to a stranger, without change.
    pub(crate) fn spend(&mut self, count: usize) -> Transaction {
        let coins: Vec<Coin> = self.coins.drain(..count).collect();
        let sats = EACH * coins.len() as u64 - 1_000;
        self.key.spend(&coins, vec![Key::new(9_999).output(Kind::P2wpkh, sats)])
    }

    /// Returns the wallet's events on the node's best chain, by a direct search.
    pub(crate) fn history(&self, node: &Bcoin) -> Vec<Event> {
        let history = History::of_scripts(self.scripts());
        history.read(1, &node.blocks_from(1)).into_iter().collect()
    }
}

/// Mines and submits blocks in which the wallet receives and spends, mixed with other transactions.
pub(crate) fn live(node: &Bcoin, branch: &mut Branch, wallet: &mut Wallet) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut mine = |branch: &mut Branch, txs: Vec<Transaction>| {
        let block = branch.mine(txs);
        node.submit(&block);
        blocks.push(block);
    };
    // One script type in each block, with blocks in between that do not concern the wallet.
    let kinds = wallet.kinds.clone();
    for &kind in &kinds {
        let mut txs = branch.filler(3);
        txs.push(wallet.receive(branch, &[kind]));
        txs.extend(branch.filler(2));
        mine(branch, txs);
        let txs = branch.filler(2);
        mine(branch, txs);
    }
    // Spend the coins one after the other, and the last two together.
    for _ in 2..kinds.len() {
        let spend = wallet.spend(1);
        let mut txs = branch.filler(1);
        txs.push(spend);
        mine(branch, txs);
    }
    let together = wallet.spend(2);
    // Coins that are received and spent in the same block.
    let received = wallet.receive(branch, &kinds);
    let spent = wallet.spend(3);
    mine(branch, vec![received, together, spent]);
    let txs = branch.filler(4);
    mine(branch, txs);
    blocks
}

/// Mines empty blocks.
pub(crate) fn idle(node: &Bcoin, branch: &mut Branch, count: usize) {
    for _ in 0..count {
        node.submit(&branch.mine(Vec::new()));
    }
}
