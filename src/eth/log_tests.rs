//! Tests of logs as JSON, and of their digest.

use alloc::format;
use alloc::string::ToString as _;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes, Log, address, b256, bytes, keccak256};

use super::log::{LocatedLog, digest};

/// The first log of mainnet block 18,090,206, as a node returned it.
const REAL: &str = r#"{"address": "0x599bb2682a16b24b0f8e27cc549f66a9981bc6fd", "topics": ["0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925", "0x000000000000000000000000b24c8ef593563e1fff3ba6e8bb3a8b7042beff1f", "0x0000000000000000000000007a250d5630b4cf539739df2c5dacb4c659f2488d"], "data": "0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "blockHash": "0x0e370e334fe75e14371a22557f0f0671ff3d5fc8618e6135cf133ff2acdf12bc", "blockNumber": "0x11408de", "transactionHash": "0x6832bc9ea82e79441cc3d41d7bc3c6ce2f4485b55ddd3f8ec67e04c152cf8079", "transactionIndex": "0x0", "logIndex": "0x0", "removed": false}"#;

fn real() -> LocatedLog {
    LocatedLog {
        log: Log::new(
            address!("0x599bb2682a16b24b0f8e27cc549f66a9981bc6fd"),
            Vec::from([
                b256!("0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"),
                b256!("0x000000000000000000000000b24c8ef593563e1fff3ba6e8bb3a8b7042beff1f"),
                b256!("0x0000000000000000000000007a250d5630b4cf539739df2c5dacb4c659f2488d"),
            ]),
            bytes!("0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"),
        )
        .expect("three topics"),
        block_number: 18_090_206,
        block_hash: b256!("0x0e370e334fe75e14371a22557f0f0671ff3d5fc8618e6135cf133ff2acdf12bc"),
        block_timestamp: None,
        transaction_hash: Some(b256!(
            "0x6832bc9ea82e79441cc3d41d7bc3c6ce2f4485b55ddd3f8ec67e04c152cf8079"
        )),
        claimed_transaction_hash: None,
        transaction_index: 0,
        log_index: 0,
        removed: false,
    }
}

#[test]
fn a_log_of_a_node() {
    assert_eq!(LocatedLog::from_json(REAL), Ok(real()));
    let listed = LocatedLog::list_from_json(&format!(" [{REAL},\n{REAL}] "));
    assert_eq!(listed, Ok(Vec::from([real(), real()])));
    assert_eq!(LocatedLog::list_from_json("[]"), Ok(Vec::new()));
}

#[test]
fn what_is_written_is_read_back() {
    let full = LocatedLog {
        block_timestamp: Some(1_694_000_000),
        transaction_index: 300,
        log_index: u64::MAX,
        removed: true,
        ..real()
    };
    let bare = LocatedLog {
        log: Log::new(real().log.address, Vec::new(), Bytes::new()).expect("no topics"),
        transaction_hash: None,
        ..real()
    };
    let claimed = LocatedLog {
        transaction_hash: None,
        claimed_transaction_hash: real().transaction_hash,
        ..real()
    };
    // A reader of `transactionHash` can't mistake a claim for a proven hash.
    let json = claimed.to_json();
    assert!(!json.contains("\"transactionHash\"") && json.contains("\"claimedTransactionHash\""));
    for log in [real(), full, bare, claimed] {
        assert_eq!(LocatedLog::from_json(&log.to_json()), Ok(log));
    }
    let without_space = REAL.replace(' ', "");
    assert_eq!(real().to_json().len(), without_space.len(), "the same fields, in geth's order");
}

