//! Blocks of random transactions, whose scripts cover the edge cases of matching.

use std::rc::Rc;

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxMerkleNode,
    TxOut, Txid, Witness, consensus,
};

use crate::Rng;
use crate::btc::oracle::TestBlock;
use crate::btc::regtest;

/// Returns a block of `transactions` transactions, some of which spend each other's outputs.
/// Scripts use elements of `words`, so that a filter that contains some of them has matches.
pub fn block(rng: &mut Rng, transactions: usize, words: &[Vec<u8>]) -> Rc<TestBlock> {
    let mut txdata: Vec<Transaction> = Vec::new();
    for _ in 0..transactions {
        let previous = |rng: &mut Rng| {
            let txid = if txdata.is_empty() || rng.one_in(2) {
                Txid::from_byte_array(rng.array())
            } else {
                txdata[rng.below(txdata.len())].compute_txid()
            };
            OutPoint { txid, vout: u32::try_from(rng.below(4)).expect("small") }
        };
        let inputs = rng.below(4);
        let input = (0..inputs).map(|_| TxIn {
            previous_output: previous(rng),
            script_sig: ScriptBuf::from_bytes(script(rng, words)),
            sequence: Sequence::MAX,
            witness: if rng.one_in(3) { Witness::from_slice(words) } else { Witness::new() },
        });
        let input = input.collect();
        let outputs = 1 + rng.below(4);
        let output = (0..outputs).map(|_| TxOut {
            value: Amount::from_sat(rng.u64() >> 20),
            script_pubkey: ScriptBuf::from_bytes(script(rng, words)),
        });
        let output = output.collect();
        txdata.push(regtest::transaction(input, output));
    }
    let header = regtest::header(BlockHash::all_zeros(), 0, TxMerkleNode::all_zeros());
    let mut block = Block { header, txdata };
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    TestBlock::new(consensus::serialize(&block))
}

/// Appends a push of `data`, with any opcode that allows its length.
fn push(rng: &mut Rng, script: &mut Vec<u8>, data: &[u8]) {
    let length = u32::try_from(data.len()).expect("short");
    let [low, high, ..] = length.to_le_bytes();
    match rng.below(6) {
        0 if length <= 0xff => script.extend([0x4c, low]),
        1 if length <= 0xffff => script.extend([0x4d, low, high]),
        2 => script.extend([&[0x4e], &length.to_le_bytes()[..]].concat()),
        _ if length <= 0x4b => script.push(low),
        _ => script.extend([0x4d, low, high]),
    }
    script.extend(data);
}

fn element(rng: &mut Rng, words: &[Vec<u8>]) -> Vec<u8> {
    if rng.one_in(3) {
        return rng.pick(words).clone();
    }
    let length = *rng.pick(&[1, 2, 3, 4, 7, 8, 20, 32, 33, 64, 65, 75, 76, 255, 256, 520]);
    rng.bytes(length)
}

/// Returns bytes that look like a public key, sometimes with a wrong first byte or length.
fn key(rng: &mut Rng) -> Vec<u8> {
    let (length, heads): (usize, &[u8]) =
        if rng.one_in(2) { (33, &[2, 3]) } else { (65, &[4, 6, 7]) };
    let cut = usize::from(rng.one_in(12));
    let mut key = rng.bytes(length - cut);
    key[0] = if rng.one_in(8) { *rng.pick(&[0, 1, 5, 8]) } else { *rng.pick(heads) };
    key
}

fn script(rng: &mut Rng, words: &[Vec<u8>]) -> Vec<u8> {
    let mut script = Vec::new();
    match rng.below(9) {
        // Usually a valid pay-to-public-key script.
        0 | 1 => {
            let key = key(rng);
            push(rng, &mut script, &key);
            script.push(if rng.one_in(10) { 0xad } else { 0xac });
        }
        // Usually a valid multisig script.
        2..=4 => {
            let most = if rng.one_in(6) { 21 } else { 3 };
            let keys = 1 + rng.below(most);
            let mut number = |script: &mut Vec<u8>, n: usize| {
                let n = u8::try_from(n).expect("small");
                match n {
                    1..=16 if !rng.one_in(8) => script.push(0x50 + n),
                    _ => script.extend([1, n]),
                }
            };
            number(&mut script, keys.div_ceil(2));
            let mut tail = Vec::new();
            number(&mut tail, keys);
            for _ in 0..keys {
                let key = if rng.one_in(10) { rng.pick(words).clone() } else { key(rng) };
                let length = u8::try_from(key.len()).unwrap_or(20);
                script.push(length);
                script.extend(key);
            }
            script.extend(tail);
            script.push(if rng.one_in(10) { 0xaf } else { 0xae });
            if rng.one_in(12) {
                script.push(0x61);
            }
        }
        // Random opcodes and pushes, sometimes cut off at the end.
        5..=7 => {
            for _ in 0..rng.below(6) {
                if rng.one_in(4) {
                    script.push(*rng.pick(&[0, 0x4f, 0x51, 0x60, 0x6a, 0x76, 0xa9, 0xff]));
                } else {
                    let element = element(rng, words);
                    push(rng, &mut script, &element);
                }
            }
            if rng.one_in(3) {
                let end = rng.below(script.len() + 1);
                script.truncate(end);
            }
        }
        _ => {
            let length = rng.below(90);
            script = rng.bytes(length);
        }
    }
    script
}
