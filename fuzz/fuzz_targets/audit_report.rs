//! Reports, findings and certificates from untrusted sources survive a round trip. A report is read
//! if and only if it is possible, which this target decides block by block.
#![no_main]

use std::fmt::Debug;
use std::ops::RangeInclusive;

use chainsieve::eth::audit::{
    AuditReport, Counts, Examined, Finding, ForgedLog, OmittedLog, Status, Undecidable, Verdict,
};
use chainsieve::eth::certificate::Certificate;
use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Ranges of at most this many blocks are counted block by block.
const FEW: u64 = 2_000;

/// Reads a text, and checks that the value survives a round trip as text and as a JSON value.
fn reread<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &str) -> Option<T> {
    let read: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&read).expect("it is written");
    assert_eq!(serde_json::from_str::<T>(&written).as_ref().ok(), Some(&read), "{written}");
    let value = serde_json::to_value(&read).expect("it is written");
    assert_eq!(serde_json::from_value::<T>(value).as_ref().ok(), Some(&read), "{written}");
    Some(read)
}

/// A report without the members that follow from the others.
#[derive(Deserialize)]
struct Plain {
    first: u64,
    last: u64,
    anchored_to: Option<u64>,
    examined: Vec<Examined>,
    #[serde(default)]
    contradicted: Vec<RangeInclusive<u64>>,
    findings: Vec<Finding>,
    #[serde(rename = "transaction_hashes_unbound")]
    _unbound: usize,
}

impl Plain {
    fn is_anchored(&self, number: u64) -> bool {
        self.anchored_to.is_some_and(|anchored| number <= anchored)
    }

    fn is_possible(&self) -> bool {
        let range = self.first..=self.last;
        let examined = self.examined.iter().all(|examined| {
            let is_unanchored = examined.verdict == Verdict::Undecidable(Undecidable::Unanchored);
            range.contains(&examined.block.number)
                && examined.verdict != Verdict::AbsentByBloom
                && is_unanchored != self.is_anchored(examined.block.number)
        });
        let contradicted = self.contradicted.iter().all(|part| {
            !part.is_empty() && range.contains(part.start()) && range.contains(part.end())
        });
        let numbers = self.examined.iter().map(|examined| examined.block.number);
        !range.is_empty()
            && examined
            && contradicted
            && numbers.is_sorted_by(|a, b| a < b)
            && self.contradicted.is_sorted_by(|a, b| a.end() < b.start())
    }

    fn verdict(&self, number: u64) -> Verdict {
        let of_number = |examined: &&Examined| examined.block.number == number;
        if let Some(examined) = self.examined.iter().find(of_number) {
            return examined.verdict;
        }
        if !self.is_anchored(number) {
            Verdict::Undecidable(Undecidable::Unanchored)
        } else if self.contradicted.iter().any(|part| part.contains(&number)) {
            Verdict::Undecidable(Undecidable::ProfileContradicted)
        } else {
            Verdict::AbsentByBloom
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        counts.blocks = self.last - self.first + 1;
        counts.examined = self.examined.len() as u64;
        for number in self.first..=self.last {
            *match self.verdict(number) {
                Verdict::AbsentByBloom => &mut counts.absent_by_bloom,
                Verdict::CheckedByReceipts => &mut counts.checked_by_receipts,
                Verdict::Undecidable(_) => &mut counts.undecidable,
            } += 1;
        }
        counts
    }

    fn status(&self, counts: &Counts) -> Status {
        if self.findings.iter().any(Finding::is_proof) {
            Status::Wrong
        } else if self.findings.is_empty() && counts.undecidable == 0 {
            Status::Complete
        } else {
            Status::Undecided
        }
    }
}

/// Adds the counts and the status that the report must have, and checks that it is read if it is
/// possible.
fn completed(mut value: Value) {
    let Ok(plain) = serde_json::from_value::<Plain>(value.clone()) else { return };
    let is_few = plain.first <= plain.last && plain.last - plain.first < FEW;
    let is_possible = plain.is_possible();
    if !is_few {
        assert!(is_possible || serde_json::from_value::<AuditReport>(value).is_err());
        return;
    }
    let counts = plain.counts();
    value["blocks"] = json!(counts);
    value["status"] = json!(plain.status(&counts));
    if !is_possible {
        // The counts are right, so the report is rejected because it is impossible.
        assert!(serde_json::from_value::<AuditReport>(value).is_err());
        return;
    }
    let report = serde_json::from_value::<AuditReport>(value.clone());
    let report = report.unwrap_or_else(|error| panic!("{error}: {value}"));
    assert_eq!(report.counts, counts);
    let numbers = plain.first..=plain.last;
    for number in numbers.clone() {
        assert_eq!(report.verdict(number), Some(plain.verdict(number)), "{number}");
    }
    let undecided = numbers.filter_map(|number| match plain.verdict(number) {
        Verdict::Undecidable(why) => Some((number, why)),
        _ => None,
    });
    assert!(report.undecided().eq(undecided));
    // Other counts and another status are rejected.
    for name in ["examined", "absent_by_bloom", "checked_by_receipts", "undecidable", "all"] {
        let mut other = value.clone();
        let count = other["blocks"][name].as_u64().expect("a count");
        other["blocks"][name] = json!(count ^ 1);
        assert!(serde_json::from_value::<AuditReport>(other).is_err(), "{name}");
    }
    for status in [Status::Complete, Status::Undecided, Status::Wrong] {
        value["status"] = json!(status);
        let is_read = serde_json::from_value::<AuditReport>(value.clone()).is_ok();
        assert_eq!(is_read, status == report.status());
    }
}

fuzz_target!(|text: &str| {
    if let Some(report) = reread::<AuditReport>(text) {
        let counts = report.counts;
        let sum = [counts.absent_by_bloom, counts.checked_by_receipts, counts.undecidable];
        assert_eq!(sum.map(u128::from).iter().sum::<u128>(), u128::from(counts.blocks));
        assert_eq!(counts.undecidable == 0, report.undecided().next().is_none());
        let _ = (report.omitted().count(), report.forged().count());
    }
    if let Some(finding) = reread::<Finding>(text) {
        assert!(finding.to_string().len() < 1_000 + text.len());
    }
    let _ = (reread::<OmittedLog>(text), reread::<ForgedLog>(text), reread::<Examined>(text));
    let _ = (reread::<Verdict>(text), reread::<Counts>(text));
    if let Some(certificate) = reread::<Certificate>(text) {
        assert_eq!(Certificate::from_json(text), Ok(certificate));
    }
    if let Ok(value) = serde_json::from_str(text) {
        completed(value);
    }
});
