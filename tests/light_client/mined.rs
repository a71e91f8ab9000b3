//! Blocks on regtest, for tests: two tries of a nonce each. Each has the filter that is true and
//! one that hides what the block pays and spends.

use std::rc::Rc;

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, Script, ScriptBuf, Transaction, TxOut, Txid,
};
use chainsieve::btc::bip158::{BlockFilter, filter_hash};
use testkit::btc::regtest;

/// A time after that of every header made here.
pub(crate) const UNIX: u64 = 1_700_000_000;
/// What coinbases and other transactions pay to each script.
const REWARD: Amount = Amount::from_sat(50);
const PAID: Amount = Amount::from_sat(7);

/// `OP_0` and 20 bytes: what a P2WPKH output looks like.
pub(crate) fn script(byte: u8) -> ScriptBuf {
    [&[0, 20][..], &[byte; 20]].concat().into()
}

/// A block, and what nodes say of it.
#[derive(Debug)]
pub(crate) struct Mined {
    pub(crate) block: Block,
    pub(crate) hash: BlockHash,
    pub(crate) height: u32,
    pub(crate) txids: Vec<Txid>,
    /// The filter, and its hash.
    pub(crate) filter: (Vec<u8>, FilterHash),
    /// One without the block's scripts.
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

    /// The chain that ends with this block.
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

    /// One more block: its coinbase pays to a script, and these follow.
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

    /// The height of a block of this chain.
    pub(crate) fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.find(hash).map(|mined| mined.height)
    }

    pub(crate) fn find(&self, hash: &BlockHash) -> Option<&Rc<Mined>> {
        self.blocks.iter().rev().find(|mined| mined.hash == *hash)
    }

    /// The blocks, from the genesis block on.
    pub(crate) fn blocks(&self) -> &[Rc<Mined>] {
        &self.blocks
    }

    /// Drops the blocks above a height.
    pub(crate) fn cut(&mut self, height: u32) {
        self.blocks.truncate(height as usize + 1);
    }
}

/// A transaction that spends coins and pays to scripts.
pub(crate) fn spend(coins: &[OutPoint], scripts: &[&Script]) -> Transaction {
    let output = |script: &&Script| TxOut { value: PAID, script_pubkey: (*script).into() };
    let inputs = coins.iter().map(|coin| regtest::input(*coin)).collect();
    regtest::transaction(inputs, scripts.iter().map(output).collect())
}
