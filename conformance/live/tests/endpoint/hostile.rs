//! Hostile clients and hostile nodes at once: the command stays within its memory, and every question of an
//! honest client is answered.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chainsieve_conformance::serve::json_rpc::Fate;
use serde_json::json;
use testkit::Rng;
use testkit::eth::raw_client::{WebSocket, ask_from, call, connect_from, post};

use super::lies::{cut, endless};
use super::truth::{Truth, check};
use super::{Endpoint, plain, questions};
use crate::ethereum::Step;
use crate::harness::{Scene, rpc_proxy};

/// The client whose questions must be answered, and those that misbehave.
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HOSTILE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4), Ipv4Addr::new(127, 0, 0, 5)];
/// Connections that a hostile client holds open.
const HELD: usize = 40;
/// Maximum resident size of the command in MiB: its budgets, answers of nodes, and the program itself.
const MOST: u64 = 512;

/// Returns the time that the hostile clients have: some seconds, unless the environment says more.
fn duration() -> Duration {
    let seconds = std::env::var("CHAINSIEVE_HOSTILE_SECONDS");
    Duration::from_secs(seconds.map_or(10, |text| text.parse().expect("a number of seconds")))
}

pub(super) fn all_at_once(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 51);
    // Nodes that never answer, are slow, answer that there are too many requests, answer without an end, and
    // leave logs out; and the honest one.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hung = format!("http://{}", silent.local_addr().expect("bound"));
    thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    let slow = rpc_proxy(node.rpc(), |_, _, _| {
        thread::sleep(Duration::from_millis(200));
        Fate::Answered
    });
    let limited = rpc_proxy(node.rpc(), |_, _, _| Fate::Status(429));
    let (endless, liar) = (endless(), cut(node.rpc(), 1));
    let (slow, limited, liar) = (slow.url(), limited.url(), liar.url());
    let mut more = vec!["--trust-head", "--timeout", "2", "--retries", "0"];
    for url in [&limited, &slow, &endless, &liar, node.rpc().url()] {
        more.extend(["--rpc", url]);
    }
    more.extend(["--memory", "32", "--answer-memory", "64", "--filter-memory", "16"]);
    more.extend([
        "--max-calls",
        "32",
        "--max-calls-of-client",
        "8",
        "--max-filters-of-client",
        "100",
    ]);
    more.extend(["--request-timeout", "5", "--max-wait", "60"]);
    let endpoint = Endpoint::start(scene, &hung, &more);
    endpoint.until_ready();
    endpoint.until_head(&node);
    let address: SocketAddr =
        endpoint.http().trim_start_matches("http://").parse().expect("an address");

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<u64>> = HOSTILE
        .into_iter()
        .zip(1..)
        .map(|(client, seed)| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || misbehave(client, address, seed, &stop))
        })
        .collect();
    let (began, mut answered, mut rounds) = (Instant::now(), 0, 0);
    while began.elapsed() < duration() || rounds < 1 {
        let truth = Truth::of(&node);
        for (method, params, right) in plain::all(&truth, &questions::filters(&truth, &chain)) {
            let answer = ask_from(HONEST, address, method, &params).expect("an answer");
            assert!(answer["error"].is_null(), "{method} {params}: {answer}");
            check(&format!("{method} {params}"), &answer["result"], &right);
            answered += 1;
        }
        chain.mine(&node, Step::Several(2));
        endpoint.until_head(&node);
        rounds += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let acts: Vec<u64> =
        clients.into_iter().map(|client| client.join().expect("no panic")).collect();
    assert!(acts.iter().all(|acts| *acts > 0), "{acts:?}");
    let reached = endpoint.metric("chainsieve_limits_reached_total");
    println!("{answered} honest answers beside {acts:?} acts; limits were reached {reached} times");
    if let Some((peak, _)) = endpoint.running.memory() {
        println!("the largest resident size is {} MiB", peak >> 10);
        assert!(peak >> 10 < MOST, "{} MiB", peak >> 10);
    }
    endpoint.end();
}

/// Does all that a client should not do, until it is told to stop. Returns how often.
fn misbehave(client: Ipv4Addr, server: SocketAddr, seed: u64, stop: &AtomicBool) -> u64 {
    let mut rng = Rng::new(seed);
    let everything = json!([{ "fromBlock": "earliest", "toBlock": "latest" }]);
    let (mut held, mut acts) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let mut stream = connect_from(client, server);
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a time");
        // The endpoint may close any of these connections at any time.
        let _: Result<(), std::io::Error> = match rng.below(7) {
            // Reads no answer.
            0 => post(&mut stream, &call("eth_getLogs", &everything)),
            1 => {
                let calls = vec![call("eth_getLogs", &everything); 1000];
                post(&mut stream, &format!("[{}]", calls.join(",")))
            }
            // Sends half a request.
            2 => stream.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nContent-Type: application/json\r\n\r\n[1"),
            // Hangs up.
            3 => {
                let asked = post(&mut stream, &call("eth_getLogs", &everything));
                drop(stream);
                acts += 1;
                drop(asked);
                continue;
            }
            // Installs filters of its own, and many.
            4 => {
                let topics: Vec<String> =
                    (0..500).map(|_| format!("0x{:064x}", rng.u64())).collect();
                post(&mut stream, &call("eth_newFilter", &json!([{ "topics": [topics] }])))
            }
            // Subscribes, and reads nothing.
            5 => WebSocket::over(stream.try_clone().expect("a socket"), "http://localhost")
                .map_err(std::io::Error::other)
                .and_then(|mut socket| {
                    (0..100).try_for_each(|_| socket.send(&call("eth_subscribe", &json!(["logs", {}]))))
                }),
            // Begins a long message.
            _ => WebSocket::over(stream.try_clone().expect("a socket"), "http://localhost")
                .map_err(std::io::Error::other)
                .and_then(|mut socket| {
                    let head = [&[0x81, 0xff], &1_000_000_u64.to_be_bytes()[..], &[0; 4]].concat();
                    socket.0.write_all(&head)?;
                    socket.0.write_all(&vec![b' '; 200_000])
                }),
        };
        acts += 1;
        held.push(stream);
        if held.len() > HELD {
            held.swap_remove(rng.below(HELD));
        }
        thread::sleep(Duration::from_millis(5));
    }
    acts
}
