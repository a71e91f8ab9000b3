//! Tests of `eth follow` with readers that go away, and with changed cursor files.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn args<'a>(url: &'a str, state: &'a TempFile) -> Vec<&'a str> {
    let mut args = vec!["eth", "follow", "--rpc", url, "--from", "17686111", "--once", "--json"];
    args.extend(["--retries", "1", "--poll", "0.05", "--cursor", state.path()]);
    args
}

/// Returns the chain with both blocks replaced by others that have the same receipts.
fn replaced() -> Chain {
    let mut chain = Chain::real_and(0);
    let first = chain::with_field(&chain.blocks[0], 12, b"replaced");
    let parent = bytes(&json!(first.hash));
    chain.blocks[1] = chain::with_field(&chain.blocks[1], 0, &parent);
    chain.blocks[0] = first;
    chain
}

/// A reader that closes the pipe in the middle of a block has seen some logs of this block. If the
/// block leaves the chain, those logs must be withdrawn.
#[test]
fn what_a_reader_saw_who_went_away_is_taken_back() {
    let state = TempFile::absent("reader-gone.json");
    let _lock = TempFile::absent("reader-gone.json.lock");
    let server = honest(Chain::real_and(0));
    let url = server.url();
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(args(&url, &state))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::with_capacity(512, child.stdout.take().expect("piped")).lines();
    let seen = loop {
        let line = lines.next().expect("logs come").expect("text");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["logIndex"].is_string() {
            break line;
        }
    };
    drop(lines);
    child.wait().expect("it ends");
    let other = honest(replaced());
    let url = other.url();
    let output = discreet(&args(&url, &state)).exits(YES);
    let lines = output.lines();
    let is_removal = |line: &&Value| {
        line["removed"] == true
            && line["blockHash"] == seen["blockHash"]
            && line["logIndex"] == seen["logIndex"]
    };
    assert_eq!(lines.iter().filter(is_removal).count(), 1);
    // The final state of each log: exactly the logs on the chain remain.
    let logs = lines.iter().filter(|line| line["logIndex"].is_string());
    let key = |log: &Value| (text(&log["blockHash"]).to_owned(), text(&log["logIndex"]).to_owned());
    let last: HashMap<_, _> = logs.map(|log| (key(log), log["removed"] == true)).collect();
    let mut kept: Vec<_> = last.into_iter().filter(|(_, removed)| !removed).collect();
    kept.sort_unstable();
    let logs = replaced().blocks.iter().flat_map(Block::logs).collect::<Vec<_>>();
    let mut expected: Vec<_> = logs.iter().map(|log| (key(log), false)).collect();
    expected.sort_unstable();
    assert_eq!(kept, expected);
}

/// A cursor file that is cut off at any position is refused, and stays unchanged.
#[test]
fn a_file_that_is_cut_off_is_refused() {
    let state = TempFile::absent("cut-off.json");
    let _lock = TempFile::absent("cut-off.json.lock");
    let server = honest(Chain::real_and(2));
    let url = server.url();
    let run = || discreet(&[&args(&url, &state)[..], &QUERY].concat());
    assert_eq!(run().code, YES);
    let whole = state.read();
    for end in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        fs::write(&state.0, &whole[..end]).expect("written");
        let output = run();
        assert_eq!(output.code, BAD_INPUT, "{end}: {}", output.stdout);
        assert_eq!((output.stdout.as_str(), state.read().as_str()), ("", &whole[..end]));
        assert!(output.stderr.contains("cursor, "), "{end}: {}", output.stderr);
    }
    fs::write(&state.0, &whole).expect("written");
    assert_eq!(run().code, YES);
}

/// The start block is stored before the first line is printed. This also applies if the start is a
/// tag, or if lines wait for confirmations. Later runs use the stored block, however far the head
/// has moved.
#[test]
fn a_start_is_kept_before_anything_is_printed() {
    // The second real block and twelve empty blocks come after the start.
    const LATER: usize = 13;
    for tag in ["", "latest", "safe", "finalized", "0x10dde5f"] {
        let state = TempFile::absent("start.json");
        let _lock = TempFile::absent("start.json.lock");
        let query = match tag {
            "" => TempFile::new("start-query.json", "{}"),
            tag => TempFile::new("start-query.json", json!({ "fromBlock": tag }).to_string()),
        };
        let later = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&later);
        let server = Server::start(move |post| {
            let mut chain = Chain::real_and(LATER - 1);
            chain.blocks.truncate(1 + counted.load(Ordering::SeqCst));
            chain.finalized = chain.last().number;
            Sent::Json(replies(&post.body, |method, params| chain.answer(method, params)))
        });
        let url = server.url();
        let mut args = vec!["eth", "follow", "--rpc", &url, "--json", "--cursor", state.path()];
        args.extend(["--retries", "1", "--poll", "0.05", "--query", query.path()]);
        args.extend(["--confirmations", "12"]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
            .args(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first: Value =
            serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(lines.next().is_none());
        later.store(LATER, Ordering::SeqCst);
        let output = discreet(&[&args[..], &["--once"]].concat());
        assert_eq!(output.code, YES, "{tag}: {}", output.stderr);
        let lines = output.lines();
        let from = &lines[0]["from"];
        assert!(from.is_u64(), "{}", lines[0]);
        assert_eq!(from, &first["from"], "{tag}");
        assert_eq!(*from, json!(17_686_111), "{tag}");
        let expected: usize = Block::both().iter().map(|block| block.logs().len()).sum();
        let logs = lines.iter().filter(|line| line["logIndex"].is_string()).count();
        assert_eq!(logs, expected, "{tag}");
    }
}

/// A cursor file is refused if the start block of the command line differs from that of the file,
/// or if the end block contradicts the file.
#[test]
fn another_start_than_that_of_the_file_is_refused() {
    let state = TempFile::absent("other-start.json");
    let _lock = TempFile::absent("other-start.json.lock");
    let server = honest(Chain::real_and(2));
    let url = server.url();
    assert_eq!(discreet(&args(&url, &state)).code, YES);
    let refused = |query: Value, words: &str| {
        let query = TempFile::new("other-start-query.json", query.to_string());
        let args = ["eth", "follow", "--rpc", &url, "--once", "--cursor", state.path(), "--query"];
        let output = discreet(&[&args[..], &[query.path()]].concat());
        assert_ne!(output.code, YES, "{}", output.stdout);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    };
    refused(json!({ "fromBlock": "0x10dde60" }), "--from is 17686112");
    refused(json!({ "toBlock": "finalized" }), "toBlock must be a number or latest");
}
