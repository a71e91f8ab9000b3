//! Receipts that neither the fixtures nor the corpus have, built with alloy.

use alloy_consensus::private::alloy_eips::Encodable2718;
use alloy_consensus::proofs::{calculate_receipt_root, ordered_trie_root_with_encoder};
use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy_primitives::{Address, B256, Bloom, BloomInput, Bytes, Log, LogData, hex};
use alloy_rlp::Encodable;
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::receipts::{
    BlockReceipts, BloomAgreement, Outcome, ReceiptLimits, ReceiptsError, ReceiptsReader,
};
use serde::de::DeserializeSeed as _;
use testkit::eth::header_files::list;

use crate::blocks::list_of;
use crate::real::json_of;

/// Returns a bloom without information, for tests that do not use the header's bloom.
pub(crate) fn no_bloom() -> BloomView<'static> {
    BloomView::from_wire(&[])
}

/// Returns a log with this many topics.
pub(crate) fn log(topics: u8) -> Log {
    Log {
        address: Address::repeat_byte(0x40 + topics),
        data: LogData::new_unchecked(
            (0..topics).map(|topic| B256::repeat_byte(0x80 + topic)).collect(),
            Bytes::from(vec![topics; usize::from(topics) * 20]),
        ),
    }
}

/// Returns the slim list of receipts with these types, and with these numbers after their logs.
pub(crate) fn slim(receipts: &[(u8, &Receipt, &[u64])]) -> Vec<u8> {
    let receipts = receipts.iter().flat_map(|(receipt_type, receipt, behind)| {
        let mut payload = Vec::new();
        receipt_type.encode(&mut payload);
        receipt.status.encode(&mut payload);
        receipt.cumulative_gas_used.encode(&mut payload);
        receipt.logs.encode(&mut payload);
        behind.iter().for_each(|number| number.encode(&mut payload));
        list(&payload)
    });
    list(&receipts.collect::<Vec<_>>())
}

fn envelope(receipt_type: u8, receipt: ReceiptWithBloom<Receipt>) -> ReceiptEnvelope {
    match receipt_type {
        0 => ReceiptEnvelope::Legacy(receipt),
        1 => ReceiptEnvelope::Eip2930(receipt),
        2 => ReceiptEnvelope::Eip1559(receipt),
        3 => ReceiptEnvelope::Eip4844(receipt),
        _ => ReceiptEnvelope::Eip7702(receipt),
    }
}

/// Returns receipts of every type: with several logs, with one and with none, with 0 to 4 topics,
/// and failed ones.
pub(crate) fn of_every_type() -> Vec<ReceiptEnvelope> {
    let receipts = (0..5).flat_map(|receipt_type| (0..4).map(move |kind| (receipt_type, kind)));
    let receipts = (1..).zip(receipts).map(|(number, (receipt_type, kind))| {
        let logs = [vec![], vec![log(0)], vec![log(1), log(2)], vec![log(4), log(3), log(0)]];
        let receipt = Receipt {
            status: Eip658Value::Eip658(kind != 0),
            cumulative_gas_used: number * 21_000,
            logs: logs[kind].clone(),
        };
        envelope(receipt_type, receipt.with_bloom())
    });
    receipts.collect()
}

fn before_byzantium() -> Vec<ReceiptEnvelope> {
    let receipts = (0..3).map(|number| Receipt {
        status: Eip658Value::PostState(B256::repeat_byte(number)),
        cumulative_gas_used: 21_000,
        logs: vec![log(number)],
    });
    receipts.map(|receipt| ReceiptEnvelope::Legacy(receipt.with_bloom())).collect()
}

/// Returns the same receipts, read from all encodings.
fn forms(receipts: &[ReceiptEnvelope]) -> [BlockReceipts; 4] {
    let encodings: Vec<_> = receipts.iter().map(ReceiptEnvelope::encoded_2718).collect();
    let plain: Vec<_> =
        receipts.iter().map(|receipt| receipt.as_receipt().expect("a receipt")).collect();
    let slim_parts: Vec<_> = receipts
        .iter()
        .zip(&plain)
        .map(|(receipt, plain)| (u8::from(receipt.tx_type()), *plain, &[][..]))
        .collect();
    [
        BlockReceipts::from_encodings(&encodings),
        BlockReceipts::from_rlp_list(&list_of(&encodings)),
        BlockReceipts::from_slim_list(&slim(&slim_parts)),
        BlockReceipts::from_json(&json_of(receipts).to_string()),
    ]
    .map(|form| form.expect("receipts"))
}

