//! The report as `JUnit` XML, which build servers show.

use std::fmt::Write as _;
use std::time::Duration;

use super::Report;
use crate::run::{AreaRun, CaseRun, Outcome, SubjectRun};
use crate::shorten::shortened;

impl Report {
    /// Returns the report as `JUnit` XML: a test suite for each subject and area.
    pub fn to_junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for run in &self.runs {
            for area in &run.areas {
                suite(&mut out, run, area);
            }
            faults(&mut out, run);
        }
        out += "</testsuites>\n";
        out
    }
}

fn suite(out: &mut String, run: &SubjectRun, area: &AreaRun) {
    let counts = area.counts();
    let name = format!("{}.{}", run.subject.name, area.name);
    let time = area.cases.iter().map(|case| case.time).sum();
    let errors = counts.error + usize::from(area.gave_up.is_some());
    let tests = area.cases.len() + usize::from(area.gave_up.is_some());
    open_suite(out, &name, tests, counts.differ, errors, counts.skipped + counts.not_run, time);
    for case in &area.cases {
        test_case(out, &name, case);
    }
    if let Some(gave_up) = &area.gave_up {
        fault(out, &name, "the area was asked to its end", gave_up);
    }
    *out += "  </testsuite>\n";
}

/// Faults that belong to no case become a suite, because `JUnit` has no other place for them.
fn faults(out: &mut String, run: &SubjectRun) {
    if run.faults.is_empty() {
        return;
    }
    let name = format!("{}.protocol", run.subject.name);
    let number = run.faults.len();
    open_suite(out, &name, number, 0, number, 0, Duration::ZERO);
    for text in &run.faults {
        fault(out, &name, "protocol", text);
    }
    *out += "  </testsuite>\n";
}

fn open_suite(
    out: &mut String,
    name: &str,
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    time: Duration,
) {
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" \
         skipped=\"{skipped}\" time=\"{:.3}\">",
        escaped(name),
        time.as_secs_f64(),
    );
}

fn fault(out: &mut String, class: &str, name: &str, text: &str) {
    let _ = writeln!(
        out,
        "    <testcase classname=\"{}\" name=\"{}\"><error message=\"{}\"/></testcase>",
        escaped(class),
        escaped(name),
        escaped(text),
    );
}

fn test_case(out: &mut String, class: &str, case: &CaseRun) {
    let _ = write!(
        out,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
        escaped(class),
        escaped(&case.id),
        case.time.as_secs_f64(),
    );
    let element = match &case.outcome {
        Outcome::Agrees { .. } => {
            *out += "/>\n";
            return;
        }
        Outcome::Skipped(why) | Outcome::NotRun(why) => {
            format!("<skipped message=\"{}\"/>", escaped(why))
        }
        outcome => {
            let name = if outcome.differs() { "failure" } else { "error" };
            let comment = case.detail.as_ref().map_or("", |detail| detail.comment.as_str());
            let text = case.detail.as_ref().map_or(String::new(), |detail| {
                let got = outcome.got().unwrap_or_default();
                format!(
                    "input    {}\nexpected {}\ngot      {}",
                    shortened(&detail.input),
                    shortened(&detail.expected),
                    shortened(&got),
                )
            });
            let message = format!("{}: {comment}", outcome.word());
            format!("<{name} message=\"{}\">{}</{name}>", escaped(&message), escaped(&text))
        }
    };
    let _ = writeln!(out, ">{element}</testcase>");
}

/// Escapes text for XML. Characters that XML 1.0 cannot contain are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out += "&#10;",
            '\t' => out += "&#9;",
            '\r' => out += "&#13;",
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
