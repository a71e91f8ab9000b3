//! Keccak-256 of many messages: headers, addresses and topics.

use std::hint::black_box;
use std::path::Path;

use alloy_primitives::B256;
use chainsieve::hash::{keccak256, keccak256_each};
use chainsieve::simd::Backend;

use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let headers = headers();
    let count = if report.is_quick() { 256 } else { 2_048 };
    for (name, raw) in &headers {
        let messages: Vec<&[u8]> = raw.iter().map(Vec::as_slice).cycle().take(count).collect();
        each(report, name, &messages);
    }
    let header = &headers[0].1[0];
    report.figure("keccak256 of one header alone", 1, || keccak256(header));
    // Addresses and topics: many, as a node hashes them, and four, as one log has them.
    for (name, length) in [("addresses of 20 bytes", 20), ("topics of 32 bytes", 32)] {
        let bytes: Vec<u8> = headers[0].1.concat().repeat(length * count / 500 + 1);
        let values: Vec<&[u8]> = bytes.chunks_exact(length).take(count).collect();
        each(report, name, &values);
        each(report, name, &values[..4]);
    }
}

/// Measures all of `messages` in one batch, against one by one.
fn each(report: &mut Report, name: &str, messages: &[&[u8]]) {
    let one_by_one = || messages.iter().map(|bytes| keccak256(bytes)).collect::<Vec<_>>();
    let alloy = || messages.iter().map(alloy_primitives::keccak256).collect::<Vec<B256>>();
    assert!(alloy().iter().eq(one_by_one().iter()), "{name}");
    // Repeat small batches, so that reading the clock costs nothing in comparison.
    let repeat = 256_usize.div_ceil(messages.len());
    let per = messages.len() * repeat;
    let title = format!("keccak256 of {} {name}", messages.len());
    for backend in Backend::available() {
        let ours = || keccak256_each(backend, messages);
        assert_eq!(ours(), one_by_one(), "{backend:?}, {name}");
        report.ratio(
            &format!("{title}, {backend:?} vs tiny-keccak one by one"),
            per,
            || repeated(repeat, ours),
            || repeated(repeat, one_by_one),
        );
    }
    report.ratio(
        &format!("{title} vs alloy-primitives one by one"),
        per,
        || repeated(repeat, || keccak256_each(Backend::best(), messages)),
        || repeated(repeat, alloy),
    );
}

fn repeated<T>(times: usize, run: impl Fn() -> T) {
    for _ in 0..times {
        black_box(run());
    }
}

/// Returns real headers: the first of mainnet and some of every fork, from the corpus that
/// `CHAINSIEVE_CORPUS` names, or those of the fixtures if there is no corpus.
pub(crate) fn headers() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let fixture = include_str!("../../fixtures/ethereum/headers.json");
    let Some(corpus) = std::env::var_os("CHAINSIEVE_CORPUS").filter(|root| !root.is_empty()) else {
        println!("# CHAINSIEVE_CORPUS is not set: the headers of the fixtures instead");
        return vec![("headers of the fixtures", of_json(fixture, "header"))];
    };
    let mainnet = Path::new(&corpus).join("ethereum/mainnet");
    let read = |name: &str| {
        let file = mainnet.join(name);
        std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let first = read("header_runs/headers_0-2047.rlp");
    let forks = String::from_utf8(read("headers.json")).expect("UTF-8");
    vec![
        ("first headers of mainnet", of_rlp(&first)),
        ("headers of all forks", of_json(&forks, "rlp")),
    ]
}

fn of_json(text: &str, field: &str) -> Vec<Vec<u8>> {
    let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let header = |entry: &serde_json::Value| {
        let digits = entry[field].as_str().expect("a header");
        hex::decode(digits.trim_start_matches("0x")).expect("hex")
    };
    json.as_array().expect("headers").iter().map(header).collect()
}

/// Splits concatenated RLP lists.
fn of_rlp(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut headers = Vec::new();
    while !bytes.is_empty() {
        let mut behind = bytes;
        let list = alloy_rlp::Header::decode(&mut behind).expect("a list");
        let (header, rest) = bytes.split_at(bytes.len() - behind.len() + list.payload_length);
        headers.push(header.to_vec());
        bytes = rest;
    }
    headers
}
