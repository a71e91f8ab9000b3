//! Tests of merkle blocks and their trees against `bitcoin`'s own code, BIP37's published vectors,
//! and damaged payloads.

use bitcoin::block::Header;
use bitcoin::consensus::encode::{deserialize, deserialize_hex};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, TxMerkleNode, Txid};

use super::{MerkleBlock, MerkleBlockError, PayloadError};
use crate::btc::merkle_tree::{MerklePath, PathError, merkle_root};

fn txids(count: u32) -> Vec<Txid> {
    (0..count).map(|i| Txid::hash(&i.to_le_bytes())).collect()
}

fn header(txids: &[Txid]) -> Header {
    let mut header: Header = deserialize(&[0; 80]).unwrap();
    let root = bitcoin::merkle_tree::calculate_root(txids.iter().map(|txid| txid.to_raw_hash()));
    header.merkle_root = TxMerkleNode::from_raw_hash(root.unwrap());
    header
}

/// Returns pseudo-random positions below `count`, about one in `one_in`.
fn some_of(count: u32, one_in: u32, seed: u32) -> Vec<u32> {
    (0..count)
        .filter(|i| (i ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(15).is_multiple_of(one_in))
        .collect()
}

#[test]
fn as_bitcoins_own_for_all_sizes() {
    for count in (1..=70).chain([127, 128, 129, 1_000, 2_500, 4_000]) {
        let txids = txids(count);
        let header = header(&txids);
        assert_eq!(merkle_root(&txids), Some(header.merkle_root), "{count}");
        for matched in [
            vec![],
            vec![0],
            vec![count - 1],
            (0..count).collect(),
            some_of(count, 2, count),
            some_of(count, 9, count),
        ] {
            let ours = MerkleBlock::new(&header, &txids, &matched).unwrap();
            let theirs =
                bitcoin::MerkleBlock::from_header_txids_with_predicate(&header, &txids, |txid| {
                    matched.iter().any(|&i| txids[i as usize] == *txid)
                });
            assert_eq!(ours.encode(), bitcoin::consensus::serialize(&theirs), "{count}");
            assert_eq!(MerkleBlock::from(&theirs), ours);
            let decoded: bitcoin::MerkleBlock = (&ours).try_into().unwrap();
            assert_eq!(MerkleBlock::from(&decoded), ours);
            let matches = ours.extract_matches().unwrap();
            let expected: Vec<_> = matched.iter().map(|&i| (i, txids[i as usize])).collect();
            assert_eq!(matches, expected);
        }
    }
}

/// This crate and `bitcoin` both accept or both reject a merkle block with one changed bit.
#[test]
fn damage_is_seen_as_bitcoin_sees_it() {
    let mut accepted = 0;
    for (count, one_in) in [(1, 1), (2, 1), (3, 2), (7, 3), (12, 4), (33, 8)] {
        let txids = txids(count);
        let block =
            MerkleBlock::new(&header(&txids), &txids, &some_of(count, one_in, 5)).unwrap().encode();
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let theirs = deserialize::<bitcoin::MerkleBlock>(&damaged)
                .is_ok_and(|block| block.extract_matches(&mut vec![], &mut vec![]).is_ok());
            let ours = MerkleBlock::decode(&damaged).is_ok_and(|b| b.extract_matches().is_ok());
            assert_eq!(ours, theirs, "{count} transactions, bit {bit}");
            accepted += u32::from(ours);
        }
    }
    // Changes of padding and of header fields other than the root do not affect the tree.
    assert!(accepted > 6 * 48 * 8, "{accepted}");
}

