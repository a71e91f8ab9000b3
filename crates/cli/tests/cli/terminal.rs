//! Text that a stranger chose is printed escaped and quoted: whatever a server, a peer, a contract, a
//! file or its name contains, the output neither steers a terminal nor has a line that the command
//! did not write.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::{Address, B256, keccak256};
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_network::{Reject, RejectReason, VersionMessage};
use chainsieve::bitcoin::p2p::{self, Magic, ServiceFlags};
use chainsieve_client::peers::frame::{encode_message, read_message, write_message};
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::final_blocks::FinalBlocks;

use super::eth::rpc::chain::{self, Chain};
use super::eth::rpc::server::{Answer, Server, error};
use super::eth::rpc::{honest_provider, provider};
use super::eth::{Block, WETH};
use super::*;
use testkit::TestFolder;

/// Begins the text of a stranger, so that the tests find it in the output.
const MARK: &str = "h0stile";
/// Begins a line of the text that looks like one of `eth serve`.
const FORGED: &str = "verified head: block 99999999";
/// A text of a stranger: sequences that clear a screen and set a title, every kind of line break,
/// controls of C0 and C1, marks of writing direction, and everything that ends a quotation.
const TEXT: &str = "h0stile\u{1b}[2J\u{1b}]0;x\u{7}\r\nverified head: block 99999999, 0xfeed\n\u{9b}31m\
                    \u{7f}\u{202e}\u{2066}\u{200f}\u{85}verified head: block 99999999\u{2028}verified \
                    head: block 99999999\u{2029}\t\"`'\\";

/// A timeout longer than any of these commands runs.
const PATIENCE: Duration = Duration::from_mins(2);

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

/// Runs a command that does not end by itself until it has shown the text, and checks what it
/// printed. `step` gets standard output so far.
fn shows_until(args: &[&str], mut step: impl FnMut(&str)) {
    let mut child = binary()
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let (stdout, read_stdout) = collected(child.stdout.take().expect("piped"));
    let (stderr, read_stderr) = collected(child.stderr.take().expect("piped"));
    let text = |bytes: &Mutex<Vec<u8>>| {
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !(text(&stdout) + &text(&stderr)).contains(MARK) {
        step(&text(&stdout));
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill").success());
    let status = child.wait().expect("it ends");
    read_stdout.join().expect("read");
    read_stderr.join().expect("read");
    let code = status.code().expect("no signal");
    check_shown(
        &format!("{args:?}"),
        &Output { code, stdout: text(&stdout), stderr: text(&stderr) },
    );
}

/// Reads a stream in a thread of its own.
fn collected(
    mut from: impl Read + Send + 'static,
) -> (Arc<Mutex<Vec<u8>>>, thread::JoinHandle<()>) {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bytes);
    let thread = thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut part) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).extend(&part[..read]);
        }
    });
    (bytes, thread)
}

