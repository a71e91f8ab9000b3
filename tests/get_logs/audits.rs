//! Audits of answers that are known to be right, and of the same answers without one log.

use chainsieve::eth::audit::{Audit, AuditReport, FindingKind, Status};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::log::LocatedLog;

use crate::readings::Reading;
use testkit::eth::log_chains::Chain;

/// Runs an audit anchored at the chain's head, with all receipts, and with the transactions that
/// the corpus has.
pub(crate) fn audit(chain: &Chain, reading: &Reading<'_>, answer: &[LocatedLog]) -> AuditReport {
    let (anchors, profile) = ([chain.run.tip()], ChainProfile::ethereum());
    let question = reading.question(chain, &anchors, &profile);
    let mut audit = Audit::new(question, answer).expect("the chain covers the range");
    for (block, body) in chain.blocks() {
        let is_of_block = |log: &LocatedLog| log.block_hash == block.hash;
        if let Some(encodings) = body.encodings.as_ref().filter(|_| answer.iter().any(is_of_block))
        {
            audit.check_transactions(block.hash, encodings).expect("the block's transactions");
        }
    }
    chain.run.send(&mut audit, |_| true);
    audit.finish()
}

/// Numbers of audits by result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Audits {
    pub(crate) complete: usize,
    /// Audits of an answer without one of its logs.
    pub(crate) wrong: usize,
    /// Audits of an answer without a log that only one of the two semantics selects.
    pub(crate) undecided: usize,
}

impl std::ops::AddAssign for Audits {
    fn add_assign(&mut self, other: Self) {
        self.complete += other.complete;
        self.wrong += other.wrong;
        self.undecided += other.undecided;
    }
}

/// Audits the right answer to a query, and the answer without one of its logs.
///
/// The log to leave out is chosen by `pick`, among the logs that both semantics select. If there
/// are logs that the other semantics does not select, a third audit leaves out one of these.
pub(crate) fn right_and_one_short(
    chain: &Chain,
    reading: &Reading<'_>,
    answer: &[LocatedLog],
    wanted_by_both: impl Fn(&LocatedLog) -> bool,
    pick: usize,
) -> Audits {
    let at = format!("{:?}, {}", reading.semantics, reading.query.to_json());
    let report = audit(chain, reading, answer);
    assert_eq!(report.status(), Status::Complete, "{at}: {:?}", report.findings);
    // Transaction hashes are compared only where the transactions are given.
    let unbound =
        if chain.bodies.iter().all(|body| body.encodings.is_some()) { 0 } else { answer.len() };
    assert_eq!(report.unbound_transaction_hashes, unbound, "{at}");
    let mut audits = Audits { complete: 1, ..Audits::default() };

    let one_short = |left_out: usize| {
        let rest = [&answer[..left_out], &answer[left_out + 1..]].concat();
        audit(chain, reading, &rest)
    };
    // Receipts contain no transaction hashes, so a log that an audit finds missing has none.
    let as_found = |at: usize| LocatedLog { transaction_hash: None, ..reading.logs[at].clone() };
    let (both, one): (Vec<_>, Vec<_>) =
        (0..answer.len()).partition(|&at| wanted_by_both(&answer[at]));
    if !both.is_empty() {
        let left_out = both[pick % both.len()];
        let report = one_short(left_out);
        assert_eq!(report.status(), Status::Wrong, "{at}: without {left_out}");
        let omitted: Vec<_> = report.omitted().map(|omitted| &omitted.log).collect();
        assert_eq!(omitted, [&as_found(left_out)], "{at}: without {left_out}");
        assert_eq!(report.findings.len(), 1, "{at}: without {left_out}");
        audits.wrong += 1;
    }
    if !one.is_empty() {
        let left_out = one[pick % one.len()];
        let report = one_short(left_out);
        assert_eq!(report.status(), Status::Undecided, "{at}: without {left_out}");
        let findings: Vec<_> = report.findings.iter().map(|finding| &finding.kind).collect();
        let log = Box::new(as_found(left_out));
        assert_eq!(findings, [&FindingKind::ArityDependent { at: None, log }], "{at}");
        audits.undecided += 1;
    }
    audits
}
