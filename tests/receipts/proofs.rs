//! Proofs of single receipts, with alloy's verifier as the oracle.

use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::Encodable as _;
use alloy_trie::nodes::{ExtensionNode, LeafNode, RlpNode};
use alloy_trie::proof::verify_proof;
use alloy_trie::{EMPTY_ROOT_HASH, Nibbles};
use chainsieve::eth::receipts::{BlockReceipts, ReceiptProof, ReceiptsError};

use crate::blocks::{self, RealBlock};

fn key(index: u64) -> Nibbles {
    Nibbles::unpack(alloy_rlp::encode(index))
}

/// Returns the proofs of some receipts of a block: the first, the last, those around the indices
/// where the length of the key changes, and a few between.
fn some_proofs(block: &RealBlock) -> Vec<ReceiptProof> {
    let receipts = BlockReceipts::from_rlp_list(&block.rlp).expect("receipts");
    let root = block.header.receipts_root;
    let verified = receipts.verify(root, (&block.header.logs_bloom).into()).expect("the root");
    let last = receipts.len().saturating_sub(1) as u64;
    let indices = [0, 1, 15, 16, 17, 126, 127, 128, 129, 255, 256, 257, last / 2, last];
    indices.into_iter().filter_map(|index| verified.proof(index)).collect()
}

#[test]
fn of_real_blocks() {
    let mut proofs = 0;
    for block in blocks::all() {
        let root = block.header.receipts_root;
        let receipts = BlockReceipts::from_rlp_list(&block.rlp).expect("receipts");
        for proof in some_proofs(&block) {
            let index = usize::try_from(proof.transaction_index).expect("an index");
            let proven = proof.verify(root).unwrap_or_else(|e| panic!("{}: {e}", block.name));
            assert_eq!(Some(&proven), receipts.iter().nth(index), "{}", block.name);
            let encoding = block.encodings[index].clone();
            let by_alloy =
                verify_proof(root, key(proof.transaction_index), Some(encoding), &proof.nodes);
            assert_eq!(by_alloy, Ok(()), "{}", block.name);
            proofs += 1;
        }
    }
    assert!(proofs >= 40, "{proofs} proofs");
}

#[test]
fn tampered_ones_are_refused() {
    for block in blocks::fixtures() {
        let root = block.header.receipts_root;
        for (at, proof) in some_proofs(&block).into_iter().enumerate() {
            assert!(proof.verify(root).is_ok());
            assert!(matches!(proof.verify(B256::ZERO), Err(ReceiptsError::Hash { node: 0, .. })));
            for index in [proof.transaction_index ^ 1, proof.transaction_index + 128, u64::MAX] {
                let moved = ReceiptProof { transaction_index: index, ..proof.clone() };
                let refused = moved.verify(root);
                let off =
                    matches!(refused, Err(ReceiptsError::Path { .. } | ReceiptsError::Hash { .. }));
                assert!(off, "{index}: {refused:?}");
            }
            for node in 0..proof.nodes.len() {
                let with = |change: &dyn Fn(&mut Vec<Bytes>)| {
                    let mut nodes = proof.nodes.clone();
                    change(&mut nodes);
                    ReceiptProof { nodes, ..proof.clone() }.verify(root)
                };
                assert!(with(&|nodes| nodes.truncate(node)).is_err());
                assert!(with(&|nodes| drop(nodes.remove(node))).is_err());
                assert!(with(&|nodes| nodes.insert(node, nodes[node].clone())).is_err());
                assert!(with(&|nodes| nodes[node] = Bytes::new()).is_err());
                let length = proof.nodes[node].len();
                let step = if at == 0 { 1 } else { 61 };
                for byte in (0..length).step_by(step) {
                    let flipped = with(&|nodes| {
                        let mut bytes = nodes[node].to_vec();
                        bytes[byte] ^= 1;
                        nodes[node] = bytes.into();
                    });
                    let is_hash = matches!(flipped, Err(ReceiptsError::Hash { node: bad, .. }) if bad == node);
                    assert!(is_hash, "{flipped:?}");
                }
            }
            let mut longer = proof.clone();
            longer.nodes.push(Bytes::new());
            let nodes = longer.nodes.len();
            assert_eq!(longer.verify(root), Err(ReceiptsError::TooLong { nodes, leaf: nodes - 1 }));
            let none = ReceiptProof { nodes: Vec::new(), ..proof };
            assert_eq!(none.verify(root), Err(ReceiptsError::TooShort { nodes: 0 }));
        }
    }
}

