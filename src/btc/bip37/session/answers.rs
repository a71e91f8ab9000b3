//! Stored answers of nodes that can be used as evidence.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;

use bitcoin::{BlockHash, Network};

use super::config::Limits;
use super::event::Finding;
use super::evidence::{EvidenceError, HeightEvidence, OmissionEvidence, TransactionInBlock};
use crate::btc::bip37::{BloomFilter, MerkleBlock};

/// Largest number of skipped blocks that are recorded, which bounds memory.
const MAX_PASSED_OVER: usize = 1_000;

/// The latest answers that can be used as evidence, and the state that decides if later answers can
/// be used too.
///
/// An honest node must not be accused. An answer is therefore used as evidence only if its request,
/// and so the filter of the request, is known with certainty.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    max_kept: usize,
    max_bytes: usize,
    /// The stored answers, oldest first.
    kept: VecDeque<Answer>,
    /// Blocks whose request was skipped on this connection: a late answer could be mistaken for the
    /// answer to another request.
    passed_over: BTreeSet<BlockHash>,
    /// `true` if the node did not answer each request exactly once on this connection.
    is_out_of_turn: bool,
}

/// An answer, with the filter that was loaded when the block was requested.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    block_hash: BlockHash,
    merkle_block: MerkleBlock,
    filter: Arc<BloomFilter>,
    /// Number of the connection on which the answer was received.
    connection: u64,
    fence: u64,
    /// `true` if the fence's `pong` has arrived, so that no answer to an earlier request can
    /// follow.
    is_settled: bool,
}

impl Answer {
    pub(super) fn new(
        block_hash: BlockHash,
        merkle_block: MerkleBlock,
        filter: Arc<BloomFilter>,
        connection: u64,
        fence: u64,
    ) -> Self {
        Self { block_hash, merkle_block, filter, connection, fence, is_settled: false }
    }

    /// Returns the size of the answer in bytes, without the filter. An overhead is included, so
    /// that empty answers are bounded too.
    fn size(&self) -> usize {
        self.merkle_block.hashes.len() * 32 + self.merkle_block.flags.len() + 200
    }
}

impl Answers {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            max_kept: limits.answers,
            max_bytes: limits.answer_bytes,
            kept: VecDeque::new(),
            passed_over: BTreeSet::new(),
            is_out_of_turn: false,
        }
    }

    /// Handles a closed connection: drops the answers whose fence has not been answered, because
    /// they stay uncertain for ever.
    pub(super) fn disconnect(&mut self) {
        self.kept.retain(|answer| answer.is_settled);
        self.passed_over.clear();
        self.is_out_of_turn = false;
    }

    /// Returns `true` if an answer for this block can only belong to the request in flight.
    pub(super) fn is_in_turn(&self, block: &BlockHash) -> bool {
        !self.is_out_of_turn && !self.passed_over.contains(block)
    }

    /// Handles an answer that was not requested: it is then uncertain which answer belongs to which
    /// request.
    ///
    /// Settled answers stay: when an answer was settled by its `pong`, no surplus answer had
    /// arrived on that connection.
    pub(super) fn lose_turn(&mut self) {
        self.is_out_of_turn = true;
        self.kept.retain(|answer| answer.is_settled);
    }

    /// Records that the `pong` of the fence arrived before an answer for this block. The answer may
    /// still arrive.
    pub(super) fn pass_over(&mut self, block: BlockHash) {
        // With too many skipped blocks to record, no later answer on this connection is used.
        if self.passed_over.len() < MAX_PASSED_OVER {
            self.passed_over.insert(block);
        } else {
            self.is_out_of_turn = true;
        }
    }

    /// Handles the `pong` of a fence: answers to requests before the fence are settled.
    pub(super) fn settle(&mut self, fence: u64) {
        // After an answer that was not requested, no later answer on this connection can be trusted
        // to belong to its request.
        if !self.is_out_of_turn {
            for answer in &mut self.kept {
                answer.is_settled |= answer.fence <= fence;
            }
        }
    }

    /// Stores an answer, and drops the oldest answers that exceed the limits.
    pub(super) fn keep(&mut self, answer: Answer) {
        self.kept.push_back(answer);
        // Sizes are added from the latest answer back to the oldest. Answers to one filter share
        // this filter, so its size is counted once.
        let (mut bytes, mut keep) = (0, 0);
        let mut filter = None;
        for answer in self.kept.iter().rev().take(self.max_kept) {
            bytes += answer.size();
            if filter.is_none_or(|filter| !Arc::ptr_eq(filter, &answer.filter)) {
                bytes += answer.filter.data().len();
                filter = Some(&answer.filter);
            }
            if bytes > self.max_bytes {
                break;
            }
            keep += 1;
        }
        self.kept.drain(..self.kept.len() - keep);
    }

    /// Judges a claim that the answer for `block` omitted a transaction. Returns the proven
    /// omission, or the reason why the claim is no evidence.
    pub(super) fn omission(
        &self,
        network: Network,
        block: BlockHash,
        shown: &TransactionInBlock,
    ) -> Finding {
        self.judge(block, |answer| {
            let evidence = OmissionEvidence {
                filter: (*answer.filter).clone(),
                merkle_block: answer.merkle_block.clone(),
                omitted: shown.clone(),
            };
            let omission = evidence.verify(network)?;
            let connection = answer.connection;
            Ok(Finding::Omission { connection, evidence: Box::new(evidence), omission })
        })
    }

    /// Judges a claim, with a coinbase transaction, that the answer for `block` gave a false
    /// height. Returns a false height, or the reason why the claim is no evidence.
    pub(super) fn false_height(
        &self,
        network: Network,
        block: BlockHash,
        shown: &TransactionInBlock,
    ) -> Finding {
        self.judge(block, |answer| {
            let merkle_block = answer.merkle_block.clone();
            let evidence = HeightEvidence { merkle_block, coinbase: shown.clone() };
            let height = evidence.verify(network)?;
            let connection = answer.connection;
            Ok(Finding::FalseHeight { connection, evidence: Box::new(evidence), height })
        })
    }

    /// Tries every settled answer for `block`.
    fn judge(
        &self,
        block: BlockHash,
        verify: impl Fn(&Answer) -> Result<Finding, EvidenceError>,
    ) -> Finding {
        let mut error = EvidenceError::NoAnswer(block);
        for answer in &self.kept {
            if answer.is_settled && answer.block_hash == block {
                match verify(answer) {
                    Ok(finding) => return finding,
                    Err(found) => error = found,
                }
            }
        }
        Finding::NoEvidence(block, error)
    }
}
