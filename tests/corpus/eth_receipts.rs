//! Checks the receipts of every block of the corpus, in every encoding, against the header, the
//! index and alloy.

use std::collections::BTreeMap;

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_primitives::{B256, Bloom};
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, ReceiptsError};

use testkit::eth::corpus::{EthBlock, EthCorpus, Format};
use testkit::eth::header_files::era::slim;

#[test]
fn every_block_passes_root_and_filter_in_every_form() {
    let Some(corpus) = EthCorpus::open() else { return };
    let blocks = corpus.blocks();
    let (mut receipts, mut logs, mut types) = (0, 0, BTreeMap::new());
    for block in blocks.values() {
        let from_rlp = BlockReceipts::from_rlp_list(&block.receipts_rlp).expect("receipts");
        check(block, "a list", &from_rlp);
        let encodings: Vec<_> = block.receipts.iter().map(ReceiptEnvelope::encoded_2718).collect();
        check(block, "encodings", &BlockReceipts::from_encodings(&encodings).expect("receipts"));
        check(
            block,
            "slim",
            &BlockReceipts::from_slim_list(&slim(&block.receipts)).expect("receipts"),
        );
        receipts += from_rlp.len();
        logs += from_rlp.iter().map(|receipt| receipt.logs.len()).sum::<usize>();
        for receipt in from_rlp.iter() {
            *types.entry(receipt.receipt_type).or_insert(0_u64) += 1;
        }
        lies_are_found(block, &encodings);
    }
    let total = |field| corpus.of(Format::Receipts).map(|file| file.number(field)).sum::<u64>();
    assert_eq!((receipts as u64, logs as u64), (total("receipts"), total("logs")));
    assert_eq!(logs, 24_574);
    let mut expected = BTreeMap::new();
    for file in corpus.of(Format::Receipts) {
        for (of_type, count) in file.entry["receipt_types"].as_object().expect("types") {
            let of_type = of_type.parse::<u8>().expect("a type");
            *expected.entry(of_type).or_insert(0) += count.as_u64().expect("a count");
        }
    }
    assert_eq!(types, expected);
    let full = &blocks[&15_537_394].header.logs_bloom;
    assert_eq!(*full, Bloom::repeat_byte(0xff));
    for number in [1, 100, 19_840_104] {
        let block = &blocks[&number];
        assert_eq!((block.receipts.len(), block.header.logs_bloom), (0, Bloom::ZERO), "{number}");
    }
}

fn check(block: &EthBlock, form: &str, receipts: &BlockReceipts) {
    let name = format!("{} as {form}", block.name);
    assert_eq!(Some(receipts.len() as u64), block.entry["receipts"].as_u64(), "{name}");
    let verified = receipts
        .verify(block.header.receipts_root, BloomView::from(&block.header.logs_bloom))
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(verified.header_bloom(), BloomAgreement::Exact, "{name}");
    assert_eq!(verified.unsound_receipt(), None, "{name}");
    assert_eq!(Some(verified.logs().count() as u64), block.entry["logs"].as_u64(), "{name}");
    let mut index = 0;
    let mut found = verified.logs();
    for (at, alloy) in block.receipts.iter().enumerate() {
        let ours = receipts.iter().nth(at).expect("as many as alloy's");
        assert_eq!(ours.cumulative_gas_used, alloy.cumulative_gas_used(), "{name}: {at}");
        assert_eq!(ours.receipt_type, alloy.tx_type() as u8, "{name}: {at}");
        for log in alloy.logs() {
            let place = found.next().map(|log| (log.transaction_index, log.log_index, log.log));
            assert_eq!(place, Some((at as u64, index, log)), "{name}");
            index += 1;
        }
    }
    assert_eq!(found.next(), None, "{name}");
}

