//! Tests of `filter test`.

use super::filter_build::{built, lines};
use super::*;

#[test]
fn answers_come_in_the_order_of_the_keys_and_the_exit_code_sums_them_up() {
    let filter = built("order.chsieve", &["--kind", "fuse16"], "alice\nbob\n");
    let test = ["filter", "test", filter.path()];
    let output = run(&[&test[..], &["bob", "eve", "alice"]].concat());
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (YES, "maybe  bob\nno     eve\nmaybe  alice\n")
    );
    assert!(output.stderr.contains("asked      3"), "{}", output.stderr);
    assert_eq!(run(&[&test[..], &["eve", "mallory"]].concat()).code, NO);
    let show =
        |answers: &str| run(&[&test[..], &["bob", "eve", "--show", answers]].concat()).stdout;
    assert_eq!(["maybe", "no", "none"].map(show), ["maybe  bob\n", "no     eve\n", ""]);
    // Keys from standard input and files come after those of the command line.
    let file = TempFile::new("asked.txt", "alice\n\ntrent\r\n");
    let output = run_with(&[&test[..], &["eve", "-", "--file", file.path()]].concat(), b"bob\n");
    assert_eq!(output.stdout, "no     eve\nmaybe  alice\nno     trent\nmaybe  bob\n");
    assert!(output.stderr.contains("empty lines: 1"), "{}", output.stderr);
    // A key with terminal control characters is escaped and quoted.
    let output = run_with(&[&test[..], &["-"]].concat(), b"a\x1b[2Jb\n");
    assert_eq!(output.stdout, "no     \"a\\u{1b}[2Jb\"\n");
}

#[test]
fn json_has_a_line_for_each_key_and_one_at_the_end() {
    let filter = built("lines.chsieve", &["--kind", "fuse16"], "alice\nbob\n");
    let args = ["filter", "test", filter.path(), "-", "--json"];
    let output = run_with(&args, b"alice\neve\n\xff\xfe\n");
    assert_eq!(output.code, YES);
    let json: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(json.len(), 4);
    assert_eq!(json[0], json!({ "kind": "answer", "key": "alice", "may_contain": true }));
    assert_eq!(json[1], json!({ "kind": "answer", "key": "eve", "may_contain": false }));
    assert_eq!((&json[2]["key_hex"], &json[2]["may_contain"]), (&json!("fffe"), &json!(false)));
    let counts = ["asked", "maybe", "no", "empty"].map(|name| json[3][name].as_u64());
    assert_eq!(counts, [Some(3), Some(1), Some(2), Some(0)]);
    assert!(json[3]["expected_by_chance"].as_f64().is_some_and(|count| count < 0.001));
}

#[test]
fn many_keys_stream_through() {
    let filter = built("many.chsieve", &["--kind", "split-block-512"], &lines("key-", 0..1000));
    let asked = lines("key-", 0..200_000);
    let args = ["filter", "test", filter.path(), "-", "--show", "maybe"];
    let output = run_with(&args, asked.as_bytes());
    let found: Vec<_> = output.stdout.lines().collect();
    assert!(found.len() >= 1000 && found.len() < 1400, "{}", found.len());
    assert_eq!((found[0], found[999]), ("maybe  key-0", "maybe  key-999"));
    assert!(output.stderr.contains("asked      200000"), "{}", output.stderr);
}

#[test]
fn nothing_to_ask_and_an_empty_filter() {
    let filter = built("none.chsieve", &["--kind", "bloom", "--capacity", "10"], "");
    let info = json_of(&["filter", "info", filter.path()], YES);
    assert_eq!((&info["keys"], &info["fill"]), (&json!(0), &json!(0.0)));
    assert!(text(&info["warnings"][0]).contains("the filter is empty"));
    let output = run(&["filter", "test", filter.path(), "key"]);
    assert_eq!((output.code, output.stdout.as_str()), (NO, "no     key\n"));
    assert!(output.stderr.contains("the filter is empty"), "{}", output.stderr);
    fails(&["filter", "test", filter.path()], b"", USAGE, &["KEY"]);
    let output = run(&["filter", "test", filter.path(), "-"]);
    assert_eq!((output.code, output.stdout.as_str()), (NO, ""), "without keys, nothing is printed");
    fails(&["filter", "test", "-", "-"], b"", USAGE, &["only once"]);
    fails(
        &["filter", "test", filter.path(), "--hex", "0g"],
        b"",
        BAD_INPUT,
        &["'g' at position 1"],
    );
    fails(&["filter", "test", "/nonexistent/f", "key"], b"", BAD_INPUT, &["/nonexistent/f"]);
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let filter = built("gone.chsieve", &["--kind", "fuse8"], "a\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["filter", "test", filter.path(), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let keys = lines("key-", 0..300_000);
    drop(child.stdin.take().expect("piped").write_all(keys.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    assert!([Some(YES), Some(NO)].contains(&output.status.code()));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("error"));
}

#[test]
fn filters_of_guava_are_made_asked_and_described() {
    let filter = built_guava();
    let test = ["filter", "test", filter.path(), "--as", "guava"];
    assert_eq!(
        run(&[&test[..], &["key-7", "other"]].concat()).stdout,
        "maybe  key-7\nno     other\n"
    );
    let info = json_of(&["filter", "info", filter.path(), "--as", "guava"], YES);
    assert_eq!((&info["kind"], &info["hash"]), (&json!("guava"), &json!("murmur3")));
    assert_eq!((&info["keys"], &info["checksum"]), (&json!(null), &json!(null)));
    assert_eq!(info["parameters"]["strategy"], "MURMUR128_MITZ_64");
    // Bytes that Guava has written, and Guava's own false positives.
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/filters/guava.json");
    let cases: Value = serde_json::from_slice(&fs::read(path).expect("fixture")).expect("JSON");
    let case = &cases[1];
    let bytes = hex::decode(text(&case["bytes"])).expect("hex");
    let file = TempFile::new("guava.bin", bytes);
    let key = |number: u64| {
        let mut key = format!("key {number}").into_bytes();
        let padding = 0x80 | number.to_le_bytes()[0];
        key.extend((0..number % 7).map(|_| padding));
        format!("{}\n", hex::encode(key))
    };
    let until = case["until"].as_u64().expect("a number");
    let asked: String = (0..until).map(key).collect();
    let args =
        ["filter", "test", file.path(), "--as", "guava", "--hex", "-", "--show", "maybe", "--json"];
    let output = run_with(&args, asked.as_bytes()).stdout;
    let found: Vec<String> = output
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line).ok()?["key"].as_str().map(str::to_owned)
        })
        .collect();
    let keys = 0..case["keys"].as_u64().expect("a number");
    let by_chance = case["false_positives"].as_array().expect("a list").iter();
    let expected: Vec<String> = keys
        .chain(by_chance.map(|key| key.as_u64().expect("a number")))
        .map(|n| key(n).trim().to_owned())
        .collect();
    assert_eq!(found, expected);
}

pub(super) fn built_guava() -> TempFile {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let out = TempFile::absent(&format!("made-{number}.guava"));
    let args = ["filter", "build", "-", "--kind", "guava", "--fpr", "1e-4", "-o", out.path()];
    let output = run_with(&args, lines("key-", 0..1000).as_bytes());
    assert_eq!(output.code, YES, "{}", output.stderr);
    out
}
