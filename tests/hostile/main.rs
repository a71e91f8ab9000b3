//! Bytes from untrusted sources: the result is a value or an error of the right type, never a
//! panic, and memory stays in proportion to the input.

mod bip158;
mod btc_header_chain;
mod eth_certificates;
mod eth_files;
mod eth_headers;
mod eth_index;
mod eth_reports;
mod filter_container;
mod filter_scan;
mod gcs_streams;
mod index_files;
mod log_queries;
mod merkle;
mod mutations;
mod payloads;
mod raw;
mod scripts;

use std::panic::{AssertUnwindSafe, catch_unwind};

use chainsieve::bitcoin::Transaction;
use chainsieve::btc::bip37::{BloomFilter, TxMatch};
use testkit::allocation::{Counting, requested_by};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f` and returns its result. Fails with the input if `f` panics or requests more memory than
/// `factor` times the input plus `fixed` bytes.
fn survives<T>(name: &str, input: &[u8], factor: usize, fixed: usize, f: impl FnOnce() -> T) -> T {
    let run = || requested_by(f);
    let Ok((result, requested)) = catch_unwind(AssertUnwindSafe(run)) else {
        panic!("{name} panicked on {}", hex::encode(input));
    };
    let limit = factor * input.len() + fixed;
    assert!(
        requested <= limit,
        "{name} asked for {requested} bytes, the limit is {limit}, on {:.2000}",
        hex::encode(input)
    );
    result
}

/// Returns JSON values of any size: four long lists, the last of them of `items`, then depths, a string and
/// a number.
fn giants(items: &str) -> [String; 9] {
    let list = |item| format!("[{}]", vec![item; 50_000].join(","));
    [
        list("0"),
        list(r#""""#),
        list("{}"),
        list(items),
        "[".repeat(100_000),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)),
        format!("\"0x{}\"", "0".repeat(500_000)),
        "9".repeat(100_000),
    ]
}

/// Matches a transaction within a memory limit.
///
/// Matching serialises the transaction and splits it into elements. Each element, of at least two
/// bytes, takes a few dozen bytes in lists that grow by doubling. Long lists are probed through
/// tables of fixed size.
fn matching_survives(
    name: &str,
    raw: &[u8],
    filter: &mut BloomFilter,
    tx: &Transaction,
) -> Option<TxMatch> {
    survives(name, raw, 80, 400_000, || filter.match_transaction(tx))
}

#[test]
fn the_harness_sees_panics_and_large_requests() {
    let fails = |f: fn()| {
        let run = || survives("expected to fail", &[1, 2, 3], 2, 10, f);
        catch_unwind(run).is_err()
    };
    assert!(fails(|| panic!("expected")));
    assert!(fails(|| drop(vec![0_u8; 17])));
    assert!(!fails(|| drop(vec![0_u8; 16])));
}
