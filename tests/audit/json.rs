//! JSON of findings, reports and certificates: the documented form, and round trips.

use std::sync::Arc;

use alloy_primitives::{Address, B256, Bloom, Bytes, Log};
use chainsieve::eth::audit::{
    Audit, AuditReport, Counts, Finding, FindingKind, ForgedLog, Forgery, Grounds, OmittedLog,
    Status, Undecidable, Verdict, WrongField,
};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery, Semantics};
use chainsieve::eth::receipts::ReceiptProof;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::naive::Naive;
use crate::synthetic::{self, log, plan};
use testkit::Rng;
use testkit::eth::audit_runs::{self, reread};

/// Returns a log, and the JSON that a node writes for it.
fn located() -> (LocatedLog, Value) {
    let located = LocatedLog {
        log: log(0xab, &[7, 8], 0x1_0002),
        block_number: 255,
        block_hash: B256::repeat_byte(0x0d),
        block_timestamp: Some(4_096),
        transaction_hash: None,
        claimed_transaction_hash: None,
        transaction_index: 3,
        log_index: 17,
        removed: false,
    };
    let json = json!({
        "address": "0xabababababababababababababababababababab",
        "topics": [
            "0x0707070707070707070707070707070707070707070707070707070707070707",
            "0x0808080808080808080808080808080808080808080808080808080808080808",
        ],
        "data": "0x0000000000010002",
        "blockNumber": "0xff",
        "transactionIndex": "0x3",
        "blockHash": "0x0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d",
        "blockTimestamp": "0x1000",
        "logIndex": "0x11",
        "removed": false,
    });
    (located, json)
}

#[test]
fn each_kind_of_finding_is_written_as_documented() {
    let (log, log_json) = located();
    let nodes = vec![Bytes::from_static(&[0xc0]), Bytes::from_static(&[1, 2, 3])];
    let proof = Arc::new(ReceiptProof { transaction_index: 3, nodes });
    let proof_json = json!({ "transactionIndex": 3, "nodes": ["0xc0", "0x010203"] });
    let omitted = OmittedLog { log: log.clone(), index_in_receipt: 2, proof: proof.clone() };
    let forged = |forgery| ForgedLog { at: 4, log: log.clone(), forgery, instead: None };
    let by_bloom = ForgedLog { instead: Some(log.log.clone()), ..forged(Forgery::Bloom) };
    let by_receipts = forged(Forgery::Receipts { proof: Some(proof) });
    let by_none = forged(Forgery::Receipts { proof: None });
    let wrong = |field| FindingKind::WrongField { at: 9, field };
    let hash = B256::repeat_byte(0x0d);
    let boxed = Box::new(log.clone());
    let claimed = BloomSoundness::Superset;
    for (kind, expected) in [
        (
            FindingKind::OmittedLog(Box::new(omitted)),
            json!({ "kind": "omitted_log", "log": log_json, "index_in_receipt": 2,
                    "receipt_proof": proof_json }),
        ),
        (
            FindingKind::ForgedLog(Box::new(by_bloom)),
            json!({ "kind": "forged_log", "at": 4, "log": log_json, "shown_by": "bloom",
                    "instead": { "address": log_json["address"], "topics": log_json["topics"],
                                 "data": log_json["data"] } }),
        ),
        (
            FindingKind::ForgedLog(Box::new(by_receipts)),
            json!({ "kind": "forged_log", "at": 4, "log": log_json, "shown_by": "receipts",
                    "receipt_proof": proof_json }),
        ),
        (
            FindingKind::ForgedLog(Box::new(by_none)),
            json!({ "kind": "forged_log", "at": 4, "log": log_json, "shown_by": "receipts" }),
        ),
        (
            wrong(WrongField::BlockNumber { actual: 255 }),
            json!({ "kind": "wrong_field", "at": 9, "field": "blockNumber", "actual": 255 }),
        ),
        (
            wrong(WrongField::BlockTimestamp { answered: 0, actual: 7 }),
            json!({ "kind": "wrong_field", "at": 9, "field": "blockTimestamp", "answered": 0,
                    "actual": 7 }),
        ),
        (
            wrong(WrongField::TransactionIndex { actual: 1 }),
            json!({ "kind": "wrong_field", "at": 9, "field": "transactionIndex", "actual": 1 }),
        ),
        (
            wrong(WrongField::LogIndex { actual: u64::MAX }),
            json!({ "kind": "wrong_field", "at": 9, "field": "logIndex", "actual": u64::MAX }),
        ),
        (
            wrong(WrongField::TransactionHash { actual: Some(hash) }),
            json!({ "kind": "wrong_field", "at": 9, "field": "transactionHash",
                    "actual": log_json["blockHash"] }),
        ),
        (
            wrong(WrongField::TransactionHash { actual: None }),
            json!({ "kind": "wrong_field", "at": 9, "field": "transactionHash", "actual": null }),
        ),
        (
            FindingKind::Duplicate { at: 5, first: 3 },
            json!({ "kind": "duplicate", "at": 5, "first": 3 }),
        ),
        (FindingKind::NotMatching { at: 5 }, json!({ "kind": "not_matching", "at": 5 })),
        (FindingKind::OutOfRange { at: 5 }, json!({ "kind": "out_of_range", "at": 5 })),
        (FindingKind::BeyondTag { at: 5 }, json!({ "kind": "beyond_tag", "at": 5 })),
        (FindingKind::OtherFork { at: 5 }, json!({ "kind": "other_fork", "at": 5 })),
        (
            FindingKind::ArityDependent { at: None, log: boxed.clone() },
            json!({ "kind": "arity_dependent", "at": null, "log": log_json }),
        ),
        (
            FindingKind::ArityDependent { at: Some(5), log: boxed },
            json!({ "kind": "arity_dependent", "at": 5, "log": log_json }),
        ),
        (FindingKind::Removed { at: 5 }, json!({ "kind": "removed", "at": 5 })),
        (
            FindingKind::ProfileContradicted { claimed, missing_bits: 2, extra_bits: 1 },
            json!({ "kind": "profile_contradicted", "claimed": "superset", "missing_bits": 2,
                    "extra_bits": 1 }),
        ),
    ] {
        let finding = Finding { block: Some(255), grounds: Grounds::Anchored, kind };
        let mut expected = expected;
        (expected["block"], expected["grounds"]) = (json!(255), json!("anchored"));
        assert_eq!(json!(finding), expected);
        // Other programs may add members.
        expected["provider"] = json!({ "name": ["A"] });
        assert_eq!(serde_json::from_value::<Finding>(expected).unwrap(), finding);
    }
}

