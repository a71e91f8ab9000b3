//! Text of findings and of other values in updates, the fixed names that programs can compare, and
//! JSON forms.

use core::fmt;
use std::string::String;
use std::vec::Vec;

use super::{Finding, HitReason, InclusionEvidence, Protocol};
use crate::btc::headers::BlockAt;
use crate::btc::names::names;
use crate::btc::peer::service_names;

names! { Protocol, "a protocol": Bip157 = "bip157", Bip37 = "bip37", HeadersOnly = "headers_only" }

names! {
    InclusionEvidence, "a kind of evidence":
    Block = "block",
    MerkleProof = "merkle_proof",
    Unconfirmed = "unconfirmed",
}

impl InclusionEvidence {
    /// Returns words for people, unlike the fixed [`name`](Self::name).
    pub fn describe(self) -> &'static str {
        match self {
            Self::Block => "in the block",
            Self::MerkleProof => "merkle proof",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

names! {
    HitReason, "a reason":
    Matched = "matched",
    Disputed = "disputed",
    SpotAudit = "spot_audit",
    FilteredBlock = "filtered_block",
    Relayed = "relayed",
}

impl Finding {
    /// Returns the fixed name of the kind of finding: the name of the variant in snake case.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disputed { .. } => "disputed",
            Self::FalseFilter { .. } => "false_filter",
            Self::Undecided(_) => "undecided",
            Self::Suspicious(_) => "suspicious",
            Self::BlockUnavailable(_) => "block_unavailable",
            Self::FirstUnknown(_) => "first_unknown",
            Self::NoneSeen(_) => "none_seen",
            Self::Refused { .. } => "refused",
            Self::UnconfirmedLimit(_) => "unconfirmed_limit",
            Self::CoinLimit(_) => "coin_limit",
            Self::Privacy(_) => "privacy",
            Self::NoFilter(_) => "no_filter",
            Self::FilterRefreshed(_) => "filter_refreshed",
            Self::LacksService { .. } => "lacks_service",
            Self::NotReady { .. } => "not_ready",
            Self::HeadersCut(_) => "headers_cut",
            Self::ItemRefused { .. } => "item_refused",
            Self::WalletRefused(_) => "wallet_refused",
            Self::FurtherIndices { .. } => "further_indices",
            Self::JournalDamaged(_) => "journal_damaged",
            Self::StartedOver(_) => "started_over",
            Self::ClockBehind => "clock_behind",
            Self::StaleTip { .. } => "stale_tip",
        }
    }

    /// Returns the block that the finding concerns; `None` if it concerns no single block.
    pub fn at(&self) -> Option<BlockAt> {
        match self {
            Self::Disputed { at, .. }
            | Self::Undecided(at)
            | Self::Suspicious(at)
            | Self::BlockUnavailable(at)
            | Self::NoneSeen(at)
            | Self::Refused { at, .. } => Some(*at),
            Self::FalseFilter { filter, .. } => Some(filter.at),
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
            Self::FalseFilter { peer, filter } => write!(f, "peer {peer}: {filter}"),
            Self::Undecided(at) => write!(
                f,
                "{at}: the block does not decide which filter is correct; the block was scanned"
            ),
            Self::Suspicious(at) => {
                write!(
                    f,
                    "{at}: the filter that all peers claim seems wrong; the block was scanned"
                )
            }
            Self::BlockUnavailable(at) => write!(f, "{at}: no peer delivers the complete block"),
            Self::FirstUnknown(first) => {
                write!(f, "the headers begin above height {first}, the first height to scan")
            }
            Self::NoneSeen(at) => write!(
                f,
                "{at}: the filter matches, but no transaction is seen to concern a wallet; an \
                 input that reveals no script may spend an unknown earlier coin"
            ),
            Self::Refused { at, txid } => write!(
                f,
                "{at}: transaction {txid} of 64 bytes is ignored: it may be an inner node of the \
                 merkle tree"
            ),
            Self::UnconfirmedLimit(limit) => write!(
                f,
                "the limit of {limit} unconfirmed transactions or 16 MiB is reached: further ones \
                 are ignored until a block contains them"
            ),
            Self::CoinLimit(count) => {
                write!(f, "{count} coins exceed the limit: their spends are not detected")
            }
            Self::Privacy(report) => write!(f, "filter: {report}"),
            Self::NoFilter(error) => write!(f, "no filter fits the watched elements: {error}"),
            Self::FilterRefreshed(reason) => write!(f, "the peer gets a new filter: {reason}"),
            Self::LacksService { peer, services } => {
                let missing = service_names(*services).join("|");
                write!(f, "peer {peer}: offers no {missing}: the peer is used for headers only")
            }
            Self::NotReady { peer, height } => write!(
                f,
                "peer {peer}: claims height {height} but sends no headers: it is probably in its \
                 initial download"
            ),
            Self::HeadersCut(bytes) => {
                write!(f, "headers: {bytes} invalid bytes at the end of the file are cut off")
            }
            Self::ItemRefused { wallet, error } => write!(f, "wallet {wallet}: {error}"),
            Self::WalletRefused(id) => write!(
                f,
                "wallet {:?}: an id has 1 to {} bytes, the first not zero",
                id.0,
                super::WalletId::MAX_BYTES
            ),
            Self::FurtherIndices { wallet, item } => write!(
                f,
                "wallet {wallet}: item {item}: an earlier run has searched for other indices of this \
                 descriptor: the further ones are searched for from the birthday on"
            ),
            Self::JournalDamaged(bytes) => write!(
                f,
                "the journal of {bytes} bytes was damaged: a copy is kept, all blocks are searched \
                 again, and hits may be reported again"
            ),
            Self::StartedOver(error) => {
                write!(f, "the scan starts over: {error}")
            }
            Self::ClockBehind => f.write_str(
                "the headers of most peers are more than two hours ahead of the clock: correct the \
                 clock if it is wrong",
            ),
            Self::StaleTip { seconds } => write!(
                f,
                "no new block for {} minutes: if this lasts, the peers withhold blocks or the \
                 network is down",
                seconds / 60
            ),
        }
    }
}

