//! Blocks that the tests mine, on the node's best chain or on a side branch.

use std::collections::VecDeque;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use chainsieve::bitcoin::consensus::serialize;
use chainsieve::bitcoin::hashes::{Hash as _, hash160};
use chainsieve::bitcoin::opcodes::all::OP_DROP;
use chainsieve::bitcoin::script::{Builder, PushBytesBuf};
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, OutPoint, PubkeyHash, ScriptBuf, ScriptHash, Transaction, TxOut,
    WPubkeyHash,
};
use testkit::btc::regtest;

use super::{Coin, Key, Kind};
use crate::bcoin::Bcoin;

/// Number of blocks after which segregated witness is active on bcoin's regtest: three periods of
/// BIP9.
const SEGWIT: u32 = 432;
/// Number of blocks after which a block reward can be spent.
const MATURE: u32 = 100;
/// Value of a coin of the purse, in satoshis.
pub(crate) const PURSE_COIN: u64 = 16_000_000;
/// Number of coins that a purse starts with.
const PURSE: u32 = 1_200;

/// A coin of the purse. The coin's script requires no signature, because signature checks are most
/// of the cost of a large block in a JavaScript node.
#[derive(Clone, Debug)]
struct OpenCoin {
    outpoint: OutPoint,
    value: Amount,
}

/// Returns a unique script that anyone can spend: it pushes a tag and drops it.
fn open(unique: OutPoint) -> ScriptBuf {
    let tag: PushBytesBuf = serialize(&unique).try_into().expect("short");
    Builder::new().push_slice(tag).push_opcode(OP_DROP).push_int(1).into_script()
}

fn spend(coin: &OpenCoin, output: Vec<TxOut>) -> Transaction {
    regtest::transaction(vec![regtest::input(coin.outpoint)], output)
}

/// The tip of a branch, and coins to spend on it.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// The key that fills the purse; no test watches it.
    stranger: Key,
    purse: VecDeque<OpenCoin>,
    tip: BlockHash,
    height: u32,
    time: u32,
    /// Number of the branch, which makes its blocks differ from the blocks of other branches.
    number: u64,
}

impl Branch {
    /// Mines a node's first blocks, until segregated witness is active and the purse is full.
    pub(crate) fn begin(node: &Bcoin) -> Self {
        assert_eq!(node.height(), 0, "a fresh chain");
        let stranger = Key::new(1);
        let height = SEGWIT + MATURE + 20;
        node.generate(height, stranger.hash());
        let tip = node.block(node.tip());
        let mut branch = Self {
            stranger,
            purse: VecDeque::new(),
            tip: tip.block_hash(),
            height,
            time: tip.header.time,
            number: 0,
        };
        let rewards: Vec<Coin> = (1..=4)
            .map(|height| {
                let block = node.block(node.hash_at(height));
                branch.stranger.coin(&block.txdata[0], 0)
            })
            .collect();
        let each = PURSE / 4;
        for reward in rewards {
            let value = Amount::from_sat(PURSE_COIN);
            let script = |vout| open(OutPoint { vout, ..reward.outpoint });
            let outputs = (0..each).map(|vout| TxOut { value, script_pubkey: script(vout) });
            let fan = branch.stranger.spend(slice::from_ref(&reward), outputs.collect());
            let txid = fan.compute_txid();
            let coins = (0..each).map(|vout| OpenCoin { outpoint: OutPoint { txid, vout }, value });
            branch.purse.extend(coins);
            let block = branch.mine(vec![fan]);
            node.submit(&block);
        }
        branch
    }

    /// Returns another branch from this tip. Coins spent on one branch are still unspent on the
    /// other.
    pub(crate) fn fork(&self) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), ..self.clone() }
    }

    /// Continues after the node's best block, which the node itself mined on this branch.
    pub(crate) fn adopt(&mut self, node: &Bcoin) {
        let header = node.block(node.tip()).header;
        (self.height, self.tip, self.time) = (node.height(), header.block_hash(), header.time);
    }

    pub(crate) fn height(&self) -> u32 {
        self.height
    }

    pub(crate) fn tip(&self) -> BlockHash {
        self.tip
    }

    /// Returns a transaction that pays these outputs from a coin of the purse. The change is its
    /// last output.
    pub(crate) fn pay(&mut self, outputs: Vec<TxOut>) -> Transaction {
        let coin = self.purse.pop_front().expect("a purse with coins");
        let paid: Amount = outputs.iter().map(|output| output.value).sum();
        let left = coin.value - paid - Amount::from_sat(5_000);
        let mut outputs = outputs;
        outputs.push(TxOut { value: left, script_pubkey: open(coin.outpoint) });
        let vout = u32::try_from(outputs.len() - 1).expect("few");
        let payment = spend(&coin, outputs);
        let outpoint = OutPoint { txid: payment.compute_txid(), vout };
        self.purse.push_back(OpenCoin { outpoint, value: left });
        payment
    }

    /// Returns transactions that do not concern any test wallet. Each transaction moves a coin
    /// within the purse, and pays a small amount to a script whose key nobody has.
    pub(crate) fn filler(&mut self, count: usize) -> Vec<Transaction> {
        let mut transactions = Vec::with_capacity(count);
        for _ in 0..count {
            let coin = self.purse.pop_front().expect("a purse with coins");
            let left = coin.value.to_sat() - 1_500;
            let (own, lost) =
                (open(coin.outpoint), hash160::Hash::hash(&serialize(&coin.outpoint)));
            let lost = match coin.outpoint.vout % 3 {
                0 => ScriptBuf::new_p2pkh(&PubkeyHash::from_raw_hash(lost)),
                1 => ScriptBuf::new_p2sh(&ScriptHash::from_raw_hash(lost)),
                _ => ScriptBuf::new_p2wpkh(&WPubkeyHash::from_raw_hash(lost)),
            };
            let outputs = vec![
                TxOut { value: Amount::from_sat(left), script_pubkey: own },
                TxOut { value: Amount::from_sat(1_000), script_pubkey: lost },
            ];
            let moved = spend(&coin, outputs);
            let outpoint = OutPoint { txid: moved.compute_txid(), vout: 0 };
            self.purse.push_back(OpenCoin { outpoint, value: Amount::from_sat(left) });
            transactions.push(moved);
        }
        transactions
    }

    /// Mines the next block, with these transactions in this order after the coinbase.
    pub(crate) fn mine(&mut self, transactions: Vec<Transaction>) -> Block {
        self.height += 1;
        self.time += 1;
        // The reward is one satoshi, so that halvings do not matter.
        let reward = self.stranger.output(Kind::P2pkh, 1);
        let coinbase = regtest::coinbase(self.height, self.number.to_le_bytes(), vec![reward]);
        let mut txdata = vec![coinbase];
        txdata.extend(transactions);
        let block = regtest::block(self.tip, self.time, txdata);
        self.tip = block.block_hash();
        block
    }
}
