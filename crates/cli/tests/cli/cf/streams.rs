//! Filters and blocks read from pipes, builds that are killed, and filters of other blocks.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use chainsieve::btc::bip158::container::{Records, Writer};

use super::*;

#[test]
fn filters_come_through_pipes() {
    let folder = TestFolder::new("pipes");
    let fifo = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let through = |bytes: Vec<u8>, args: &[&str], code| {
        let path = fifo.clone();
        let writer = std::thread::spawn(move || fs::write(path, bytes));
        let (lines, last) = lines_of(args, code);
        writer.join().expect("no panic").expect("all was read");
        (lines, last)
    };
    let scan = ["btc", "cf", "scan", &fifo, KEY];
    assert_eq!(through(golden(), &scan, YES).0.len(), BLOCKS_OF_KEY.len());
    let block = fixture("blocks/mainnet_757753.json");
    let filter = text(&block["basic_filter"]);
    let answer = json!({"filter": filter, "header": "00".repeat(32)}).to_string();
    // An audit prints one JSON document, which fills several lines.
    let audit = |bytes: Vec<u8>, args: &[&str], code| {
        let path = fifo.clone();
        let writer = std::thread::spawn(move || fs::write(path, bytes));
        let report = json_of(args, code);
        writer.join().expect("no panic").expect("all was read");
        report
    };
    for bytes in [filter.as_bytes().to_vec(), hex::decode(filter).expect("hex"), answer.into()] {
        let report = audit(bytes, &["btc", "cf", "audit", &fifo, BLOCK_757753], YES);
        assert_eq!(report["verdict"], "valid");
    }
    // A whole file of filters must not be audited as if it were one filter. Such an audit would
    // accuse an honest server.
    let rows = fixture("mainnet_0-255.json");
    let args = ["btc", "cf", "audit", &fifo, text(&rows[255]["block"])];
    assert_eq!(audit(golden(), &args, YES)["verdict"], "valid");
    fails(
        &["btc", "cf", "audit", "-", BLOCK_757753],
        &golden(),
        BAD_INPUT,
        &["no filter of block"],
    );
}

#[test]
fn blocks_come_slowly_and_under_any_name() {
    let folder = TestFolder::new("slow");
    let mut build = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "cf", "build", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = build.stdin.take().expect("piped");
    stdin.write_all(b" \n").expect("it reads");
    stdin.flush().expect("it reads");
    std::thread::sleep(std::time::Duration::from_millis(300));
    stdin.write_all(&fs::read(BLOCK_757753).expect("a fixture")).expect("it reads");
    drop(stdin);
    let lines = BufReader::new(build.stdout.take().expect("piped")).lines();
    assert_eq!(lines.collect::<Result<Vec<_>, _>>().expect("text").len(), 2);
    assert!(build.wait().expect("it ends").success());

    let named = Path::new(folder.path()).join("hex of a block.json");
    fs::copy(BLOCK_757753, &named).expect("copied");
    let here = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "cf", "build", "hex of a block.json"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(here.status.success(), "{}", String::from_utf8_lossy(&here.stderr));
}

#[test]
fn filters_of_other_blocks_are_refused() {
    let folder = TestFolder::new("blocks");
    let rows = fixture("mainnet_0-255.json");
    let rows = rows.as_array().expect("rows");
    let headers: Vec<_> = rows.iter().map(|row| &text(&row["block"])[..160]).collect();
    let lines = folder.write("headers.hex", headers.join("\n"));
    let header = format!("255:{}", text(&rows[255]["filter_header"]));

    // The file contains the genuine filters, but one of them is stored with the hash of another
    // block. The filter headers still match.
    let mut file = Vec::new();
    let records = Records::new(golden().leak()).expect("a file of filters");
    let mut writer = Writer::create(&mut file, *records.header()).expect("in memory");
    for item in records.map(|item| item.expect("intact")) {
        let hash = if item.height == 170 { BlockHash::all_zeros() } else { item.block_hash };
        writer.append(&hash, item.content).expect("in memory");
    }
    let forged = folder.write("forged.cbf", file);
    let scan = ["btc", "cf", "scan", &forged, KEY, "--header", &header];
    let (missed, last) = lines_of(&scan, YES);
    assert_eq!((missed.len(), &last["compared_to"]), (BLOCKS_OF_KEY.len() - 1, &json!(255)));
    let refused = |args: &[&str]| {
        let block_headers = ["--block-headers", &lines];
        fails(
            &[args, &block_headers].concat(),
            b"",
            BAD_INPUT,
            &["height 170", text(&rows[170]["hash"])],
        );
    };
    refused(&scan);
    refused(&["btc", "cf", "verify-headers", &forged]);
}

#[test]
fn a_scan_ends_when_nobody_reads() {
    let folder = TestFolder::new("closed");
    let fifo = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let mut scan = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "cf", "scan", &fifo, KEY])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(scan.stdout.take());
    // These contents are not valid filters, so each block is a candidate and would print a line.
    let header = *Records::new(golden().leak()).expect("a file of filters").header();
    let pipe = fs::OpenOptions::new().write(true).open(&fifo).expect("it reads");
    let mut writer = Writer::create(pipe, header).expect("it reads");
    let long = vec![0; 4_000_000];
    let written = (0..60).try_for_each(|_| writer.append(&BlockHash::all_zeros(), &long));
    written.expect_err("the scan did not stop early");
    let output = scan.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(YES), &b""[..]));
}

/// Returns the blocks of the fixture, in hex.
fn blocks() -> Vec<String> {
    let rows = fixture("mainnet_0-255.json");
    rows.as_array().expect("rows").iter().map(|row| text(&row["block"]).to_owned()).collect()
}

#[test]
fn a_filter_is_in_the_file_when_its_line_is_printed() {
    let folder = TestFolder::new("killed");
    let out = folder.file("filters.cbf");
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