#[test]
fn a_finding_says_what_is_wrong_in_a_line() {
    let (log, _) = located();
    let nodes = vec![Bytes::new(); 3];
    let proof = Arc::new(ReceiptProof { transaction_index: 3, nodes });
    let kind = FindingKind::OmittedLog(Box::new(OmittedLog { log, index_in_receipt: 2, proof }));
    let finding = Finding { block: Some(255), grounds: Grounds::Anchored, kind };
    assert_eq!(
        finding.to_string(),
        "omitted: log 17 (transaction 3) of 0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB; receipt 3 \
         is proven by 3 nodes of the trie"
    );
    let kind = FindingKind::Duplicate { at: 5, first: 3 };
    let finding = Finding { block: None, grounds: Grounds::Answer, kind };
    assert_eq!(finding.to_string(), "duplicate: log 5 of the answer repeats log 3");
}

fn hash() -> impl Strategy<Value = B256> {
    any::<[u8; 32]>().prop_map(B256::new)
}

fn any_log() -> impl Strategy<Value = Log> {
    let parts = (any::<[u8; 20]>(), vec(hash(), 0..=4), vec(any::<u8>(), 0..70));
    parts.prop_map(|(address, topics, data)| {
        Log::new(Address::new(address), topics, data.into()).expect("at most four topics")
    })
}

prop_compose! {
    fn any_located()(
        log in any_log(),
        (block_number, block_hash) in (any::<u64>(), hash()),
        block_timestamp in option::of(any::<u64>()),
        transaction_hash in option::of(hash()),
        (transaction_index, log_index, removed) in any::<(u64, u64, bool)>(),
    ) -> LocatedLog {
        LocatedLog {
            log, block_number, block_hash, block_timestamp, transaction_hash,
            claimed_transaction_hash: None, transaction_index, log_index, removed,
        }
    }
}

