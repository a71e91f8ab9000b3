//! A lying block server can't convict an honest filter: each change of a block is rejected, or
//! changes nothing that a proof relies on.

use std::collections::BTreeMap;

use chainsieve::bitcoin::consensus::deserialize;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::opcodes::all::OP_NOP;
use chainsieve::bitcoin::{Block, BlockHash, Network, ScriptBuf, Transaction, Txid, Witness};
use chainsieve::btc::bip158::audit::{Prevouts, Verdict, audit};
use chainsieve::btc::bip158::{BindError, BoundBlock, Witnesses};

use testkit::btc::regtest;

use crate::built::{block, commit, every_kind, look_alikes, p2pk};
use crate::cases::{Case, corpus, fixtures};
use testkit::Rng;

/// Returns changed blocks with the name of each change. Changes that leave this block as it is are
/// skipped.
fn lies(rng: &mut Rng, honest: &Block) -> Vec<(&'static str, Block)> {
    let mut lies = Vec::new();
    let mut lie = |name, change: &mut dyn FnMut(&mut Block)| {
        let mut block = honest.clone();
        change(&mut block);
        if block != *honest {
            lies.push((name, block));
        }
    };
    let count = honest.txdata.len();
    let at = rng.below(count);
    let other = rng.below(count);
    lie("header: nonce", &mut |block| block.header.nonce ^= 1);
    lie("header: merkle root of a changed block", &mut |block| {
        block.txdata[at].output[0].script_pubkey = ScriptBuf::from_bytes(vec![0x51]);
        block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    });
    lie("no transactions", &mut |block| block.txdata.clear());
    lie("transaction left out", &mut |block| drop(block.txdata.remove(at)));
    lie("transaction put in", &mut |block| {
        let mut tx = block.txdata[at].clone();
        tx.version.0 ^= 0x100;
        block.txdata.push(tx);
    });
    lie("transactions swapped", &mut |block| block.txdata.swap(at, other));
    lie("coinbase twice", &mut |block| block.txdata.push(block.txdata[0].clone()));
    lie("output script", &mut |block| {
        block.txdata[at].output[0].script_pubkey.push_opcode(OP_NOP);
    });
    lie("output put in", &mut |block| {
        let output = block.txdata[0].output[0].clone();
        block.txdata[at].output.push(output);
    });
    lie("script of an input", &mut |block| {
        block.txdata[at].input[0].script_sig.push_opcode(OP_NOP);
    });
    lie("outpoint", &mut |block| block.txdata[at].input[0].previous_output.vout ^= 1);
    // CVE-2012-2459: where a level has an odd width, repeating the last 2^k transactions keeps the
    // merkle root.
    for level in 0..u32::BITS - 1 {
        let width = count.div_ceil(1 << level);
        if width > 1 && width % 2 == 1 {
            lie("transactions doubled", &mut |block| {
                let from = (width - 1) << level;
                let tail = block.txdata[from..].to_vec();
                block.txdata.extend(tail);
            });
        }
    }
    lie("all witnesses left away", &mut |block| {
        for input in block.txdata.iter_mut().flat_map(|tx| &mut tx.input) {
            input.witness = Witness::new();
        }
    });
    lie("witnesses left away but the coinbase's", &mut |block| {
        for input in block.txdata.iter_mut().skip(1).flat_map(|tx| &mut tx.input) {
            input.witness = Witness::new();
        }
    });
    lie("witness of an input left away", &mut |block| {
        for input in &mut block.txdata[at].input {
            input.witness = Witness::new();
        }
    });
    lie("witness put in", &mut |block| {
        block.txdata[count - 1].input[0].witness = Witness::from_slice(&[[0x51]]);
    });
    lie("witness item added", &mut |block| {
        for input in block.txdata[at].input.iter_mut().filter(|i| !i.witness.is_empty()) {
            input.witness.push([1]);
        }
    });
    lie("coinbase witness", &mut |block| {
        block.txdata[0].input[0].witness = Witness::from_slice(&[[7; 32]]);
    });
    lies
}

