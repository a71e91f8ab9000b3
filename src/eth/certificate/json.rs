//! Certificates as JSON.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use alloy_primitives::{B256, Bytes};
use serde_json::value::RawValue;

use super::{Certificate, FORMAT, VERSION};
use crate::eth::json::{self, Prefix, ValueProblem, excerpt};
use crate::eth::log_query::{LogQuery, QueryJsonError, Semantics};

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

#[derive(serde::Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(rename = "format")]
    _format: String,
    #[serde(rename = "version")]
    _version: u64,
    profile: String,
    chain: Chain,
    #[serde(borrow)]
    query: &'a RawValue,
    semantics: String,
    result: ResultOf,
    counts: Counts,
    headers: Option<Vec<String>>,
    receipts: Option<Vec<ReceiptsOf>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Chain {
    parent_hash: String,
    first: String,
    last: String,
    last_hash: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultOf {
    logs: String,
    digest: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    blocks: String,
    examined: String,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiptsOf {
    block_hash: String,
    receipts: Vec<String>,
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
fn not_json(error: serde_json::Error) -> CertificateJsonError {
    CertificateJsonError::Json(json::message(&error))
}

impl Certificate {
    /// The certificate as JSON, in the [form](super) of version 1.
    pub fn to_json(&self) -> String {
        let semantics = match self.semantics {
            Semantics::Geth => "geth",
            Semantics::Alloy => "alloy",
        };
        let profile = serde_json::to_string(&self.profile).expect("a string is JSON");
        let mut json = format!(
            concat!(
                r#"{{"format":"{}","version":{},"profile":{},"#,
                r#""chain":{{"parentHash":"{}","first":"{:#x}","last":"{:#x}","lastHash":"{}"}},"#,
                r#""query":{},"semantics":"{}","#,
                r#""result":{{"logs":"{:#x}","digest":"{}"}},"#,
                r#""counts":{{"blocks":"{:#x}","examined":"{:#x}"}}"#
            ),
            FORMAT,
            VERSION,
            profile,
            self.parent_hash,
            self.first,
            self.last,
            self.last_hash,
            self.query.to_json(),
            semantics,
            self.logs,
            self.digest,
            self.blocks,
            self.examined,
        );
        if let Some(headers) = &self.headers {
            json.push_str(r#","headers":"#);
            write_list(&mut json, headers);
        }
        if !self.receipts.is_empty() {
            json.push_str(r#","receipts":["#);
            for (at, (hash, encodings)) in self.receipts.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                write!(json, r#"{comma}{{"blockHash":"{hash}","receipts":"#)
                    .expect("a String takes what is written");
                write_list(&mut json, encodings);
                json.push('}');
            }
            json.push(']');
        }
        json.push('}');
        json
    }

    /// Reads a certificate. Nothing of it is verified by being read.
    ///
    /// # Errors
    /// [`CertificateJsonError`] names the member that is wrong.
    pub fn from_json(text: &str) -> Result<Self, CertificateJsonError> {
        let head: Head = serde_json::from_str(text).map_err(not_json)?;
        if head.format != FORMAT {
            return Err(CertificateJsonError::Format(excerpt(&head.format)));
        }
        if head.version != VERSION {
            return Err(CertificateJsonError::Version(head.version));
        }
        let wire: Wire<'_> = serde_json::from_str(text).map_err(not_json)?;
        let semantics = match wire.semantics.as_str() {
            "geth" => Semantics::Geth,
            "alloy" => Semantics::Alloy,
            other => return Err(CertificateJsonError::Semantics(excerpt(other))),
        };
        // Its canonical form is the same by both rules; those of alloy refuse unknown members.
        let query = LogQuery::from_json(wire.query.get(), Semantics::Alloy);
        let headers = wire.headers.map(|headers| bytes_of_each("headers", &headers)).transpose()?;
        let mut receipts = BTreeMap::new();
        for block in wire.receipts.unwrap_or_default() {
            let hash = hash("receipts.blockHash", &block.block_hash)?;
            let encodings = bytes_of_each("receipts.receipts", &block.receipts)?;
            if receipts.insert(hash, encodings).is_some() {
                return Err(CertificateJsonError::ReceiptsTwice(hash));
            }
        }
        Ok(Self {
            profile: wire.profile,
            parent_hash: hash("chain.parentHash", &wire.chain.parent_hash)?,
            first: number("chain.first", &wire.chain.first)?,
            last: number("chain.last", &wire.chain.last)?,
            last_hash: hash("chain.lastHash", &wire.chain.last_hash)?,
            query: query.map_err(CertificateJsonError::Query)?,
            semantics,
            logs: number("result.logs", &wire.result.logs)?,
            digest: hash("result.digest", &wire.result.digest)?,
            blocks: number("counts.blocks", &wire.counts.blocks)?,
            examined: number("counts.examined", &wire.counts.examined)?,
            headers,
            receipts,
        })
    }
}

fn write_list(json: &mut String, items: &[Bytes]) {
    json.push('[');
    for (at, item) in items.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(json, r#"{comma}"{item}""#).expect("a String takes what is written");
    }
    json.push(']');
}

fn hash(member: &'static str, text: &str) -> Result<B256, CertificateJsonError> {
    json::fixed_bytes(text, Prefix::Required, "a hash")
        .map(B256::new)
        .map_err(|problem| CertificateJsonError::Value { member, problem })
}

fn number(member: &'static str, text: &str) -> Result<u64, CertificateJsonError> {
    json::number(text, false).map_err(|problem| CertificateJsonError::Value { member, problem })
}

fn bytes_of_each(
    member: &'static str,
    texts: &[String],
) -> Result<Vec<Bytes>, CertificateJsonError> {
    let each = texts.iter().map(|text| json::bytes(text).map(Bytes::from));
    let each: Result<Vec<_>, _> = each.collect();
    each.map_err(|problem| CertificateJsonError::Value { member, problem })
}
