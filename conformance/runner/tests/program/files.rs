//! Files that `run` reads and writes: a failure to write them loses no result.

use super::vectors::{report, subject};
use super::*;

/// The cases of a subject that differs.
const ARGS: [&str; 4] = ["--profile", "geth", "--area", "logs.match"];

#[test]
fn results_that_cannot_be_written_are_still_printed() {
    let folder = TempFile::absent("conformance-not-written");
    drop(fs::remove_dir_all(&folder.0));
    // A folder where a file should be.
    fs::create_dir_all(folder.0.join("report.json")).expect("a folder");
    let missing = folder.0.join("missing/known.json").display().to_string();
    for args in [&["--report", folder.path()][..], &["--baseline", &missing, "--write-baseline"]] {
        let report = report("alloy", &[&ARGS, args].concat(), BAD_INPUT);
        assert!(report["subjects"][0]["counts"]["differ"].as_u64() > Some(0), "{report}");
        let failures = report["failures"].as_array().expect("a list");
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(text(&failures[0]).starts_with("cannot write "), "{failures:?}");
    }
    fs::remove_dir_all(&folder.0).expect("removed");
    // Where nothing can be written, nothing is asked.
    let file = TempFile::new("conformance-no-folder", "");
    let never = ["run", "--subject", "exit 9", "--report", file.path()];
    fails(&never, BAD_INPUT, &["cannot write"]);
}

/// An interrupted command leaves the old baseline: the new one takes its place at once, so another
/// name of the old file still has its contents.
#[test]
fn a_baseline_is_replaced_as_a_whole() {
    let file = TempFile::new("conformance-replaced.json", r#"{"baseline":1,"subjects":{}}"#);
    let old = TempFile::absent("conformance-replaced-old.json");
    drop(fs::remove_file(&old.0));
    fs::hard_link(&file.0, &old.0).expect("a second name");
    let args = [&ARGS[..], &["--baseline", file.path(), "--write-baseline"]].concat();
    report("alloy", &args, YES);
    assert!(fs::read_to_string(&file.0).expect("the new one").contains("logs.match/"));
    let old = fs::read_to_string(&old.0).expect("the old one");
    assert_eq!(old, r#"{"baseline":1,"subjects":{}}"#);
}

/// The findings of one would be judged as those of the other.
#[test]
fn a_baseline_does_not_mix_two_subjects_of_one_name() {
    let file = TempFile::absent("conformance-two.json");
    let other = subject("");
    let args = ["--subject", &other, "--baseline", file.path(), "--write-baseline"];
    let report = report("alloy", &[&ARGS[..], &args].concat(), BAD_INPUT);
    assert_eq!(report["subjects"].as_array().map(Vec::len), Some(2));
    let failure = "several subjects have the name chainsieve, which a baseline cannot tell apart";
    assert_eq!(report["failures"], json!([failure]));
    assert!(!file.0.exists());
}

#[test]
fn findings_without_a_case_are_named() {
    let known = json!({"baseline": 1, "subjects": {
        "chainsieve": {"logs.match/gone": {"outcome": "error"}},
        "another": {"logs.match/gone": {"outcome": "error"}},
    }});
    let file = TempFile::new("conformance-gone.json", known.to_string());
    let report = report("", &[&ARGS[..], &["--baseline", file.path()]].concat(), YES);
    assert_eq!(report["baseline"]["not_in_pack"], json!(["logs.match/gone"]));
    assert_eq!(report["baseline"]["fixed"], json!([]));
}

/// A pack of a user has vectors alone.
#[test]
fn a_pack_without_pages_is_exported() {
    let pack = TempFile::absent("conformance-small-pack");
    drop(fs::remove_dir_all(&pack.0));
    fs::create_dir_all(pack.0.join("vectors")).expect("a folder");
    let index = json!({
        "pack": 1, "version": "1",
        "areas": [{"name": "a", "file": "vectors/a.json", "title": "t"}],
    });
    let case = json!({"id": "a/1", "comment": "c", "level": "open", "input": {}, "expect": {"invalid": "x"}});
    let vectors = json!({
        "pack": 1, "area": "a", "title": "t", "source": "s", "licence": "CC0-1.0",
        "groups": [{"params": {"x": {"repeat": "0a", "times": 2}}, "cases": [case]}],
    });
    fs::write(pack.0.join("pack.json"), index.to_string()).expect("written");
    fs::write(pack.0.join("vectors/a.json"), vectors.to_string()).expect("written");
    let out = TempFile::absent("conformance-small-export");
    drop(fs::remove_dir_all(&out.0));
    let exported = json_of(&["export", out.path(), "--pack", pack.path()], YES);
    assert_eq!((&exported["files"], &exported["cases"]), (&json!(2), &json!(1)));
    let shown = json_of(&["run", "--show", "a/1", "--pack", out.path()], YES);
    assert_eq!(shown["input"], json!({"x": "0a0a"}));
    fs::remove_dir_all(&pack.0).expect("removed");
    fs::remove_dir_all(&out.0).expect("removed");
}

#[test]
fn files_that_are_none() {
    let run = ["run", "--subject", "exit 9"];
    let with = |args: &[&'static str]| [&run[..], args].concat();
    fails(&with(&["--baseline", "/dev/zero"]), BAD_INPUT, &["/dev/zero", "not a baseline"]);
    let no_corpus = with(&["--corpus", "/nonexistent"]);
    fails(&no_corpus, BAD_INPUT, &["--corpus: /nonexistent is not a folder"]);
}
