//! Tests that an audit claims nothing beyond its evidence.

use alloy_primitives::{B256, Log};
use chainsieve::eth::audit::{
    Audit, AuditError, AuditQuestion, Finding, FindingKind, Forgery, Grounds, Status, Undecidable,
    Verdict, WrongField,
};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use crate::naive::Naive;
use crate::synthetic::{self, log, plan};
use testkit::eth::audit_runs::{self, Run};

fn kinds(findings: &[Finding]) -> Vec<&FindingKind> {
    findings.iter().map(|finding| &finding.kind).collect()
}

/// Returns four blocks. Each except the third has two logs of contract 1.
fn four() -> Run {
    let with =
        |data| plan(&[&[log(1, &[7], data)], &[log(2, &[8], data), log(1, &[7, 9], data)], &[]]);
    synthetic::run(100, &[with(1), with(2), plan(&[&[log(3, &[], 0)]]), with(4)])
}

fn of_contract(run: &Run, contract: u8) -> (Naive, Vec<LocatedLog>) {
    let naive = Naive {
        addresses: vec![alloy_primitives::Address::repeat_byte(contract)],
        ..Naive::default()
    };
    let answer = naive.answer(run);
    (naive, answer)
}

#[test]
fn what_is_above_the_anchor_is_undecided() {
    let run = four();
    let (naive, answer) = of_contract(&run, 1);
    let (query, profile) = (naive.query(&run), ChainProfile::ethereum());
    let anchors = [run.block(101).hash, B256::ZERO];
    let question = run.question(&query, &anchors, &profile);
    let report = run.audit_question(question, &answer);
    assert_eq!(report.anchored_to, Some(101));
    let unanchored = Some(Verdict::Undecidable(Undecidable::Unanchored));
    let checked = Some(Verdict::CheckedByReceipts);
    let verdicts = [100, 101, 102, 103].map(|number| report.verdict(number));
    assert_eq!(verdicts, [checked, checked, unanchored, unanchored]);
    assert_eq!(report.status(), Status::Undecided);
    assert_eq!((report.counts.undecidable, report.counts.checked_by_receipts), (2, 2));
    assert_eq!(report.verdict(104), None);
    // An omission above the anchor proves nothing: anyone can make up headers there.
    let report = run.audit_question(question, &answer[..5]);
    assert!(matches!(kinds(&report.findings)[..], [FindingKind::OmittedLog(_)]));
    assert_eq!(report.findings[0].grounds, Grounds::Unanchored);
    assert_eq!(report.status(), Status::Undecided);
    // An omission at or below the anchor proves the answer wrong.
    let report = run.audit_question(question, &answer[1..]);
    assert_eq!(report.findings[0].grounds, Grounds::Anchored);
    assert_eq!(report.status(), Status::Wrong);
    // A trusted hash before the range doesn't authenticate the blocks after it, because hash links
    // lead to ancestors only.
    let parent = [run.chain.parent_hash().unwrap()];
    let report = run.audit_question(AuditQuestion { anchors: &parent, ..question }, &[]);
    assert_eq!((report.anchored_to, report.counts.undecidable), (None, 4));
    assert_eq!(report.findings.len(), 6);
    assert_eq!(report.status(), Status::Undecided);
}

#[test]
fn an_anchor_above_the_range_will_do() {
    let run = four();
    let (_, answer) = of_contract(&run, 1);
    let address = alloy_primitives::Address::repeat_byte(1);
    let query = LogQuery::new().from_block(100).to_block(101).address(address);
    let (anchors, profile) = ([run.tip()], ChainProfile::ethereum());
    let blocks = ResolvedBlocks::Range { first: 100, last: 101 };
    let question = AuditQuestion { blocks, ..run.question(&query, &anchors, &profile) };
    let report = run.audit_question(question, &answer[..4]);
    assert_eq!(report.status(), Status::Complete);
    // The answer contains a log of a block outside the queried range.
    let report = run.audit_question(question, &answer[..5]);
    assert_eq!(kinds(&report.findings), [&FindingKind::OutOfRange { at: 4 }]);
    assert_eq!(report.status(), Status::Wrong);
    // The log itself gives a block number outside the range, and its block hash is not on the
    // chain: the answer alone is the evidence.
    let mut answer = answer[..5].to_vec();
    (answer[4].block_number, answer[4].block_hash) = (7, B256::ZERO);
    let report = run.audit_question(question, &answer);
    assert_eq!(kinds(&report.findings), [&FindingKind::OutOfRange { at: 4 }]);
    assert_eq!(report.findings[0].grounds, Grounds::Answer);
}

