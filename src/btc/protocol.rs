//! Constants of Bitcoin's peer-to-peer protocol, each under the name that Bitcoin Core gives it.
//!
//! A limit that concerns one part of the protocol is defined in the module of that part: the size
//! of a `headers` message in [`headers::MAX_HEADERS`](crate::btc::headers::MAX_HEADERS), limits of
//! Bloom filters in [`bip37`](crate::btc::bip37), limits of requests for compact filters in
//! `bip157`.
//!
//! Source: Bitcoin Core 28.1, the file named at each constant.

use core::time::Duration;

use bitcoin::Network;

/// Largest number of items in an `inv`, `getdata` or `notfound` (`net_processing.cpp`,
/// `MAX_INV_SZ`).
///
/// The crate [`bitcoin`] defines the same constant, but only with its feature `std`.
pub const MAX_INV_SIZE: usize = 50_000;

/// The protocol version that chainsieve announces: that of Core 28 (`node/protocol_version.h`,
/// `PROTOCOL_VERSION`).
///
/// In later protocol versions, each new feature is negotiated by a separate message. A peer that
/// announces this version therefore loses no feature when it talks to a peer with a newer version.
pub const PROTOCOL_VERSION: u32 = 70_016;
/// Lowest protocol version that a node accepts (`node/protocol_version.h`,
/// `MIN_PEER_PROTO_VERSION`).
pub const MIN_PEER_PROTO_VERSION: u32 = 31_800;
/// First protocol version with Bloom filters (BIP37): the lowest version that a light client can
/// use.
pub const BIP37_VERSION: u32 = 70_001;
/// First protocol version with `feefilter` (BIP133; `node/protocol_version.h`,
/// `FEEFILTER_VERSION`).
pub const FEEFILTER_VERSION: u32 = 70_013;

/// The user agent that chainsieve announces, in the form of BIP14.
pub const USER_AGENT: &str = concat!("/chainsieve:", env!("CARGO_PKG_VERSION"), "/");
/// Largest length of the user agent in a `version` message, in bytes (`net.h`,
/// `MAX_SUBVERSION_LENGTH`).
pub const MAX_SUBVERSION_LENGTH: usize = 256;
/// Largest number of hashes in a block locator (`net_processing.cpp`, `MAX_LOCATOR_SZ`).
pub const MAX_LOCATOR_SIZE: usize = 101;
/// The inventory type of a block filtered by the peer's Bloom filter (BIP37; `protocol.h`,
/// `MSG_FILTERED_BLOCK`), for which [`bitcoin`] has no name.
pub const MSG_FILTERED_BLOCK: u32 = 3;

/// Age in seconds up to which a node serves a block that left the active chain: 30 days
/// (`net_processing.cpp`, `STALE_RELAY_AGE_LIMIT`).
///
/// The age is the time of the chain tip's header minus the time of the block's header. Older stale
/// blocks are not served, because they could identify the node (fingerprinting).
pub const STALE_RELAY_AGE_LIMIT: u32 = 30 * 24 * 60 * 60;
/// Timeout from the start of a connection to `verack` (`net.h`, `DEFAULT_PEER_CONNECT_TIMEOUT`).
pub const PEER_CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two pings (`net_processing.cpp`, `PING_INTERVAL`).
pub const PING_INTERVAL: Duration = Duration::from_secs(2 * 60);
/// Timeout for a peer that sends no message, or does not answer a ping (`net.h`,
/// `TIMEOUT_INTERVAL`).
pub const TIMEOUT_INTERVAL: Duration = Duration::from_secs(20 * 60);

/// Returns the default TCP port of a node of `network` (`kernel/chainparams.cpp`, `nDefaultPort`).
pub const fn default_port(network: Network) -> u16 {
    match network {
        Network::Bitcoin => 8333,
        Network::Testnet => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
    }
}
