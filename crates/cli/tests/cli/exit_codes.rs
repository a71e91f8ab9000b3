//! A table of every command, with its exit code for each kind of input, and what it writes to
//! standard output and to standard error. The commands are read from the help, so the test fails
//! for a new command that has no rows.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve_client::peers::frame::{read_message, write_message};
use testkit::eth::beacon_server::Quirk;
use testkit::pages::root;

use super::cf::{BLOCK_757753, GOLDEN, KEY, MAINNET};
use super::eth::anchor;
use super::eth::{Block, QUERY, WETH, answer, rpc, write};
use super::test_node::{Folder as Blocks, Server as Peer};
use super::*;
use testkit::TestFolder;

/// Commands that print line by line. All other commands print one document.
const LINES: [&str; 10] = [
    "btc cf build",
    "btc cf scan",
    "btc test-node",
    "btc watch",
    "eth scan",
    "eth follow",
    "eth serve",
    "eth index build",
    "eth index query",
    "filter test",
];
/// Commands that read no input but their command line.
const NO_INPUT: [&str; 2] = ["demo", "completions"];
/// A timeout far longer than any command takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// The kind of input that a row tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Good input. The command also runs with a closed pipe as standard output.
    Good,
    /// Malformed input, or a file that cannot be read or written.
    Bad,
    /// Nothing matches.
    Empty,
    /// Nobody listens at the address of the peer or the provider.
    Unreachable,
    /// An invalid command line.
    Slip,
    /// Something is proven wrong.
    Wrong,
    /// The evidence does not decide the question.
    Undecided,
}
use About::{Bad, Empty, Good, Slip, Undecided, Unreachable, Wrong};

/// The output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prints {
    /// A result, on standard output.
    Result,
    /// An error, on standard error; nothing on standard output.
    Error,
}

#[derive(Debug)]
struct Row {
    command: &'static str,
    about: About,
    code: i32,
    prints: Prints,
    /// Arguments; `{new}` is replaced by a path that does not exist yet, and `{index}` by a new
    /// copy of the index.
    args: Vec<String>,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    fn row(&mut self, command: &'static str, about: About, code: i32, args: &[&str]) {
        let prints =
            if code == USAGE || code == BAD_INPUT { Prints::Error } else { Prints::Result };
        self.printing(command, about, code, prints, args);
    }

    fn printing(
        &mut self,
        command: &'static str,
        about: About,
        code: i32,
        prints: Prints,
        args: &[&str],
    ) {
        let args = args.iter().map(ToString::to_string).collect();
        self.0.push(Row { command, about, code, prints, args });
    }
}

/// The files, the peer and the provider of the rows.
struct Scene {
    folder: TestFolder,
    blocks: Blocks,
    peer: Peer,
    /// A peer that offers none of the services that the commands need.
    poor: Peer,
    /// A peer that claims an empty filter for every block after the genesis block.
    liar: SocketAddr,
    provider: rpc::server::Server,
    /// An index of one block.
    index: String,
    /// An address where nobody listens.
    nobody: String,
    number: AtomicU32,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = TestFolder::new(name);
        let first = folder.write("first.rlp", Block::both()[0].header.clone());
        let index = folder.file("index");
        assert_eq!(run(&["eth", "index", "build", &index, &first]).code, YES);
        let blocks = Blocks::new(0..=20);
        let peer = Peer::start(&blocks, &[]);
        Self {
            liar: with_empty_filters(peer.address),
            peer,
            poor: Peer::start(&blocks, &["--no-bip157"]),
            provider: rpc::honest_provider(),
            nobody: free_address().to_string(),
            number: AtomicU32::new(0),
            folder,
            blocks,
            index,
        }
    }

    /// Returns the path of a new file or folder.
    fn fresh(&self) -> String {
        self.folder.file(&format!("new-{}", self.number.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the arguments of a row, with new paths in place of `{new}` and `{index}`.
    fn args(&self, row: &Row) -> Vec<String> {
        let place = |arg: &String| match arg.as_str() {
            "{new}" => self.fresh(),
            "{index}" => {
                let copy = self.fresh();
                fs::create_dir(&copy).expect("a folder");
                for file in fs::read_dir(&self.index).expect("an index") {
                    let file = file.expect("an entry");
                    fs::copy(file.path(), PathBuf::from(&copy).join(file.file_name()))
                        .expect("copied");
                }
                copy
            }
            _ => arg.clone(),
        };
        row.command.split(' ').map(String::from).chain(row.args.iter().map(place)).collect()
    }
}

/// Returns an address on loopback that nobody listens at.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// The destination of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Reads,
    /// The reader has closed the pipe.
    Gone,
}

/// Runs a row.
fn printed(scene: &Scene, row: &Row, json: bool, reader: Reader) -> Output {
    let mut args = scene.args(row);
    let is_server = ["btc test-node", "eth serve"].contains(&row.command) && row.about == Good;
    let address = free_address();
    if is_server {
        args.extend(["--listen".into(), address.to_string()]);
    }
    if json {
        args.push("--json".into());
    }
    let stdout = match reader {
        Reader::Reads => Stdio::piped(),
        Reader::Gone => Stdio::from(io::pipe().expect("a pipe").1),
    };
    let mut child = binary()
        .args(&args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    if is_server {
        end_when_it_listens(&mut child, address);
    }
    let mut stderr = child.stderr.take().expect("piped");
    let stderr = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout).expect("text");
    }
    let code = ended(&mut child).code().expect("no signal");
    let stderr = stderr.join().expect("no panic").expect("text");
    Output { code, stdout, stderr }
}