fn assert_no_lie_convicts(case: &Case, counts: &mut BTreeMap<&'static str, [usize; 2]>) {
    let expected = case.block.block_hash();
    for seed in 0..3 {
        for (name, block) in lies(&mut Rng::new(seed), &case.block) {
            let count = counts.entry(name).or_default();
            match BoundBlock::bind(&block, expected, case.network) {
                Err(_) => count[0] += 1,
                Ok(bound) => {
                    // The only changed block that can be bound is a block without its witnesses.
                    assert_eq!(bound.witnesses(), Witnesses::Stripped, "{}: {name}", case.name);
                    count[1] += 1;
                    let scripts = |outpoint: &_| case.prevouts.get(outpoint).cloned();
                    let blind = audit(&bound, &case.filter, Prevouts::None);
                    assert!(!matches!(blind, Verdict::Invalid(_)), "{}: {blind}", case.name);
                    let trusting = audit(&bound, &case.filter, Prevouts::Trusted(&scripts));
                    assert!(matches!(trusting, Verdict::Valid(_)), "{}: {trusting}", case.name);
                }
            }
        }
    }
}

#[test]
fn no_changed_block_convicts() {
    let mut cases = fixtures();
    cases.extend((0..6).map(|seed| every_kind(seed, seed % 2 == 0)));
    if let Some(corpus) = corpus() {
        cases.extend(corpus.into_iter().filter(|case| case.block.txdata.len() < 1_500));
    }
    let mut counts = BTreeMap::new();
    for case in &cases {
        assert_no_lie_convicts(case, &mut counts);
    }
    println!("kinds of lie, [refused, bound]: {counts:#?}");
    assert_eq!(counts.len(), 18);
    for (name, [refused, bound]) in counts {
        assert_eq!(bound > 0, name == "all witnesses left away", "{name}");
        assert!(refused > 0 || name == "all witnesses left away", "{name}");
    }
}

fn refusal(case: &Case, block: &Block) -> BindError {
    let expected = case.block.block_hash();
    BoundBlock::bind(block, expected, case.network).expect_err("a lie")
}

/// Each kind of lie is caught by the check that was made for it.
#[test]
fn each_lie_meets_its_check() {
    let case = every_kind(1, true);
    let changed = |change: &dyn Fn(&mut Block)| {
        let mut block = case.block.clone();
        change(&mut block);
        refusal(&case, &block)
    };
    let found = |error: BindError| matches!(error, BindError::OtherBlock { .. });
    assert!(found(changed(&|block| block.header.nonce ^= 1)));
    let error = changed(&|block| drop(block.txdata.pop()));
    assert!(matches!(error, BindError::MerkleRoot { .. }), "{error}");
    let error = changed(&|block| block.txdata.swap(0, 1));
    assert_eq!(error, BindError::NoCoinbase);
    let error = changed(&|block| block.txdata.push(block.txdata[0].clone()));
    assert_eq!(error, BindError::SecondCoinbase(12));
    let error = changed(&|block| {
        block.txdata[3].input[0].witness.push([1]);
    });
    assert_eq!(error, BindError::WitnessCommitment);
    // Twelve transactions have three nodes at level 2. Three is odd, so repeating the last four
    // transactions keeps the root.
    let error = changed(&|block| {
        let tail = block.txdata[8..].to_vec();
        block.txdata.extend(tail);
    });
    assert!(matches!(error, BindError::DuplicateTransaction(_)), "{error}");

    // The caller may take a header from elsewhere than a verified chain, so the proof of work is
    // checked.
    let mut block = case.block.clone();
    let target = block.header.target();
    while target.is_met_by(block.header.block_hash()) {
        block.header.nonce += 1;
    }
    let bound = BoundBlock::bind(&block, block.block_hash(), Network::Regtest);
    assert!(matches!(bound, Err(BindError::ProofOfWork(_))), "{bound:?}");
    let bound = BoundBlock::bind(&case.block, case.block.block_hash(), Network::Bitcoin);
    assert!(matches!(bound, Err(BindError::ProofOfWork(_))), "{bound:?}");

    let mut block = case.block.clone();
    block.txdata[0].output.pop();
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    regtest::solve(&mut block.header);
    let bound = BoundBlock::bind(&block, block.block_hash(), Network::Regtest);
    assert_eq!(bound.err(), Some(BindError::NoWitnessCommitment));
}

