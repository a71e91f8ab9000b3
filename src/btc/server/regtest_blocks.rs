//! Blocks of regtest for the tests of a node.

use bitcoin::absolute::LockTime;
use bitcoin::block::{Header, Version};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::script::Builder;
use bitcoin::{
    Amount, Block, BlockHash, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction,
    TxIn, TxMerkleNode, TxOut, Witness, transaction,
};

/// Blocks from genesis on, without it.
pub(crate) fn mine(count: u32) -> Vec<Block> {
    let mut blocks = Vec::new();
    extend(&mut blocks, count, 0);
    blocks
}

/// Mines on; blocks with another tag are others.
pub(crate) fn extend(blocks: &mut Vec<Block>, count: u32, tag: i64) {
    for _ in 0..count {
        let block = next_block(blocks, tag, Vec::new());
        blocks.push(block);
    }
}

/// The block after `blocks`, which start at height 1, with these transactions.
pub(crate) fn next_block(blocks: &[Block], tag: i64, transactions: Vec<Transaction>) -> Block {
    let genesis = genesis_block(Network::Regtest).header;
    let previous = blocks.last().map_or(genesis, |block| block.header);
    let height = i64::try_from(blocks.len() + 1).expect("few");
    let mut coinbase = spend(OutPoint::null(), ScriptBuf::from_bytes(vec![0x51]), 1);
    coinbase.input[0].script_sig = Builder::new().push_int(height).push_int(tag).into_script();
    let mut txdata = vec![coinbase];
    txdata.extend(transactions);
    let header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: previous.block_hash(),
        merkle_root: TxMerkleNode::all_zeros(),
        time: previous.time + 600,
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce: 0,
    };
    let mut block = Block { header, txdata };
    commit_to_witnesses(&mut block);
    block.header.merkle_root = block.compute_merkle_root().expect("a coinbase");
    while !block.header.target().is_met_by(block.block_hash()) {
        block.header.nonce += 1;
    }
    block
}

/// Only where there are any.
fn commit_to_witnesses(block: &mut Block) {
    if block.txdata.iter().all(|tx| tx.input.iter().all(|input| input.witness.is_empty())) {
        return;
    }
    let root = block.witness_root().expect("a coinbase");
    let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
    let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed][..], commitment.as_byte_array()].concat();
    let script_pubkey = ScriptBuf::from_bytes(script);
    block.txdata[0].output.push(TxOut { value: Amount::ZERO, script_pubkey });
    block.txdata[0].input[0].witness = Witness::from_slice(&[[0; 32]]);
}

/// A transaction with one input and one output; nobody here looks at signatures.
pub(crate) fn spend(previous_output: OutPoint, script_pubkey: ScriptBuf, sats: u64) -> Transaction {
    Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut { value: Amount::from_sat(sats), script_pubkey }],
    }
}

/// The first output of a block's coinbase.
pub(crate) fn reward(block: &Block) -> OutPoint {
    OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 }
}

/// The hashes of blocks.
pub(crate) fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
    blocks.iter().map(Block::block_hash).collect()
}
