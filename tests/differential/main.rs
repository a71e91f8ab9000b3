//! The library against other implementations: slow ones written from the specifications,
//! `bitcoin` and alloy.

mod batches;
mod bip158;
mod eth_headers;
mod eth_keccak;
mod eth_proofs;
mod eth_scan;
mod log_queries;
mod matching;
mod merkle;
mod payloads;
mod raw;
