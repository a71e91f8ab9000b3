//! Tests of `serve-node` and `audit-node`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use chainsieve_conformance::serve::lies;
use serde_json::{Value, json};

use super::*;

/// The range of the built-in Ethereum blocks.
pub(crate) const RANGE: [&str; 4] = ["--from", "17686111", "--to", "17686112"];

/// A running `serve-node --json`, which is killed when the value is dropped.
struct Node {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The line `listening`.
    listening: Value,
}

impl Node {
    /// Starts a node, and reads its lines up to `listening`. Returns the lines before it too.
    fn start_after(options: &[&str]) -> (Self, Vec<Value>) {
        let mut child = binary()
            .args(["serve-node", "--json"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut node = Self { child, lines, listening: Value::Null };
        let mut before = Vec::new();
        loop {
            let line = node.line();
            if line["kind"] == "listening" {
                node.listening = line;
                return (node, before);
            }
            before.push(line);
        }
    }

    fn start(options: &[&str]) -> Self {
        let (node, before) = Self::start_after(options);
        assert!(before.is_empty(), "{before:?}");
        node
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn address(&self) -> &str {
        text(&self.listening["address"])
    }

    fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Ends the node as Ctrl-C does, and returns its last line.
    fn interrupt(mut self) -> Value {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill").success());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        assert_eq!(self.child.wait().expect("ended").code(), Some(YES));
        serde_json::from_str(rest.lines().last().expect("a line")).expect("JSON")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn audit_node(more: &[&str], code: i32) -> Value {
    json_of(&[&["audit-node"], more].concat(), code)
}

#[test]
fn the_list_names_each_lie() {
    let output = run(&["serve-node", "--list", "--json"]);
    assert_eq!(output.code, YES, "{}", output.stderr);
    let lines: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, listed) = lines.split_last().expect("lines");
    assert_eq!(last, &json!({ "kind": "summary", "lies": listed.len() }));
    for (line, lie) in listed.iter().zip(lies()) {
        assert_eq!((&line["kind"], &line["id"]), (&json!("lie"), &json!(lie.id)));
        assert!(!line["expected"]["verdict"].is_null() && !line["expected"]["by"].is_null());
    }
    let table = run(&["serve-node", "--list"]).stdout;
    assert!(lies().all(|lie| table.contains(lie.id) && table.contains(lie.title)));
}

#[test]
fn an_ethereum_node_is_served_and_audited() {
    let mut node = Node::start(&["--lie", "eth-log-invented"]);
    assert_eq!(node.listening["lie"]["expected"]["verdict"], "must-detect");
    let url = node.url();
    let report = audit_node(&[&["--ethereum", &url], &RANGE[..]].concat(), WRONG);
    assert_eq!((&report["status"], &report["blocks"]), (&json!("differs"), &json!(2)));
    assert_eq!(report["differences"][0]["rule"], "logs.node");
    assert_eq!(report["differences"][0]["what"], "a log does not belong to the answer");
    let told = node.line();
    assert!(told["kind"] == "told" && told["count"].as_u64() > Some(0), "{told}");

    // A node in front of the lying node hides its lie about receipts only.
    let upstream = Node::start(&["--lie", "eth-receipts-empty", "--upstream", &url]);
    assert_eq!(upstream.listening["upstream"], true);
    let report = audit_node(&[&["--ethereum", &upstream.url()], &RANGE[..]].concat(), WRONG);
    assert_eq!(report["differences"][0]["rule"], "receipts.root");
    let last = node.interrupt();
    assert_eq!(last["kind"], "summary");
    assert!(last["calls"].as_u64() > Some(0) && last["told"].as_u64() > Some(0), "{last}");

    let honest = Node::start(&["--ethereum"]);
    assert_eq!(honest.listening["lie"], Value::Null);
    let report = audit_node(&[&["--ethereum", &honest.url()], &RANGE[..]].concat(), YES);
    assert_eq!(report["status"], "agrees");
    // The last blocks, at a URL that stands in a file.
    let folder = Folder::new();
    folder.write("url", format!("{}\n", honest.url()));
    let of_file = ["--ethereum", &format!("@{}", folder.path("url")), "--last"];
    for (count, from) in [("1", 17_686_112), ("2", 17_686_111)] {
        let report = audit_node(&[&of_file[..], &[count]].concat(), YES);
        assert_eq!((&report["from"], &report["to"]), (&json!(from), &json!(17_686_112)));
    }
    assert_eq!(honest.interrupt()["told"], 0);
}

#[test]
fn a_bitcoin_node_is_served_and_audited() {
    let peer = |node: &Node| node.address().to_owned();
    let of_regtest = ["--network", "regtest", "--from", "0", "--to", "140", "--bitcoin-p2p"];
    let honest = Node::start(&["--bitcoin"]);
    let scripts = honest.listening["scripts"].as_array().expect("scripts").clone();
    assert_eq!((scripts.len(), &honest.listening["blocks"]), (4, &json!(141)));
    let report = audit_node(&[&of_regtest[..], &[&peer(&honest)]].concat(), YES);
    assert_eq!(report["checks"]["bip158.basic"], 141);
    assert_eq!(honest.interrupt()["connections"], 1);

    let liar = Node::start(&["--lie", "btc-filter-hides-spends"]);
    let report = audit_node(&[&of_regtest[..], &[&peer(&liar)]].concat(), WRONG);
    let [difference] = report["differences"].as_array().expect("a list").as_slice() else {
        panic!("{report}");
    };
    // The first block that spends an output of a script that it does not pay to again.
    assert_eq!((&difference["rule"], &difference["block"]), (&json!("bip158.basic"), &json!(105)));
}

#[test]
fn a_folder_of_blocks_is_served_with_a_lie() {
    let folder = Folder::new();
    let rows = fixture("mainnet_0-255.json");
    let block = |height: usize| text(&rows[height]["block"]).to_owned();
    // The parents of these blocks are in files with later names.
    folder.write("1.hex", (101..=200).map(block).collect::<Vec<_>>().join("\n"));
    folder.write("2", hex::decode(block(1) + &block(2)).expect("hex"));
    let documents: Vec<_> = (3..=100).map(|height| json!({ "block": block(height) })).collect();
    folder.write("3.json", json!(documents).to_string());
    folder.write("cut", [1, 2, 3]);
    for hidden in [".hidden", "4.tmp", "5.part"] {
        folder.write(hidden, "not a block");
    }
    let path = folder.path("");
    let options = ["--lie", "btc-filter-damaged", "--blocks", &path, "--network", "mainnet"];
    let (node, before) = Node::start_after(&options);
    let [warning] = before.as_slice() else { panic!("{before:?}") };
    assert!(text(&warning["text"]).contains("cut"), "{warning}");
    assert_eq!((&node.listening["blocks"], &node.listening["scripts"]), (&json!(201), &json!([])));
    let args = ["--bitcoin-p2p", node.address(), "--network", "mainnet", "--from", "0", "--to"];
    let report = audit_node(&[&args[..], &["200"]].concat(), WRONG);
    assert_eq!(report["differences"][0]["rule"], "bip158.basic");
}

#[test]
fn the_properties_of_a_chain_can_be_stated() {
    let honest = Node::start(&["--ethereum"]);
    let url = honest.url();
    let audit =
        |more: &[&str], code| audit_node(&[&["--ethereum", &url], &RANGE[..], more].concat(), code);
    let every = ["--assume-bloom", "exact", "--assume-receipts", "every-log"];
    assert_eq!(audit(&every, YES)["status"], "agrees");
    let report = audit(&["--assume-bloom", "absent"], UNDECIDED);
    assert!(report["checks"]["logsbloom.build"].is_null() && report["undecided"] == 2, "{report}");
    let note = "filters of logs are not compared: stated by the caller";
    assert_eq!(report["notes"], json!([note]));
}

/// Each cause is named once.
#[test]
fn failures_to_connect_are_explained() {
    let used = Node::start(&["--bitcoin"]);
    for protocol in ["--bitcoin", "--ethereum"] {
        let serve = ["serve-node", protocol, "--listen", used.address()];
        let output = run(&serve);
        assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
        for words in ["cannot listen", "os error"] {
            assert_eq!(output.stderr.matches(words).count(), 1, "{}", output.stderr);
        }
    }
    let audit = ["audit-node", "--network", "regtest", "--bitcoin-p2p"];
    let output = run(&[&audit[..], &["127.0.0.1:1", "--from", "0", "--to", "1"]].concat());
    assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
    assert_eq!(output.stderr.matches("os error").count(), 1, "{}", output.stderr);
}

#[test]
fn the_help_has_the_exit_code_of_an_early_end() {
    let help = run(&["audit-node", "--help"]).stdout;
    let line = help.lines().find(|line| line.trim_start().starts_with("3  ")).expect("code 3");
    assert!(line.contains("also if the audit could not go on after that"), "{line}");
}

#[test]
fn mistakes_are_explained() {
    let serve = ["serve-node"];
    for (options, words) in [
        (&["--lie", "btc-nothing"][..], "no lie has this id"),
        (&["--lie", "btc-stall", "--ethereum"], "the other protocol"),
        (&["--lie", "eth-slow", "--bitcoin"], "the other protocol"),
        (&["--bitcoin", "--listen", "0.0.0.0:0"], "this machine only"),
        (&["--bitcoin", "--ethereum"], "cannot be used with"),
        (&["--bitcoin", "--blocks", "."], "--network"),
        (&["--list", "--bitcoin"], "cannot be used with"),
        (&[], "--list"),
    ] {
        fails(&[&serve[..], options].concat(), USAGE, &[words]);
    }
    let audit = ["audit-node"];
    let of_no_file = ["--ethereum", "@/nowhere", "--last", "2"];
    fails(&[&audit[..], &of_no_file].concat(), BAD_INPUT, &["a file with the URL"]);
    for (options, words) in [
        (&["--bitcoin-p2p", "[::1]:1", "--from", "0", "--to", "1"][..], "--network"),
        (&["--ethereum", "ws://host", "--from", "0", "--to", "1"], "a WebSocket URL"),
        (&["--ethereum", "http://host", "--from", "2", "--to", "1"], "--from is after --to"),
        (&["--ethereum", "http://host"], "--last"),
        (&["--ethereum", "http://host", "--from", "2"], "--to"),
        (&["--ethereum", "http://host", "--last", "2", "--to", "1"], "cannot be used with"),
        (
            &[
                "--bitcoin-rpc",
                "http://host",
                "--assume-bloom",
                "exact",
                "--from",
                "0",
                "--to",
                "1",
            ],
            "--ethereum",
        ),
        (
            &["--bitcoin-rpc", "http://[::1]:1", "--user", "u", "--from", "0", "--to", "1"],
            "--password-file",
        ),
        (
            &["--ethereum", "http://[::1]:1", "--cookie", ".", "--from", "0", "--to", "1"],
            "cannot be used with '--cookie",
        ),
        (
            &["--ethereum", "http://[::1]:1", "--user", "u", "--from", "0", "--to", "1"],
            "cannot be used with '--user",
        ),
        (
            &["--ethereum", "http://[::1]:1", "--password-file", ".", "--from", "0", "--to", "1"],
            "cannot be used with '--password-file",
        ),
        (
            &["--ethereum", "http://[::1]:1", "--network", "regtest", "--from", "0", "--to", "1"],
            "cannot be used with '--network",
        ),
        (
            &[
                "--bitcoin-rpc",
                "http://[::1]:1",
                "--assume-receipts",
                "every-log",
                "--from",
                "0",
                "--to",
                "1",
            ],
            "cannot be used with '--assume-receipts",
        ),
    ] {
        fails(&[&audit[..], options].concat(), USAGE, &[words]);
    }
    // Neither the URL nor the password is shown.
    let password = TempFile::new("password", "S3CRET:/@");
    let secret = ["--bitcoin-rpc", "http://127.0.0.1:1/S3CRET-path-of-a-url", "--retries", "0"];
    let more =
        ["--user", "S3CRET-user", "--password-file", password.path(), "--from", "0", "--to", "1"];
    let output = run(&[&audit[..], &secret, &more].concat());
    assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
    assert!(!output.stderr.contains("S3CRET"), "{}", output.stderr);
}