#[test]
fn bip37_vectors() {
    let file = include_str!("../../../fixtures/bitcoin/bip37_vectors.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    let mut steps = 0;
    for case in file["merkle_blocks"].as_array().unwrap() {
        let block = file["blocks"][case["block"].as_str().unwrap()].as_str().unwrap();
        let block: Block = deserialize_hex(block).unwrap();
        let txids: Vec<_> = block.txdata.iter().map(bitcoin::Transaction::compute_txid).collect();
        for step in case["steps"].as_array().unwrap() {
            if step.get("matches").is_none() {
                continue; // a step about the contents of the filter
            }
            let expected: Vec<(u32, Txid)> =
                serde_json::from_value::<Vec<(u32, String)>>(step["matches"].clone())
                    .unwrap()
                    .into_iter()
                    .map(|(index, txid)| (index, txid.parse().unwrap()))
                    .collect();
            let matched: Vec<u32> = expected.iter().map(|&(index, _)| index).collect();
            let ours = MerkleBlock::new(&block.header, &txids, &matched).unwrap();
            if let Some(payload) = step.get("payload") {
                assert_eq!(hex::encode(ours.encode()), payload.as_str().unwrap());
            }
            assert_eq!(ours.extract_matches().unwrap(), expected);
            steps += 1;
        }
    }
    assert_eq!(steps, 9);
}

#[test]
fn each_check_has_its_error() {
    let txids = txids(7);
    let good = MerkleBlock::new(&header(&txids), &txids, &[2, 5]).unwrap();
    let with = |change: fn(&mut MerkleBlock)| {
        let mut block = good.clone();
        change(&mut block);
        block.extract_matches().unwrap_err()
    };
    assert_eq!(with(|b| b.num_transactions = 0), MerkleBlockError::NoTransactions);
    assert_eq!(
        with(|b| b.num_transactions = 16_667),
        MerkleBlockError::TooManyTransactions(16_667)
    );
    assert_eq!(
        with(|b| b.num_transactions = 5),
        MerkleBlockError::TooManyHashes { hashes: 6, transactions: 5 }
    );
    assert_eq!(with(|b| b.flags.clear()), MerkleBlockError::TooFewBits { bits: 0, hashes: 6 });
    assert_eq!(with(|b| b.flags.truncate(1)), MerkleBlockError::BitsRunOut(8));
    assert!(matches!(with(|b| b.hashes.truncate(5)), MerkleBlockError::HashesRunOut(5)));
    assert_eq!(with(|b| b.flags.push(0)), MerkleBlockError::UnusedBits { used: 11, bits: 24 });
    assert_eq!(
        with(|b| b.hashes.push(b.hashes[0])),
        MerkleBlockError::UnusedHashes { used: 6, hashes: 7 }
    );
    assert!(matches!(with(|b| b.hashes.swap(0, 1)), MerkleBlockError::RootMismatch { .. }));
    // Padding bits may be set.
    let mut padded = good.clone();
    padded.flags[1] |= 0x80;
    assert_eq!(padded.extract_matches(), good.extract_matches());
    assert_ne!(MerkleBlock::decode(&padded.encode()).unwrap(), good);
}

/// CVE-2012-2459: six transactions have the same root as these six followed by the last two again.
#[test]
fn repeated_transactions_are_refused() {
    let mut txids = txids(6);
    let header = header(&txids);
    txids.extend_from_within(4..);
    assert_eq!(merkle_root(&txids), Some(header.merkle_root));
    for leaf in 4..8 {
        let block = MerkleBlock::new(&header, &txids, &[leaf]).unwrap();
        assert_eq!(
            block.extract_matches(),
            Err(MerkleBlockError::IdenticalChildren { level: 2, position: 1 })
        );
        let path = MerklePath::new(&txids, leaf).unwrap();
        assert_eq!(path.root(txids[leaf as usize], 8), Err(PathError::Sibling { level: 1 }));
    }
}

#[test]
fn paths_lead_to_the_root_from_their_leaf_alone() {
    for count in [1, 2, 3, 5, 6, 7, 11, 64, 65] {
        let txids = txids(count);
        let root = Some(header(&txids).merkle_root);
        for (index, &txid) in (0..).zip(&txids) {
            let path = MerklePath::new(&txids, index).unwrap();
            assert_eq!(path.root(txid, count).ok(), root);
            assert_ne!(path.root(Txid::all_zeros(), count).ok(), root);
            for other in (0..count).filter(|&other| other != index) {
                let moved = MerklePath { index: other, ..path.clone() };
                assert_ne!(moved.root(txid, count).ok(), root, "{index} as {other} of {count}");
            }
            let out = MerklePath { index: count, ..path };
            assert_eq!(
                out.root(txid, count),
                Err(PathError::IndexOutOfRange { index: count, num_transactions: count })
            );
        }
        assert_eq!(MerklePath::new(&txids, count), None);
    }
}

#[test]
fn positions_must_ascend_and_exist() {
    let txids = txids(3);
    let new = |matched: &[u32]| MerkleBlock::new(&header(&txids), &txids, matched).unwrap_err();
    assert_eq!(new(&[1, 1]), MerkleBlockError::OutOfOrder(1, 1));
    assert_eq!(new(&[2, 0]), MerkleBlockError::OutOfOrder(2, 0));
    assert_eq!(new(&[3]), MerkleBlockError::OutOfRange { index: 3, num_transactions: 3 });
    assert_eq!(MerkleBlock::new(&header(&txids), &[], &[]), Err(MerkleBlockError::NoTransactions));
}

#[test]
fn truncated_anywhere_and_trailing() {
    let txids = txids(9);
    let payload = MerkleBlock::new(&header(&txids), &txids, &[4]).unwrap().encode();
    for end in 0..payload.len() {
        let error = MerkleBlock::decode(&payload[..end]).unwrap_err();
        assert!(matches!(error, PayloadError::Truncated { .. }), "{end}: {error}");
    }
    let longer = [&payload[..], &[7; 3]].concat();
    assert_eq!(MerkleBlock::decode(&longer), Err(PayloadError::TrailingBytes(3)));
    assert_eq!(MerkleBlock::decode_prefix(&longer).unwrap().1, [7; 3]);
    // A length that exceeds the input must not allocate memory.
    let mut huge = payload;
    huge.splice(84..85, [0xfe, 0, 0, 0, 2]);
    assert!(matches!(
        MerkleBlock::decode(&huge),
        Err(PayloadError::Truncated { needed: 0x4000_0000, .. })
    ));
}

/// Compares with the results of Bitcoin Core, if the corpus is available.
#[test]
fn core_oracle() {
    let Ok(corpus) = std::env::var("CHAINSIEVE_CORPUS") else { return };
    let cases = std::fs::read_to_string(corpus + "/bitcoin/core_oracle/cases.jsonl").unwrap();
    let mut trees = 0;
    for line in cases.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        if case["kind"] != "tree" {
            continue;
        }
        trees += 1;
        let payload = hex::decode(case["merkleblock"].as_str().unwrap()).unwrap();
        let Ok((block, rest)) = MerkleBlock::decode_prefix(&payload) else {
            assert_eq!(case["parses"], false, "{}", case["of"]);
            continue;
        };
        assert_eq!(case["parses"], true, "{}", case["of"]);
        assert_eq!(case["trailing"], !rest.is_empty());
        let result = block.extract_matches();
        assert_eq!(case["root_is_headers"], result.is_ok());
        let well_formed = matches!(result, Ok(_) | Err(MerkleBlockError::RootMismatch { .. }));
        assert_eq!(case["valid"], well_formed);
        if let Ok(matches) = result {
            let matches: Vec<_> =
                matches.iter().map(|(i, txid)| serde_json::json!([i, txid.to_string()])).collect();
            assert_eq!(case["matches"], serde_json::Value::from(matches));
        }
    }
    assert_eq!(trees, 990);
}

