//! `merkleblock`: every truncation, false lengths, and memory in proportion to the payload.

use chainsieve::bitcoin::Network;
use chainsieve::btc::bip37::{MerkleBlock, MerkleBlockError, PayloadError, Policy, Proof};

use crate::survives;
use testkit::Rng;
use testkit::btc::fixtures;
use testkit::btc::slow_bip37::tree;
use testkit::mutated;
use testkit::vectors::payloads;

fn decode(payload: &[u8]) -> Result<MerkleBlock, PayloadError> {
    survives("MerkleBlock::decode", payload, 2, 400, || MerkleBlock::decode(payload))
}

fn read_tree(payload: &[u8], block: &MerkleBlock) {
    let tree = survives("extract_matches", payload, 8, 400, || block.extract_matches());
    for policy in [Policy::Core, Policy::Strict(Network::Bitcoin)] {
        let proof = survives("Proof", payload, 16, 800, || Proof::verify(block, policy, []));
        if let Err(error) = &proof {
            assert!(!error.to_string().is_empty());
        }
        assert!(tree.is_ok() || proof.is_err(), "a proof of an invalid tree: {tree:?}");
    }
}

/// Returns a payload of block 150013 with four matches spread over the block.
fn payload() -> Vec<u8> {
    let block = fixtures::block(150_013);
    let count = block.block.txdata.len();
    tree::merkle_block(&block.block, &[0, 1, count / 2, count - 1])
}

#[test]
fn truncated_at_every_byte() {
    let payload = payload();
    let block = decode(&payload).expect("a valid payload");
    assert_eq!(block.extract_matches().expect("a valid tree").len(), 4);
    for end in 0..payload.len() {
        match decode(&payload[..end]) {
            Err(PayloadError::Truncated { needed, left }) => {
                assert!(needed > left as u64 && left <= end, "cut at {end}");
            }
            other => panic!("cut at {end}: {other:?}"),
        }
    }
    for more in [1, 40] {
        let longer = [&payload[..], &vec![0; more]].concat();
        assert_eq!(decode(&longer), Err(PayloadError::TrailingBytes(more)));
        let (prefix, rest) = MerkleBlock::decode_prefix(&longer).expect("a valid prefix");
        assert_eq!((prefix, rest.len()), (block.clone(), more));
    }
}

#[test]
fn lengths_that_lie() {
    let payload = payload();
    let block = decode(&payload).expect("a valid payload");
    let (hashes, flags) = (block.hashes.len(), block.flags.len());
    assert!(hashes < 0xfd && flags < 0xfd, "lengths of one byte");
    let flags_at = 85 + hashes * 32;
    assert_eq!((usize::from(payload[84]), usize::from(payload[flags_at])), (hashes, flags));

    for (at, count) in [(84, hashes), (flags_at, flags)] {
        let with_length =
            |length: &[u8]| decode(&[&payload[..at], length, &payload[at + 1..]].concat());
        for (marker, bytes) in [(0xfd, 2), (0xfe, 4), (0xff, 8)] {
            let maxed = with_length(&[&[marker][..], &vec![0xff; bytes]].concat());
            let refused = match bytes {
                2 => matches!(maxed, Err(PayloadError::Truncated { .. })),
                4 => maxed == Err(PayloadError::LengthTooLarge(0xffff_ffff)),
                _ => maxed == Err(PayloadError::LengthTooLarge(u64::MAX)),
            };
            assert!(refused, "{count} at {at} maxed: {maxed:?}");

            let small = &(count as u64).to_le_bytes()[..bytes];
            let padded = with_length(&[&[marker][..], small].concat());
            let expected = Err(PayloadError::NonMinimalLength(count as u64));
            assert_eq!(padded, expected, "{count} at {at} after {marker:#x}");
        }
        // The largest length that is read does not allocate memory.
        let largest = with_length(&[0xfe, 0, 0, 0, 2]);
        let needed = (1 << 25) * if at == 84 { 32 } else { 1 };
        assert!(matches!(largest, Err(PayloadError::Truncated { needed: n, .. }) if n == needed));
        let lie = |length: usize| with_length(&[u8::try_from(length).expect("a byte")]);
        let (more, less) = (lie(count + 1), lie(count - 1));
        if at == flags_at {
            assert_eq!(less, Err(PayloadError::TrailingBytes(1)));
            let expected = PayloadError::Truncated { needed: flags as u64 + 1, left: flags };
            assert_eq!(more, Err(expected));
        } else {
            // With a wrong number of hashes, bytes of a hash are read as the length of the flags,
            // or the other way round.
            for (name, decoded) in [("more", more), ("less", less)] {
                if let Ok(block) = decoded {
                    let tree = block.extract_matches();
                    assert!(tree.is_err(), "a hash {name}: {tree:?}");
                }
            }
        }
    }
}

/// The number of transactions is a claim, not a length: a false number allocates nothing.
#[test]
fn numbers_of_transactions_that_lie() {
    let payload = payload();
    let true_count = decode(&payload).expect("a valid payload").num_transactions;
    for claimed in [0, 1, 2, true_count - 1, true_count + 1, 16_666, 16_667, 1 << 31, u32::MAX] {
        let changed = [&payload[..80], &claimed.to_le_bytes(), &payload[84..]].concat();
        let block = decode(&changed).expect("any number parses");
        read_tree(&changed, &block);
        let tree = block.extract_matches();
        let expected = match claimed {
            0 => matches!(tree, Err(MerkleBlockError::NoTransactions)),
            16_667.. => tree == Err(MerkleBlockError::TooManyTransactions(claimed)),
            _ => tree.is_err(),
        };
        assert!(expected, "{claimed} transactions: {tree:?}");
    }
}

/// The deepest trees, and as many hashes and flags as a message can contain.
#[test]
fn large_trees() {
    let header = &payload()[..80];
    for transactions in [16_385_u32, 16_666, u32::MAX] {
        for (hashes, flags) in [(16_666_usize, 5_000_usize), (100_000, 100_000), (3, 60_000)] {
            for byte in [0x00, 0xff, 0x55] {
                let mut payload = header.to_vec();
                payload.extend(transactions.to_le_bytes());
                payload.extend(tree::compact_size(hashes));
                payload.extend((0..hashes).flat_map(|at| [(at as u64).to_le_bytes(); 4]).flatten());
                payload.extend(tree::compact_size(flags));
                payload.extend(vec![byte; flags]);
                let block = decode(&payload).expect("well-formed bytes");
                read_tree(&payload, &block);
                assert!(block.extract_matches().is_err());
            }
        }
    }
}

#[test]
fn mutated_merkle_blocks() {
    let mut rng = Rng::new(15);
    let payloads = payloads("bip37.merkleblock", "merkleblock");
    let (mut parsed, mut refused, mut valid) = (0, 0, 0);
    for _ in 0..40_000 {
        let original = rng.pick(&payloads).clone();
        let payload = mutated(&mut rng, &original);
        match decode(&payload) {
            Ok(block) => {
                parsed += 1;
                assert_eq!(block.encode(), payload);
                read_tree(&payload, &block);
                valid += usize::from(block.extract_matches().is_ok());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(parsed > 4_000 && refused > 4_000 && valid > 100, "{parsed} {refused} {valid}");
}
