//! The audit of filters, and the scan of a block after a hit: every honest filter passes, each
//! change is caught or left open exactly where theory says, no block server convicts an honest
//! filter, and no proof survives a change.
//!
//! Filters are built by `bitcoin`'s writer, so that nothing here rests on the library's own.

#[path = "filter_audit/built.rs"]
mod built;
#[path = "filter_audit/cases.rs"]
mod cases;
#[path = "support/corpus_index.rs"]
mod corpus_index;
#[path = "filter_audit/framing.rs"]
mod framing;
#[path = "filter_audit/honest.rs"]
mod honest;
#[path = "filter_audit/proofs.rs"]
mod proofs;
#[path = "support/rng.rs"]
#[expect(dead_code, reason = "not every kind of number is needed")]
mod rng;
#[path = "filter_audit/scans.rs"]
mod scans;
#[path = "filter_audit/theory.rs"]
mod theory;
