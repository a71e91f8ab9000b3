//! Text that a stranger chose is printed escaped and quoted: whatever a node, a peer, a subject, a
//! file or its name contains, the output neither steers a terminal nor has a line that the program
//! did not write.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::thread;

use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_network::{Reject, RejectReason};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve_client::peers::frame::{encode_message, read_message, write_message};
use chainsieve_conformance::serve::ethereum::LyingNode;
use chainsieve_conformance::serve::json_rpc::{Fate, Fault, Proxy, Source};

use super::*;

/// Begins the text of a stranger, so that the tests find it in the output.
const MARK: &str = "h0stile";
/// Begins a line of the text that looks like one of the program.
const FORGED: &str = "verified head: block 99999999";
/// A text of a stranger: sequences that clear a screen and set a title, every kind of line break,
/// controls of C0 and C1, marks of writing direction, and everything that ends a quotation.
const TEXT: &str = "h0stile\u{1b}[2J\u{1b}]0;x\u{7}\r\nverified head: block 99999999, 0xfeed\n\u{9b}31m\
                    \u{7f}\u{202e}\u{2066}\u{200f}\u{85}verified head: block 99999999\u{2028}verified \
                    head: block 99999999\u{2029}\t\"`'\\";

/// Checks that nothing of the text of a stranger acts on its own.
fn check(what: &str, printed: &str) {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!printed.contains(steers), "{what}: {printed:?}");
    let is_forged = |line: &str| line.trim_start().starts_with(FORGED);
    assert!(!printed.lines().any(is_forged), "{what}: {printed}");
    // A name of a file follows the name of its folder, and parsers quote names by backticks.
    let is_quoted = |(at, _): (usize, &str)| printed[..at].ends_with(['"', '`', '/']);
    assert!(printed.match_indices(MARK).all(is_quoted), "{what}: {printed}");
}

/// Checks both streams of a command, which must show the text.
fn check_shown(what: &str, output: &Output) {
    check(what, &output.stdout);
    check(what, &output.stderr);
    let is_shown = output.stdout.contains(MARK) || output.stderr.contains(MARK);
    assert!(is_shown, "{what}: the text is not shown: {}{}", output.stdout, output.stderr);
}

/// Runs a command as text and with `--json`. Both must show the text.
fn shows(args: &[&str]) {
    for more in [&[][..], &["--json"]] {
        let args = [args, more].concat();
        check_shown(&format!("{args:?}"), &run(&args));
    }
}

/// Changes the answer of a node to a method with these parameters.
type Lie = fn(&str, &Value, &mut Value);

fn error(answer: &mut Value, error: &Value) {
    *answer = json!({ "jsonrpc": "2.0", "id": answer["id"], "error": error });
}

fn result(answer: &mut Value, result: &Value) {
    *answer = json!({ "jsonrpc": "2.0", "id": answer["id"], "result": result });
}

/// The ways in which a node answers with the text.
const LIES: [(&str, Lie); 7] = [
    ("an error", |_, _, answer| error(answer, &json!({ "code": -32000, "message": TEXT }))),
    ("an error that is a text", |_, _, answer| error(answer, &json!(TEXT))),
    ("a limit", |_, _, answer| {
        let message = format!("{TEXT} query returned more than 10000 results");
        error(answer, &json!({ "code": -32005, "message": message }));
    }),
    ("a result of another type", |_, _, answer| result(answer, &json!(TEXT))),
    ("an object of another type", |method, _, answer| {
        if method != "eth_chainId" {
            result(answer, &json!({ TEXT: TEXT, "number": TEXT }));
        }
    }),
    ("headers, and then errors", |method, _, answer| {
        if !matches!(method, "eth_chainId" | "eth_getBlockByNumber") {
            error(answer, &json!({ "code": -32000, "message": TEXT }));
        }
    }),
    ("headers, and then other types", |method, params, answer| match method {
        "eth_getBlockByNumber" if params[0] == "0x10dde60" => {
            answer["result"]["gasUsed"] = json!(TEXT);
        }
        "eth_chainId" | "eth_getBlockByNumber" => {}
        _ => result(answer, &json!([{ "logIndex": TEXT, "type": TEXT }])),
    }),
];

