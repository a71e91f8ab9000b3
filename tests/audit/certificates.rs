//! Certificates: writing, reading, verification, and rejection of altered certificates.

use std::collections::BTreeMap;

use alloy_primitives::{B256, address, b256};
use chainsieve::eth::audit::{Audit, AuditError, AuditQuestion, Undecidable};
use chainsieve::eth::certificate::{Certificate, CertificateError, VerifiedCertificate};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::{LocatedLog, digest};
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use serde_json::Value;

use crate::naive::{self, Naive};
use testkit::eth::audit_runs::{self, Run};

struct Issued {
    run: Run,
    query: LogQuery,
    answer: Vec<LocatedLog>,
    anchors: [B256; 1],
    profile: ChainProfile,
}

impl Issued {
    fn new(run: Run, naive: &Naive) -> Self {
        let (query, answer) = (naive.query(&run), naive.answer(&run));
        let anchors = [run.tip()];
        Self { run, query, answer, anchors, profile: ChainProfile::ethereum() }
    }

    fn question(&self) -> AuditQuestion<'_> {
        self.run.question(&self.query, &self.anchors, &self.profile)
    }

    /// Returns the certificate without embedded headers and receipts.
    fn bare(&self) -> Certificate {
        let report = self.run.audit_question(self.question(), &self.answer);
        Certificate::from_report(&self.question(), &report, &self.answer).expect("no findings")
    }

    /// Returns the numbers of the blocks whose receipts the audit needs.
    fn examined(&self) -> Vec<u64> {
        let audit = Audit::new(self.question(), &[]).expect("the chain covers the range");
        audit.finish().examined().iter().map(|examined| examined.block.number).collect()
    }

    fn full(&self) -> Certificate {
        let views: Vec<_> = self.run.blocks.iter().map(audit_runs::Block::view).collect();
        let bare = self.bare().with_headers(&views);
        self.examined().iter().fold(bare, |certificate, number| {
            let block = self.run.block(*number);
            certificate.with_receipts(block.hash, &block.receipts)
        })
    }
}

/// Verifies a certificate by its own headers and receipts.
fn prove(
    certificate: &Certificate,
    question: AuditQuestion<'_>,
) -> Result<VerifiedCertificate, CertificateError> {
    let chain = certificate.chain()?;
    certificate.verify(AuditQuestion { chain: &chain, ..question }, |_, _| None, None)
}

fn usdt_transfers() -> Issued {
    let naive = Naive {
        addresses: vec![address!("dac17f958d2ee523a2206206994597c13d831ec7")],
        topics: vec![vec![b256!(
            "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
        )]],
    };
    Issued::new(audit_runs::fixture_pair(), &naive)
}

#[test]
fn a_full_certificate_proves_itself_to_who_has_the_anchor() {
    let issued = usdt_transfers();
    let certificate = Certificate::from_json(&issued.full().to_json()).unwrap();
    assert_eq!(certificate, issued.full());
    assert_eq!(certificate.to_json(), issued.full().to_json());
    let verified = prove(&certificate, issued.question()).unwrap();
    assert!(verified.is_complete());
    assert_eq!(verified.logs.as_ref(), Some(&issued.answer));
    assert_eq!(certificate.num_logs(), issued.answer.len() as u64);
    assert!(issued.answer.len() > 20);
    assert_eq!(certificate.digest(), digest(&issued.answer));
    // A verifier who trusts another anchor gets no proof.
    let question = AuditQuestion { anchors: &[B256::ZERO], ..issued.question() };
    let verified = prove(&certificate, question).unwrap();
    assert!(!verified.is_complete());
    let unanchored = verified.unverified().map(|(_, why)| why);
    assert_eq!(unanchored.collect::<Vec<_>>(), [Undecidable::Unanchored; 2]);
    // An anchor in the middle of the range proves the blocks up to and including the anchor.
    let anchors = &[issued.run.blocks[0].hash];
    let question = AuditQuestion { anchors, ..issued.question() };
    let verified = prove(&certificate, question).unwrap();
    let above = (issued.run.last(), Undecidable::Unanchored);
    assert_eq!(verified.unverified().collect::<Vec<_>>(), [above]);
}

