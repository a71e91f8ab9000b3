//! A table of every command, with its exit code for each kind of input, and what it writes to
//! standard output and to standard error. The commands are read from the help, so the test fails
//! for a new command that has no rows.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use chainsieve_conformance::serve::{bitcoin, ethereum};

use super::vectors::subject;
use super::*;

/// A timeout far longer than any command takes.
const LONGEST: Duration = Duration::from_secs(120);

/// The kind of input that a row tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Good input. The command also runs with a closed pipe as standard output.
    Good,
    /// Malformed input, or a file that cannot be read or written.
    Bad,
    /// Nobody listens at the address of the node.
    Unreachable,
    /// An invalid command line.
    Slip,
    /// Something breaks a rule.
    Wrong,
    /// The evidence does not decide the question.
    Undecided,
}
use About::{Bad, Good, Slip, Undecided, Unreachable, Wrong};

#[derive(Debug)]
struct Row {
    command: &'static str,
    about: About,
    code: i32,
    /// An error is on standard error, with nothing on standard output. A result is on standard output.
    is_error: bool,
    /// Arguments; `{new}` is replaced by a path that does not exist yet.
    args: Vec<String>,
}

/// The nodes of the rows.
struct Scene {
    folder: Folder,
    bitcoin: bitcoin::LyingNode,
    ethereum: ethereum::LyingNode,
    omitting: ethereum::LyingNode,
    /// An address where nobody listens.
    nobody: SocketAddr,
    number: AtomicU32,
}

impl Scene {
    fn new() -> Self {
        Self {
            folder: Folder::new(),
            bitcoin: bitcoin::LyingNode::builder().start().expect("started"),
            ethereum: ethereum::LyingNode::builder().start().expect("started"),
            omitting: ethereum::LyingNode::builder()
                .lie("eth-log-omitted")
                .and_then(ethereum::Builder::start)
                .expect("started"),
            nobody: free_address(),
            number: AtomicU32::new(0),
        }
    }
}

/// Returns an address on loopback that nobody listens at.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// Returns the rows of every command.
fn table(scene: &Scene) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut printing = |command, about, code, is_error, args: &[&str]| {
        let args = args.iter().map(ToString::to_string).collect();
        rows.push(Row { command, about, code, is_error, args });
    };
    let mut row = |command, about, code: i32, args: &[&str]| {
        printing(command, about, code, code == USAGE || code == BAD_INPUT, args);
    };
    row("serve-node", Good, YES, &["--bitcoin"]);
    row("serve-node", Good, YES, &["--lie", "eth-logs-empty"]);
    let blocks = ["--bitcoin", "--network", "regtest", "--blocks", "/nowhere/at/all"];
    row("serve-node", Bad, BAD_INPUT, &blocks);
    row("serve-node", Slip, USAGE, &["--lie", "eth-nothing"]);

    let audit = "audit-node";
    let range = ["--from", "17686111", "--to", "17686112", "--retries", "0", "--ethereum"];
    row(audit, Good, YES, &[&range[..], &[&scene.ethereum.url()]].concat());
    row(audit, Wrong, WRONG, &[&range[..], &[&scene.omitting.url()]].concat());
    let nobody = format!("http://{}", scene.nobody);
    row(audit, Unreachable, BAD_INPUT, &[&range[..], &[&nobody]].concat());
    let peer = scene.bitcoin.address().to_string();
    let peer = ["--network", "regtest", "--bitcoin-p2p", &peer, "--to", "105", "--from"];
    row(audit, Good, YES, &[&peer[..], &["0"]].concat());
    // The blocks that created the spent outputs are not in the range.
    row(audit, Undecided, UNDECIDED, &[&peer[..], &["101"]].concat());
    let cookie = ["--bitcoin-rpc", "http://[::1]:1", "--cookie", "/nowhere", "--from", "0", "--to"];
    row(audit, Bad, BAD_INPUT, &[&cookie[..], &["1"]].concat());
    row(audit, Slip, USAGE, &["--from", "0", "--to", "1"]);

    let subject = subject("");
    let asked = ["--subject", &subject];
    let mut asks =
        |about, code, args: &[&str]| row("run", about, code, &[&asked[..], args].concat());
    asks(Good, YES, &["--id", "bip37.sizing/no-bytes"]);
    asks(Wrong, WRONG, &["--id", "logs.parse/one-null", "--profile", "alloy"]);
    asks(Undecided, UNDECIDED, &["--area", "logs.node"]);
    asks(Bad, BAD_INPUT, &["--pack", "/nonexistent"]);
    asks(Bad, BAD_INPUT, &["--baseline", "/nonexistent"]);
    asks(Slip, USAGE, &["--profile", "nobody"]);
    asks(Slip, USAGE, &["--area", "nothing"]);
    asks(Slip, USAGE, &["--list"]);
    asks(Slip, USAGE, &["--show", "bip37.sizing/no-bytes"]);
    row("run", Bad, BAD_INPUT, &["--subject", "false"]);
    row("run", Unreachable, BAD_INPUT, &["--rpc", &nobody]);
    row("run", Good, YES, &["--list"]);
    row("run", Good, YES, &["--list", "--area", "gcs.*"]);
    row("run", Bad, BAD_INPUT, &["--list", "--pack", "/nonexistent"]);
    row("run", Slip, USAGE, &["--list", "--area", "nothing"]);
    row("run", Good, YES, &["--show", "bip37.sizing/no-bytes"]);
    row("run", Bad, BAD_INPUT, &["--show", "bip37.sizing/nothing"]);
    row("run", Slip, USAGE, &[]);
    row("export", Good, YES, &["{new}"]);
    row("export", Bad, BAD_INPUT, &["/dev/null/folder"]);
    row("export", Slip, USAGE, &[]);
    // The subject that runs has results.
    let one_of_two = ["--subject", "false", "--id", "bip37.sizing/no-bytes"];
    printing("run", Bad, BAD_INPUT, false, &[&asked[..], &one_of_two].concat());
    rows
}