fn end_when_it_listens(child: &mut Child, address: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline && child.try_wait().is_ok_and(|status| status.is_none()));
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-s", "TERM", &id]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

/// Waits until a command has ended; kills it if that takes too long.
fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > deadline {
            drop(child.kill());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a row as text, as JSON and with a closed pipe. Returns a description of each failure.
fn wrong_with(scene: &Scene, row: &Row) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, is: bool, output: &Output| {
        if !is {
            let Output { code, stdout, stderr } = output;
            found.push(format!("{row:?}\n{what}\n{code}\n{stdout}---\n{stderr}"));
        }
    };
    let has_error = |output: &Output| output.stderr.lines().any(|line| line.starts_with("error: "));
    let plain = printed(scene, row, false, Reader::Reads);
    let json = printed(scene, row, true, Reader::Reads);
    for output in [&plain, &json] {
        check("exit code", output.code == row.code, output);
        check("panic", !output.stderr.contains("panicked"), output);
        let is_error = row.prints == Prints::Error;
        check("an error if and only if the row expects one", has_error(output) == is_error, output);
        check("standard output", output.stdout.is_empty() == is_error, output);
        let marks = ["error: ", "warning: ", "note: "];
        let is_pure = |line: &str| !marks.iter().any(|mark| line.starts_with(mark));
        check("results only on standard output", output.stdout.lines().all(is_pure), output);
    }
    check("no warning beside JSON", !json.stderr.contains("warning: "), &json);
    if row.prints == Prints::Result {
        match parsed(row.command, &json.stdout) {
            Err(error) => check(&error, false, &json),
            Ok(last) => {
                let warnings = last["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
                for warning in warnings.iter().map(text) {
                    check("the warnings on standard error", plain.stderr.contains(warning), &plain);
                }
            }
        }
    }
    if row.about == Good {
        for json in [false, true] {
            let closed = printed(scene, row, json, Reader::Gone);
            check("exit code with a closed pipe", closed.code == row.code, &closed);
            check("a closed pipe is no error", !has_error(&closed), &closed);
        }
    }
    found
}

/// Returns what `docs/json.md` says of a command: its part, the parts of other commands that this one
/// refers to, and what is common to all commands.
fn json_page(command: &str) -> String {
    let page = fs::read_to_string(root().join("docs/json.md")).expect("a page");
    let (common, _) = page.split_once("\n## ").expect("parts");
    let parts: Vec<(&str, &str)> =
        page.split("\n### ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    let mut found = common.to_owned();
    let mut names = vec![command];
    for at in 0.. {
        let Some(name) = names.get(at) else { break };
        let part = parts.iter().find(|(title, _)| title == name);
        let (_, text) = part.unwrap_or_else(|| panic!("docs/json.md lacks {name}"));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let others = parts.iter().map(|(title, _)| *title);
        let others = others.filter(|other| words.contains(&format!("`{other}`")));
        names.extend(others.filter(|other| !names.contains(other)).collect::<Vec<_>>());
        found += text;
    }
    found
}

/// Returns the members of a value that a page does not name. Names in the maps of arguments and parameters are
/// not those of the command.
fn unnamed<'a>(value: &'a Value, page: &BTreeSet<&str>, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| unnamed(value, page, found)),
        Value::Object(members) => {
            for (name, value) in members {
                if !page.contains(name.as_str()) {
                    found.insert(name);
                }
                if !["arguments", "parameters"].contains(&name.as_str()) {
                    unnamed(value, page, found);
                }
            }
        }
        _ => {}
    }
}