fn any_proof() -> impl Strategy<Value = Arc<ReceiptProof>> {
    let nodes = vec(vec(any::<u8>(), 0..40).prop_map(Bytes::from), 0..4);
    (any::<u64>(), nodes)
        .prop_map(|(transaction_index, nodes)| Arc::new(ReceiptProof { transaction_index, nodes }))
}

fn any_field() -> impl Strategy<Value = WrongField> {
    prop_oneof![
        any::<u64>().prop_map(|actual| WrongField::BlockNumber { actual }),
        any::<(u64, u64)>()
            .prop_map(|(answered, actual)| WrongField::BlockTimestamp { answered, actual }),
        any::<u64>().prop_map(|actual| WrongField::TransactionIndex { actual }),
        any::<u64>().prop_map(|actual| WrongField::LogIndex { actual }),
        option::of(hash()).prop_map(|actual| WrongField::TransactionHash { actual }),
    ]
}

fn any_kind() -> impl Strategy<Value = FindingKind> {
    let forgery = prop_oneof![
        Just(Forgery::Bloom),
        option::of(any_proof()).prop_map(|proof| Forgery::Receipts { proof }),
    ];
    let omitted = (any_located(), any::<usize>(), any_proof());
    let forged = (any::<usize>(), any_located(), forgery, option::of(any_log()));
    let soundness = prop_oneof![
        Just(BloomSoundness::Exact),
        Just(BloomSoundness::Superset),
        Just(BloomSoundness::Absent),
        Just(BloomSoundness::Unsound),
    ];
    prop_oneof![
        omitted.prop_map(|(log, index_in_receipt, proof)| FindingKind::OmittedLog(Box::new(
            OmittedLog { log, index_in_receipt, proof }
        ))),
        forged.prop_map(|(at, log, forgery, instead)| FindingKind::ForgedLog(Box::new(
            ForgedLog { at, log, forgery, instead }
        ))),
        (any::<usize>(), any_field()).prop_map(|(at, field)| FindingKind::WrongField { at, field }),
        any::<(usize, usize)>().prop_map(|(at, first)| FindingKind::Duplicate { at, first }),
        any::<usize>().prop_map(|at| FindingKind::NotMatching { at }),
        any::<usize>().prop_map(|at| FindingKind::OutOfRange { at }),
        any::<usize>().prop_map(|at| FindingKind::BeyondTag { at }),
        any::<usize>().prop_map(|at| FindingKind::OtherFork { at }),
        any::<usize>().prop_map(|at| FindingKind::Removed { at }),
        (option::of(any::<usize>()), any_located())
            .prop_map(|(at, log)| FindingKind::ArityDependent { at, log: Box::new(log) }),
        (soundness, any::<(u32, u32)>()).prop_map(|(claimed, (missing_bits, extra_bits))| {
            FindingKind::ProfileContradicted { claimed, missing_bits, extra_bits }
        }),
    ]
}

fn any_tag() -> impl Strategy<Value = BlockTag> {
    prop_oneof![
        any::<u64>().prop_map(BlockTag::Number),
        Just(BlockTag::Earliest),
        Just(BlockTag::Latest),
        Just(BlockTag::Safe),
        Just(BlockTag::Finalized),
        Just(BlockTag::Pending),
    ]
}