/// A proof that ends early, lacks nodes in its middle, or has a node that is cut at any byte.
#[test]
fn cut_ones_are_refused() {
    let (mut lists, mut nodes) = (0, 0);
    for block in blocks::all() {
        let root = block.header.receipts_root;
        for proof in some_proofs(&block) {
            assert!(proof.verify(root).is_ok(), "{}", block.name);
            let whole = &proof.nodes;
            let key = key(proof.transaction_index);
            let mut refuse = |nodes: Vec<Bytes>| {
                let cut = ReceiptProof { nodes, ..proof.clone() };
                let refused = cut.verify(root).expect_err(&block.name);
                let is_cut =
                    matches!(refused, ReceiptsError::Hash { .. } | ReceiptsError::TooShort { .. });
                assert!(is_cut, "{}: {refused:?}", block.name);
                // Nor does alloy's verifier read it as a proof that the block lacks the receipt.
                let absent = verify_proof(root, key, None, &cut.nodes);
                assert!(absent.is_err(), "{}: alloy", block.name);
                lists += 1;
            };
            for first in 0..whole.len() {
                for end in first + 1..=whole.len() {
                    refuse([&whole[..first], &whole[end..]].concat());
                }
                // Receipts may be long: about 64 places of each node.
                let length = whole[first].len();
                for at in (0..length).step_by(length.div_ceil(64)) {
                    let node = &whole[first];
                    refuse([&whole[..first], &[node.slice(..at)]].concat());
                    refuse([&whole[..first], &[node.slice(..at)], &whole[first + 1..]].concat());
                    if at > 0 {
                        let rest = &whole[first + 1..];
                        refuse([&whole[..first], &[node.slice(at..)], rest].concat());
                    }
                }
                nodes += 1;
            }
        }
    }
    println!("{lists} cut proofs of {nodes} nodes");
    assert!(nodes > 100 && lists > 10_000);
}

/// Under a root of the attacker's choice, a proof is an error whatever its nodes are.
#[test]
fn tries_that_no_receipts_make() {
    let proof = |nodes: &[Vec<u8>]| ReceiptProof {
        transaction_index: 0x80,
        nodes: nodes.iter().map(|node| Bytes::from(node.clone())).collect(),
    };
    let refused = |nodes: &[Vec<u8>]| {
        let error = proof(nodes).verify(keccak256(&nodes[0])).expect_err("refused");
        // No honest source sends such a proof.
        assert!(!error.is_undecidable(), "{error}");
        error
    };
    let leaf = |key: &[u8], value: &[u8]| {
        alloy_rlp::encode(LeafNode::new(Nibbles::from_nibbles(key), value.to_vec()))
    };
    let malformed = |error| matches!(error, ReceiptsError::Malformed { node: 0, .. });
    for node in [
        &[][..],
        &[0xc0],
        &[0x81],
        &[0x00],
        &[0xc1, 0x80],
        &[0xf8],
        &[0xbf, 0xff],
        &[0xc2, 0x80, 0x80],
    ] {
        assert!(malformed(refused(&[node.to_vec()])), "{node:x?}");
    }
    assert!(matches!(refused(&[vec![0x80]]), ReceiptsError::Path { node: 0, .. }));
    assert_eq!(keccak256([0x80]), EMPTY_ROOT_HASH);
    assert!(matches!(refused(&[leaf(&[8, 1, 8], &[7; 40])]), ReceiptsError::Path { .. }));
    let unknown = refused(&[leaf(&[8, 1, 8, 0], &[7; 40])]);
    assert!(matches!(unknown, ReceiptsError::UnknownType { receipt_type: 7, .. }), "{unknown}");
    let empty = refused(&[leaf(&[8, 1, 8, 0], &[])]);
    assert!(matches!(empty, ReceiptsError::Field { .. }), "{empty}");

    // Extensions whose paths are together longer than any key.
    let long = |child: B256| {
        let extension =
            ExtensionNode::new(Nibbles::from_nibbles([8; 40]), RlpNode::word_rlp(&child));
        let mut rlp = Vec::new();
        extension.encode(&mut rlp);
        rlp
    };
    let last = long(B256::ZERO);
    let first = long(keccak256(&last));
    assert!(matches!(refused(&[first, last]), ReceiptsError::Path { node: 0, .. }));

    // A chain of extensions with empty paths is followed to its last node, which is an error.
    let empty = |child: B256| {
        let extension = ExtensionNode::new(Nibbles::default(), RlpNode::word_rlp(&child));
        alloy_rlp::encode(extension)
    };
    let mut nodes = vec![empty(B256::ZERO)];
    for _ in 0..100 {
        let parent = empty(keccak256(&nodes[0]));
        nodes.insert(0, parent);
    }
    assert_eq!(refused(&nodes), ReceiptsError::TooShort { nodes: 101 });
}

#[test]
fn json_round_trip() {
    let block = &blocks::fixtures()[0];
    for proof in some_proofs(block) {
        let json = serde_json::to_string(&proof).expect("JSON");
        assert!(json.starts_with(r#"{"transactionIndex":"#), "{json:.80}");
        assert_eq!(serde_json::from_str::<ReceiptProof>(&json).expect("read"), proof);
    }
}
