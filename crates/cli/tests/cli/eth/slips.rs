//! Inputs in which users easily make mistakes: ranges, fields, hashes and URLs. Also bytes that
//! control a terminal.

use super::*;

#[test]
fn a_block_hash_that_no_header_has_is_no_answer() {
    let headers = both_headers("at-hash.rlp");
    let [first, second] = Block::both();
    let query = |hash: &str| {
        let query = json!({ "blockHash": hash, "address": WETH });
        TempFile::new(&format!("at-{}.json", &hash[2..8]), query.to_string())
    };
    let other = B256::repeat_byte(0x11).to_string();
    let absent = query(&other);
    // Exit code 1 would claim that the block has no such log.
    let args = ["eth", "scan", headers.path(), "--anchor", &second.hash, "--query", absent.path()];
    fails(&args, b"", BAD_INPUT, &[&other, "none of the headers"]);
    // If the block is among the headers, the whole summary is about that block only.
    let present = query(&first.hash);
    let args = ["eth", "scan", headers.path(), "--anchor", &first.hash, "--query", present.path()];
    let lines = json_lines(&args, YES);
    assert_eq!(lines[0]["hash"], json!(first.hash));
    let summary = &lines[1];
    assert_eq!((&summary["blocks"], &summary["share"]), (&json!(1), &json!(1.0)));
    assert_eq!((&summary["last"], &summary["last_hash"]), (&summary["first"], &json!(first.hash)));
    assert_eq!(summary["fill"], json!(f64::from(first.bits_set()) / 2048.0));
    // The header after the anchor was not queried.
    assert_eq!(summary["warnings"], json!([]));
}

#[test]
fn ranges_that_end_before_they_begin() {
    let headers = both_headers("backwards.rlp");
    for command in ["scan", "forecast"] {
        let args = ["eth", command, headers.path(), "--address", WETH];
        let flags = [&args[..], &["--from", "17686112", "--to", "17686111"]].concat();
        fails(&flags, b"", USAGE, &["--from is a later block than --to"]);
    }
    let query = json!({ "fromBlock": "0x10dde60", "toBlock": "0x10dde5f" });
    let query = TempFile::new("backwards.json", query.to_string());
    let args = ["eth", "scan", headers.path(), "--query", query.path()];
    fails(&args, b"", BAD_INPUT, &["begins at block 17686112", "at 17686111"]);
}

#[test]
fn fields_that_a_node_would_pass_over() {
    let header = hex::encode(Block::read(FIRST).header);
    let request = json!({ "jsonrpc": "2.0", "method": "eth_getLogs", "params": [{}], "id": 1 });
    for (query, field) in [
        (json!({ "adress": WETH }), "adress"),
        (json!({ "jsonrpc": "2.0", "error": { "code": 1 } }), "error"),
        (request, "id"),
    ] {
        let file = TempFile::new("fields.json", query.to_string());
        let words = ["fields.json", "unknown field", field, "address, topics, fromBlock"];
        fails(&["eth", "scan", &header, "--query", file.path()], b"", BAD_INPUT, &words);
    }
    // The file contains a byte order mark and an object with all known fields.
    let query = json!({ "address": WETH, "topics": [], "fromBlock": "0x0", "toBlock": "latest" });
    let file = TempFile::new("known.json", format!("\u{feff}{query}"));
    let output = run(&["eth", "scan", &header, "--query", file.path()]);
    assert!(output.stderr.contains("the range begins at block 0"), "{}", output.stderr);
}

#[test]
fn more_threads_than_a_machine_has() {
    let header = hex::encode(Block::read(FIRST).header);
    for threads in ["0", "1025", "9999999999999"] {
        let args = ["eth", "scan", &header, "--address", WETH, "--threads", threads];
        fails(&args, b"", USAGE, &[threads, "1..=1024"]);
    }
    let args = ["eth", "scan", &header, "--address", WETH, "--threads", "1024"];
    assert_eq!(json_lines(&args, YES).len(), 2);
}

#[test]
fn nothing_steers_the_terminal() {
    let header = hex::encode(Block::read(FIRST).header);
    let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    // JSON allows unescaped C1 controls and bidirectional control characters.
    let reply = "{\"error\":\"\u{9b}31m\u{202e}\"}";
    let [reply, word] = [("reply.json", reply), ("word.json", "\u{1b}[2Jno")]
        .map(|(name, s)| TempFile::new(name, s));
    let flags = ["--chain", "1", "--address", WETH];
    for (args, shown) in [
        (["eth", "audit", &header, "--logs", reply.path()], "\\u{9b}31m\\u{202e}"),
        (["eth", "audit", &header, "--logs", word.path()], "not \"\\u{1b}\""),
        (["eth", "audit", "\u{1b}[31mred", "--logs", reply.path()], "\\u{1b}[31mred"),
    ] {
        let output = run(&[&args[..], &flags].concat());
        assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
        assert!(!output.stderr.contains(steers), "{:?}", output.stderr);
        assert!(output.stderr.contains(shown), "{:?}", output.stderr);
    }
}