/// The ways in which a node answers with the text.
fn hostile_nodes() -> Vec<(&'static str, Server)> {
    type Lie = fn(&Chain, &str, &Value) -> Option<Answer>;
    let lies: [(&str, Lie); 7] = [
        ("an error", |_, _, _| Some(Err(error(-32000, TEXT)))),
        ("an error that is a text", |_, _, _| Some(Err(json!(TEXT)))),
        ("a limit", |_, _, _| {
            Some(Err(error(-32005, &format!("{TEXT} query returned more than 10000 results"))))
        }),
        ("a result of another type", |_, _, _| Some(Ok(json!(TEXT)))),
        ("an object of another type", |_, method, _| {
            (method != "eth_chainId").then(|| Ok(json!({ TEXT: TEXT, "number": TEXT })))
        }),
        ("headers, and then errors", |_, method, _| {
            let is_of_header = matches!(method, "eth_chainId" | "eth_getBlockByNumber");
            (!is_of_header).then(|| Err(error(-32000, TEXT)))
        }),
        ("headers, and then other types", |chain, method, params| match method {
            "eth_getBlockByNumber" if params[0] == "0x10dde60" => {
                let mut block = chain.answer(method, params).expect("it answers");
                block["gasUsed"] = json!(TEXT);
                Some(Ok(block))
            }
            "eth_chainId" | "eth_getBlockByNumber" => None,
            _ => Some(Ok(json!([{ "logIndex": TEXT, "type": TEXT }]))),
        }),
    ];
    let start = |(name, lie): (&'static str, Lie)| (name, provider(Chain::real_and(0), lie));
    lies.map(start).into()
}

#[test]
fn of_a_node() {
    let folder = TestFolder::new("terminal-node");
    for (at, (name, node)) in hostile_nodes().iter().enumerate() {
        let url = node.url();
        let index = folder.file(&format!("index-{at}"));
        let query = ["--from", "17686111", "--address", WETH];
        for (command, more) in [
            (&["eth", "audit"][..], &query[..]),
            (&["eth", "scan"], &query),
            (&["eth", "follow"], &["--from", "17686111", "--once", "--poll", "0.05"]),
            (&["eth", "index", "build", &index], &["--from", "17686111"]),
        ] {
            let args = [command, &["--rpc", &url, "--retries", "0"], more].concat();
            for more in [&[][..], &["--json"]] {
                let args = [&args[..], more].concat();
                let output = run(&args);
                let what = format!("{name}: {args:?}");
                check(&what, &output.stdout);
                check(&what, &output.stderr);
                // `eth scan` and `eth index build` ask for nothing but headers.
                if !name.starts_with("headers") {
                    check_shown(&what, &output);
                }
            }
        }
    }
}

/// The node is honest until `eth serve` listens.
#[test]
fn of_an_upstream() {
    for more in [&[][..], &["--json"]] {
        let is_hostile = Arc::new(AtomicBool::new(false));
        let turns = Arc::clone(&is_hostile);
        let node = provider(Chain::real_and(0), move |_, _, _| {
            is_hostile.load(Ordering::SeqCst).then(|| Err(error(-32000, TEXT)))
        });
        let url = node.url();
        let args = ["eth", "serve", "--rpc", &url, "--retries", "0", "--trust-head"];
        let args = [&args[..], &["--listen", "127.0.0.1:0", "--poll", "0.05"], more].concat();
        shows_until(&args, |stdout| {
            if stdout.contains("listening") {
                turns.store(true, Ordering::SeqCst);
            }
        });
    }
}

/// Answers each request with the same bytes.
fn http_server(head: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let answer = move |mut stream: TcpStream| {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let length = body.len();
        write!(stream, "HTTP/1.1 200 x\r\n{head}\r\nContent-Length: {length}\r\n")?;
        write!(stream, "Connection: close\r\n\r\n{body}")
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects is not an error of the server.
            let _: std::io::Result<()> = answer(stream);
        }
    });
    format!("http://{address}")
}

#[test]
fn of_a_beacon_node() {
    let folder = TestFolder::new("terminal-beacon");
    let mut blocks = FinalBlocks::new(false);
    let data = blocks.finalise(&Block::both()[1].header);
    let network = &blocks.world.network;
    let file = folder.write("network.json", serde_json::to_string(network).expect("JSON"));
    let honest = BeaconServer::start(network, data);
    let root = blocks.checkpoint().to_string();
    let provider = honest_provider();
    let rpc = provider.url();
    let json = "Content-Type: application/json";
    let quotes = json!(TEXT).to_string();
    let servers = [
        http_server(json, json!({ "version": TEXT, "data": {} }).to_string()),
        http_server(json, json!({ "version": "deneb", "data": { "header": TEXT } }).to_string()),
        http_server(
            "Content-Type: application/octet-stream\r\nEth-Consensus-Version: h0stile verified",
            "x".into(),
        ),
        http_server(json, quotes),
    ];
    let data = folder.file("client");
    let sync = ["eth", "anchor", "sync", "--retries", "0", "--data", &data];
    let light = ["--checkpoint", &root, "--network", &file];
    let from_rpc = ["--rpc", &rpc, "--retries", "0"];
    for server in &servers {
        let hostile = [&["--beacon", server.as_str()][..], &light].concat();
        shows(&[&sync[..], &hostile].concat());
        shows(&[&sync[..], &hostile, &["--watch"]].concat());
        for command in [
            &["eth", "scan", "--from", "17686111", "--address", WETH][..],
            &["eth", "follow", "--from", "17686111", "--address", WETH, "--once"],
            &["eth", "serve", "--listen", "127.0.0.1:0"],
        ] {
            shows(&[command, &from_rpc, &hostile].concat());
        }
    }
    // An honest server beside it: the failure is a warning.
    let both = ["--beacon", honest.url(), "--beacon", &servers[3]];
    shows(&[&sync[..], &both, &light].concat());
    shows(&[&["eth", "anchor", "header", "17686112"][..], &from_rpc, &both, &light].concat());
    for more in [&[][..], &["--json"]] {
        shows_until(&[&sync[..], &both, &light, &["--watch"], more].concat(), |_| {});
    }
}

