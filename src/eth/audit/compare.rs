//! Compares an answer with the chain: first by headers and filters alone, then with all logs of a block.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::RangeInclusive;

use alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve_lanes::hash::keccak256;

use super::blocks::Blocks;
use super::proof::{lacks, may_ask_for};
use super::{
    AuditQuestion, Finding, FindingKind, ForgedLog, Forgery, Grounds, OmittedLog, WrongField,
};
use crate::eth::bloom::BloomView;
use crate::eth::chain_profile::{BloomSoundness, ProfileRange, ReceiptsScope};
use crate::eth::header::{ChainBlock, LinkedHeaders};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::ResolvedBlocks;
use crate::eth::receipts::{BloomAgreement, ReceiptProof, VerifiedLog, VerifiedReceipts};

/// A log of the answer whose block is in the queried range.
#[derive(Debug, Clone, Copy)]
struct Placed {
    /// Number of the block on the chain.
    number: u64,
    /// Index of the log in the answer.
    at: usize,
    existence: Existence,
}

/// Result of the search for a log in its block's receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
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

    fn log(&self, at: usize) -> &'a LocatedLog {
        &self.logs[at]
    }

    /// Returns the logs of a block.
    fn of_block(&mut self, number: u64) -> &mut [Placed] {
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

fn forged(at: usize, log: &LocatedLog, forgery: Forgery) -> FindingKind {
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

/// Returns a finding if the relation of a header's filter to the block's logs contradicts the
/// profile.
pub(super) fn contradiction(
    block: &ChainBlock<'_>,
    properties: &ProfileRange,
    verified: &VerifiedReceipts<'_>,
) -> Option<FindingKind> {
    // A filter with all bits set claims nothing, so it contradicts no profile.
    BloomView::from(block.bloom).informative()?;
    let claimed = properties.bloom;
    let (missing_bits, extra_bits) = match (claimed, verified.header_bloom()) {
        // If the receipts lack logs, the extra bits may belong to those logs.
        (BloomSoundness::Exact, BloomAgreement::Superset { extra_bits })
            if properties.receipts == ReceiptsScope::EveryLog =>
        {
            (0, extra_bits)
        }
        (
            BloomSoundness::Exact | BloomSoundness::Superset,
            BloomAgreement::Missing { missing_bits, extra_bits, .. },
        ) => (missing_bits, extra_bits),
        _ => return None,
    };
    Some(FindingKind::ProfileContradicted { claimed, missing_bits, extra_bits })
}

/// Comparison of one block's logs with the answer.
///
/// Each log of the answer is paired with at most one log of the block that has the same address,
/// topics and data. Logs whose indices agree too are paired first, so that a wrong index is never
/// mistaken for an omission and a forgery. The order of the passes is: equal log index and
/// transaction index; equal transaction index; equal log index; neither of the two.
pub(super) struct Comparison<'c, 'a, 'v> {
    question: &'c AuditQuestion<'a>,
    block: &'c ChainBlock<'c>,
    scope: ReceiptsScope,
    verified: &'c VerifiedReceipts<'v>,
    logs: Vec<VerifiedLog<'v>>,
    /// For each log of the block, the paired log, as an index into the answer.
    paired: Vec<Option<usize>>,
    /// Proofs of receipts, by transaction index.
    proofs: BTreeMap<u64, Arc<ReceiptProof>>,
}

type Content<'l> = (Address, &'l [B256], &'l [u8]);

fn content(log: &Log) -> Content<'_> {
    (log.address, log.topics(), &log.data.data)
}

impl<'c, 'a, 'v> Comparison<'c, 'a, 'v> {
    pub(super) fn new(
        question: &'c AuditQuestion<'a>,
        block: &'c ChainBlock<'c>,
        scope: ReceiptsScope,
        verified: &'c VerifiedReceipts<'v>,
    ) -> Self {
        let logs: Vec<_> = verified.logs().collect();
        let paired = vec![None; logs.len()];
        Self { question, block, scope, verified, logs, paired, proofs: BTreeMap::new() }
    }

    /// Returns the logs of the block that match the query.
    pub(super) fn wanted(&self) -> impl Iterator<Item = LocatedLog> {
        let AuditQuestion { query, semantics, .. } = self.question;
        let wanted = self.logs.iter().filter(|own| query.matches(own.log, *semantics));
        wanted.map(|own| self.located(own))
    }

