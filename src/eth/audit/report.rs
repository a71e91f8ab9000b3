//! The report of an audit: verdicts, counts and status.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use core::iter;
use core::ops::RangeInclusive;

use chainsieve_lanes::names;
use serde::{Deserialize, Serialize, Serializer};

use super::blocks::Blocks;
use super::{Finding, FindingKind, ForgedLog, OmittedLog};
use crate::eth::header::{BlockRef, LinkedHeaders};

/// The result of an audit for one block.
///
/// # JSON
/// `serde` writes an object. `verdict` is `"absent_by_bloom"`, `"checked_by_receipts"` or
/// `"undecidable"`. `"undecidable"` has a second member `why`, an [`Undecidable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
#[must_use]
pub enum Verdict {
    /// The block's filter proves that the block has no matching log.
    AbsentByBloom,
    /// All receipts of the block were compared with the answer. Every difference is a finding;
    /// without a finding the answer has exactly the matching logs of the block.
    CheckedByReceipts,
    /// The audit cannot decide the block, for the given reason.
    Undecidable(Undecidable),
}

impl Verdict {
    /// Returns the name that `serde` writes: `absent_by_bloom`, `checked_by_receipts` or
    /// `undecidable`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbsentByBloom => "absent_by_bloom",
            Self::CheckedByReceipts => "checked_by_receipts",
            Self::Undecidable(_) => "undecidable",
        }
    }
}

/// Writes the [name](Verdict::name). For an undecidable block, also writes the reason in words.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecidable(why) => write!(f, "{}: {why}", self.name()),
            _ => f.pad(self.name()),
        }
    }
}

/// Reason why an audit cannot decide a block.
///
/// `serde` writes the name in snake case, for example `"unanchored"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Undecidable {
    /// No anchor is at or above the block, so anyone may have made its header.
    Unanchored,
    /// The block may contain a match, and its receipts were not supplied.
    ReceiptsNotSupplied,
    /// The block precedes Byzantium, and its receipts were supplied without the post-state roots
    /// that the receipts root covers.
    PostStateMissing,
    /// The receipts were compared with the answer, but nodes of this chain also return logs that
    /// are in no receipt.
    ReceiptsNotEveryLog,
    /// The block's filter rules out a match, but another block has proven that filters of this
    /// chain lack bits, which contradicts the profile.
    ProfileContradicted,
}

impl Undecidable {
    /// Returns the name that `serde` writes, for example `unanchored`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unanchored => "unanchored",
            Self::ReceiptsNotSupplied => "receipts_not_supplied",
            Self::PostStateMissing => "post_state_missing",
            Self::ReceiptsNotEveryLog => "receipts_not_every_log",
            Self::ProfileContradicted => "profile_contradicted",
        }
    }
}

/// Writes the reason in words. [`name`](Undecidable::name) returns the name.
impl fmt::Display for Undecidable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unanchored => "its header is unproven: no anchor at or after the block",
            Self::ReceiptsNotSupplied => "its receipts are missing",
            Self::PostStateMissing => "its receipts lack their post-state roots",
            Self::ReceiptsNotEveryLog => "nodes of this chain return logs outside of receipts",
            Self::ProfileContradicted => "filters of this chain lack bits, contrary to the profile",
        })
    }
}

/// A block whose filter cannot rule out a match, with its verdict.
///
/// # JSON
/// `serde` writes an object: `number` and `hash` as in a [`BlockRef`], and the members of the
/// [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Examined {
    /// Number and hash of the block.
    #[serde(flatten)]
    pub block: BlockRef,
    /// The verdict on the block; never [`Verdict::AbsentByBloom`].
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Number of blocks in the range for each [`Verdict`].
///
/// # JSON
/// `serde` writes an object of JSON numbers: `all`, `examined`, `absent_by_bloom`,
/// `checked_by_receipts`, `undecidable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Number of all blocks in the range.
    #[serde(rename = "all")]
    pub blocks: u64,
    /// Number of blocks whose filter cannot rule out a match. The audit needs the receipts of these
    /// blocks, except for blocks without receipts.
    pub examined: u64,
    /// Number of blocks with [`Verdict::AbsentByBloom`].
    pub absent_by_bloom: u64,
    /// Number of blocks with [`Verdict::CheckedByReceipts`].
    pub checked_by_receipts: u64,
    /// Number of blocks with [`Verdict::Undecidable`].
    pub undecidable: u64,
}

