//! Compares the hashes of every backend with `tiny-keccak`, published hashes and real headers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{keccak256, keccak256_each};
use crate::simd::Backend;

/// Checks that every backend returns the `expected` hashes, for the whole batch and for each
/// message repeated nine times.
fn check(messages: &[&[u8]], expected: &[[u8; 32]]) {
    for backend in Backend::available() {
        assert_eq!(keccak256_each(backend, messages), expected, "{backend:?}");
        for (message, expected) in messages.iter().zip(expected) {
            let nine = keccak256_each(backend, &[*message; 9]);
            assert_eq!(nine, [*expected; 9], "{backend:?}");
        }
    }
}

fn hash(hex: &str) -> [u8; 32] {
    hex::decode(hex).unwrap().try_into().unwrap()
}

/// The hash of the empty string (the code hash of every account without code), Keccak's hash of
/// "abc", the topic of a token transfer (ERC-20), and the root of an empty trie.
#[test]
fn published_hashes() {
    let cases: [(&[u8], &str); 4] = [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (
            b"Transfer(address,address,uint256)",
            "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
        ),
        (b"\x80", "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"),
    ];
    let messages = cases.map(|(message, _)| message);
    let expected = cases.map(|(_, expected)| hash(expected));
    assert_eq!(messages.map(keccak256), expected);
    check(&messages, &expected);
}

#[test]
fn real_headers() {
    let fixture = include_str!("../../../../../fixtures/ethereum/headers.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).unwrap();
    let bytes = |value: &serde_json::Value| {
        hex::decode(value.as_str().unwrap().trim_start_matches("0x")).unwrap()
    };
    let headers = fixture.as_array().unwrap();
    let raw: Vec<Vec<u8>> = headers.iter().map(|header| bytes(&header["header"])).collect();
    let hashes: Vec<[u8; 32]> =
        headers.iter().map(|header| bytes(&header["hash"]).try_into().unwrap()).collect();
    let messages: Vec<&[u8]> = raw.iter().map(Vec::as_slice).collect();
    assert!(messages.len() >= 16, "{} headers", messages.len());
    check(&messages, &hashes);
}

/// Messages of every length from 0 to more than five blocks, each length in a batch of equal
/// messages and in a batch of all lengths.
#[test]
fn every_length() {
    let bytes: Vec<u8> = (0..=250).cycle().take(701).map(|byte: u8| byte ^ 0x5a).collect();
    let messages: Vec<&[u8]> = (0..=700).map(|length| &bytes[700 - length..700]).collect();
    let expected: Vec<[u8; 32]> = messages.iter().map(|message| keccak256(message)).collect();
    check(&messages, &expected);
}

/// Every batch size up to 33, with very different lengths: the lanes finish at different times, and
/// one message is much longer than the others.
#[test]
fn every_batch_size() {
    let bytes: Vec<u8> = (0..=250).cycle().take(9_000).map(|byte: u8| byte ^ 0xa5).collect();
    for spread in [1, 137, 700, 3_000] {
        for count in 0..=33 {
            let length = |i: usize| i * 7_919 % spread + if i == 5 { spread * 2 } else { 0 };
            let messages: Vec<&[u8]> = (0..count).map(|i| &bytes[i..][..length(i)]).collect();
            let expected: Vec<[u8; 32]> = messages.iter().map(|bytes| keccak256(bytes)).collect();
            for backend in Backend::available() {
                let hashes = keccak256_each(backend, &messages);
                assert_eq!(hashes, expected, "{backend:?}, {count} to {spread} bytes");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batch(messages in vec(vec(any::<u8>(), 0..=700), 0..=33)) {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = messages.iter().map(alloy_primitives::keccak256).collect();
        for backend in Backend::available() {
            prop_assert_eq!(keccak256_each(backend, &messages), &*expected, "{:?}", backend);
        }
    }
}
