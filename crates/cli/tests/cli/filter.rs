//! Tests of the `filter` commands with generated keys, and with hostile files.

use super::*;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Returns one line for each number: `prefix` and the number.
fn lines(prefix: &str, numbers: std::ops::Range<u32>) -> String {
    let lines: Vec<_> = numbers.map(|number| format!("{prefix}{number}\n")).collect();
    lines.concat()
}

/// Builds a filter with these keys, and returns its file.
pub(super) fn built(name: &str, args: &[&str], keys: &str) -> TempFile {
    let out = TempFile::absent(name);
    let args = [&["filter", "build", "-", "--seed", KEY, "-o", out.path()], args].concat();
    let output = run_with(&args, keys.as_bytes());
    assert_eq!(output.code, YES, "{args:?}: {}", output.stderr);
    out
}

/// Every format of a file with a filter.
const FORMATS: [&str; 5] = ["native", "parquet", "guava", "xor8", "xor16"];

/// Tests keys in a hostile file, and describes the file, in every format: each command reports an error
/// that names the file, and does not panic.
fn ends_well(file: &TempFile) {
    for format in FORMATS {
        let info = run(&["filter", "info", file.path(), "--as", format]);
        let mut test = vec!["filter", "test", file.path(), "key", "--as", format];
        if format.starts_with("xor") {
            test.extend(["--hash", "xxh3", "--seed", "0"]);
        }
        for output in [info, run(&test)] {
            let codes = [YES, NO, USAGE, BAD_INPUT];
            assert!(codes.contains(&output.code), "{format}: {}", output.stderr);
            assert!(!output.stderr.contains("panicked"), "{format}: {}", output.stderr);
            if output.code == BAD_INPUT {
                assert!(output.stderr.contains("hostile"), "{format}: {}", output.stderr);
            }
        }
    }
}

#[test]
fn damaged_filters_are_named() {
    let filter = built("hostile-damaged.chsieve", &["--kind", "bloom"], &lines("k", 0..100));
    let whole = fs::read(&filter.0).expect("there");
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>), words: &[&str]| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let file = TempFile::new(name, bytes);
        fails(&["filter", "info", file.path()], b"", BAD_INPUT, words);
        ends_well(&file);
    };
    damage("hostile-cut", &|bytes| bytes.truncate(100), &["hostile-cut", "100 bytes"]);
    damage("hostile-long", &|bytes| bytes.push(0), &["expected"]);
    damage("hostile-bit", &|bytes| bytes[70] ^= 1, &["the checksum does not match"]);
    damage("hostile-version", &|bytes| bytes[8] = 2, &["version 2"]);
    damage("hostile-kind", &|bytes| bytes[10] = 200, &["kind 200"]);
    damage("hostile-hash", &|bytes| bytes[11] = 9, &["hash function 9"]);
}

#[test]
fn size_draws_a_line_for_each_layout() {
    let svg = TempFile::absent("sizes.svg");
    let args = ["filter", "size", "--keys", "20000", "--fpr", "1e-4", "--svg", svg.path()];
    assert_eq!(run(&args).code, YES);
    let drawn = svg.read();
    is_well_formed(&drawn);
    let names = [
        "floor",
        "bloom",
        "split-block-512",
        "split-block-256",
        "counting",
        "scalable",
        "rolling",
        "cuckoo8, 12, 16",
        "fuse8, 16",
        "ribbon",
        "partitioned",
        "compressed",
    ];
    for name in names {
        assert!(drawn.contains(&format!(">{name}")), "{name} is not in the legend");
    }
    // Each layout has one line in the chart and one line in the legend.
    let lines: Vec<_> = drawn.split("<path class=\"line ").skip(1).collect();
    assert_eq!(lines.len(), 2 * names.len());
    assert!(lines[..names.len()].iter().all(|line| line.contains('L')), "a line has two points");
    for tick in ["10⁻¹<", "10⁻⁶<", "bits per key", "false-positive rate", "1 in 10,000"] {
        assert!(drawn.contains(tick), "{tick}");
    }
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
}

/// Checks that tags are nested, attributes are quoted, and ampersands are escaped.
fn is_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some((text, behind)) = rest.split_once('<') {
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text:?}");
        let entities = text.split('&').skip(1);
        assert!(entities.clone().all(|entity| entity.split_once(';').is_some()), "{text:?}");
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag:?}");
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "a closing tag matches its opening tag");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = behind;
    }
    assert_eq!((open.len(), rest.trim()), (0, ""), "everything is closed");
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
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
