//! The semantics of `eth_getLogs`, as go-ethereum and alloy have them.
//!
//! Test chains with all their receipts, filters with the logs that each reading selects, requests
//! and answers that execution-apis publishes, and facts from the sources of both. Every expected
//! value comes from `getlogs` in the corpus; alloy's own `Filter` is run beside it.

mod audits;
mod cases;
mod facts;
mod published;
mod readings;
mod receipts;