/// A contract writes any text into its logs, and an ABI names its events as it likes.
#[test]
fn of_a_contract() {
    let address = Address::repeat_byte(0xab);
    let topic = keccak256("Note(string)");
    // The ABI's encoding of one string: its offset, its length, and its bytes, padded.
    let word = |number: usize| B256::left_padding_from(&number.to_be_bytes()).to_vec();
    let padding = vec![0; TEXT.len().next_multiple_of(32) - TEXT.len()];
    let data = [word(32), word(TEXT.len()), TEXT.into(), padding].concat();
    let mut chain = Chain::real_and(0);
    let block = chain::child_with_log(chain.last(), address, topic, &data);
    chain.blocks.push(block);
    let child = chain::child(chain.last(), "");
    chain.blocks.push(child);
    chain.finalized += 2;
    let node = provider(chain, |_, _, _| None);
    let (url, address) = (node.url(), address.to_string());
    let event = |name: &str, argument: &str| {
        json!([{ "type": "event", "name": name, "anonymous": false, "inputs": [
            { "name": argument, "type": "string", "indexed": false },
        ]}])
    };
    let folder = TestFolder::new("terminal-contract");
    let abi = folder.write("abi.json", event("Note", "text").to_string());
    let named = folder.write("named.json", event("Note", TEXT).to_string());
    let follow = ["eth", "follow", "--rpc", &url, "--retries", "0", "--from", "17686111", "--once"];
    let follow = [&follow[..], &["--address", &address, "--abi"]].concat();
    shows(&[&follow[..], &[&abi]].concat());
    // Names in an ABI must be identifiers.
    shows(&[&follow[..], &[&named]].concat());
    // Lines of CSV end with CR LF (RFC 4180). A field is quoted by its commas.
    let output = run(&[&follow[..], &[&abi, "--csv"]].concat());
    let stdout = output.stdout.replace("\r\n", "\n");
    assert_eq!(stdout.lines().count(), 2, "a head and a log: {stdout}{}", output.stderr);
    check_shown("--csv", &Output { stdout, ..output });
    // Programs read the text as it is.
    let output = run(&[&follow[..], &[&abi, "--json"]].concat());
    let mut logs = output.stdout.lines().filter(|line| line.starts_with("{\"kind\":\"log\""));
    let log: Value = serde_json::from_str(logs.next().expect("a log")).expect("JSON");
    assert_eq!(log["decoded"]["arguments"]["text"], TEXT);
    let other = folder.write("other.json", json!([{ "type": TEXT }]).to_string());
    shows(&[&follow[..], &[&other]].concat());
}

