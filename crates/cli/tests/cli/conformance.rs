//! Tests of `conformance run`, `list`, `show`, `export` and `answer` on the vectors that are part of
//! the program.

#![cfg(unix)]

use super::*;

/// Number of cases that need the corpus.
pub(crate) const CASES_OF_THE_CORPUS: usize = 479;
/// Cases of the profiles `core-exact` and `geth`, and of the areas of other formats.
pub(crate) const OF_CORE: usize = 6_744;
pub(crate) const OF_GETH: usize = 894;
pub(crate) const OF_FORMATS: usize = 241;

/// The command that answers with chainsieve.
pub(crate) fn subject(options: &str) -> String {
    format!("{} conformance answer {options}", env!("CARGO_BIN_EXE_chainsieve"))
}

/// Runs the vectors against this program, and returns the report.
pub(crate) fn report(options: &str, args: &[&str], code: i32) -> Value {
    let subject = subject(options);
    json_of(&[&["conformance", "run", "--subject", &subject], args].concat(), code)
}

/// Returns the number of answers, all of which agree.
fn all_agree(options: &str, args: &[&str]) -> u64 {
    let report = report(options, args, YES);
    let counts = &report["subjects"][0]["counts"];
    assert_eq!(counts["run"], counts["agree"], "{counts}");
    assert_eq!(counts["skipped"], 0, "{counts}");
    counts["run"].as_u64().expect("a number")
}

/// The cases that need the corpus are run where it is at hand.
#[test]
fn chainsieve_answers_as_bitcoin_core() {
    let run = all_agree("", &["--profile", "core-exact"]);
    let expected = if has_corpus() { OF_CORE } else { OF_CORE - CASES_OF_THE_CORPUS };
    assert_eq!(run, expected as u64);
}

#[test]
fn chainsieve_answers_as_geth_and_as_alloy() {
    assert_eq!(all_agree("", &["--profile", "geth"]), OF_GETH as u64);
    assert_eq!(all_agree("--semantics alloy", &["--profile", "alloy"]), OF_GETH as u64);
}

#[test]
fn chainsieve_reads_other_formats_and_certificates() {
    assert_eq!(
        all_agree("", &["--area", "filter.*", "--area", "certificate.*"]),
        OF_FORMATS as u64
    );
}

/// The rules of alloy are not those of geth: the vectors tell them apart.
#[test]
fn answers_by_other_rules_differ() {
    let report = report("--semantics alloy", &["--profile", "geth"], WRONG);
    let areas = report["subjects"][0]["areas"].as_array().expect("a list");
    let differing: Vec<_> = areas
        .iter()
        .filter(|area| area["counts"]["differ"] != 0)
        .map(|area| text(&area["area"]))
        .collect();
    assert_eq!(differing, ["logs.parse", "logs.match"]);
}

#[test]
fn a_baseline_hides_what_is_known() {
    let file = TempFile::absent("conformance-baseline.json");
    let args = ["--profile", "geth", "--area", "logs.*", "--baseline", file.path()];
    report("--semantics alloy", &[&args[..], &["--write-baseline"]].concat(), YES);
    let again = report("--semantics alloy", &args, YES);
    assert_eq!(again["baseline"]["regressions"], json!([]));
    assert!(again["baseline"]["known"].as_u64().is_some_and(|known| known > 20), "{again}");
    let fixed = report("", &args, YES);
    assert_eq!(
        fixed["baseline"]["fixed"].as_array().map(Vec::len),
        again["baseline"]["known"].as_u64().map(|known| usize::try_from(known).expect("small"))
    );
}

#[test]
fn reports_are_written_in_every_form() {
    let folder = TempFile::absent("conformance-report");
    report("", &["--area", "bip37.contains", "--report", folder.path()], YES);
    for (name, word) in [
        ("report.json", "bip37.contains"),
        ("report.md", "bip37.contains"),
        ("report.html", "<html"),
        ("junit.xml", "<testsuites"),
    ] {
        let text = fs::read_to_string(folder.0.join(name)).expect("a report");
        assert!(text.contains(word), "{name}");
    }
    fs::remove_dir_all(&folder.0).expect("removed");
}

/// What is exported is the same pack: it can be run, without references and without a corpus.
#[test]
fn an_export_is_a_pack() {
    let folder = TempFile::absent("conformance-export");
    let exported = json_of(&["conformance", "export", folder.path()], YES);
    let listed = json_of(&["conformance", "list"], YES);
    let total = |name: &str| -> u64 {
        let areas = listed["areas"].as_array().expect("a list").iter();
        areas.map(|area| area[name].as_u64().expect("a number")).sum()
    };
    assert_eq!(exported["left_out"], total("needs_corpus"));
    assert_eq!(exported["cases"], total("cases") - total("needs_corpus"));
    let vectors = fs::read_to_string(folder.0.join("vectors/bip158.basic.json")).expect("vectors");
    assert!(!vectors.contains("\"from\"") && !vectors.contains("\"corpus\""));
    let pack = ["--pack", folder.path(), "--area", "bip158.*", "--area", "receipts.root"];
    assert!(all_agree("", &pack) > 40);
    fs::remove_dir_all(&folder.0).expect("removed");
}

#[test]
fn a_case_is_shown_with_what_its_flags_mean() {
    let case = json_of(&["conformance", "show", "gcs.match/zero-value"], YES);
    assert_eq!(case["input"]["item"], "0003cf72");
    assert_eq!(case["expect"]["value"]["match"], true);
    assert!(text(&case["flags"]["ZeroValue"]).contains("maps to 0"));
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
    let output = run_with(&["conformance", "answer"], questions.as_bytes());
    assert_eq!(output.code, YES, "{}", output.stderr);
    let lines: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["implementation"]["name"], "chainsieve");
    assert!(text(&lines[1]["error"]).contains("data"), "{}", lines[1]);
    assert!(lines[2]["skipped"].is_string(), "{}", lines[2]);
    assert_eq!(lines[3], json!({ "seq": 9, "value": { "hash": 0 } }));
    fails(&["conformance", "answer"], b"no JSON\n", BAD_INPUT, &["questions of the runner"]);
    fails(&["conformance", "answer", "--json"], b"", USAGE, &["--json"]);
}

/// The key in the URL of a node stays out of what is printed, also if the node cannot be reached.
#[test]
fn the_key_of_a_node_is_not_shown() {
    const KEY: &str = "k3yS3cr3tk3yS3cr3t42";
    for url in [format!("http://127.0.0.1:1/v2/{KEY}"), format!("127.0.0.1/v2/{KEY}")] {
        for json in [&[][..], &["--json"]] {
            let args = ["conformance", "run", "--area", "logs.node", "--rpc", &url];
            let output = run(&[&args[..], json].concat());
            assert_ne!(output.code, YES);
            for printed in [&output.stdout, &output.stderr] {
                assert!(!printed.contains(KEY), "{printed}");
            }
        }
    }
}