proptest! {
    #[test]
    fn what_is_written_of_a_finding_is_read_back(
        kind in any_kind(),
        block in option::of(any::<u64>()),
        grounds in prop_oneof![
            Just(Grounds::Answer), Just(Grounds::Anchored), Just(Grounds::Unanchored),
        ],
    ) {
        let finding = Finding { block, grounds, kind };
        let text = serde_json::to_string(&finding).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Finding>(&text).unwrap(), &finding);
        // The members may come in any order.
        prop_assert_eq!(serde_json::from_value::<Finding>(json!(finding)).unwrap(), finding);
    }

    #[test]
    fn what_is_written_of_a_log_or_query_is_read_back(
        log in any_located(),
        (from, to) in (option::of(any_tag()), option::of(any_tag())),
        at_hash in option::of(hash()),
        addresses in vec(any::<[u8; 20]>().prop_map(Address::new), 0..4),
        topics in vec(vec(hash(), 0..3), 4),
    ) {
        let text = serde_json::to_string(&log).unwrap();
        prop_assert_eq!(&text, &log.to_json());
        prop_assert_eq!(serde_json::from_str::<LocatedLog>(&text).unwrap(), log);
        let [t0, t1, t2, t3] = <[_; 4]>::try_from(topics).unwrap();
        let mut query = LogQuery::new().addresses(addresses).topic0(t0).topic1(t1).topic2(t2);
        if !t3.is_empty() {
            query = query.topic3(t3);
        }
        query = from.iter().fold(query, |query, from| query.from_block(*from));
        query = to.iter().fold(query, |query, to| query.to_block(*to));
        query = at_hash.iter().fold(query, |query, hash| query.at_hash(*hash));
        let text = serde_json::to_string(&query).unwrap();
        prop_assert_eq!(&text, &query.to_json());
        prop_assert_eq!(&serde_json::from_str::<LogQuery>(&text).unwrap(), &query);
        prop_assert_eq!(serde_json::from_value::<LogQuery>(json!(query)).unwrap(), query);
        for tag in from.iter().chain(&to) {
            prop_assert_eq!(&serde_json::from_value::<BlockTag>(json!(tag)).unwrap(), tag);
        }
    }
}

