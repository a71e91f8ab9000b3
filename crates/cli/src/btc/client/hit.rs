//! A transaction that was found, as a line for people and as JSON for programs.

use chainsieve::bitcoin::{Address, Amount, BlockHash, Network, OutPoint, Txid};
use serde_json::{Value, json};

use super::wallet::Owner;
use crate::output::{count, grouped};

/// A transaction that concerns what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Height, block and position; `None` while unconfirmed.
    pub(crate) place: Option<(u32, BlockHash, u32)>,
    pub(crate) txid: Txid,
    pub(crate) received: Vec<Received>,
    pub(crate) spent: Vec<Spent>,
    pub(crate) reason: &'static str,
    pub(crate) evidence: Evidence,
    /// The address of the peer that it came from.
    pub(crate) peer: Option<String>,
}

/// An output that pays to what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) vout: u32,
    pub(crate) value: Amount,
    pub(crate) owner: Owner,
}

/// An input that spends what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) vin: u32,
    pub(crate) outpoint: OutPoint,
    pub(crate) owner: Option<Owner>,
    /// The coin is known; else the input shows a watched key or script, which anyone who knows it
    /// can do.
    pub(crate) certain: bool,
}

/// What shows that a transaction is in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The whole block, bound to its header.
    Block,
    /// A path to the header's merkle root.
    MerkleProof,
    /// Nothing: it is in no block.
    Unconfirmed,
}

impl Evidence {
    fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::MerkleProof => "merkle_proof",
            Self::Unconfirmed => "unconfirmed",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Block => "in the block",
            Self::MerkleProof => "merkle proof",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

impl Hit {
    /// As JSON, without what changes with time.
    pub(crate) fn json(&self, network: Network) -> Value {
        let received = self.received.iter().map(|received| {
            let Owner { item, path, index, script, .. } = &received.owner;
            let address = script.as_ref().and_then(|script| {
                Address::from_script(script, network).ok().map(|address| address.to_string())
            });
            json!({
                "vout": received.vout,
                "satoshis": received.value.to_sat(),
                "script": script.as_ref().map(hex::encode),
                "address": address,
                "item": item,
                "path": path,
                "index": index,
            })
        });
        let spent = self.spent.iter().map(|spent| {
            let owner = spent.owner.as_ref();
            json!({
                "vin": spent.vin,
                "outpoint": spent.outpoint.to_string(),
                "item": owner.map(|owner| &owner.item),
                "script": owner.and_then(|owner| owner.script.as_ref()).map(hex::encode),
                "certain": spent.certain,
            })
        });
        json!({
            "event": "hit",
            "height": self.place.map(|(height, ..)| height),
            "block": self.place.map(|(_, block, _)| block.to_string()),
            "index": self.place.map(|(.., index)| index),
            "txid": self.txid.to_string(),
            "received": received.collect::<Vec<_>>(),
            "spent": spent.collect::<Vec<_>>(),
            "evidence": self.evidence.name(),
            "reason": self.reason,
            "peer": self.peer,
        })
    }

    /// One line for people.
    pub(crate) fn words(&self, confirmations: u32, again: bool) -> String {
        let place = match self.place {
            Some((height, block, _)) => format!("height {}  {block}", grouped(height.into())),
            None => "unconfirmed".into(),
        };
        let received = self.received.iter().map(|received| {
            let Received { vout, value, owner } = received;
            format!("output {vout} pays {value} to {}", owner.words)
        });
        let spent = self.spent.iter().map(|spent| {
            let Spent { vin, outpoint, owner, certain } = spent;
            let verb = if *certain { "spends" } else { "looks like it spends" };
            let whose = owner.as_ref().map(|owner| format!(" of {}", owner.words));
            format!("input {vin} {verb} {outpoint}{}", whose.unwrap_or_default())
        });
        let what = received.chain(spent).collect::<Vec<_>>().join(", ");
        let evidence = match self.place {
            Some(_) => {
                let confirmations = count(confirmations as usize, "confirmation");
                format!("{}, {confirmations}, {}", self.evidence.words(), self.reason)
            }
            None => format!("relayed by {}", self.peer.as_deref().unwrap_or("a peer")),
        };
        let again = if again { "  (again)" } else { "" };
        format!("{place}  tx {}  {what}  [{evidence}]{again}\n", self.txid)
    }
}