/// Overall result of an audit.
///
/// `serde` and `Display` write the [name](Self::name), for example `complete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The answer has exactly the matching logs of the range, each with its correct position, on
    /// the chain that ends at the anchor. Completeness is proven if the profile is right.
    Complete,
    /// The answer is neither proven nor refuted: a block is undecided, or a finding is no proof
    /// against the answer.
    Undecided,
    /// The answer is proven to be wrong.
    Wrong,
}

names! { Status, "a status": Complete = "complete", Undecided = "undecided", Wrong = "wrong" }

/// The result of an audit.
///
/// # JSON
/// `serde` writes an object. Numbers are JSON numbers.
///
/// | member | value |
/// |---|---|
/// | `status` | `"complete"`, `"undecided"` or `"wrong"` ([`status`](Self::status)) |
/// | `first`, `last` | first and last number of the [range](Self::range) |
/// | `anchored_to` | [number](Self::anchored_to) or null |
/// | `blocks` | the [`Counts`] |
/// | `examined` | a list of [`Examined`] blocks, ascending |
/// | `contradicted` | left out if empty: an ascending list of `{"start", "end"}`, both included: the ranges of blocks for which a block has contradicted the profile |
/// | `findings` | a list of [`Finding`]s |
/// | `transaction_hashes_unbound` | [number](Self::unbound_transaction_hashes) |
///
/// Unknown members are ignored. `status` and `blocks` follow from the other members; a report whose
/// `status` or `blocks` differ from them is rejected. A report in JSON proves nothing by
/// itself, because its issuer may lie. Only its omissions and forgeries can be verified again, by
/// [`OmittedLog::verify`] and [`ForgedLog::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Wire<'_>")]
#[must_use = "the report is the only result of an audit"]
pub struct AuditReport {
    /// Numbers of the queried blocks.
    pub range: RangeInclusive<u64>,
    /// Number of the highest block of the chain whose hash is an anchor, or `None` if no anchor is
    /// on the chain.
    pub anchored_to: Option<u64>,
    /// Number of blocks with each verdict.
    pub counts: Counts,
    /// The findings, sorted by block; findings without a block are last.
    pub findings: Vec<Finding>,
    /// Number of logs in the answer whose transaction hash was not compared with the block's
    /// transactions.
    pub unbound_transaction_hashes: usize,
    /// The blocks whose filter cannot rule out a match, ascending.
    examined: Vec<Examined>,
    /// Parts of the range in which filters were found to lack bits, ascending.
    unsound: Vec<RangeInclusive<u64>>,
}

impl AuditReport {
    pub(super) fn new(
        range: RangeInclusive<u64>,
        anchored_to: Option<u64>,
        (chain, blocks): (&LinkedHeaders, &Blocks),
        unsound: Vec<RangeInclusive<u64>>,
        mut findings: Vec<Finding>,
        unbound_transaction_hashes: usize,
    ) -> Self {
        let examined = blocks.numbers().filter_map(|number| {
            let block = BlockRef { number, hash: chain.block(number)?.hash };
            Some(Examined { block, verdict: blocks.verdict(number, anchored_to) })
        });
        findings.sort_by_key(|finding| {
            (finding.block.is_none(), finding.block, finding.at().is_none(), finding.at())
        });
        let mut report = Self {
            range,
            anchored_to,
            counts: Counts::default(),
            findings,
            unbound_transaction_hashes,
            examined: examined.collect(),
            unsound,
        };
        report.counts = report.count();
        report
    }

