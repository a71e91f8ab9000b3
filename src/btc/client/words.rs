//! What updates say, in words, and the names that programs tell them apart by.

use core::fmt;
use std::string::String;
use std::vec::Vec;

use super::{Evidence, Finding, Protocol, Why};
use crate::btc::headers::BlockAt;
use crate::btc::peer::service_names;

impl Protocol {
    /// Its name: `bip157`, `bip37` or `headers_only`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bip157 => "bip157",
            Self::Bip37 => "bip37",
            Self::HeadersOnly => "headers_only",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Evidence {
    /// Its name: `block`, `merkle_proof` or `unconfirmed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::MerkleProof => "merkle_proof",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "in the block",
            Self::MerkleProof => "merkle proof",
            Self::Unconfirmed => "unconfirmed",
        })
    }
}

impl Why {
    /// Its name: `matched`, `disputed`, `spot_audit`, `filtered_block` or `relayed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::Disputed => "disputed",
            Self::SpotAudit => "spot_audit",
            Self::FilteredBlock => "filtered_block",
            Self::Relayed => "relayed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Finding {
    /// The name of its kind: that of the variant in lower case, its words joined by underscores.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disputed { .. } => "disputed",
            Self::Undecided(_) => "undecided",
            Self::Suspicious(_) => "suspicious",
            Self::BlockUnavailable(_) => "block_unavailable",
            Self::FirstUnknown(_) => "first_unknown",
            Self::NoneSeen(_) => "none_seen",
            Self::Refused(..) => "refused",
            Self::UnconfirmedLimit(_) => "unconfirmed_limit",
            Self::CoinLimit(_) => "coin_limit",
            Self::Privacy(_) => "privacy",
            Self::NoFilter(_) => "no_filter",
            Self::FilterRefreshed(_) => "filter_refreshed",
            Self::LacksService(..) => "lacks_service",
            Self::HeadersCut(_) => "headers_cut",
            Self::ItemRefused(..) => "item_refused",
            Self::WalletRefused(_) => "wallet_refused",
            Self::StartedOver(_) => "started_over",
            Self::ClockBehind => "clock_behind",
        }
    }

    /// The block that it is about, if it is about one.
    pub fn at(&self) -> Option<BlockAt> {
        match self {
            Self::Disputed { at, .. }
            | Self::Undecided(at)
            | Self::Suspicious(at)
            | Self::BlockUnavailable(at)
            | Self::NoneSeen(at)
            | Self::Refused(at, _) => Some(*at),
            _ => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disputed { at, claims } => {
                let peers = |peers: &[String]| match peers {
                    [] => String::from("earlier peers"),
                    peers => peers.join(", "),
                };
                let claims =
                    claims.iter().map(|(hash, by)| std::format!("{hash} by {}", peers(by)));
                let claims = claims.collect::<Vec<_>>().join("; ");
                write!(f, "{at}: peers claim different filters: {claims}")
            }
            Self::Undecided(at) => write!(
                f,
                "{at}: the block does not show which filter is its own; it was scanned itself"
            ),
            Self::Suspicious(at) => {
                write!(
                    f,
                    "{at}: the filter that all peers claim looks wrong; the block was scanned"
                )
            }
            Self::BlockUnavailable(at) => write!(f, "{at}: no peer delivers all of it"),
            Self::FirstUnknown(first) => {
                write!(f, "the headers begin above height {first}, the first that is wanted")
            }
            Self::NoneSeen(at) => write!(
                f,
                "{at}: its filter matches, and no transaction is seen to concern what is watched; \
                 an input that shows no script may spend a coin from before"
            ),
            Self::Refused(at, txid) => write!(
                f,
                "{at}: transaction {txid} of 64 bytes is passed over: it may be an inner node of \
                 the merkle tree"
            ),
            Self::UnconfirmedLimit(limit) => write!(
                f,
                "{limit} unconfirmed transactions at most are kept, and 16 MB of them: further ones \
                 are passed over until a block has them"
            ),
            Self::CoinLimit(count) => {
                write!(f, "{count} coins are over the limit: their spends are not seen")
            }
            Self::Privacy(report) => write!(f, "filter: {report}"),
            Self::NoFilter(error) => write!(f, "no filter has room for what is watched: {error}"),
            Self::FilterRefreshed(reason) => write!(f, "the filter is loaded afresh: {reason}"),
            Self::LacksService(peer, missing) => {
                let missing = service_names(*missing).join("|");
                write!(f, "peer {peer}: offers no {missing}: it is asked for headers only")
            }
            Self::HeadersCut(bytes) => {
                write!(f, "headers: {bytes} bytes that were not written whole are cut off")
            }
            Self::ItemRefused(wallet, error) => write!(f, "wallet {wallet}: {error}"),
            Self::WalletRefused(id) => write!(
                f,
                "wallet {:?}: an id has 1 to {} bytes, the first not zero",
                id.0,
                super::WalletId::MAX_BYTES
            ),
            Self::StartedOver(error) => {
                write!(f, "what was kept of the scan is of no use: {error}: it starts over")
            }
            Self::ClockBehind => f.write_str(
                "the headers of most peers are more than two hours ahead of the clock: if it is \
                 wrong, set it",
            ),
        }
    }
}
