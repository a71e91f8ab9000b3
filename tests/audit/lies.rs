//! Starts from a true answer, tells every kind of lie about each of its logs, and checks the
//! findings.

use chainsieve::eth::audit::{
    AuditReport, EvidenceError, Finding, FindingKind, Forgery, Grounds, Status, WrongField,
};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::Semantics;

use crate::naive::{self, Naive};
use testkit::eth::audit_runs::{self, Run};
use testkit::eth::log_lies::{Found, LIES, Lie, Place, Told, altered, flip_address, tell};

fn found(report: &AuditReport) -> Vec<Found> {
    let found = report.findings.iter().map(|finding| {
        let by_itself = matches!(finding.kind, FindingKind::NotMatching { .. });
        let either = matches!(finding.kind, FindingKind::Duplicate { .. });
        let by_answer = finding.grounds == Grounds::Answer;
        assert_ne!(finding.grounds, Grounds::Unanchored);
        assert!(either || by_answer == by_itself, "{finding:?}");
        match &finding.kind {
            FindingKind::OmittedLog(omitted) => {
                Found::Omitted(omitted.log.block_hash, omitted.log.log_index)
            }
            FindingKind::ForgedLog(forged) => Found::Forged(forged.at),
            FindingKind::WrongField { at, field } => match *field {
                WrongField::BlockNumber { actual } => Found::Number(*at, actual),
                WrongField::BlockTimestamp { answered, actual } => {
                    assert_ne!(answered, actual);
                    Found::Timestamp(*at, actual)
                }
                WrongField::TransactionIndex { actual } => Found::Transaction(*at, actual),
                WrongField::LogIndex { actual } => Found::Index(*at, actual),
                other => panic!("{other:?}"),
            },
            FindingKind::Duplicate { at, first } => Found::twice(*at, *first),
            FindingKind::NotMatching { at } => Found::NotMatching(*at),
            FindingKind::OtherFork { at } => Found::OtherFork(*at),
            FindingKind::Removed { at } => Found::Removed(*at),
            other => panic!("{other:?}"),
        }
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

/// Verifies the evidence of a sample of the omissions and forgeries against the block headers.
///
/// The sample has about 60 findings, and about 5 if there are more than 2,000: receipts then take
/// megabytes.
fn verify_evidence(run: &Run, naive: &Naive, answer: &[LocatedLog], report: &AuditReport) {
    let query = naive.query(run);
    let step = |count: usize| (count / if count > 2_000 { 5 } else { 60 }).max(1);
    for omitted in report.omitted().step_by(step(report.omitted().count())) {
        let block = run.by_hash(omitted.log.block_hash);
        let own = &block.logs[usize::try_from(omitted.log.log_index).expect("an index")];
        assert_eq!(omitted.log, *own, "must equal alloy's decoding");
        omitted.verify(&block.view(), &query, Semantics::Geth, answer).expect("valid evidence");
    }
    for forged in report.forged().step_by(step(report.forged().count())) {
        let block = run.by_hash(forged.log.block_hash);
        match forged.verify(&block.view(), answer) {
            Err(EvidenceError::NoProof) => {
                assert!(forged.log.transaction_index >= block.receipts.len() as u64);
            }
            other => other.expect("valid evidence"),
        }
    }
}

/// Tells `lie` about all logs at `positions` at once, checks that the audit finds exactly these
/// lies, and returns their number.
fn check(run: &Run, naive: &Naive, truth: &[LocatedLog], lie: Lie, positions: &[usize]) -> usize {
    let place = |block: &audit_runs::Block| Place {
        hash: block.hash,
        number: block.number,
        timestamp: block.view().timestamp(),
    };
    let blocks: Vec<_> = run.blocks.iter().map(place).collect();
    let Told { answer, expected, lies } =
        tell(lie, positions, truth, &blocks, |log| naive.wants(log));
    let report = run.audit(&naive.query(run), &answer);
    assert_eq!(found(&report), expected, "{lie:?} of {positions:?} under {naive:?}");
    let proven = report.findings.iter().any(Finding::is_proof);
    let status = if proven {
        Status::Wrong
    } else if expected.is_empty() {
        Status::Complete
    } else {
        Status::Undecided
    };
    assert_eq!(report.status(), status);
    assert!(proven || lies == 0, "{lie:?} proves nothing");
    verify_evidence(run, naive, &answer, &report);
    lies
}

fn check_honest(run: &Run, naive: &Naive, truth: &[LocatedLog]) {
    let report = run.audit(&naive.query(run), truth);
    assert_eq!(report.findings, [], "{naive:?}");
    assert_eq!(report.status(), Status::Complete);
    assert_eq!(report.counts.undecidable, 0);
    let blocks = run.blocks.len() as u64;
    assert_eq!(report.counts.absent_by_bloom + report.counts.checked_by_receipts, blocks);
    let mut reversed = truth.to_vec();
    reversed.reverse();
    assert_eq!(run.audit(&naive.query(run), &reversed).findings, [], "in another order");
}

/// Tells every lie about every position of every query, and returns the number of lies.
///
/// If an answer has at most `one_by_one` logs, each audit contains one lie, else at most `at_once`
/// lies.
fn all_lies(run: &Run, queries: usize, one_by_one: usize, at_once: usize) -> usize {
    let mut lies = 0;
    let mut kinds = [0; LIES.len()];
    let mut with_results = 0;
    let drawn = naive::drawn(run, queries);
    let count = drawn.len();
    for naive in drawn.into_iter().chain([Naive::default()]) {
        let truth = naive.answer(run);
        check_honest(run, &naive, &truth);
        with_results += usize::from(!truth.is_empty());
        let many = truth.len() > one_by_one;
        let strides = if many { truth.len().div_ceil(at_once) } else { truth.len() };
        for (kind, &lie) in kinds.iter_mut().zip(&LIES) {
            if lie == Lie::OtherBlock && run.blocks.len() == 1 {
                continue;
            }
            for offset in 0..strides {
                let positions: Vec<_> = (offset..truth.len()).step_by(strides).collect();
                // Lie about one block at a time: if two equal logs swapped their blocks, the answer
                // would still be true.
                let same_block = |a: &usize, b: &usize| {
                    lie != Lie::OtherBlock || truth[*a].block_hash == truth[*b].block_hash
                };
                for positions in positions.chunk_by(same_block) {
                    let told = check(run, &naive, &truth, lie, positions);
                    *kind += told;
                    lies += told;
                }
            }
        }
    }
    assert!(with_results * 2 >= count, "{with_results} of {count} queries have results");
    if run.blocks.iter().any(|block| block.logs.len() > 100) {
        for (lie, told) in LIES.iter().zip(kinds) {
            assert!(told > 0 || *lie == Lie::OtherBlock, "{lie:?} was never told");
        }
    }
    lies
}

#[test]
fn every_lie_about_the_fixtures_is_found() {
    let lies = all_lies(&audit_runs::fixture_pair(), 24, 30, 64);
    assert!(lies > 10_000, "{lies}");
}

#[test]
fn every_lie_about_the_corpus_is_found() {
    for run in audit_runs::corpus() {
        let started = std::time::Instant::now();
        let queries = if run.blocks.len() > 4 { 8 } else { 3 };
        let lies = all_lies(&run, queries, 5, 4_096);
        println!("{}: {lies} lies in {:?}", run.first(), started.elapsed());
    }
}

/// A second log with the same address and topics adds no bit to the bloom, so only receipts show
/// that it is missing.
#[test]
fn one_of_two_equal_logs_is_missed() {
    let run = audit_runs::fixture_pair();
    let naive = Naive::default();
    let truth = naive.answer(&run);
    let mut pairs = 0;
    for (at, log) in truth.iter().enumerate() {
        let equal = |other: &&LocatedLog| {
            other.block_hash == log.block_hash
                && other.log.address == log.log.address
                && other.log.topics() == log.log.topics()
                && other.log_index != log.log_index
        };
        if truth.iter().any(|other| equal(&other)) {
            pairs += 1;
            check(&run, &naive, &truth, Lie::Withhold, &[at]);
        }
    }
    assert!(pairs > 5, "{pairs}");
}

#[test]
fn forgeries_are_shown_by_the_header_where_it_can() {
    let run = audit_runs::fixture_pair();
    let naive = Naive::default();
    let mut answer = naive.answer(&run);
    flip_address(&mut answer[5].log.address);
    answer[9].log = altered(&answer[9].log, Lie::DataMore).unwrap();
    let report = run.audit(&naive.query(&run), &answer);
    let forgeries: Vec<_> = report.forged().map(|forged| (forged.at, &forged.forgery)).collect();
    assert_eq!(forgeries[0], (5, &Forgery::Bloom));
    assert!(matches!(forgeries[1], (9, Forgery::Receipts { proof: Some(_) })));
    // The finding names the log that the block really contains in this place.
    let truth = naive.answer(&run);
    for forged in report.forged() {
        assert_eq!(forged.instead.as_ref(), Some(&truth[forged.at].log));
    }
}
