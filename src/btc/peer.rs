//! Types that BIP37 and BIP157 share: connection ids, grades of evidence, and names of services.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::p2p::ServiceFlags;

/// Id of a connection to a peer, assigned by the caller.
///
/// A peer that connects again gets a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerId(
    /// The number of the connection.
    pub u64,
);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The evidence that a block does not concern the wallet, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "grade", rename_all = "snake_case")
)]
pub enum Grade {
    /// One peer claims the block's filter, and no other peer has made a claim about the filter.
    OnePeer,
    /// This number of connections claim the same filter, and no peer has claimed a different
    /// filter.
    ///
    /// All of these connections may belong to one party. After a restart, connections of the
    /// earlier run are not added to those of the current run, because both may lead to the same
    /// peers.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::peers"))]
    Peers(u32),
    /// A filter header that the caller trusts (a checkpoint) commits to the filter.
    Checkpoint,
    /// The filter equals the filter built from the block, with all previous outputs proven.
    Audited,
    /// The block itself was scanned, so that no filter is needed.
    Scanned,
}

impl Grade {
    /// Returns the name of the grade, without the number of peers: `one_peer`, `peers`,
    /// `checkpoint`, `audited` or `scanned`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnePeer => "one_peer",
            Self::Peers(_) => "peers",
            Self::Checkpoint => "checkpoint",
            Self::Audited => "audited",
            Self::Scanned => "scanned",
        }
    }

    /// Returns the number of connections that claim the filter, or `None` for a grade that rests on
    /// stronger evidence.
    pub fn peers(self) -> Option<u32> {
        match self {
            Self::OnePeer => Some(1),
            Self::Peers(peers) => Some(peers),
            Self::Checkpoint | Self::Audited | Self::Scanned => None,
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnePeer => f.write_str("claimed by one peer"),
            Self::Peers(peers) => write!(f, "{peers} peers agree"),
            Self::Checkpoint => f.write_str("committed to by a checkpoint"),
            Self::Audited => f.write_str("audited against the block"),
            Self::Scanned => f.write_str("the block itself was scanned"),
        }
    }
}

/// Returns the names of those services in `services` that matter to a light client.
///
/// The names are `network`, `bloom`, `witness`, `compact_filters` and `network_limited`, in the
/// order of their bits.
pub fn service_names(services: ServiceFlags) -> Vec<&'static str> {
    let names = [
        (ServiceFlags::NETWORK, "network"),
        (ServiceFlags::BLOOM, "bloom"),
        (ServiceFlags::WITNESS, "witness"),
        (ServiceFlags::COMPACT_FILTERS, "compact_filters"),
        (ServiceFlags::NETWORK_LIMITED, "network_limited"),
    ];
    names.into_iter().filter(|(flag, _)| services.has(*flag)).map(|(_, name)| name).collect()
}
