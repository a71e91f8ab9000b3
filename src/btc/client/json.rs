//! JSON forms of updates: see [`crate::btc::json`].

use core::ops::RangeInclusive;
use std::string::String;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::{OutPoint, PublicKey, ScriptBuf};

use super::{Item, WalletId, WatchId};
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
pub(super) enum ItemForm {
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