/// Parses what a command prints with `--json`. Returns the document, or the last of several lines.
fn parsed(command: &str, stdout: &str) -> Result<Value, String> {
    let page = json_page(command);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = page.split(|c| !is_part(c)).collect();
    let value = |text: &str| {
        let value = serde_json::from_str::<Value>(text).map_err(|error| error.to_string())?;
        let mut found = BTreeSet::new();
        unnamed(&value, &words, &mut found);
        let found = Vec::from_iter(found).join(", ");
        if found.is_empty() {
            Ok(value)
        } else {
            Err(format!("docs/json.md does not name {found}"))
        }
    };
    if !LINES.contains(&command) {
        return value(stdout);
    }
    let mut kinds = Vec::new();
    let mut last = Value::Null;
    for line in stdout.lines() {
        last = value(line)?;
        let first = last.as_object().and_then(|line| line.iter().next());
        let Some((_, kind)) = first.filter(|(name, _)| *name == "kind") else {
            return Err(format!("a line without a kind: {line}"));
        };
        let kind = text(kind).to_owned();
        if !page.contains(&format!("**{kind}**")) {
            return Err(format!("docs/json.md does not name lines of kind {kind}"));
        }
        kinds.push(kind);
    }
    match kinds.split_last() {
        Some((last_kind, rest)) if last_kind == "summary" && !rest.contains(last_kind) => Ok(last),
        _ => Err(format!("expected one summary, at the end: {kinds:?}")),
    }
}

/// Returns the commands that have no subcommands, as the help lists them.
fn leaves(names: &[String]) -> Vec<String> {
    let args: Vec<&str> = names.iter().map(String::as_str).chain(["-h"]).collect();
    let help = run(&args).stdout;
    let Some((_, commands)) = help.split_once("\nCommands:\n") else {
        return vec![names.join(" ")];
    };
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names_of = commands.filter_map(|line| line.split_whitespace().next());
    let below = names_of.filter(|name| *name != "help").map(|name| {
        let mut names = names.to_vec();
        names.push(name.to_owned());
        leaves(&names)
    });
    below.flatten().collect()
}

