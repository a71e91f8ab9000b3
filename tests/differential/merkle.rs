//! Merkle blocks, compared with `bitcoin`'s and with a tree built by plain recursion.

use std::collections::HashSet;

use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::consensus::{deserialize, serialize};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::merkle_tree::{self, MerkleBlockError as Theirs, PartialMerkleTree};
use chainsieve::bitcoin::{BlockHash, CompactTarget, MerkleBlock, TxMerkleNode, Txid};
use chainsieve::btc::bip37::{self, MerkleBlockError, Policy, Proof};
use chainsieve::btc::merkle_tree::merkle_root;

use testkit::Rng;
use testkit::btc::slow_bip37::tree::partial_tree;
use testkit::mutated;

fn txids(rng: &mut Rng, count: usize) -> Vec<Txid> {
    (0..count).map(|_| Txid::from_byte_array(rng.array())).collect()
}

fn header(merkle_root: TxMerkleNode) -> Header {
    Header {
        version: Version::TWO,
        prev_blockhash: BlockHash::all_zeros(),
        merkle_root,
        time: 1,
        bits: CompactTarget::from_consensus(0x1d00_ffff),
        nonce: 2,
    }
}

/// Returns which of `count` transactions match: none, one, the last, every other, all, or a random
/// choice.
fn matched(rng: &mut Rng, count: usize) -> Vec<bool> {
    let way = rng.below(7);
    let (one, one_in) = (rng.below(count), 1 + rng.below(count.min(64)));
    (0..count)
        .map(|at| match way {
            0 => false,
            1 => at == one,
            2 => at == count - 1,
            3 => at % 2 == 0,
            4 => true,
            _ => rng.one_in(one_in),
        })
        .collect()
}

/// Returns the library's payload of `count` random transactions, and checks that all
/// implementations build the same.
fn build(rng: &mut Rng, count: usize) -> Vec<u8> {
    let txids = txids(rng, count);
    let matches = matched(rng, count);
    let root = merkle_tree::calculate_root(txids.iter().copied()).expect("transactions");
    let root = TxMerkleNode::from_byte_array(root.to_byte_array());
    assert_eq!(merkle_root(&txids), Some(root), "{count} transactions: root");
    let header = header(root);

    let positions: Vec<_> =
        (0..).zip(&matches).filter(|(_, hit)| **hit).map(|(at, _)| at).collect();
    let ours = bip37::MerkleBlock::new(&header, &txids, &positions).expect("a valid block");
    let payload = ours.encode();
    let theirs = MerkleBlock { header, txn: PartialMerkleTree::from_txids(&txids, &matches) };
    assert!(serialize(&theirs) == payload, "{count} transactions: bitcoin builds another");
    let leaves: Vec<_> = txids.iter().map(|id| id.to_byte_array()).zip(matches).collect();
    let by_slow = [serialize(&header), partial_tree(&leaves)].concat();
    assert!(by_slow == payload, "{count} transactions: slow recursion builds another");

    assert_eq!(bip37::MerkleBlock::from(&theirs), ours);
    // `bitcoin`'s decoded type keeps the padding bits as flags.
    let decoded: MerkleBlock = deserialize(&payload).expect("its own payload");
    assert_eq!(MerkleBlock::try_from(&ours).as_ref(), Ok(&decoded));
    assert_eq!(bip37::MerkleBlock::from(&decoded), ours);

    let matches = ours.extract_matches().expect("a valid tree");
    let expected: Vec<_> = positions.iter().map(|&at| (at, txids[at as usize])).collect();
    assert!(matches == expected && header.merkle_root == root, "{count} transactions: read back");
    assert_eq!(compare(&format!("{count} transactions"), &payload), Some(Ok(())));
    payload
}

