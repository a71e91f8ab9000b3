//! Headers and blocks on regtest, for tests: two tries each.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::script::Builder;
use chainsieve::bitcoin::transaction::Version as TxVersion;
use chainsieve::bitcoin::{
    Amount, Block, CompactTarget, OutPoint, Script, ScriptBuf, Sequence, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness,
};

/// A time behind that of every header made here.
pub(crate) const UNIX: u32 = 1_700_000_000;

/// So many headers on top of another; those of different branches differ.
pub(crate) fn headers(parent: &Header, count: usize, branch: u8) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::with_capacity(count);
    for _ in 0..count {
        let parent = headers.last().unwrap_or(parent);
        headers.push(header(parent, TxMerkleNode::from_byte_array([branch; 32])));
    }
    headers
}

/// A header on top of another.
pub(crate) fn header(parent: &Header, merkle_root: TxMerkleNode) -> Header {
    let mut header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: parent.block_hash(),
        merkle_root,
        time: parent.time + 1,
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce: 0,
    };
    while header.validate_pow(header.target()).is_err() {
        header.nonce += 1;
    }
    header
}

/// A block on top of another: a coinbase transaction that pays to `script`, and these.
pub(crate) fn block(parent: &Header, height: u32, script: &Script, txs: &[Transaction]) -> Block {
    let coinbase = Transaction {
        version: TxVersion::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            script_sig: Builder::new().push_int(height.into()).push_int(0).into_script(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut { value: Amount::from_sat(50), script_pubkey: script.into() }],
    };
    let txdata = [&[coinbase], txs].concat();
    let header = header(parent, TxMerkleNode::all_zeros());
    let mut block = Block { header, txdata };
    let root = block.compute_merkle_root().unwrap();
    block.header = self::header(parent, root);
    block
}

/// A transaction that spends coins and pays to scripts.
pub(crate) fn spend(coins: &[OutPoint], scripts: &[&Script]) -> Transaction {
    let input = |coin: &OutPoint| TxIn {
        previous_output: *coin,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let output =
        |script: &&Script| TxOut { value: Amount::from_sat(7), script_pubkey: (*script).into() };
    Transaction {
        version: TxVersion::TWO,
        lock_time: LockTime::ZERO,
        input: coins.iter().map(input).collect(),
        output: scripts.iter().map(output).collect(),
    }
}
