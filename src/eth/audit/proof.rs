//! Findings that others can verify, who have the header and the answer.

use alloc::sync::Arc;
use alloc::vec::Vec;

use alloy_primitives::{B256, Log};
use serde::{Deserialize, Serialize};

use super::Forgery;
use crate::eth::bloom;
use crate::eth::header::HeaderView;
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics};
use crate::eth::receipts::{ProofError, Receipt, ReceiptProof};

/// A log that a block has, a query wants and an answer lacks.
///
/// # JSON
/// As `serde` it is an object: `log` as a [`LocatedLog`], `index_in_receipt` as a JSON number,
/// `receipt_proof` as a [`ReceiptProof`]. Other members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedLog {
    /// The log and its place, as far as header and receipts say it: without the transaction's
    /// hash.
    pub log: LocatedLog,
    /// Which log of its receipt it is, from 0.
    pub index_in_receipt: usize,
    /// The proof of the receipt.
    #[serde(rename = "receipt_proof")]
    pub proof: Arc<ReceiptProof>,
}

/// A log of an answer that its block does not have.
///
/// # JSON
/// As `serde` it is an object: `at` as a JSON number, `log` as a [`LocatedLog`], the members of the
/// [`Forgery`], and `instead`, where there is one: an object with `address`, `topics` and `data`
/// as in JSON-RPC. Other members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgedLog {
    /// Its index in the answer.
    pub at: usize,
    /// The log as it was answered.
    pub log: LocatedLog,
    /// How it is shown.
    #[serde(flatten)]
    pub forgery: Forgery,
    /// The log that the block has at this log index, if its receipts are known and it is of the
    /// same transaction: what was altered, perhaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Log>,
}

/// Why a finding is not shown by its evidence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The header is of another block.
    #[error("the header hashes to {found}, the log is of block {expected}")]
    OtherHeader {
        /// Hash of the log's block.
        expected: B256,
        /// Hash of the header.
        found: B256,
    },
    /// A field says something else than header or receipt.
    #[error("{field} is {found}, it should be {expected}")]
    Field {
        /// The field's name in JSON-RPC.
        field: &'static str,
        /// By the header or the proof.
        expected: u64,
        /// In the finding.
        found: u64,
    },
    /// The proof does not prove a receipt of the block.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// There is no proof: the block is said to have no transaction of the log's index, which the
    /// header alone does not show.
    #[error("no receipt proof")]
    NoProof,
    /// The receipt has no such log there.
    #[error("log {index} of the receipt is not the one that is said to be omitted")]
    NotInReceipt {
        /// Which log of the receipt.
        index: usize,
    },
    /// The query does not want the log.
    #[error("the query does not want the log")]
    NotMatching,
    /// Whether the query wants the log is where geth and alloy differ, so that its absence is no
    /// omission by the one or the other.
    #[error("the query wants the log by geth's or alloy's rules alone")]
    ArityDependent,
    /// The query names other blocks.
    #[error("the query does not ask for block {0}")]
    OtherBlock(u64),
    /// The answer has the log as often as the receipt.
    #[error("the answer has {answered} such logs of the transaction, the receipt {proven}")]
    Answered {
        /// How many the answer has.
        answered: usize,
        /// How many the receipt has.
        proven: usize,
    },
    /// The filter has all bits of the log.
    #[error("the filter has all bits of the log")]
    InBloom,
    /// The answer has another log there, or none, or one that is marked as removed.
    #[error("log {at} of the answer is not the one that is said to be forged")]
    OtherAnswer {
        /// Index into the answer.
        at: usize,
    },
}

impl OmittedLog {
    /// Whether the log is in the block of this header, is wanted by the query (by geth's and by
    /// alloy's rules), and is not in the answer. The caller has to know that the header is
    /// authentic and, where the query names its blocks by tags, that the block is one of those
    /// that were asked for.
    ///
    /// The answer is asked for the log under this transaction's index. A log that it has under
    /// another is not delivered either, but what is wrong is then the index.
    ///
    /// Not proven is [`log_index`](LocatedLog::log_index), which counts the logs of other receipts
    /// too. So where a transaction has several logs of the same address, topics and data, what is
    /// shown is that the answer has fewer of them.
    ///
    /// # Errors
    /// [`EvidenceError`] names what is not shown.
    pub fn verify(
        &self,
        header: &HeaderView<'_>,
        query: &LogQuery,
        semantics: Semantics,
        answer: &[LocatedLog],
    ) -> Result<(), EvidenceError> {
        let log = &self.log;
        check_header(log, header)?;
        check("blockNumber", header.number(), log.block_number)?;
        if let Some(timestamp) = log.block_timestamp {
            check("blockTimestamp", header.timestamp(), timestamp)?;
        }
        check("transactionIndex", self.proof.transaction_index, log.transaction_index)?;
        let receipt = self.proof.verify(header.receipts_root())?;
        if receipt.logs.get(self.index_in_receipt) != Some(&log.log) {
            return Err(EvidenceError::NotInReceipt { index: self.index_in_receipt });
        }
        if !query.matches(&log.log, semantics) {
            return Err(EvidenceError::NotMatching);
        }
        if query.depends_on_semantics(&log.log) {
            return Err(EvidenceError::ArityDependent);
        }
        if !may_ask_for(query, header.number(), &log.block_hash) {
            return Err(EvidenceError::OtherBlock(header.number()));
        }
        let (answered, proven) = (count(answer, log), copies(&receipt, log));
        if answered >= proven {
            return Err(EvidenceError::Answered { answered, proven });
        }
        Ok(())
    }
}

