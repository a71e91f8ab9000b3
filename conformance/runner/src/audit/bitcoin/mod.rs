//! Audits of a Bitcoin node's compact filters and filter headers (BIP157, BIP158).
//!
//! The audit ends at the first difference, because each filter header depends on all filters before
//! it.

mod filters;
mod peer;
mod rpc;

pub use peer::audit_peer;
pub use rpc::{audit_rpc, last_block};
