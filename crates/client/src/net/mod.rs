//! Bitcoin's peer-to-peer protocol over TCP: connections, handshakes, addresses, and the pool of
//! peers that owns them.

pub mod book;
pub mod book_file;
pub mod chain;
pub mod connection;
mod dial;
mod eclipse;
pub mod events;
pub mod frame;
pub mod gossip;
pub mod handshake;
pub mod netgroup;
pub mod pool;
pub mod random;
pub mod socks;
pub mod target;
pub mod timed;
