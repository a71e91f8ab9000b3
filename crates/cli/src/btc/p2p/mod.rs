//! Bitcoin's peer-to-peer protocol over TCP: what both sides of a connection need.

pub(crate) mod addresses;
pub(crate) mod connection;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod pool;
pub(crate) mod timed;
