//! The members of a block in JSON that an audit needs besides its header.

use std::borrow::Cow;
use std::fmt;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::HeaderView;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::serve::ethereum::{HEADER_MEMBERS, header_json};

/// Members of a block that are not part of its header.
const BESIDE: [&str; 5] = ["transactions", "uncles", "size", "withdrawals", "totalDifficulty"];

/// Members of a header that some nodes name in another way, and Ethereum's names of them.
const ALIASES: [(&str, &str); 2] = [("ommersHash", "sha3Uncles"), ("beneficiary", "miner")];

/// Maximum number of unknown members that are named.
const MOST_NAMES: usize = 8;
/// Maximum length of the name of an unknown member.
const LONGEST_NAME: usize = 60;
/// Maximum length of a member of a header in JSON: several times a filter of logs, the longest.
const LONGEST_MEMBER: usize = 4_096;

/// The members of a block whose header cannot be hashed.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The claimed hash.
    pub(super) hash: Option<B256>,
    /// Members of the header, by Ethereum's names.
    header: Vec<(&'static str, String)>,
    /// Names of unknown members.
    pub(super) unknown: Vec<String>,
}

impl Members {
    pub(super) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the first member that differs from this header: its name, the value that the header
    /// has, and the claimed one.
    pub(super) fn differs_from(
        &self,
        header: &HeaderView<'_>,
    ) -> Option<(&'static str, String, String)> {
        let right = header_json(header);
        self.header.iter().find_map(|(name, claimed)| {
            // A member that the library cannot read from the header is not compared.
            let right = right.get(name).and_then(Value::as_str)?;
            // Some nodes write leading zeros of numbers.
            let digits = |hex: &str| {
                hex.trim_start_matches("0x").trim_start_matches('0').to_ascii_lowercase()
            };
            let same = digits(right) == digits(claimed);
            (!same).then(|| (*name, right.to_owned(), claimed.clone()))
        })
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfBlock)
    }
}

struct OfBlock;

impl<'de> Visitor<'de> for OfBlock {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Members, A::Error> {
        let mut members = Members::default();
        while let Some(name) = object.next_key::<Cow<'de, str>>()? {
            let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
            let known = HEADER_MEMBERS
                .iter()
                .map(|(known, _)| *known)
                .find(|known| *known == name)
                .or(alias);
            if name == "hash" {
                members.hash = object.next_value()?;
            } else if let Some(known) = known {
                let Some(value) = object.next_value::<Option<String>>()? else { continue };
                if value.len() > LONGEST_MEMBER || members.header.len() > HEADER_MEMBERS.len() {
                    return Err(A::Error::custom("no header of a block"));
                }
                members.header.push((known, value));
            } else {
                if !BESIDE.contains(&name.as_ref()) && members.unknown.len() < MOST_NAMES {
                    // A part of a longer name could be a part of a secret.
                    let is_long = name.len() > LONGEST_NAME;
                    let long = || format!("a name of {} bytes", name.len());
                    members.unknown.push(if is_long { long() } else { format!("{name:?}") });
                }
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

/// The hashes of a block's transactions, in order.
#[derive(serde::Deserialize)]
pub(super) struct Transactions {
    pub(super) transactions: Vec<B256>,
}

/// The claimed hash of a block.
#[derive(serde::Deserialize)]
pub(super) struct Hash {
    pub(super) hash: B256,
}
