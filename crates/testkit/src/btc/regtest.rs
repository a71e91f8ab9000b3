//! Headers and blocks mined on regtest, where every second hash meets the target.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::script::{Builder, PushBytes};
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Sequence, Target, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness, transaction,
};

/// The version signals readiness for segregated witness. Some nodes activate segregated witness
/// only after this signal.
const VERSION: i32 = 0x2000_0003;

/// Returns the header of the genesis block.
pub fn genesis() -> Header {
    genesis_block(Network::Regtest).header
}

/// Returns a header without proof of work.
pub fn header(prev_blockhash: BlockHash, time: u32, merkle_root: TxMerkleNode) -> Header {
    let version = Version::from_consensus(VERSION);
    let bits = Target::MAX_ATTAINABLE_REGTEST.to_compact_lossy();
    Header { version, prev_blockhash, merkle_root, time, bits, nonce: 0 }
}

/// Finds a nonce that meets the target, which takes two tries on average.
pub fn solve(header: &mut Header) {
    let target = header.target();
    while !target.is_met_by(header.block_hash()) {
        header.nonce += 1;
    }
}

/// Returns a mined header after `parent`. Different salts give different headers.
pub fn mine(parent: &Header, time: u32, salt: u64) -> Header {
    let mut root = [0; 32];
    root[..8].copy_from_slice(&salt.to_le_bytes());
    let mut header = header(parent.block_hash(), time, TxMerkleNode::from_byte_array(root));
    solve(&mut header);
    header
}

/// Returns `count` mined headers after `parent`, ten minutes apart.
pub fn branch(parent: &Header, count: usize, salt: u64) -> Vec<Header> {
    let mut last = *parent;
    let headers = std::iter::repeat_with(|| {
        last = mine(&last, last.time + 600, salt);
        last
    });
    headers.take(count).collect()
}

/// Returns the coinbase transaction of a block. The coinbase contains the height, as BIP34
/// requires, and a tag that distinguishes blocks of the same height.
pub fn coinbase(height: u32, tag: impl AsRef<PushBytes>, output: Vec<TxOut>) -> Transaction {
    let script_sig = Builder::new().push_int(height.into()).push_slice(tag).into_script();
    let input = TxIn { script_sig, ..input(OutPoint::null()) };
    transaction(vec![input], output)
}

/// Returns an input without signatures.
pub fn input(previous_output: OutPoint) -> TxIn {
    let (script_sig, witness) = (ScriptBuf::new(), Witness::new());
    TxIn { previous_output, script_sig, sequence: Sequence::MAX, witness }
}

/// Returns a final transaction of version 2.
pub fn transaction(input: Vec<TxIn>, output: Vec<TxOut>) -> Transaction {
    let (version, lock_time) = (transaction::Version::TWO, LockTime::ZERO);
    Transaction { version, lock_time, input, output }
}

/// Returns a block after `parent`, with proof of work, and with the witness commitment of BIP141 if
/// any input has a witness. The first transaction must be the coinbase.
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

/// Adds the witness commitment of BIP141 as the last output of the coinbase.
pub fn commit_to_witnesses(block: &mut Block, reserved: &[u8; 32]) {
    block.txdata[0].input[0].witness = Witness::from_slice(&[reserved]);
    let root = block.witness_root().expect("transactions");
    let commitment = Block::compute_witness_commitment(&root, reserved).to_byte_array();
    let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed], &commitment[..]].concat();
    let script_pubkey = ScriptBuf::from_bytes(script);
    block.txdata[0].output.push(TxOut { value: Amount::ZERO, script_pubkey });
    assert!(block.check_witness_commitment());
}
