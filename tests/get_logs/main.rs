//! The semantics of `eth_getLogs` in go-ethereum and in alloy.
//!
//! The tests use test chains with all their receipts, filters with the logs that each semantics
//! selects, requests and answers that execution-apis publishes, and facts from the sources of both.
//! Every expected value comes from the folder `getlogs` of the corpus. alloy's own `Filter` runs
//! beside the library.

mod audits;
mod cases;
mod facts;
mod published;
mod readings;
mod receipts;
mod transactions;
