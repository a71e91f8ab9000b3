//! Programs that break the protocol or end: each fault is charged to its case, and the run goes on.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use chainsieve_conformance::{
    Answer, Failure, GaveUp, InProcess, Limits, Outcome, Process, RunError, StartError, Subject,
    SubjectRun, Violation,
};
use serde_json::{Value, json};

use crate::{Folder, case, load, pack_with, run_all, sums};

/// Returns `true` if Python is there. Without it, the test is left out with a message; with `CI`
/// set, it fails.
fn has_python() -> bool {
    let status = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    let found = status.is_ok_and(|status| status.success());
    assert!(found || env::var_os("CI").is_none(), "CI is set, and python3 was not found");
    if !found {
        eprintln!("left out: python3 was not found");
    }
    found
}

/// Limits that make faults show soon. No outcome depends on them: a subject that is not at fault
/// answers at once.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.answer = Duration::from_secs(3);
    limits.line = 1 << 20;
    limits
}

fn adder(mode: &str, state: &Path) -> Process {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runner/misbehaviour.py");
    // Without `exec`, some shells stay, and keep the output open.
    let command = format!("exec python3 '{}' {mode} '{}'", script.display(), state.display());
    Process::with_limits(command, limits())
}

/// Runs 40 cases.
fn run_mode(mode: &str) -> Result<SubjectRun, RunError> {
    let state = Folder::new();
    let folder = sums(1..=40);
    run_all(&load(&folder), &mut adder(mode, &state.path().join("state")))
}

/// Returns the texts of the errors by case.
fn errors(run: &SubjectRun) -> Vec<(&str, &str)> {
    let cases = run.areas.iter().flat_map(|area| &area.cases);
    let error = cases.filter_map(|case| match &case.outcome {
        Outcome::Error(text) => Some((case.id.as_str(), text.as_str())),
        _ => None,
    });
    error.collect()
}

#[test]
fn an_honest_subject_agrees_in_any_order() {
    if !has_python() {
        return;
    }
    for mode in ["honest", "reversed", "more-areas", "floats", "floods-stderr"] {
        let run = run_mode(mode).expect("it runs");
        assert_eq!((run.counts().run, run.counts().agree), (40, 40), "{mode}");
        assert_eq!(run.faults, [""; 0], "{mode}");
        assert!(run.is_clean());
        assert_eq!(run.unknown_areas.len(), usize::from(mode == "more-areas"));
        assert_eq!((run.subject.name.as_str(), run.subject.version.as_str()), ("adder", "1.0"));
    }
}

#[test]
fn a_fault_is_charged_to_its_case_and_the_run_goes_on() {
    if !has_python() {
        return;
    }
    for (mode, text) in [
        ("crash", "the process ended (exit status: 7): \"something is broken\""),
        ("signal", "the process ended (signal: 11"),
        ("hang", "no answer within 3s"),
        ("endless-line", "a line of more than 1048576 bytes"),
        ("endless-lines", "not a JSON object: \"x\""),
        ("unknown-seq", "which was not asked"),
        ("repeated-seq", "a second answer to seq"),
        ("garbage", "not a JSON object: \"Warning: this is not JSON\""),
        ("no-seq", "no seq"),
        ("no-answer", "0 of value, invalid, skipped and error instead of one"),
        ("two-answers", "2 of value, invalid, skipped and error instead of one"),
        ("wrong-type", "value is a number: value is an object"),
        ("deep", "not a JSON object: \"[[["),
        ("not-a-number", "\"sum\\\": NaN}}\""),
        ("huge-number", "\"sum\\\": 1e999}}\""),
        ("invalid-utf8", "\\\"error\\\": \\\"\u{fffd}\\\"}\""),
        ("repeated-member", "the member \"value\" twice"),
        ("close-stdout", "closed its standard output without ending"),
        ("grandchild", "the process ended (exit status: 7)"),
    ] {
        let run = run_mode(mode).expect("it runs");
        let counts = run.counts();
        assert_eq!((counts.run, counts.agree, counts.error), (40, 39, 1), "{mode}: {run:?}");
        let errors = errors(&run);
        assert_eq!(errors[0].0, "test.add/0013", "{mode}");
        assert!(errors[0].1.contains(text), "{mode}: {}", errors[0].1);
        assert_eq!(run.faults, [""; 0], "{mode}");
        assert!(!run.is_clean());
    }
}

#[test]
fn answers_to_other_questions_differ() {
    if !has_python() {
        return;
    }
    let counts = run_mode("swapped").expect("it runs").counts();
    assert_eq!((counts.run, counts.differ), (40, 40));
}

