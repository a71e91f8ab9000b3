//! Tests how a chain profile decides what blooms and receipts prove.

use alloy_primitives::{Address, Bloom};
use chainsieve::eth::audit::{
    Audit, AuditQuestion, Finding, FindingKind, Status, Undecidable, Verdict,
};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::LocatedLog;

use crate::naive::Naive;
use crate::synthetic::{self, Plan, log, plan};
use testkit::eth::audit_runs::{self, Run};

use BloomSoundness::{Absent, Exact, Superset, Unsound};
use ReceiptsScope::{EveryLog, NotEveryLog};

fn profile(bloom: BloomSoundness, receipts: ReceiptsScope) -> ChainProfile {
    ChainProfile::assumed("made up", bloom, receipts)
}

fn with_bloom(bloom: Bloom, logs: &[alloy_primitives::Log]) -> Plan {
    Plan { bloom: Some(bloom), ..plan(&[logs]) }
}

/// Returns ten blocks with empty blooms and one log each, of contract 1 in even blocks and contract
/// 2 in odd ones.
fn unsound() -> Run {
    let plans: Vec<_> = (0..10)
        .map(|number: u8| with_bloom(Bloom::ZERO, &[log(1 + number % 2, &[7], number.into())]))
        .collect();
    synthetic::run(50, &plans)
}

fn contract_1(run: &Run) -> (Naive, Vec<LocatedLog>) {
    let naive = Naive { addresses: vec![Address::repeat_byte(1)], ..Naive::default() };
    let answer = naive.answer(run);
    (naive, answer)
}

#[test]
fn unsound_or_absent_filters_lose_no_block() {
    let run = unsound();
    let (naive, answer) = contract_1(&run);
    let (query, anchors) = (naive.query(&run), [run.tip()]);
    assert_eq!(answer.len(), 5);
    for bloom in [Unsound, Absent] {
        let profile = profile(bloom, EveryLog);
        let question = run.question(&query, &anchors, &profile);
        assert_eq!(Audit::new(question, &answer).unwrap().open().count(), 10);
        let report = run.audit_question(question, &answer);
        assert_eq!(report.status(), Status::Complete);
        assert_eq!(report.counts.checked_by_receipts, 10);
        for missing in 0..5 {
            let mut answer = answer.clone();
            answer.remove(missing);
            assert_eq!(run.audit_question(question, &answer).omitted().count(), 1);
        }
        // Under these profiles a missing bloom bit proves no forgery.
        assert_eq!(Audit::new(question, &answer).unwrap().finish().findings, []);
    }
}

#[test]
fn a_contradicted_profile_claims_nothing() {
    // The bloom of block 50 is complete, the bloom of block 51 lacks the bits of its second log,
    // and block 52 has no logs.
    let plans = [
        plan(&[&[log(1, &[7], 0)]]),
        with_bloom(Bloom::from_iter(&[log(1, &[7], 1)]), &[log(1, &[7], 1), log(2, &[8], 2)]),
        plan(&[]),
    ];
    let run = synthetic::run(50, &plans);
    let (naive, answer) = contract_1(&run);
    let (query, anchors) = (naive.query(&run), [run.tip()]);
    for bloom in [Exact, Superset] {
        let profile = profile(bloom, EveryLog).with_range(52, bloom, EveryLog, "the same again");
        let question = run.question(&query, &anchors, &profile);
        let report = run.audit_question(question, &answer);
        let [Finding { block: Some(51), kind, .. }] = &report.findings[..] else {
            panic!("{:?}", report.findings)
        };
        assert!(matches!(
            *kind,
            FindingKind::ProfileContradicted { claimed, missing_bits: 1.., .. } if claimed == bloom
        ));
        // Receipts decide blocks 50 and 51. The profile's second range, from block 52, is not
        // contradicted.
        let checked = Some(Verdict::CheckedByReceipts);
        assert_eq!([50, 51].map(|number| report.verdict(number)), [checked, checked]);
        assert_eq!(report.verdict(52), Some(Verdict::AbsentByBloom));
        assert_eq!(report.status(), Status::Undecided);
        // If the profile has one range for all blocks, the bloom of the third block is no longer
        // trusted.
        let whole = ChainProfile::assumed("made up", bloom, EveryLog);
        let question = AuditQuestion { profile: &whole, ..question };
        let report = run.audit_question(question, &answer);
        let contradicted = Verdict::Undecidable(Undecidable::ProfileContradicted);
        assert_eq!(report.verdict(52), Some(contradicted));
        assert_eq!(report.counts.undecidable, 1);
        // A log that the receipts contain is not forged, although the bloom lacks its bits.
        let mut answer = answer.clone();
        answer.push(run.block(51).logs[1].clone());
        let report = run.audit_question(question, &answer);
        assert_eq!(report.forged().count(), 0);
        assert!(
            report.findings.iter().any(|found| found.kind == FindingKind::NotMatching { at: 2 })
        );
    }
}

#[test]
fn a_filter_with_more_bits_is_exact_for_nobody_and_a_superset_for_all() {
    let mut more = Bloom::from_iter(&[log(1, &[7], 0)]);
    more.accrue_log(&log(9, &[], 0));
    let run = synthetic::run(50, &[with_bloom(more, &[log(1, &[7], 0)]), plan(&[])]);
    let (naive, answer) = contract_1(&run);
    let (query, anchors) = (naive.query(&run), [run.tip()]);
    let superset = profile(Superset, EveryLog);
    let question = run.question(&query, &anchors, &superset);
    assert_eq!(run.audit_question(question, &answer).status(), Status::Complete);
    let exact = profile(Exact, EveryLog);
    let report = run.audit_question(AuditQuestion { profile: &exact, ..question }, &answer);
    let [Finding { kind, .. }] = &report.findings[..] else { panic!("{:?}", report.findings) };
    let contradicted =
        matches!(kind, FindingKind::ProfileContradicted { missing_bits: 0, extra_bits: 1.., .. });
    assert!(contradicted);
    assert_eq!(report.verdict(51), Some(Verdict::AbsentByBloom));
    // A superset still proves a forgery: a real log would have all its bits in the bloom.
    let mut forged = answer;
    forged[0].log.address = Address::repeat_byte(0x44);
    assert_eq!(Audit::new(question, &forged).unwrap().finish().forged().count(), 1);
}

