//! BIP157: compact block filters between peers.

pub mod server;
