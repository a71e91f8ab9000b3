//! Tests of `eth verify-certificate`: valid, invalid and undecided certificates.

use super::audit::Case;
use super::*;

/// Flags with the block range of the query.
const RANGE: [&str; 4] = ["--from", "17686111", "--to", "17686112"];

/// An audit that issues a certificate, and the flags to verify the certificate.
struct Issued {
    case: Case,
    certificate: TempFile,
}

impl Issued {
    fn new(name: &'static str, more: &[&str]) -> Self {
        let case = Case::new(name);
        let certificate = TempFile::absent(&format!("{name}.certificate.json"));
        let args = [
            &["--receipts", case.receipts.path(), "--anchor", &case.anchor][..],
            &["--certificate", certificate.path()],
            more,
        ];
        let json = case.audit_with(&answer(), &args.concat(), YES);
        assert_eq!(json["certificate"], certificate.path());
        Self { case, certificate }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let base = ["eth", "verify-certificate", self.certificate.path(), "--chain", "mainnet"];
        [&base[..], &RANGE, &["--anchor", &self.case.anchor], more].concat()
    }

    fn verify(&self, more: &[&str], code: i32) -> Value {
        json_of(&self.args(&[&QUERY, more].concat()), code)
    }
}

#[test]
fn a_certificate_with_its_evidence_proves_the_logs() {
    let issued = Issued::new("embedded", &["--embed"]);
    let json = issued.verify(&[], YES);
    assert_eq!((&json["status"], &json["error"]), (&json!("complete"), &Value::Null));
    let logs = json["logs"].as_array().expect("the logs");
    assert_eq!(logs.len(), 7);
    for (log, expected) in logs.iter().zip(answer()) {
        for field in ["address", "topics", "data", "logIndex", "blockHash"] {
            assert_eq!(log[field], expected[field], "{field}");
        }
    }
    let page = run(&issued.args(&QUERY));
    assert!(page.stdout.starts_with("complete: the result is proven"), "{}", page.stdout);
    // First the verifier's query differs from the certified one, then the verifier's rules differ,
    // and then the verifier has no anchor.
    let other = issued.args(&["--address", WETH]);
    assert!(text(&json_of(&other, WRONG)["error"]).contains("a query that differs"));
    let alloy = issued.verify(&["--semantics", "alloy"], WRONG);
    assert!(text(&alloy["error"]).contains("rules"));
    let base = ["eth", "verify-certificate", issued.certificate.path(), "--chain", "mainnet"];
    let unanchored = json_of(&[&base[..], &RANGE, &QUERY].concat(), UNDECIDED);
    assert_eq!(unanchored["undecided"][0]["why"], "unanchored");
    let open = [&base[..], &QUERY, &["--anchor", &issued.case.anchor]].concat();
    fails(&open, b"", USAGE, &["--from and --to"]);
}

#[test]
fn evidence_beside_a_certificate() {
    let issued = Issued::new("beside", &[]);
    fails(&issued.args(&QUERY), b"", BAD_INPUT, &["beside.certificate.json", "--headers"]);
    let headers = ["--headers", issued.case.headers.path()];
    let json = issued.verify(&headers, UNDECIDED);
    let wanted = Block::both().map(|block| json!({ "number": block.number, "hash": block.hash }));
    assert_eq!((&json["wanted"], &json["logs"]), (&json!(wanted), &Value::Null));
    let receipts = [&headers[..], &["--receipts", issued.case.receipts.path()]].concat();
    assert_eq!(issued.verify(&receipts, YES)["logs"].as_array().map(Vec::len), Some(7));
    let short = issued.case.logs(&answer()[1..]);
    let given = [&receipts[..], &["--logs", short.path()]].concat();
    assert!(issued.verify(&given, WRONG)["error"].is_string());
}

#[test]
fn certificates_that_do_not_hold() {
    let issued = Issued::new("false", &["--embed"]);
    let genuine: Value = serde_json::from_str(&issued.certificate.read()).expect("JSON");
    let verify = |change: &dyn Fn(&mut Value), code| {
        let mut certificate = genuine.clone();
        change(&mut certificate);
        fs::write(&issued.certificate.0, certificate.to_string()).expect("written");
        run(&[&issued.args(&QUERY)[..], &["--json"]].concat()).code == code
    };
    assert!(verify(&|_| (), YES));
    assert!(verify(&|c| c["result"]["digest"] = json!(B256::ZERO), WRONG));
    assert!(verify(&|c| c["result"]["logs"] = json!("0x6"), WRONG));
    assert!(verify(&|c| c["counts"]["examined"] = json!("0x1"), WRONG));
    assert!(verify(&|c| c["chain"]["lastHash"] = json!(B256::ZERO), WRONG));
    let swap = |c: &mut Value| {
        let receipts = c["receipts"].as_array_mut().expect("receipts");
        receipts[0]["receipts"].as_array_mut().expect("a list").swap(0, 1);
    };
    assert!(verify(&swap, WRONG));
    assert!(verify(&|c| c["version"] = json!(2), BAD_INPUT));
    assert!(verify(&|c| c["more"] = json!(1), BAD_INPUT));
    assert!(verify(&|c| c["headers"][0] = json!("0xc0"), BAD_INPUT));
    // An audit that finds an omission issues no certificate.
    let none = TempFile::absent("none.json");
    let case = &issued.case;
    let evidence = ["--receipts", case.receipts.path(), "--anchor", &case.anchor];
    let json = case.audit_with(
        &answer()[1..],
        &[&evidence[..], &["--certificate", none.path()]].concat(),
        WRONG,
    );
    assert!(text(&json["warnings"][0]).contains("no certificate"));
    assert!(!none.0.exists());
}