    pub(super) fn run(
        mut self,
        answer: &mut Answer<'a>,
        grounds: Grounds,
        findings: &mut Vec<Finding>,
    ) {
        let block = Some(self.block.number);
        let mut found = |kind| findings.push(Finding { block, grounds, kind });
        let mut placed = answer.of_block(self.block.number).to_vec();
        let pairs = self.pair(answer, &placed);
        let forged = placed.iter().zip(&pairs).filter(|(_, pair)| pair.is_none());
        let forged = forged.map(|(placed, _)| answer.log(placed.at).transaction_index);
        // If nodes also return logs outside of receipts, a log without a pair is no forgery, and
        // the paired log may be a different log with the same content. In that case, only omissions
        // are reported.
        let accuses = self.scope == ReceiptsScope::EveryLog;
        self.prove(forged.filter(|_| accuses));
        if accuses {
            for (placed, pair) in placed.iter_mut().zip(pairs) {
                let log = answer.log(placed.at);
                if let Some(own) = pair.map(|own| self.logs[own]) {
                    placed.existence = Existence::InReceipt(own.transaction_index);
                    wrong_places(log, &own, placed.at, &mut found);
                } else {
                    placed.existence = Existence::No;
                    self.not_there(log, placed.at, &mut found);
                }
            }
            answer.of_block(self.block.number).copy_from_slice(&placed);
        }
        for index in 0..self.logs.len() {
            if self.paired[index].is_none()
                && let Some(kind) = self.not_answered(index)
            {
                found(kind);
            }
        }
    }

    /// Pairs the logs of the answer with those of the block.
    ///
    /// Returns for each log of the answer the paired log, as an index into the block's logs.
    fn pair(&mut self, answer: &Answer<'a>, placed: &[Placed]) -> Vec<Option<usize>> {
        let log_of = |index: usize| answer.log(placed[index].at);
        let mut pairs = vec![None; placed.len()];
        let mut rest = Vec::new();
        let mut take = |paired: &mut [Option<usize>], index: usize, own: usize| {
            paired[own] = Some(placed[index].at);
            pairs[index] = Some(own);
        };
        // Pass 1: equal log index and transaction index.
        for index in 0..placed.len() {
            let log = log_of(index);
            match self.free_at(log) {
                Some(own) if self.logs[own].transaction_index == log.transaction_index => {
                    take(&mut self.paired, index, own);
                }
                _ => rest.push(index),
            }
        }
        // Pass 2: equal transaction index.
        let mut free = self.free_by(&rest, |own| (own.transaction_index, content(own.log)));
        rest.retain(|&index| {
            let log = log_of(index);
            let own = free.get_mut(&(log.transaction_index, content(&log.log))).and_then(Vec::pop);
            own.map(|own| take(&mut self.paired, index, own)).is_none()
        });
        // Pass 3: equal log index.
        rest.retain(|&index| match self.free_at(log_of(index)) {
            Some(own) => {
                take(&mut self.paired, index, own);
                false
            }
            None => true,
        });
        // Pass 4: only equal content.
        let mut free = self.free_by(&rest, |own| content(own.log));
        rest.retain(|&index| {
            let own = free.get_mut(&content(&log_of(index).log)).and_then(Vec::pop);
            own.map(|own| take(&mut self.paired, index, own)).is_none()
        });
        pairs
    }

    /// Returns the position of the block's log that has the same log index as `log`, if both have
    /// the same content and the block's log is not yet paired.
    fn free_at(&self, log: &LocatedLog) -> Option<usize> {
        let (own, verified) = self.at(log.log_index)?;
        (*verified.log == log.log && self.paired[own].is_none()).then_some(own)
    }