#[test]
fn every_type_in_every_form() {
    let receipts = of_every_type();
    let root = calculate_receipt_root(&receipts);
    let bloom = receipts.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | *receipt.logs_bloom());
    let logs: Vec<&Log> = receipts.iter().flat_map(ReceiptEnvelope::logs).collect();
    // Deposit fields that a node adds to other receipts are ignored.
    let mut padded = json_of(&receipts);
    for receipt in padded.as_array_mut().expect("a list") {
        receipt["depositNonce"] = "0x1".into();
        receipt["depositReceiptVersion"] = "0x1".into();
    }
    let padded = BlockReceipts::from_json(&padded.to_string()).expect("receipts");
    for form in forms(&receipts).into_iter().chain([padded]) {
        let verified = form.verify(root, (&bloom).into()).expect("the root");
        assert_eq!(verified.header_bloom(), BloomAgreement::Exact);
        assert_eq!(verified.unsound_receipt(), None);
        assert!(verified.logs().map(|found| found.log).eq(logs.iter().copied()));
        let matching = verified.logs_matching(|log| log.topics().is_empty());
        assert_eq!(matching.map(|found| found.log_index).collect::<Vec<_>>().len(), 10);
        for (index, receipt) in receipts.iter().enumerate() {
            let proof = verified.proof(index as u64).expect("a proof");
            let proven = proof.verify(root).expect("proven");
            assert_eq!(proven.receipt_type, u8::from(receipt.tx_type()));
            assert_eq!(proven.outcome, Outcome::Status(receipt.is_success()));
            assert_eq!(proven.cumulative_gas_used, receipt.cumulative_gas_used());
            assert_eq!(proven.logs, receipt.logs());
        }
        assert_eq!(verified.proof(receipts.len() as u64), None);
    }
}

#[test]
fn post_states() {
    let receipts = before_byzantium();
    let root = calculate_receipt_root(&receipts);
    for form in forms(&receipts) {
        assert!(form.verify(root, no_bloom()).is_ok());
        assert!(form.iter().all(|receipt| matches!(receipt.outcome, Outcome::PostState(_))));
        let other = form.verify(B256::ZERO, no_bloom()).expect_err("another root");
        assert!(!other.is_undecidable(), "{other}");
    }
}

/// Nodes that have dropped post-states send none, or make up a status. A missing or made-up status
/// is no lie, so the result is undecidable.
#[test]
fn dropped_post_states_are_undecidable() {
    let receipts = before_byzantium();
    let root = calculate_receipt_root(&receipts);
    let without = |change: fn(&mut serde_json::Value)| {
        let mut json = json_of(&receipts);
        json.as_array_mut().expect("an array").iter_mut().for_each(|receipt| {
            receipt.as_object_mut().expect("an object").remove("root");
            change(receipt);
        });
        BlockReceipts::from_json(&json.to_string()).expect("receipts")
    };
    let undecidable = [
        without(|_| {}),
        without(|receipt| receipt["status"] = serde_json::Value::Null),
        without(|receipt| receipt["root"] = "0x".into()),
        without(|receipt| receipt["root"] = serde_json::Value::Null),
    ];
    for receipts in undecidable {
        assert_eq!(
            receipts.after_byzantium().verify(root, no_bloom()).err(),
            Some(ReceiptsError::NoOutcome { receipt: 0 })
        );
    }
    let made_up = without(|receipt| receipt["status"] = "0x1".into());
    let error = made_up.verify(root, no_bloom()).expect_err("another root");
    assert!(
        matches!(error, ReceiptsError::PostStatesMayBeMissing { expected, .. } if expected == root)
    );
    assert!(error.is_undecidable());
    let error = made_up.after_byzantium().verify(root, no_bloom()).expect_err("another root");
    assert!(matches!(error, ReceiptsError::RootMismatch { receipts: 3, .. }));

    let mut both = json_of(&receipts);
    both.as_array_mut().expect("an array").iter_mut().for_each(|receipt| {
        receipt["status"] = "0x1".into();
    });
    let both = BlockReceipts::from_json(&both.to_string()).expect("receipts");
    assert!(both.verify(root, no_bloom()).is_ok(), "the root has priority over the status");
}

