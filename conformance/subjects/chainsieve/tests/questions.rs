//! The subject as the runner uses it: lines of JSON in and out.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn ask(arguments: &[&str], questions: &[u8]) -> Output {
    let mut subject = Command::new(env!("CARGO_BIN_EXE_subject-chainsieve"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // A subject that refuses its argument may exit before all of the input is written.
    drop(subject.stdin.take().expect("piped").write_all(questions));
    subject.wait_with_output().expect("it ends")
}

/// A subject is told what is wrong with a question, and answers the next one.
#[test]
fn questions_that_are_malformed() {
    let questions = concat!(
        r#"{"cmd":"start","version":1}"#,
        "\n",
        r#"{"cmd":"run","seq":7,"area":"bip37.murmur3","input":{"seed":0}}"#,
        "\n",
        r#"{"cmd":"run","seq":8,"area":"no.such","input":{}}"#,
        "\n",
        r#"{"cmd":"run","seq":9,"area":"bip37.murmur3","input":{"seed":0,"data":""}}"#,
        "\n",
        r#"{"cmd":"stop"}"#,
        "\n",
    );
    let answers = ask(&[], questions.as_bytes());
    assert!(answers.status.success(), "{answers:?}");
    let lines = serde_json::Deserializer::from_slice(&answers.stdout).into_iter::<Value>();
    let lines: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
    assert_eq!(lines[0]["implementation"]["name"], "chainsieve");
    assert!(lines[1]["error"].as_str().expect("text").contains("data"), "{}", lines[1]);
    assert!(lines[2]["skipped"].is_string(), "{}", lines[2]);
    assert_eq!(lines[3], json!({ "seq": 9, "value": { "hash": 0 } }));
    assert!(!ask(&[], b"no JSON\n").status.success());
    assert!(!ask(&["neither"], b"").status.success());
}