#[test]
fn an_audit_needs_the_whole_range() {
    let run = four();
    let profile = ChainProfile::ethereum();
    let begin = |query: &LogQuery, first, last| {
        let blocks = ResolvedBlocks::Range { first, last };
        let question = AuditQuestion { blocks, ..run.question(query, &[], &profile) };
        Audit::new(question, &[]).map(|_| ()).unwrap_err()
    };
    let any = LogQuery::new();
    assert_eq!(begin(&any, 98, 102), AuditError::MissingBelow { missing: 98..=99 });
    assert_eq!(begin(&any, 3, 9), AuditError::MissingBelow { missing: 3..=9 });
    assert_eq!(begin(&any, 101, 110), AuditError::MissingAbove { missing: 104..=110 });
    assert_eq!(begin(&any, 200, 201), AuditError::MissingAbove { missing: 200..=201 });
    assert_eq!(begin(&any, 102, 101), AuditError::Reversed { first: 102, last: 101 });
    let blocks = ResolvedBlocks::Range { first: 101, last: 102 };
    assert_eq!(begin(&any.from_block(100), 101, 102), AuditError::OtherBlocks { blocks });
    let empty = LinkedHeaders::new();
    let query = LogQuery::new();
    let question = AuditQuestion { chain: &empty, ..run.question(&query, &[], &profile) };
    let error = Audit::new(question, &[]).unwrap_err();
    assert_eq!(error, AuditError::MissingAbove { missing: 100..=103 });
    assert_eq!(error.to_string(), "headers of blocks 100 to 103 are missing");
}

#[test]
fn a_query_by_hash_is_of_that_block_alone() {
    let run = four();
    let (_, answer) = of_contract(&run, 1);
    let (hash, anchors, profile) = (run.block(101).hash, [run.tip()], ChainProfile::ethereum());
    let address = alloy_primitives::Address::repeat_byte(1);
    let query = LogQuery::new().at_hash(hash).address(address);
    let blocks = ResolvedBlocks::AtHash(hash);
    let question = AuditQuestion { blocks, ..run.question(&query, &anchors, &profile) };
    let report = run.audit_question(question, &answer[2..4]);
    assert_eq!(report.status(), Status::Complete);
    assert_eq!(report.range, 101..=101);
    let report = run.audit_question(question, &answer[2..5]);
    assert_eq!(kinds(&report.findings), [&FindingKind::OutOfRange { at: 2 }]);
    let report = run.audit_question(question, &answer[3..4]);
    assert!(matches!(kinds(&report.findings)[..], [FindingKind::OmittedLog(_)]));
    let other = ResolvedBlocks::AtHash(B256::ZERO);
    let error = Audit::new(AuditQuestion { blocks: other, ..question }, &[]).unwrap_err();
    assert_eq!(error, AuditError::NotOnChain { hash: B256::ZERO });
}

#[test]
fn blocks_without_receipts_stay_open_and_are_named() {
    let run = four();
    let (naive, answer) = of_contract(&run, 1);
    let (query, anchors, profile) = (naive.query(&run), [run.tip()], ChainProfile::ethereum());
    let question = run.question(&query, &anchors, &profile);
    let mut audit = Audit::new(question, &answer[..3]).unwrap();
    assert_eq!(audit.open().count(), 3);
    run.send(&mut audit, |number| number == 100);
    let open: Vec<_> = audit.open().map(|block| block.number).collect();
    assert_eq!(open, [101, 103]);
    let report = audit.finish();
    let undecided: Vec<_> = report.undecided().collect();
    let why = Undecidable::ReceiptsNotSupplied;
    assert_eq!(undecided, [(101, why), (103, why)]);
    assert_eq!((report.findings.len(), report.status()), (0, Status::Undecided));
    // In a block without receipts, a forged log is still proven by the bloom if its bits are
    // missing.
    let mut forged = answer.clone();
    forged[5].log.address = alloy_primitives::Address::repeat_byte(0x44);
    let audit = Audit::new(question, &forged).unwrap();
    let report = audit.finish();
    let [FindingKind::NotMatching { at: 5 }, FindingKind::ForgedLog(found)] =
        kinds(&report.findings)[..]
    else {
        panic!("{:?}", report.findings)
    };
    assert_eq!((found.at, &found.forgery), (5, &Forgery::Bloom));
    found.verify(&run.block(103).view(), &forged).unwrap();
    // The header proves no forgery of a log that the block contains.
    let mut honest = (**found).clone();
    honest.log = answer[5].clone();
    honest.verify(&run.block(103).view(), &answer).unwrap_err();
}

