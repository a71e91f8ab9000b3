//! What is true: a tree of blocks with their filters, and what in it is the wallet's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::bip158;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::script::Builder;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Sequence, Target, Transaction, TxIn,
    TxMerkleNode, TxOut, Txid, Witness, transaction,
};

use crate::rng::Rng;
use crate::scripts::{self, Coin};

/// A time after that of every block, in Unix seconds.
pub(crate) const NOW: u32 = 1_700_000_000;
/// Coins that are kept to be spent; the others are left alone for ever.
const UNSPENT: usize = 24;

/// A block with what belongs to it.
pub(crate) struct WorldBlock {
    pub(crate) height: u32,
    pub(crate) hash: BlockHash,
    pub(crate) block: Block,
    /// By `bitcoin`'s own writer.
    pub(crate) filter: Vec<u8>,
    /// What the filter holds, once or more each.
    pub(crate) elements: Vec<ScriptBuf>,
    /// Whether the filter holds a script of the wallet.
    pub(crate) matches: bool,
    pub(crate) parent: usize,
    /// What can be spent behind it.
    unspent: Vec<(OutPoint, Coin)>,
}

/// All blocks, by number: genesis is 0.
pub(crate) struct World {
    pub(crate) blocks: Vec<WorldBlock>,
    pub(crate) by_hash: HashMap<BlockHash, usize>,
    /// What the wallet looks for.
    pub(crate) wallet: Vec<ScriptBuf>,
    own: Vec<Coin>,
    strangers: Vec<Coin>,
    rng: Rng,
}

impl World {
    /// Genesis alone.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (own, strangers) = (scripts::wallet(&mut rng), scripts::strangers(&mut rng));
        let wallet = own.iter().map(Coin::script_pubkey).collect();
        let mut world =
            Self { blocks: Vec::new(), by_hash: HashMap::new(), wallet, own, strangers, rng };
        world.add(genesis_block(Network::Regtest), 0, &BTreeMap::new(), Vec::new());
        world
    }

    /// Mines `count` blocks on top of block number `parent`, and returns the number of the last.
    pub(crate) fn grow(&mut self, parent: usize, count: usize) -> usize {
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
        let block = seal(&self.blocks[parent].block.header, txdata);
        self.add(block, parent, &prevouts, unspent)
    }

    /// An output, now and then to the wallet.
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

    /// With the height, as BIP34 has it, and room for the witness commitment.
    fn coinbase(&mut self, height: u32) -> Transaction {
        // Nobody spends it: its id changes when the witness commitment comes in.
        let (output, _) = self.outputs(1);
        let tag = self.rng.array::<4>();
        Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::ZERO,
            input: vec![TxIn {
                previous_output: OutPoint::null(),
                script_sig: Builder::new().push_int(height.into()).push_slice(tag).into_script(),
                sequence: Sequence::MAX,
                witness: Witness::new(),
            }],
            output,
        }
    }

    /// Spends one to three outputs, also of the same block. The first ones come from nothing.
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
            let sequence = Sequence::MAX;
            input.push(TxIn { previous_output: outpoint, script_sig, sequence, witness });
        }
        let count = 1 + self.rng.below(3);
        let (output, coins) = self.outputs(count);
        let transaction = Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::ZERO,
            input,
            output,
        };
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

    /// The numbers of the blocks of the chain that ends in block number `tip`, from genesis on.
    pub(crate) fn chain(&self, tip: usize) -> Vec<usize> {
        let mut chain = vec![tip];
        while let Some(&number) = chain.last()
            && number != 0
        {
            chain.push(self.blocks[number].parent);
        }
        chain.reverse();
        chain
    }

    pub(crate) fn header(&self, number: usize) -> Header {
        self.blocks[number].block.header
    }
}

/// The wallet's transactions among `blocks`, given in the order of the chain: those that pay to
/// one of its scripts, and those that spend such an output.
pub(crate) fn wallet_transactions<'b>(
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

/// Puts the witness commitment in where a witness is, and mines.
fn seal(previous: &Header, mut txdata: Vec<Transaction>) -> Block {
    let mut block = Block {
        header: Header {
            version: Version::from_consensus(0x2000_0000),
            prev_blockhash: previous.block_hash(),
            merkle_root: TxMerkleNode::all_zeros(),
            time: previous.time + 600,
            bits: Target::MAX_ATTAINABLE_REGTEST.to_compact_lossy(),
            nonce: 0,
        },
        txdata: Vec::new(),
    };
    let has_witness = |tx: &Transaction| tx.input.iter().any(|input| !input.witness.is_empty());
    if txdata.iter().any(has_witness) {
        let reserved = [0; 32];
        txdata[0].input[0].witness = Witness::from_slice(&[reserved]);
        block.txdata = txdata;
        let root = block.witness_root().expect("transactions");
        let commitment = Block::compute_witness_commitment(&root, &reserved);
        let mut script = vec![0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
        script.extend(commitment.to_byte_array());
        let script_pubkey = ScriptBuf::from_bytes(script);
        block.txdata[0].output.push(TxOut { value: Amount::ZERO, script_pubkey });
        assert!(block.check_witness_commitment());
    } else {
        block.txdata = txdata;
    }
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    while block.header.validate_pow(block.header.target()).is_err() {
        block.header.nonce += 1;
    }
    block
}
