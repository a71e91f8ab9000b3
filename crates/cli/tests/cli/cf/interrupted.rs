//! Builds that are interrupted, and builds that continue interrupted ones.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::*;

/// Returns the blocks of the fixture, in hex.
fn blocks() -> Vec<String> {
    let rows = fixture("mainnet_0-255.json");
    rows.as_array().expect("rows").iter().map(|row| text(&row["block"]).to_owned()).collect()
}

#[test]
fn a_build_that_fails_leaves_nothing_or_what_it_printed() {
    let folder = Folder::new("fails");
    let blocks = blocks();
    let out = folder.path("filters.cbf");
    // The first block spends an output of an unknown transaction.
    let first = folder.write("first.hex", &blocks[170]);
    let header = "00".repeat(32);
    let args = ["--height", "170", "--previous-header", &header, "--out", &out];
    fails(&[&["btc", "cf", "build", &first], &args[..]].concat(), b"", BAD_INPUT, &[]);
    assert!(!Path::new(&out).exists());
    // The input contains no blocks.
    let none = folder.write("none.json", "[]");
    fails(&["btc", "cf", "build", &none, "--out", &out], b"", BAD_INPUT, &["no block"]);
    assert!(!Path::new(&out).exists());
    // The eleventh block does not match its header.
    let mut bytes = hex::decode(&blocks[10]).expect("hex");
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    let mut some = blocks[..10].to_vec();
    some.push(hex::encode(bytes));
    let some = folder.write("some.hex", some.join("\n"));
    let args = ["btc", "cf", "build", &some, "--out", &out];
    let output = run(&args);
    assert_eq!(output.code, BAD_INPUT);
    let named = ["line 11", "merkle root"].map(|words| output.stderr.contains(words));
    assert_eq!(named, [true; 2], "{}", output.stderr);
    assert_eq!(json_of(&["btc", "cf", "verify-headers", &out], YES)["filters"], 10);
    let rest = folder.write("rest.hex", blocks[10..170].join("\n"));
    let (_, last) = lines_of(&["btc", "cf", "build", &rest, "--out", &out, "--append"], YES);
    assert_eq!((&last["first"], &last["warnings"]), (&json!(10), &json!([])));
    assert!(golden().starts_with(&fs::read(&out).expect("written")));
}

#[test]
fn a_filter_is_in_the_file_when_its_line_is_printed() {
    let folder = Folder::new("killed");
    let out = folder.path("filters.cbf");
    let mut build = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "cf", "build", "-", "--out", &out, "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = build.stdin.take().expect("piped");
    let blocks = blocks();
    // The command needs two blocks to detect the format of its input.
    writeln!(stdin, "{}\n{}", blocks[0], blocks[1]).expect("it reads");
    stdin.flush().expect("it reads");
    let mut lines = BufReader::new(build.stdout.take().expect("piped")).lines();
    for _ in 0..2 {
        lines.next().expect("a line").expect("text");
    }
    // A second process must not write to the same file.
    let next = folder.write("next.hex", &blocks[2]);
    let append = ["btc", "cf", "build", &next, "--out", &out, "--append"];
    fails(&append, b"", BAD_INPUT, &["another process"]);
    build.kill().expect("it runs");
    build.wait().expect("it ends");
    assert_eq!(json_of(&["btc", "cf", "verify-headers", &out], YES)["filters"], 2);
    assert_eq!(lines_of(&append, YES).1["first"], 2);
}

#[test]
fn appending_loses_nothing_that_is_intact() {
    let folder = Folder::new("keeps");
    let blocks = blocks();
    let out = folder.path("filters.cbf");
    let next = folder.write("next.hex", blocks[100..].join("\n"));
    let append = ["btc", "cf", "build", &next, "--out", &out, "--append"];
    // The file is damaged in the middle. The data after the damage must not be cut off.
    let mut damaged = golden();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&out, &damaged).expect("written");
    fails(&append, b"", BAD_INPUT, &["is damaged", "intact filters", "truncate the file to"]);
    assert!(fs::read(&out).expect("there") == damaged);
    // First the file is truncated: blocks that do not follow its last filter change nothing. Then
    // the file contains only a header.
    let cut = golden()[..6_000].to_vec();
    fs::write(&out, &cut).expect("written");
    fails(&append, b"", BAD_INPUT, &["the block has parent"]);
    assert!(fs::read(&out).expect("there") == cut);
    fs::write(&out, &golden()[..56]).expect("written");
    let all = folder.write("all.hex", blocks.join("\n"));
    lines_of(&["btc", "cf", "build", &all, "--out", &out, "--append"], YES);
    assert!(fs::read(&out).expect("there") == golden());
    // The command reports what it replaces.
    let mut part = golden()[..golden().len() - 5].to_vec();
    fs::write(&out, &part).expect("written");
    part.truncate(part.len() - 39);
    let last = folder.write("last.hex", &blocks[255]);
    let (_, report) = lines_of(&["btc", "cf", "build", &last, "--out", &out, "--append"], YES);
    assert!(text(&report["warnings"][0]).contains("from height 255 on"), "{report}");
    assert!(fs::read(&out).expect("there") == golden());
}
