//! Strangers between a client and a node: what they pass on, they may alter.

pub mod bitcoin;
pub mod json_rpc;
pub mod socks;