#[test]
fn receipts_that_are_not_all_accuse_of_no_forgery() {
    let run = audit_runs::fixture_pair();
    let naive = Naive::default();
    let truth = naive.answer(&run);
    let (query, anchors) = (naive.query(&run), [run.tip()]);
    let partly = profile(Unsound, NotEveryLog);
    let question = run.question(&query, &anchors, &partly);
    let report = run.audit_question(question, &truth);
    assert_eq!((report.findings.len(), report.counts.undecidable), (0, 2));
    assert_eq!(report.status(), Status::Undecided);
    let why = Verdict::Undecidable(Undecidable::ReceiptsNotEveryLog);
    assert_eq!(report.verdict(17_686_111), Some(why));
    // Where receipts don't list every log, the answer may contain logs that no receipt has, repeat
    // a log, and give other log indices.
    let mut more = truth.clone();
    for at in [3, 50] {
        let mut log = truth[at].clone();
        log.log.data.data = vec![9; 40].into();
        log.log_index = 90_000;
        more.push(log);
    }
    more.push(truth[60].clone());
    for log in &mut more {
        log.log_index += 1;
    }
    let report = run.audit_question(question, &more);
    assert_eq!(report.findings, []);
    // The answer must contain each log of the receipts at least as often as the receipts do.
    for at in (0..truth.len()).step_by(7) {
        let mut less = more.clone();
        less.remove(at);
        let equal =
            |log: &&LocatedLog| log.log == truth[at].log && log.block_hash == truth[at].block_hash;
        if less.iter().filter(equal).count() >= truth.iter().filter(equal).count() {
            continue; // the added copy replaces the removed log
        }
        let report = run.audit_question(question, &less);
        let omitted: Vec<_> = report.omitted().collect();
        assert_eq!(report.findings.len(), 1);
        assert_eq!(omitted[0].log.log, truth[at].log);
        let block = run.by_hash(truth[at].block_hash);
        omitted[0].verify(&block.view(), &query, question.semantics, &less).unwrap();
    }
}

#[test]
fn polygon_before_madhugiri_is_never_complete() {
    let polygon = ChainProfile::of_chain_id(137).unwrap();
    for (first, complete) in [(80_084_799, false), (80_084_800, true)] {
        let run = synthetic::run(first, &[plan(&[&[log(1, &[7], 0)]])]);
        let (naive, answer) = contract_1(&run);
        let (query, anchors) = (naive.query(&run), [run.tip()]);
        let report = run.audit_question(run.question(&query, &anchors, &polygon), &answer);
        assert_eq!(report.status() == Status::Complete, complete, "{first}");
        assert_eq!(report.findings, []);
    }
}

#[test]
fn a_filter_of_all_ones_rules_nothing_out() {
    let run = audit_runs::corpus().into_iter().find(|run| run.first() == 15_537_394);
    let run = run.unwrap_or_else(|| {
        let logs: Vec<_> = (0..40).map(|data| log(3, &[5], data)).collect();
        synthetic::run(15_537_394, &[with_bloom(Bloom::repeat_byte(0xff), &logs)])
    });
    assert!(run.chain.blooms()[0].iter().all(|byte| *byte == 0xff));
    let naive = Naive { addresses: vec![Address::repeat_byte(0x77)], ..Naive::default() };
    let (query, anchors, ethereum) = (naive.query(&run), [run.tip()], ChainProfile::ethereum());
    let question = run.question(&query, &anchors, &ethereum);
    assert_eq!(Audit::new(question, &[]).unwrap().open().count(), 1);
    let report = run.audit_question(question, &[]);
    assert_eq!((report.status(), report.counts.checked_by_receipts), (Status::Complete, 1));
    // A bloom of all ones proves no forgery either. Only receipts prove one.
    let mut forged = run.blocks[0].logs[0].clone();
    forged.log.address = Address::repeat_byte(0x77);
    let forged = [forged];
    assert_eq!(Audit::new(question, &forged).unwrap().finish().findings, []);
    assert_eq!(run.audit_question(question, &forged).forged().count(), 1);
}

#[test]
fn blocks_without_transactions_need_no_receipts() {
    let run = synthetic::run(10, &vec![plan(&[]); 5]);
    let naive = Naive::default();
    let (query, anchors) = (naive.query(&run), [run.tip()]);
    let ethereum = ChainProfile::ethereum();
    let question = run.question(&query, &anchors, &ethereum);
    let audit = Audit::new(question, &[]).unwrap();
    assert_eq!(audit.open().count(), 0);
    let report = audit.finish();
    assert_eq!((report.status(), report.counts.checked_by_receipts), (Status::Complete, 5));
    // The empty receipts root proves nothing where receipts don't list every log.
    let partly = profile(Absent, NotEveryLog);
    let report = Audit::new(AuditQuestion { profile: &partly, ..question }, &[]).unwrap().finish();
    assert_eq!((report.status(), report.counts.undecidable), (Status::Undecided, 5));
}
