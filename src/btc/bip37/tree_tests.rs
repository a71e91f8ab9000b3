//! Tests of merkle blocks and their trees: each error, and paths to the root. `tests/differential/merkle.rs`
//! compares them with those of `bitcoin`.

use bitcoin::block::Header;
use bitcoin::consensus::encode::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{TxMerkleNode, Txid};

use super::{MerkleBlock, MerkleBlockError};
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
