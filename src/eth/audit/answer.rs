//! The logs of an answer: the block of each log, and the errors that can be found without receipts.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bytes};
use chainsieve_lanes::hash::keccak256;

use super::blocks::Blocks;
use super::proof::{lacks, may_ask_for};
use super::{AuditQuestion, Finding, FindingKind, ForgedLog, Forgery, Grounds, WrongField};
use crate::eth::bloom::BloomView;
use crate::eth::chain_profile::ReceiptsScope;
use crate::eth::header::LinkedHeaders;
use crate::eth::log::LocatedLog;
use crate::eth::log_query::ResolvedBlocks;

/// A log of the answer whose block is in the queried range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    /// Number of the block on the chain.
    pub(super) number: u64,
    /// Index of the log in the answer.
    pub(super) at: usize,
    pub(super) existence: Existence,
}

/// Result of the search for a log in its block's receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    /// The receipts were not compared with the log.
    Unknown,
    /// The log is in the receipt with this index.
    InReceipt(u64),
    /// The log is in no receipt, or it repeats another log of the answer.
    No,
}

#[derive(Debug)]
pub(super) struct Answer<'a> {
    logs: &'a [LocatedLog],
    /// The logs of the answer, sorted by block number, then by index in the answer.
    placed: Vec<Placed>,
    /// Transaction hashes of blocks, by block number.
    transactions: BTreeMap<u64, Vec<B256>>,
    /// Number of logs whose transaction hash was not compared with any transaction.
    pub(super) unbound: usize,
}

impl<'a> Answer<'a> {
    /// Assigns the logs to blocks, and adds the findings that need no receipts.
    pub(super) fn new(
        question: &AuditQuestion<'a>,
        range: &RangeInclusive<u64>,
        anchored_to: Option<u64>,
        logs: &'a [LocatedLog],
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut places = Places::new(question.chain);
        let mut placed = Vec::new();
        for (at, log) in logs.iter().enumerate() {
            let number = places.number_of(log);
            let grounds = number.map_or(Grounds::Answer, |n| Grounds::of_block(n, anchored_to));
            let mut found = |grounds, kind| findings.push(Finding { block: number, grounds, kind });
            // A log marked as removed is treated as not delivered, so nothing else about it is
            // checked.
            if log.removed {
                found(grounds, FindingKind::Removed { at });
                continue;
            }
            if let Some(kind) = not_wanted(question, at, log) {
                found(Grounds::Answer, kind);
            }
            if let ResolvedBlocks::AtHash(hash) = question.blocks
                && log.block_hash != hash
            {
                found(Grounds::Answer, FindingKind::OutOfRange { at });
                continue;
            }
            // The provider may have resolved a tag to another number. If the query names a number,
            // no other number is possible.
            let outside = |number| {
                if may_ask_for(question.query, number, &log.block_hash) {
                    FindingKind::BeyondTag { at }
                } else {
                    FindingKind::OutOfRange { at }
                }
            };
            let Some(number) = number else {
                // The block is not on the chain, so only its claimed number can be judged.
                if range.contains(&log.block_number) {
                    let grounds = Grounds::of_block(log.block_number, anchored_to);
                    found(grounds, FindingKind::OtherFork { at });
                } else {
                    found(Grounds::Answer, outside(log.block_number));
                }
                continue;
            };
            let block = question.chain.block(number);
            if log.block_number != number {
                let field = WrongField::BlockNumber { actual: number };
                found(grounds, FindingKind::WrongField { at, field });
            }
            if let (Some(said), Some(actual)) = (log.block_timestamp, block.map(|b| b.timestamp))
                && said != actual
            {
                let field = WrongField::BlockTimestamp { answered: said, actual };
                found(grounds, FindingKind::WrongField { at, field });
            }
            if range.contains(&number) {
                placed.push(Placed { number, at, existence: Existence::Unknown });
            } else {
                found(grounds, outside(number));
            }
        }
        let mut answer = Self { logs, placed, transactions: BTreeMap::new(), unbound: 0 };
        answer.set_repetitions_aside(question, findings);
        answer
    }