    /// Computes the number of blocks with each verdict.
    ///
    /// The cost depends on the number of examined blocks and unsound parts, not on the length of
    /// the range: a range that was read from JSON may have any length.
    fn count(&self) -> Counts {
        let blocks = length(&self.range);
        let mut counts =
            Counts { blocks, examined: self.examined.len() as u64, ..Counts::default() };
        // First, all blocks whose filters can decide are counted; the examined blocks are
        // subtracted below.
        if let Some(anchored) = self.anchored_to {
            let authentic = *self.range.start()..=anchored.min(*self.range.end());
            let unsound = self
                .unsound
                .iter()
                .map(|part| length(&(*part.start()..=*part.end().min(authentic.end()))));
            counts.absent_by_bloom = length(&authentic) - unsound.sum::<u64>();
        }
        for Examined { block, verdict } in &self.examined {
            if self.by_filter(block.number) == Verdict::AbsentByBloom {
                counts.absent_by_bloom -= 1;
            }
            if *verdict == Verdict::CheckedByReceipts {
                counts.checked_by_receipts += 1;
            }
        }
        counts.undecidable = blocks - counts.absent_by_bloom - counts.checked_by_receipts;
        counts
    }

    /// Returns the verdict on the block with this number, or `None` outside the range.
    pub fn verdict(&self, number: u64) -> Option<Verdict> {
        if !self.range.contains(&number) {
            return None;
        }
        Some(self.examined_at(number).unwrap_or_else(|| self.by_filter(number)))
    }

    /// Returns the blocks whose filter cannot rule out a match, ascending.
    ///
    /// All other blocks of the range are [absent by bloom](Verdict::AbsentByBloom), or undecidable
    /// because they are unanchored or because the profile is contradicted.
    pub fn examined(&self) -> &[Examined] {
        &self.examined
    }

    /// Returns the numbers of the undecided blocks, ascending, each with its reason.
    pub fn undecided(&self) -> impl Iterator<Item = (u64, Undecidable)> {
        let mut next = Some(*self.range.start());
        iter::from_fn(move || {
            loop {
                let number = next?;
                match self.verdict(number)? {
                    Verdict::Undecidable(why) => {
                        next = number.checked_add(1);
                        return Some((number, why));
                    }
                    Verdict::CheckedByReceipts => next = number.checked_add(1),
                    // Consecutive blocks whose filters rule out a match are skipped in one step,
                    // because a range may have billions of them.
                    Verdict::AbsentByBloom => next = self.after_absent(number),
                }
            }
        })
    }

    /// Returns the first block after `number` whose verdict may differ from
    /// [`Verdict::AbsentByBloom`].
    fn after_absent(&self, number: u64) -> Option<u64> {
        let examined = self.examined.partition_point(|examined| examined.block.number <= number);
        let unsound = self.unsound.partition_point(|part| *part.start() <= number);
        let examined = self.examined.get(examined).map(|examined| examined.block.number);
        let unsound = self.unsound.get(unsound).map(|part| *part.start());
        let unanchored = self.anchored_to.and_then(|anchored| anchored.checked_add(1));
        [examined, unsound, unanchored].into_iter().flatten().min()
    }

    /// Returns the overall result. [`Finding::is_proof`] defines which findings make an answer
    /// wrong.
    pub fn status(&self) -> Status {
        if self.findings.iter().any(Finding::is_proof) {
            Status::Wrong
        } else if self.findings.is_empty() && self.counts.undecidable == 0 {
            Status::Complete
        } else {
            Status::Undecided
        }
    }

    /// Returns the matching logs that the answer lacks, in the order of the chain.
    pub fn omitted(&self) -> impl Iterator<Item = &OmittedLog> {
        self.findings.iter().filter_map(|finding| match &finding.kind {
            FindingKind::OmittedLog(omitted) => Some(&**omitted),
            _ => None,
        })
    }

    /// Returns the logs of the answer that are not in their blocks.
    pub fn forged(&self) -> impl Iterator<Item = &ForgedLog> {
        self.findings.iter().filter_map(|finding| match &finding.kind {
            FindingKind::ForgedLog(forged) => Some(&**forged),
            _ => None,
        })
    }

    fn examined_at(&self, number: u64) -> Option<Verdict> {
        let number_of = |examined: &Examined| examined.block.number;
        let index = self.examined.binary_search_by_key(&number, number_of).ok()?;
        self.examined.get(index).map(|examined| examined.verdict)
    }

