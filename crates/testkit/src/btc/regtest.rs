//! Headers and blocks mined on regtest, where every second hash will do.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::script::{Builder, PushBytes};
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Sequence, Target, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness, transaction,
};

/// Signals for segregated witness: nodes that ask for it activate it.
const VERSION: i32 = 0x2000_0003;

/// The genesis block's header.
pub fn genesis() -> Header {
    genesis_block(Network::Regtest).header
}

/// A header without proof of work.
pub fn header(prev_blockhash: BlockHash, time: u32, merkle_root: TxMerkleNode) -> Header {
    let version = Version::from_consensus(VERSION);
    let bits = Target::MAX_ATTAINABLE_REGTEST.to_compact_lossy();
    Header { version, prev_blockhash, merkle_root, time, bits, nonce: 0 }
}

/// Finds a nonce, which takes two tries on average.
pub fn solve(header: &mut Header) {
    let target = header.target();
    while !target.is_met_by(header.block_hash()) {
        header.nonce += 1;
    }
}

/// The header after `parent`. Different salts make different headers.
pub fn mine(parent: &Header, time: u32, salt: u64) -> Header {
    let mut root = [0; 32];
    root[..8].copy_from_slice(&salt.to_le_bytes());
    let mut header = header(parent.block_hash(), time, TxMerkleNode::from_byte_array(root));
    solve(&mut header);
    header
}

/// `count` headers after `parent`, ten minutes apart.
pub fn branch(parent: &Header, count: usize, salt: u64) -> Vec<Header> {
    let mut last = *parent;
    let headers = std::iter::repeat_with(|| {
        last = mine(&last, last.time + 600, salt);
        last
    });
    headers.take(count).collect()
}

/// The first transaction of a block: it has the height as BIP34 asks, and a tag that tells blocks
/// of the same height apart.
pub fn coinbase(height: u32, tag: impl AsRef<PushBytes>, output: Vec<TxOut>) -> Transaction {
    let script_sig = Builder::new().push_int(height.into()).push_slice(tag).into_script();
    let input = TxIn { script_sig, ..input(OutPoint::null()) };
    transaction(vec![input], output)
}

/// An input without signatures.
pub fn input(previous_output: OutPoint) -> TxIn {
    let (script_sig, witness) = (ScriptBuf::new(), Witness::new());
    TxIn { previous_output, script_sig, sequence: Sequence::MAX, witness }
}

/// A transaction of version 2 that is final.
pub fn transaction(input: Vec<TxIn>, output: Vec<TxOut>) -> Transaction {
    let (version, lock_time) = (transaction::Version::TWO, LockTime::ZERO);
    Transaction { version, lock_time, input, output }
}

/// A block after `parent`, with proof of work, and the commitment of BIP141 where there is a
/// witness. The first transaction is the coinbase.
pub fn block(parent: BlockHash, time: u32, txdata: Vec<Transaction>) -> Block {
    let header = header(parent, time, TxMerkleNode::all_zeros());
    let mut block = Block { header, txdata };
    let has_witness = |tx: &Transaction| tx.input.iter().any(|input| !input.witness.is_empty());
    if block.txdata.iter().any(has_witness) {
        commit_to_witnesses(&mut block, &[0; 32]);
    }
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    solve(&mut block.header);
    block
}

/// Puts the commitment of BIP141 in, as the last output of the coinbase.
pub fn commit_to_witnesses(block: &mut Block, reserved: &[u8; 32]) {
    block.txdata[0].input[0].witness = Witness::from_slice(&[reserved]);
    let root = block.witness_root().expect("transactions");
    let commitment = Block::compute_witness_commitment(&root, reserved).to_byte_array();
    let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed], &commitment[..]].concat();
    let script_pubkey = ScriptBuf::from_bytes(script);
    block.txdata[0].output.push(TxOut { value: Amount::ZERO, script_pubkey });
    assert!(block.check_witness_commitment());
}