#[test]
fn the_golden_file_is_read_forever() {
    let issued = usdt_transfers();
    let [parent, last] = [issued.run.chain.parent_hash().unwrap(), issued.run.tip()];
    let expected = format!(
        concat!(
            r#"{{"format":"chainsieve-log-certificate","version":1,"profile":"ethereum","#,
            r#""chain":{{"parentHash":"{}","first":"0x10dde5f","last":"0x10dde60","lastHash":"{}"}},"#,
            r#""query":{{"fromBlock":"0x10dde5f","toBlock":"0x10dde60","#,
            r#""address":["0xdac17f958d2ee523a2206206994597c13d831ec7"],"#,
            r#""topics":[["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"]]}},"#,
            r#""semantics":"geth","result":{{"logs":"{:#x}","digest":"{}"}},"#,
            r#""counts":{{"blocks":"0x2","examined":"0x2"}}}}"#
        ),
        parent,
        last,
        issued.answer.len(),
        digest(&issued.answer),
    );
    assert_eq!(issued.bare().to_json(), expected);
    let upper = expected.replace(
        "dac17f958d2ee523a2206206994597c13d831ec7",
        "DAC17F958D2EE523A2206206994597C13D831EC7",
    );
    let spaced = upper.replace(',', " ,\n ");
    assert_eq!(Certificate::from_json(&spaced).unwrap(), issued.bare());
}

#[test]
fn without_receipts_the_blocks_are_named() {
    let issued = usdt_transfers();
    let bare = issued.bare();
    assert_eq!(prove(&bare, issued.question()), Err(CertificateError::NoHeaders));
    let verified = bare.verify(issued.question(), |_, _| None, None).unwrap();
    let why = Undecidable::ReceiptsNotSupplied;
    let named: Vec<_> = verified.unverified().collect();
    assert_eq!(named, [(17_686_111, why), (17_686_112, why)]);
    assert!(!verified.is_complete() && verified.logs.is_none());
    // Supplying the result separately doesn't replace the missing receipts.
    let result = Some(&issued.answer[..]);
    let verified = bare.verify(issued.question(), |_, _| None, result).unwrap();
    assert!(!verified.is_complete() && verified.logs.is_some());
    // Receipts from another source complete the proof, each for its own block.
    let from = |numbers: &'static [u64]| {
        let run = &issued.run;
        move |number, _| numbers.contains(&number).then(|| run.block(number).receipts.clone())
    };
    let verified = bare.verify(issued.question(), from(&[17_686_112]), None).unwrap();
    assert_eq!(verified.unverified().collect::<Vec<_>>(), [(17_686_111, why)]);
    assert!(!verified.is_complete());
    let both = || from(&[17_686_111, 17_686_112]);
    for result in [None, result] {
        let verified = bare.verify(issued.question(), both(), result).unwrap();
        assert!(verified.is_complete());
    }
    // Receipts of another block prove nothing.
    let wrong = |_, _| Some(issued.run.blocks[0].receipts.clone());
    let verified = bare.verify(issued.question(), wrong, None).unwrap();
    assert_eq!(verified.unverified().collect::<Vec<_>>(), [(17_686_112, why)]);
}