/// Rows: text of a valid log, its replacement in the second log of a list, the expected message.
#[test]
fn errors_name_log_and_field() {
    let rows = [
        (
            r#""blockNumber": "0x11408de""#,
            r#""blockNumber": null"#,
            "blockNumber: is missing or null",
        ),
        (r#""blockNumber": "0x11408de""#, r#""number": "0x1""#, "blockNumber: is missing or null"),
        (
            r#""blockNumber": "0x11408de""#,
            r#""blockNumber": 18090206"#,
            "blockNumber: expected hex in a string, found a number",
        ),
        (
            r#""blockNumber": "0x11408de""#,
            r#""blockNumber": "18090206""#,
            r#"blockNumber: "18090206" does not begin with 0x"#,
        ),
        (r#""logIndex": "0x0""#, r#""logIndex": "0x""#, "logIndex: no digits after 0x"),
        (
            r#""logIndex": "0x0""#,
            r#""logIndex": "0x10000000000000000""#,
            r#"logIndex: "0x10000000000000000" is above 0xffffffffffffffff"#,
        ),
        (r#""blockHash": "0x0e"#, r#""blockHash": "0x"#, "blockHash: 31 bytes, but a hash has 32"),
        (
            r#""transactionHash": "0x68"#,
            r#""transactionHash": "0x6"#,
            "transactionHash: 63 hex digits are not whole bytes",
        ),
        (
            r#""address": "0x59"#,
            r#""address": "0x5g"#,
            "address: character 'g' at 3 is not a hex digit",
        ),
        (r#"["0x8c5be1"#, r#"["0x5be1"#, "topics[0]: 31 bytes, but a topic has 32"),
        (r#""topics": ["#, r#""topics": [null, "#, "topics[0]: expected a topic, found null"),
        (r#""topics": ["#, r#""topics": ["","","#, "topics: 5 values, but at most 4 are allowed"),
        (r#""data": "0xf"#, r#""data": "0x"#, "data: 63 hex digits are not whole bytes"),
        (
            r#""data": "0xff"#,
            r#""data": "ff"#,
            r#"data: "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" does not begin with 0x"#,
        ),
        (
            r#""removed": false"#,
            r#""removed": "no""#,
            "removed: expected true or false, found a string",
        ),
        (r#""removed": false"#, r#""removed": false, "data": "0x""#, r#"duplicate field "data""#),
    ];
    for (from, to, message) in rows {
        assert!(REAL.contains(from), "{from}");
        let wrong = REAL.replacen(from, to, 1);
        let error = LocatedLog::list_from_json(&format!("[{REAL},{wrong},{REAL}]"));
        assert_eq!(error.expect_err(to).to_string(), format!("log 1: {message}"));
        let error = LocatedLog::from_json(&wrong).expect_err(to);
        assert_eq!(error.to_string(), message);
    }
    // Additional fields that a node writes are ignored, and leading zeros are accepted.
    let more = REAL.replace(r#""removed": false"#, r#""logType": null, "x": {"y": [1]}"#);
    assert_eq!(LocatedLog::from_json(&more), Ok(real()));
    let zeros = REAL.replace(r#""logIndex": "0x0""#, r#""logIndex": "0x0000""#);
    assert_eq!(LocatedLog::from_json(&zeros), Ok(real()));
    for (text, message) in [
        ("{}", "logs are a list, not an object"),
        ("null", "logs are a list, not null"),
        ("[1]", "log 0: a log is an object, not a number"),
        ("[{}]", "log 0: address: is missing or null"),
        ("[{}", "not JSON: EOF while parsing a list at line 1 column 3"),
        ("[] []", "not JSON: trailing characters at line 1 column 4"),
    ] {
        let error = LocatedLog::list_from_json(text).expect_err(text);
        assert_eq!(error.to_string(), message);
    }
}

/// Slow RLP encoder, written from appendix B of the Yellow Paper.
fn rlp(prefix: u8, payload: &[u8]) -> Vec<u8> {
    let len = payload.len();
    if prefix == 0x80 && len == 1 && payload[0] < 0x80 {
        return payload.to_vec();
    }
    let mut out = if len < 56 {
        Vec::from([prefix + u8::try_from(len).expect("short")])
    } else {
        let size: Vec<u8> = len.to_be_bytes().into_iter().skip_while(|&byte| byte == 0).collect();
        [&[prefix + 55 + u8::try_from(size.len()).expect("short")], &size[..]].concat()
    };
    out.extend_from_slice(payload);
    out
}

fn number(value: u64) -> Vec<u8> {
    let bytes: Vec<u8> = value.to_be_bytes().into_iter().skip_while(|&byte| byte == 0).collect();
    rlp(0x80, &bytes)
}

fn slow_digest(sorted: &[&LocatedLog]) -> B256 {
    let logs = sorted.iter().map(|log| {
        let topics = log.log.topics().iter().map(|topic| rlp(0x80, topic.as_slice()));
        let fields = [
            rlp(0x80, log.block_hash.as_slice()),
            number(log.block_number),
            number(log.log_index),
            number(log.transaction_index),
            rlp(0x80, log.log.address.as_slice()),
            rlp(0xc0, &topics.collect::<Vec<_>>().concat()),
            rlp(0x80, &log.log.data.data),
        ];
        rlp(0xc0, &fields.concat())
    });
    keccak256(rlp(0xc0, &logs.collect::<Vec<_>>().concat()))
}

#[test]
fn the_digest_is_of_the_sorted_list() {
    let mut logs = Vec::new();
    for (number, index, data) in
        [(7, 3, 0), (9, 0, 1), (9, 11, 55), (9, 200, 300), (300, 1, 70_000)]
    {
        let mut log = real();
        (log.block_number, log.log_index) = (number, index);
        log.transaction_index = index / 2;
        log.log.data.data = alloc::vec![0x11; data].into();
        logs.push(log);
    }
    let expected = slow_digest(&logs.iter().collect::<Vec<_>>());
    assert_eq!(digest(&logs), expected);
    logs.reverse();
    assert_eq!(digest(&logs), expected, "in any order");
    logs.swap(1, 3);
    assert_eq!(digest(&logs), expected, "in any order");

    // The digest covers all fields except those that sources may leave out.
    logs[0].transaction_hash = None;
    logs[1].block_timestamp = Some(5);
    logs[2].removed = true;
    assert_eq!(digest(&logs), expected);
    let changes: [fn(&mut LocatedLog); 7] = [
        |log| log.block_hash.0[31] ^= 1,
        |log| log.block_number += 1,
        |log| log.log_index += 1,
        |log| log.transaction_index += 1,
        |log| log.log.address.0[0] ^= 1,
        |log| log.log.data.topics_mut()[2].0[9] ^= 1,
        |log| log.log.data.data = bytes!("0x12"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut changed = logs.clone();
        change(&mut changed[3]);
        assert_ne!(digest(&changed), expected, "change {at}");
    }
    let twice: Vec<_> = logs.iter().chain(&logs[..1]).cloned().collect();
    assert_ne!(digest(&twice), expected, "a log twice");
}

/// The digest of no logs is the hash of an empty RLP list, which is also the uncles hash in the
/// header of every block without uncles.
#[test]
fn the_digest_of_nothing() {
    let empty = b256!("0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
    assert_eq!(digest(&[]), empty);
}