/// A typed receipt can't be from before Byzantium. A wrong root is then a mismatch, even if a
/// receipt is missing.
#[test]
fn other_roots_of_later_blocks_are_mismatches() {
    let mut receipts = of_every_type();
    let root = calculate_receipt_root(&receipts);
    receipts.pop();
    for form in forms(&receipts) {
        let error = form.verify(root, no_bloom()).expect_err("one is missing");
        let computed = calculate_receipt_root(&receipts);
        assert_eq!(
            error,
            ReceiptsError::RootMismatch { receipts: receipts.len(), computed, expected: root }
        );
    }
    let none = BlockReceipts::from_rlp_list(&[0xc0]).expect("no receipts");
    assert!(!none.verify(root, no_bloom()).expect_err("all are missing").is_undecidable());
}

#[test]
fn filters_that_disagree() {
    let receipts = of_every_type();
    let root = calculate_receipt_root(&receipts);
    let exact = receipts.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | *receipt.logs_bloom());
    let form = &forms(&receipts)[0];
    let agreement = |bloom: &[u8]| {
        form.verify(root, BloomView::from_wire(bloom)).expect("the root").header_bloom()
    };
    assert_eq!(agreement(exact.as_slice()), BloomAgreement::Exact);
    assert_eq!(agreement(&[]), BloomAgreement::NoInformation);
    assert_eq!(agreement(&exact[1..]), BloomAgreement::NoInformation);
    let ones = exact.iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(agreement(&[0xff; 256]), BloomAgreement::Superset { extra_bits: 2048 - ones });
    assert_eq!(
        agreement(&[0; 256]),
        BloomAgreement::Missing {
            transaction_index: 1,
            log_index: 0,
            missing_bits: ones,
            extra_bits: 0
        }
    );
    // Topic 0x83… occurs only in logs with four topics, the first of which is in receipt 3.
    let rare = Bloom::from(BloomInput::Raw(B256::repeat_byte(0x83).as_slice()));
    let without = receipts
        .iter()
        .flat_map(ReceiptEnvelope::logs)
        .flat_map(|log| {
            let topics = log.topics().iter().filter(|topic| topic[0] != 0x83);
            [log.address.as_slice()].into_iter().chain(topics.map(B256::as_slice))
        })
        .fold(Bloom::ZERO, |bloom, value| bloom | Bloom::from(BloomInput::Raw(value)));
    let missing = without.iter().zip(rare).map(|(have, want)| (want & !have).count_ones()).sum();
    assert_eq!(
        agreement(without.as_slice()),
        BloomAgreement::Missing {
            transaction_index: 3,
            log_index: 3,
            missing_bits: missing,
            extra_bits: 0
        }
    );
}

/// A chain may hash receipts whose blooms differ from those of their logs. The root is still right.
#[test]
fn receipts_with_unsound_filters() {
    let mut receipts = of_every_type();
    for place in [3, 7] {
        let receipt = receipts[place].as_receipt().expect("a receipt").clone();
        receipts[place] = envelope(
            u8::from(receipts[place].tx_type()),
            ReceiptWithBloom::new(receipt, Bloom::repeat_byte(0)),
        );
    }
    let root = calculate_receipt_root(&receipts);
    let [encodings, list, slim, json] = forms(&receipts);
    for form in [encodings, list, json] {
        let verified = form.verify(root, no_bloom()).expect("the root");
        assert_eq!(verified.unsound_receipt(), Some(3));
        assert!(verified.proof(3).expect("a proof").verify(root).is_ok());
    }
    assert!(slim.verify(root, no_bloom()).is_err(), "the slim form has lost the filters");
}