#[test]
fn query_profile_and_anchor_are_the_verifiers() {
    let issued = usdt_transfers();
    let full = issued.full();
    let verify = |question| prove(&full, question);
    let question = issued.question();
    let other = issued.query.clone().address(alloy_primitives::Address::ZERO);
    assert_eq!(
        verify(AuditQuestion { query: &other, ..question }),
        Err(CertificateError::OtherQuery)
    );
    let alloy = AuditQuestion { semantics: Semantics::Alloy, ..question };
    assert!(matches!(verify(alloy), Err(CertificateError::OtherSemantics { .. })));
    let blocks = ResolvedBlocks::Range { first: 17_686_111, last: 17_686_111 };
    let fewer = AuditQuestion { blocks, ..question };
    let error = CertificateError::Audit(AuditError::OtherBlocks { blocks });
    assert_eq!(verify(fewer), Err(error));
    let partly =
        ChainProfile::assumed("doubt", BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    let verified = verify(AuditQuestion { profile: &partly, ..question }).unwrap();
    assert_eq!(verified.unverified().count(), 2);
    assert!(!verified.is_complete() && verified.logs.is_none());
}

#[test]
fn a_false_result_is_neither_certified_nor_passed() {
    let issued = usdt_transfers();
    let mut false_answer = issued.answer.clone();
    false_answer.remove(3);
    let report = issued.run.audit_question(issued.question(), &false_answer);
    let refused = Certificate::from_report(&issued.question(), &report, &false_answer);
    assert_eq!(refused, Err(CertificateError::Findings(1)));
    // This certificate combines an honest report with the false result.
    let honest = issued.run.audit_question(issued.question(), &issued.answer);
    let forged = Certificate::from_report(&issued.question(), &honest, &false_answer).unwrap();
    let receipts = |number, _: B256| Some(issued.run.block(number).receipts.clone());
    let verify = |result| forged.verify(issued.question(), receipts, result);
    assert_eq!(verify(None), Err(CertificateError::NotSo("result.logs")));
    assert!(matches!(verify(Some(&false_answer)), Err(CertificateError::Refuted(_))));
    assert_eq!(verify(Some(&issued.answer)), Err(CertificateError::NotSo("result.logs")));
    // This result has the same number of logs, and one of them is altered.
    let mut other = issued.answer.clone();
    other[2].log.data.data = vec![1].into();
    let forged = Certificate::from_report(&issued.question(), &honest, &other).unwrap();
    let error = forged.verify(issued.question(), receipts, None);
    assert_eq!(error, Err(CertificateError::NotSo("result.digest")));
}

/// Appends the JSON pointer of every leaf of `value` to `out`.
fn leaves(value: &Value, pointer: String, out: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                leaves(member, format!("{pointer}/{name}"), out);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, format!("{pointer}/{index}"), out);
            }
        }
        _ => out.push(pointer),
    }
}

#[test]
fn a_change_of_any_member_is_noticed() {
    let issued = usdt_transfers();
    let json: Value = serde_json::from_str(&issued.full().to_json()).unwrap();
    let mut pointers = Vec::new();
    leaves(&json, String::new(), &mut pointers);
    // 16 members, 2 headers, and the receipts of 2 blocks (144 and 133 leaves) with their block
    // hashes.
    assert_eq!(pointers.len(), 16 + 2 + 2 + 144 + 133);
    let holds = |json: &Value| {
        let certificate = Certificate::from_json(&json.to_string());
        certificate.is_ok_and(|certificate| prove(&certificate, issued.question()).is_ok())
    };
    assert!(holds(&json));
    let mut labels = Vec::new();
    for pointer in &pointers {
        let mut changed = 0;
        let mut change = |to: Value| {
            let mut tampered = json.clone();
            let member = tampered.pointer_mut(pointer).unwrap();
            if *member != to {
                *member = to;
                changed += 1;
                if holds(&tampered) {
                    labels.push(pointer.clone());
                }
            }
        };
        match json.pointer(pointer).unwrap() {
            Value::String(text) => {
                let mut last = text.clone();
                last.pop();
                // A smaller digit than most, and a larger one.
                for digit in ['1', '9'] {
                    change(format!("{last}{digit}").into());
                }
                let middle = text.len() / 2;
                let other = if &text[middle..=middle] == "3" { "4" } else { "3" };
                change(format!("{}{other}{}", &text[..middle], &text[middle + 1..]).into());
            }
            Value::Number(_) => change(2.into()),
            other => panic!("{other:?}"),
        }
        change(Value::Null);
        assert!(changed >= 2, "{pointer}");
    }
    labels.dedup();
    assert_eq!(labels, ["/profile"], "only the profile's label is unchecked");
}

