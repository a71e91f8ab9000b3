//! Certificates: an audit's result in a form that others can verify.
//!
//! A [`Certificate`] claims that on the chain that ends in a certain block, a query has a certain
//! result. A certificate alone proves nothing, and its verification does not depend on the issuer.
//! A verifier supplies the anchor, the profile and the query, and never takes them from the
//! certificate. [`Certificate::verify`] then checks the claim with headers and receipts, which
//! may be embedded in the certificate, stored beside it, or fetched from an untrusted source.
//! Without receipts, the result lists each block that could not be verified.
//!
//! # Format, version 1
//! A certificate is one JSON object in UTF-8. [`to_json`](Certificate::to_json) writes it without
//! white space and with its members in the order below. A reader accepts any order and white space.
//! A reader rejects unknown members, missing members and duplicate members.
//!
//! *Bytes* are strings of `0x` and two lower-case hex digits for each byte. *Numbers* are strings
//! of `0x` and hex digits without leading zeros, below 2^64. A reader also accepts upper-case
//! digits.
//!
//! | member | value |
//! |---|---|
//! | `format` | the string `chainsieve-log-certificate` |
//! | `version` | the JSON number 1 |
//! | `profile` | a string: the name of the profile that was used; it is a label and proves nothing |
//! | `chain` | `{"parentHash", "first", "last", "lastHash"}`: parent hash (bytes) and number of the first queried block, number and hash (bytes) of the last queried block |
//! | `query` | the query as an object like that of `eth_getLogs`, in the form of [`LogQuery::to_json`] |
//! | `semantics` | `"geth"` or `"alloy"`: the rules by which a log matches ([`Semantics`]) |
//! | `result` | `{"logs", "digest"}`: number of logs (number), and their [digest](crate::eth::log::digest) (bytes) |
//! | `counts` | `{"blocks", "examined"}`: number of queried blocks, and number of queried blocks whose filter cannot rule out a match (numbers) |
//! | `headers` | optional: a list of headers as RLP (bytes), without a gap from the first queried block to the last, or further to an anchor |
//! | `receipts` | optional: a list of `{"blockHash", "receipts"}`: the hash of a block (bytes), and all its receipts in consensus encoding (list of bytes), in order |
//!
//! A reader checks `format` and `version` first, because another version may have other members.
//! `serde` reads and writes the same form.

mod verify;

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::eth::audit::{AuditError, AuditQuestion, AuditReport};
use crate::eth::header::{ChainError, HeaderView};
use crate::eth::json::{self, Prefix, ValueProblem, excerpt};
use crate::eth::log::{self, LocatedLog};
use crate::eth::log_query::{LogQuery, QueryError, Semantics, read_query};
use crate::eth::receipts::{BlockReceipts, ReceiptsError};

pub use verify::VerifiedCertificate;

/// The name of the format: the member `format` of every certificate.
pub const FORMAT: &str = "chainsieve-log-certificate";

/// The version of the format: the member `version`. This crate writes and reads no other version.
pub const VERSION: u64 = 1;

/// The claim that a query has a certain result on a certain chain.
///
/// A certificate may embed the headers and receipts that its verification needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    profile: String,
    parent_hash: B256,
    first: u64,
    last: u64,
    last_hash: B256,
    query: LogQuery,
    semantics: Semantics,
    logs: u64,
    digest: B256,
    blocks: u64,
    examined: u64,
    headers: Option<Vec<Bytes>>,
    receipts: BTreeMap<B256, Vec<Bytes>>,
}