/// Starts a node that tells a lie, in front of an honest node.
fn hostile_node(lie: Lie) -> (LyingNode, Proxy) {
    let honest = LyingNode::builder().start().expect("started");
    let rule = move |method: &str, params: &Value, answer: &mut Value| {
        lie(method, params, answer);
        Fate::Answered
    };
    let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), Source::node(honest.url()), rule);
    (honest, proxy.expect("started"))
}

#[test]
fn of_a_node() {
    for (name, lie) in LIES {
        let (_honest, node) = hostile_node(lie);
        let args = ["audit-node", "--ethereum", &node.url(), "--retries", "0"];
        let args = [&args[..], &["--from", "17686111", "--to", "17686112"]].concat();
        for more in [&[][..], &["--json"]] {
            check_shown(name, &run(&[&args[..], more].concat()));
        }
    }
}

#[test]
fn of_a_node_of_bitcoin() {
    for answer in [
        Err(Fault::new(-1, TEXT)),
        Ok(json!(TEXT)),
        Ok(json!({ "chain": TEXT, "blocks": 1 })),
        Ok(json!({ "chain": "main", "blocks": TEXT })),
    ] {
        let source = Source::function(move |_, _| answer.clone());
        let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, |_, _, _| Fate::Answered);
        let url = node.as_ref().expect("started").url();
        let args = ["audit-node", "--bitcoin-rpc", &url, "--from", "1", "--to", "1"];
        shows(&[&args[..], &["--retries", "0"]].concat());
    }
}

#[test]
fn of_a_file() {
    let folder = Folder::new();
    let pretty = |json: Value| format!("{json:#}");
    let contents = [
        TEXT.into(),
        pretty(json!(TEXT)),
        pretty(json!([TEXT])),
        pretty(json!({ TEXT: TEXT })),
        pretty(json!({ "baseline": TEXT, "subjects": TEXT })),
        pretty(json!({ "baseline": 1, "subjects": { TEXT: { TEXT: { "outcome": TEXT } } } })),
        json!({ "message": TEXT }).to_string(),
    ];
    for (at, contents) in contents.into_iter().enumerate() {
        let file = folder.write(&format!("file-{at}"), contents);
        for more in [&[][..], &["--json"]] {
            let args = ["run", "--subject", "exit", "--baseline", &file];
            let output = run(&[&args[..], more].concat());
            check(&format!("{at}"), &output.stdout);
            check(&format!("{at}"), &output.stderr);
        }
    }
}

/// Names of files may contain everything but a slash, and archives may bring them.
#[test]
fn of_a_name() {
    let folder = Folder::new();
    let file = folder.write(TEXT, "{]");
    shows(&["run", "--subject", "exit", "--baseline", &file]);
    for args in [
        &["run", "--list", "--area", TEXT][..],
        &["run", "--show", TEXT],
        &["run", "--subject", "exit", "--id", TEXT],
        &[TEXT],
    ] {
        for more in [&[][..], &["--json"]] {
            let args = [args, more].concat();
            let output = run(&args);
            // The user's own words need no quotation.
            for printed in [output.stdout, output.stderr] {
                check(&format!("{args:?}"), &printed.replace(MARK, "\"h0stile"));
            }
        }
    }
}

/// Says hello as a peer with the text as its user agent, after the peer of the other side has.
fn greet(stream: &mut TcpStream) {
    let said = read_message(stream, Magic::BITCOIN).expect("a message");
    let NetworkMessage::Version(mut version) = said else { panic!("{said:?}") };
    // With its own nonce, the client would detect a connection to itself.
    version.nonce ^= 1;
    version.user_agent = TEXT.into();
    version.services =
        ServiceFlags::NETWORK | ServiceFlags::WITNESS | ServiceFlags::COMPACT_FILTERS;
    let message = NetworkMessage::Version(version);
    write_message(stream, Magic::BITCOIN, message).expect("it reads");
}

