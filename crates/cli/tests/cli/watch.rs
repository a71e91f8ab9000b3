//! Tests of `btc watch` with peers that it can't use.

#![cfg(unix)]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve_client::net::frame::{read_message, write_message};
use serde_json::Value;

use super::serve::{Folder, Server};
use super::{Output, UNDECIDED, YES, run};

struct Data(PathBuf);

impl Data {
    fn new(name: &str) -> Self {
        let name = format!("chainsieve-watch-cli-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn watch(data: &Data, peers: &[String], options: &str) -> Output {
    let fixed = "btc watch --json --network mainnet --data";
    let script = format!("script:0014{}", "11".repeat(20));
    let mut args: Vec<&str> = fixed.split(' ').collect();
    args.push(data.0.to_str().expect("UTF-8"));
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
    let data = Data::new("room");
    let output = watch(&data, &peers, "--once --max-peers 1 --give-up 60");
    assert_eq!(output.code, YES, "{}", output.stderr);
    let end = end(&output);
    assert_eq!((&end["ended"], &end["answered_to"]), (&"caught_up".into(), &20.into()));
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
    let data = Data::new("banned");
    let output = watch(&data, &[peer], "");
    assert_eq!(output.code, UNDECIDED, "{}", output.stderr);
    assert_eq!(end(&output)["warnings"][1], "gave up: every peer is banned");
    garbage.join().expect("it ends");
}
