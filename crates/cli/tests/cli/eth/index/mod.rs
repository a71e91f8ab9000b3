//! Tests of `eth index`: building, queries, verification and misuse, compared with `eth scan` over
//! the same headers.

mod adding;
mod asking;
mod checking;

use std::path::Path;

use chainsieve::alloy_primitives::{Address, Bloom, BloomInput};

use testkit::eth::linked_headers::linked_rlp;

use super::*;
use testkit::TestFolder;

/// Returns the lines of a command: all lines before the last one, and the last line.
fn lines_of(args: &[&str], code: i32) -> (Vec<Value>, Value) {
    let mut lines = json_lines(args, code);
    let last = lines.pop().expect("a summary");
    (lines, last)
}

/// Returns the linked headers of `fixtures/` from block `first` to block `last`.
fn run_of(first: u64, last: u64) -> Vec<u8> {
    let rows = eth_fixture("headers.json");
    let rows = rows.as_array().expect("a list");
    let mut rlp = Vec::new();
    for number in first..=last {
        let row = rows.iter().find(|row| row["chain"] == "mainnet" && row["number"] == number);
        rlp.extend(bytes(&row.expect("in the fixture")["header"]));
    }
    rlp
}

/// Returns the address that is in every `period`th block of a simulated chain.
fn every(period: u64) -> Address {
    Address::left_padding_from(&[&[0xee][..], &period.to_be_bytes()].concat())
}

const PERIODS: [u64; 5] = [2, 7, 100, 3000, 8193];

/// Returns simulated headers with distinct blooms. Another `salt` gives another branch.
fn made_up(first: u64, count: u64, parent: B256, salt: u64) -> Vec<Vec<u8>> {
    let bloom = |number: u64| {
        if number % 5000 == 4321 {
            return Bloom::repeat_byte(0xff);
        }
        let mut bloom = Bloom::ZERO;
        for period in PERIODS.into_iter().filter(|period| number.is_multiple_of(*period)) {
            bloom.accrue(BloomInput::Raw(every(period).as_slice()));
        }
        for other in 0..number % 40 {
            let value = [number.to_be_bytes(), other.to_be_bytes(), salt.to_be_bytes()].concat();
            bloom.accrue(BloomInput::Raw(&value));
        }
        bloom
    };
    linked_rlp(first, parent, salt, (first..first + count).map(bloom))
}

/// Number of the first block of simulated chains.
const START: u64 = 1_000;

/// Number of blocks: a section of 8,192 blocks, and 308 further blocks, of which 256 are
/// unconfirmed.
const BLOCKS: u64 = 8_500;

fn chain() -> Vec<Vec<u8>> {
    made_up(START, BLOCKS, B256::repeat_byte(7), 0)
}

fn build(folder: &TestFolder, headers: &str, more: &[&str]) -> (String, Value) {
    let index = folder.file("index");
    let args = [&["eth", "index", "build", &index, headers], more].concat();
    let summary = lines_of(&args, YES).1;
    (index, summary)
}

/// Asserts that the index returns the same candidates as a scan of the headers. Block hashes are
/// compared if the index stores them. Returns the number of candidates and of compared hashes.
fn same_as_scan(index: &str, headers: &str, query: &[&str]) -> (usize, usize) {
    let scan = run(&[&["eth", "scan", headers, "--json"], query].concat());
    let code = scan.code;
    assert!([YES, NO].contains(&code), "{query:?}: {}", scan.stderr);
    let mut scanned = scan.lines();
    let of_scan = scanned.pop().expect("a summary");
    let args = [&["eth", "index", "query", index], query].concat();
    let (found, summary) = lines_of(&args, code);
    let mut hashes = 0;
    assert_eq!(found.len(), scanned.len(), "{query:?}");
    for (found, scanned) in found.iter().zip(&scanned) {
        assert_eq!(found["number"], scanned["number"], "{query:?}");
        if !found["hash"].is_null() {
            assert_eq!(found["hash"], scanned["hash"], "{query:?}");
            hashes += 1;
        }
    }
    for field in ["blocks", "first", "last", "candidates", "share", "query", "semantics"] {
        assert_eq!(summary[field], of_scan[field], "{query:?}: {field}");
    }
    let blocks = of_scan["blocks"].as_f64().expect("a number");
    let expected = of_scan["rate"].as_f64().expect("a number") * blocks;
    let stated = summary["expected_false"].as_f64().expect("a number");
    assert!((stated - expected).abs() <= expected * 1e-9, "{query:?}: {stated} {expected}");
    // With `--count`, only counts are printed, and they equal those of the run without `--count`.
    let (lines, counted) = lines_of(&[&args[..], &["--count"]].concat(), code);
    assert!(lines.is_empty());
    assert_eq!(counted["candidates"], summary["candidates"], "{query:?}");
    (found.len(), hashes)
}
