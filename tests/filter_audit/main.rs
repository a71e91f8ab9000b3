//! The audit of filters, and the scan of a block after a hit.
//!
//! Every honest filter passes. An audit catches each change of a filter that the data of the block
//! can show. No block server convicts an honest filter, and no proof survives a change.
//!
//! Filters are built by `bitcoin`'s writer, so that no test relies on the library's own.

mod built;
mod cases;
mod framing;
mod honest;
mod proofs;
mod scans;
mod theory;
