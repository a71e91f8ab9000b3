//! Laws that hold for every filter, element and block.

#[path = "properties/eth_bloom_laws.rs"]
mod eth_bloom_laws;
#[path = "properties/eth_files.rs"]
mod eth_files;
#[path = "support/eth_fixtures.rs"]
#[expect(dead_code, reason = "only headers are written to files")]
mod eth_fixtures;
#[path = "properties/eth_index.rs"]
mod eth_index;
#[path = "properties/filter_laws.rs"]
mod filter_laws;
#[path = "properties/filter_scan.rs"]
mod filter_scan;
#[path = "properties/gcs_laws.rs"]
mod gcs_laws;
#[path = "properties/gcs_statistics.rs"]
mod gcs_statistics;
#[path = "properties/header_chain.rs"]
mod header_chain;
#[path = "support/header_files.rs"]
mod header_files;
#[path = "properties/index_crashes.rs"]
mod index_crashes;
#[path = "properties/index_failures.rs"]
mod index_failures;
#[path = "properties/index_processes.rs"]
mod index_processes;
#[path = "support/index_sessions.rs"]
mod index_sessions;
#[path = "properties/index_writer.rs"]
mod index_writer;
#[path = "support/linked_headers.rs"]
mod linked_headers;
#[path = "support/made_up_headers.rs"]
mod made_up_headers;
#[path = "properties/matching_laws.rs"]
mod matching_laws;
#[path = "support/oracle.rs"]
#[expect(dead_code, reason = "no oracle cases here, only their blocks")]
mod oracle;
#[path = "support/random_block.rs"]
mod random_block;
#[path = "support/random_filters.rs"]
#[expect(dead_code, reason = "filters come from strategies here, only elements of blocks are used")]
mod random_filters;
#[path = "support/recording_storage.rs"]
#[expect(dead_code, reason = "files are damaged elsewhere")]
mod recording_storage;
#[path = "support/regtest_headers.rs"]
mod regtest_headers;
#[path = "support/rng.rs"]
mod rng;
#[path = "support/shared_folder.rs"]
#[expect(dead_code, reason = "files are not damaged here")]
mod shared_folder;
#[expect(dead_code, reason = "only elements and payloads are used")]
mod slow_bip37;
#[path = "properties/statistics.rs"]
mod statistics;

use chainsieve::btc::bip37::BloomFilter;

use crate::slow_bip37::SlowFilter;

/// The library's filter with these fields.
fn filter(data: Vec<u8>, hash_funcs: u32, tweak: u32, flags: u8) -> BloomFilter {
    let payload = SlowFilter { data, hash_funcs, tweak, flags }.payload();
    BloomFilter::decode(&payload).expect("within the limits")
}