/// Receipts that are left out, moved or repeated have another root. A bloom with one bit more or
/// less is reported. A proof is valid for its own receipt only.
fn lies_are_found(block: &EthBlock, encodings: &[Vec<u8>]) {
    let (root, bloom) = (block.header.receipts_root, block.header.logs_bloom);
    let verify = |encodings: &[Vec<u8>], bloom: &Bloom| {
        let receipts = BlockReceipts::from_encodings(encodings).expect("receipts");
        let after = receipts.after_byzantium();
        let verified = after.verify(root, BloomView::from(bloom));
        verified.map(|verified| verified.header_bloom())
    };
    let name = &block.name;
    let refused = |result: &Result<_, ReceiptsError>| matches!(result, Err(ReceiptsError::RootMismatch { expected, .. }) if *expected == root);
    let count = encodings.len();
    for at in (0..count).step_by(1 + count / 6) {
        let without = [&encodings[..at], &encodings[at + 1..]].concat();
        assert!(refused(&verify(&without, &bloom)), "{name}: without {at}");
        let twice = [&encodings[..=at], &encodings[at..]].concat();
        assert!(refused(&verify(&twice, &bloom)), "{name}: {at} twice");
        let mut moved = encodings.to_vec();
        moved.swap(at, count - 1);
        if moved != encodings {
            assert!(refused(&verify(&moved, &bloom)), "{name}: {at} moved");
        }
    }
    for bit in (0..2048).step_by(97) {
        let mut other = bloom;
        other.0[bit / 8] ^= 1 << (bit % 8);
        let set = other.0[bit / 8] >> (bit % 8) & 1 == 1;
        match verify(encodings, &other).expect("the root is right") {
            BloomAgreement::Superset { extra_bits: 1 } => assert!(set, "{name}: {bit}"),
            BloomAgreement::Missing { missing_bits: 1, extra_bits: 0, log_index, .. } => {
                assert!(!set, "{name}: {bit}");
                let first = block.logs().iter().position(|log| {
                    let naive = testkit::eth::naive_logs::NaiveLog::of(log);
                    let of_log = testkit::eth::naive_logs::bloom([&naive]);
                    of_log.0[bit / 8] >> (bit % 8) & 1 == 1
                });
                assert_eq!(Some(log_index), first.map(|at| at as u64), "{name}: {bit}");
            }
            other => panic!("{name}: bit {bit}: {other:?}"),
        }
    }
    let receipts = BlockReceipts::from_encodings(encodings).expect("receipts");
    let verified = receipts.verify(root, BloomView::from(&bloom)).expect("verified above");
    let places = [0, 1, 15, 16, 127, 128, 129, 255, 256, count.saturating_sub(1)];
    for at in places.into_iter().filter(|at| *at < count) {
        let mut proof = verified.proof(at as u64).expect("there is such a receipt");
        let expected = receipts.iter().nth(at);
        assert_eq!(proof.verify(root).as_ref().ok(), expected, "{name}: {at}");
        let hash = matches!(proof.verify(B256::ZERO), Err(ReceiptsError::Hash { node: 0, .. }));
        assert!(hash, "{name}: {at} under another root");
        proof.transaction_index += 1;
        assert!(proof.verify(root).is_err(), "{name}: {at} for the next");
    }
    assert_eq!(verified.proof(count as u64), None, "{name}");
}

#[test]
fn json_is_the_same_receipts_and_hashes_are_where_they_belong() {
    let Some(corpus) = EthCorpus::open() else { return };
    let blocks = corpus.blocks();
    let mut compared = 0;
    for file in corpus.of(Format::ReceiptsJson) {
        let block = &blocks[&file.number("number")];
        let json = corpus.text(&file.name);
        let from_json = BlockReceipts::from_json(&json).unwrap_or_else(|e| panic!("{e}"));
        check(block, "JSON", &from_json);
        let from_rlp = BlockReceipts::from_rlp_list(&block.receipts_rlp).expect("receipts");
        assert!(from_json.iter().eq(from_rlp.iter()), "{}", file.name);
        let hashes = hashes(&corpus, &format!("{}.txhashes.txt", block.name));
        assert_eq!(from_json.claims().len(), from_json.len(), "{}", file.name);
        let mut logs = 0..;
        for ((claims, hash), receipt) in from_json.claims().iter().zip(hashes).zip(from_rlp.iter())
        {
            assert_eq!(claims.transaction_hash, Some(hash), "{}", file.name);
            assert_eq!(claims.block_hash, Some(file.hash()), "{}", file.name);
            assert_eq!(claims.block_number, Some(block.header.number), "{}", file.name);
            let expected: Vec<_> = logs.by_ref().take(receipt.logs.len()).map(Some).collect();
            assert_eq!(claims.log_indices, expected, "{}", file.name);
            compared += 1;
        }
        // Read the same receipts one by one, in reverse order.
        let mut each: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
        each.reverse();
        let each: Vec<_> = each.iter().map(ToString::to_string).collect();
        assert_eq!(BlockReceipts::from_json_each(&each).as_ref(), Ok(&from_json));
        let twice = BlockReceipts::from_json_each(&[&each[..], &each[..1]].concat());
        assert!(matches!(twice, Err(ReceiptsError::Twice { .. })), "{}: {twice:?}", file.name);
        assert!(verify_fails(block, &each[1..]), "{}: without the last", file.name);
        assert!(BlockReceipts::from_json_each(&each[..each.len() - 1]).is_err(), "the first");
    }
    assert_eq!(compared, 171 + 150 + 202);
    let files: Vec<_> = corpus.of(Format::TransactionHashes).collect();
    for file in &files {
        let block = &blocks[&file.number("number")];
        let hashes = hashes(&corpus, &file.name);
        assert_eq!(hashes.len(), block.receipts.len(), "{}", file.name);
    }
    assert_eq!(files.len(), 30);
}

/// Returns `true` if verification fails. `each` lacks the last receipt, which leaves no gap between
/// the indices, so only the root shows it.
fn verify_fails(block: &EthBlock, each: &[String]) -> bool {
    let receipts = BlockReceipts::from_json_each(each).expect("no gap");
    let bloom = BloomView::from(&block.header.logs_bloom);
    receipts.after_byzantium().verify(block.header.receipts_root, bloom).is_err()
}

fn hashes(corpus: &EthCorpus, name: &str) -> Vec<B256> {
    corpus.text(name).lines().map(|line| line.parse().expect("a hash")).collect()
}
