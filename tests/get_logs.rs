//! The semantics of `eth_getLogs`, as go-ethereum and alloy have them.
//!
//! Test chains with all their receipts, filters with the logs that each reading selects, requests
//! and answers that execution-apis publishes, and facts from the sources of both. Every expected
//! value comes from `getlogs` in the corpus; alloy's own `Filter` is run beside it.

#[path = "get_logs/audits.rs"]
mod audits;
#[path = "get_logs/cases.rs"]
mod cases;
#[path = "get_logs/chains.rs"]
mod chains;
#[path = "support/corpus_index.rs"]
mod corpus_index;
#[path = "get_logs/facts.rs"]
mod facts;
#[path = "get_logs/published.rs"]
mod published;
#[path = "get_logs/readings.rs"]
mod readings;
#[path = "get_logs/receipts.rs"]
mod receipts;
#[path = "audit/runs.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod runs;