/// Error of issuing, reading or verifying a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The audit has findings, so the answer is not the correct result.
    #[error("findings in the audit: {0}")]
    Findings(usize),
    /// The report does not belong to this question.
    #[error("the report covers blocks {first} to {last}, which the question's chain lacks")]
    OtherReport {
        /// Number of the first block of the report.
        first: u64,
        /// Number of the last block of the report.
        last: u64,
    },
    /// The text is not JSON, or a member is missing, unknown, duplicate or of the wrong type. The
    /// message contains the name of the member.
    #[error("{0}")]
    Json(String),
    /// `format` is not the name of the certificate format.
    #[error("the format is {0:?}, not {FORMAT:?}")]
    Format(String),
    /// The version of the format is unknown.
    #[error("unknown version {0} of the format, expected version {VERSION}")]
    Version(u64),
    /// A member has an invalid value.
    #[error("{member}: {problem}")]
    Value {
        /// Name of the member.
        member: &'static str,
        /// Reason why its value is invalid.
        problem: ValueProblem,
    },
    /// The query is invalid.
    #[error("query: {0}")]
    Query(QueryError),
    /// `semantics` is neither `geth` nor `alloy`.
    #[error("semantics is {0:?}, but must be \"geth\" or \"alloy\"")]
    Semantics(String),
    /// The receipts of a block occur twice.
    #[error("duplicate receipts of block {0}")]
    ReceiptsTwice(B256),
    /// The query of the certificate is not the verifier's query.
    #[error("the certificate is for a query that differs from the given one")]
    OtherQuery,
    /// The certificate uses other matching rules than the verifier.
    #[error("the certificate uses the rules of {found}, expected {expected}")]
    OtherSemantics {
        /// The verifier's rules.
        expected: Semantics,
        /// The certificate's rules.
        found: Semantics,
    },
    /// The certificate embeds no headers, and the verifier gave none.
    #[error("no headers, neither embedded nor given")]
    NoHeaders,
    /// The embedded headers do not form a chain.
    #[error("embedded header {index}: {error}")]
    Headers {
        /// Index of the header in the list, from 0.
        index: usize,
        /// Reason why the header is rejected.
        error: ChainError,
    },
    /// The headers do not cover the query's blocks.
    #[error(transparent)]
    Audit(AuditError),
    /// A value in the certificate differs from the value computed from the data.
    ///
    /// The JSON name of the value is one of `chain.first`, `chain.last`, `chain.parentHash`,
    /// `chain.lastHash`, `counts.blocks`, `counts.examined`, `result.logs` and `result.digest`.
    /// `counts.examined` may also differ if the verifier's profile is not the issuer's profile.
    #[error("the certificate's {0} does not match the given headers, receipts and logs")]
    NotSo(&'static str),
    /// Embedded receipts are malformed.
    #[error("embedded receipts of block {block_hash}: {error}")]
    Receipts {
        /// Hash of the block.
        block_hash: B256,
        /// Reason why the receipts are malformed.
        error: ReceiptsError,
    },
    /// Embedded receipts are not those of the block.
    #[error("embedded receipts of block {block_hash}: {why}")]
    OtherReceipts {
        /// Hash of the block.
        block_hash: B256,
        /// Reason why the receipts are rejected.
        why: AuditError,
    },
    /// The certificate embeds receipts of a block whose receipts are not needed.
    #[error("embedded receipts of block {0}, whose receipts are not needed")]
    NeedlessReceipts(B256),
    /// The given result has the certificate's digest, but an audit proves that it is wrong.
    #[error("findings in the audit of the given result: {}", .0.findings.len())]
    Refuted(Box<AuditReport>),
}

impl Certificate {
    /// Issues the certificate of an audit without findings.
    ///
    /// `question` and `answer` are those of the audit. Undecided blocks are allowed, because a
    /// verifier decides every block again.
    ///
    /// # Errors
    /// Returns a [`CertificateError`] if the report has findings, or if it does not belong to the
    /// question.
    pub fn from_report(
        question: &AuditQuestion<'_>,
        report: &AuditReport,
        answer: &[LocatedLog],
    ) -> Result<Self, CertificateError> {
        if !report.findings.is_empty() {
            return Err(CertificateError::Findings(report.findings.len()));
        }
        let (first, last) = (*report.range.start(), *report.range.end());
        let chain = question.chain;
        let ends = verify::parent_of(chain, first).zip(chain.block(last));
        let (parent_hash, last_block) =
            ends.ok_or(CertificateError::OtherReport { first, last })?;
        Ok(Self {
            profile: question.profile.name().to_owned(),
            parent_hash,
            first,
            last,
            last_hash: last_block.hash,
            query: question.query.clone(),
            semantics: question.semantics,
            logs: answer.len() as u64,
            digest: log::digest(answer),
            blocks: report.counts.blocks,
            examined: report.counts.examined,
            headers: None,
            receipts: BTreeMap::new(),
        })
    }

    /// Embeds headers. The headers must extend without a gap from the first queried block to the
    /// last queried block, or further to an anchor.
    #[must_use]
    pub fn with_headers<'h>(
        mut self,
        headers: impl IntoIterator<Item = &'h HeaderView<'h>>,
    ) -> Self {
        let rlp = headers.into_iter().map(|header| Bytes::copy_from_slice(header.rlp()));
        self.headers = Some(rlp.collect());
        self
    }

    /// Embeds all receipts of a block whose filter cannot rule out a match.
    ///
    /// Nothing is embedded if a receipt has neither status nor post-state, because such a receipt
    /// cannot be encoded.
    #[must_use]
    pub fn with_receipts(mut self, block_hash: B256, receipts: &BlockReceipts) -> Self {
        if let Some(encodings) = receipts.encodings() {
            self.receipts.insert(block_hash, encodings);
        }
        self
    }

    /// Returns the name of the profile that was used, which is only a label.
    pub fn profile_name(&self) -> &str {
        &self.profile
    }

    /// Returns the parent hash of the first queried block.
    pub fn parent_hash(&self) -> B256 {
        self.parent_hash
    }

    /// Returns the range of queried block numbers, both ends included.
    pub fn blocks(&self) -> core::ops::RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Returns the hash of the last queried block.
    pub fn last_hash(&self) -> B256 {
        self.last_hash
    }

    /// Returns the query of the certificate. A verifier must supply its own query.
    pub fn query(&self) -> &LogQuery {
        &self.query
    }

    /// Returns the rules by which a log matches.
    pub fn semantics(&self) -> Semantics {
        self.semantics
    }

    /// Returns the number of logs in the result that the certificate claims.
    pub fn num_logs(&self) -> u64 {
        self.logs
    }

    /// Returns the [digest](log::digest) of the result that the certificate claims.
    pub fn digest(&self) -> B256 {
        self.digest
    }
}

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
    chain: WireChain,
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
struct WireChain {
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
    /// Returns the certificate as JSON, in the [format](self) of version 1.
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
            chain: WireChain {
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
        let WireChain { parent_hash, first, last, last_hash } = self.chain;
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