/// Returns the error of the tree, which must be the same in both implementations, or `None` if
/// neither can parse the payload.
fn compare(name: &str, payload: &[u8]) -> Option<Result<(), MerkleBlockError>> {
    let name = || format!("{name}: {:.4000}", hex::encode(payload));
    let theirs = deserialize::<MerkleBlock>(payload);
    let ours = bip37::MerkleBlock::decode(payload);
    assert_eq!(ours.is_ok(), theirs.is_ok(), "{}: {ours:?}, {theirs:?}", name());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return None };
    assert!(ours.encode() == payload, "{}: written back", name());
    assert!(serialize(&theirs) == payload, "{}: written back by bitcoin", name());
    assert_eq!(bip37::MerkleBlock::from(&theirs), ours, "{}", name());

    let (mut txids, mut indices) = (Vec::new(), Vec::new());
    let result = theirs.extract_matches(&mut txids, &mut indices);
    let by_bitcoin = result.map(|()| indices.into_iter().zip(txids).collect::<Vec<_>>());
    let tree = ours.extract_matches();
    let proof = Proof::verify(&ours, Policy::Core, []);
    match (&tree, &by_bitcoin) {
        (Ok(tree), Ok(matches)) => {
            assert_eq!(tree, matches, "{}", name());
            let proof = proof.unwrap_or_else(|e| panic!("{}: {e}", name()));
            let proven: Vec<_> = proof.inclusions.iter().map(|i| (i.index, i.txid)).collect();
            assert_eq!(proven, *matches, "{}", name());
        }
        (Err(ours), Err(theirs)) => {
            assert!(is_same_error(ours, theirs), "{}: {ours:?}, {theirs:?}", name());
            assert_eq!(proof, Err(*ours), "{}", name());
        }
        _ => panic!("{}: {tree:?}, {by_bitcoin:?}", name()),
    }
    Some(tree.map(|_| ()))
}

fn is_same_error(ours: &MerkleBlockError, theirs: &Theirs) -> bool {
    matches!(
        (ours, theirs),
        (MerkleBlockError::NoTransactions, Theirs::NoTransactions)
            | (MerkleBlockError::TooManyTransactions(_), Theirs::TooManyTransactions)
            | (MerkleBlockError::TooManyHashes { .. }, Theirs::TooManyHashes)
            | (MerkleBlockError::TooFewBits { .. }, Theirs::NotEnoughBits)
            | (MerkleBlockError::BitsRunOut(_), Theirs::BitsArrayOverflow)
            | (MerkleBlockError::HashesRunOut(_), Theirs::HashesArrayOverflow)
            | (MerkleBlockError::IdenticalChildren { .. }, Theirs::IdenticalHashesFound)
            | (MerkleBlockError::UnusedBits { .. }, Theirs::NotAllBitsConsumed)
            | (MerkleBlockError::UnusedHashes { .. }, Theirs::NotAllHashesConsumed)
            | (MerkleBlockError::RootMismatch { .. }, Theirs::MerkleRootMismatch)
    )
}

#[test]
fn trees_of_every_small_size() {
    let mut rng = Rng::new(31);
    for count in 1..=130 {
        for _ in 0..12 {
            build(&mut rng, count);
        }
    }
}

#[test]
fn trees_of_up_to_4000_leaves() {
    let mut rng = Rng::new(32);
    for count in [255, 256, 257, 511, 512, 513, 1_023, 1_024, 1_025, 2_047, 2_048, 2_049, 3_999] {
        build(&mut rng, count);
    }
    for _ in 0..120 {
        let count = 131 + rng.below(3_870);
        build(&mut rng, count);
    }
    build(&mut rng, 4_000);
}

/// Returns the payload with the root of its damaged tree written into the header, or `None` if the
/// tree has no root.
///
/// Such a payload is valid, although no encoder would build its tree.
fn with_its_own_root(payload: &[u8]) -> Option<Vec<u8>> {
    let mut block: MerkleBlock = deserialize(payload).ok()?;
    block.header.merkle_root = block.txn.extract_matches(&mut Vec::new(), &mut Vec::new()).ok()?;
    Some(serialize(&block))
}