    pub(super) fn log(&self, at: usize) -> &'a LocatedLog {
        &self.logs[at]
    }

    /// Returns the logs of a block.
    pub(super) fn of_block(&mut self, number: u64) -> &mut [Placed] {
        let start = self.placed.partition_point(|placed| placed.number < number);
        let length = self.placed[start..].partition_point(|placed| placed.number == number);
        &mut self.placed[start..start + length]
    }

    /// Stores the hashes of a block's transactions, which the caller has verified.
    pub(super) fn bind_transactions(&mut self, number: u64, encodings: &[Bytes]) {
        if !self.of_block(number).is_empty() {
            let hashes = encodings.iter().map(|bytes| B256::new(keccak256(bytes))).collect();
            self.transactions.insert(number, hashes);
        }
    }

    /// Adds the findings that depend on all receipts and transactions: forgeries shown by filters, and wrong
    /// transaction hashes.
    pub(super) fn finish(
        &mut self,
        question: &AuditQuestion<'_>,
        anchored_to: Option<u64>,
        blocks: &Blocks,
        unsound: &[RangeInclusive<u64>],
        findings: &mut Vec<Finding>,
    ) {
        for placed in &self.placed {
            let &Placed { number, at, existence } = placed;
            let log = &self.logs[at];
            let grounds = Grounds::of_block(number, anchored_to);
            let properties = question.profile.at(number);
            // Checked blocks were compared with their receipts, which show more than the filter.
            if existence == Existence::Unknown && !blocks.is_checked(number) {
                let usable = properties.bloom.proves_absence()
                    && !unsound.iter().any(|numbers| numbers.contains(&number));
                let bits = question.chain.block(number).filter(|_| usable);
                let bits = bits.and_then(|block| BloomView::from(block.bloom).informative());
                if bits.is_some_and(|bits| lacks(bits, &log.log)) {
                    let forged = forged(at, log, Forgery::Bloom);
                    findings.push(Finding { block: Some(number), grounds, kind: forged });
                    continue;
                }
            }
            let Some(claimed) = log.transaction_hash else { continue };
            // For a log that is in the block, the true index is used, so that a wrong index is
            // reported only once and not also as a wrong hash.
            let index = match existence {
                Existence::No => continue,
                Existence::InReceipt(index) => index,
                Existence::Unknown => log.transaction_index,
            };
            let hashes = self.transactions.get(&number);
            // If nodes also return logs outside of receipts, the transaction index of such a log
            // may belong to no transaction in the trie.
            let hashes = hashes.filter(|_| properties.receipts == ReceiptsScope::EveryLog);
            let Some(hashes) = hashes else {
                self.unbound += 1;
                continue;
            };
            let actual = usize::try_from(index).ok().and_then(|at| hashes.get(at).copied());
            if actual != Some(claimed) {
                let field = WrongField::TransactionHash { actual };
                let kind = FindingKind::WrongField { at, field };
                findings.push(Finding { block: Some(number), grounds, kind });
            }
        }
    }

    /// Reports repetitions as duplicates and removes them; a repetition has the same block, indices
    /// and content as an earlier log.
    ///
    /// If nodes also return logs outside of receipts, the indices of logs may not be unique. No log
    /// is removed in that case.
    fn set_repetitions_aside(&mut self, question: &AuditQuestion<'_>, findings: &mut Vec<Finding>) {
        let logs = self.logs;
        let by_log = |a: &Placed, b: &Placed| {
            a.number.cmp(&b.number).then_with(|| compare(&logs[a.at], &logs[b.at]))
        };
        self.placed.sort_unstable_by(|a, b| by_log(a, b).then(a.at.cmp(&b.at)));
        self.placed.dedup_by(|later, earlier| {
            let scope = question.profile.at(earlier.number).receipts;
            let same = scope == ReceiptsScope::EveryLog && by_log(later, earlier).is_eq();
            if same {
                let kind = FindingKind::Duplicate { at: later.at, first: earlier.at };
                let block = Some(earlier.number);
                findings.push(Finding { block, grounds: Grounds::Answer, kind });
            }
            same
        });
        self.placed.sort_unstable_by_key(|placed| (placed.number, placed.at));
    }
}

pub(super) fn forged(at: usize, log: &LocatedLog, forgery: Forgery) -> FindingKind {
    let forged = ForgedLog { at, log: log.clone(), forgery, instead: None };
    FindingKind::ForgedLog(Box::new(forged))
}

/// Compares the indices and the content of two logs of one block.
fn compare(a: &LocatedLog, b: &LocatedLog) -> Ordering {
    let place = |log: &LocatedLog| (log.log_index, log.transaction_index, log.log.address);
    place(a)
        .cmp(&place(b))
        .then_with(|| a.log.topics().cmp(b.log.topics()))
        .then_with(|| a.log.data.data.cmp(&b.log.data.data))
}

fn not_wanted(question: &AuditQuestion<'_>, at: usize, log: &LocatedLog) -> Option<FindingKind> {
    let query = question.query;
    if query.matches(&log.log, question.semantics) {
        None
    } else if query.depends_on_semantics(&log.log) {
        Some(FindingKind::ArityDependent { at: Some(at), log: Box::new(log.clone()) })
    } else {
        Some(FindingKind::NotMatching { at })
    }
}

/// Finds the blocks of logs on the chain.
struct Places<'a> {
    chain: &'a LinkedHeaders,
    /// All blocks by hash. The list is built only when the block with a log's block number is not
    /// the log's block. This is rare, and the list requires a sort of all blocks.
    by_hash: Option<Vec<(B256, u64)>>,
}

impl<'a> Places<'a> {
    fn new(chain: &'a LinkedHeaders) -> Self {
        Self { chain, by_hash: None }
    }

    /// Returns the number of the block with the log's `blockHash`, or `None` if the block is not on
    /// the chain.
    fn number_of(&mut self, log: &LocatedLog) -> Option<u64> {
        let hash = log.block_hash;
        if self.chain.block(log.block_number).is_some_and(|block| block.hash == hash) {
            return Some(log.block_number);
        }
        let by_hash = self.by_hash.get_or_insert_with(|| {
            let mut all: Vec<_> = self.chain.blocks().map(|b| (b.hash, b.number)).collect();
            all.sort_unstable();
            all
        });
        let at = by_hash.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        by_hash.get(at).map(|(_, number)| *number)
    }
}
