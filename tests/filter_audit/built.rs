//! Builds blocks with every kind of input. The blocks are valid by consensus as far as an audit can
//! check.

use std::collections::HashMap;

use chainsieve::bitcoin::hashes::{Hash as _, hash160, sha256};
use chainsieve::bitcoin::key::{TapTweak as _, UntweakedPublicKey};
use chainsieve::bitcoin::taproot::{LeafVersion, TaprootBuilder};
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, TxIn, TxMerkleNode, TxOut, Txid,
    Witness,
};
use chainsieve::secp256k1::Secp256k1;

use crate::cases::{Case, spends};
use testkit::Rng;
use testkit::btc::regtest::{self, transaction};

/// An output script, with the script and the witness of the input that spends the output.
pub(crate) struct Spend {
    pub(crate) script: ScriptBuf,
    pub(crate) script_sig: ScriptBuf,
    pub(crate) witness: Vec<Vec<u8>>,
}

impl Spend {
    fn legacy(script: Vec<u8>, pushes: &[&[u8]]) -> Self {
        let push = |data: &&[u8]| [&[u8::try_from(data.len()).expect("short")], *data].concat();
        let script_sig = pushes.iter().flat_map(push).collect();
        Self {
            script: ScriptBuf::from_bytes(script),
            script_sig: ScriptBuf::from_bytes(script_sig),
            witness: vec![],
        }
    }

    fn native(script: Vec<u8>, witness: Vec<Vec<u8>>) -> Self {
        Self { script: ScriptBuf::from_bytes(script), script_sig: ScriptBuf::new(), witness }
    }

    /// Wraps the witness program in P2SH.
    fn wrapped(self) -> Self {
        let script_sig =
            [&[u8::try_from(self.script.len()).expect("short")], self.script.as_bytes()];
        let script_sig = ScriptBuf::from_bytes(script_sig.concat());
        Self { script: p2sh(self.script.as_bytes()).into(), script_sig, witness: self.witness }
    }
}

fn p2sh(script: &[u8]) -> Vec<u8> {
    [&[0xa9, 20], &hash160::Hash::hash(script).to_byte_array()[..], &[0x87]].concat()
}

fn program(version: u8, program: &[u8]) -> Vec<u8> {
    [&[version, u8::try_from(program.len()).expect("short")], program].concat()
}

/// Returns bytes that look like a DER signature.
fn signature(rng: &mut Rng) -> Vec<u8> {
    [&[0x30, 69][..], &rng.bytes(69), &[1]].concat()
}

fn key(rng: &mut Rng) -> Vec<u8> {
    [&[2][..], &rng.bytes(32)].concat()
}

pub(crate) fn p2pkh(rng: &mut Rng) -> Spend {
    let (signature, key) = (signature(rng), key(rng));
    let hash = hash160::Hash::hash(&key).to_byte_array();
    Spend::legacy([&[0x76, 0xa9, 20], &hash[..], &[0x88, 0xac]].concat(), &[&signature, &key])
}

pub(crate) fn p2pk(rng: &mut Rng) -> Spend {
    let script = [&[33][..], &key(rng), &[0xac]].concat();
    Spend::legacy(script, &[&signature(rng)])
}

pub(crate) fn pay_to_script_hash(rng: &mut Rng) -> Spend {
    let script = [&[33][..], &key(rng), &[0xac]].concat();
    Spend::legacy(p2sh(&script), &[&signature(rng), &script])
}

pub(crate) fn p2wpkh(rng: &mut Rng) -> Spend {
    let (signature, key) = (signature(rng), key(rng));
    let hash = hash160::Hash::hash(&key).to_byte_array();
    Spend::native(program(0, &hash), vec![signature, key])
}

pub(crate) fn p2wsh(rng: &mut Rng, script: Vec<u8>) -> Spend {
    let hash = sha256::Hash::hash(&script).to_byte_array();
    Spend::native(program(0, &hash), vec![signature(rng), script])
}

pub(crate) fn key_path(rng: &mut Rng) -> Spend {
    Spend::native(program(0x51, &rng.bytes(32)), vec![rng.bytes(64)])
}

pub(crate) fn script_path(rng: &mut Rng, annex: bool) -> Spend {
    let secp = Secp256k1::verification_only();
    let internal = std::iter::repeat_with(|| rng.bytes(32))
        .find_map(|bytes| UntweakedPublicKey::from_slice(&bytes).ok())
        .expect("half of all are keys");
    let script = ScriptBuf::from_bytes([&[32][..], &rng.bytes(32), &[0xac]].concat());
    let other = ScriptBuf::from_bytes(vec![0x51]);
    let tree = TaprootBuilder::new().add_leaf(1, script.clone()).and_then(|t| t.add_leaf(1, other));
    let tree = tree.expect("a tree").finalize(&secp, internal).expect("whole");
    let control = tree.control_block(&(script.clone(), LeafVersion::TapScript)).expect("a leaf");
    let (output, _) = internal.tap_tweak(&secp, tree.merkle_root());
    let mut witness = vec![rng.bytes(64), script.into_bytes(), control.serialize()];
    if annex {
        witness.push([&[0x50][..], &rng.bytes(9)].concat());
    }
    Spend::native(ScriptBuf::new_p2tr_tweaked(output).into(), witness)
}