#[test]
fn every_command_has_its_rows() {
    let scene = Scene::new("exit-codes-rows");
    let table = table(&scene);
    let leaves = leaves(&[]);
    assert!(leaves.len() >= 28, "{leaves:?}");
    for row in &table.0 {
        assert!(leaves.iter().any(|leaf| leaf == row.command), "no such command: {row:?}");
    }
    let mut promises = 0;
    for leaf in &leaves {
        let has =
            |about: About| table.0.iter().any(|row| row.command == leaf && row.about == about);
        let help = run(&[&leaf.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat()).stdout;
        json_page(leaf);
        assert!(has(Good) && has(Slip), "{leaf}");
        assert!(has(Bad) || NO_INPUT.contains(&leaf.as_str()), "{leaf}");
        let calls = help.contains("-rpc <") || help.contains("--peer <");
        assert_eq!(has(Unreachable), calls, "{leaf}");
        // Each exit code that the help mentions must occur in a row.
        let codes = promised_codes(&help);
        for (code, about) in [("1", Empty), ("3", Wrong), ("4", Undecided)] {
            let is_promised = codes.iter().any(|promised| promised == code);
            assert!(!is_promised || has(about), "{leaf}: {about:?}");
            promises += usize::from(is_promised);
        }
    }
    assert!(promises >= 20, "{promises} promised exit codes in all help texts");
}

/// Returns the exit codes in a help text: in paragraphs about exit codes, the numbers after `Exit
/// codes:`, `Exit code` or `·`, and the numbers at the start of a line.
fn promised_codes(help: &str) -> Vec<String> {
    let mut codes = Vec::new();
    let mut is_about_codes = false;
    for line in help.lines() {
        is_about_codes = !line.trim().is_empty() && (is_about_codes || line.contains("xit code"));
        if is_about_codes {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_code = |at: &usize| {
                let before = at.checked_sub(1).and_then(|before| words.get(before));
                let stands = before.is_none_or(|it| ["codes:", "code", "·"].contains(it));
                let after = words.get(at + 1).and_then(|word| word.chars().next());
                stands && after.is_some_and(|it| it.is_alphabetic() || it == '-')
            };
            let digits = |at: &usize| ["0", "1", "2", "3", "4", "5"].contains(&words[*at]);
            let found = (0..words.len()).filter(digits).filter(is_code);
            codes.extend(found.map(|at| words[at].to_owned()));
        }
    }
    codes
}

#[test]
fn exit_codes_and_streams() {
    let scene = Scene::new("exit-codes");
    let table = table(&scene);
    let found: Vec<String> = table.0.iter().flat_map(|row| wrong_with(&scene, row)).collect();
    assert!(found.is_empty(), "{}\n{} in all", found.join("\n\n"), found.len());
}

/// Returns the rows of every command.
fn table(scene: &Scene) -> Table {
    let mut table = Table::default();
    bloom_and_proofs(scene, &mut table);
    compact_filters(scene, &mut table);
    peers(scene, &mut table);
    anchors(scene, &mut table);
    logs(scene, &mut table);
    headers(scene, &mut table);
    indexes(scene, &mut table);
    filters(scene, &mut table);
    others(scene, &mut table);
    table
}

const ADDRESS: &str = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
const EVERYTHING: &str = "00010000000000000001";
const NOTHING: &str = "0100010000000000000000";
/// A hash that is not the hash of any block.
const STRANGER: &str = "0x0707070707070707070707070707070707070707070707070707070707070707";

fn bloom_and_proofs(scene: &Scene, table: &mut Table) {
    table.row("btc bloom new", Good, YES, &["--tweak", "7", ADDRESS]);
    table.row("btc bloom new", Bad, BAD_INPUT, &["--tweak", "7", "nonsense"]);
    table.row("btc bloom new", Slip, USAGE, &["--fpr", "2", "data:00"]);
    table.row("btc bloom info", Good, YES, &["03614e9b0500000000000000817f"]);
    table.row("btc bloom info", Bad, BAD_INPUT, &["zz"]);
    table.row("btc bloom info", Empty, NO, &["0100330000000000000001"]);
    table.row("btc bloom info", Slip, USAGE, &[]);

    let block = scene.folder.write("block.hex", block_757753());
    table.row("btc match", Good, YES, &[EVERYTHING, &block]);
    table.row("btc match", Bad, BAD_INPUT, &[EVERYTHING, "00"]);
    table.row("btc match", Empty, NO, &[NOTHING, &block]);
    table.row("btc match", Slip, USAGE, &[EVERYTHING]);

    let (proof, _) = merkle_block(&block_757753(), &[18]);
    let proof = proof.as_str();
    let stranger = fixture("bip37_vectors.json")["transactions"]["funding"]["hex"].clone();
    table.row("btc prove verify", Good, YES, &[proof]);
    table.row("btc prove verify", Bad, BAD_INPUT, &["00"]);
    table.row("btc prove verify", Empty, NO, &[proof, text(&stranger)]);
    table.row("btc prove verify", Wrong, WRONG, &[proof, "--block-hash", &"00".repeat(32)]);
    table.row("btc prove verify", Slip, USAGE, &[]);
}

fn compact_filters(scene: &Scene, table: &mut Table) {
    let none = scene.folder.write("none.json", "[]");
    table.row("btc cf build", Good, YES, &[MAINNET, "--out", "{new}"]);
    table.row("btc cf build", Bad, BAD_INPUT, &[&none]);
    table.row("btc cf build", Slip, USAGE, &[MAINNET, "--append"]);

    let rows = fixture("mainnet_0-255.json");
    let header =
        |height: usize, of: usize| format!("{height}:{}", text(&rows[of]["filter_header"]));
    let (right, false_one, beyond) = (header(255, 255), header(255, 254), header(999, 255));
    let mut damaged = fs::read(GOLDEN).expect("a fixture");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let damaged = scene.folder.write("damaged.cbf", damaged);
    let unpaid = "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu";
    table.row("btc cf scan", Good, YES, &[GOLDEN, KEY]);
    table.row("btc cf scan", Bad, BAD_INPUT, &["/nonexistent.cbf", KEY]);
    table.printing("btc cf scan", Bad, BAD_INPUT, Prints::Result, &[&damaged, KEY]);
    table.row("btc cf scan", Empty, NO, &[GOLDEN, unpaid]);
    let args = [GOLDEN, KEY, "--header", &false_one];
    table.printing("btc cf scan", Wrong, WRONG, Prints::Error, &args);
    table.row("btc cf scan", Undecided, UNDECIDED, &[GOLDEN, KEY, "--header", &beyond]);
    table.row("btc cf scan", Slip, USAGE, &[GOLDEN]);

    let filter_of = |height: u32| {
        let fixture = fixture(&format!("blocks/mainnet_{height}.json"));
        text(&fixture["basic_filter"]).to_owned()
    };
    let (own, other) = (filter_of(757_753), filter_of(255_018));
    table.row("btc cf audit", Good, YES, &[&own, BLOCK_757753]);
    table.row("btc cf audit", Bad, BAD_INPUT, &[&own, "00"]);
    table.row("btc cf audit", Wrong, WRONG, &[&other, BLOCK_757753, "--proof-out", "{new}"]);
    table.row("btc cf audit", Undecided, UNDECIDED, &[&own, BLOCK_757753, "--distrust-prevouts"]);
    table.row("btc cf audit", Slip, USAGE, &[&own, "--distrust-prevouts"]);

    let proof = scene.fresh();
    let audit = ["btc", "cf", "audit", &other, BLOCK_757753, "--distrust-prevouts", "--proof-out"];
    assert_eq!(run(&[&audit[..], &[&proof]].concat()).code, WRONG);
    table.row("btc cf audit", Good, YES, &["--proof", &proof]);
    table.row("btc cf audit", Bad, BAD_INPUT, &["--proof", "00"]);
    // Without a block, a filter is no proof: a script with an empty variable gets a usage error.
    table.row("btc cf audit", Slip, USAGE, &[&proof]);
    table.row("btc cf audit", Wrong, WRONG, &["--proof", &proof, "--block-hash", &"00".repeat(32)]);
    table.row("btc cf audit", Slip, USAGE, &[]);

    let (verify, header) = ("btc cf verify-headers", "--header");
    table.row(verify, Good, YES, &[GOLDEN]);
    table.row(verify, Bad, BAD_INPUT, &["/nonexistent.cbf"]);
    table.printing(verify, Bad, BAD_INPUT, Prints::Result, &[&damaged]);
    table.row(verify, Wrong, WRONG, &[GOLDEN, header, &false_one]);
    table.row(verify, Undecided, UNDECIDED, &[GOLDEN, header, &right, header, &beyond]);
    table.row(verify, Slip, USAGE, &[]);
}

/// Starts a peer in front of another one that replaces all filters but that of the genesis block by
/// filters of no element. Returns its address.
fn with_empty_filters(node: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut node = TcpStream::connect(node).expect("it listens");
            let (mut from, mut to) = (client.try_clone().expect("a socket"), node.try_clone());
            thread::spawn(move || io::copy(&mut from, to.as_mut().expect("a socket")));
            // Either side may end the connection.
            thread::spawn(move || {
                while let Ok(mut message) = read_message(&mut node, Magic::BITCOIN) {
                    empty_filters(&mut message);
                    if write_message(&mut client, Magic::BITCOIN, message).is_err() {
                        break;
                    }
                }
                drop(client.shutdown(Shutdown::Both));
            });
        }
    });
    address
}