/// Returns the first argument after the options of each command that reads a file.
fn readers<'a>(file: &'a str, logs: &'a str, header: &'a str, key: &'a str) -> Vec<Vec<&'a str>> {
    let blocks = ["--from", "1", "--to", "2"];
    let query = ["--address", WETH, "--chain", "1"];
    [
        &["eth", "header", file][..],
        &["eth", "anchor", "verify", file],
        &["eth", "anchor", "header", file, "--data", logs],
        &["eth", "anchor", "sync", "--network", file],
        &["eth", "stats", file],
        &["eth", "scan", file, "--address", WETH],
        &["eth", "scan", header, "--query", file],
        &["eth", "forecast", file, "--address", WETH],
        &["eth", "audit", file, "--logs", logs, query[0], query[1], query[2], query[3]],
        &["eth", "audit", header, "--logs", file, query[0], query[1], query[2], query[3]],
        &["eth", "audit", header, "--logs", logs, "--receipts", file, "--chain", "1"],
        &["eth", "verify-certificate", file, "--chain", "1", blocks[0], "1", blocks[2], "2"],
        &["eth", "index", "build", "/nowhere/at/all", file],
        &["btc", "bloom", "info", file],
        &["btc", "bloom", "new", "--file", file],
        &["btc", "match", "00010000000000000001", file],
        &["btc", "match", file, header],
        &["btc", "prove", "verify", file],
        &["btc", "cf", "build", file],
        &["btc", "cf", "scan", file, key],
        &["btc", "cf", "audit", header, file],
        &["btc", "cf", "audit", "--proof", file],
        &["btc", "cf", "verify-headers", file],
        &["btc", "watch", "--data", logs, "--file", file],
        &["filter", "info", file],
        &["filter", "test", file, "key"],
        &["filter", "convert", file, "-o", "/dev/null"],
    ]
    .map(<[_]>::to_vec)
    .into()
}

#[test]
fn of_a_file() {
    let folder = TestFolder::new("terminal-file");
    let header = hex::encode(&Block::both()[0].header);
    let logs = folder.write("logs.json", "[]");
    let key = format!("script:0014{}", "11".repeat(20));
    let pretty = |json: Value| format!("{json:#}");
    // As many servers write JSON.
    let ascii = |json: Value| {
        let shown = |c: char| {
            if c.is_ascii_graphic() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) }
        };
        json.to_string().chars().map(shown).collect::<String>()
    };
    let contents = [
        TEXT.into(),
        pretty(json!(TEXT)),
        pretty(json!([TEXT])),
        pretty(json!({ TEXT: TEXT })),
        pretty(json!([{ TEXT: TEXT }])),
        pretty(json!({ "number": TEXT, "hash": TEXT, "parentHash": TEXT })),
        pretty(json!({ "jsonrpc": "2.0", "error": { "code": 1, "message": TEXT } })),
        pretty(json!({ "jsonrpc": "2.0", "result": [{ "address": TEXT }] })),
        ascii(json!({ "message": TEXT })),
        ascii(json!({ "version": TEXT, "data": { "attested_header": TEXT } })),
        pretty(json!({ "format": TEXT, "version": 1 })),
        pretty(json!({ "links": TEXT, "origin": TEXT, "name": TEXT, "label": TEXT })),
    ];
    for (at, contents) in contents.into_iter().enumerate() {
        let file = folder.write(&format!("file-{at}"), contents);
        for args in readers(&file, &logs, &header, &key) {
            for more in [&[][..], &["--json"]] {
                let args = [&args[..], more].concat();
                let output = run(&args);
                check(&format!("{at}: {args:?}"), &output.stdout);
                check(&format!("{at}: {args:?}"), &output.stderr);
            }
        }
    }
    // Here, the text is shown.
    let file = |at: usize| folder.file(&format!("file-{at}"));
    for (at, args) in [
        (
            10,
            &["eth", "verify-certificate", "FILE", "--chain", "1", "--from", "1", "--to", "2"][..],
        ),
        (3, &["eth", "scan", &header, "--query", "FILE"]),
        (6, &["eth", "audit", &header, "--logs", "FILE", "--chain", "1"]),
        (1, &["eth", "audit", &header, "--logs", "FILE", "--chain", "1"]),
        (7, &["eth", "audit", &header, "--logs", "FILE", "--chain", "1"]),
        (6, &["eth", "audit", &header, "--logs", &logs, "--receipts", "FILE", "--chain", "1"]),
        (8, &["eth", "anchor", "verify", "FILE"]),
        (9, &["eth", "anchor", "verify", "FILE"]),
        (3, &["eth", "anchor", "sync", "--network", "FILE"]),
    ] {
        let file = file(at);
        let args = args.iter().map(|word| if *word == "FILE" { &*file } else { word });
        shows(&args.collect::<Vec<_>>());
    }
    // Extra data of a header, which its miner chose.
    let text = "h0stile\u{9b}\u{202e}\u{2028}";
    let block = chain::with_field(&Block::both()[0], 12, "h0stile\u{202e}\u{2028}".as_bytes());
    check_shown("extra data", &run(&["eth", "header", &hex::encode(block.header)]));
    // Keys that a filter is asked for.
    let filter = filter::built("terminal.filter", &["--kind", "fuse16"], text);
    let keys = folder.write("keys", text);
    shows(&["filter", "test", filter.path(), TEXT]);
    shows(&["filter", "test", filter.path(), "--file", &keys]);
}