#[test]
fn members_are_all_there_once_and_known() {
    let issued = usdt_transfers();
    let text = issued.full().to_json();
    let json: Value = serde_json::from_str(&text).unwrap();
    for pointer in ["", "/chain", "/result", "/counts", "/receipts/0"] {
        let members = json.pointer(pointer).unwrap().as_object().unwrap();
        for name in members.keys() {
            let mut less = json.clone();
            less.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name);
            let optional = ["headers", "receipts"].contains(&name.as_str()) && pointer.is_empty();
            assert_eq!(Certificate::from_json(&less.to_string()).is_ok(), optional, "{name}");
        }
        let mut more = json.clone();
        more.pointer_mut(pointer).unwrap()["note"] = "unknown".into();
        Certificate::from_json(&more.to_string()).unwrap_err();
    }
    let mut more = json.clone();
    more["query"]["note"] = "unknown".into();
    assert!(matches!(Certificate::from_json(&more.to_string()), Err(CertificateError::Query(_))));
    for member in [r#""version":1,"#, r#""first":"0x10dde5f","#, r#""semantics":"geth","#] {
        let twice = text.replacen(member, &format!("{member}{member}"), 1);
        assert!(twice.len() > text.len());
        let error = Certificate::from_json(&twice).unwrap_err();
        assert!(error.to_string().contains("duplicate field"), "{error}");
    }
    let hash = issued.run.blocks[0].hash;
    let mut twice = json.clone();
    let receipts = twice["receipts"].as_array_mut().unwrap();
    let again = receipts.iter().find(|block| block["blockHash"] == hash.to_string()).cloned();
    receipts.push(again.unwrap());
    assert_eq!(
        Certificate::from_json(&twice.to_string()),
        Err(CertificateError::ReceiptsTwice(hash))
    );
    let mut later = json.clone();
    (later["version"], later["news"]) = (2.into(), "of version 2".into());
    assert_eq!(Certificate::from_json(&later.to_string()), Err(CertificateError::Version(2)));
    let mut other = json;
    other["format"] = "something else".into();
    assert!(matches!(Certificate::from_json(&other.to_string()), Err(CertificateError::Format(_))));
    // Receipts of a block that needs none are rejected: the verification would not check them.
    let fewer = Issued::new(
        audit_runs::fixture_pair(),
        &Naive { addresses: vec![alloy_primitives::Address::ZERO; 1], topics: vec![] },
    );
    assert!(fewer.examined().is_empty(), "{:?}", fewer.examined());
    let block = &fewer.run.blocks[0];
    let views = fewer.run.blocks.iter().map(audit_runs::Block::view).collect::<Vec<_>>();
    let needless = fewer.bare().with_headers(&views).with_receipts(block.hash, &block.receipts);
    assert_eq!(
        prove(&needless, fewer.question()),
        Err(CertificateError::NeedlessReceipts(block.hash))
    );
}

/// Certifies several queries over every run of blocks in the corpus.
#[test]
fn every_run_of_the_corpus_is_certified() {
    let mut complete = BTreeMap::new();
    for run in audit_runs::corpus() {
        let queries = naive::drawn(&run, 4);
        let first = run.first();
        let mut run = Some(run);
        for naive in queries {
            let issued = Issued::new(run.take().expect("put back after each query"), &naive);
            let certificate = Certificate::from_json(&issued.full().to_json()).unwrap();
            let verified = prove(&certificate, issued.question()).unwrap();
            assert!(verified.is_complete(), "{first}: {naive:?}");
            assert_eq!(verified.logs, Some(issued.answer));
            *complete.entry(first).or_insert(0) += 1;
            run = Some(issued.run);
        }
    }
    assert!(complete.is_empty() || complete.len() >= 14, "{complete:?}");
}
