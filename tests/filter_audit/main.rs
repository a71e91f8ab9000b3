//! The audit of filters, and the scan of a block after a hit: every honest filter passes, each
//! change is caught or left open exactly where theory says, no block server convicts an honest
//! filter, and no proof survives a change.
//!
//! Filters are built by `bitcoin`'s writer, so that nothing here rests on the library's own.

mod built;
mod cases;
mod framing;
mod honest;
mod proofs;
mod scans;
mod theory;
