//! Tests of the proofs of a real block, and of attacks on light clients.

use bitcoin::absolute::LockTime;
use bitcoin::block::Header;
use bitcoin::consensus::encode::{deserialize, deserialize_hex, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, Block, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
    TxMerkleNode, TxOut, Txid, Witness,
};

use super::{HeaderLink, MerkleBlock, MerkleBlockError, Policy, Proof};
use crate::btc::merkle_tree::merkle_root;
use crate::btc::proof_of_work::ProofOfWorkError;
use crate::btc::tests::{genesis, header};

const STRICT: Policy = Policy::Strict(Network::Bitcoin);
const REGTEST: Policy = Policy::Strict(Network::Regtest);

fn block_150013() -> (Block, Vec<Txid>) {
    let file = include_str!("../../../fixtures/bitcoin/blocks/mainnet_150013.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    let block: Block = deserialize_hex(file["block"].as_str().unwrap()).unwrap();
    let txids = block.txdata.iter().map(Transaction::compute_txid).collect();
    (block, txids)
}

#[test]
fn a_real_block_at_each_grade() {
    let (block, txids) = block_150013();
    let shown = MerkleBlock::new(&block.header, &txids, &[0, 3]).unwrap();
    let bare = Proof::verify(&shown, STRICT, []).unwrap();
    assert_eq!((bare.coinbase, bare.link), (None, HeaderLink::Unlinked));
    assert!(bare.has_proof_of_work() && !bare.is_inclusion_in_chain());
    assert_eq!(
        bare.inclusions.iter().map(|i| (i.index, i.txid, i.delivered)).collect::<Vec<_>>(),
        [(0, txids[0], false), (3, txids[3], false)]
    );
    // A transaction that matches no leaf of the tree is ignored. The coinbase proves the depth.
    let proof = Proof::verify(&shown, STRICT, [&block.txdata[1], &block.txdata[0]]).unwrap();
    assert_eq!(proof.coinbase, Some(txids[0]));
    assert!(proof.inclusions[0].delivered && !proof.inclusions[1].delivered);
    let linked = proof.linked(HeaderLink::InChain { height: 150_013, confirmations: 6 });
    assert!(linked.is_inclusion_in_chain());
    let text = linked.to_string();
    assert!(text.starts_with("2 transactions proven to be in block "), "{text}");
    let unproven = "6 confirmations; not proven: that no other transaction was left out";
    assert!(text.contains(unproven), "{text}");
    // The matched transaction is not the coinbase, so the depth is unproven.
    let other = MerkleBlock::new(&block.header, &txids, &[1]).unwrap();
    assert_eq!(Proof::verify(&other, STRICT, &block.txdata).unwrap().coinbase, None);
}

#[test]
fn work_is_asked_for_by_the_strict_policy_alone() {
    let (block, txids) = block_150013();
    let mut shown = MerkleBlock::new(&block.header, &txids, &[1]).unwrap();
    shown.header.nonce ^= 1;
    assert!(matches!(
        Proof::verify(&shown, STRICT, []),
        Err(MerkleBlockError::ProofOfWork(ProofOfWorkError::HashAboveTarget { .. }))
    ));
    assert!(!Proof::verify(&shown, Policy::Core, []).unwrap().has_proof_of_work());
    shown.header.bits = CompactTarget::from_consensus(0x207f_ffff);
    assert!(matches!(
        Proof::verify(&shown, STRICT, []),
        Err(MerkleBlockError::ProofOfWork(ProofOfWorkError::AboveLimit { bits: 0x207f_ffff, .. }))
    ));
    shown.hashes[0] = TxMerkleNode::all_zeros();
    assert!(matches!(
        Proof::verify(&shown, Policy::Core, []),
        Err(MerkleBlockError::RootMismatch { .. })
    ));
}

fn tx(prevout: OutPoint, script_sig: Vec<u8>, script_pubkey: Vec<u8>) -> Transaction {
    Transaction {
        version: Version::ONE,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: prevout,
            script_sig: ScriptBuf::from(script_sig),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut {
            value: Amount::from_sat(1),
            script_pubkey: ScriptBuf::from(script_pubkey),
        }],
    }
}

/// Returns a mined regtest header over `txids`.
fn mine(txids: &[Txid]) -> Header {
    header(&genesis(), merkle_root(txids).unwrap(), 600)
}