fn empty_filters(message: &mut NetworkMessage) {
    let empty = vec![0];
    match message {
        NetworkMessage::CFilter(message) => message.filter = empty,
        NetworkMessage::CFHeaders(message) => {
            // The message starts at the genesis block or right after it, so the previous filter
            // header stays true.
            let genesis = usize::from(message.previous_filter_header == FilterHeader::all_zeros());
            message.filter_hashes[genesis..].fill(FilterHash::hash(&empty));
        }
        _ => {}
    }
}

fn peers(scene: &Scene, table: &mut Table) {
    let mainnet = ["--network", "mainnet"];
    table.row("btc test-node", Good, YES, &[&[scene.blocks.path()], &mainnet[..]].concat());
    table.row("btc test-node", Bad, BAD_INPUT, &[&["/nowhere/at/all"], &mainnet[..]].concat());
    table.row("btc test-node", Slip, USAGE, &[scene.blocks.path()]);

    let file = scene.folder.write("file", "not a folder");
    let (peer, poor) = (scene.peer.address.to_string(), scene.poor.address.to_string());
    let item = format!("script:0014{}", "11".repeat(20));
    // Every filter is compared with its block.
    let fixed = ["--data", "{new}", "--minimum-work", "0", "--spot-audits", "1", "--peer"];
    let liar = scene.liar.to_string();
    for (command, more) in [
        ("btc sync", &[][..]),
        ("btc watch", &["--once", &item]),
        ("btc watch", &["--once", "--from", "0", "--to", "20", &item]),
    ] {
        let mut row = |about, code, peer: &str, options: &[&str]| {
            let args = [&fixed[..], &[peer], more, options].concat();
            table.printing(command, about, code, Prints::Result, &args);
        };
        row(Good, YES, &peer, &[]);
        // A run that gave up reports how far it came.
        row(Unreachable, BAD_INPUT, &scene.nobody, &["--give-up", "1"]);
        row(Undecided, UNDECIDED, &poor, &[]);
        row(Wrong, WRONG, &liar, &[]);
        let args = [&["--data", &file, "--peer", &peer][..], more].concat();
        table.row(command, Bad, BAD_INPUT, &args);
        table.row(command, Slip, USAGE, &[more, &["--peer"]].concat());
    }
    // Blocks above the chain's end were not searched.
    let beyond = ["--once", "--from", "0", "--to", "99999", &item];
    let args = [&fixed[..], &[&peer], &beyond].concat();
    table.printing("btc watch", Undecided, UNDECIDED, Prints::Result, &args);
}