/// Returns three spends that look like another kind of spend. All are valid by consensus.
pub(crate) fn look_alikes(rng: &mut Rng) -> [Spend; 3] {
    // A push of two bytes, two `OP_DROP`s, NOPs and `OP_1`: 33 bytes that start like a public key.
    let script = [&[2, 0xaa, 0xbb, 0x75, 0x75][..], &[0x61; 27], &[0x51]].concat();
    assert_eq!(script.len(), 33);
    let (signature, key) = (signature(rng), key(rng));
    [
        p2wsh(rng, script),
        Spend::native(program(0x52, &rng.bytes(32)), vec![signature.clone(), key.clone()]),
        // The script `2DROP 1`.
        Spend::legacy(vec![0x6d, 0x51], &[&signature, &key]),
    ]
}

fn output(script: impl Into<ScriptBuf>) -> TxOut {
    TxOut { value: Amount::from_sat(1_000), script_pubkey: script.into() }
}

fn input(previous_output: OutPoint, spend: &Spend) -> TxIn {
    TxIn {
        script_sig: spend.script_sig.clone(),
        witness: Witness::from_slice(&spend.witness),
        ..regtest::input(previous_output)
    }
}

/// Builds a block with a coinbase and one transaction for each of `groups`.
///
/// Each input spends an output of a transaction outside the block. If `chained`, the first input of
/// each transaction spends an output of the transaction before it instead.
pub(crate) fn block(rng: &mut Rng, groups: Vec<Vec<Spend>>, chained: bool) -> Case {
    let mut txdata = Vec::new();
    let mut previous = Vec::new();
    let mut scripts = HashMap::new();
    let mut unspent: Option<OutPoint> = None;
    let mut groups = groups.into_iter().peekable();
    while let Some(group) = groups.next() {
        let mut inputs = Vec::new();
        for (at, spend) in group.iter().enumerate() {
            let chained = unspent.take().filter(|_| at == 0);
            let outpoint = chained.unwrap_or_else(|| {
                let filler = output(rng.bytes(11));
                let tx = transaction(
                    vec![input(random_outpoint(rng), &p2pk(rng))],
                    vec![filler, output(spend.script.clone())],
                );
                previous.push(tx);
                OutPoint { txid: previous.last().expect("pushed").compute_txid(), vout: 1 }
            });
            scripts.insert(outpoint, spend.script.clone());
            inputs.push(input(outpoint, spend));
        }
        let random = [&[0, 20][..], &rng.bytes(20)].concat();
        let mut outputs = vec![output(random), output(vec![0x6a, 1, 7]), output(vec![])];
        if chained && let Some(next) = groups.peek() {
            outputs.push(output(next[0].script.clone()));
        }
        let tx = transaction(inputs, outputs);
        if tx.output.len() == 4 {
            unspent = Some(OutPoint { txid: tx.compute_txid(), vout: 3 });
        }
        txdata.push(tx);
    }
    let reserved: [u8; 32] = rng.array();
    txdata.insert(0, regtest::coinbase(0x2211, [0; 4], vec![output(key_path(rng).script)]));
    let previous_block = BlockHash::from_byte_array(rng.array());
    let header = regtest::header(previous_block, 0, TxMerkleNode::all_zeros());
    let mut block = Block { header, txdata };
    commit(&mut block, &reserved);
    let prevouts = spends(&block).map(|(.., input)| scripts[&input.previous_output].clone());
    let prevouts = prevouts.collect();
    let mut case = Case::new("built".into(), Network::Regtest, block, prevouts, vec![]);
    case.previous = previous;
    case.filter = case.filter_of(&case.elements());
    case
}

/// Sets the witness commitment and the merkle root, and solves the proof of work.
pub(crate) fn commit(block: &mut Block, reserved: &[u8; 32]) {
    regtest::commit_to_witnesses(block, reserved);
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    regtest::solve(&mut block.header);
}

fn random_outpoint(rng: &mut Rng) -> OutPoint {
    OutPoint { txid: Txid::from_byte_array(rng.array()), vout: 0 }
}

/// Builds a block with every kind of input, in eleven transactions after the coinbase. If
/// `chained`, the first input of each spends an output of the transaction before it.
pub(crate) fn every_kind(seed: u64, chained: bool) -> Case {
    let rng = &mut Rng::new(seed);
    let script = |rng: &mut Rng| [&[33][..], &key(rng), &[0xac]].concat();
    let groups = vec![
        vec![p2pkh(rng), p2pk(rng)],
        vec![pay_to_script_hash(rng)],
        vec![p2wpkh(rng), p2wpkh(rng).wrapped()],
        vec![{
            let script = script(rng);
            p2wsh(rng, script)
        }],
        vec![
            {
                let script = script(rng);
                p2wsh(rng, script).wrapped()
            },
            p2pkh(rng),
        ],
        vec![key_path(rng)],
        vec![script_path(rng, false), script_path(rng, true)],
        vec![p2wpkh(rng).wrapped()],
        vec![p2pk(rng)],
        vec![Spend::native(program(0x60, &rng.bytes(2)), vec![vec![1]]).wrapped(), key_path(rng)],
        vec![Spend::legacy(vec![], &[&[1]])],
    ];
    block(rng, groups, chained)
}
