//! Tests of `run` and `export` on the vectors that are part of the program, with the subject that answers
//! with chainsieve.

use super::*;

/// Number of cases that need the corpus.
pub(crate) const CASES_OF_THE_CORPUS: usize = 479;
/// Cases of the profiles `core-exact` and `geth`, and of the areas of other formats.
pub(crate) const OF_CORE: usize = 6_744;
pub(crate) const OF_GETH: usize = 894;
pub(crate) const OF_FORMATS: usize = 241;

/// The command that answers with chainsieve, by the rules for log queries that are named.
pub(crate) fn subject(semantics: &str) -> String {
    format!("'{}' {semantics}", chainsieve().display())
}

/// Runs the vectors against chainsieve, and returns the report.
pub(crate) fn report(semantics: &str, args: &[&str], code: i32) -> Value {
    let subject = subject(semantics);
    // A slow answer on a busy machine is no finding.
    json_of(&[&["run", "--time-limit", "300", "--subject", &subject], args].concat(), code)
}

/// Returns the number of answers, all of which agree.
fn all_agree(semantics: &str, args: &[&str]) -> u64 {
    let report = report(semantics, args, YES);
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
    assert_eq!(all_agree("alloy", &["--profile", "alloy"]), OF_GETH as u64);
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
    let report = report("alloy", &["--profile", "geth"], WRONG);
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
    report("alloy", &[&args[..], &["--write-baseline"]].concat(), YES);
    let again = report("alloy", &args, YES);
    assert_eq!(again["baseline"]["regressions"], json!([]));
    assert!(again["baseline"]["known"].as_u64().is_some_and(|known| known > 20), "{again}");
    let fixed = report("", &args, YES);
    assert_eq!(
        fixed["baseline"]["fixed"].as_array().map(Vec::len),
        again["baseline"]["known"].as_u64().map(|known| usize::try_from(known).expect("small"))
    );
}

#[test]
fn reports_are_written_as_json_and_as_junit() {
    let folder = TempFile::absent("conformance-report");
    report("", &["--area", "bip37.contains", "--report", folder.path()], YES);
    for (name, word) in [("report.json", "bip37.contains"), ("junit.xml", "<testsuites")] {
        let text = fs::read_to_string(folder.0.join(name)).expect("a report");
        assert!(text.contains(word), "{name}");
    }
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 2);
    fs::remove_dir_all(&folder.0).expect("removed");
}

/// What is exported is the same pack: it can be run, without references and without a corpus.
#[test]
fn an_export_is_a_pack() {
    let folder = TempFile::absent("conformance-export");
    let exported = json_of(&["export", folder.path()], YES);
    let listed = json_of(&["run", "--list"], YES);
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
    let case = json_of(&["run", "--show", "gcs.match/zero-value"], YES);
    assert_eq!(case["input"]["item"], "0003cf72");
    assert_eq!(case["expect"]["value"]["match"], true);
    assert!(text(&case["flags"]["ZeroValue"]).contains("maps to 0"));
}

/// The key in the URL of a node stays out of what is printed, also if the node cannot be reached.
#[test]
fn the_key_of_a_node_is_not_shown() {
    const KEY: &str = "k3yS3cr3tk3yS3cr3t42";
    for url in [format!("http://127.0.0.1:1/v2/{KEY}"), format!("127.0.0.1/v2/{KEY}")] {
        for json in [&[][..], &["--json"]] {
            let args = ["run", "--area", "logs.node", "--rpc", &url];
            let output = run(&[&args[..], json].concat());
            assert_ne!(output.code, YES);
            for printed in [&output.stdout, &output.stderr] {
                assert!(!printed.contains(KEY), "{printed}");
            }
        }
    }
}
