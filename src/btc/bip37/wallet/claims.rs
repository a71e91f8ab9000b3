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

impl Session {
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