#[test]
fn a_fault_that_does_not_recur_is_charged_to_the_subject() {
    if !has_python() {
        return;
    }
    let run = run_mode("crash-once").expect("it runs");
    assert_eq!(run.counts().agree, 40);
    let fault = "the process ended (exit status: 7), but not when each case was asked alone";
    assert_eq!(run.faults, [fault]);
    assert!(!run.is_clean());
}

#[test]
fn faults_after_the_last_answer_are_charged_to_the_subject() {
    if !has_python() {
        return;
    }
    for (mode, text) in [
        ("no-stop", "does not end after stop: no answer within 3s"),
        ("talks-after-stop", "not a JSON object: \"bye\""),
        ("repeats-after-stop", "a second answer to seq 40"),
        ("endless-after-stop", "not a JSON object: \"bye\""),
    ] {
        let run = run_mode(mode).expect("it runs");
        assert_eq!(run.counts().agree, 40, "{mode}");
        assert_eq!(run.faults.len(), 1, "{mode}: {:?}", run.faults);
        assert!(run.faults[0].contains(text), "{mode}: {:?}", run.faults);
    }
}

#[test]
fn a_subject_that_never_answers_ends_the_area() {
    if !has_python() {
        return;
    }
    for (mode, last) in [
        ("always-crash", "the process ended (exit status: 7)"),
        ("always-garbage", "not a JSON object"),
    ] {
        let run = run_mode(mode).expect("it runs");
        let area = &run.areas[0];
        let gave_up = area.gave_up.as_deref().expect("the area was given up");
        assert!(gave_up.starts_with("gave up after 20 failures in a row"), "{gave_up}");
        assert!(gave_up.contains(last), "{gave_up}");
        // Two of the failures happen while 16 questions are open, so they are charged to none.
        let counts = area.counts();
        assert_eq!((counts.error, counts.not_run), (18, 22), "{mode}");
        assert!(!run.is_clean());
    }
}

/// The process cannot be started again, or is another one then: nothing else is asked, in any area,
/// and the attempts end.
#[test]
fn a_subject_that_does_not_come_back_is_given_up() {
    if !has_python() {
        return;
    }
    for (mode, last) in [
        ("no-restart", "the process ended (exit status: 3)"),
        ("another", "cannot be started again: it introduces itself otherwise than at first"),
    ] {
        let state = Folder::new();
        let file = state.path().join("state");
        let folder = sums(1..=40);
        let pack = load(&folder);
        let mut subject = adder(mode, &file);
        let run = run_all(&pack, &mut subject).expect("it runs");
        let gave_up = run.areas[0].gave_up.as_deref().expect("given up");
        assert!(gave_up.contains(last), "{mode}: {gave_up}");
        assert_eq!(run.counts().error, 0, "{mode}");
        assert!(run.counts().not_run >= 28, "{mode}");
        assert!(!run.is_clean());
        let starts = fs::read_to_string(&file).expect("the starts").len();
        assert_eq!(starts, 4, "{mode}");
        let mut questions = std::iter::once((0, json!({"a": 1, "b": 1})));
        let later = subject.ask_all("other", &mut questions, &mut |_, answer, _| {
            panic!("{mode}: {answer:?}");
        });
        assert_eq!(later.expect_err("gone").last, last, "{mode}");
        assert_eq!(fs::read_to_string(&file).expect("the starts").len(), 4, "{mode}");
    }
}

/// A subject that introduces itself and then reads nothing.
#[cfg(unix)]
#[test]
fn a_subject_that_does_not_read_is_given_up() {
    let line = r#"{"version":1,"areas":["test.add"],"implementation":{"name":"n","version":"1","language":"l"}}"#;
    let mut limits = limits();
    limits.answer = Duration::from_millis(50);
    limits.failures = 3;
    let folder = pack_with(
        "test.add",
        &json!({"b": "ff".repeat(200_000)}),
        &(1..=40).map(|i| case(i, &json!({ "a": i }), &json!({"value": {}}))).collect::<Vec<_>>(),
    );
    let command = format!("echo '{line}'; exec sleep 1000");
    let run = run_all(&load(&folder), &mut Process::with_limits(command, limits)).expect("runs");
    let gave_up = run.areas[0].gave_up.as_deref().expect("given up");
    assert!(gave_up.ends_with("no answer within 50ms"), "{gave_up}");
    assert_eq!(run.counts().agree, 0);
}

