//! What others show of a block, held against the node's answer.

use alloc::boxed::Box;
use alloc::sync::Arc;

use bitcoin::BlockHash;

use super::session::{Actions, Session, report};
use super::{EvidenceError, Finding, HeightEvidence, OmissionEvidence, TransactionInBlock};
use crate::btc::bip37::{BloomFilter, MerkleBlock};

/// An answer, with the filter as loaded when it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) block_hash: BlockHash,
    pub(super) merkle_block: MerkleBlock,
    pub(super) filter: Arc<BloomFilter>,
    /// The connection that it came on.
    pub(super) connection: u64,
    pub(super) fence: u64,
    /// The fence has come back.
    pub(super) settled: bool,
}

impl Answer {
    /// Its bytes without the filter; an empty one counts too.
    fn size(&self) -> usize {
        self.merkle_block.hashes.len() * 32 + self.merkle_block.flags.len() + 200
    }
}

impl Session {
    /// Keeps an answer, and drops the oldest that are too many.
    pub(super) fn keep_answer(&mut self, answer: Answer) {
        self.answers.push_back(answer);
        // From the latest back; answers to one filter share it.
        let (mut bytes, mut keep) = (0, 0);
        let mut filter = None;
        for answer in self.answers.iter().rev().take(self.config.limits.answers) {
            bytes += answer.size();
            if filter.is_none_or(|filter| !Arc::ptr_eq(filter, &answer.filter)) {
                bytes += answer.filter.data().len();
                filter = Some(&answer.filter);
            }
            if bytes > self.config.limits.answer_bytes {
                break;
            }
            keep += 1;
        }
        self.answers.drain(..self.answers.len() - keep);
    }

    pub(super) fn omission(
        &self,
        block: BlockHash,
        shown: &TransactionInBlock,
        actions: &mut Actions,
    ) {
        let evidence = |answer: &Answer| OmissionEvidence {
            filter: (*answer.filter).clone(),
            merkle_block: answer.merkle_block.clone(),
            omitted: shown.clone(),
        };
        let finding = self.judge(block, |answer| {
            let evidence = evidence(answer);
            let omission = evidence.verify(self.config.network)?;
            let connection = answer.connection;
            Ok(Finding::Omission { connection, evidence: Box::new(evidence), omission })
        });
        report(actions, finding);
    }

    pub(super) fn height(
        &self,
        block: BlockHash,
        shown: &TransactionInBlock,
        actions: &mut Actions,
    ) {
        let finding = self.judge(block, |answer| {
            let merkle_block = answer.merkle_block.clone();
            let evidence = HeightEvidence { merkle_block, coinbase: shown.clone() };
            let height = evidence.verify(self.config.network)?;
            let connection = answer.connection;
            Ok(Finding::FalseHeight { connection, evidence: Box::new(evidence), height })
        });
        report(actions, finding);
    }

    /// Tries every answer for `block` that may be held against the node.
    fn judge(
        &self,
        block: BlockHash,
        verify: impl Fn(&Answer) -> Result<Finding, EvidenceError>,
    ) -> Finding {
        let mut error = EvidenceError::NoAnswer(block);
        for answer in &self.answers {
            if answer.settled && answer.block_hash == block {
                match verify(answer) {
                    Ok(finding) => return finding,
                    Err(found) => error = found,
                }
            }
        }
        Finding::NoEvidence(block, error)
    }
}
