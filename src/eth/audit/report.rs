//! What an audit ends in.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::blocks::Blocks;
use super::{Finding, FindingKind, ForgedLog, OmittedLog};

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its filter rules out that it has a log that the query wants.
    AbsentByBloom,
    /// All its receipts were compared with the answer: what differs is among the findings, else
    /// the answer has exactly the block's logs.
    CheckedByReceipts,
    /// Neither.
    Undecidable(Undecidable),
}

/// Why nothing is certain of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Undecidable {
    /// It is above the anchor, or there is none on the chain: its header may be anyone's.
    Unanchored,
    /// It may have a log, and its receipts were not sent.
    ReceiptsNotSupplied,
    /// It is from before Byzantium, and its receipts came without the roots of the state that they
    /// are hashed with.
    PostStateMissing,
    /// Its receipts were compared, and nodes return logs that the receipts don't have.
    ReceiptsNotEveryLog,
    /// Its filter rules a log out, and another block has shown that filters of this chain lack
    /// bits, whatever the profile says.
    ProfileContradicted,
}

/// How many blocks of the range there are of each [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All of them.
    pub blocks: u64,
    /// Those that may have a log by their filter, or whose filter says nothing: whose receipts
    /// were asked for, unless there are none.
    pub examined: u64,
    /// [`Verdict::AbsentByBloom`].
    pub absent_by_bloom: u64,
    /// [`Verdict::CheckedByReceipts`].
    pub checked_by_receipts: u64,
    /// [`Verdict::Undecidable`].
    pub undecidable: u64,
}

/// An audit in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The answer has exactly the logs of the range that the query wants, each at its place, on
    /// the chain that ends at the anchor: proven, if the profile is right.
    Complete,
    /// Not proven, and not refuted: a block is undecided, or there is a finding that proves
    /// nothing against the answer.
    Undecided,
    /// The answer is proven not to be the right one.
    Wrong,
}

/// What is known of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReport {
    /// The queried blocks.
    pub range: RangeInclusive<u64>,
    /// The highest block of the chain whose hash is an anchor.
    pub anchored_to: Option<u64>,
    /// How many blocks have which verdict.
    pub counts: Counts,
    /// What is wrong, by block, those without a block last.
    pub findings: Vec<Finding>,
    /// How many logs of the answer have a transaction hash that nothing was compared with.
    pub unbound_transaction_hashes: usize,
    /// The blocks whose filter does not rule a log out.
    examined: Vec<(u64, Verdict)>,
    unsound: Vec<RangeInclusive<u64>>,
    fully_compared: bool,
}

impl AuditReport {
    pub(super) fn new(
        range: RangeInclusive<u64>,
        anchored_to: Option<u64>,
        blocks: &Blocks,
        unsound: Vec<RangeInclusive<u64>>,
        mut findings: Vec<Finding>,
        unbound_transaction_hashes: usize,
    ) -> Self {
        let verdict = |number| (number, blocks.verdict(number, anchored_to));
        let examined: Vec<_> = blocks.numbers().map(verdict).collect();
        findings.sort_by_key(|finding| {
            (finding.block.is_none(), finding.block, finding.at().is_none(), finding.at())
        });
        let mut report = Self {
            range,
            anchored_to,
            counts: Counts::default(),
            findings,
            unbound_transaction_hashes,
            examined,
            fully_compared: blocks.are_all_checked() && unsound.is_empty(),
            unsound,
        };
        report.counts = report.count();
        report
    }

    fn count(&self) -> Counts {
        let blocks = self.range.end() - self.range.start() + 1; // at most a chain in memory
        let mut counts =
            Counts { blocks, examined: self.examined.len() as u64, ..Counts::default() };
        for (_, verdict) in &self.examined {
            match verdict {
                Verdict::AbsentByBloom => counts.absent_by_bloom += 1,
                Verdict::CheckedByReceipts => counts.checked_by_receipts += 1,
                Verdict::Undecidable(_) => counts.undecidable += 1,
            }
        }
        let others = blocks - counts.examined;
        let decided = self.range.clone().filter(|&number| {
            self.by_filter(number) == Verdict::AbsentByBloom && self.examined_at(number).is_none()
        });
        let decided = decided.count() as u64;
        counts.absent_by_bloom += decided;
        counts.undecidable += others - decided;
        counts
    }

    /// What is known of the block of this number; none outside the range.
    pub fn verdict(&self, number: u64) -> Option<Verdict> {
        if !self.range.contains(&number) {
            return None;
        }
        Some(self.examined_at(number).unwrap_or_else(|| self.by_filter(number)))
    }

    /// The blocks whose filter does not rule a log out, in order, each with its verdict. All other
    /// blocks of the range are [absent by bloom](Verdict::AbsentByBloom), or undecidable because
    /// they are unanchored or the profile is contradicted.
    pub fn examined(&self) -> &[(u64, Verdict)] {
        &self.examined
    }

    /// The undecided blocks, in order, and why.
    pub fn undecided(&self) -> impl Iterator<Item = (u64, Undecidable)> {
        self.range.clone().filter_map(|number| match self.verdict(number)? {
            Verdict::Undecidable(why) => Some((number, why)),
            Verdict::AbsentByBloom | Verdict::CheckedByReceipts => None,
        })
    }

    /// The audit in one word. See [`Finding::is_proof`] for what makes an answer wrong.
    pub fn status(&self) -> Status {
        if self.findings.iter().any(Finding::is_proof) {
            Status::Wrong
        } else if self.findings.is_empty() && self.counts.undecidable == 0 {
            Status::Complete
        } else {
            Status::Undecided
        }
    }

    /// The logs that the answer lacks, in the order of the chain.
    pub fn omitted(&self) -> impl Iterator<Item = &OmittedLog> {
        self.findings.iter().filter_map(|finding| match &finding.kind {
            FindingKind::OmittedLog(omitted) => Some(&**omitted),
            _ => None,
        })
    }

    /// The logs of the answer that their blocks don't have.
    pub fn forged(&self) -> impl Iterator<Item = &ForgedLog> {
        self.findings.iter().filter_map(|finding| match &finding.kind {
            FindingKind::ForgedLog(forged) => Some(&**forged),
            _ => None,
        })
    }

    /// Whether the receipts of all examined blocks were compared and are all that nodes return,
    /// anchored or not.
    pub(crate) fn is_fully_compared(&self) -> bool {
        self.fully_compared
    }

    fn examined_at(&self, number: u64) -> Option<Verdict> {
        let index = self.examined.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.examined.get(index).map(|(_, verdict)| *verdict)
    }

    /// The verdict of a block that its filter rules out.
    fn by_filter(&self, number: u64) -> Verdict {
        if self.anchored_to.is_none_or(|anchored| number > anchored) {
            Verdict::Undecidable(Undecidable::Unanchored)
        } else if self.unsound.iter().any(|stretch| stretch.contains(&number)) {
            Verdict::Undecidable(Undecidable::ProfileContradicted)
        } else {
            Verdict::AbsentByBloom
        }
    }
}
