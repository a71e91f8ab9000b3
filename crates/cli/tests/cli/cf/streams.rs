//! Filters and blocks read from pipes, and lists with nothing to compare.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use chainsieve::btc::bip158::container::{Records, Writer};

use super::*;

#[test]
fn filters_come_through_pipes() {
    let folder = Folder::new("pipes");
    let fifo = folder.path("pipe");
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
    let folder = Folder::new("slow");
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

    let named = Path::new(&folder.0).join("hex of a block.json");
    fs::copy(BLOCK_757753, &named).expect("copied");
    let here = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "cf", "build", "hex of a block.json"])
        .current_dir(&folder.0)
        .output()
        .expect("it runs");
    assert!(here.status.success(), "{}", String::from_utf8_lossy(&here.stderr));
}

#[test]
fn lists_that_compare_nothing_are_no_success() {
    let folder = Folder::new("lists");
    let rows = fixture("mainnet_0-255.json");
    let list = folder.write("list.txt", text(&rows[0]["filter_header"]));
    let verify = ["btc", "cf", "verify-headers", GOLDEN, "--headers"];
    let other = [&verify[..], &[&list, "--headers-from", "4294967295"]].concat();
    fails(&other, b"", BAD_INPUT, &["nothing to compare", "0 to 255"]);
    let two = folder.write("two.txt", format!("{0}\n{0}\n", text(&rows[0]["filter_header"])));
    let over = [&verify[..], &[&two, "--headers-from", "4294967295"]].concat();
    fails(&over, b"", BAD_INPUT, &["the highest height is"]);
    let empty = folder.write("empty.txt", "");
    fails(
        &[&verify[..], &[&empty]].concat(),
        b"",
        BAD_INPUT,
        &["the file contains no filter headers"],
    );
}

#[test]
fn items_count_once_and_the_gap_limit_from_the_start() {
    let folder = Folder::new("gap");
    let descriptor = format!("wpkh({XPUB}/0/*)");
    let script = |index: u32| {
        descriptor_scripts(&descriptor, index..=index).expect("a descriptor")[0].script.clone()
    };
    // The first payment is beyond the range of indices, but within the gap limit.
    let blocks = chain_of(&[vec![script(30)], vec![script(79)]]);
    let blocks = folder.write("blocks.hex", blocks.join("\n"));
    let out = folder.path("filters.cbf");
    assert_eq!(run(&["btc", "cf", "build", &blocks, "--out", &out]).code, YES);
    let scan = ["btc", "cf", "scan", &out, &descriptor, &descriptor, "--range", "0-9"];
    let (lines, last) = lines_of(&scan, NO);
    assert_eq!((lines.len(), &last["scripts"]), (0, &json!(10)));
    let (lines, last) = lines_of(&[&scan[..], &["--gap-limit", "50"]].concat(), YES);
    let found: Vec<_> = lines.iter().map(|line| &line["scripts"][0]["index"]).collect();
    assert_eq!(found, [30, 79]);
    assert_eq!(last["scripts"], 130);
}

#[test]
fn receiving_and_change_are_told_apart() {
    let folder = Folder::new("paths");
    let both = format!("wpkh({XPUB}/<0;1>/*)");
    let change = format!("wpkh({XPUB}/1/*)");
    let scripts = descriptor_scripts(&change, 7..=7).expect("a descriptor");
    let blocks = chain_of(&[vec![scripts[0].script.clone()]]);
    let blocks = folder.write("blocks.hex", blocks.join("\n"));
    let out = folder.path("filters.cbf");
    assert_eq!(run(&["btc", "cf", "build", &blocks, "--out", &out]).code, YES);
    let receiving = format!("wpkh({XPUB}/0/*)");
    let scan = ["btc", "cf", "scan", &out, &both, &receiving, &change];
    let (lines, _) = lines_of(&scan, YES);
    let found: Vec<_> = lines[0]["scripts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|script| (text(&script["item"]), script["path"].clone(), script["index"].clone()))
        .collect();
    assert_eq!(found, [(&both[..], json!(1), json!(7)), (&change[..], json!(0), json!(7))]);
    let page = run(&scan).stdout;
    assert!(page.contains("/<0;1>/*) path 1 index 7, wpkh("), "{page}");
    assert!(page.contains("/1/*) index 7"), "{page}");
}

#[test]
fn filters_of_other_blocks_are_refused() {
    let folder = Folder::new("blocks");
    let rows = fixture("mainnet_0-255.json");
    let rows = rows.as_array().expect("rows");
    let headers: Vec<_> = rows.iter().map(|row| &text(&row["block"])[..160]).collect();
    let lines = folder.write("headers.hex", headers.join("\n"));
    let raw = hex::decode(headers[9..].concat()).expect("hex");
    let raw = folder.write("headers.bin", raw);
    let header = format!("255:{}", text(&rows[255]["filter_header"]));
    let scan = |filters: &str, more: &[&str], code| {
        let args = ["btc", "cf", "scan", filters, KEY, "--header", &header];
        lines_of(&[&args[..], more].concat(), code)
    };
    let (found, last) = scan(GOLDEN, &["--block-headers", &lines], YES);
    assert_eq!((found.len(), &last["warnings"]), (BLOCKS_OF_KEY.len(), &json!([])));
    let raw = ["--block-headers", &raw, "--block-headers-from", "9"];
    // The scan begins at height 0, but the file of block headers begins at height 9.
    let all = ["btc", "cf", "scan", GOLDEN, KEY];
    fails(
        &[&all[..], &raw].concat(),
        b"",
        BAD_INPUT,
        &["height 0", "247 headers from height 9 on"],
    );
    assert_eq!(scan(GOLDEN, &[&raw[..], &["--birthday", "9"]].concat(), YES).0, found);

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
    let (missed, last) = scan(&forged, &[], YES);
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
    refused(&["btc", "cf", "scan", &forged, KEY, "--header", &header]);
    refused(&["btc", "cf", "verify-headers", &forged]);
}

#[test]
fn a_scan_ends_when_nobody_reads() {
    let folder = Folder::new("closed");
    let fifo = folder.path("pipe");
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
