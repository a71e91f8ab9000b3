//! `merkleblock`: parsed, rejected and read as by `bitcoin`. A block is read again with the root
//! that its tree yields, so that valid trees are reached.
#![no_main]

use bitcoin::Network;
use bitcoin::consensus::deserialize;
use chainsieve::btc::bip37::{MerkleBlock, MerkleBlockError, Policy, Proof};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let theirs = deserialize::<bitcoin::MerkleBlock>(payload);
    let mut ours = match (MerkleBlock::decode(payload), &theirs) {
        (Ok(block), Ok(_)) => block,
        (Err(_), Err(_)) => return,
        (ours, theirs) => panic!("{ours:?}, {theirs:?}"),
    };
    assert_eq!(ours.encode(), payload);
    let mut theirs = theirs.expect("matched above");
    for _ in 0..2 {
        let (mut txids, mut indices) = (Vec::new(), Vec::new());
        let result = theirs.extract_matches(&mut txids, &mut indices);
        let tree = ours.extract_matches();
        assert_eq!(tree.is_ok(), result.is_ok(), "{tree:?}, {result:?}");
        let proof = Proof::verify(&ours, Policy::Core, []);
        assert_eq!(proof.is_ok(), tree.is_ok());
        let strict = Proof::verify(&ours, Policy::Strict(Network::Regtest), []);
        assert!(strict.is_err() || tree.is_ok());
        match tree {
            Ok(matches) => {
                let expected: Vec<_> = indices.into_iter().zip(txids).collect();
                assert_eq!(matches, expected);
                return;
            }
            Err(MerkleBlockError::RootMismatch { tree, .. }) => {
                ours.header.merkle_root = tree;
                theirs.header.merkle_root = tree;
            }
            Err(_) => return,
        }
    }
    panic!("a tree has two roots");
});