/// Names of files may contain everything but a slash, and archives may bring them.
#[test]
fn of_a_name() {
    let folder = TestFolder::new("terminal-name");
    let header = hex::encode(&Block::both()[0].header);
    let logs = folder.write("logs.json", "[]");
    let key = format!("script:0014{}", "11".repeat(20));
    let file = folder.write(TEXT, "{]");
    for args in readers(&file, &logs, &header, &key) {
        shows(&args);
    }
    shows(&["man", &folder.file(&format!("{MARK}\nverified head: block 99999999")), "--force"]);
    for args in [
        &["eth", "scan", &header, "--query", TEXT][..],
        &["eth", "scan", &header, "--address", TEXT],
        &["eth", "scan", &header, TEXT],
        &["eth", "scan", &header, "--topic1", TEXT],
        &["eth", "scan", &header, "--event", TEXT],
        &["eth", "forecast", TEXT, "--address", WETH],
        &["btc", "match", TEXT, TEXT],
        &["btc", "bloom", "new", TEXT],
        &["btc", "watch", "--data", &logs, TEXT],
        &["btc", "sync", "--data", &logs, "--peer", TEXT],
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
    let folder = TestFolder::new("terminal-peer");
    let script = format!("script:0014{}", "11".repeat(20));
    for (at, (command, more)) in [
        ("sync", &["--network", "mainnet"][..]),
        ("watch", &["--network", "mainnet", "--once", &script]),
        ("watch", &["--network", "mainnet", "--once", "--from", "0", &script]),
    ]
    .into_iter()
    .enumerate()
    {
        for json in [&[][..], &["--json"]] {
            let peer = hostile_peer();
            let data = folder.file(&format!("{command}-{at}-{}", json.len()));
            let args = ["btc", command, "--peer", &peer, "--data", &data, "--give-up", "60"];
            let args = [&args[..], more, json].concat();
            let output = run(&args);
            let said = [": connected: \"h0stile", "with a wrong checksum"];
            assert!(said.iter().all(|said| output.stderr.contains(said)), "{}", output.stderr);
            check_shown(command, &output);
        }
    }
}

#[test]
fn of_a_client_of_our_node() {
    let folder = test_node::Folder::new(0..=1);
    for more in [&[][..], &["--json"]] {
        let args = ["btc", "test-node", folder.path(), "--network", "mainnet"];
        let args = [&args[..], &["--listen", "127.0.0.1:0"], more].concat();
        let mut client = None;
        shows_until(&args, |stdout| {
            let is_digit = |c: char| c.is_ascii_digit();
            let port = stdout.split_once("127.0.0.1:").map(|(_, after)| {
                after.split(|c| !is_digit(c)).next().unwrap_or_default().parse().expect("a port")
            });
            if let (None, Some(port)) = (&client, port) {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                client = Some(TcpStream::connect(address).expect("it listens"));
                greet_first(client.as_mut().expect("connected"));
            }
        });
    }
}

/// Says hello as the side that opened the connection.
fn greet_first(stream: &mut TcpStream) {
    let nowhere = p2p::Address::new(&SocketAddr::from(([0, 0, 0, 0], 0)), ServiceFlags::NONE);
    let version = NetworkMessage::Version(VersionMessage {
        version: 70_016,
        services: ServiceFlags::NONE,
        timestamp: 0,
        receiver: nowhere.clone(),
        sender: nowhere,
        nonce: 7,
        user_agent: TEXT.into(),
        start_height: 0,
        relay: true,
    });
    write_message(stream, Magic::BITCOIN, version).expect("it reads");
    write_message(stream, Magic::BITCOIN, NetworkMessage::Verack).expect("it reads");
    stream.write_all(&named_by_the_text()).expect("it reads");
}
