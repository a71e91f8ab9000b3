//! The loops of `conformance/subjects`, which authors of adapters copy.

use std::path::Path;
use std::process::{Command, Stdio};

use chainsieve_conformance::{Outcome, Process};
use serde_json::json;

use crate::{Folder, case, load, pack_with, run_all};

/// Runs an adapter with a loop: its area prints, and then answers `{"sum": 1}`, crashes or refuses.
fn run_adapter(program: &str, name: &str, adapter: &str) {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "CI is set, and {program} was not found");
        eprintln!("left out: {program} was not found");
        return;
    }
    let subjects = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subjects");
    let folder = Folder::new();
    let about = json!({"name": "n", "version": "1", "language": program});
    folder.write("subject.json", about.to_string());
    folder.write(name, adapter.replace("SUBJECTS", &subjects.display().to_string()));
    let sum = json!({"value": {"sum": 1}});
    let how = ["answer", "crash", "refuse"];
    let cases: Vec<_> =
        (0..3).zip(how).map(|(i, how)| case(i, &json!({ "how": how }), &sum)).collect();
    let pack = pack_with("test.add", &json!({}), &cases);
    let command = format!("cd '{}' && exec {program} {name}", folder.path().display());
    let run = run_all(&load(&pack), &mut Process::new(command)).expect("it runs");
    let mut outcomes: Vec<_> =
        run.areas[0].cases.iter().map(|case| (&case.id, &case.outcome)).collect();
    outcomes.sort_by_key(|(id, _)| *id);
    assert!(matches!(outcomes[0].1, Outcome::Agrees { .. }), "{outcomes:?}");
    assert!(
        matches!(outcomes[1].1, Outcome::Error(text) if text.contains("broken")),
        "{outcomes:?}"
    );
    assert!(matches!(outcomes[2].1, Outcome::Refused(text) if text.contains("no")), "{outcomes:?}");
    assert_eq!(run.faults, [""; 0]);
}

#[test]
fn what_a_library_prints_in_python_is_no_answer() {
    let adapter = r#"
import os, sys
sys.path.insert(0, "SUBJECTS")
from protocol import Invalid, serve

def add(how):
    print("a print of the library")
    os.write(1, b"a print of C\n")
    if how == "crash":
        raise ValueError("broken")
    if how == "refuse":
        raise Invalid("no")
    return {"sum": 1}

serve({"test.add": add})
"#;
    run_adapter("python3", "adapter.py", adapter);
}

#[test]
fn what_a_library_prints_in_javascript_is_no_answer() {
    let adapter = r#"
import { Invalid, serve } from "SUBJECTS/protocol.mjs";

const add = ({ how }) => {
  console.log("a print of the library");
  if (how === "crash") throw "broken";
  if (how === "refuse") throw new Invalid("no");
  return { sum: 1 };
};

await serve({ "test.add": add });
"#;
    run_adapter("node", "adapter.mjs", adapter);
}
