//! Generated regtest headers and blocks, for unit tests.

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::absolute::LockTime;
use bitcoin::block::{Header, Version};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::script::Builder;
use bitcoin::{
    Amount, Block, BlockHash, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction,
    TxIn, TxMerkleNode, TxOut, Witness, transaction,
};

/// Returns the header of the genesis block.
pub(crate) fn genesis() -> Header {
    genesis_block(Network::Regtest).header
}

/// Increments the nonce until the header meets its target: two attempts on average.
pub(crate) fn prove(header: &mut Header) {
    while header.validate_pow(header.target()).is_err() {
        header.nonce += 1;
    }
}

/// Returns a mined header on top of `parent`, `spacing` seconds later.
pub(crate) fn header(parent: &Header, merkle_root: TxMerkleNode, spacing: u32) -> Header {
    let mut header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: parent.block_hash(),
        merkle_root,
        time: parent.time + spacing,
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce: 0,
    };
    prove(&mut header);
    header
}

/// Returns `count` headers on top of `parent`, `spacing` seconds apart. Headers of different
/// `branch` values differ.
pub(crate) fn mine_headers(parent: &Header, count: usize, branch: u8, spacing: u32) -> Vec<Header> {
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let parent = headers.last().unwrap_or(parent);
        headers.push(header(parent, TxMerkleNode::from_byte_array([branch; 32]), spacing));
    }
    headers
}

/// Returns a mined block of these transactions on top of `parent`.
pub(crate) fn block(parent: &Header, txdata: Vec<Transaction>) -> Block {
    let mut block = Block { header: *parent, txdata };
    let merkle_root = block.compute_merkle_root().expect("a coinbase");
    block.header = header(parent, merkle_root, 600);
    block
}

/// Mines `count` blocks on top of genesis. Genesis is not among them.
pub(crate) fn mine(count: u32) -> Vec<Block> {
    let mut blocks = Vec::new();
    extend(&mut blocks, count, 0);
    blocks
}

/// Mines `count` blocks on top of `blocks`. Blocks with different tags differ.
pub(crate) fn extend(blocks: &mut Vec<Block>, count: u32, tag: i64) {
    for _ in 0..count {
        let block = next_block(blocks, tag, Vec::new());
        blocks.push(block);
    }
}

/// Returns the block after `blocks`, which start at height 1, with these transactions after its
/// coinbase.
pub(crate) fn next_block(blocks: &[Block], tag: i64, transactions: Vec<Transaction>) -> Block {
    let previous = blocks.last().map_or_else(genesis, |block| block.header);
    let height = i64::try_from(blocks.len() + 1).expect("few");
    let mut coinbase = spend(OutPoint::null(), ScriptBuf::from_bytes(vec![0x51]), 1);
    coinbase.input[0].script_sig = Builder::new().push_int(height).push_int(tag).into_script();
    let mut txdata = vec![coinbase];
    txdata.extend(transactions);
    commit_to_witnesses(&mut txdata);
    block(&previous, txdata)
}

/// Adds the witness commitment to the coinbase if any transaction has a witness.
fn commit_to_witnesses(txdata: &mut [Transaction]) {
    if txdata.iter().all(|tx| tx.input.iter().all(|input| input.witness.is_empty())) {
        return;
    }
    let block = Block { header: genesis(), txdata: txdata.to_vec() };
    let root = block.witness_root().expect("a coinbase");
    let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
    let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed][..], commitment.as_byte_array()].concat();
    let script_pubkey = ScriptBuf::from_bytes(script);
    txdata[0].output.push(TxOut { value: Amount::ZERO, script_pubkey });
    txdata[0].input[0].witness = Witness::from_slice(&[[0; 32]]);
}

/// Returns a transaction with one input and one output, without signatures.
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

/// Returns the outpoint of the first output of a block's coinbase.
pub(crate) fn reward(block: &Block) -> OutPoint {
    OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 }
}

/// Returns the hashes of the blocks.
pub(crate) fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
    blocks.iter().map(Block::block_hash).collect()
}
