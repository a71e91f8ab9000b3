//! Regtest blocks for tests. Mining a block takes two tries of a nonce on average. Each block has a
//! true filter, and a false one that hides the scripts that the block pays to and spends from.

use std::rc::Rc;

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, Script, ScriptBuf, Transaction, TxOut, Txid,
};
use chainsieve::btc::bip158::{BlockFilter, filter_hash};
use testkit::btc::regtest;

/// A time after that of every header in these tests.
pub(crate) const UNIX: u64 = 1_700_000_000;
/// The amounts that a coinbase and another transaction pay to a script.
const REWARD: Amount = Amount::from_sat(50);
const PAID: Amount = Amount::from_sat(7);

/// Returns `OP_0` and a push of 20 bytes, the form of a P2WPKH output.
pub(crate) fn script(byte: u8) -> ScriptBuf {
    [&[0, 20][..], &[byte; 20]].concat().into()
}

/// A block, with the filters that nodes claim for it.
#[derive(Debug)]
pub(crate) struct Mined {
    pub(crate) block: Block,
    pub(crate) hash: BlockHash,
    pub(crate) height: u32,
    pub(crate) txids: Vec<Txid>,
    /// The true filter and its hash.
    pub(crate) filter: (Vec<u8>, FilterHash),
    /// A filter without the block's scripts, and its hash.
    pub(crate) lie: (Vec<u8>, FilterHash),
    parent: Option<Rc<Self>>,
}

/// A chain of blocks from the genesis block on.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    blocks: Vec<Rc<Mined>>,
}

impl Chain {
    pub(crate) fn new() -> Self {
        let mut chain = Self { blocks: Vec::new() };
        chain.push(genesis_block(Network::Regtest));
        chain
    }

    /// Returns the chain that ends with this block.
    pub(crate) fn up_to(last: &Rc<Mined>) -> Self {
        let mut blocks = vec![last.clone()];
        while let Some(parent) = &blocks.last().expect("one at least").parent {
            blocks.push(parent.clone());
        }
        blocks.reverse();
        Self { blocks }
    }

    fn push(&mut self, block: Block) {
        let mut spent = Vec::new();
        let txids: Vec<_> = block.txdata.iter().map(Transaction::compute_txid).collect();
        for input in block.txdata.iter().skip(1).flat_map(|tx| &tx.input) {
            spent.push(self.script_of(input.previous_output, &block, &txids));
        }
        let filter = BlockFilter::from_prevout_scripts(&block, &spent).unwrap().content;
        let mut hidden = block.clone();
        hidden.txdata.truncate(1);
        hidden.txdata[0].output[0].script_pubkey = ScriptBuf::from(vec![0x51]);
        let lie = BlockFilter::from_prevout_scripts::<ScriptBuf>(&hidden, &[]).unwrap().content;
        let hashed = |content: Vec<u8>| {
            let hash = filter_hash(&content);
            (content, hash)
        };
        self.blocks.push(Rc::new(Mined {
            hash: block.block_hash(),
            height: u32::try_from(self.blocks.len()).unwrap(),
            txids,
            filter: hashed(filter),
            lie: hashed(lie),
            parent: self.blocks.last().cloned(),
            block,
        }));
    }

    fn script_of(&self, coin: OutPoint, block: &Block, txids: &[Txid]) -> ScriptBuf {
        let earlier = self.blocks.iter().flat_map(|it| it.txids.iter().zip(&it.block.txdata));
        let mut all = txids.iter().zip(&block.txdata).chain(earlier);
        let (_, tx) = all.find(|(txid, _)| **txid == coin.txid).unwrap();
        tx.output[coin.vout as usize].script_pubkey.clone()
    }

    /// Mines one more block: its coinbase pays to a script, and `txs` follow.
    pub(crate) fn mine(&mut self, coinbase: &Script, txs: &[Transaction]) {
        let parent = self.tip().block.header;
        let reward = TxOut { value: REWARD, script_pubkey: coinbase.into() };
        let coinbase = regtest::coinbase(self.height() + 1, [0; 4], vec![reward]);
        self.push(regtest::block(
            parent.block_hash(),
            parent.time + 1,
            [&[coinbase], txs].concat(),
        ));
    }

    pub(crate) fn tip(&self) -> &Rc<Mined> {
        self.blocks.last().expect("the genesis block at least")
    }

    pub(crate) fn height(&self) -> u32 {
        self.tip().height
    }

    pub(crate) fn at(&self, height: u32) -> Option<&Rc<Mined>> {
        self.blocks.get(height as usize)
    }

    /// Returns the height of a block of this chain.
    pub(crate) fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.find(hash).map(|mined| mined.height)
    }

    pub(crate) fn find(&self, hash: &BlockHash) -> Option<&Rc<Mined>> {
        self.blocks.iter().rev().find(|mined| mined.hash == *hash)
    }

    /// Returns the blocks, from the genesis block on.
    pub(crate) fn blocks(&self) -> &[Rc<Mined>] {
        &self.blocks
    }

    /// Drops the blocks above `height`.
    pub(crate) fn cut(&mut self, height: u32) {
        self.blocks.truncate(height as usize + 1);
    }
}

/// Returns a transaction that spends `coins` and pays to `scripts`.
pub(crate) fn spend(coins: &[OutPoint], scripts: &[&Script]) -> Transaction {
    let output = |script: &&Script| TxOut { value: PAID, script_pubkey: (*script).into() };
    let inputs = coins.iter().map(|coin| regtest::input(*coin)).collect();
    regtest::transaction(inputs, scripts.iter().map(output).collect())
}