#[test]
fn wrong_receipts_are_rejected_and_wanted_again() {
    let run = four();
    let (naive, answer) = of_contract(&run, 1);
    let (query, anchors, profile) = (naive.query(&run), [run.tip()], ChainProfile::ethereum());
    let mut audit = Audit::new(run.question(&query, &anchors, &profile), &answer).unwrap();
    let block_hash = run.block(100).hash;
    let other = run.block(101).receipts.clone().after_byzantium();
    let rejected = audit.check_receipts(block_hash, &other);
    assert!(matches!(rejected, Err(AuditError::Receipts(_))), "{rejected:?}");
    assert!(audit.is_unchecked(block_hash) && audit.open().count() == 3);
    for hash in [B256::ZERO, run.block(102).hash] {
        assert_eq!(audit.check_receipts(hash, &other), Err(AuditError::UnknownBlock));
    }
    run.send(&mut audit, |_| true);
    // A settled block stays settled, whatever is supplied later.
    let rejected = audit.check_receipts(block_hash, &other);
    assert!(matches!(rejected, Err(AuditError::Receipts(_))), "{rejected:?}");
    let receipts = &run.block(100).receipts;
    assert_eq!(audit.check_receipts(block_hash, receipts), Ok(true), "again");
    assert_eq!(audit.finish().status(), Status::Complete);
}

#[test]
fn receipts_without_post_states_decide_nothing() {
    let mut old = plan(&[&[log(1, &[], 1)], &[log(1, &[], 2)]]);
    old.post_states = true;
    let run = synthetic::run(100, std::slice::from_ref(&old));
    old.post_states = false;
    let dropped = synthetic::run(100, &[old]);
    let (naive, answer) = of_contract(&run, 1);
    let (query, anchors, profile) = (naive.query(&run), [run.tip()], ChainProfile::ethereum());
    let mut audit = Audit::new(run.question(&query, &anchors, &profile), &answer).unwrap();
    // A legacy receipt with a status in place of the post-state root.
    let json = r#"[{"type":"0x0","status":"0x1","cumulativeGasUsed":"0x7530","logs":[],"transactionIndex":"0x0"}]"#;
    let statuses = BlockReceipts::from_json(json).unwrap();
    let block_hash = run.tip();
    assert_eq!(audit.check_receipts(block_hash, &statuses), Ok(false));
    assert_eq!((audit.open().count(), audit.unchecked().count()), (0, 1));
    // Receipts with post-states from another source settle the block.
    run.send(&mut audit, |_| true);
    let receipts = &run.blocks[0].receipts;
    assert_eq!(audit.check_receipts(block_hash, receipts), Ok(true));
    let rejected = audit.check_receipts(block_hash, &statuses);
    assert!(matches!(rejected, Err(AuditError::Receipts(_))), "decided already: {rejected:?}");
    assert_eq!(audit.finish().status(), Status::Complete);
    assert_ne!(dropped.tip(), run.tip());
}

/// The verdict on a block above the anchor is the same with and without its receipts, but receipts that
/// cannot be hashed are told apart all the same.
#[test]
fn receipts_without_post_states_are_told_apart_above_the_anchor() {
    let mut old = plan(&[&[log(1, &[], 1)]]);
    old.post_states = true;
    let run = synthetic::run(100, &[old]);
    let (naive, answer) = of_contract(&run, 1);
    let (query, profile) = (naive.query(&run), ChainProfile::ethereum());
    let mut audit = Audit::new(run.question(&query, &[], &profile), &answer).unwrap();
    let json = r#"[{"type":"0x0","status":"0x1","cumulativeGasUsed":"0x7530","logs":[],"transactionIndex":"0x0"}]"#;
    let statuses = BlockReceipts::from_json(json).unwrap();
    assert_eq!(audit.check_receipts(run.tip(), &statuses), Ok(false));
    assert_eq!(audit.check_receipts(run.tip(), &run.blocks[0].receipts), Ok(true));
}