fn logs(scene: &Scene, table: &mut Table) {
    let [first, second] = Block::both();
    let write = |name: &str, bytes: &[u8]| scene.folder.write(name, bytes);
    let headers = write("headers.rlp", &[&first.header[..], &second.header].concat());
    let receipts = write("receipts.era1", &write::era1(&[first, second]));
    let anchor = rpc::anchor();
    let reply = |logs: &[Value]| write::reply(&json!(logs)).to_string();
    let whole = write("whole.json", reply(&answer()).as_bytes());
    let less = write("less.json", reply(&answer()[1..]).as_bytes());
    let garbage = write("garbage.json", b"7");
    let (url, gone) = (scene.provider.url(), format!("http://{}", scene.nobody));
    let unreachable = ["--rpc", &gone, "--retries", "0", "--from", "1", "--address", WETH];

    let fixed = ["--chain", "mainnet", headers.as_str(), "--receipts", receipts.as_str()];
    let fixed = [&fixed[..], &QUERY].concat();
    for (about, code, logs, anchor) in [
        (Good, YES, &whole, anchor.as_str()),
        (Bad, BAD_INPUT, &garbage, &anchor),
        (Wrong, WRONG, &less, &anchor),
        (Undecided, UNDECIDED, &whole, STRANGER),
    ] {
        let args = [&fixed[..], &["--logs", logs, "--anchor", anchor]].concat();
        table.row("eth audit", about, code, &args);
    }
    let range = ["--from", "17686111", "--to", "17686112"];
    let rpc = [&["--rpc", &url, "--retries", "1"], &QUERY[..], &range].concat();
    table.row("eth audit", Good, YES, &rpc);
    table.row("eth audit", Undecided, UNDECIDED, &[&rpc[..], &["--anchor", STRANGER]].concat());
    table.row("eth audit", Unreachable, BAD_INPUT, &unreachable);
    table.row("eth audit", Slip, USAGE, &[&headers, "--logs", &whole]);

    let certificate = scene.fresh();
    let certified =
        ["--logs", &whole, "--anchor", &anchor, "--certificate", &certificate, "--embed"];
    assert_eq!(run(&[&["eth", "audit"], &fixed[..], &certified].concat()).code, YES);
    let verify = "eth verify-certificate";
    let chain = ["--chain", "mainnet"];
    let base = [&[certificate.as_str()], &chain[..], &range].concat();
    let anchored = [&base[..], &["--anchor", &anchor]].concat();
    table.row(verify, Good, YES, &[&anchored[..], &QUERY].concat());
    table.row(verify, Wrong, WRONG, &[&anchored[..], &["--address", WETH]].concat());
    table.row(verify, Undecided, UNDECIDED, &[&base[..], &QUERY].concat());
    table.row(verify, Bad, BAD_INPUT, &[&[garbage.as_str()], &chain[..], &range].concat());
    table.row(verify, Slip, USAGE, &[&certificate, "--chain", "mainnet"]);

    table.row("eth scan", Good, YES, &[&headers, "--address", WETH]);
    table.row("eth scan", Empty, NO, &[&headers, "--event", "NeverHeardOf(uint256)"]);
    table.row("eth scan", Bad, BAD_INPUT, &["/no/such/file", "--address", WETH]);
    let args = ["--address", WETH, "--anchor", STRANGER, &headers];
    table.row("eth scan", Undecided, UNDECIDED, &args);
    table.row("eth scan", Good, YES, &rpc);
    table.row("eth scan", Unreachable, BAD_INPUT, &unreachable);
    table.row("eth scan", Slip, USAGE, &[&headers, "--anchor", "0x12"]);

    let follow = [&rpc[..], &["--once", "--poll", "0.05"]].concat();
    table.row("eth follow", Good, YES, &follow);
    table.row("eth follow", Bad, BAD_INPUT, &[&follow[..], &["--abi", &garbage]].concat());
    let args = [&follow[..], &["--anchor", STRANGER]].concat();
    table.printing("eth follow", Undecided, UNDECIDED, Prints::Error, &args);
    table.row("eth follow", Unreachable, BAD_INPUT, &[&unreachable[..], &["--once"]].concat());
    table.row("eth follow", Slip, USAGE, &["--once"]);

    let serve = ["--rpc", &url, "--retries", "0"];
    table.row("eth serve", Good, YES, &[&serve[..], &["--anchor", &anchor]].concat());
    table.row("eth serve", Good, YES, &[&serve[..], &["--trust-head"]].concat());
    table.row(
        "eth serve",
        Unreachable,
        BAD_INPUT,
        &[&unreachable[..2], &["--trust-head", "--retries", "0"]].concat(),
    );
    let taken = [&serve[..], &["--trust-head", "--cache", &garbage]].concat();
    table.row("eth serve", Bad, BAD_INPUT, &taken);
    table.row("eth serve", Slip, USAGE, &serve);
    table.row(
        "eth serve",
        Slip,
        USAGE,
        &[&serve[..], &["--trust-head", "--listen", "0.0.0.0:1"]].concat(),
    );

    table.row("eth forecast", Good, YES, &[&headers, "--address", WETH]);
    table.row("eth forecast", Bad, BAD_INPUT, &["/no/such/file", "--address", WETH]);
    table.row("eth forecast", Unreachable, BAD_INPUT, &unreachable);
    table.row("eth forecast", Slip, USAGE, &[&headers, "--from", "2", "--to", "1"]);
}

