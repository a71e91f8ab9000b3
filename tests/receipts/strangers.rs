//! Bytes and JSON from untrusted sources: the result is an error of the right type or a value,
//! never a panic, and memory stays in proportion to the input.

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_primitives::B256;
use alloy_rlp::{Error as Rlp, Header as RlpHeader};
use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};

use crate::blocks::list_of;
use crate::constructed::{no_bloom, of_every_type, slim};
use crate::real::json_of;
use testkit::allocation::requested_by;

type Read = fn(&[u8]) -> Result<BlockReceipts, ReceiptsError>;

/// The readers of receipts, by encoding.
const READERS: [(&str, Read); 4] = [
    ("list", BlockReceipts::from_rlp_list),
    ("encodings", |bytes| BlockReceipts::from_encodings(&[bytes])),
    ("slim", BlockReceipts::from_slim_list),
    ("json", |bytes| BlockReceipts::from_json(core::str::from_utf8(bytes).unwrap_or("?"))),
];

/// Reads and verifies receipts within a memory limit. Returns `None` if they can't be read, and
/// `Some(true)` if their root is right.
fn survives(name: &str, read: Read, bytes: &[u8], root: B256) -> Option<bool> {
    let run = || read(bytes).ok().map(|receipts| receipts.verify(root, no_bloom()).is_ok());
    let (answer, requested) = requested_by(run);
    let limit = 250 * bytes.len() + 60_000;
    let first = &bytes[..bytes.len().min(60)];
    assert!(requested <= limit, "{name}: {requested} bytes for {} ({first:x?})", bytes.len());
    answer
}