impl ForgedLog {
    /// Whether the answer has this log, and the block of this header has not. The caller has to
    /// know that the header is authentic and, where the filter shows it, that the chain's filters
    /// [lack no bits](crate::eth::chain_profile::BloomSoundness::proves_absence); where receipts
    /// do, that they have
    /// [every log](crate::eth::chain_profile::ReceiptsScope::EveryLog).
    ///
    /// What receipts show is that the transaction of this index has no such log, or fewer than the
    /// answer: of several that are equal but for their log index, not which is forged. A log that
    /// is marked as removed says nothing about the block, so that it is none that is forged.
    ///
    /// # Errors
    /// [`EvidenceError`] names what is not shown.
    pub fn verify(
        &self,
        header: &HeaderView<'_>,
        answer: &[LocatedLog],
    ) -> Result<(), EvidenceError> {
        let log = &self.log;
        if log.removed || answer.get(self.at) != Some(log) {
            return Err(EvidenceError::OtherAnswer { at: self.at });
        }
        check_header(log, header)?;
        match &self.forgery {
            Forgery::Bloom => match header.logs_bloom().informative() {
                Some(bits) if lacks(bits, &log.log) => Ok(()),
                _ => Err(EvidenceError::InBloom),
            },
            Forgery::Receipts { proof } => {
                let proof = proof.as_ref().ok_or(EvidenceError::NoProof)?;
                check("transactionIndex", proof.transaction_index, log.transaction_index)?;
                let receipt = proof.verify(header.receipts_root())?;
                let (answered, proven) = (count(answer, log), copies(&receipt, log));
                if answered <= proven {
                    return Err(EvidenceError::Answered { answered, proven });
                }
                Ok(())
            }
        }
    }
}

/// Whether a filter lacks bits of a log.
pub(super) fn lacks(bits: &[u8; bloom::BYTES], log: &Log) -> bool {
    let mut of_log = [0; bloom::BYTES];
    bloom::accrue_log(&mut of_log, log);
    !bloom::covers(bits, &of_log)
}

fn check_header(log: &LocatedLog, header: &HeaderView<'_>) -> Result<(), EvidenceError> {
    let (expected, found) = (log.block_hash, header.hash());
    if expected == found { Ok(()) } else { Err(EvidenceError::OtherHeader { expected, found }) }
}

fn check(field: &'static str, expected: u64, found: u64) -> Result<(), EvidenceError> {
    if expected == found { Ok(()) } else { Err(EvidenceError::Field { field, expected, found }) }
}

/// Whether a block may be one of the query's: tags may stand for any number.
pub(super) fn may_ask_for(query: &LogQuery, number: u64, hash: &B256) -> bool {
    match *query.blocks() {
        BlockSelection::AtHash(asked) => asked == *hash,
        BlockSelection::Range { from, to } => {
            !matches!(from, Some(BlockTag::Number(first)) if number < first)
                && !matches!(to, Some(BlockTag::Number(last)) if number > last)
        }
    }
}

/// How often a receipt has a log's address, topics and data.
fn copies(receipt: &Receipt, log: &LocatedLog) -> usize {
    receipt.logs.iter().filter(|other| **other == log.log).count()
}

/// How often an answer has a log of the same block and transaction with the same address, topics
/// and data, repetitions apart.
fn count(answer: &[LocatedLog], log: &LocatedLog) -> usize {
    let same = |other: &&LocatedLog| {
        !other.removed
            && other.block_hash == log.block_hash
            && other.transaction_index == log.transaction_index
            && other.log == log.log
    };
    let mut indices: Vec<u64> = answer.iter().filter(same).map(|other| other.log_index).collect();
    indices.sort_unstable();
    indices.dedup();
    indices.len()
}