#[test]
fn queries_and_tags_are_read_strictly() {
    serde_json::from_str::<LogQuery>(r#"{"fromBlock":"latest"}"#).unwrap();
    for text in [
        r#"{"note":1}"#,
        r#"{"fromBlock":1}"#,
        r#"{"fromBlock":"0x1","fromBlock":"0x1"}"#,
        r#"{"fromBlock":"newest"}"#,
        "[]",
        "7",
    ] {
        serde_json::from_str::<LogQuery>(text).unwrap_err();
    }
    for text in ["7", "null", r#""newest""#, r#""7""#, r#""0x""#] {
        serde_json::from_str::<BlockTag>(text).unwrap_err();
    }
}

/// Draws blocks of which an anchor, a profile and receipts cover only a part. The report and its
/// summary must agree on every block, and survive a round trip through JSON.
#[test]
fn a_report_is_read_back_and_counts_what_it_says_of_each_block() {
    let mut rng = Rng::new(77);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let first = [0, 5, 4_369_995][rng.below(3)];
        let plans: Vec<_> = (0..=rng.below(12))
            .map(|_| {
                let logs = [log(1, &[7], 0), log(2, &[7], 1)];
                let receipts: [&[Log]; 3] = [&logs[1..], &logs[..1], &logs];
                let mut plan = plan(&receipts[..rng.below(4)]);
                // A bloom that lacks the bits of contract 2.
                plan.bloom = rng.one_in(6).then(|| Bloom::from_iter(&logs[..1]));
                plan
            })
            .collect();
        let run = synthetic::run(first, &plans);
        let drawn = |rng: &mut Rng| run.blocks[rng.below(run.blocks.len())].number;
        let mut profile =
            ChainProfile::assumed("a", BloomSoundness::Exact, ReceiptsScope::EveryLog);
        let mut later: Vec<_> = (0..rng.below(3)).map(|_| drawn(&mut rng)).collect();
        later.sort_unstable();
        for number in later {
            let scope = [ReceiptsScope::EveryLog, ReceiptsScope::NotEveryLog][rng.below(2)];
            let bloom = [BloomSoundness::Exact, BloomSoundness::Superset, BloomSoundness::Absent];
            profile = profile.with_range(number, bloom[rng.below(3)], scope, "a fork");
        }
        let naive = Naive { addresses: vec![Address::repeat_byte(1)], ..Naive::default() };
        let (query, mut answer) = (naive.query(&run), naive.answer(&run));
        if rng.one_in(4) {
            answer.pop();
        }
        let anchors = [run.block(drawn(&mut rng)).hash, B256::ZERO];
        let anchors = &anchors[rng.below(2)..];
        let mut audit = Audit::new(run.question(&query, anchors, &profile), &answer).unwrap();
        let has: Vec<_> = (0..20).map(|_| !rng.one_in(4)).collect();
        run.send(&mut audit, |number| has[usize::try_from(number - first).unwrap()]);
        let unchecked: Vec<_> = audit.unchecked().collect();
        for block in &run.blocks {
            let is_unchecked = unchecked.iter().any(|unchecked| unchecked.hash == block.hash);
            assert_eq!(audit.is_unchecked(block.hash), is_unchecked);
        }
        let report = reread(&audit.finish());
        let mut counts = Counts::default();
        let mut undecided = Vec::new();
        for block in &run.blocks {
            counts.blocks += 1;
            let verdict = report.verdict(block.number).unwrap();
            match verdict {
                Verdict::AbsentByBloom => counts.absent_by_bloom += 1,
                Verdict::CheckedByReceipts => counts.checked_by_receipts += 1,
                Verdict::Undecidable(why) => {
                    counts.undecidable += 1;
                    undecided.push((block.number, why));
                }
            }
            seen.insert(format!("{verdict:?}"));
        }
        counts.examined = report.examined().len() as u64;
        assert_eq!(report.counts, counts);
        assert_eq!(report.undecided().collect::<Vec<_>>(), undecided);
        for examined in report.examined() {
            assert_eq!(run.block(examined.block.number).hash, examined.block.hash);
        }
    }
    // `tests/audit/evidence.rs` covers the seventh verdict, `PostStateMissing`.
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn a_report_is_written_as_documented() {
    let run = synthetic::run(
        100,
        &[plan(&[&[log(1, &[7], 0)]]), plan(&[&[log(2, &[7], 0)]]), plan(&[&[log(1, &[7], 1)]])],
    );
    let naive = Naive { addresses: vec![Address::repeat_byte(1)], ..Naive::default() };
    let (query, answer) = (naive.query(&run), naive.answer(&run));
    let (anchors, profile) = ([run.block(101).hash], ChainProfile::ethereum());
    let question = run.question(&query, &anchors, &profile);
    let mut doubled = answer.clone();
    doubled.push(answer[0].clone());
    let report = run.audit_question(question, &doubled);
    let expected = json!({
        "status": "wrong",
        "first": 100,
        "last": 102,
        "anchored_to": 101,
        "blocks": {
            "all": 3, "examined": 2, "absent_by_bloom": 1, "checked_by_receipts": 1,
            "undecidable": 1,
        },
        "examined": [
            { "number": 100, "hash": run.block(100).hash, "verdict": "checked_by_receipts" },
            { "number": 102, "hash": run.block(102).hash, "verdict": "undecidable",
              "why": "unanchored" },
        ],
        "findings": [
            { "block": 100, "grounds": "answer", "kind": "duplicate", "at": 2, "first": 0 },
        ],
        "transaction_hashes_unbound": 0,
    });
    assert_eq!(json!(report), expected);
    assert_eq!(report.status(), Status::Wrong);
    // Other programs may add members. Members that contradict each other are rejected.
    let read = |member: &str, value: Value| {
        let mut other = expected.clone();
        *other.pointer_mut(member).expect("a member") = value;
        serde_json::from_value::<AuditReport>(other)
    };
    let mut more = expected.clone();
    more["wanted"] = json!([{ "number": 100 }]);
    assert_eq!(serde_json::from_value::<AuditReport>(more).unwrap(), report);
    for (member, value) in [
        ("/status", json!("complete")),
        ("/first", json!(103)),
        ("/first", json!(99)),
        ("/last", json!(103)),
        ("/last", json!(u64::MAX)),
        ("/anchored_to", json!(100)),
        ("/anchored_to", Value::Null),
        ("/blocks/all", json!(4)),
        ("/blocks/undecidable", json!(0)),
        ("/examined/0/number", json!(99)),
        ("/examined/0/number", json!(102)),
        ("/examined/1/number", json!(103)),
        ("/examined/0/verdict", json!("absent_by_bloom")),
        ("/examined/1/why", json!("because")),
        ("/findings", json!([])),
        ("/findings/0/kind", json!("unheard_of")),
        ("/findings/0/first", json!(-1)),
    ] {
        assert!(read(member, value.clone()).is_err(), "{member} {value}");
    }
}

/// The cost of reading a report depends on the length of its text, not on the length of its range.
#[test]
fn a_report_of_a_giant_range_is_read_at_once() {
    let giant = |first: u64, anchored: u64, contradicted: Value, counts: [u64; 3]| {
        let [all, absent, undecidable] = counts;
        json!({
            "status": if undecidable == 0 { "complete" } else { "undecided" },
            "first": first, "last": u64::MAX, "anchored_to": anchored,
            "blocks": { "all": all, "examined": 0, "absent_by_bloom": absent,
                        "checked_by_receipts": 0, "undecidable": undecidable },
            "examined": [], "contradicted": contradicted, "findings": [],
            "transaction_hashes_unbound": 0,
        })
    };
    let read = |json: Value| serde_json::from_value::<AuditReport>(json);
    let all = u64::MAX;
    let report = read(giant(1, u64::MAX, json!([]), [all, all, 0])).unwrap();
    assert_eq!((report.status(), report.undecided().next()), (Status::Complete, None));
    let parts = json!([{ "start": 5, "end": 6 }, { "start": all - 1, "end": all }]);
    let report = read(giant(1, u64::MAX, parts, [all, all - 4, 4])).unwrap();
    let why = Undecidable::ProfileContradicted;
    let undecided: Vec<_> = report.undecided().collect();
    assert_eq!(undecided, [(5, why), (6, why), (all - 1, why), (all, why)]);
    let report = read(giant(1, u64::MAX - 1, json!([]), [all, all - 1, 1])).unwrap();
    assert_eq!(report.undecided().collect::<Vec<_>>(), [(all, Undecidable::Unanchored)]);
    // 2^64 blocks can't be counted.
    read(giant(0, u64::MAX, json!([]), [all, all, 0])).unwrap_err();
    for parts in [
        json!([{ "start": 0, "end": 6 }]),
        json!([{ "start": 6, "end": 5 }]),
        json!([{ "start": 5, "end": 6 }, { "start": 6, "end": 7 }]),
        json!([{ "start": 7, "end": 8 }, { "start": 5, "end": 6 }]),
        json!([{ "start": 5, "end": all }, { "start": 5, "end": all }]),
    ] {
        read(giant(1, u64::MAX, parts, [all, all - 2, 2])).unwrap_err();
    }
}

#[test]
fn evidence_that_was_stored_is_verified_again() {
    let run = audit_runs::fixture_pair();
    let naive = Naive::default();
    let mut answer = naive.answer(&run);
    answer.remove(20);
    answer[9].log.data.data = vec![1].into();
    let query = naive.query(&run);
    let report = reread(&run.audit(&query, &answer));
    assert_eq!((report.omitted().count(), report.forged().count()), (2, 1));
    for omitted in report.omitted() {
        let header = run.block(omitted.log.block_number).view();
        omitted.verify(&header, &query, Semantics::Geth, &answer).unwrap();
        omitted.verify(&header, &query, Semantics::Geth, &naive.answer(&run)).unwrap_err();
    }
    for forged in report.forged() {
        forged.verify(&run.block(forged.log.block_number).view(), &answer).unwrap();
    }
}

#[test]
fn a_certificate_has_one_form() {
    let run = audit_runs::fixture_pair();
    let naive = Naive { addresses: vec![Address::ZERO], ..Naive::default() };
    let (query, answer) = (naive.query(&run), naive.answer(&run));
    let (anchors, profile) = ([run.tip()], ChainProfile::ethereum());
    let question = run.question(&query, &anchors, &profile);
    let report = run.audit_question(question, &answer);
    let views: Vec<_> = run.blocks.iter().map(audit_runs::Block::view).collect();
    let certificate = Certificate::from_report(&question, &report, &answer)
        .unwrap()
        .with_headers(&views)
        .with_receipts(run.tip(), &run.block(run.last()).receipts);
    assert_eq!(certificate.chain().unwrap().last_hash(), Some(run.tip()));
    let text = certificate.to_json();
    assert_eq!(serde_json::to_string(&certificate).unwrap(), text);
    assert_eq!(serde_json::from_str::<Certificate>(&text).unwrap(), certificate);
    assert_eq!(serde_json::from_value::<Certificate>(json!(certificate)).unwrap(), certificate);
    for (member, value) in [
        ("/version", json!(2)),
        ("/format", json!("another")),
        ("/semantics", json!("both")),
        ("/chain/first", json!(1)),
        ("/query", json!([])),
        ("/headers/0", json!("0x0")),
    ] {
        let mut other = json!(certificate);
        *other.pointer_mut(member).unwrap() = value;
        serde_json::from_value::<Certificate>(other).unwrap_err();
    }
}