fn anchors(scene: &Scene, table: &mut Table) {
    let files = anchor::write_objects(&scene.folder);
    let verify = "eth anchor verify";
    let files = files.each_ref().map(String::as_str);
    let given = ["--checkpoint", anchor::CHECKPOINT];
    table.row(verify, Good, YES, &[&files[..], &given, &["--at", anchor::AT]].concat());
    // At the time of this machine, the checkpoint is old, which is a warning.
    table.row(verify, Good, YES, &[&files[..], &given].concat());
    table.row(verify, Bad, BAD_INPUT, &[&files[1..], &given].concat());
    table.row(verify, Wrong, WRONG, &[&files[..], &["--checkpoint", STRANGER]].concat());
    table.row(verify, Undecided, UNDECIDED, &files);
    table.row(verify, Undecided, UNDECIDED, &[&files[..], &given, &["--at", "0"]].concat());
    table.row(verify, Slip, USAGE, &[files[0], "--network", "nowhere"]);

    let known = anchor::Known::new();
    let folder = known.write(&scene.folder);
    let folder = ["--data", &folder];
    let sync = "eth anchor sync";
    let of = |beacon: &str| {
        ["--beacon", beacon, "--data", "{new}", "--retries", "0"].map(str::to_owned).to_vec()
    };
    let mut row = |about, code, prints, beacon: &str| {
        let args = of(beacon);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(given).collect();
        table.printing(sync, about, code, prints, &args);
    };
    row(Good, YES, Prints::Result, known.server(None).url());
    row(Wrong, WRONG, Prints::Error, known.server(Some(Quirk::Damaged)).url());
    row(Bad, BAD_INPUT, Prints::Error, &format!("http://{}", scene.nobody));
    table.row(sync, Slip, USAGE, &["--beacon", "http://127.0.0.1:1", "--data", "{new}"]);

    // Without a beacon node, the light client in the folder is shown.
    table.row(sync, Good, YES, &folder);
    table.row(sync, Bad, BAD_INPUT, &["--data", "{new}"]);
    table.row(sync, Slip, USAGE, &[folder[0], folder[1], "--network", "nowhere"]);
    let root = "00".repeat(32);
    table.row(sync, Slip, USAGE, &[folder[0], folder[1], "--checkpoint", &root]);
    table.row(sync, Slip, USAGE, &[folder[0], folder[1], "--watch"]);

    let header = "eth anchor header";
    let links = |name: &str, links: String| scene.folder.write(name, links.into_bytes());
    let file = links("links.json", known.links(false, false));
    table.row(header, Good, YES, &[&[&file[..]], &folder[..]].concat());
    let file = links("damaged.json", known.links(true, false));
    table.row(header, Wrong, WRONG, &[&[&file[..]], &folder[..]].concat());
    let file = links("other.json", known.links(false, true));
    table.row(header, Undecided, UNDECIDED, &[&[&file[..]], &folder[..]].concat());
    table.row(header, Bad, BAD_INPUT, &[&["0x00"], &folder[..]].concat());
    table.row(header, Slip, USAGE, &[&["5"], &folder[..]].concat());
    let nobody = format!("http://{}", scene.nobody);
    let asked = ["24784163", "--rpc", &nobody, "--retries", "0"];
    table.row(header, Unreachable, BAD_INPUT, &[&asked[..], &folder[..]].concat());
}

fn headers(scene: &Scene, table: &mut Table) {
    let [first, second] = Block::both().map(|block| block.header);
    let cut = scene.folder.write("cut.rlp", &first[..100]);
    let both = scene.folder.write("both.rlp", [first, second].concat());
    table.row("eth header", Good, YES, &[&both]);
    table.row("eth header", Bad, BAD_INPUT, &[&cut]);
    table.row("eth header", Slip, USAGE, &[]);
    table.row("eth stats", Good, YES, &[&both, "--svg", "{new}"]);
    table.row("eth stats", Bad, BAD_INPUT, &[&cut]);
    table.row("eth stats", Slip, USAGE, &[&both, "--by", "0"]);
}