/// Drops, repeats or makes up hashes and flags. The length prefixes fit the new contents.
fn reshaped(rng: &mut Rng, payload: &[u8]) -> Vec<u8> {
    let mut block = bip37::MerkleBlock::decode(payload).expect("a valid payload");
    for _ in 0..=rng.below(2) {
        let hash = rng.below(block.hashes.len() + 1);
        match rng.below(7) {
            0 => block.hashes.truncate(hash),
            1 => block.hashes.extend_from_within(hash..),
            2 => block.hashes.insert(hash, TxMerkleNode::from_byte_array(rng.array())),
            3 => block.flags.truncate(rng.below(block.flags.len() + 1)),
            4 => block.flags.push(rng.array::<1>()[0]),
            5 => block.flags.iter_mut().for_each(|byte| *byte = 0xff),
            _ => block.flags.clear(),
        }
    }
    block.encode()
}

#[test]
fn damaged_trees() {
    let mut rng = Rng::new(33);
    let (mut unparsed, mut refused, mut accepted, mut rerooted) = (0, 0, 0, 0);
    let mut kinds = HashSet::new();
    for case in 0..400 {
        let count = if case % 20 == 0 { 1 + rng.below(4_000) } else { 1 + rng.below(40) };
        let payload = build(&mut rng, count);
        for damage in 0..60 {
            let name = format!("case {case}, {count} transactions, damage {damage}");
            let mut damaged = payload[..80].to_vec();
            damaged.extend(mutated(&mut rng, &payload[80..]));
            if rng.one_in(3) {
                damaged = reshaped(&mut rng, &payload);
            } else if rng.one_in(4) {
                // Claim another number of transactions, close to the true one.
                let claimed = u32::try_from(count).expect("small").wrapping_add(rng.u32() % 9);
                damaged.splice(80..damaged.len().min(84), claimed.wrapping_sub(4).to_le_bytes());
            }
            match compare(&name, &damaged) {
                None => unparsed += 1,
                Some(Err(error)) => {
                    refused += 1;
                    kinds.insert(std::mem::discriminant(&error));
                }
                Some(Ok(())) => accepted += 1,
            }
            if let Some(rooted) = with_its_own_root(&damaged) {
                assert_eq!(compare(&name, &rooted), Some(Ok(())), "{name}: with its own root");
                rerooted += 1;
            }
        }
    }
    println!("{unparsed} unparsed, {refused} refused, {accepted} accepted, {rerooted} rerooted");
    assert!(unparsed > 2_000 && refused > 5_000 && accepted > 20 && rerooted > 3_000);
    assert_eq!(kinds.len(), 10, "some kinds of error never occurred");
}

/// Checks all small trees: at most five transactions, at most four hashes chosen from two values,
/// and every byte of flags.
#[test]
fn every_small_tree() {
    let hashes = [[0x11_u8; 32], [0x22; 32]];
    let (mut valid, mut invalid) = (0, 0);
    for transactions in 0..=5_u32 {
        for count in 0..=4_u8 {
            for choice in 0..1_u8 << count {
                for flags in 0..=u8::MAX {
                    let mut tree = transactions.to_le_bytes().to_vec();
                    tree.push(count);
                    for at in 0..count {
                        tree.extend(hashes[usize::from(choice >> at & 1)]);
                    }
                    tree.extend([1, flags]);
                    let mut payload = serialize(&header(TxMerkleNode::all_zeros()));
                    payload.extend(&tree);
                    let name = "small tree";
                    assert!(matches!(compare(name, &payload), Some(Err(_))));
                    if let Some(rooted) = with_its_own_root(&payload) {
                        assert_eq!(compare(name, &rooted), Some(Ok(())));
                        valid += 1;
                    } else {
                        invalid += 1;
                    }
                }
            }
        }
    }
    assert_eq!(valid + invalid, 6 * 31 * 256);
    assert!(valid > 1_000, "{valid} valid trees");
}