    /// Returns the verdict on a block whose filter rules out a match.
    fn by_filter(&self, number: u64) -> Verdict {
        if self.anchored_to.is_none_or(|anchored| number > anchored) {
            Verdict::Undecidable(Undecidable::Unanchored)
        } else if self.is_unsound(number) {
            Verdict::Undecidable(Undecidable::ProfileContradicted)
        } else {
            Verdict::AbsentByBloom
        }
    }

    fn is_unsound(&self, number: u64) -> bool {
        let after = self.unsound.partition_point(|part| *part.start() <= number);
        let part = after.checked_sub(1).and_then(|at| self.unsound.get(at));
        part.is_some_and(|part| part.contains(&number))
    }
}

/// Returns the length of a range, which must not contain all 2^64 numbers.
fn length(numbers: &RangeInclusive<u64>) -> u64 {
    if numbers.is_empty() { 0 } else { numbers.end() - numbers.start() + 1 }
}

/// A report in its JSON form.
#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    status: Status,
    first: u64,
    last: u64,
    anchored_to: Option<u64>,
    blocks: Counts,
    examined: Cow<'a, [Examined]>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    contradicted: Cow<'a, [RangeInclusive<u64>]>,
    findings: Cow<'a, [Finding]>,
    transaction_hashes_unbound: usize,
}

impl Serialize for AuditReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire {
            status: self.status(),
            first: *self.range.start(),
            last: *self.range.end(),
            anchored_to: self.anchored_to,
            blocks: self.counts,
            examined: Cow::Borrowed(&self.examined),
            contradicted: Cow::Borrowed(&self.unsound),
            findings: Cow::Borrowed(&self.findings),
            transaction_hashes_unbound: self.unbound_transaction_hashes,
        };
        wire.serialize(serializer)
    }
}

/// Reason why a parsed report is invalid.
#[derive(Debug, thiserror::Error)]
enum Contradiction {
    #[error("blocks {0} to {1} are not a range")]
    Range(u64, u64),
    #[error(
        "block {0} in `examined` is not in the range, not in order, or has an impossible verdict"
    )]
    Examined(u64),
    #[error("blocks {0} to {1} in `contradicted` are not in the range, or not in order")]
    Unsound(u64, u64),
    #[error("`blocks` or `status` contradicts the other members of the report")]
    Summary,
}

impl TryFrom<Wire<'_>> for AuditReport {
    type Error = Contradiction;

    fn try_from(wire: Wire<'_>) -> Result<Self, Contradiction> {
        let Wire { first, last, .. } = wire;
        // The number of all 2^64 blocks would overflow a u64.
        if first > last || last - first == u64::MAX {
            return Err(Contradiction::Range(first, last));
        }
        let mut from = Some(first);
        for &Examined { block: BlockRef { number, .. }, verdict } in &*wire.examined {
            let is_next = from.is_some_and(|from| (from..=last).contains(&number));
            let is_anchored = wire.anchored_to.is_some_and(|anchored| number <= anchored);
            // The filter of an examined block never rules out a match. Exactly the blocks above the
            // anchor are unanchored.
            let is_possible = match verdict {
                Verdict::AbsentByBloom => false,
                Verdict::Undecidable(Undecidable::Unanchored) => !is_anchored,
                Verdict::CheckedByReceipts | Verdict::Undecidable(_) => is_anchored,
            };
            if !is_next || !is_possible {
                return Err(Contradiction::Examined(number));
            }
            from = number.checked_add(1);
        }
        let mut from = Some(first);
        for part in &*wire.contradicted {
            let (start, end) = (*part.start(), *part.end());
            if from.is_none_or(|from| start < from) || start > end || end > last {
                return Err(Contradiction::Unsound(start, end));
            }
            from = end.checked_add(1);
        }
        let mut report = Self {
            range: first..=last,
            anchored_to: wire.anchored_to,
            counts: Counts::default(),
            findings: wire.findings.into_owned(),
            unbound_transaction_hashes: wire.transaction_hashes_unbound,
            examined: wire.examined.into_owned(),
            unsound: wire.contradicted.into_owned(),
        };
        report.counts = report.count();
        if (report.counts, report.status()) == (wire.blocks, wire.status) {
            Ok(report)
        } else {
            Err(Contradiction::Summary)
        }
    }
}