/// A bare `DROP 1` whose spender pushes a witness program. With a made-up witness, the input would
/// look like segwit in P2SH, and would prove that the filter lacks a script that nobody pays to.
#[test]
fn a_forged_witness_convicts_nobody() {
    let rng = &mut Rng::new(5);
    let [wsh, _, mut bare] = look_alikes(rng);
    bare.script = ScriptBuf::from_bytes(vec![0x75, 0x51]);
    bare.script_sig = ScriptBuf::from_bytes([&[34, 0, 32][..], &rng.bytes(32)].concat());
    let case = block(rng, vec![vec![bare], vec![wsh]], false);
    assert!(matches!(case.trusting(&case.filter), Verdict::Valid(_)));
    // An input without a witness is never taken for segwit in P2SH.
    let blind = case.blind(&case.filter);
    assert!(matches!(blind, Verdict::Suspicious { .. }), "{blind}");
    let mut forged = case.block.clone();
    forged.txdata[1].input[0].witness = Witness::from_slice(&[[0x51]]);
    assert_eq!(refusal(&case, &forged), BindError::WitnessCommitment);

    // A block server that is also the miner can commit to the forged witness, but then the block
    // has another hash.
    commit(&mut forged, &[0; 32]);
    assert!(matches!(refusal(&case, &forged), BindError::OtherBlock { .. }));
}

/// A block from before segwit has no witnesses, whatever its coinbase commits to.
#[test]
fn witnesses_before_segwit_are_refused() {
    let Some(cases) = corpus() else { return };
    let mut refused = 0;
    for case in cases.iter().filter(|case| case.bind().witnesses() != Witnesses::Committed) {
        let mut block = case.block.clone();
        block.txdata.last_mut().expect("a coinbase").input[0].witness.push([1]);
        let error = refusal(case, &block);
        let is_early = matches!(error, BindError::WitnessBeforeSegwit { .. });
        assert!(is_early || error == BindError::NoWitnessCommitment, "{}: {error}", case.name);
        refused += usize::from(is_early);
    }
    assert!(refused > 256, "{refused}");
}

/// Sends the inner nodes of a merkle tree as transactions of 64 bytes. The root is the same, and
/// the block is rejected.
#[test]
fn inner_nodes_are_no_transactions() {
    // Returns 64 bytes that parse as a transaction and can also be read as two hashes.
    let node = |rng: &mut Rng| {
        let mut bytes = [0_u8; 64];
        bytes[..4].copy_from_slice(&rng.array::<4>());
        bytes[4] = 1;
        bytes[5..41].copy_from_slice(&rng.array::<36>());
        bytes[46] = 1;
        bytes[55] = 4;
        bytes[56..60].copy_from_slice(&rng.array::<4>());
        bytes
    };
    let rng = &mut Rng::new(9);
    let nodes: Vec<[u8; 64]> = (0..4).map(|_| node(rng)).collect();
    let txdata: Vec<Transaction> =
        nodes.iter().map(|bytes| deserialize(bytes).expect("a transaction")).collect();
    assert!(txdata.iter().all(|tx| tx.base_size() == 64));
    let mut block = every_kind(0, true).block;
    block.txdata = txdata;
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    regtest::solve(&mut block.header);
    // The tree one level deeper has the halves of these nodes as its leaves, and the same root.
    let leaf = |half: &[u8]| Txid::from_slice(half).expect("32 bytes");
    let leaves: Vec<_> = nodes.iter().flat_map(|n| [leaf(&n[..32]), leaf(&n[32..])]).collect();
    let root = chainsieve::btc::merkle_tree::merkle_root(&leaves);
    assert_eq!(root, Some(block.header.merkle_root));
    let bound = BoundBlock::bind(&block, block.block_hash(), Network::Regtest);
    assert_eq!(bound.err(), Some(BindError::NoCoinbase));
}

/// A transaction of 64 bytes after the coinbase is no reason to reject a block.
#[test]
fn a_transaction_of_64_bytes_is_let_pass() {
    let rng = &mut Rng::new(11);
    let spend = p2pk(rng);
    let mut case = block(rng, vec![vec![spend]], false);
    let mut small = case.block.txdata[1].clone();
    small.input[0].script_sig = ScriptBuf::new();
    small.output.truncate(1);
    small.output[0].script_pubkey = ScriptBuf::from_bytes(vec![0x51; 4]);
    assert_eq!(small.base_size(), 64);
    case.block.txdata[1] = small;
    case.block.txdata[0].output.pop();
    commit(&mut case.block, &[0; 32]);
    let witness = Witness::from_slice(&[[0; 32]]);
    case.block.txdata[0].input[0].witness = witness;
    let bound = BoundBlock::bind(&case.block, case.block.block_hash(), Network::Regtest);
    assert!(bound.is_ok(), "{bound:?}");
    let other = BlockHash::all_zeros();
    let bound = BoundBlock::bind(&case.block, other, Network::Regtest);
    assert!(matches!(bound, Err(BindError::OtherBlock { .. })));
}
