//! The library against other implementations: slow ones written from the texts, the messages,
//! trees and compact filters of `bitcoin`, the filter of `chain-gang`.

#[path = "differential/bank.rs"]
mod bank;
#[path = "differential/batches.rs"]
mod batches;
#[path = "differential/bip158.rs"]
mod bip158;
#[path = "differential/bip158_match.rs"]
mod bip158_match;
#[path = "support/bitcoin_sets.rs"]
mod bitcoin_sets;
#[path = "support/corpus_files.rs"]
#[expect(dead_code, reason = "blocks are taken by file, not by name")]
mod corpus_files;
#[path = "support/corpus_index.rs"]
mod corpus_index;
#[path = "support/entry_points.rs"]
#[expect(dead_code, reason = "outcomes are compared whole, not by index")]
mod entry_points;
#[path = "support/eth_fixtures.rs"]
mod eth_fixtures;
#[path = "support/eth_header_checks.rs"]
mod eth_header_checks;
#[path = "differential/eth_headers.rs"]
mod eth_headers;
#[path = "differential/eth_keccak.rs"]
mod eth_keccak;
#[path = "differential/eth_proofs.rs"]
mod eth_proofs;
#[path = "differential/eth_scan.rs"]
mod eth_scan;
#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/fuzzed_sets.rs"]
mod fuzzed_sets;
#[path = "support/gcs_reading.rs"]
mod gcs_reading;
#[path = "differential/log_queries.rs"]
mod log_queries;
#[path = "differential/matching.rs"]
mod matching;
#[path = "differential/merkle.rs"]
mod merkle;
#[path = "support/mutation.rs"]
mod mutation;
mod naive_gcs;
#[path = "support/oracle.rs"]
#[expect(dead_code, reason = "no oracle cases here, only their blocks")]
mod oracle;
#[path = "differential/payloads.rs"]
mod payloads;
#[path = "differential/peers.rs"]
mod peers;
#[path = "support/random_block.rs"]
mod random_block;
#[path = "support/random_filters.rs"]
mod random_filters;
#[path = "support/random_sets.rs"]
mod random_sets;
#[path = "differential/raw.rs"]
mod raw;
#[path = "support/rng.rs"]
mod rng;
#[expect(dead_code, reason = "scripts on their own are the oracle's business")]
mod slow_bip37;
