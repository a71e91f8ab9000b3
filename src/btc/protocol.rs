//! Constants of Bitcoin's peer-to-peer protocol, each under the name that Bitcoin Core gives it.
//!
//! Limits of one part of the protocol stand with that part: a `headers` message in
//! [`headers::MAX_HEADERS`](crate::btc::headers::MAX_HEADERS), Bloom filters in
//! [`bip37`](crate::btc::bip37), requests for compact filters in `bip157`.
//!
//! Source: Bitcoin Core 28.1, the file named at each constant.

use core::time::Duration;

use bitcoin::Network;

/// The most items of an `inv`, `getdata` or `notfound` (`net_processing.cpp`, `MAX_INV_SZ`).
///
/// As in [`bitcoin`], which has it only with its feature `std`.
pub const MAX_INV_SIZE: usize = 50_000;

/// The protocol version that chainsieve speaks: that of Core 28 (`node/protocol_version.h`,
/// `PROTOCOL_VERSION`). What later versions add starts with a message of its own, so that a peer
/// that knows less loses nothing.
pub const PROTOCOL_VERSION: u32 = 70_016;
/// The least version that a node talks to (`node/protocol_version.h`, `MIN_PEER_PROTO_VERSION`).
pub const MIN_PEER_PROTO_VERSION: u32 = 31_800;
/// The first version with Bloom filters (BIP37): the least that a light client can use.
pub const BIP37_VERSION: u32 = 70_001;
/// The first version with `feefilter` (BIP133; `node/protocol_version.h`, `FEEFILTER_VERSION`).
pub const FEEFILTER_VERSION: u32 = 70_013;

/// The user agent of chainsieve, in the form of BIP14.
pub const USER_AGENT: &str = concat!("/chainsieve:", env!("CARGO_PKG_VERSION"), "/");
/// The longest user agent of a `version` message, in bytes (`net.h`, `MAX_SUBVERSION_LENGTH`).
pub const MAX_SUBVERSION_LENGTH: usize = 256;
/// The most hashes of a block locator (`net_processing.cpp`, `MAX_LOCATOR_SZ`).
pub const MAX_LOCATOR_SIZE: usize = 101;
/// The inventory type of a block filtered by the peer's Bloom filter (BIP37; `protocol.h`,
/// `MSG_FILTERED_BLOCK`), for which [`bitcoin`] has no name.
pub const MSG_FILTERED_BLOCK: u32 = 3;

/// For how long a node answers for a block that left the active chain, in seconds between the
/// block's time and the tip's (`net_processing.cpp`, `STALE_RELAY_AGE_LIMIT`): 30 days. Older
/// ones could tell one node from another.
pub const STALE_RELAY_AGE_LIMIT: u32 = 30 * 24 * 60 * 60;
/// The timeout from the connection to `verack` (`net.h`, `DEFAULT_PEER_CONNECT_TIMEOUT`).
pub const PEER_CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
/// The time between two pings (`net_processing.cpp`, `PING_INTERVAL`).
pub const PING_INTERVAL: Duration = Duration::from_mins(2);
/// The timeout without any message, or without the answer to a ping (`net.h`,
/// `TIMEOUT_INTERVAL`).
pub const TIMEOUT_INTERVAL: Duration = Duration::from_mins(20);

/// The TCP port on which nodes of `network` listen, unless told otherwise
/// (`kernel/chainparams.cpp`, `nDefaultPort`).
pub const fn default_port(network: Network) -> u16 {
    match network {
        Network::Bitcoin => 8333,
        Network::Testnet => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
    }
}