/// A message with the text as its command, and a wrong checksum.
fn named_by_the_text() -> Vec<u8> {
    let mut frame = encode_message(Magic::BITCOIN, NetworkMessage::Ping(1));
    frame[4..16].copy_from_slice(&TEXT.as_bytes()[..12]);
    frame[20] ^= 1;
    frame
}

/// Returns the address of a peer that greets each client with the text.
fn hostile_peer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            greet(&mut stream);
            let reject = NetworkMessage::Reject(Reject {
                message: TEXT.into(),
                ccode: RejectReason::Invalid,
                reason: TEXT.into(),
                hash: sha256d::Hash::all_zeros(),
            });
            let alert = NetworkMessage::Alert(TEXT.into());
            // A client that disconnects is not an error of the peer.
            for message in [NetworkMessage::Verack, reject, alert] {
                drop(write_message(&mut stream, Magic::BITCOIN, message));
            }
            drop(stream.write_all(&named_by_the_text()));
            drop(std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    peer
}

#[test]
fn of_a_peer() {
    let peer = hostile_peer();
    let args = ["audit-node", "--bitcoin-p2p", &peer, "--network", "mainnet"];
    shows(&[&args[..], &["--from", "0", "--to", "1"]].concat());
}

/// An implementation under test answers with the text, or writes it to its standard error.
#[test]
fn of_a_subject() {
    let folder = Folder::new();
    let words = folder.write("text", TEXT);
    let introduction = |name: &str, area: &str| {
        let implementation = json!({ "name": name, "version": name, "language": name });
        json!({ "version": 1, "implementation": implementation, "areas": [area] }).to_string()
            + "\n"
    };
    let hello = folder.write("hello", introduction("a subject", "bip37.murmur3"));
    let named = folder.write("named", introduction(TEXT, TEXT));
    // Text without control characters, which introductions may not contain.
    let printable: String = TEXT.chars().filter(|c| !c.is_control()).collect();
    let printable = folder.write("printable", introduction(&printable, &printable));
    let mut commands = vec![
        format!("cat '{words}' >&2; exit 1"),
        format!("cat '{words}'"),
        format!("read a; cat '{named}'"),
        format!("read a; cat '{printable}'; read b"),
        format!("read a; cat '{hello}'; read b; cat '{words}' >&2; exit 1"),
    ];
    for (at, answer) in [
        json!({ "seq": 1, "error": TEXT }),
        json!({ "seq": 1, "invalid": TEXT }),
        json!({ "seq": 1, "skipped": TEXT }),
        json!({ "seq": 1, "value": { TEXT: TEXT } }),
        json!({ "seq": TEXT }),
        json!(TEXT),
    ]
    .iter()
    .enumerate()
    {
        let answer = folder.write(&format!("answer-{at}"), format!("{answer}\n"));
        commands.push(format!("read a; cat '{hello}'; read b; cat '{answer}'; read c"));
    }
    let id = json_of(&["run", "--list", "--area", "bip37.murmur3"], YES);
    let id = text(&id["cases"][0]["id"]);
    for (at, command) in commands.iter().enumerate() {
        for more in [&[][..], &["--json"]] {
            let args = ["run", "--subject", command, "--id", id];
            let output = run(&[&args[..], more].concat());
            // The command itself names files of the test.
            check(&format!("{at}: {command}"), &output.stdout);
            check(&format!("{at}: {command}"), &output.stderr);
            let is_shown = output.stdout.contains(MARK) || output.stderr.contains(MARK);
            // The text is refused in names, and a reason to skip is only in the JSON.
            let is_hidden = at == 2 || (at == 7 && more.is_empty());
            assert!(is_shown || is_hidden, "{at}: {}{}", output.stdout, output.stderr);
        }
    }
    for (name, lie) in &LIES[..3] {
        let (_honest, node) = hostile_node(*lie);
        let url = node.url();
        let args = ["run", "--rpc", &url, "--area", "logs.node"];
        for more in [&[][..], &["--json"]] {
            check_shown(name, &run(&[&args[..], more].concat()));
        }
    }
}
