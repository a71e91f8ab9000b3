//! Answers that evidence can be held against.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;

use bitcoin::{BlockHash, Network};

use super::config::Limits;
use super::event::Finding;
use super::evidence::{EvidenceError, HeightEvidence, OmissionEvidence, TransactionInBlock};
use crate::btc::bip37::{BloomFilter, MerkleBlock};

/// How many blocks passed over are told apart.
const MAX_PASSED_OVER: usize = 1_000;

/// The latest answers that evidence can be held against, and whether one to come can be.
///
/// An honest node must not be accused, so an answer counts only if it is certain which request,
/// and so which filter, it answers.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    max_kept: usize,
    max_bytes: usize,
    /// The oldest first.
    kept: VecDeque<Answer>,
    /// Blocks whose request was passed over on this connection: a late answer could be taken for
    /// one to another request.
    passed_over: BTreeSet<BlockHash>,
    /// The node did not answer each request once on this connection.
    is_out_of_turn: bool,
}

/// An answer, with the filter as loaded when it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    block_hash: BlockHash,
    merkle_block: MerkleBlock,
    filter: Arc<BloomFilter>,
    /// The number of the connection that it came on.
    connection: u64,
    fence: u64,
    /// The fence has come back: no answer to an earlier request can follow.
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

    /// Its bytes without the filter; an empty one counts too.
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

    /// The connection is gone: answers whose fence has not come back stay uncertain for good.
    pub(super) fn disconnect(&mut self) {
        self.kept.retain(|answer| answer.is_settled);
        self.passed_over.clear();
        self.is_out_of_turn = false;
    }

    /// Whether an answer for this block can only be one to the request that is in flight.
    pub(super) fn is_in_turn(&self, block: &BlockHash) -> bool {
        !self.is_out_of_turn && !self.passed_over.contains(block)
    }

    /// The node answered what was not asked: which answer belongs to which request is no longer
    /// certain. But before a pong that has come, or on a connection before, there was none too
    /// many.
    pub(super) fn lose_turn(&mut self) {
        self.is_out_of_turn = true;
        self.kept.retain(|answer| answer.is_settled);
    }

    /// The node did not answer for this block before the fence: its answer may still come.
    pub(super) fn pass_over(&mut self, block: BlockHash) {
        if self.passed_over.len() < MAX_PASSED_OVER {
            self.passed_over.insert(block);
        } else {
            self.is_out_of_turn = true;
        }
    }

    /// The node has come to the end of what was asked before this fence.
    pub(super) fn settle(&mut self, fence: u64) {
        if !self.is_out_of_turn {
            for answer in &mut self.kept {
                answer.is_settled |= answer.fence <= fence;
            }
        }
    }

    /// Keeps an answer, and drops the oldest that are too many.
    pub(super) fn keep(&mut self, answer: Answer) {
        self.kept.push_back(answer);
        // From the latest back; answers to one filter share it.
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

    /// What a transaction that someone shows of `block` is worth: an omission, or no evidence.
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

    /// What a coinbase transaction that someone shows of `block` is worth: a false height, or no
    /// evidence.
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

    /// Tries every answer for `block` that can be held against the node.
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
