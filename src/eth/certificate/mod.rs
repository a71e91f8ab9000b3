//! An audit's result, and its verification by others.
//!
//! A [`Certificate`] says: on the chain that ends in this block, this query has this result. It is
//! no proof by itself, and needs none who issued it: whoever [verifies](Certificate::verify) it
//! brings the anchor, the profile and the query, never takes them from it, and proves everything
//! anew from headers and receipts. Those may be embedded, lie beside it, or be fetched from
//! anyone. Without receipts, what is left unverified is named block by block.
//!
//! # Format, version 1
//! One JSON object in UTF-8. [`to_json`](Certificate::to_json) writes it without white space, its
//! members in the order below; a reader takes any order and white space, and refuses members that
//! are not listed, that are missing or that come twice. *Bytes* are strings of `0x` and two
//! lower-case hex digits for each byte; *numbers* are strings of `0x` and hex digits without
//! leading zeros, below 2^64. A reader takes upper-case digits too.
//!
//! | member | value |
//! |---|---|
//! | `format` | the string `chainsieve-log-certificate` |
//! | `version` | the JSON number 1 |
//! | `profile` | a string: the name of the profile that was used, a label that proves nothing |
//! | `chain` | `{"parentHash", "first", "last", "lastHash"}`: the parent hash (bytes) and the number of the first queried block, number and hash of the last |
//! | `query` | the query as an object like that of `eth_getLogs`, in the form of [`LogQuery::to_json`] |
//! | `semantics` | `"geth"` or `"alloy"`: by whose rules a log matches ([`Semantics`]) |
//! | `result` | `{"logs", "digest"}`: how many logs there are (number), and their [digest](crate::eth::log::digest) (bytes) |
//! | `counts` | `{"blocks", "examined"}`: how many blocks are queried, and how many of them their filter does not rule out (numbers) |
//! | `headers` | may be missing: a list of headers as RLP (bytes), from the first queried block on without a gap, to the last or beyond it to an anchor |
//! | `receipts` | may be missing: a list of `{"blockHash", "receipts"}`, each block's hash (bytes) and all its receipts in consensus encoding (bytes), in order |
//!
//! A reader looks at `format` and `version` first. Another version has other members. As `serde` a
//! certificate has the same form.

mod json;
mod verify;

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};

use crate::eth::audit::{AuditReport, Question};
use crate::eth::header::HeaderView;
use crate::eth::log::{self, LocatedLog};
use crate::eth::log_query::{LogQuery, Semantics};
use crate::eth::receipts::BlockReceipts;

pub use json::CertificateJsonError;
pub use verify::{Trust, VerifiedCertificate, VerifyError};

/// The name of the format.
pub const FORMAT: &str = "chainsieve-log-certificate";

/// The version of the format.
pub const VERSION: u64 = 1;

/// The statement that a query has a certain result on a certain chain, perhaps with what is needed
/// to verify it.
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

/// Why there is no certificate of a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The audit found something, so that the answer is not the result.
    #[error("the audit has {0} findings")]
    Findings(usize),
    /// The report is not of this question.
    #[error("the report is of blocks {first} to {last}, which the question's chain has not")]
    OtherReport {
        /// First block of the report.
        first: u64,
        /// Last block of the report.
        last: u64,
    },
}

impl Certificate {
    /// The certificate of an audit without findings: its question, and the answer that was
    /// audited. Undecided blocks don't hinder it: a verifier decides anew.
    ///
    /// # Errors
    /// [`IssueError`], where something was found.
    pub fn from_report(
        question: &Question<'_>,
        report: &AuditReport,
        answer: &[LocatedLog],
    ) -> Result<Self, IssueError> {
        if !report.findings.is_empty() {
            return Err(IssueError::Findings(report.findings.len()));
        }
        let (first, last) = (*report.range.start(), *report.range.end());
        let chain = question.chain;
        let ends = verify::parent_of(chain, first).zip(chain.block(last));
        let (parent_hash, last_block) = ends.ok_or(IssueError::OtherReport { first, last })?;
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

    /// Embeds headers: from the first queried block on without a gap, to the last or beyond it to
    /// an anchor.
    #[must_use]
    pub fn with_headers<'h>(
        mut self,
        headers: impl IntoIterator<Item = &'h HeaderView<'h>>,
    ) -> Self {
        let rlp = headers.into_iter().map(|header| Bytes::copy_from_slice(header.rlp()));
        self.headers = Some(rlp.collect());
        self
    }

    /// Embeds all receipts of a block whose filter does not rule a log out. Nothing is embedded
    /// where a receipt has neither status nor post-state, since it can't be encoded.
    #[must_use]
    pub fn with_receipts(mut self, block_hash: B256, receipts: &BlockReceipts) -> Self {
        if let Some(encodings) = receipts.encodings() {
            self.receipts.insert(block_hash, encodings);
        }
        self
    }

    /// Name of the profile that was used: a label.
    pub fn profile_name(&self) -> &str {
        &self.profile
    }

    /// Parent hash of the first queried block.
    pub fn parent_hash(&self) -> B256 {
        self.parent_hash
    }

    /// Numbers of the first and the last queried block.
    pub fn blocks(&self) -> core::ops::RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Hash of the last queried block.
    pub fn last_hash(&self) -> B256 {
        self.last_hash
    }

    /// The query that the certificate is about. A verifier must bring its own.
    pub fn query(&self) -> &LogQuery {
        &self.query
    }

    /// By whose rules a log matches.
    pub fn semantics(&self) -> Semantics {
        self.semantics
    }

    /// How many logs the result has, by the certificate.
    pub fn num_logs(&self) -> u64 {
        self.logs
    }

    /// [Digest](log::digest) of the result, by the certificate.
    pub fn digest(&self) -> B256 {
        self.digest
    }
}
