//! The ground truth of sync tests: a tree of blocks with their filters, and the wallet's scripts in
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chainsieve::bitcoin::bip158;
use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, TxIn, TxOut, Txid,
};

use crate::Rng;
use crate::btc::coins::{self, Coin};
use crate::btc::regtest;

/// A time that is later than the times of all blocks.
pub const NOW: Duration = Duration::from_secs(1_700_000_000);
/// Largest number of outputs that are kept for spending; all other outputs are never spent.
const UNSPENT: usize = 24;

/// A block with its filter, its parent and the outputs that can be spent after it.
pub struct WorldBlock {
    pub height: u32,
    pub hash: BlockHash,
    pub block: Block,
    /// The basic filter, written by the `bitcoin` crate.
    pub filter: Vec<u8>,
    /// The elements of the filter; an element may be listed more than once.
    pub elements: Vec<ScriptBuf>,
    /// `true` if the filter contains a script of the wallet.
    pub matches: bool,
    pub parent: usize,
    /// Outputs that can be spent after this block.
    unspent: Vec<(OutPoint, Coin)>,
}

/// All blocks, by number; number 0 is the genesis block.
pub struct World {
    pub blocks: Vec<WorldBlock>,
    pub by_hash: HashMap<BlockHash, usize>,
    /// The scripts of the wallet.
    pub wallet: Vec<ScriptBuf>,
    own: Vec<Coin>,
    strangers: Vec<Coin>,
    rng: Rng,
}