fn indexes(scene: &Scene, table: &mut Table) {
    let [first, second] = Block::both().map(|block| block.header);
    let mut sibling = first.clone();
    *sibling.last_mut().expect("bytes") ^= 1;
    let [first, second, sibling] = [("1.rlp", first), ("2.rlp", second), ("other.rlp", sibling)]
        .map(|(name, header)| scene.folder.write(name, header));
    let gone = format!("http://{}", scene.nobody);
    let unreachable = ["--rpc", &gone, "--retries", "0"];
    table.row("eth index build", Good, YES, &["{new}", &first]);
    table.row("eth index build", Bad, BAD_INPUT, &["{new}", "/no/such/file"]);
    table.row("eth index build", Unreachable, BAD_INPUT, &[&["{new}"], &unreachable[..]].concat());
    table.row("eth index build", Slip, USAGE, &["{new}", &first, "--label", ""]);
    table.row("eth index build", Good, YES, &["{index}", &second]);
    table.row("eth index query", Good, YES, &["{index}", "--address", WETH]);
    table.row("eth index query", Empty, NO, &["{index}", "--event", "NeverHeardOf(uint256)"]);
    table.row("eth index query", Bad, BAD_INPUT, &["{new}", "--address", WETH]);
    table.row("eth index query", Slip, USAGE, &["{index}", "--from", "2", "--to", "1"]);
    table.row("eth index info", Good, YES, &["{index}"]);
    table.row("eth index info", Bad, BAD_INPUT, &["{new}"]);
    table.row("eth index info", Slip, USAGE, &[]);
    table.row("eth index verify", Good, YES, &["{index}", &first]);
    table.row("eth index verify", Wrong, WRONG, &["{index}", &sibling]);
    table.row("eth index verify", Bad, BAD_INPUT, &["{new}"]);
    table.row("eth index verify", Slip, USAGE, &["{index}", "--part"]);
}

fn filters(scene: &Scene, table: &mut Table) {
    let (size, rate) = (["--keys", "1000"], ["--fpr", "0.01"]);
    let nowhere = ["--svg", "/nonexistent/a.svg"];
    table.row("filter size", Good, YES, &[size, rate].concat());
    table.row("filter size", Bad, BAD_INPUT, &[size, rate, nowhere].concat());
    table.row("filter size", Slip, USAGE, &size);

    let keys = scene.folder.write("keys.txt", "alice\nbob\n\n");
    let seed = "000102030405060708090a0b0c0d0e0f";
    let build = ["--kind", "fuse16", "--seed", seed, keys.as_str(), "--out"];
    let taken = scene.folder.write("taken", "something");
    for (about, code, out) in [
        (Good, YES, "{new}"),
        (Bad, BAD_INPUT, "/nonexistent/f"),
        (Bad, BAD_INPUT, &taken),
        (Slip, USAGE, &keys),
    ] {
        table.row("filter build", about, code, &[&build[..], &[out]].concat());
    }

    let filter = scene.fresh();
    assert_eq!(run(&[&["filter", "build"], &build[..], &[&filter]].concat()).code, YES);
    let garbage = scene.folder.write("garbage.chsieve", "just text\n".repeat(20));
    table.row("filter test", Good, YES, &[&filter, "alice", "mallory"]);
    table.row("filter test", Empty, NO, &[&filter, "mallory"]);
    table.row("filter test", Bad, BAD_INPUT, &[&garbage, "alice"]);
    table.row("filter test", Slip, USAGE, &[&filter]);
    table.row("filter info", Good, YES, &[&filter]);
    table.row("filter info", Bad, BAD_INPUT, &[&garbage]);
    table.row("filter info", Slip, USAGE, &[]);
    table.row("filter convert", Good, YES, &[&filter, "--to", "xor16", "-o", "{new}"]);
    table.row("filter convert", Bad, BAD_INPUT, &[&filter, "--to", "parquet", "-o", "{new}"]);
    table.row("filter convert", Slip, USAGE, &[&filter]);
}

fn others(scene: &Scene, table: &mut Table) {
    table.row("demo", Good, YES, &[]);
    table.row("demo", Slip, USAGE, &["block.hex"]);
    table.row("completions", Good, YES, &["bash"]);
    table.row("completions", Slip, USAGE, &["csh"]);
    table.row("man", Good, YES, &["{new}"]);
    table.row("man", Bad, BAD_INPUT, &[&scene.folder.write("page", "a file")]);
    table.row("man", Slip, USAGE, &[]);
}
