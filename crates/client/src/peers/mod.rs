//! Bitcoin's peer-to-peer protocol over TCP: connections, handshakes, addresses, and the pool of
//! peers that owns them.

pub mod address;
pub mod book;
pub mod connection;
pub mod dial;
pub mod frame;
pub mod handshake;
pub mod pool;
pub mod socks;
