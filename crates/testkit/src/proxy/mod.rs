//! Proxies between a client and a node, which may alter what they forward.

pub mod bitcoin;
pub mod json_rpc;
pub mod socks;
