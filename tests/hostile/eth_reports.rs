//! Reports and findings from untrusted sources.

use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport, Finding};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;
use serde_json::{Value, json};

use crate::{giants, survives};
use testkit::Rng;
use testkit::eth::fixtures;
use testkit::mutated;

/// A mainnet block of the fixtures.
const NUMBER: u64 = 14_764_013;

/// Returns the report on an empty answer to a query for every log of a block, the query, and the
/// block's header.
fn report() -> (AuditReport, LogQuery, Vec<u8>) {
    let (header, encodings) = fixtures::block(NUMBER);
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&header).expect("a header");
    let anchor = chain.last_hash().expect("a block");
    let query = LogQuery::new().from_block(NUMBER).to_block(NUMBER);
    let question = AuditQuestion {
        chain: &chain,
        anchors: &[anchor],
        query: &query,
        blocks: ResolvedBlocks::Range { first: NUMBER, last: NUMBER },
        semantics: Semantics::Geth,
        profile: &ChainProfile::ethereum(),
    };
    let mut audit = Audit::new(question, &[]).expect("a question");
    let receipts = BlockReceipts::from_encodings(&encodings).expect("receipts");
    assert_eq!(audit.check_receipts(anchor, &receipts), Ok(true));
    let report = audit.finish();
    assert_eq!(report.omitted().count(), 28);
    (report, query, header)
}

/// Reads a report, uses all its parts, and verifies its evidence. Only evidence about true logs may
/// verify. Returns `true` if the report can be read.
fn read(text: &str, query: &LogQuery, header: &[u8], truth: &AuditReport) -> bool {
    let read = || serde_json::from_str::<AuditReport>(text);
    let report = match survives("a report", text.as_bytes(), 400, 20_000, read) {
        Ok(report) => report,
        Err(error) => {
            // serde's message repeats a string of the wrong type.
            assert!(error.to_string().len() < text.len() + 1_400, "{:.2000}", error.to_string());
            return false;
        }
    };
    let _ = (report.status(), report.undecided().take(1_000).count());
    let header = HeaderView::decode(header).expect("a header");
    for omitted in report.omitted() {
        let verify = || omitted.verify(&header, query, Semantics::Geth, &[]);
        if survives("verifying", text.as_bytes(), 400, 200_000, verify).is_ok() {
            // Fields that the proof does not cover may have any value.
            let same = |other: &&chainsieve::eth::audit::OmittedLog| {
                (&other.log.log, other.index_in_receipt)
                    == (&omitted.log.log, omitted.index_in_receipt)
                    && other.log.transaction_index == omitted.log.transaction_index
            };
            assert!(truth.omitted().any(|other| same(&other)), "{:?}", omitted.log);
        }
    }
    for finding in &report.findings {
        assert!(finding.to_string().len() < 1_000);
    }
    true
}

#[test]
fn truncated_changed_doubled_and_giant() {
    let (report, query, header) = report();
    let mut one = json!(report);
    one["findings"].as_array_mut().expect("findings").truncate(1);
    let text = one.to_string();
    let read = |text: &str| read(text, &query, &header, &report);
    assert!(read(&text));
    for end in 0..text.len() {
        assert!(!read(&text[..end]), "{end}");
    }
    let giants = giants("[]");
    // Members of the report, and of its finding.
    for pointer in ["", "/findings/0"] {
        let members = one.pointer(pointer).and_then(Value::as_object).expect("an object");
        for name in members.keys() {
            let without = {
                let mut other = one.clone();
                let object = other.pointer_mut(pointer).and_then(Value::as_object_mut);
                object.expect("an object").remove(name);
                other
            };
            // Only a member that may be null may be left out.
            assert_eq!(read(&without.to_string()), name == "block", "no {name}");
            let mut other = one.clone();
            other.pointer_mut(pointer).expect("there")[name] = "VALUE".into();
            let other = other.to_string();
            for value in &giants {
                assert!(!read(&other.replace("\"VALUE\"", value)), "{name}: {value:.40}");
            }
            let value = &members[name];
            let twice = format!("\"{name}\":{value},\"{name}\":{value}");
            let twice = other.replace(&format!("\"{name}\":\"VALUE\""), &twice);
            assert!(!read(&twice), "{name} twice");
        }
        // Unknown members are skipped at low cost.
        let mut more = one.clone();
        more.pointer_mut(pointer).expect("there")["note"] = "VALUE".into();
        let more = more.to_string();
        for value in &giants[..4] {
            assert!(read(&more.replace("\"VALUE\"", value)), "{value:.40}");
        }
    }
    let text = json!(report).to_string();
    let mut rng = Rng::new(52);
    let mut came = 0;
    for _ in 0..1_500 {
        let bytes = mutated(&mut rng, text.as_bytes());
        came += usize::from(read(&String::from_utf8_lossy(&bytes)));
    }
    assert!(came > 100, "{came}");
}

#[test]
fn findings_of_no_kind_or_of_two() {
    let duplicate = r#"{"block":1,"grounds":"answer","kind":"duplicate","at":1,"first":0}"#;
    serde_json::from_str::<Finding>(duplicate).expect("a finding");
    for (from, to) in [
        ("duplicate", "Duplicate"),
        ("duplicate", "omitted_log"),
        ("\"duplicate\"", "null"),
        ("\"duplicate\"", "{\"duplicate\":{}}"),
        ("\"kind\":\"duplicate\"", "\"kind\":\"duplicate\",\"kind\":\"duplicate\""),
        ("\"first\":0", "\"first\":0,\"first\":0"),
        ("\"first\":0", "\"first\":18446744073709551616"),
        ("\"first\":0", "\"first\":0.5"),
        ("\"first\":0", "\"first\":\"0\""),
        ("answer", "hearsay"),
        ("\"block\":1", "\"block\":-1"),
        ("\"block\":1", "\"block\":1,\"block\":1"),
    ] {
        let text = duplicate.replace(from, to);
        assert_ne!(text, duplicate);
        serde_json::from_str::<Finding>(&text).unwrap_err();
    }
}