/// Before Byzantium, an incomplete list of legacy receipts looks like the list of a source that
/// drops post-states, so the block becomes undecidable. Since Byzantium, such a list is rejected
/// and fetched again.
#[test]
fn too_few_receipts_of_a_later_block_are_rejected() {
    let with_logs = plan(&[&[log(1, &[], 1)]]);
    let few =
        r#"[{"status":"0x1","cumulativeGasUsed":"0x7530","logs":[],"transactionIndex":"0x0"}]"#;
    let no_status = r#"[{"cumulativeGasUsed":"0x7530","logs":[],"transactionIndex":"0x0"}]"#;
    let assumed = ChainProfile::assumed("x", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let said = assumed.clone().with_statuses_since(100);
    for (number, profile, is_rejected) in [
        (4_370_000, &ChainProfile::ethereum(), true),
        (4_369_999, &ChainProfile::ethereum(), false),
        (0, &ChainProfile::of_chain_id(11_155_111).unwrap(), true),
        (100, &assumed, false),
        (99, &said, false),
        (100, &said, true),
    ] {
        let run = synthetic::run(number, std::slice::from_ref(&with_logs));
        let (naive, answer) = of_contract(&run, 1);
        let (query, anchors) = (naive.query(&run), [run.tip()]);
        let mut audit = Audit::new(run.question(&query, &anchors, profile), &answer).unwrap();
        let block_hash = run.tip();
        for json in [few, no_status] {
            let receipts = BlockReceipts::from_json(json).unwrap();
            let checked = audit.check_receipts(block_hash, &receipts);
            if is_rejected {
                assert!(matches!(checked, Err(AuditError::Receipts(_))), "{number}: {checked:?}");
            } else {
                assert_eq!(checked, Ok(false));
            }
            assert_eq!(audit.open().count(), usize::from(is_rejected));
        }
        assert_eq!(audit.check_receipts(block_hash, &run.blocks[0].receipts), Ok(true));
        assert_eq!(audit.finish().status(), Status::Complete);
    }
}

/// Under geth's rule `[A, null]` requires two topics. Under alloy's rule one topic suffices.
#[test]
fn arity_is_the_rules_affair() {
    let run = synthetic::run(5, &[plan(&[&[log(1, &[7], 0), log(1, &[7, 8], 1)]])]);
    let json = format!(
        r#"{{"fromBlock":"0x5","toBlock":"0x5","topics":["{}",null]}}"#,
        B256::repeat_byte(7)
    );
    let query = LogQuery::from_json(&json, Semantics::Geth).unwrap();
    let (anchors, profile, all) = ([run.tip()], ChainProfile::ethereum(), &run.blocks[0].logs);
    let audit = |semantics, answer: &[LocatedLog]| {
        let question = AuditQuestion { semantics, ..run.question(&query, &anchors, &profile) };
        run.audit_question(question, answer)
    };
    assert_eq!(audit(Semantics::Geth, &all[1..]).status(), Status::Complete);
    assert_eq!(audit(Semantics::Alloy, all).status(), Status::Complete);
    let by_alloy = audit(Semantics::Geth, all);
    assert!(matches!(
        kinds(&by_alloy.findings)[..],
        [FindingKind::ArityDependent { at: Some(0), log }] if **log == all[0]
    ));
    assert_eq!(by_alloy.status(), Status::Undecided);
    let by_geth = audit(Semantics::Alloy, &all[1..]);
    assert!(matches!(
        kinds(&by_geth.findings)[..],
        [FindingKind::ArityDependent { at: None, log }] if **log == all[0]
    ));
    assert_eq!(by_geth.status(), Status::Undecided);
    // A missing log that matches under both rules is an omission under both.
    assert_eq!(audit(Semantics::Geth, &[]).status(), Status::Wrong);
}

#[test]
fn transaction_hashes_are_bound_by_transactions_alone() {
    let run = four();
    let (naive, mut answer) = of_contract(&run, 1);
    for log in &mut answer {
        let index = usize::try_from(log.transaction_index).unwrap();
        log.transaction_hash = Some(synthetic::transaction_hash(log.block_number, index));
    }
    answer[0].transaction_hash = Some(B256::ZERO);
    answer[3].transaction_index = 2; // its hash is that of transaction 1, which is right
    let (query, anchors, profile) = (naive.query(&run), [run.tip()], ChainProfile::ethereum());
    let question = run.question(&query, &anchors, &profile);
    let report = run.audit_question(question, &answer);
    assert_eq!(report.unbound_transaction_hashes, 6);
    let index =
        FindingKind::WrongField { at: 3, field: WrongField::TransactionIndex { actual: 1 } };
    assert_eq!(kinds(&report.findings), [&index]);
    for before in [true, false] {
        let mut audit = Audit::new(question, &answer).unwrap();
        if !before {
            run.send(&mut audit, |_| true);
        }
        for number in [100, 101] {
            let block_hash = run.block(number).hash;
            let mut encodings = synthetic::transactions(number, 3);
            audit.check_transactions(block_hash, &encodings).unwrap();
            encodings.pop();
            let wrong = audit.check_transactions(block_hash, &encodings);
            assert!(matches!(wrong, Err(AuditError::Transactions { .. })), "{wrong:?}");
        }
        if before {
            run.send(&mut audit, |_| true);
        }
        let report = audit.finish();
        assert_eq!(report.unbound_transaction_hashes, 2);
        let actual = Some(synthetic::transaction_hash(100, 0));
        let hash = FindingKind::WrongField { at: 0, field: WrongField::TransactionHash { actual } };
        assert_eq!(kinds(&report.findings), [&hash, &index]);
    }
}

#[test]
fn the_evidence_of_an_omission_holds_for_nothing_else() {
    let run = audit_runs::fixture_pair();
    let naive = Naive::default();
    let (query, truth) = (naive.query(&run), naive.answer(&run));
    let answer: Vec<_> = truth.iter().filter(|log| log.log_index != 40).cloned().collect();
    let report = run.audit(&query, &answer);
    let omitted: Vec<_> = report.omitted().collect();
    assert_eq!(omitted.len(), 2);
    let one = omitted[0];
    let (header, other) = (run.blocks[0].view(), run.blocks[1].view());
    let verify = |header: &HeaderView<'_>, query: &LogQuery, answer: &[LocatedLog]| {
        one.verify(header, query, Semantics::Geth, answer)
    };
    verify(&header, &query, &answer).unwrap();
    verify(&other, &query, &answer).unwrap_err();
    verify(&header, &query, &truth).unwrap_err();
    let elsewhere = LogQuery::new().address(alloy_primitives::Address::ZERO);
    verify(&header, &elsewhere, &answer).unwrap_err();
    let mut tampered = vec![one.clone(); 6];
    tampered[0].log.log.data.data = vec![1].into();
    tampered[1].log.transaction_index += 1;
    tampered[2].index_in_receipt += 1_000;
    tampered[3].log.block_number += 1;
    tampered[4].log.block_timestamp = Some(0);
    tampered[5].proof = omitted[1].proof.clone();
    for omitted in tampered {
        omitted.verify(&header, &query, Semantics::Geth, &answer).unwrap_err();
    }
}