/// Runs a row. If `is_read` is `false`, the reader of standard output has closed the pipe.
fn printed(scene: &Scene, row: &Row, json: bool, is_read: bool) -> Output {
    let place = |arg: &String| match arg.as_str() {
        "{new}" => {
            scene.folder.path(&format!("new-{}", scene.number.fetch_add(1, Ordering::Relaxed)))
        }
        _ => arg.clone(),
    };
    let mut command = binary();
    command.arg(row.command).args(row.args.iter().map(place));
    let server = (row.command == "serve-node" && row.about == Good).then(free_address);
    if let Some(address) = server {
        command.args(["--listen", &address.to_string()]);
    }
    if json {
        command.arg("--json");
    }
    let stdout =
        if is_read { Stdio::piped() } else { Stdio::from(std::io::pipe().expect("a pipe").1) };
    let command = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    if let Some(address) = server {
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
    let code = ended(&mut child);
    let stderr = stderr.join().expect("no panic").expect("text");
    Output { code, stdout, stderr }
}

fn end_when_it_listens(child: &mut Child, address: SocketAddr) {
    let deadline = Instant::now() + LONGEST;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline && child.try_wait().is_ok_and(|status| status.is_none()));
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-s", "TERM", &id]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

/// Waits until a command has ended, and returns its exit code; kills it if that takes too long.
fn ended(child: &mut Child) -> i32 {
    let deadline = Instant::now() + LONGEST;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code().expect("no signal");
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
    let plain = printed(scene, row, false, true);
    let json = printed(scene, row, true, true);
    for output in [&plain, &json] {
        check("exit code", output.code == row.code, output);
        check("panic", !output.stderr.contains("panicked"), output);
        check("an error if the row expects one", has_error(output) == row.is_error, output);
        check("standard output", output.stdout.is_empty() == row.is_error, output);
        let marks = ["error: ", "warning: ", "note: "];
        let is_pure = |line: &str| !marks.iter().any(|mark| line.starts_with(mark));
        check("results only on standard output", output.stdout.lines().all(is_pure), output);
    }
    check("no warning beside JSON", !json.stderr.contains("warning: "), &json);
    if !row.is_error {
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
            let closed = printed(scene, row, json, false);
            check("exit code with a closed pipe", closed.code == row.code, &closed);
            check("a closed pipe is no error", !has_error(&closed), &closed);
        }
    }
    found
}

/// Parses what a command prints with `--json`. Returns the document, or the last of several lines.
fn parsed(command: &str, stdout: &str) -> Result<Value, String> {
    let value = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    if command != "serve-node" {
        return value(stdout);
    }
    let help = run(&[command, "--help"]).stdout;
    let mut kinds = Vec::new();
    let mut last = Value::Null;
    for line in stdout.lines() {
        last = value(line)?;
        let first = last.as_object().and_then(|line| line.iter().next());
        let Some((_, kind)) = first.filter(|(name, _)| *name == "kind") else {
            return Err(format!("a line without a kind: {line}"));
        };
        let kind = text(kind).to_owned();
        if !help.lines().any(|line| line.starts_with(&format!("  {kind} "))) {
            return Err(format!("--help does not name lines of kind {kind}"));
        }
        kinds.push(kind);
    }
    match kinds.split_last() {
        Some((last_kind, rest)) if last_kind == "summary" && !rest.contains(last_kind) => Ok(last),
        _ => Err(format!("expected one summary, at the end: {kinds:?}")),
    }
}

#[test]
fn every_command_has_its_rows() {
    let help = run(&["-h"]).stdout;
    let (_, commands) = help.split_once("\nCommands:\n").expect("a list of commands");
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert_eq!(commands, ["run", "export", "serve-node", "audit-node"]);
    let table = table(&Scene::new());
    for command in commands {
        let has = |about| table.iter().any(|row| row.command == command && row.about == about);
        let help = run(&[command, "--help"]).stdout;
        assert!(help.contains("JSON: "), "{command}: no fields in {help}");
        assert!(has(Good) && has(Slip) && has(Bad), "{command}");
        let calls = help.contains("--rpc <") || help.contains("--bitcoin-rpc <");
        assert_eq!(has(Unreachable), calls, "{command}");
        // Each exit code that the help mentions must occur in a row.
        let codes = help.split_once("Exit codes:").map_or("", |(_, codes)| codes);
        let codes = codes.split("\n\n").next().unwrap_or_default();
        let promises = |code: &str| codes.lines().any(|line| line.trim().starts_with(code));
        for (code, about) in [("3  ", Wrong), ("4  ", Undecided)] {
            assert_eq!(has(about), promises(code), "{command}: {about:?}");
        }
    }
}

#[test]
fn exit_codes_and_streams() {
    let scene = Scene::new();
    let found: Vec<String> = table(&scene).iter().flat_map(|row| wrong_with(&scene, row)).collect();
    assert!(found.is_empty(), "{}\n{} in all", found.join("\n\n"), found.len());
}
