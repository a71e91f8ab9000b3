//! What BIP37 and BIP157 share: the number of a connection, what an answer is worth, and the names
//! of services.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::p2p::ServiceFlags;

/// A connection to a peer, numbered by the caller. A peer that connects again gets a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// The evidence behind a "no" about a block, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Grade {
    /// One peer claims it, and no other peer was heard.
    OnePeer,
    /// This many connections claim it and no peer that was heard differs. All of them may belong
    /// to one party.
    Peers(u32),
    /// A filter header that the caller trusts commits to it.
    Checkpoint,
    /// The filter equals the one built from the block, with all previous outputs proven.
    Audited,
    /// The block itself was scanned; no filter is needed.
    Scanned,
}

impl Grade {
    /// Its name, without the number of peers: `one_peer`, `peers`, `checkpoint`, `audited` or
    /// `scanned`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnePeer => "one_peer",
            Self::Peers(_) => "peers",
            Self::Checkpoint => "checkpoint",
            Self::Audited => "audited",
            Self::Scanned => "scanned",
        }
    }

    /// How many connections claim it, where that is all the evidence.
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
            Self::OnePeer => f.write_str("one peer's word"),
            Self::Peers(peers) => write!(f, "{peers} peers agree"),
            Self::Checkpoint => f.write_str("committed to by a checkpoint"),
            Self::Audited => f.write_str("audited against the block"),
            Self::Scanned => f.write_str("the block itself was scanned"),
        }
    }
}

/// The names of the services that matter to a light client.
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
