//! Bytes from strangers: whatever they are, the answer is an error of the right type or a value,
//! never a panic, and memory stays in proportion to the input.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

#[path = "hostile/allocation.rs"]
mod allocation;
#[path = "hostile/bip158.rs"]
mod bip158;
#[path = "hostile/btc_header_chain.rs"]
mod btc_header_chain;
#[path = "hostile/eth_certificates.rs"]
mod eth_certificates;
#[path = "hostile/eth_files.rs"]
mod eth_files;
#[path = "support/eth_fixtures.rs"]
#[expect(dead_code, reason = "bytes are what is damaged")]
mod eth_fixtures;
#[path = "hostile/eth_headers.rs"]
mod eth_headers;
#[path = "hostile/eth_index.rs"]
mod eth_index;
#[path = "hostile/eth_reports.rs"]
mod eth_reports;
#[path = "hostile/filter_container.rs"]
mod filter_container;
#[path = "hostile/filter_scan.rs"]
mod filter_scan;
#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/gcs_reading.rs"]
mod gcs_reading;
#[path = "hostile/gcs_streams.rs"]
mod gcs_streams;
#[path = "support/header_files.rs"]
mod header_files;
#[path = "hostile/index_files.rs"]
mod index_files;
#[path = "support/linked_headers.rs"]
mod linked_headers;
#[path = "hostile/log_queries.rs"]
mod log_queries;
#[path = "support/made_up_headers.rs"]
#[expect(dead_code, reason = "files are damaged, not asked")]
mod made_up_headers;
#[path = "hostile/merkle.rs"]
mod merkle;
#[path = "support/mutation.rs"]
mod mutation;
#[path = "hostile/mutations.rs"]
mod mutations;
#[expect(dead_code, reason = "blocks are not built here")]
mod naive_gcs;
#[path = "support/oracle.rs"]
#[expect(dead_code, reason = "cases serve as payloads to damage, without their answers")]
mod oracle;
#[path = "hostile/payloads.rs"]
mod payloads;
#[path = "support/random_sets.rs"]
mod random_sets;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "support/recording_storage.rs"]
#[expect(dead_code, reason = "nothing crashes here")]
mod recording_storage;
#[path = "support/regtest_headers.rs"]
mod regtest_headers;
#[path = "support/rng.rs"]
mod rng;
#[path = "hostile/scripts.rs"]
mod scripts;
#[path = "support/shared_folder.rs"]
mod shared_folder;
#[expect(dead_code, reason = "only the script reader and the payload writer")]
mod slow_bip37;

use std::panic::{AssertUnwindSafe, catch_unwind};

use chainsieve::bitcoin::Transaction;
use chainsieve::btc::bip37::{BloomFilter, TxMatch};

/// Runs `f`; if it panics or asks for more than `factor` times the input and `fixed` bytes on
/// top, fails with the input that made it so.
fn survives<T>(name: &str, input: &[u8], factor: usize, fixed: usize, f: impl FnOnce() -> T) -> T {
    let run = || allocation::requested_by(f);
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

/// Matches a transaction. It is written as bytes and taken apart, at a few dozen bytes for each
/// element of at least two, in lists that grow by doubling; long lists are probed through tables
/// of fixed size.
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