/// Returns receipts 1, 6, 11 and 16 of `of_every_type`, which have four types and every kind of
/// logs, for each reader and with their root.
fn payloads() -> [(Read, &'static str, Vec<u8>, B256); 4] {
    let receipts: Vec<ReceiptEnvelope> = of_every_type().into_iter().skip(1).step_by(5).collect();
    let encodings: Vec<_> = receipts.iter().map(ReceiptEnvelope::encoded_2718).collect();
    let root = calculate_receipt_root(&receipts);
    let first = calculate_receipt_root(&receipts[..1]);
    let plain: Vec<_> = receipts
        .iter()
        .map(|receipt| (u8::from(receipt.tx_type()), receipt.as_receipt().expect("one"), &[][..]))
        .collect();
    let bytes = [
        list_of(&encodings),
        encodings[0].clone(),
        slim(&plain),
        json_of(&receipts).to_string().into_bytes(),
    ];
    let mut roots = [root, first, root, root].into_iter();
    let mut readers = READERS.into_iter();
    bytes.map(|bytes| {
        let (name, read) = readers.next().expect("a reader");
        (read, name, bytes, roots.next().expect("a root"))
    })
}

#[test]
fn truncated_anywhere() {
    for (read, name, bytes, root) in payloads() {
        assert_eq!(survives(name, read, &bytes, root), Some(true), "{name}");
        for end in 0..bytes.len() {
            assert_eq!(survives(name, read, &bytes[..end], root), None, "{name} up to {end}");
        }
        let mut longer = bytes.clone();
        longer.push(b'0');
        assert_eq!(survives(name, read, &longer, root), None, "{name} and more");
    }
}

/// A changed payload is an error or has another root.
#[test]
fn changed_anywhere() {
    let mut read_anyway = 0;
    for (read, name, bytes, root) in payloads() {
        for at in 0..bytes.len() {
            for change in [1, 2, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let answer = survives(name, read, &changed, root);
                read_anyway += u32::from(answer.is_some());
                let text = name == "json";
                // JSON can write the same value in several ways, such as by the case of digits, and
                // may have fields that are not needed.
                assert!(text || answer != Some(true), "{name}: byte {at} ^ {change:#x}");
            }
        }
    }
    assert!(read_anyway > 1_000, "{read_anyway}");
}

#[test]
fn small_lies() {
    let list = |rlp: &[u8]| BlockReceipts::from_rlp_list(rlp);
    let field = |error: Result<BlockReceipts, ReceiptsError>| match error {
        Err(ReceiptsError::Field { receipt: 0, field, error }) => (field, error),
        other => panic!("{other:?}"),
    };
    assert_eq!(list(&[]), Err(ReceiptsError::NotAList(Rlp::InputTooShort)));
    assert_eq!(list(&[0x80]), Err(ReceiptsError::NotAList(Rlp::UnexpectedString)));
    assert_eq!(list(&[0xc0, 0]), Err(ReceiptsError::TrailingBytes(1)));
    assert_eq!(list(&[0xff; 9]), Err(ReceiptsError::NotAList(Rlp::InputTooShort)));
    // An empty string, and a legacy receipt in a string.
    assert_eq!(field(list(&[0xc1, 0x80])), ("receipt", Rlp::UnexpectedString));
    assert_eq!(field(list(&[0xc3, 0x82, 0xc1, 0x80])), ("receipt", Rlp::UnexpectedString));
    // Type 0 has no type byte.
    let zero = BlockReceipts::from_encodings(&[&[0, 0xc0]]);
    assert_eq!(zero, Err(ReceiptsError::UnknownType { receipt: 0, receipt_type: 0 }));
    assert_eq!(field(BlockReceipts::from_encodings(&[&[0xc0]])), ("status", Rlp::InputTooShort));

    let encoding = |status: &[u8], gas: &[u8], bloom: usize, logs: &[u8]| {
        let mut payload = [status, gas].concat();
        RlpHeader { list: false, payload_length: bloom }.encode(&mut payload);
        payload.extend(vec![0; bloom]);
        payload.extend(logs);
        let mut rlp = Vec::new();
        RlpHeader { list: true, payload_length: payload.len() }.encode(&mut rlp);
        rlp.extend(payload);
        BlockReceipts::from_encodings(&[rlp])
    };
    assert!(encoding(&[1], &[0x82, 0x52, 0x08], 256, &[0xc0]).is_ok());
    let status = Rlp::Custom("invalid bool value, must be 0 or 1");
    assert_eq!(field(encoding(&[2], &[1], 256, &[0xc0])), ("status", status));
    assert_eq!(field(encoding(&[0], &[1], 256, &[0xc0])), ("status", Rlp::LeadingZero));
    let non_canonical = field(encoding(&[0x81, 1], &[1], 256, &[0xc0]));
    assert_eq!(non_canonical, ("status", Rlp::NonCanonicalSingleByte));
    let two_bytes = field(encoding(&[0x82, 1, 1], &[1], 256, &[0xc0]));
    assert_eq!(two_bytes, ("status", Rlp::Overflow));
    assert_eq!(field(encoding(&[1], &[0], 256, &[0xc0])).0, "cumulativeGasUsed");
    let long = field(encoding(&[1], &[0x82, 0, 1], 256, &[0xc0]));
    assert_eq!(long, ("cumulativeGasUsed", Rlp::LeadingZero));
    assert_eq!(
        field(encoding(&[1], &[0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0], 256, &[0xc0])).1,
        Rlp::Overflow
    );
    assert_eq!(field(encoding(&[1], &[1], 255, &[0xc0])), ("logsBloom", Rlp::UnexpectedLength));
    assert_eq!(field(encoding(&[1], &[1], 256, &[0x80])), ("logs", Rlp::UnexpectedString));
    assert_eq!(field(encoding(&[1], &[1], 256, &[0xc1, 0xc0])).0, "logs");
    assert_eq!(field(encoding(&[1], &[1], 256, &[])), ("logs", Rlp::InputTooShort));
    let behind = Err(ReceiptsError::Behind { receipt: 0, bytes: 1 });
    assert_eq!(encoding(&[1], &[1], 256, &[0xc0, 0x80]), behind);
}

/// Lists of the smallest possible receipts and logs.
#[test]
fn giant_counts() {
    let list = |item: &[u8], count: usize| {
        let mut rlp = Vec::new();
        RlpHeader { list: true, payload_length: item.len() * count }.encode(&mut rlp);
        rlp.extend(item.repeat(count));
        rlp
    };
    let tiny = list(&[0xc4, 0x80, 0x80, 0x80, 0xc0], 50_000);
    assert_eq!(survives("slim", READERS[2].1, &tiny, B256::ZERO), Some(false));
    let mut logs = list(&[&[0xd7, 0x94][..], &[7; 20], &[0xc0, 0x80]].concat(), 20_000);
    logs.splice(..0, [0x80, 0x80, 0x80]);
    let receipt = list(&logs, 1);
    assert_eq!(survives("slim", READERS[2].1, &list(&receipt, 1), B256::ZERO), Some(false));
    for text in ["[", "[[", "[{\"logs\":[", "{\"a\":", "[{\"x\":["] {
        assert_eq!(
            survives("json", READERS[3].1, text.repeat(50_000).as_bytes(), B256::ZERO),
            None
        );
    }
    let nulls = format!("[{}null]", "null,".repeat(50_000));
    assert_eq!(survives("json", READERS[3].1, nulls.as_bytes(), B256::ZERO), None);
    let receipt = r#"{"cumulativeGasUsed":"0x0","logs":[],"transactionIndex":"0x0"},"#;
    let same = format!("[{}", receipt.repeat(5_000)).trim_end_matches(',').to_owned() + "]";
    assert_eq!(BlockReceipts::from_json(&same), Err(ReceiptsError::Twice { transaction_index: 0 }));
}

#[test]
fn json_errors_name_receipt_and_field() {
    let good = json_of(&of_every_type());
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = good.clone();
        change(&mut json[7]);
        BlockReceipts::from_json(&json.to_string()).expect_err("an error").to_string()
    };
    let cases: [(&str, serde_json::Value, &str); 22] = [
        ("type", "2".into(), "[7]: type: invalid value"),
        ("type", "0x100".into(), "[7]: type: 0x100 is above 0xff"),
        ("status", "0x2".into(), "[7]: status: 0x2 is neither"),
        ("status", "0x01".into(), "[7]: status: invalid value"),
        ("status", true.into(), "[7]: status: invalid type: boolean"),
        ("root", "0x00".into(), "[7]: root: invalid value"),
        ("cumulativeGasUsed", "0x".into(), "[7]: cumulativeGasUsed: "),
        ("cumulativeGasUsed", "0x+1".into(), "[7]: cumulativeGasUsed: "),
        ("cumulativeGasUsed", "0x10000000000000000".into(), "[7]: cumulativeGasUsed: "),
        ("cumulativeGasUsed", 5.into(), "[7]: cumulativeGasUsed: invalid type: integer"),
        ("cumulativeGasUsed", serde_json::Value::Null, "[7]: cumulativeGasUsed is missing"),
        ("logsBloom", "0x00".into(), "[7]: logsBloom: invalid value"),
        ("logsBloom", "00".repeat(256).into(), "[7]: logsBloom: invalid value"),
        ("logs", serde_json::Value::Null, "[7]: logs is missing"),
        ("logs", "0x".into(), "[7]: logs: invalid type: string"),
        ("transactionIndex", serde_json::Value::Null, "[7]: transactionIndex is missing"),
        ("transactionIndex", "0x8".into(), "transactionIndex 7 is missing among 20 receipts"),
        ("transactionIndex", "0x6".into(), "duplicate transactionIndex 6"),
        ("transactionIndex", "0x00".into(), "[7]: transactionIndex: "),
        ("blockHash", "0x12".into(), "[7]: blockHash: invalid value"),
        ("blockNumber", 5.into(), "[7]: blockNumber: invalid type"),
        ("transactionHash", "".into(), "[7]: transactionHash: invalid value"),
    ];
    for (field, value, expected) in cases {
        let error = with(&|receipt| receipt[field] = value.clone());
        assert!(error.starts_with(expected), "{error}");
    }
    let logs: [(&str, serde_json::Value, &str); 7] = [
        ("address", "0x12".into(), "[7]: logs: [1]: address: invalid value"),
        ("address", serde_json::Value::Null, "[7]: logs: [1]: address is missing"),
        ("topics", "0x".into(), "[7]: logs: [1]: topics: invalid type"),
        ("topics", serde_json::json!(["0x0x11"]), "[7]: logs: [1]: topics: [0]: invalid value"),
        ("data", "0x0".into(), "[7]: logs: [1]: data: invalid value"),
        ("data", "0x0x".into(), "[7]: logs: [1]: data: invalid value"),
        ("logIndex", "1".into(), "[7]: logs: [1]: logIndex: invalid value"),
    ];
    for (field, value, expected) in logs {
        let error = with(&|receipt| receipt["logs"][1][field] = value.clone());
        assert!(error.starts_with(expected), "{error}");
    }
    let text = good.to_string();
    let twice = text.replacen("\"status\":", "\"status\":null,\"status\":", 1);
    let error = BlockReceipts::from_json(&twice).expect_err("twice").to_string();
    assert!(error.starts_with("[0]: duplicate field status at line 1 column "), "{error}");
    let error = BlockReceipts::from_json_each(&["{}"]).expect_err("empty").to_string();
    assert!(error.starts_with("[0]: logs is missing"), "{error}");
    for text in ["", "null", "{}", "[null]", "[1]", "[[]]"] {
        assert!(BlockReceipts::from_json(text).is_err(), "{text}");
    }
}
