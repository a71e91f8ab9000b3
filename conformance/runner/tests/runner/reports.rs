//! Reports of runs: what they contain, and that hostile texts stay texts.

use chainsieve_conformance::{Answer, InProcess, Pack, Report, SubjectRun, shortened};
use serde_json::{Value, json};

use crate::{case, load, pack_with, run_all};

/// A text that would break each of the formats.
const HOSTILE: &str =
    "</pre><script>alert('x' && \"y\")</script> ]]> `code` ``` | # _x_ \u{1b}[31m\u{0}";

fn pack() -> Pack {
    let long = "ab".repeat(300);
    let mut hostile = case(1, &json!({"data": HOSTILE, "a": 1}), &json!({"value": {"x": 1}}));
    hostile["comment"] = HOSTILE.into();
    hostile["source"] = HOSTILE.into();
    hostile["flags"] = json!(["Carry"]);
    let cases = [
        case(2, &json!({"data": long, "a": 2}), &json!({"value": {"x": 1}})),
        hostile,
        case(3, &json!({"a": 3}), &json!({"value": {"x": 1}})),
        case(4, &json!({"a": 4}), &json!({"value": {"x": 1}})),
        case(5, &json!({"a": 5}), &json!({"value": {"x": 1}})),
        case(6, &json!({"a": 6}), &json!({"invalid": "x"})),
    ];
    load(&pack_with("test.add", &json!({}), &cases))
}

fn run(pack: &Pack, name: &str, answer: impl FnMut(&str, &Value) -> Answer) -> SubjectRun {
    run_all(pack, &mut InProcess::new(name, "1.0", &["test.add"], answer)).expect("it runs")
}

fn report() -> Report {
    let pack = pack();
    let bad = run(&pack, "<b>ad&", |_, input| match input["a"].as_u64() {
        Some(1) => Answer::Value(json!({ "x": HOSTILE })),
        Some(2) => Answer::Error(HOSTILE.into()),
        Some(3) => Answer::Skipped(HOSTILE.into()),
        Some(4) => Answer::Invalid(HOSTILE.into()),
        _ => Answer::Value(json!({ "x": 1 })),
    });
    let mut gave_up = run(&pack, "good", |_, input| match input["a"].as_u64() {
        Some(6) => Answer::Invalid("x".into()),
        _ => Answer::Value(json!({ "x": 1 })),
    });
    gave_up.faults.push(HOSTILE.into());
    Report::new(&pack, Some("core-exact".into()), vec![bad, gave_up]).with_date("2026-11-24")
}

#[test]
fn the_smallest_input_is_the_first_finding() {
    let report = report();
    let area = &report.runs()[0].areas[0];
    let ids: Vec<_> = area.cases.iter().map(|case| &case.id[9..]).collect();
    assert_eq!(ids, ["0004", "0006", "0001", "0002", "0003", "0005"]);
    let counts = area.counts();
    assert_eq!((counts.run, counts.agree, counts.differ), (5, 1, 3));
    assert_eq!((counts.error, counts.skipped, counts.not_run), (1, 1, 0));
}

#[test]
fn json_has_what_a_reader_needs() {
    let json = report().to_json();
    assert_eq!(json["pack"], "0.1.0");
    assert_eq!(json["profile"], "core-exact");
    assert_eq!(json["date"], "2026-11-24");
    let subject = &json["subjects"][0];
    assert_eq!(subject["name"], "<b>ad&");
    let area = &subject["areas"][0];
    let counts = json!({
        "run": 5, "agree": 1, "differ": 3, "skipped": 1, "error": 1, "not_run": 0,
    });
    assert_eq!((&area["counts"], &subject["counts"]), (&counts, &counts));
    let finding = &area["findings"][2];
    assert_eq!(finding["id"], "test.add/0001");
    assert_eq!(finding["outcome"], "differs");
    assert_eq!(finding["differs_at"], "/x");
    assert_eq!(finding["comment"], HOSTILE);
    assert_eq!(finding["flags"], json!(["Carry"]));
    assert_eq!(finding["level"], "specification");
    assert_eq!(finding["input"]["data"], HOSTILE);
    assert_eq!(finding["expected"], json!({"value": {"x": 1}}));
    assert_eq!(finding["got"], json!({"value": {"x": HOSTILE}}));
    assert_eq!(area["findings"][0]["got"], json!({ "invalid": HOSTILE }));
    assert_eq!(area["findings"][1]["outcome"], "accepted");
    assert_eq!(area["skipped"], json!([{"id": "test.add/0003", "why": HOSTILE}]));
}

/// Returns the markup of a page: all tags, with their attributes.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split_once('>').expect("a whole tag").0).collect()
}

#[test]
fn junit_is_well_formed() {
    let xml = report().to_junit();
    assert!(!xml.contains(|c: char| c.is_control() && c != '\n'));
    let mut open = Vec::new();
    for tag in tags(&xml) {
        let name = tag.trim_matches('/').split(' ').next().expect("a name");
        if tag.starts_with('?') || tag.ends_with('/') {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    assert!(xml.contains(
        "<testsuite name=\"&lt;b&gt;ad&amp;.test.add\" tests=\"6\" failures=\"3\" errors=\"1\" skipped=\"1\""
    ));
    for (element, number) in
        [("<failure ", 3), ("<error ", 2), ("<skipped ", 1), ("<testcase ", 13)]
    {
        assert_eq!(xml.matches(element).count(), number, "{element}\n{xml}");
    }
}

#[test]
fn long_values_are_shortened_with_their_length() {
    let long = json!({"hex": "0f".repeat(1000), "text": "é".repeat(200), "list": vec![7; 50]});
    let short = shortened(&long);
    let hex = short["hex"].as_str().expect("text");
    assert!(hex.starts_with("0f0f") && hex.ends_with("0f (1000 bytes)"), "{hex}");
    let text = short["text"].as_str().expect("text");
    assert!(text.ends_with("é (200 characters)"), "{text}");
    assert_eq!(short["list"][19], "… 50 items");
    let whole = json!({"hex": "0f".repeat(80), "list": vec![7; 20]});
    assert_eq!(shortened(&whole), whole);
    // Whatever a subject answers, a report of it can be read.
    let many: Value = (0..100_000).map(|i| (format!("member {i}"), json!(i))).collect();
    let nested = (0..5).fold(json!(1), |inner, _| json!(vec![inner; 20]));
    let named = json!({ ("n".repeat(100_000)): 1 });
    for (value, end) in [(many, "100000 members"), (nested, "… 20 items"), (named, "n…")] {
        let text = shortened(&value).to_string();
        assert!(text.len() < 20_000 && text.contains(end), "{} {end}", text.len());
    }
}