/// A block contains a transaction of 64 bytes that is also an inner node over a payment that never
/// happened. The attacker chose the transaction's last 32 bytes to be the payment's txid.
#[test]
fn a_tree_one_level_too_deep() {
    let coinbase = tx(OutPoint::null(), vec![1; 8], vec![0x51; 9]);
    let payment = tx(OutPoint::new(Txid::all_zeros(), 7), vec![], vec![0x51; 22]);
    let payment_id = payment.compute_txid();
    // The attacker searches for a payment whose txid ends with valid bytes of a transaction from
    // the output index to the end.
    let mut bytes = serialize(&tx(OutPoint::new(Txid::all_zeros(), 0), vec![], vec![0x51; 4]));
    assert_eq!(bytes.len(), 64);
    let forged_leaf = Txid::from_slice(&bytes[32..]).unwrap();
    assert_ne!(forged_leaf, payment_id);
    let hidden: Transaction = deserialize(&bytes).unwrap();
    let txids = [coinbase.compute_txid(), hidden.compute_txid()];
    let header = mine(&txids);
    // Leaves of the deeper tree: the coinbase, hashed as if it were an inner node, and the forged
    // leaf.
    let deeper = MerkleBlock {
        header,
        num_transactions: 4,
        hashes: vec![
            TxMerkleNode::from_raw_hash(txids[0].to_raw_hash()),
            TxMerkleNode::from_slice(&bytes[..32]).unwrap(),
            TxMerkleNode::from_raw_hash(forged_leaf.to_raw_hash()),
        ],
        flags: vec![0b10101],
    };
    let core = Proof::verify(&deeper, Policy::Core, []).unwrap();
    assert_eq!((core.inclusions[0].index, core.inclusions[0].txid), (3, forged_leaf));
    assert_eq!(core.coinbase, None);
    assert_eq!(
        Proof::verify(&deeper, REGTEST, []),
        Err(MerkleBlockError::InnerNodeIsTransaction { level: 1, position: 1 })
    );
    // The honest merkle block is accepted, because the 64-byte transaction is an unmatched leaf of
    // it.
    let honest = MerkleBlock::new(&header, &txids, &[0]).unwrap();
    assert_eq!(Proof::verify(&honest, REGTEST, [&coinbase]).unwrap().coinbase, Some(txids[0]));
    // With an amount above 21 million bitcoin, the inner node cannot be a transaction of a block.
    bytes[46 + 1 + 7] = 0xff;
    let txids = [txids[0], Txid::hash(&bytes)];
    let harmless = MerkleBlock { header: mine(&txids), ..deeper };
    let harmless = MerkleBlock {
        hashes: vec![
            harmless.hashes[0],
            TxMerkleNode::from_slice(&bytes[..32]).unwrap(),
            TxMerkleNode::from_slice(&bytes[32..]).unwrap(),
        ],
        ..harmless
    };
    assert!(Proof::verify(&harmless, REGTEST, []).is_ok());
}

/// Only a coinbase transaction at position 0 proves the depth.
#[test]
fn the_first_leaf_must_be_a_coinbase() {
    let payment = tx(OutPoint::new(Txid::all_zeros(), 7), vec![], vec![0x51; 22]);
    let txids = [payment.compute_txid(), Txid::all_zeros()];
    let shown = MerkleBlock::new(&mine(&txids), &txids, &[0]).unwrap();
    let proof = Proof::verify(&shown, REGTEST, [&payment]).unwrap();
    assert!(proof.inclusions[0].delivered);
    assert_eq!(proof.coinbase, None);
}

/// An inner node is delivered as a transaction: the claimed tree is one level too flat.
#[test]
fn an_inner_node_as_a_transaction() {
    // Two txids that together have the bytes of a transaction. The test chooses the bytes and cuts
    // them into txids.
    let bytes = serialize(&tx(OutPoint::new(Txid::all_zeros(), 1), vec![0x51], vec![0x51; 3]));
    let node: Transaction = deserialize(&bytes).unwrap();
    let leaves = [Txid::from_slice(&bytes[..32]).unwrap(), Txid::from_slice(&bytes[32..]).unwrap()];
    let header = mine(&leaves);
    let flat = MerkleBlock::new(&header, &[node.compute_txid()], &[0]).unwrap();
    assert!(Proof::verify(&flat, Policy::Core, [&node]).is_ok());
    assert_eq!(
        Proof::verify(&flat, REGTEST, [&node]),
        Err(MerkleBlockError::TransactionOf64Bytes { index: 0, txid: node.compute_txid() })
    );
}

/// The last two txids of a block have the bytes of a transaction when concatenated. The coinbase
/// proves that these two hashes are txids.
#[test]
fn a_coinbase_settles_what_an_inner_node_is() {
    let coinbase = tx(OutPoint::null(), vec![0x51; 3], vec![0x51; 20]);
    let small = tx(OutPoint::new(Txid::all_zeros(), 7), vec![0x51], vec![0x51; 3]);
    let bytes = serialize(&tx(OutPoint::new(Txid::all_zeros(), 1), vec![0x51], vec![0x51; 3]));
    let ground = [0, 32].map(|at| Txid::from_slice(&bytes[at..at + 32]).unwrap());
    let txids = [coinbase.compute_txid(), small.compute_txid(), ground[0], ground[1]];
    let shown = MerkleBlock::new(&mine(&txids), &txids, &[0, 1, 2]).unwrap();
    let refused = Err(MerkleBlockError::InnerNodeIsTransaction { level: 1, position: 1 });
    assert_eq!(Proof::verify(&shown, REGTEST, []), refused);
    // A genuine transaction of 64 bytes is accepted, before or after the coinbase.
    assert_eq!(small.base_size(), 64);
    for delivered in [[&small, &coinbase], [&coinbase, &small]] {
        let proof = Proof::verify(&shown, REGTEST, delivered).unwrap();
        assert_eq!(proof.coinbase, Some(txids[0]));
        assert_eq!(proof.inclusions.iter().filter(|leaf| leaf.delivered).count(), 2);
    }
}
