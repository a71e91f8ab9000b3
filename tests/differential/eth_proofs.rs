//! Tries of few receipts with alloy's roots: each proof proves its receipt at its own index only.
//! Chains of single headers: which header replaces which.

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_primitives::Bloom;
use chainsieve::eth::header::{ChainError, HeaderView, Linked, LinkedHeaders};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement};

use testkit::eth::fixtures;

#[test]
fn a_proof_is_of_one_index() {
    let (_, encodings) = fixtures::block(17_686_111);
    let alloy: Vec<_> = encodings
        .iter()
        .map(|rlp| ReceiptEnvelope::decode_2718(&mut &rlp[..]).expect("a receipt"))
        .collect();
    for count in [1, 2, 3, 16, 17, 127, 128, 129, 144] {
        let root = calculate_receipt_root(&alloy[..count]);
        let receipts = BlockReceipts::from_encodings(&encodings[..count]).expect("receipts");
        let verified = receipts.verify(root, (&Bloom::ZERO).into()).expect("alloy's root");
        let missing = matches!(verified.header_bloom(), BloomAgreement::Missing { .. });
        assert!(missing, "{count}: {:?}", verified.header_bloom());
        for (index, receipt) in (0..).zip(receipts.iter()) {
            let proof = verified.proof(index).expect("there is such a receipt");
            assert_eq!(proof.verify(root).as_ref(), Ok(receipt), "{index} of {count}");
            // Neighbouring indices, indices whose RLP key has another length, and the largest
            // index.
            for other in [0, 1, 2, 127, 128, 255, 256, index + 1, index + 16, u64::MAX] {
                if other != index {
                    let mut elsewhere = proof.clone();
                    elsewhere.transaction_index = other;
                    let result = elsewhere.verify(root);
                    assert!(result.is_err(), "{index} of {count} as {other}");
                }
            }
        }
    }
}

/// Two headers have the same parent and different blooms. The second replaces the first and all
/// headers above it, at any height, and the result lists the removed headers.
#[test]
fn a_reorganisation_names_what_it_removes() {
    let headers = fixtures::headers();
    let run: Vec<_> = (18_090_205..=18_090_213)
        .map(|number| headers.iter().find(|header| header.number == number).expect("a run"))
        .collect();
    for at in 0..run.len() {
        let mut chain = LinkedHeaders::new();
        for header in &run {
            let view = HeaderView::decode(&header.rlp).expect("a header");
            assert_eq!(chain.push(&view), Ok(Linked::Extended));
            assert_eq!(chain.push(&view), Ok(Linked::Known));
        }
        let mut other = run[at].rlp.clone();
        other[300] ^= 1; // a bit of the bloom
        let other = HeaderView::decode(&other).expect("a header");
        let expected: Vec<_> = run[at..].iter().map(|header| header.hash).collect();
        let linked = chain.push(&other);
        assert_eq!(linked, Ok(Linked::Reorganised { removed: expected }), "{at}");
        assert_eq!((chain.len(), chain.last_hash()), (at + 1, Some(other.hash())), "{at}");
        assert_eq!(chain.blooms().len(), at + 1);
        let kept: Vec<_> = chain.blocks().map(|block| block.hash).take(at).collect();
        assert!(kept.iter().eq(run[..at].iter().map(|header| &header.hash)), "{at}");
        // The parent of the next header was removed.
        if let Some(next) = run.get(at + 1) {
            let next = HeaderView::decode(&next.rlp).expect("a header");
            assert!(matches!(chain.push(&next), Err(ChainError::Parent { .. })), "{at}");
        }
        let old = HeaderView::decode(&run[at].rlp).expect("a header");
        assert_eq!(chain.push(&old), Ok(Linked::Reorganised { removed: vec![other.hash()] }));
    }
}

/// Trailing bytes after the encoding of a receipt are an error.
#[test]
fn nothing_stands_behind_a_receipt() {
    let (_, encodings) = fixtures::block(14_764_013);
    for encoding in &encodings {
        assert!(BlockReceipts::from_encodings(&[encoding]).is_ok());
        for more in [&[0][..], &[0x80], &[0xc0], encoding] {
            let longer = [&encoding[..], more].concat();
            assert!(BlockReceipts::from_encodings(&[&longer]).is_err(), "{more:.4x?}");
            let alloy = ReceiptEnvelope::decode_2718_exact(&longer);
            assert!(alloy.is_err());
        }
    }
}
