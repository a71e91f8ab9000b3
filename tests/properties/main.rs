//! Properties that hold for every filter, element and block.

mod eth_bloom_laws;
mod eth_files;
mod eth_index;
mod filter_laws;
mod filter_scan;
mod gcs_laws;
mod gcs_statistics;
mod header_chain;
mod index_crashes;
mod index_failures;
mod index_processes;
mod index_writer;
mod matching_laws;
mod statistics;

use chainsieve::btc::bip37::BloomFilter;

use testkit::btc::slow_bip37::SlowFilter;

/// Returns the library's filter with these fields.
fn filter(data: Vec<u8>, hash_funcs: u32, tweak: u32, flags: u8) -> BloomFilter {
    let payload = SlowFilter { data, hash_funcs, tweak, flags }.payload();
    BloomFilter::decode(&payload).expect("within the limits")
}