#[test]
fn unknown_types_are_named() {
    let mut encoding = of_every_type()[19].encoded_2718();
    for receipt_type in [5, 0x64, 0x7d, 0x7f, 0xbf] {
        encoding[0] = receipt_type;
        let error = Some(ReceiptsError::UnknownType { receipt: 0, receipt_type });
        assert_eq!(BlockReceipts::from_encodings(&[&encoding]).err(), error);
        assert_eq!(BlockReceipts::from_rlp_list(&list_of(&[encoding.clone()])).err(), error);
        let json = format!(
            r#"[{{"type":"{receipt_type:#x}","status":"0x1","cumulativeGasUsed":"0x1","logs":[],
                "transactionIndex":"0x0"}}]"#
        );
        assert_eq!(BlockReceipts::from_json(&json).err(), error);
        let plain = Receipt::default();
        let slim = slim(&[(receipt_type, &plain, &[])]);
        assert_eq!(BlockReceipts::from_slim_list(&slim).err(), error);
    }
}

/// A reader may be told to read unknown types as if they had the fields of all types so far. Only
/// the root shows if they have them.
#[test]
fn unknown_types_are_read_on_request() {
    let reader = || ReceiptsReader::new(ReceiptLimits::NONE).any_type();
    let unknown = |encoding: &[u8]| {
        let mut encoding = encoding.to_vec();
        encoding[0] = 0x55;
        encoding
    };
    let known = of_every_type()[19].encoded_2718();
    let encodings = [unknown(&known), known.clone()];
    let root = ordered_trie_root_with_encoder(&encodings, |one, out| out.extend_from_slice(one));
    let read = reader().encodings(&encodings).expect("a type below 0x80");
    assert_eq!(read.iter().next().expect("a receipt").receipt_type, 0x55);
    let verified = read.verify(root, no_bloom()).expect("the root");
    assert_eq!(verified.logs().count() % 2, 0);
    assert_eq!(read.encodings().expect("outcomes"), encodings);
    // Another root may be due to other fields, and accuses nobody.
    let error = read.verify(B256::ZERO, no_bloom()).expect_err("another root");
    assert!(matches!(
        error,
        ReceiptsError::RootOfUnknownType { receipt: 0, receipt_type: 0x55, .. }
    ));
    assert!(error.is_undecidable());
    // No type is above 0x7f (EIP-2718), and type 0 has no byte.
    for receipt_type in [0, 0x80, 0xbf] {
        let mut encoding = known.clone();
        encoding[0] = receipt_type;
        let error = ReceiptsError::UnknownType { receipt: 0, receipt_type };
        assert_eq!(reader().encodings(&[encoding]).err(), Some(error));
    }
}

/// Each limit is reached by one more receipt, log or byte than it allows, in every form.
#[test]
fn limits_of_a_reader() {
    let receipts = of_every_type();
    let encodings: Vec<Vec<u8>> = receipts.iter().map(Encodable2718::encoded_2718).collect();
    let all = BlockReceipts::from_encodings(&encodings).expect("receipts");
    let (count, logs) =
        (all.len() as u64, all.iter().map(|receipt| receipt.logs.len() as u64).sum::<u64>());
    let hex: Vec<String> = encodings.iter().map(hex::encode_prefixed).collect();
    let hex = serde_json::to_string(&hex).expect("JSON");
    let read = |limits: ReceiptLimits| {
        let reader = ReceiptsReader::new(limits);
        let streamed = reader
            .hex_encodings()
            .deserialize(&mut serde_json::Deserializer::from_reader(hex.as_bytes()));
        let streamed = streamed.ok().flatten();
        assert_eq!(reader.encodings(&encodings).ok(), streamed);
        streamed
    };
    let exact = ReceiptLimits { receipts: count, logs, bytes: u64::MAX };
    assert_eq!(read(exact), Some(all));
    assert_eq!(read(ReceiptLimits { receipts: count - 1, ..exact }), None);
    assert_eq!(read(ReceiptLimits { logs: logs - 1, ..exact }), None);
    assert_eq!(read(ReceiptLimits { bytes: 1000, ..exact }), None);
}
