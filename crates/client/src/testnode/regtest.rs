//! Mines blocks of regtest, whose target needs two attempts on average.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::script::Builder;
use chainsieve::bitcoin::transaction::Version as TxVersion;
use chainsieve::bitcoin::{
    Amount, Block, CompactTarget, OutPoint, Script, Sequence, Transaction, TxIn, TxMerkleNode,
    TxOut, Witness,
};

/// The easiest target, which all regtest blocks have (Bitcoin Core, `kernel/chainparams.cpp`).
const EASIEST: u32 = 0x207f_ffff;
const COIN: u64 = 100_000_000;

/// Creates a regtest block on top of `parent`, with proof of work.
///
/// The coinbase transaction of the block pays 50 bitcoin to `script`; `txs` are the other
/// transactions. If one of these transactions has a witness, the block has the witness commitment
/// of BIP141.
///
/// `height` must be the height of `parent` plus 1.
pub fn next_block(parent: &Header, height: u32, script: &Script, txs: Vec<Transaction>) -> Block {
    let coinbase = Transaction {
        version: TxVersion::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            // BIP34 requires that the script begins with the height. The second push makes the
            // script at least two bytes long, as consensus requires for a coinbase.
            script_sig: Builder::new().push_int(height.into()).push_int(0).into_script(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut { value: Amount::from_sat(50 * COIN), script_pubkey: script.into() }],
    };
    let mut txdata = vec![coinbase];
    txdata.extend(txs);
    if txdata.iter().skip(1).any(|tx| tx.input.iter().any(|input| !input.witness.is_empty())) {
        commit_to_witnesses(&mut txdata);
    }
    let header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: parent.block_hash(),
        merkle_root: TxMerkleNode::all_zeros(),
        time: 0,
        bits: CompactTarget::from_consensus(EASIEST),
        nonce: 0,
    };
    let mut block = Block { header, txdata };
    block.header.merkle_root = block.compute_merkle_root().expect("it has a coinbase transaction");
    solve(&mut block.header, parent.time + 1);
    block
}

/// Adds the witness commitment of BIP141, in a second output of the coinbase transaction.
fn commit_to_witnesses(txdata: &mut [Transaction]) {
    let reserved = [0; 32];
    let header = Header {
        version: Version::ONE,
        prev_blockhash: chainsieve::bitcoin::BlockHash::all_zeros(),
        merkle_root: TxMerkleNode::all_zeros(),
        time: 0,
        bits: CompactTarget::from_consensus(EASIEST),
        nonce: 0,
    };
    let root = Block { header, txdata: txdata.to_vec() }.witness_root();
    let (Some(root), Some(coinbase)) = (root, txdata.first_mut()) else { return };
    let commitment = Block::compute_witness_commitment(&root, &reserved);
    let mut script = vec![0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
    script.extend(commitment.as_byte_array());
    coinbase.output.push(TxOut { value: Amount::ZERO, script_pubkey: script.into() });
    if let Some(input) = coinbase.input.first_mut() {
        input.witness = Witness::from_slice(&[reserved]);
    }
}

/// Sets the time of a header, and finds a nonce with proof of work.
pub(super) fn solve(header: &mut Header, time: u32) {
    (header.time, header.nonce) = (time, 0);
    while header.validate_pow(header.target()).is_err() {
        header.nonce += 1;
    }
}
