//! Reading and writing of certificates as JSON.

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Certificate, CertificateError, FORMAT, VERSION};
use crate::eth::json::{self, Prefix, excerpt};
use crate::eth::log_query::{LogQuery, QueryError, Semantics, read_query};

/// The members that every version of the format has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

impl Head {
    fn check(&self) -> Result<(), CertificateError> {
        if self.format != FORMAT {
            return Err(CertificateError::Format(excerpt(&self.format)));
        }
        if self.version != VERSION {
            return Err(CertificateError::Version(self.version));
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    format: String,
    version: u64,
    profile: String,
    chain: Chain,
    /// The error of an invalid query is kept, so that `read` can return it as
    /// [`CertificateError::Query`].
    #[serde(serialize_with = "write_query", deserialize_with = "read_query")]
    query: Result<LogQuery, QueryError>,
    semantics: String,
    result: ResultOf,
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipts: Option<Vec<ReceiptsOf>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Chain {
    parent_hash: String,
    first: String,
    last: String,
    last_hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultOf {
    logs: String,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    blocks: String,
    examined: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiptsOf {
    block_hash: String,
    receipts: Vec<String>,
}

fn write_query<S: Serializer>(
    query: &Result<LogQuery, QueryError>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    query.as_ref().map_err(serde::ser::Error::custom)?.serialize(serializer)
}

fn written(list: &[Bytes]) -> Vec<String> {
    list.iter().map(Bytes::to_string).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
fn not_json(error: serde_json::Error) -> CertificateError {
    CertificateError::Json(json::message(&error))
}

impl Certificate {
    /// Returns the certificate as JSON, in the [format](super) of version 1.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, lists and one number")
    }

    /// Parses a certificate. The certificate's claim is not verified: use [`Certificate::verify`].
    ///
    /// # Errors
    /// Returns a [`CertificateError`] that names the invalid member.
    pub fn from_json(text: &str) -> Result<Self, CertificateError> {
        // Another version may have other members. The version is checked first, so that the error
        // names the version and not an unknown member.
        serde_json::from_str::<Head>(text).map_err(not_json)?.check()?;
        serde_json::from_str::<Wire>(text).map_err(not_json)?.read()
    }
}

impl Serialize for Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = |number: u64| format!("{number:#x}");
        let receipts = self.receipts.iter().map(|(block, encodings)| ReceiptsOf {
            block_hash: block.to_string(),
            receipts: written(encodings),
        });
        let wire = Wire {
            format: FORMAT.to_owned(),
            version: VERSION,
            profile: self.profile.clone(),
            chain: Chain {
                parent_hash: self.parent_hash.to_string(),
                first: number(self.first),
                last: number(self.last),
                last_hash: self.last_hash.to_string(),
            },
            query: Ok(self.query.clone()),
            semantics: self.semantics.to_string(),
            result: ResultOf { logs: number(self.logs), digest: self.digest.to_string() },
            counts: Counts { blocks: number(self.blocks), examined: number(self.examined) },
            headers: self.headers.as_deref().map(written),
            receipts: (!self.receipts.is_empty()).then(|| receipts.collect()),
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Certificate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Wire::deserialize(deserializer)?.read().map_err(D::Error::custom)
    }
}

impl Wire {
    fn read(self) -> Result<Certificate, CertificateError> {
        let Self { format, version, .. } = self;
        Head { format, version }.check()?;
        let semantics = match self.semantics.as_str() {
            "geth" => Semantics::Geth,
            "alloy" => Semantics::Alloy,
            other => return Err(CertificateError::Semantics(excerpt(other))),
        };
        let named = |member| move |problem| CertificateError::Value { member, problem };
        let hash = |text: String, member| {
            let hash = json::fixed_bytes(&text, Prefix::Required, "a hash");
            hash.map(B256::new).map_err(named(member))
        };
        let number = |text: String, member| json::number(&text, false).map_err(named(member));
        let each = |list: Vec<String>, member| {
            let list = list.into_iter().map(|text| json::bytes(&text).map(Bytes::from));
            list.collect::<Result<Vec<_>, _>>().map_err(named(member))
        };
        let headers = self.headers.map(|headers| each(headers, "headers")).transpose()?;
        let mut receipts = BTreeMap::new();
        for block in self.receipts.unwrap_or_default() {
            let block_hash = hash(block.block_hash, "receipts.blockHash")?;
            let encodings = each(block.receipts, "receipts.receipts")?;
            if receipts.insert(block_hash, encodings).is_some() {
                return Err(CertificateError::ReceiptsTwice(block_hash));
            }
        }
        let Chain { parent_hash, first, last, last_hash } = self.chain;
        Ok(Certificate {
            profile: self.profile,
            parent_hash: hash(parent_hash, "chain.parentHash")?,
            first: number(first, "chain.first")?,
            last: number(last, "chain.last")?,
            last_hash: hash(last_hash, "chain.lastHash")?,
            query: self.query.map_err(CertificateError::Query)?,
            semantics,
            logs: number(self.result.logs, "result.logs")?,
            digest: hash(self.result.digest, "result.digest")?,
            blocks: number(self.counts.blocks, "counts.blocks")?,
            examined: number(self.counts.examined, "counts.examined")?,
            headers,
            receipts,
        })
    }
}
