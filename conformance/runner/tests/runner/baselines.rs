//! Baselines: only findings that are not known fail a run.

use chainsieve_conformance::{Answer, Baseline, BaselineError, Change, InProcess, SubjectRun};
use serde_json::{Value, json};

use crate::{load, run_all, sums};

/// Runs a subject that adds, and answers to some numbers with something else.
fn run_with(
    numbers: impl IntoIterator<Item = u32>,
    other: impl Fn(u64) -> Option<Answer>,
) -> SubjectRun {
    let mut subject = InProcess::new("adder", "1", &["test.add"], |_, input| {
        let a = input["a"].as_u64().expect("a number");
        other(a).unwrap_or_else(|| Answer::Value(json!({ "sum": a + 1 })))
    });
    run_all(&load(&sums(numbers)), &mut subject).expect("it runs")
}

fn wrong(sum: i64) -> Answer {
    Answer::Value(json!({ "sum": sum }))
}

/// Returns the ids of regressions and of fixed cases, and the number of known findings.
fn judged(baseline: &Baseline, run: SubjectRun) -> (Vec<String>, Vec<String>, usize) {
    let judgement = baseline.judge(&[run]);
    let ids = |changes: Vec<Change>| {
        changes.into_iter().map(|change| change.id[9..].to_owned()).collect()
    };
    (ids(judgement.regressions), ids(judgement.fixed), judgement.known)
}

#[test]
fn a_known_finding_passes_and_another_one_fails() {
    let mut baseline = Baseline::default();
    let before = |a| match a {
        3 => Some(wrong(0)),
        4 => Some(Answer::Error("at 0x7fff1234".into())),
        5 => Some(Answer::Invalid("no".into())),
        _ => None,
    };
    let run = run_with(1..=6, before);
    assert_eq!(judged(&baseline, run.clone()).0.len(), 3, "everything is new");
    baseline.update(std::slice::from_ref(&run));
    assert_eq!(judged(&baseline, run), (vec![], vec![], 3));

    let text = baseline.to_json();
    assert!(text.ends_with("}\n") && text.contains("\"test.add/0003\""), "{text}");
    assert!(!text.contains("0x7fff1234"), "messages are not kept: {text}");
    let baseline = Baseline::parse(&text).expect("as written");

    // A message may change, but not the outcome, and not a wrong value.
    let now = |a| match a {
        2 => Some(wrong(0)),
        3 => Some(wrong(-1)),
        4 => Some(Answer::Error("at 0x7fff9999".into())),
        5 => Some(Answer::Error("crash".into())),
        _ => None,
    };
    let (regressions, fixed, known) = judged(&baseline, run_with(1..=6, now));
    assert_eq!(regressions, ["0002", "0003", "0005"]);
    assert_eq!((fixed, known), (vec![], 1));

    let changed = baseline.judge(&[run_with(1..=6, now)]).regressions;
    assert_eq!((changed[0].before.as_deref(), changed[0].now), (None, "differs"));
    assert_eq!((changed[2].before.as_deref(), changed[2].now), (Some("refused"), "error"));

    let (regressions, fixed, known) = judged(&baseline, run_with(1..=6, |_| None));
    assert_eq!((regressions, known), (vec![], 0));
    assert_eq!(fixed, ["0003", "0004", "0005"]);
}

#[test]
fn cases_that_were_not_run_stay_in_the_baseline() {
    let mut baseline = Baseline::default();
    baseline.update(&[run_with(1..=6, |a| (a > 3).then(|| wrong(0)))]);
    assert_eq!(judged(&baseline, run_with(1..=4, |_| None)), (vec![], vec!["0004".into()], 0));
    let skip = |a| (a == 5).then(|| Answer::Skipped("no call".into()));
    let later = run_with(1..=5, skip);
    baseline.update(&[later]);
    let (_, fixed, _) = judged(&baseline, run_with(1..=6, |_| None));
    assert_eq!(fixed, ["0005", "0006"], "0004 agreed, 0005 was skipped, 0006 was not asked");

    let mut other = run_with(1..=6, |a| (a > 3).then(|| wrong(0)));
    other.subject.name = "another".into();
    assert_eq!(judged(&baseline, other).0.len(), 3, "findings of another subject are not known");
}

#[test]
fn the_order_of_members_is_no_change() {
    let with = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        run_with([1], move |_| Some(Answer::Value(value.clone())))
    };
    let mut baseline = Baseline::default();
    baseline.update(&[with(r#"{"sum": 7, "more": {"a": 1, "b": 2}}"#)]);
    let same = with(r#"{"more": {"b": 2, "a": 1}, "sum": 7}"#);
    assert_eq!(judged(&baseline, same).2, 1);
}

/// A run does not keep megabytes of each answer, but a baseline knows the whole of them.
#[test]
fn long_answers_are_shortened_but_told_apart() {
    let long = |last: &str| {
        let text = format!("{}{last}{}", "x".repeat(500_000), "y".repeat(500_000));
        run_with(1..=4, move |a| {
            Some(match a {
                1 => wrong(0),
                2 => Answer::Value(json!({ "sum": text })),
                3 => Answer::Error(text.clone()),
                _ => Answer::Invalid(text.clone()),
            })
        })
    };
    let run = long("1");
    let got: Vec<_> = run.areas[0].findings().map(|(case, _)| case.outcome.got()).collect();
    let length: usize = got.iter().map(|got| json!(got).to_string().len()).sum();
    assert!(length < 10_000, "{length}");
    assert!(json!(got).to_string().contains("y (1000001 characters)"));
    let mut baseline = Baseline::default();
    baseline.update(std::slice::from_ref(&run));
    assert_eq!(judged(&baseline, run), (vec![], vec![], 4));
    assert_eq!(judged(&baseline, long("2")), (vec!["0002".into()], vec![], 3));
}

#[test]
fn other_files_are_no_baselines() {
    let error = |text| Baseline::parse(text).expect_err("no baseline");
    assert_eq!(error(r#"{"baseline": 2, "new": 1}"#), BaselineError::Version(2));
    for text in ["", "{}", r#"{"baseline": 1}"#, r#"{"baseline": 1, "subjects": [], "x": 1}"#] {
        assert!(matches!(error(text), BaselineError::Malformed(_)), "{text}");
    }
}