/// For random trees, this crate and `bitcoin` give the same verdict and the same matches.
#[test]
fn random_trees_as_bitcoin_reads_them() {
    let mut rng = testkit::Rng::new(1);
    let mut well_formed = 0;
    for _ in 0..200_000 {
        let mut header: Header = deserialize(&[0; 80]).unwrap();
        let num_transactions = u32::try_from(rng.below(9)).unwrap();
        let hashes = (0..rng.below(6))
            .map(|_| TxMerkleNode::hash(&[u8::try_from(rng.below(40)).unwrap()]))
            .collect();
        let flags = (0..rng.below(3)).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        let block = MerkleBlock { header, num_transactions, hashes, flags };
        if let Err(MerkleBlockError::RootMismatch { tree, .. }) = block.extract_matches() {
            header.merkle_root = tree;
            well_formed += 1;
        }
        let block = MerkleBlock { header, ..block };
        let theirs: bitcoin::MerkleBlock = (&block).try_into().unwrap();
        let (mut txids, mut indices) = (vec![], vec![]);
        let accepted = theirs.extract_matches(&mut txids, &mut indices).is_ok();
        let ours = block.extract_matches().ok();
        let theirs = accepted.then(|| indices.into_iter().zip(txids).collect());
        assert_eq!(ours, theirs, "{block:?}");
    }
    assert!(well_formed > 1_000, "{well_formed}");
}
