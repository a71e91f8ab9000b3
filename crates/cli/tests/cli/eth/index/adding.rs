//! Tests of building and extending an index, and of reorganisations.

use std::io::{BufRead as _, BufReader};

use super::*;

/// Returns the sealed files of an index, with their bytes.
fn segments(index: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(index).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "segment") {
            let name = path.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
            files.push((name, fs::read(path).expect("a file")));
        }
    }
    files.sort();
    files
}

#[test]
fn a_killed_build_has_what_it_said_and_goes_on() {
    let folder = TestFolder::new("index-killed");
    let all = chain();
    let headers = folder.write("headers.rlp", all.concat());
    let (whole, _) = build(&folder, &headers, &[]);
    let whole_segments = segments(&whole);
    assert_eq!(whole_segments.len(), 1);
    let whole_info = json_of(&["eth", "index", "info", &whole], YES);

    let index = folder.file("killed");
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["eth", "index", "build", &index, "-", "--json"])
        .args(["--threads", "1", "--sync-every", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    // The command receives one batch and part of the next batch, and waits for the rest.
    stdin.write_all(&all[..8200].concat()).expect("it reads");
    stdin.flush().expect("it reads");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    let synced: Value = serde_json::from_str(&line).expect("JSON");
    let last = synced["number"].as_u64().expect("a number");
    let of = |number: u64| keccak256(&all[usize::try_from(number - START).expect("small")]);
    assert_eq!(synced["hash"], json!(of(last)));
    // A second writer is refused; readers are not blocked.
    let again = ["eth", "index", "build", &index, &headers];
    fails(&again, b"", BAD_INPUT, &["another process"]);
    assert_eq!(json_of(&["eth", "index", "info", &index], YES)["last"], last);
    child.kill().expect("it runs");
    child.wait().expect("it ends");

    let info = json_of(&["eth", "index", "info", &index], YES);
    assert_eq!((&info["last"], &info["last_hash"]), (&json!(last), &json!(of(last))));
    let (_, summary) = lines_of(&again, YES);
    assert_eq!(summary["added"], json!(START + BLOCKS - 1 - last));
    assert!(segments(&index) == whole_segments, "the same bytes");
    let info = json_of(&["eth", "index", "info", &index], YES);
    for field in ["blocks", "last_hash", "sealed_sections", "segments", "fill", "unsealed"] {
        assert_eq!(info[field], whole_info[field], "{field}");
    }
    assert_eq!(json_of(&["eth", "index", "verify", &index, &headers], YES)["valid"], true);
    // In a second run there is nothing to add.
    let (lines, summary) = lines_of(&again, YES);
    assert_eq!((lines.len(), &summary["added"]), (0, &json!(0)));
    assert!(text(&summary["warnings"][0]).contains("nothing was added"), "{summary}");
}

#[test]
fn headers_must_go_on_from_the_index() {
    let folder = TestFolder::new("index-links");
    let all = chain();
    let of = |name: &str, headers: &[Vec<u8>]| folder.write(name, headers.concat());
    let (index, _) = build(&folder, &of("first", &all[..100]), &[]);
    let refused = |headers: &str, words: &[&str]| {
        fails(&["eth", "index", "build", &index, headers], b"", BAD_INPUT, words);
        assert_eq!(json_of(&["eth", "index", "info", &index], YES)["blocks"], 100);
    };
    refused(&of("gap", &all[102..105]), &["block 1102 comes after block 1099", "2 are missing"]);
    // Headers before the faulty one are kept.
    let bad = [&all[90..110], &all[111..112]].concat();
    let output = run(&["eth", "index", "build", &index, &of("bad", &bad)]);
    assert_eq!(output.code, BAD_INPUT);
    assert!(output.stderr.contains("block 1111 comes after block 1109"), "{}", output.stderr);
    let (_, summary) =
        lines_of(&["eth", "index", "build", &index, &of("next", &all[90..150])], YES);
    assert_eq!(summary["last"], 1149);
    // These headers start before the first block of the index: of another chain, and of its own.
    let below = of("below", &made_up(START - 1, 3, B256::ZERO, 3));
    let words = ["block 1000 is the first of the index and can't be removed"];
    fails(&["eth", "index", "build", &index, &below], b"", BAD_INPUT, &words);
    assert_eq!(json_of(&["eth", "index", "info", &index], YES)["last"], 1149);
    let later = folder.file("later-index");
    lines_of(&["eth", "index", "build", &later, &of("later", &all[10..20])], YES);
    let (_, summary) = lines_of(&["eth", "index", "build", &later, &of("own", &all[..15])], YES);
    assert_eq!(summary["added"], 0, "known blocks are skipped");
}

#[test]
fn removed_blocks_are_listed_if_an_error_ends_the_command() {
    let folder = TestFolder::new("index-torn");
    let all = chain();
    let (index, _) = build(&folder, &folder.write("all.rlp", all[..110].concat()), &[]);
    let branch = made_up(START + 105, 3, keccak256(&all[104]), 9);
    let branch = folder.write("branch.rlp", [&all[100..105], &branch].concat().concat());
    let gap = folder.write("gap.rlp", all[120..122].concat());
    let output = run(&["eth", "index", "build", &index, &branch, &gap]);
    assert_eq!(output.code, BAD_INPUT);
    let words = "5 blocks of another branch removed; the index ends at block 1107 now";
    assert!(output.stderr.contains(words), "{}", output.stderr);
    for number in 1105..1110 {
        assert!(output.stderr.contains(&format!("removed: block {number}, 0x")), "{number}");
    }
    assert_eq!(json_of(&["eth", "index", "info", &index], YES)["last"], 1107);
}

#[test]
fn a_reorganisation_is_taken_back() {
    let folder = TestFolder::new("index-reorganised");
    let all = chain();
    let headers = folder.write("headers.rlp", all.concat());
    let (index, _) = build(&folder, &headers, &[]);
    let hash = |headers: &[Vec<u8>], index: usize| keccak256(&headers[index]);
    // This branch replaces the chain from position 8,400 on, and is one block longer.
    let fork = 8_400;
    let other = made_up(START + fork as u64, 101, hash(&all, fork - 1), 1);
    let branch = folder.write("branch.rlp", [&all[fork - 20..fork], &other].concat().concat());
    let (_, summary) = lines_of(&["eth", "index", "build", &index, &branch], YES);
    assert_eq!((&summary["removed_blocks"], &summary["added"]), (&json!(100), &json!(101)));
    let removed = summary["removed"].as_array().expect("a list");
    assert_eq!(removed.len(), 100);
    for (at, removed) in (fork..).zip(removed) {
        let expected = json!({ "number": START + at as u64, "hash": hash(&all, at) });
        assert_eq!(*removed, expected);
    }
    assert_eq!(summary["last_hash"], json!(hash(&other, 100)));
    let now = [&all[..fork], &other].concat().concat();
    let now = folder.write("now.rlp", now);
    same_as_scan(&index, &now, &["--address", &every(7).to_string()]);
    assert_eq!(json_of(&["eth", "index", "verify", &index, &now], YES)["valid"], true);
    let old = json_of(&["eth", "index", "verify", &index, &headers], WRONG);
    let words = format!("block {}", START + fork as u64);
    assert!(text(&old["error"]).contains(&words), "{old}");
    // The branch starts at its first new block, whose parent is in the index.
    let again = made_up(START + fork as u64, 2, hash(&all, fork - 1), 2);
    let (_, summary) = lines_of(
        &["eth", "index", "build", &index, &folder.write("short.rlp", again.concat())],
        YES,
    );
    assert_eq!((&summary["removed_blocks"], &summary["added"]), (&json!(101), &json!(2)));
    let page = run(&["eth", "index", "build", &index, &branch]).stdout;
    assert!(page.contains(&format!("removed  9400         {}", hash(&again, 0))), "{page}");
    assert!(page.contains("2 blocks of another branch"), "{page}");
}

#[test]
fn a_reorganisation_that_reaches_too_far_changes_nothing() {
    let folder = TestFolder::new("index-too-deep");
    let all = chain();
    let headers = folder.write("headers.rlp", all.concat());
    let (index, _) = build(&folder, &headers, &[]);
    let before = json_of(&["eth", "index", "info", &index], YES);
    let refused = |headers: &[Vec<u8>], words: &[&str]| {
        let branch = folder.write("branch.rlp", headers.concat());
        fails(&["eth", "index", "build", &index, &branch], b"", BAD_INPUT, words);
        let info = json_of(&["eth", "index", "info", &index], YES);
        assert_eq!(info["last_hash"], before["last_hash"]);
    };
    // This branch starts before the last sealed block. The branch is given with and without the
    // headers that it shares with the index.
    let deep = made_up(START + 8_000, 520, keccak256(&all[7_999]), 1);
    refused(&deep, &["blocks up to 9191 are sealed", "rebuild the index"]);
    refused(&deep[300..], &["the headers begin at block 9300", "the branches part"]);
    let unsealed = made_up(START + 8_300, 400, B256::repeat_byte(9), 1);
    refused(&unsealed, &["the headers begin at block 9300", "the branches part"]);
    // An index with a deeper unsealed tail accepts the same branch.
    let deeper = folder.file("deeper");
    let args = ["eth", "index", "build", &deeper, &headers, "--confirmations", "1000"];
    assert_eq!(lines_of(&args, YES).1["sealed_sections"], 0);
    let branch = folder.write("branch.rlp", deep.concat());
    let (_, summary) =
        lines_of(&["eth", "index", "build", &deeper, &branch, "--confirmations", "1000"], YES);
    assert_eq!((&summary["removed_blocks"], &summary["added"]), (&json!(500), &json!(520)));
}
