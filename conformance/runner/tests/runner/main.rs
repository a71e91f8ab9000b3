//! Tests of the runner: packs, comparisons, subjects that misbehave, reports and baselines.

mod baselines;
mod comparison;
mod loops;
mod misbehaviour;
mod nodes;
mod packs;
mod reports;
mod selections;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use chainsieve_conformance::{
    Answer, CaseRun, InProcess, Inputs, Pack, RunError, Selection, Subject, SubjectRun, run,
};
use serde_json::{Value, json};

/// A folder for one test, which is removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("chainsieve-conformance-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        fs::write(&path, contents).expect("written");
        path
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Writes a pack with one area.
fn pack_with(area: &str, params: &Value, cases: &[Value]) -> Folder {
    let folder = Folder::new();
    let pack = json!({
        "pack": 1,
        "version": "0.1.0",
        "profiles": {
            "core-exact": {"areas": ["test.*"], "by": "core"},
            "bip-text": {"areas": ["test.*"], "by": "bip-text"},
            "geth": {"areas": ["logs.*"], "by": "geth"},
        },
        "flags": {"core-quirk": "Core contradicts the text"},
        "areas": [{"name": area, "file": "vectors/area.json", "title": "A <title> & more"}],
    });
    let vectors = json!({
        "pack": 1,
        "area": area,
        "title": "A title",
        "source": "made for the test",
        "licence": "CC0-1.0",
        "flags": {"Carry": "the sum has more digits"},
        "groups": [{"params": params, "cases": cases}],
    });
    folder.write("pack.json", pack.to_string());
    folder.write("vectors/area.json", vectors.to_string());
    folder
}

/// Returns a case of the area `test.add`.
fn case(number: u32, input: &Value, expect: &Value) -> Value {
    json!({
        "id": format!("test.add/{number:04}"),
        "comment": format!("case {number}"),
        "level": "specification",
        "input": input,
        "expect": expect,
    })
}

/// Returns a pack with additions `number + 1`.
fn sums(numbers: impl IntoIterator<Item = u32>) -> Folder {
    let sum = |number| case(number, &json!({"a": number}), &json!({"value": {"sum": number + 1}}));
    pack_with("test.add", &json!({"b": 1}), &numbers.into_iter().map(sum).collect::<Vec<_>>())
}

fn load(folder: &Folder) -> Pack {
    Pack::from_folder(folder.path()).expect("the pack is of the format")
}

/// Runs all cases of a pack.
fn run_all(pack: &Pack, subject: &mut dyn Subject) -> Result<SubjectRun, RunError> {
    let inputs = Inputs::new(pack);
    run(&inputs, &Selection::all(pack), subject, &mut |_| ControlFlow::Continue(()))
}

/// Runs one case with an answer, and returns its run.
fn outcome(expect: &Value, answer: &Answer) -> CaseRun {
    let folder = pack_with("test.add", &json!({}), &[case(1, &json!({}), expect)]);
    let mut subject = InProcess::new("fixed", "1", &["test.add"], |_, _| answer.clone());
    let mut run = run_all(&load(&folder), &mut subject).expect("it runs");
    run.areas.remove(0).cases.remove(0)
}
