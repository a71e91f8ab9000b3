//! Generated regtest headers and blocks, for unit tests.

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, Block, BlockHash, OutPoint, ScriptBuf, Transaction, TxMerkleNode, TxOut};
use testkit::btc::regtest;

pub(crate) use testkit::btc::regtest::{genesis, solve};

/// Returns a mined header on top of `parent`, `spacing` seconds later.
pub(crate) fn header(parent: &Header, merkle_root: TxMerkleNode, spacing: u32) -> Header {
    let mut header = regtest::header(parent.block_hash(), parent.time + spacing, merkle_root);
    solve(&mut header);
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
    regtest::block(parent.block_hash(), parent.time + 600, txdata)
}

/// Mines `count` blocks on top of genesis, and returns them without genesis.
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
    let height = u32::try_from(blocks.len() + 1).expect("few");
    let mut txdata =
        vec![regtest::coinbase(height, tag.to_le_bytes(), vec![output(vec![0x51], 1)])];
    txdata.extend(transactions);
    block(&previous, txdata)
}

fn output(script: Vec<u8>, sats: u64) -> TxOut {
    TxOut { value: Amount::from_sat(sats), script_pubkey: ScriptBuf::from_bytes(script) }
}

/// Returns a transaction with one input and one output, without signatures.
pub(crate) fn spend(previous_output: OutPoint, script_pubkey: ScriptBuf, sats: u64) -> Transaction {
    regtest::transaction(
        vec![regtest::input(previous_output)],
        vec![output(script_pubkey.into_bytes(), sats)],
    )
}

/// Returns the outpoint of the first output of a block's coinbase.
pub(crate) fn reward(block: &Block) -> OutPoint {
    OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 }
}

/// Returns the hashes of the blocks.
pub(crate) fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
    blocks.iter().map(Block::block_hash).collect()
}
