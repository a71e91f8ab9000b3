//! Adversarial tests of audits: false answers, evidence and certificates, and attempts to make true
//! ones look false.

use alloy_primitives::{Address, B256, Bloom, Bytes};
use chainsieve::eth::audit::{
    Audit, AuditError, AuditQuestion, EvidenceError, FindingKind, ForgedLog, Forgery, OmittedLog,
    Status, WrongField,
};
use chainsieve::eth::certificate::{Certificate, CertificateError};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use crate::naive::Naive;
use crate::synthetic::{self, log, plan};
use testkit::Rng;
use testkit::eth::audit_runs::{self, Run};

fn three() -> Run {
    let with = |data| plan(&[&[log(1, &[7], data)], &[log(1, &[7, 9], data)]]);
    synthetic::run(100, &[with(1), with(2), with(3)])
}

fn omitted(run: &Run, query: &LogQuery, answer: &[LocatedLog]) -> Vec<OmittedLog> {
    run.audit(query, answer).omitted().cloned().collect()
}

/// An omission found under a wide query is no evidence for a query that geth and alloy interpret
/// differently, nor for a query over other blocks.
#[test]
fn an_omission_is_none_where_geth_and_alloy_differ_or_the_block_was_not_asked_for() {
    let run = three();
    let all = LogQuery::new().from_block(100).to_block(102);
    let evidence = omitted(&run, &all, &[]);
    assert_eq!(evidence.len(), 6);
    let (short, long) = (&evidence[0], &evidence[1]);
    let header = run.block(100).view();
    let seven = B256::repeat_byte(7);
    let json = format!(r#"{{"fromBlock":"0x64","toBlock":"0x64","topics":["{seven}",null]}}"#);
    let query = LogQuery::from_json(&json, Semantics::Geth).unwrap();
    // Under geth's rule a log with one topic doesn't match `[seven, null]`, so a geth node may
    // leave it out.
    let error = short.verify(&header, &query, Semantics::Alloy, &[]).unwrap_err();
    assert_eq!(error, EvidenceError::ArityDependent);
    let error = short.verify(&header, &query, Semantics::Geth, &[]).unwrap_err();
    assert_eq!(error, EvidenceError::NotMatching);
    long.verify(&header, &query, Semantics::Alloy, &[]).unwrap();
    long.verify(&header, &query, Semantics::Geth, &[]).unwrap();
    let (geth, other) = (Semantics::Geth, EvidenceError::OtherBlock(100));
    for query in [
        LogQuery::new().from_block(101).to_block(102),
        LogQuery::new().from_block(1).to_block(99),
        LogQuery::new().from_block(101).to_block(BlockTag::Latest),
        LogQuery::new().from_block(BlockTag::Earliest).to_block(99),
        LogQuery::new().at_hash(run.block(101).hash),
    ] {
        assert_eq!(long.verify(&header, &query, geth, &[]), Err(other.clone()), "{query:?}");
    }
    for query in [
        LogQuery::new(),
        LogQuery::new().from_block(100).to_block(BlockTag::Latest),
        LogQuery::new().from_block(BlockTag::Earliest).to_block(100),
        LogQuery::new().at_hash(run.block(100).hash),
    ] {
        long.verify(&header, &query, geth, &[]).unwrap();
    }
}

#[test]
fn a_log_that_is_marked_as_removed_is_not_forged() {
    let run = three();
    let mut log = run.block(100).logs[0].clone();
    (log.removed, log.log.address) = (true, Address::repeat_byte(0x77));
    let answer = [log.clone()];
    let forged = ForgedLog { at: 0, log, forgery: Forgery::Bloom, instead: None };
    let error = forged.verify(&run.block(100).view(), &answer).unwrap_err();
    assert_eq!(error, EvidenceError::OtherAnswer { at: 0 });
}

/// The node that made the answer resolved `latest` to a higher block than the auditor did.
#[test]
fn a_log_above_what_a_tag_was_taken_for_is_no_lie() {
    let run = three();
    let answer: Vec<_> = run.blocks.iter().flat_map(|block| block.logs.clone()).collect();
    let (anchors, profile) = ([run.tip()], ChainProfile::ethereum());
    let blocks = ResolvedBlocks::Range { first: 100, last: 101 };
    let audit = |query: &LogQuery, answer: &[LocatedLog]| {
        let question = AuditQuestion { blocks, ..run.question(query, &anchors, &profile) };
        run.audit_question(question, answer)
    };
    let by_tag = LogQuery::new().from_block(100).to_block(BlockTag::Latest);
    let by_number = LogQuery::new().from_block(100).to_block(101);
    let mut unknown = answer.clone();
    for log in &mut unknown[4..] {
        (log.block_number, log.block_hash) = (103, B256::repeat_byte(3));
    }
    for answer in [&answer, &unknown] {
        let report = audit(&by_tag, answer);
        let at: Vec<_> = report.findings.iter().map(|finding| finding.kind.clone()).collect();
        assert_eq!(at, [FindingKind::BeyondTag { at: 4 }, FindingKind::BeyondTag { at: 5 }]);
        assert_eq!(report.status(), Status::Undecided);
        let report = audit(&by_number, answer);
        assert!(matches!(report.findings[0].kind, FindingKind::OutOfRange { at: 4 }));
        assert_eq!(report.status(), Status::Wrong);
    }
    assert_eq!(audit(&by_tag, &answer[..4]).status(), Status::Complete);
    // `fromBlock` is a number, so a log below it proves the answer wrong, although `toBlock` is a
    // tag.
    let mut below = answer[..4].to_vec();
    (below[0].block_number, below[0].block_hash) = (99, B256::repeat_byte(3));
    assert_eq!(audit(&by_tag, &below).status(), Status::Wrong);
}

/// Nodes that don't fill in `blockTimestamp` write zero (erigontech/erigon in 2022,
/// ethereum/go-ethereum#32334).
#[test]
fn a_timestamp_of_zero_is_neither_true_nor_a_lie() {
    let run = three();
    let query = LogQuery::new().from_block(100).to_block(102);
    let mut answer: Vec<_> = run.blocks.iter().flat_map(|block| block.logs.clone()).collect();
    answer[3].block_timestamp = None;
    assert_eq!(run.audit(&query, &answer).status(), Status::Complete);
    answer[3].block_timestamp = Some(0);
    let report = run.audit(&query, &answer);
    let actual = run.block(101).view().timestamp();
    let field = WrongField::BlockTimestamp { answered: 0, actual };
    assert_eq!(report.findings[0].kind, FindingKind::WrongField { at: 3, field });
    assert_eq!((report.findings.len(), report.status()), (1, Status::Undecided));
    answer[3].block_timestamp = Some(1);
    assert_eq!(run.audit(&query, &answer).status(), Status::Wrong);
}

/// On a chain whose receipts don't list every log, extra bloom bits don't contradict the profile:
/// they may belong to logs outside the receipts.
#[test]
fn bits_of_logs_outside_receipts_contradict_no_profile() {
    let mut with_more = plan(&[&[log(1, &[7], 1)]]);
    let mut bloom = Bloom::ZERO;
    bloom.accrue_log(&log(1, &[7], 1));
    bloom.accrue_log(&log(2, &[8], 1));
    with_more.bloom = Some(bloom);
    let run = synthetic::run(100, &[with_more]);
    let (query, anchors) = (LogQuery::new().from_block(100).to_block(100), [run.tip()]);
    for (scope, findings) in [(ReceiptsScope::EveryLog, 1), (ReceiptsScope::NotEveryLog, 0)] {
        let profile = ChainProfile::assumed("x", BloomSoundness::Exact, scope);
        let question = run.question(&query, &anchors, &profile);
        let report = run.audit_question(question, &run.blocks[0].logs);
        assert_eq!((report.findings.len(), report.status()), (findings, Status::Undecided));
    }
}

fn certified(
    run: &Run,
    query: &LogQuery,
    profile: &ChainProfile,
) -> (Certificate, Vec<LocatedLog>) {
    let anchors = [run.tip()];
    let answer: Vec<_> = run.blocks.iter().flat_map(|block| block.logs.clone()).collect();
    let question = run.question(query, &anchors, profile);
    let report = run.audit_question(question, &answer);
    let views: Vec<_> = run.blocks.iter().map(audit_runs::Block::view).collect();
    let certificate = Certificate::from_report(&question, &report, &answer).expect("no findings");
    (certificate.with_headers(&views), answer)
}

/// A certificate may embed the empty receipts list of a block without transactions.
#[test]
fn that_a_block_has_no_receipts_may_be_said() {
    let run = synthetic::run(100, &[plan(&[&[log(1, &[7], 1)]]), plan(&[])]);
    let (query, profile) =
        (LogQuery::new().from_block(100).to_block(101), ChainProfile::ethereum());
    let (certificate, answer) = certified(&run, &query, &profile);
    let anchors = [run.tip()];
    let question = run.question(&query, &anchors, &profile);
    let verify = |certificate: &Certificate| {
        let chain = certificate.chain()?;
        certificate.verify(AuditQuestion { chain: &chain, ..question }, |_, _| None, None)
    };
    // Embed the receipts of every examined block, including the empty list of block 101.
    let full = certificate
        .with_receipts(run.block(100).hash, &run.block(100).receipts)
        .with_receipts(run.block(101).hash, &run.block(101).receipts);
    let verified = verify(&full).unwrap();
    assert!(verified.is_complete());
    assert_eq!(verified.logs, Some(answer));
    let lie = full.clone().with_receipts(run.block(101).hash, &run.block(100).receipts);
    assert_eq!(verify(&lie), Err(CertificateError::NeedlessReceipts(run.block(101).hash)));
    let stranger = full.clone().with_receipts(B256::ZERO, &BlockReceipts::default());
    assert_eq!(verify(&stranger), Err(CertificateError::NeedlessReceipts(B256::ZERO)));
    let lie = full.with_receipts(run.block(100).hash, &BlockReceipts::default());
    assert!(matches!(verify(&lie), Err(CertificateError::OtherReceipts { .. })));
}

/// The embedded receipts lack their post-state roots, so the verifier fetches the receipts from
/// another source.
#[test]
fn embedded_receipts_without_post_states_are_asked_for_elsewhere() {
    let mut old = plan(&[&[log(1, &[7], 1)]]);
    let mut dropped = synthetic::run(100, std::slice::from_ref(&old));
    old.post_states = true;
    let run = synthetic::run(100, &[old]);
    let (query, profile) =
        (LogQuery::new().from_block(100).to_block(100), ChainProfile::ethereum());
    let (certificate, answer) = certified(&run, &query, &profile);
    let dropped = dropped.blocks.remove(0).receipts;
    let certificate = certificate.with_receipts(run.tip(), &dropped);
    let anchors = [run.tip()];
    let chain = certificate.chain().unwrap();
    let question = AuditQuestion { chain: &chain, ..run.question(&query, &anchors, &profile) };
    let verified = certificate.verify(question, |_, _| None, None).unwrap();
    assert!(!verified.is_complete());
    let fetch = |_, _| Some(run.blocks[0].receipts.clone());
    let verified = certificate.verify(question, fetch, None).unwrap();
    assert!(verified.is_complete());
    assert_eq!(verified.logs, Some(answer));
    // In a block whose receipts have statuses no post-state can be missing: receipts that don't
    // match the root are wrong.
    let modern = profile.clone().with_statuses_since(100);
    let question = AuditQuestion { profile: &modern, ..question };
    let verified = certificate.verify(question, fetch, None);
    assert!(matches!(verified, Err(CertificateError::OtherReceipts { .. })), "{verified:?}");
}

#[test]
fn strange_transactions_are_rejected() {
    let run = three();
    let (anchors, profile) = ([run.tip()], ChainProfile::ethereum());
    let query = LogQuery::new().from_block(100).to_block(102);
    let mut audit = Audit::new(run.question(&query, &anchors, &profile), &[]).unwrap();
    let block_hash = run.block(100).hash;
    let right = synthetic::transactions(100, 2);
    let reversed = vec![right[1].clone(), right[0].clone()];
    let empty = Bytes::new();
    for encodings in [
        vec![],
        vec![empty.clone()],
        vec![empty.clone(); 300],
        reversed,
        vec![right[0].clone(), right[1].clone(), empty],
        vec![Bytes::from_static(&[0x80])],
    ] {
        let rejected = audit.check_transactions(block_hash, &encodings);
        assert!(matches!(rejected, Err(AuditError::Transactions { .. })), "{rejected:?}");
    }
    audit.check_transactions(block_hash, &right).unwrap();
}

/// Draws random blocks with many equal logs, and answers with at most three random changes.
#[test]
fn an_answer_is_complete_if_and_only_if_it_is_the_blocks_logs() {
    let mut rng = Rng::new(0x5eed);
    let mut complete = 0;
    for round in 0..3_000 {
        let plans: Vec<_> = (0..=rng.below(4))
            .map(|_| {
                let receipts: Vec<Vec<_>> = (0..rng.below(4))
                    .map(|_| {
                        let one = |rng: &mut Rng| {
                            let contract = 1 + u8::from(rng.one_in(3));
                            log(contract, &[7, 8][..rng.below(3)], rng.u64() % 2)
                        };
                        (0..rng.below(4)).map(|_| one(&mut rng)).collect()
                    })
                    .collect();
                plan(&receipts.iter().map(Vec::as_slice).collect::<Vec<_>>())
            })
            .collect();
        let run = synthetic::run(5_000_000, &plans);
        let naive = match rng.below(3) {
            0 => Naive::default(),
            1 => Naive { addresses: vec![Address::repeat_byte(1)], topics: vec![] },
            _ => Naive { addresses: vec![], topics: vec![vec![B256::repeat_byte(7)]] },
        };
        let (query, truth) = (naive.query(&run), naive.answer(&run));
        let mut answer = truth.clone();
        for _ in 0..rng.below(4) {
            tamper(&mut rng, &mut answer, &run);
        }
        let key = |log: &LocatedLog| {
            let place = (log.block_number, log.log_index, log.transaction_index, log.block_hash);
            (place, log.log.clone(), log.block_timestamp.is_none(), log.removed)
        };
        let sorted = |logs: &[LocatedLog]| {
            let mut logs = logs.to_vec();
            for log in &mut logs {
                let own = run.blocks.iter().find(|block| block.hash == log.block_hash);
                if own.is_some_and(|own| log.block_timestamp == Some(own.view().timestamp())) {
                    log.block_timestamp = None;
                }
            }
            logs.sort_by_key(|log| format!("{:?}", key(log)));
            logs
        };
        let is_true = sorted(&answer) == sorted(&truth);
        let report = run.audit(&query, &answer);
        let expected = if is_true { Status::Complete } else { Status::Wrong };
        let only_removed_or_forked = answer
            .iter()
            .any(|log| log.removed || run.blocks.iter().all(|b| b.hash != log.block_hash));
        if is_true || !only_removed_or_forked {
            assert_eq!(report.status(), expected, "{round}: {:?}", report.findings);
        } else {
            assert_ne!(report.status(), Status::Complete, "{round}");
        }
        complete += usize::from(is_true);
        // Evidence verifies against the answer, unless the answer contains an equal log elsewhere.
        // Evidence never verifies against the true answer.
        for omitted in report.omitted() {
            let header = run.by_hash(omitted.log.block_hash).view();
            if omitted.verify(&header, &query, Semantics::Geth, &answer).is_err() {
                let elsewhere = |log: &LocatedLog| log.log == omitted.log.log;
                assert!(answer.iter().any(elsewhere), "{round}");
            }
            omitted.verify(&header, &query, Semantics::Geth, &truth).unwrap_err();
        }
        for forged in report.forged() {
            let Some(block) = run.blocks.iter().find(|b| b.hash == forged.log.block_hash) else {
                panic!("{round}: forged in no block")
            };
            assert!(forged.verify(&block.view(), &truth).is_err(), "{round}");
        }
    }
    assert!((500..2_500).contains(&complete), "{complete}");
}

fn tamper(rng: &mut Rng, answer: &mut Vec<LocatedLog>, run: &Run) {
    if answer.is_empty() {
        return;
    }
    let (at, other) = (rng.below(answer.len()), rng.below(answer.len()));
    match rng.below(11) {
        0 => drop(answer.remove(at)),
        1 => answer.push(answer[at].clone()),
        2 => answer.swap(at, other),
        3 => answer[at].log = answer[other].log.clone(),
        4 => answer[at].log_index = answer[other].log_index,
        5 => answer[at].transaction_index = answer[other].transaction_index,
        6 => {
            let (index, transaction) = (answer[at].log_index, answer[at].transaction_index);
            answer[at].log_index = answer[other].log_index;
            answer[at].transaction_index = answer[other].transaction_index;
            (answer[other].log_index, answer[other].transaction_index) = (index, transaction);
        }
        7 => {
            let block = &run.blocks[rng.below(run.blocks.len())];
            let view = block.view();
            answer[at].block_hash = block.hash;
            answer[at].block_number = view.number();
            answer[at].block_timestamp = Some(view.timestamp());
        }
        8 => answer[at].removed = true,
        9 => answer[at].block_hash = B256::repeat_byte(0xff),
        _ => answer[at].block_timestamp = None,
    }
}