#[test]
fn a_subject_that_does_not_introduce_itself_is_an_error() {
    let start = |command: &str| match run_all(&load(&sums([1])), &mut Process::new(command)) {
        Err(RunError::Start(error)) => error,
        other => panic!("{other:?}"),
    };
    let died = |error| match error {
        StartError::NoIntroduction(Failure::Died { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(died(start("exit 3")), "exit status: 3");
    assert_eq!(died(start("/nonexistent/program")), "exit status: 127");
    let not_json = Violation::NotAnObject("hello".into());
    assert_eq!(start("echo hello; cat"), StartError::NoIntroduction(not_json.into()));
    let closed = StartError::NoIntroduction(Failure::ClosedOutput);
    assert_eq!(start("exec >&-; exec sleep 1000"), closed);

    if !has_python() {
        return;
    }
    let start = |mode| match run_mode(mode) {
        Err(RunError::Start(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(start("version").starts_with("speaks version 2 of the protocol"));
    assert!(start("no-version").starts_with("speaks version null of the protocol"));
    assert_eq!(start("no-name"), "invalid introduction: no text implementation.name");
    assert_eq!(start("no-areas"), "invalid introduction: areas is no list of names");
    let invalid = |mode| start(mode).strip_prefix("invalid introduction: ").map(str::to_owned);
    for (mode, reason) in [
        ("long-name", "a text of name has more than 200 characters"),
        ("two-lines", "a text of version contains a control character"),
        ("escape", "a text of areas contains a control character"),
        ("many-areas", "more than 1000 areas"),
        ("no-url", "rpc is no text"),
    ] {
        assert_eq!(invalid(mode).as_deref(), Some(reason), "{mode}");
    }
    assert!(start("greets").contains("not a JSON object: \"hello\""));
}

#[test]
fn silence_at_the_start_is_an_error() {
    let mut limits = limits();
    limits.start = Duration::from_millis(100);
    let mut subject = Process::with_limits("exec sleep 1000", limits);
    let silent = Failure::Silent(limits.start).into();
    assert_eq!(subject.start().expect_err("no introduction"), silent);
}

/// Returns `true` if a process runs. A process that has ended may still be listed as a zombie.
#[cfg(target_os = "linux")]
fn runs(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[cfg(target_os = "linux")]
#[test]
fn children_of_a_subject_are_killed() {
    if !has_python() {
        return;
    }
    let state = Folder::new();
    let file = state.path().join("state");
    let run = run_all(&load(&sums(1..=40)), &mut adder("grandchild", &file)).expect("it runs");
    assert_eq!(run.counts().error, 1);
    let child = fs::read_to_string(&file).expect("the process id");
    // The signal has been sent, and the kernel delivers it soon.
    while runs(&child) {
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_of_a_closure_is_an_error() {
    let add = |_: &str, input: &Value| {
        let sum = input["a"].as_u64().expect("a number") + input["b"].as_u64().expect("a number");
        assert_ne!(sum, 14, "too unlucky");
        Answer::Value(json!({ "sum": sum }))
    };
    let mut subject = InProcess::new("closure", "1", &["test.add"], add);
    let run = run_all(&load(&sums(1..=40)), &mut subject).expect("it runs");
    assert_eq!((run.counts().agree, run.counts().error), (39, 1));
    let errors = errors(&run);
    assert_eq!(errors[0].0, "test.add/0013");
    assert!(errors[0].1.contains("too unlucky"), "{}", errors[0].1);
}

/// A large question and a large answer pass, and neither side waits for the other.
#[test]
fn long_lines_pass() {
    if !has_python() {
        return;
    }
    let script = "import sys, json\n\
        for line in sys.stdin:\n\
        \x20   m = json.loads(line)\n\
        \x20   if m['cmd'] == 'start':\n\
        \x20       print(json.dumps({'version': 1, 'areas': ['x'], 'implementation': \
                     {'name': 'n', 'version': '1', 'language': 'l'}}), flush=True)\n\
        \x20   elif m['cmd'] == 'run':\n\
        \x20       print(json.dumps({'seq': m['seq'], 'value': m['input']}), flush=True)\n\
        \x20   else:\n\
        \x20       break\n";
    let folder = Folder::new();
    let script = folder.write("echo.py", script);
    let mut subject = Process::new(format!("exec python3 '{}'", script.display()));
    subject.start().expect("it starts");
    let mut questions =
        (0..40).map(|number| (number, json!({ "data": "ab".repeat(500_000 + number) })));
    let mut lengths = vec![0; 40];
    let asked: Result<(), GaveUp> =
        subject.ask_all("x", &mut questions, &mut |number, answer, _| match answer {
            Answer::Value(value) => {
                lengths[number] = value["data"].as_str().map_or(0, str::len);
            }
            other => panic!("{other:?}"),
        });
    assert_eq!(asked, Ok(()));
    let expected: Vec<_> = (0..40).map(|number| 2 * (500_000 + number)).collect();
    assert_eq!(lengths, expected);
    assert_eq!(subject.stop(), [""; 0]);
    let mut text = String::new();
    let _ = write!(text, "{subject:?}");
    assert!(text.contains("running: None"), "{text}");
}
