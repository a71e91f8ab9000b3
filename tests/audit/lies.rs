//! Starts from a true answer, tells every kind of lie about each of its logs, and checks the
//! findings.

use alloy_primitives::{Address, B256, Bytes, Log, keccak256};
use chainsieve::eth::audit::{
    AuditReport, EvidenceError, Finding, FindingKind, Forgery, Grounds, Status, WrongField,
};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::Semantics;

use crate::naive::{self, Naive};
use testkit::eth::audit_runs::{self, Run};

/// The part of a finding that follows from the lie alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    /// The answer omits the log with this block hash and log index.
    Omitted(B256, u64),
    Forged(usize),
    Number(usize, u64),
    Timestamp(usize, u64),
    Transaction(usize, u64),
    Index(usize, u64),
    Duplicate(usize, usize),
    NotMatching(usize),
    OtherFork(usize),
    Removed(usize),
}

impl Expected {
    /// Returns a duplicate of two positions in a fixed order, because an audit may report either of
    /// them as the repetition.
    fn twice(one: usize, other: usize) -> Self {
        Self::Duplicate(one.max(other), one.min(other))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    Withhold,
    Address,
    Topic(usize),
    TopicMore,
    Data,
    DataMore,
    Number,
    Timestamp,
    UnknownHash,
    OtherBlock,
    TransactionIndex,
    LogIndex,
    Twice,
    Invent,
    Remove,
}

/// All lies, each of which is told about every log.
const LIES: [Lie; 18] = [
    Lie::Withhold,
    Lie::Address,
    Lie::Topic(0),
    Lie::Topic(1),
    Lie::Topic(2),
    Lie::Topic(3),
    Lie::TopicMore,
    Lie::Data,
    Lie::DataMore,
    Lie::Number,
    Lie::Timestamp,
    Lie::UnknownHash,
    Lie::OtherBlock,
    Lie::TransactionIndex,
    Lie::LogIndex,
    Lie::Twice,
    Lie::Invent,
    Lie::Remove,
];

fn flip_address(address: &mut Address) {
    address.0[7] ^= 0x10;
}

/// Returns the log with the part altered that `lie` names, or `None` if the log has no such part.
fn altered(log: &Log, lie: Lie) -> Option<Log> {
    let mut topics = log.topics().to_vec();
    let mut data = log.data.data.to_vec();
    let mut address = log.address;
    match lie {
        Lie::Address => flip_address(&mut address),
        // Replace the topic by its hash. Flipping a bit could turn one token id into the next,
        // which may be in the answer too.
        Lie::Topic(at) => {
            let topic = topics.get_mut(at)?;
            *topic = keccak256(*topic);
        }
        Lie::TopicMore if topics.len() < 4 => topics.push(B256::repeat_byte(0x99)),
        Lie::Data => *data.first_mut()? ^= 0x80,
        Lie::DataMore => data.push(0),
        _ => return None,
    }
    Log::new(address, topics, Bytes::from(data))
}

/// Tells a lie about the log at position `at` of the answer, and returns the expected findings.
///
/// Some lies append one log to the answer. A withheld log stays in `answer`, and its position is
/// added to `withheld`. Returns `None` if the lie does not apply to the log.
fn tell(
    lie: Lie,
    at: usize,
    run: &Run,
    naive: &Naive,
    answer: &mut Vec<LocatedLog>,
    withheld: &mut Vec<usize>,
    alone: bool,
) -> Option<Vec<Expected>> {
    let log = answer[at].clone();
    let omitted = Expected::Omitted(log.block_hash, log.log_index);
    let told = &mut answer[at];
    Some(match lie {
        Lie::Withhold => {
            withheld.push(at);
            vec![omitted]
        }
        Lie::Address | Lie::Topic(_) | Lie::TopicMore | Lie::Data | Lie::DataMore => {
            told.log = altered(&log.log, lie)?;
            let mut expected = vec![omitted, Expected::Forged(at)];
            if !naive.wants(&told.log) {
                expected.push(Expected::NotMatching(at));
            }
            expected
        }
        Lie::Number => {
            told.block_number += 1;
            vec![Expected::Number(at, log.block_number)]
        }
        Lie::Timestamp => {
            told.block_timestamp = told.block_timestamp.map(|time| time + 1);
            vec![Expected::Timestamp(at, log.block_timestamp?)]
        }
        Lie::UnknownHash => {
            told.block_hash.0[at % 32] ^= 1;
            vec![omitted, Expected::OtherFork(at)]
        }
        Lie::OtherBlock => {
            let others = run.blocks.iter().filter(|block| block.hash != log.block_hash);
            let other = others.cycle().nth(at)?;
            (told.block_hash, told.block_number) = (other.hash, other.number);
            told.block_timestamp = Some(other.view().timestamp());
            // The other block may contain an equal log at the same index. The lie is then a
            // duplicate.
            let equal = |one: &LocatedLog| {
                let place = (one.block_hash, one.log_index);
                place == (other.hash, log.log_index) && one.log == log.log
            };
            let equal = (0..answer.len()).find(|&one| one != at && equal(&answer[one]));
            vec![omitted, equal.map_or(Expected::Forged(at), |one| Expected::twice(at, one))]
        }
        Lie::TransactionIndex => {
            // Several logs may lie at once. Then don't use the next index, because a neighbour may
            // be equal and lie too.
            told.transaction_index += if alone { 1 } else { 10_000 };
            vec![Expected::Transaction(at, log.transaction_index)]
        }
        Lie::LogIndex => {
            told.log_index += 1_000_000;
            vec![Expected::Index(at, log.log_index)]
        }
        Lie::Twice => {
            answer.push(log);
            vec![Expected::twice(answer.len() - 1, at)]
        }
        Lie::Invent => {
            let invented = Log::new(log.log.address, log.log.topics().to_vec(), "invented".into());
            answer.push(LocatedLog { log: invented?, log_index: log.log_index + 5_000, ..log });
            vec![Expected::Forged(answer.len() - 1)]
        }
        Lie::Remove => {
            told.removed = true;
            vec![omitted, Expected::Removed(at)]
        }
    })
}

fn found(report: &AuditReport) -> Vec<Expected> {
    let found = report.findings.iter().map(|finding| {
        let by_itself = matches!(finding.kind, FindingKind::NotMatching { .. });
        let either = matches!(finding.kind, FindingKind::Duplicate { .. });
        let by_answer = finding.grounds == Grounds::Answer;
        assert_ne!(finding.grounds, Grounds::Unanchored);
        assert!(either || by_answer == by_itself, "{finding:?}");
        match &finding.kind {
            FindingKind::OmittedLog(omitted) => {
                Expected::Omitted(omitted.log.block_hash, omitted.log.log_index)
            }
            FindingKind::ForgedLog(forged) => Expected::Forged(forged.at),
            FindingKind::WrongField { at, field } => match *field {
                WrongField::BlockNumber { actual } => Expected::Number(*at, actual),
                WrongField::BlockTimestamp { answered, actual } => {
                    assert_ne!(answered, actual);
                    Expected::Timestamp(*at, actual)
                }
                WrongField::TransactionIndex { actual } => Expected::Transaction(*at, actual),
                WrongField::LogIndex { actual } => Expected::Index(*at, actual),
                other => panic!("{other:?}"),
            },
            FindingKind::Duplicate { at, first } => Expected::twice(*at, *first),
            FindingKind::NotMatching { at } => Expected::NotMatching(*at),
            FindingKind::OtherFork { at } => Expected::OtherFork(*at),
            FindingKind::Removed { at } => Expected::Removed(*at),
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
    let mut answer = truth.to_vec();
    let (mut expected, mut withheld) = (Vec::new(), Vec::new());
    let mut lies = 0;
    for &at in positions {
        if let Some(found) =
            tell(lie, at, run, naive, &mut answer, &mut withheld, positions.len() == 1)
        {
            expected.extend(found);
            lies += 1;
        }
    }
    let mut at = 0..;
    answer.retain(|_| withheld.binary_search(&at.next().expect("an endless range")).is_err());
    expected.sort();
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