impl World {
    /// Returns a world with only the genesis block.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (own, strangers) = (coins::wallet(&mut rng), coins::strangers(&mut rng));
        let wallet = own.iter().map(Coin::script_pubkey).collect();
        let mut world =
            Self { blocks: Vec::new(), by_hash: HashMap::new(), wallet, own, strangers, rng };
        world.add(genesis_block(Network::Regtest), 0, &BTreeMap::new(), Vec::new());
        world
    }

    /// Mines `count` blocks on top of block number `parent`, and returns the number of the last new
    /// block.
    pub fn grow(&mut self, parent: usize, count: usize) -> usize {
        (0..count).fold(parent, |tip, _| self.mine(tip))
    }

    fn mine(&mut self, parent: usize) -> usize {
        let height = self.blocks[parent].height + 1;
        let mut unspent = self.blocks[parent].unspent.clone();
        let (mut txdata, mut prevouts) = (vec![self.coinbase(height)], BTreeMap::new());
        for _ in 0..self.rng.below(4) {
            txdata.push(self.transaction(&mut unspent, &mut prevouts));
        }
        while unspent.len() > UNSPENT {
            unspent.swap_remove(self.rng.below(unspent.len()));
        }
        let block = {
            let parent = &self.blocks[parent].block.header;
            regtest::block(parent.block_hash(), parent.time + 600, txdata)
        };
        self.add(block, parent, &prevouts, unspent)
    }

    /// Returns a random coin. With a chance of one in 16 it is a coin of the wallet, otherwise a
    /// coin of a stranger.
    fn coin(&mut self) -> Coin {
        let to = if self.rng.one_in(16) { &self.own } else { &self.strangers };
        self.rng.pick(to).clone()
    }

    fn outputs(&mut self, count: usize) -> (Vec<TxOut>, Vec<Coin>) {
        let coins: Vec<_> = (0..count).map(|_| self.coin()).collect();
        let output = |coin: &Coin| TxOut {
            value: Amount::from_sat(1_000),
            script_pubkey: coin.script_pubkey(),
        };
        (coins.iter().map(output).collect(), coins)
    }

    /// Returns a coinbase with the height, as BIP34 requires.
    fn coinbase(&mut self, height: u32) -> Transaction {
        // This output is never spent: the transaction's id changes when the witness commitment is
        // added.
        let (output, _) = self.outputs(1);
        regtest::coinbase(height, self.rng.array::<4>(), output)
    }

    /// Returns a transaction that spends one to three outputs of earlier blocks or of the same
    /// block. While few outputs exist, the transaction spends outputs of invented transactions.
    fn transaction(
        &mut self,
        unspent: &mut Vec<(OutPoint, Coin)>,
        prevouts: &mut BTreeMap<OutPoint, ScriptBuf>,
    ) -> Transaction {
        let count = 1 + self.rng.below(3);
        let mut input = Vec::new();
        for _ in 0..count {
            let (outpoint, coin) = if unspent.len() < UNSPENT / 2 {
                let txid = Txid::from_byte_array(self.rng.array());
                let strangers = self.strangers.iter().filter(|coin| coin.spendable());
                let coins: Vec<_> = strangers.cloned().collect();
                (OutPoint { txid, vout: 0 }, self.rng.pick(&coins).clone())
            } else {
                unspent.swap_remove(self.rng.below(unspent.len()))
            };
            let (script_sig, witness) = coin.spend(&mut self.rng);
            prevouts.insert(outpoint, coin.script_pubkey());
            input.push(TxIn { script_sig, witness, ..regtest::input(outpoint) });
        }
        let count = 1 + self.rng.below(3);
        let (output, coins) = self.outputs(count);
        let transaction = regtest::transaction(input, output);
        let txid = transaction.compute_txid();
        let outpoints = (0..).map(|vout| OutPoint { txid, vout });
        unspent.extend(outpoints.zip(coins).filter(|(_, coin)| coin.spendable()));
        transaction
    }

    fn add(
        &mut self,
        block: Block,
        parent: usize,
        prevouts: &BTreeMap<OutPoint, ScriptBuf>,
        unspent: Vec<(OutPoint, Coin)>,
    ) -> usize {
        let script = |outpoint: &OutPoint| Ok::<_, bip158::Error>(prevouts[outpoint].clone());
        let filter = bip158::BlockFilter::new_script_filter(&block, script).expect("all known");
        let outputs = block.txdata.iter().flat_map(|tx| &tx.output);
        let created = outputs.map(|output| &output.script_pubkey).filter(|s| !s.is_op_return());
        let elements: Vec<_> =
            created.chain(prevouts.values()).filter(|s| !s.is_empty()).cloned().collect();
        let (number, hash) = (self.blocks.len(), block.block_hash());
        self.blocks.push(WorldBlock {
            height: self.blocks.get(parent).map_or(0, |parent| parent.height + 1),
            hash,
            block,
            filter: filter.content,
            matches: elements.iter().any(|element| self.wallet.contains(element)),
            elements,
            parent,
            unspent,
        });
        self.by_hash.insert(hash, number);
        number
    }

    /// Returns the numbers of the blocks of the chain that ends in block `tip`, from genesis on.
    pub fn chain(&self, tip: usize) -> Vec<usize> {
        let mut chain = vec![tip];
        while let Some(&number) = chain.last()
            && number != 0
        {
            chain.push(self.blocks[number].parent);
        }
        chain.reverse();
        chain
    }

    pub fn header(&self, number: usize) -> Header {
        self.blocks[number].block.header
    }
}

/// Returns the wallet's transactions in `blocks`, which must be in chain order: those that pay to
/// one of its scripts, and those that spend such an output.
pub fn wallet_transactions<'b>(
    wallet: &[ScriptBuf],
    blocks: impl IntoIterator<Item = &'b Block>,
) -> BTreeSet<(BlockHash, Txid)> {
    let (mut coins, mut found) = (BTreeSet::new(), BTreeSet::new());
    for block in blocks {
        for transaction in &block.txdata {
            let txid = transaction.compute_txid();
            let spends = |input: &TxIn| coins.contains(&input.previous_output);
            let mut relevant = transaction.input.iter().any(spends);
            for (vout, output) in (0..).zip(&transaction.output) {
                if wallet.contains(&output.script_pubkey) {
                    coins.insert(OutPoint { txid, vout });
                    relevant = true;
                }
            }
            if relevant {
                found.insert((block.block_hash(), txid));
            }
        }
    }
    found
}
