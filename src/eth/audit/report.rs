//! What an audit ends in.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use core::iter;
use core::ops::RangeInclusive;

use serde::{Deserialize, Serialize, Serializer};

use super::blocks::Blocks;
use super::{Finding, FindingKind, ForgedLog, OmittedLog};
use crate::eth::header::{BlockRef, HeaderChain};

/// What is known of a block.
///
/// # JSON
/// As `serde` it is an object: `verdict` is `"absent_by_bloom"`, `"checked_by_receipts"` or
/// `"undecidable"`, the last with `why`, an [`Undecidable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum Verdict {
    /// Its filter rules out that it has a log that the query wants.
    AbsentByBloom,
    /// All its receipts were compared with the answer: what differs is among the findings, else
    /// the answer has exactly the block's logs.
    CheckedByReceipts,
    /// Neither.
    Undecidable(Undecidable),
}

/// Why nothing is certain of a block. As `serde` it is the name in snake case, as `"unanchored"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

impl fmt::Display for Undecidable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unanchored => "its header may be anyone's: no anchor at or after it",
            Self::ReceiptsNotSupplied => "its receipts are missing",
            Self::PostStateMissing => "its receipts came without the roots of states",
            Self::ReceiptsNotEveryLog => "nodes of this chain return logs outside of receipts",
            Self::ProfileContradicted => "filters of this chain turned out to lack bits",
        })
    }
}

/// A block whose filter does not rule a log out.
///
/// # JSON
/// As `serde` it is an object: `number` and `hash` as of a [`BlockRef`], and the members of the
/// [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Examined {
    /// Which block.
    #[serde(flatten)]
    pub block: BlockRef,
    /// What is known of it; never [`Verdict::AbsentByBloom`].
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How many blocks of the range there are of each [`Verdict`].
///
/// # JSON
/// As `serde` it is an object of JSON numbers: `all`, `examined`, `absent_by_bloom`,
/// `checked_by_receipts`, `undecidable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// All of them.
    #[serde(rename = "all")]
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

/// An audit in one word. As `serde` it is the name in lower case, as `"complete"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
///
/// # JSON
/// As `serde` it is an object. Numbers are JSON numbers.
///
/// | member | value |
/// |---|---|
/// | `status` | `"complete"`, `"undecided"` or `"wrong"` ([`status`](Self::status)) |
/// | `first`, `last` | first and last number of the [range](Self::range) |
/// | `anchored_to` | [number](Self::anchored_to) or null |
/// | `blocks` | the [`Counts`] |
/// | `examined` | a list of [`Examined`] blocks, ascending |
/// | `contradicted` | left out if empty: a list of `{"start", "end"}`, both included, ascending: blocks of which the profile says what another block has shown to be wrong |
/// | `findings` | a list of [`Finding`]s |
/// | `transaction_hashes_unbound` | [number](Self::unbound_transaction_hashes) |
///
/// Other members are ignored. `status` and `blocks` follow from the rest, and a report in which
/// they don't is refused. A report that was read is its issuer's word, except for the omissions and
/// forgeries in it, which [`OmittedLog::verify`] and [`ForgedLog::verify`] show anew.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Wire<'_>")]
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
    /// The blocks whose filter does not rule a log out, ascending.
    examined: Vec<Examined>,
    /// Parts of the range whose filters lack bits, ascending.
    unsound: Vec<RangeInclusive<u64>>,
}

impl AuditReport {
    pub(super) fn new(
        range: RangeInclusive<u64>,
        anchored_to: Option<u64>,
        (chain, blocks): (&HeaderChain, &Blocks),
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

    /// Counts in steps of examined blocks and unsound parts, since a range that was read may be of
    /// any length.
    fn count(&self) -> Counts {
        let blocks = length(&self.range);
        let mut counts =
            Counts { blocks, examined: self.examined.len() as u64, ..Counts::default() };
        // The blocks whose filters decide, before the examined ones are taken out.
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

    /// What is known of the block of this number; none outside the range.
    pub fn verdict(&self, number: u64) -> Option<Verdict> {
        if !self.range.contains(&number) {
            return None;
        }
        Some(self.examined_at(number).unwrap_or_else(|| self.by_filter(number)))
    }

    /// The blocks whose filter does not rule a log out, in order. All other blocks of the range are
    /// [absent by bloom](Verdict::AbsentByBloom), or undecidable because they are unanchored or the
    /// profile is contradicted.
    pub fn examined(&self) -> &[Examined] {
        &self.examined
    }

    /// The undecided blocks, in order, and why.
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
                    // What its filter rules out is passed over in one step.
                    Verdict::AbsentByBloom => next = self.after_absent(number),
                }
            }
        })
    }

    /// The first block after one that is absent by its filter of which something else may be known.
    fn after_absent(&self, number: u64) -> Option<u64> {
        let examined = self.examined.partition_point(|examined| examined.block.number <= number);
        let unsound = self.unsound.partition_point(|part| *part.start() <= number);
        let examined = self.examined.get(examined).map(|examined| examined.block.number);
        let unsound = self.unsound.get(unsound).map(|part| *part.start());
        let unanchored = self.anchored_to.and_then(|anchored| anchored.checked_add(1));
        [examined, unsound, unanchored].into_iter().flatten().min()
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

    fn examined_at(&self, number: u64) -> Option<Verdict> {
        let number_of = |examined: &Examined| examined.block.number;
        let index = self.examined.binary_search_by_key(&number, number_of).ok()?;
        self.examined.get(index).map(|examined| examined.verdict)
    }

    /// The verdict of a block that its filter rules out.
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

/// How many numbers these are: not all 2^64.
fn length(numbers: &RangeInclusive<u64>) -> u64 {
    if numbers.is_empty() { 0 } else { numbers.end() - numbers.start() + 1 }
}

/// A report as it is written.
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

/// Why what was read is not a report.
#[derive(Debug, thiserror::Error)]
enum Contradiction {
    #[error("blocks {0} to {1} are not a range")]
    Range(u64, u64),
    #[error(
        "block {0} of examined is not of the range, not in order, or has a verdict that it can't have"
    )]
    Examined(u64),
    #[error("blocks {0} to {1} of contradicted are not of the range, or not in order")]
    Unsound(u64, u64),
    #[error("blocks or status is not what follows from the rest")]
    Summary,
}

impl TryFrom<Wire<'_>> for AuditReport {
    type Error = Contradiction;

    fn try_from(wire: Wire<'_>) -> Result<Self, Contradiction> {
        let Wire { first, last, .. } = wire;
        if first > last || last - first == u64::MAX {
            return Err(Contradiction::Range(first, last));
        }
        let mut from = Some(first);
        for &Examined { block: BlockRef { number, .. }, verdict } in &*wire.examined {
            let is_next = from.is_some_and(|from| (from..=last).contains(&number));
            let is_anchored = wire.anchored_to.is_some_and(|anchored| number <= anchored);
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