#[test]
fn logs_of_another_fork_and_removed_ones_are_no_lies() {
    let run = four();
    let (naive, mut mixed) = of_contract(&run, 1);
    let fork = synthetic::run(100, &vec![plan(&[&[log(1, &[7], 77)]]); 4]);
    mixed.push(fork.block(102).logs[0].clone());
    let mut removed = fork.block(101).logs[0].clone();
    removed.removed = true;
    mixed.push(removed);
    let report = run.audit(&naive.query(&run), &mixed);
    let found = kinds(&report.findings);
    assert_eq!(found, [&FindingKind::OtherFork { at: 6 }, &FindingKind::Removed { at: 7 }]);
    assert_eq!(report.status(), Status::Undecided);
}

#[test]
fn equal_logs_are_told_apart_by_their_transaction() {
    // Two transactions emit logs with equal address, topics and data. The answer gives the second
    // log's index with the first transaction's index.
    let same = || log(1, &[7], 5);
    let logs: [&[Log]; 2] = [&[same()], &[same()]];
    let run = synthetic::run(9, &[plan(&logs)]);
    let (naive, mut answer) = of_contract(&run, 1);
    answer.remove(0);
    answer[0].transaction_index = 0;
    let query = naive.query(&run);
    let report = run.audit(&query, &answer);
    let omitted = report.omitted().next().unwrap();
    assert_eq!((omitted.log.transaction_index, omitted.log.log_index), (1, 1));
    omitted.verify(&run.blocks[0].view(), &query, Semantics::Geth, &answer).unwrap();
    let index = FindingKind::WrongField { at: 0, field: WrongField::LogIndex { actual: 0 } };
    assert_eq!(kinds(&report.findings)[0], &index);
    // One log repeated under another transaction index is a wrong index: no omission and no
    // forgery.
    let (_, mut answer) = of_contract(&run, 1);
    answer[1] = answer[0].clone();
    answer[1].transaction_index = 9;
    let report = run.audit(&query, &answer);
    assert_eq!(report.omitted().count() + report.forged().count(), 0);
    assert_eq!(report.findings.len(), 2, "wrong indices: {:?}", report.findings);
}