#[test]
fn keys_in_urls_are_not_shown() {
    let header = hex::encode(Block::read(FIRST).header);
    let logs = TempFile::new("url.logs", "[]");
    let url = "https://user:word@node.example/v3/key";
    for (code, args) in [
        (BAD_INPUT, &["eth", "scan", url, "--address", WETH][..]),
        (USAGE, &["eth", "scan", &header, "--address", url]),
        (BAD_INPUT, &["eth", "scan", &header, "--query", url]),
        (BAD_INPUT, &["eth", "audit", &header, "--chain", "1", "--logs", url]),
        (
            BAD_INPUT,
            &["eth", "audit", &header, "--chain", "1", "--logs", logs.path(), "--receipts", url],
        ),
        (
            BAD_INPUT,
            &["eth", "audit", &header, "--chain", "1", "--logs", logs.path(), "--wanted", url],
        ),
    ] {
        let output = run(args);
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        for part in ["user", "word", "node.example", "key"] {
            assert!(!output.stderr.contains(part), "{args:?}: {}", output.stderr);
        }
    }
    let words = ["https://…", "only --rpc accepts a URL"];
    fails(&["eth", "scan", url, "--address", WETH], b"", BAD_INPUT, &words);
}

#[test]
fn headers_given_twice_are_named_rightly() {
    let headers = both_headers("twice.rlp");
    let [first, second] = Block::both();
    let args = ["eth", "scan", headers.path(), headers.path(), "--address", WETH];
    let output = run(&args);
    assert_eq!(output.code, BAD_INPUT);
    // The last header read is 17,686,112; it must not be reported as the parent of 17,686,111.
    let before = format!("block {} here is {}", first.number - 1, second.hash);
    assert!(!output.stderr.contains(&before), "{}", output.stderr);
    assert!(output.stderr.contains(&second.hash), "{}", output.stderr);
}

#[test]
fn certificates_of_what_is_not_proven_say_so() {
    let headers = both_headers("unproven.rlp");
    let logs = TempFile::new("unproven.logs", json!(answer()).to_string());
    let certificate = TempFile::absent("unproven.certificate");
    let [_, second] = Block::both().map(|block| block.hash);
    let mut args = vec!["eth", "audit", headers.path(), "--chain", "1", "--anchor", &second];
    args.extend(["--logs", logs.path(), "--certificate", certificate.path()]);
    args.extend(QUERY);
    let warned = |json: &Value, words: &str| {
        let warnings = json["warnings"].as_array().expect("warnings");
        warnings.iter().any(|warning| text(warning).contains(words))
    };
    let json = json_of(&args, UNDECIDED);
    assert_eq!(json["certificate"], certificate.path());
    assert!(warned(&json, "the answer in the certificate is not fully proven"), "{json}");
    // The command warns a verifier whose anchor is not the hash of any given header.
    let other = B256::repeat_byte(7).to_string();
    let mut args = vec!["eth", "verify-certificate", certificate.path(), "--chain", "1"];
    args.extend(["--headers", headers.path(), "--from", "17686111", "--to", "17686112"]);
    args.extend(QUERY);
    let verify = |anchor: &str| json_of(&[&args[..], &["--anchor", anchor]].concat(), UNDECIDED);
    assert!(warned(&verify(&other), "no header has the hash of an anchor"));
    assert!(!warned(&verify(&second), "no header has the hash of an anchor"));
}

#[test]
fn verdicts_count_logs_and_not_findings() {
    let headers = both_headers("counts.rlp");
    let [first, second] = Block::both();
    let receipts = TempFile::new("counts.receipts", first.receipts_rlp());
    let mut logs: Vec<_> =
        first.logs().into_iter().filter(|log| log["address"] == WETH.to_lowercase()).collect();
    // This log is not on the chain, and its address was not queried, so the log has two findings.
    logs[0]["address"] = json!("0x0000000000000000000000000000000000000001");
    // This log is genuine, but its block is outside the range.
    logs.push(second.logs().remove(0));
    let logs = TempFile::new("counts.logs", json!(logs).to_string());
    let mut args = vec!["eth", "audit", headers.path(), "--chain", "1", "--anchor", &second.hash];
    args.extend(["--logs", logs.path(), "--receipts", receipts.path()]);
    args.extend(["--address", WETH, "--to", "17686111"]);
    let page = run(&args);
    assert_eq!(page.code, WRONG, "the exit code of a wrong answer: {}", page.stderr);
    let verdict = page.stdout.lines().next().expect("a verdict");
    assert_eq!(verdict, "wrong: 1 log omitted, 2 logs wrong or not requested", "{}", page.stdout);
}

#[test]
fn siblings_are_told_from_strangers() {
    let [first, second] = Block::both();
    let mut sibling = second.header.clone();
    *sibling.last_mut().expect("bytes") ^= 1;
    let headers = [&first.header[..], &second.header, &sibling].concat();
    let file = TempFile::new("siblings.rlp", headers);
    let words = ["siblings.rlp", "a second block 17686112 with the same parent"];
    fails(&["eth", "scan", file.path(), "--address", WETH], b"", BAD_INPUT, &words);
}
