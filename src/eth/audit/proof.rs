//! Findings that anyone who has the header and the answer can verify.

use alloc::sync::Arc;
use alloc::vec::Vec;

use alloy_primitives::{B256, Log};
use serde::{Deserialize, Serialize};

use super::Forgery;
use crate::eth::bloom;
use crate::eth::header::HeaderView;
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics};
use crate::eth::receipts::{Receipt, ReceiptProof, ReceiptsError};

/// A log that is in a block, matches the query and is missing in the answer.
///
/// # JSON
/// `serde` writes an object: `log` as a [`LocatedLog`], `index_in_receipt` as a JSON number,
/// `receipt_proof` as a [`ReceiptProof`]. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedLog {
    /// The log with its position, but without a transaction hash, which neither header nor receipts
    /// contain.
    pub log: LocatedLog,
    /// Index of the log in its receipt, from 0.
    pub index_in_receipt: usize,
    /// The proof of the receipt that contains the log.
    #[serde(rename = "receipt_proof")]
    pub proof: Arc<ReceiptProof>,
}

/// A log of an answer that is not in its block.
///
/// # JSON
/// `serde` writes an object: `at` as a JSON number, `log` as a [`LocatedLog`], the members of the
/// [`Forgery`], and `instead`, if there is one: an object with `address`, `topics` and `data`
/// as in JSON-RPC. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgedLog {
    /// Index of the log in the answer, from 0.
    pub at: usize,
    /// The log as the answer contains it.
    pub log: LocatedLog,
    /// The evidence for the forgery.
    #[serde(flatten)]
    pub forgery: Forgery,
    /// The block's log with the same log index, if the receipts are known and both logs belong to
    /// the same transaction. The forged log is perhaps an altered copy of that log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Log>,
}

/// Reason why the evidence does not prove a finding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The header belongs to another block than the log.
    #[error("the header hashes to {found}, but the log is of block {expected}")]
    OtherHeader {
        /// Hash of the log's block.
        expected: B256,
        /// Hash of the header.
        found: B256,
    },
    /// A field of the log differs from the header or the receipt proof.
    #[error("{field} is {found}, but should be {expected}")]
    Field {
        /// The field's name in JSON-RPC.
        field: &'static str,
        /// Value in the header or the proof.
        expected: u64,
        /// Value in the finding.
        found: u64,
    },
    /// The proof does not prove a receipt of the block.
    #[error(transparent)]
    Proof(#[from] ReceiptsError),
    /// The finding has no receipt proof. The finding claims that the block has no transaction with
    /// the log's index, which the header alone does not prove.
    #[error("no receipt proof")]
    NoProof,
    /// The receipt has another log, or no log, at the claimed index.
    #[error("log {index} of the receipt is not the log that the finding claims to be omitted")]
    NotInReceipt {
        /// Index of the log in the receipt.
        index: usize,
    },
    /// The address or topics of the log do not match the query.
    #[error("the log does not match the query")]
    NotMatching,
    /// The log matches the query by the rules of geth or of alloy, but not by both. So a provider
    /// may rightly leave the log out.
    #[error("the log matches the query by the rules of geth or of alloy, but not by both")]
    ArityDependent,
    /// The query does not select the log's block.
    #[error("the query does not select block {0}")]
    OtherBlock(u64),
    /// The number of equal logs in the answer does not prove the finding.
    ///
    /// An omission requires fewer equal logs in the answer than in the receipt; a forgery requires
    /// more.
    #[error(
        "not proven: the answer has {answered} logs of the transaction equal to this log, and the receipt has {proven}"
    )]
    Answered {
        /// Number of equal logs in the answer.
        answered: usize,
        /// Number of equal logs in the receipt.
        proven: usize,
    },
    /// The filter has all bits of the log, so it does not prove a forgery.
    #[error("the filter has all bits of the log")]
    InBloom,
    /// The answer has another log or no log at this index, or the log is marked as removed.
    #[error("log {at} of the answer is not the log that the finding claims to be forged")]
    OtherAnswer {
        /// Index in the answer.
        at: usize,
    },
}

impl OmittedLog {
    /// Verifies that the log is in the block of this header, matches the query, and is missing in
    /// the answer.
    ///
    /// The log must match by geth's and by alloy's rules. The caller must know that the header is
    /// authentic. If the query gives its blocks by tags, the caller must also know that the block
    /// is one of the requested blocks.
    ///
    /// The search in the answer uses the log's transaction index. If the answer has the log under
    /// another transaction index, the omission is verified too, although the real error is then the
    /// index.
    ///
    /// [`log_index`](LocatedLog::log_index) is not verified, because it depends on the logs of
    /// other receipts too. So if a transaction has several logs with the same address, topics and
    /// data, the evidence proves only that the answer has fewer of them.
    ///
    /// # Errors
    /// Returns an [`EvidenceError`] for the first condition that the evidence does not prove.
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
    /// Verifies that the log is in the answer and not in the block of this header.
    ///
    /// The caller must know that the header is authentic. For [`Forgery::Bloom`] the caller must
    /// also know that the chain's filters
    /// [lack no bits](crate::eth::chain_profile::BloomSoundness::proves_absence). For
    /// [`Forgery::Receipts`] the caller must know that the receipts have
    /// [every log](crate::eth::chain_profile::ReceiptsScope::EveryLog).
    ///
    /// Receipts prove that the transaction with this index has no such log, or fewer such logs than
    /// the answer. If several logs are equal except for their log index, the evidence does not show
    /// which of them is forged. A log that is marked as removed claims nothing about the block, so
    /// it is never a forgery.
    ///
    /// # Errors
    /// Returns an [`EvidenceError`] for the first condition that the evidence does not prove.
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

/// Returns `true` if a filter lacks bits of a log.
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

/// Returns `true` if the query can select a block: a tag may resolve to any number.
pub(super) fn may_ask_for(query: &LogQuery, number: u64, hash: &B256) -> bool {
    match *query.blocks() {
        BlockSelection::AtHash(asked) => asked == *hash,
        BlockSelection::Range { from, to } => {
            !matches!(from, Some(BlockTag::Number(first)) if number < first)
                && !matches!(to, Some(BlockTag::Number(last)) if number > last)
        }
    }
}

/// Returns the number of logs in a receipt with the address, topics and data of `log`.
fn copies(receipt: &Receipt, log: &LocatedLog) -> usize {
    receipt.logs.iter().filter(|other| **other == log.log).count()
}

/// Returns the number of logs in an answer with the same block, transaction index, address, topics
/// and data as `log`.
///
/// Logs with an equal log index are counted once, so that repetitions do not add to the number.
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
