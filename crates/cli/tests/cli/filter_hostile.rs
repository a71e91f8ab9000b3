//! Hostile files as input of every command that reads a filter: each command reports an error that
//! names the file, and does not panic.

use super::filter_build::{built, lines};
use super::*;

const FORMATS: [&str; 5] = ["native", "parquet", "guava", "xor8", "xor16"];

/// Tests keys in the file, and describes the file, in every format.
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
fn what_is_no_filter_is_refused() {
    let file = TempFile::new("hostile.txt", "just text\n".repeat(20));
    for args in [&["filter", "info", file.path()][..], &["filter", "test", file.path(), "key"]] {
        fails(args, b"", BAD_INPUT, &["hostile.txt", "not a filter"]);
    }
    let empty = TempFile::new("hostile-empty", "");
    fails(&["filter", "info", empty.path()], b"", BAD_INPUT, &["empty"]);
    fails(&["filter", "info", "-"], b"", BAD_INPUT, &["standard input", "empty"]);
    fails(&["filter", "info", "/"], b"", BAD_INPUT, &["directory"]);
    fails(&["filter", "info", file.path(), "--as", "redis"], b"", USAGE, &["parquet"]);
    ends_well(&file);
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
    // A small file claims counts for which no machine has enough memory.
    for field in [32, 40, 48, 56] {
        for value in [u64::MAX, 1 << 62, 1 << 40, 0] {
            let mut bytes = whole.clone();
            bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
            ends_well(&TempFile::new("hostile-count", bytes));
        }
    }
}

#[test]
fn beginnings_of_every_format_are_survived() {
    let beginnings: [&[u8]; 6] = [
        b"\x15\xfe\xff\xff\xff\x0f\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00",
        b"\x01\x05\x7f\xff\xff\xff",
        b"\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00",
        &[0xff; 28],
        &[0; 28],
        b"CHSIEVEF",
    ];
    for beginning in beginnings {
        for more in [0, 1, 64] {
            let bytes = [beginning, &vec![0xa5; more]].concat();
            ends_well(&TempFile::new("hostile-beginning", bytes));
        }
    }
}
