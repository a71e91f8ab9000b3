//! Tests of `btc watch` with peers that it can't use.

#![cfg(unix)]

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{Network, ScriptBuf};
use chainsieve::btc::headers::HeaderRules;
use chainsieve::btc::server::ServedChain;
use chainsieve_client::NetworkParams;
use chainsieve_client::peers::frame::{read_message, write_message};
use chainsieve_client::testnode::NodeBuilder;
use serde_json::Value;
use testkit::TestFolder;

use super::test_node::{Folder, Server};
use super::{Output, UNDECIDED, USAGE, YES, run};

fn watch(data: &TestFolder, peers: &[String], options: &str) -> Output {
    watch_script(data, peers, options, 0x11)
}

fn watch_script(data: &TestFolder, peers: &[String], options: &str, byte: u8) -> Output {
    let fixed = "btc watch --json --network mainnet --minimum-work 0 --data";
    let script = format!("script:0014{}", hex::encode([byte; 20]));
    let mut args: Vec<&str> = fixed.split(' ').collect();
    args.push(data.path().to_str().expect("UTF-8"));
    args.extend(peers.iter().flat_map(|peer| ["--peer", peer]));
    args.extend(options.split(' ').filter(|word| !word.is_empty()));
    args.push(&script);
    run(&args)
}

fn end(output: &Output) -> Value {
    let last = output.stdout.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

/// The only connection slot is taken by a node without compact filters.
#[test]
fn a_peer_of_no_use_makes_room() {
    let folder = Folder::new(0..=20);
    let servers = [Server::start(&folder, &["--no-bip157"]), Server::start(&folder, &[])];
    let peers = servers.each_ref().map(|server| server.address.to_string());
    let data = TestFolder::absent("room");
    let output = watch(&data, &peers, "--once --max-peers 1 --give-up 60").exits(YES);
    let end = end(&output);
    assert_eq!((&end["ended"], &end["answered_to"]), (&"caught_up".into(), &20.into()));
}

/// A user who adds an item is told that the scan begins at the birthday again.
#[test]
fn another_set_of_items_starts_over_and_says_so() {
    let folder = Folder::new(0..=20);
    let server = Server::start(&folder, &[]);
    let (peers, data) = ([server.address.to_string()], TestFolder::absent("set"));
    for (byte, is_told) in [(0x11, false), (0x11, false), (0x22, true), (0x22, false)] {
        let output = watch_script(&data, &peers, "--once --give-up 60", byte).exits(YES);
        assert_eq!(output.stderr.contains("note: no earlier run"), is_told, "{}", output.stderr);
    }
}

/// The command must also end without `--once`; otherwise it would wait for ever.
#[test]
fn a_watch_ends_when_every_peer_is_banned() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer = listener.local_addr().expect("bound").to_string();
    let garbage = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it calls");
        let said = read_message(&mut stream, Magic::BITCOIN).expect("a message");
        let NetworkMessage::Version(mut version) = said else { panic!("{said:?}") };
        // With the client's own nonce in the version message, the client would detect a connection
        // to itself.
        version.nonce ^= 1;
        let version = NetworkMessage::Version(version);
        write_message(&mut stream, Magic::BITCOIN, version).expect("it reads");
        stream.write_all(b"HTTP/1.1 400 Bad Request").expect("it reads");
        // Wait until the client has closed the connection.
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
    });
    let data = TestFolder::absent("banned");
    let output = watch(&data, &[peer], "").exits(UNDECIDED);
    assert_eq!(end(&output)["warnings"][1], "gave up: every peer is banned");
    garbage.join().expect("it ends");
}

/// The magic of a custom signet comes from its challenge, and a block time is for such a signet.
#[test]
fn a_custom_signet_is_named_by_its_challenge() {
    let challenge = "51";
    let rules = HeaderRules::new(Network::Signet, 30).expect("a signet");
    let node = NodeBuilder::new(ServedChain::new(rules, true))
        .magic(NetworkParams::signet(&ScriptBuf::from_hex(challenge).expect("hex")).magic)
        .start()
        .expect("a port");
    let (peer, data) = (node.address().to_string(), TestFolder::absent("signet"));
    let folder = data.path().to_str().expect("UTF-8");
    let sync = |options: &str| {
        let fixed = ["btc", "sync", "--json", "--give-up", "60", "--data", folder, "--peer", &peer];
        let fixed = [&fixed[..], &["--minimum-work", "0"]].concat();
        let options = options.split(' ').filter(|word| !word.is_empty());
        run(&fixed.into_iter().chain(options).collect::<Vec<_>>())
    };
    let own = format!("--network signet --signet-challenge {challenge} --signet-block-time 30");
    let output = sync(&own).exits(YES);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["peers"][0]["state"], "connected");
    for options in [
        "--network signet --signet-block-time 30",
        "--signet-challenge 51",
        "--network signet --signet-challenge 5g",
        "--network signet --signet-challenge 51 --signet-block-time 0",
        "--network signet --signet-challenge 51 --signet-block-time 1209601",
    ] {
        assert_eq!(sync(options).code, USAGE, "{options}");
    }
}
