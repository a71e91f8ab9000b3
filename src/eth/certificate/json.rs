//! Certificates as JSON.

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::Display;

use alloy_primitives::{B256, Bytes, U64};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Certificate, FORMAT, VERSION};
use crate::eth::json::{self, Prefix, ValueProblem, excerpt};
use crate::eth::log_query::{LogQuery, QueryJsonError, Semantics, read_query};

/// Why a text is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateJsonError {
    /// No JSON, or a member is missing, unknown, twice there or of another kind; the text names it.
    #[error("{0}")]
    Json(String),
    /// Another format.
    #[error("the format is {0:?}, not {FORMAT:?}")]
    Format(String),
    /// A version that is not known here.
    #[error("version {0} of the format, this reads version {VERSION}")]
    Version(u64),
    /// A value that can't stand where it does.
    #[error("{member}: {problem}")]
    Value {
        /// The member.
        member: &'static str,
        /// What is wrong with its value.
        problem: ValueProblem,
    },
    /// The query is none.
    #[error("query: {0}")]
    Query(QueryJsonError),
    /// Neither geth's nor alloy's rules.
    #[error("semantics is {0:?}, neither \"geth\" nor \"alloy\"")]
    Semantics(String),
    /// The receipts of a block come twice.
    #[error("receipts of block {0} come twice")]
    ReceiptsTwice(B256),
}

/// What every version of the format has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

impl Head {
    fn check(&self) -> Result<(), CertificateJsonError> {
        if self.format != FORMAT {
            return Err(CertificateJsonError::Format(excerpt(&self.format)));
        }
        if self.version != VERSION {
            return Err(CertificateJsonError::Version(self.version));
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
    query: Value<LogQuery, QueryJsonError>,
    semantics: String,
    result: ResultOf,
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<Value<Bytes>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipts: Option<Vec<ReceiptsOf>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Chain {
    parent_hash: Value<B256>,
    first: Value<U64>,
    last: Value<U64>,
    last_hash: Value<B256>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultOf {
    logs: Value<U64>,
    digest: Value<B256>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    blocks: Value<U64>,
    examined: Value<U64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiptsOf {
    block_hash: Value<B256>,
    receipts: Vec<Value<Bytes>>,
}

/// The value of a member. What is wrong with it is kept, for an error that names the member.
struct Value<T, P = ValueProblem>(Result<T, P>);

impl<T> Value<T> {
    fn named(self, member: &'static str) -> Result<T, CertificateJsonError> {
        self.0.map_err(|problem| CertificateJsonError::Value { member, problem })
    }
}

fn each(member: &'static str, list: Vec<Value<Bytes>>) -> Result<Vec<Bytes>, CertificateJsonError> {
    list.into_iter().map(|value| value.named(member)).collect()
}

fn values(list: &[Bytes]) -> Vec<Value<Bytes>> {
    list.iter().map(|bytes| Value(Ok(bytes.clone()))).collect()
}

/// A value that is written in hex.
trait Hex: Sized {
    fn read(text: &str) -> Result<Self, ValueProblem>;
}

impl Hex for B256 {
    fn read(text: &str) -> Result<Self, ValueProblem> {
        json::fixed_bytes(text, Prefix::Required, "a hash").map(Self::new)
    }
}

impl Hex for U64 {
    fn read(text: &str) -> Result<Self, ValueProblem> {
        json::number(text, false).map(Self::from)
    }
}

impl Hex for Bytes {
    fn read(text: &str) -> Result<Self, ValueProblem> {
        json::bytes(text).map(Self::from)
    }
}

impl<T: Serialize, P: Display> Serialize for Value<T, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de, T: Hex> Deserialize<'de> for Value<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(T::read(&text)))
    }
}

impl<'de> Deserialize<'de> for Value<LogQuery, QueryJsonError> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_query(deserializer).map(Self)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
fn not_json(error: serde_json::Error) -> CertificateJsonError {
    CertificateJsonError::Json(json::message(&error))
}

impl Certificate {
    /// The certificate as JSON, in the [form](super) of version 1.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, lists and one number")
    }

    /// Reads a certificate. Nothing of it is verified by being read.
    ///
    /// # Errors
    /// [`CertificateJsonError`] names the member that is wrong.
    pub fn from_json(text: &str) -> Result<Self, CertificateJsonError> {
        // Another version may have other members: it is told apart before they are refused.
        serde_json::from_str::<Head>(text).map_err(not_json)?.check()?;
        serde_json::from_str::<Wire>(text).map_err(not_json)?.read()
    }
}

impl Serialize for Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (hash, number) = (|hash| Value(Ok(hash)), |number| Value(Ok(U64::from(number))));
        let receipts = self.receipts.iter().map(|(block, encodings)| ReceiptsOf {
            block_hash: hash(*block),
            receipts: values(encodings),
        });
        let wire = Wire {
            format: FORMAT.to_owned(),
            version: VERSION,
            profile: self.profile.clone(),
            chain: Chain {
                parent_hash: hash(self.parent_hash),
                first: number(self.first),
                last: number(self.last),
                last_hash: hash(self.last_hash),
            },
            query: Value(Ok(self.query.clone())),
            semantics: self.semantics.to_string(),
            result: ResultOf { logs: number(self.logs), digest: hash(self.digest) },
            counts: Counts { blocks: number(self.blocks), examined: number(self.examined) },
            headers: self.headers.as_deref().map(values),
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
    fn read(self) -> Result<Certificate, CertificateJsonError> {
        let Self { format, version, .. } = self;
        Head { format, version }.check()?;
        let semantics = match self.semantics.as_str() {
            "geth" => Semantics::Geth,
            "alloy" => Semantics::Alloy,
            other => return Err(CertificateJsonError::Semantics(excerpt(other))),
        };
        let headers = self.headers.map(|headers| each("headers", headers)).transpose()?;
        let mut receipts = BTreeMap::new();
        for block in self.receipts.unwrap_or_default() {
            let hash = block.block_hash.named("receipts.blockHash")?;
            let encodings = each("receipts.receipts", block.receipts)?;
            if receipts.insert(hash, encodings).is_some() {
                return Err(CertificateJsonError::ReceiptsTwice(hash));
            }
        }
        let Chain { parent_hash, first, last, last_hash } = self.chain;
        Ok(Certificate {
            profile: self.profile,
            parent_hash: parent_hash.named("chain.parentHash")?,
            first: first.named("chain.first")?.to(),
            last: last.named("chain.last")?.to(),
            last_hash: last_hash.named("chain.lastHash")?,
            query: self.query.0.map_err(CertificateJsonError::Query)?,
            semantics,
            logs: self.result.logs.named("result.logs")?.to(),
            digest: self.result.digest.named("result.digest")?,
            blocks: self.counts.blocks.named("counts.blocks")?.to(),
            examined: self.counts.examined.named("counts.examined")?.to(),
            headers,
            receipts,
        })
    }
}