/// JSON forms of updates: see [`crate::btc::json`].
#[cfg(feature = "serde")]
pub(super) mod json {
    use core::ops::RangeInclusive;
    use std::string::String;
    use std::vec::Vec;

    use bitcoin::bip158::FilterHash;
    use bitcoin::{OutPoint, PublicKey, ScriptBuf};

    use super::super::{Item, WalletId, WatchId};
    use crate::btc::headers::BlockAt;
    use crate::btc::json::members;

    members! {
        at: BlockAt,
        bytes: u64,
        count: usize,
        height: u32,
        limit: usize,
        peer: String,
        seconds: u32,
        wallet: WalletId,
        watched: WatchId,
    }

    /// Services as one number, whose bits are the services.
    pub(in crate::btc) mod services {
        use bitcoin::p2p::ServiceFlags;

        #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
        pub(in crate::btc) fn serialize<S: serde::Serializer>(
            services: &ServiceFlags,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(services.to_u64())
        }

        pub(in crate::btc) fn deserialize<'de, D: serde::Deserializer<'de>>(
            deserializer: D,
        ) -> Result<ServiceFlags, D::Error> {
            let bits: u64 = serde::Deserialize::deserialize(deserializer)?;
            Ok(bits.into())
        }
    }

    /// Claimed filters, each with the peers that claim it.
    pub(in crate::btc) mod claims {
        use super::{FilterHash, String, Vec};

        #[derive(serde::Serialize)]
        struct Borrowed<'a> {
            filter_hash: &'a FilterHash,
            peers: &'a [String],
        }

        #[derive(serde::Deserialize)]
        struct Owned {
            filter_hash: FilterHash,
            peers: Vec<String>,
        }

        pub(in crate::btc) fn serialize<S: serde::Serializer>(
            claims: &[(FilterHash, Vec<String>)],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            let claims = claims.iter().map(|(filter_hash, peers)| Borrowed { filter_hash, peers });
            serializer.collect_seq(claims)
        }

        pub(in crate::btc) fn deserialize<'de, D: serde::Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Vec<(FilterHash, Vec<String>)>, D::Error> {
            let claims: Vec<Owned> = serde::Deserialize::deserialize(deserializer)?;
            Ok(claims.into_iter().map(|claim| (claim.filter_hash, claim.peers)).collect())
        }
    }

    /// An [`Item`] whose fields have names, since serde refuses a tag beside fields without names.
    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(tag = "item", rename_all = "snake_case")]
    pub(in crate::btc::client) enum ItemForm {
        Script { script: ScriptBuf },
        Key { key: PublicKey },
        Coin { outpoint: OutPoint, script: Option<ScriptBuf> },
        Descriptor { descriptor: String, range: RangeInclusive<u32> },
    }

    impl From<Item> for ItemForm {
        fn from(item: Item) -> Self {
            match item {
                Item::Script(script) => Self::Script { script },
                Item::Key(key) => Self::Key { key },
                Item::Coin { outpoint, script } => Self::Coin { outpoint, script },
                Item::Descriptor(descriptor, range) => Self::Descriptor { descriptor, range },
            }
        }
    }

    impl From<ItemForm> for Item {
        fn from(form: ItemForm) -> Self {
            match form {
                ItemForm::Script { script } => Self::Script(script),
                ItemForm::Key { key } => Self::Key(key),
                ItemForm::Coin { outpoint, script } => Self::Coin { outpoint, script },
                ItemForm::Descriptor { descriptor, range } => Self::Descriptor(descriptor, range),
            }
        }
    }
}