    /// Returns the unpaired logs of the block by key, in descending order for each key.
    ///
    /// Returns an empty map if `rest`, the unpaired logs of the answer, is empty.
    fn free_by<K: Ord>(
        &self,
        rest: &[usize],
        key: impl Fn(&VerifiedLog<'v>) -> K,
    ) -> BTreeMap<K, Vec<usize>> {
        let mut free: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        if !rest.is_empty() {
            for (own, verified) in self.logs.iter().enumerate().rev() {
                if self.paired[own].is_none() {
                    free.entry(key(verified)).or_default().push(own);
                }
            }
        }
        free
    }

    /// Returns the block's log with this log index, and its position in `logs`.
    fn at(&self, log_index: u64) -> Option<(usize, &VerifiedLog<'v>)> {
        let at = usize::try_from(log_index).ok()?;
        Some((at, self.logs.get(at)?))
    }

    /// Reports a log of the answer without a pair: a duplicate or a forgery.
    fn not_there(&self, log: &LocatedLog, at: usize, found: &mut impl FnMut(FindingKind)) {
        // If the block's log at this index has the same content, another log of the answer is
        // already paired with it, so `log` is a repetition.
        let own = self.at(log.log_index).map(|(own, verified)| (own, *verified));
        if let Some((own, verified)) = own
            && *verified.log == log.log
            && let Some(first) = self.paired[own]
        {
            found(FindingKind::Duplicate { at, first });
            return;
        }
        let in_same = own.filter(|(_, own)| own.transaction_index == log.transaction_index);
        let instead = in_same.map(|(_, own)| own.log.clone());
        // The filter is preferred as evidence, because it needs only the header. The filter is used
        // only if the filter is sound and has all bits of the block's own logs.
        let proven_by_bloom = self.question.profile.at(self.block.number).bloom.proves_absence()
            && !matches!(self.verified.header_bloom(), BloomAgreement::Missing { .. });
        let bits = BloomView::from(self.block.bloom).informative();
        let forgery = match bits {
            Some(bits) if proven_by_bloom && lacks(bits, &log.log) => Forgery::Bloom,
            _ => Forgery::Receipts { proof: self.proofs.get(&log.transaction_index).cloned() },
        };
        let forged = ForgedLog { at, log: log.clone(), forgery, instead };
        found(FindingKind::ForgedLog(Box::new(forged)));
    }

    /// Returns the finding for a log of the block that the answer lacks, if the log matches.
    fn not_answered(&self, index: usize) -> Option<FindingKind> {
        let VerifiedLog { transaction_index, log, .. } = self.logs[index];
        let query = self.question.query;
        if !query.matches(log, self.question.semantics) {
            return None;
        }
        let located = self.located(&self.logs[index]);
        // The log matches by geth's rules or by alloy's rules, but not by both, so a provider may
        // rightly leave the log out.
        if query.depends_on_semantics(log) {
            return Some(FindingKind::ArityDependent { at: None, log: Box::new(located) });
        }
        let first = self.logs.partition_point(|own| own.transaction_index < transaction_index);
        let index_in_receipt = index - first;
        let proof = self.proofs.get(&transaction_index).expect("made for this receipt").clone();
        let omitted = OmittedLog { log: located, index_in_receipt, proof };
        Some(FindingKind::OmittedLog(Box::new(omitted)))
    }

    /// Returns the log with its position, but without a transaction hash.
    fn located(&self, own: &VerifiedLog<'_>) -> LocatedLog {
        own.located((*self.block).into(), self.block.timestamp)
    }

    /// Builds one proof for each receipt that has a finding.
    fn prove(&mut self, forged: impl Iterator<Item = u64>) {
        let AuditQuestion { query, semantics, .. } = self.question;
        let omitted = self
            .logs
            .iter()
            .zip(&self.paired)
            .filter(|(own, paired)| paired.is_none() && query.matches(own.log, *semantics));
        let mut indices: Vec<u64> =
            omitted.map(|(own, _)| own.transaction_index).chain(forged).collect();
        indices.sort_unstable();
        indices.dedup();
        let proofs = self.verified.proofs(&indices).into_iter();
        self.proofs = proofs.map(|proof| (proof.transaction_index, Arc::new(proof))).collect();
    }
}

/// Reports wrong indices of a log that is in the block.
fn wrong_places(
    log: &LocatedLog,
    own: &VerifiedLog<'_>,
    at: usize,
    found: &mut impl FnMut(FindingKind),
) {
    if own.log_index != log.log_index {
        let field = WrongField::LogIndex { actual: own.log_index };
        found(FindingKind::WrongField { at, field });
    }
    if own.transaction_index != log.transaction_index {
        let field = WrongField::TransactionIndex { actual: own.transaction_index };
        found(FindingKind::WrongField { at, field });
    }
}
