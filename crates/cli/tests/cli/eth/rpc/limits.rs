//! Providers with limits, and providers that fail temporarily.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::http;
use super::*;

fn number(value: &Value) -> u64 {
    u64::from_str_radix(&text(value)[2..], 16).expect("a number")
}

/// Returns the block ranges of the `eth_getLogs` calls by number.
fn ranges(server: &Server) -> Vec<(u64, u64)> {
    let calls = server.params("eth_getLogs");
    calls.iter().map(|call| (number(&call[0]["fromBlock"]), number(&call[0]["toBlock"]))).collect()
}

/// Runs an audit of the two real blocks and forty empty ones after them.
fn long_audit(server: &Server, more: &[&str]) -> Value {
    let end = Chain::real_and(40).last().hash.clone();
    let url = server.url();
    let mut args = vec!["eth", "audit", "--rpc", &url, "--from", "17686111", "--anchor", &end];
    args.extend(QUERY);
    args.extend(["--json"]);
    args.extend(more);
    let output = discreet(&args).exits(YES);
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((&json["logs"], &json["last"]), (&json!(7), &json!(17_686_152)));
    json
}

/// The block ranges of requests adapt to the limits that providers report, each in its own words.
#[test]
fn windows_shrink_to_what_a_provider_takes() {
    type Words = fn(u64, u64) -> Value;
    // Words and codes of more providers are those of the library's tests.
    let providers: [(&str, Words, u64); 4] = [
        ("reth", |_, _| error(-32602, "query exceeds max block range 10"), 10),
        ("a wrong number", |_, _| error(-32000, "exceed maximum block range: 5000"), 10),
        ("code alone", |_, _| error(-32005, "Limit exceeded"), 10),
        (
            "alchemy",
            |from, _| {
                let range = format!("[{from:#x}, {:#x}]", from + 6);
                let words = "Log response size exceeded. this block range should work: ";
                error(-32602, &format!("{words}{range}"))
            },
            10,
        ),
    ];
    for (name, words, most) in providers {
        let server = provider(Chain::real_and(40), move |_, method, params| {
            if method != "eth_getLogs" {
                return None;
            }
            let (from, to) = (number(&params[0]["fromBlock"]), number(&params[0]["toBlock"]));
            (to - from + 1 > most).then(|| Err(words(from, to)))
        });
        long_audit(&server, &[]);
        // The ranges that the provider accepted cover each block once and in order.
        let mut next = 17_686_111;
        let ranges = ranges(&server);
        for &(from, to) in ranges.iter().filter(|(from, to)| to - from < most) {
            assert_eq!(from, next, "{name}: {ranges:?}");
            next = to + 1;
        }
        assert_eq!(next, 17_686_153, "{name}");
        assert!(ranges.len() < 30, "{name}: {ranges:?}");
    }
    let server = honest(Chain::real_and(40));
    long_audit(&server, &["--rpc-log-range", "12"]);
    let lengths: Vec<u64> = ranges(&server).iter().map(|(from, to)| to - from + 1).collect();
    assert_eq!(lengths, [12, 12, 12, 6]);
}

#[test]
fn a_limit_that_one_block_passes_is_said() {
    let server = provider(Chain::real_and(0), |_, method, _| {
        let words = "query returned more than 10000 results";
        (method == "eth_getLogs").then(|| Err(error(-32005, words)))
    });
    let words = ["eth_getLogs", "at most 10000 logs", "query returned more than 10000 results"];
    audit_fails(&server, &["--anchor", &anchor()], BAD_INPUT, &words);
    assert_eq!(ranges(&server), [(17_686_111, 17_686_112), (17_686_111, 17_686_111)]);
}

/// Batches adapt to the size that a provider accepts, down to single calls.
#[test]
fn batches_shrink_to_what_a_provider_takes() {
    type Refusal = fn(usize) -> Sent;
    let providers: [(&str, Refusal, usize); 6] = [
        (
            "geth",
            |_| {
                Sent::Json(
                    json!([{ "jsonrpc": "2.0", "id": null, "error": error(-32600, "batch too large") }]),
                )
            },
            16,
        ),
        (
            "jsonrpsee",
            |_| {
                let mut error = error(-32010, "The batch request was too large");
                error["data"] = json!("Exceeded max limit of 7");
                Sent::Json(json!({ "jsonrpc": "2.0", "id": null, "error": error }))
            },
            7,
        ),
        (
            "one error for all",
            |_| {
                Sent::Json(
                    json!({ "jsonrpc": "2.0", "id": null, "error": error(-32700, "parse error") }),
                )
            },
            1,
        ),
        ("status 413", |_| Sent::Status(413, "", "<html>".into()), 5),
        ("status 400", |_| Sent::Status(400, "", "no batches".into()), 1),
        (
            "one reply to the whole batch",
            |_| Sent::Json(json!({ "jsonrpc": "2.0", "id": 1, "result": null })),
            1,
        ),
    ];
    for (name, refusal, most) in providers {
        let chain = Chain::real_and(40);
        let server = Server::start(move |post| match post.body.as_array() {
            Some(calls) if calls.len() > most => refusal(calls.len()),
            _ => Sent::Json(replies(&post.body, |method, params| chain.answer(method, params))),
        });
        long_audit(&server, &["--parallel", "1"]);
        let sizes: Vec<usize> =
            server.posts().iter().filter_map(|post| post.as_array().map(Vec::len)).collect();
        assert!(sizes.iter().any(|&size| size > most), "{name}: {sizes:?}");
        assert!(sizes.iter().filter(|&&size| size > most).count() <= 6, "{name}: {sizes:?}");
    }
}

#[test]
fn answers_of_a_batch_come_in_any_order() {
    let chain = Chain::real_and(40);
    let server = Server::start(move |post| {
        let mut replies = replies(&post.body, |method, params| chain.answer(method, params));
        replies.as_array_mut().into_iter().for_each(|replies| replies.reverse());
        Sent::Json(replies)
    });
    long_audit(&server, &[]);
    let chain = Chain::real_and(0);
    let server = Server::start(move |post| {
        let mut replies = replies(&post.body, |method, params| chain.answer(method, params));
        // Some nodes return the id as a string.
        for reply in replies.as_array_mut().into_iter().flatten() {
            reply["id"] = json!(reply["id"].to_string());
        }
        Sent::Json(replies)
    });
    audit(&[&server], &["--anchor", &anchor()], YES);
}

/// Every request fails once, in one of these ways, and is sent again.
#[test]
fn what_may_pass_is_tried_again() {
    let failures: [fn(&Post) -> Sent; 8] = [
        |_| Sent::Status(429, "Retry-After: 0\r\n", "slow down".into()),
        |_| Sent::Status(503, "Retry-After: 0\r\n", String::new()),
        |_| Sent::Status(500, "", "<html>".into()),
        |_| Sent::Bytes(Vec::new()),
        |_| {
            let whole = http(200, "", &[b' '; 200]);
            Sent::Bytes(whole[..whole.len() - 100].to_vec())
        },
        |post| {
            let slow = |_: &str, _: &Value| Err(error(-32005, "rate limit exceeded, retry in 1ms"));
            Sent::Json(replies(&post.body, slow))
        },
        |post| Sent::Json(replies(&post.body, |_, _| Err(error(-32603, "internal error")))),
        |_| {
            let error = error(429, "Your app has exceeded its compute units per second capacity.");
            let json = json!({ "jsonrpc": "2.0", "error": error });
            Sent::Status(429, "Retry-After: 0\r\n", json.to_string())
        },
    ];
    let chain = Chain::real_and(0);
    let turn = AtomicUsize::new(0);
    let seen = std::sync::Mutex::new(HashSet::new());
    let server = Server::start(move |post| {
        let mut body = post.body.clone();
        // Recognise a repeated call, whatever its id is.
        match &mut body {
            Value::Array(calls) => {
                for call in calls {
                    call["id"] = Value::Null;
                }
            }
            call => call["id"] = Value::Null,
        }
        if seen.lock().expect("no panic").insert(body.to_string()) {
            let failure = turn.fetch_add(1, Ordering::SeqCst);
            return failures[failure % failures.len()](post);
        }
        Sent::Json(replies(&post.body, |method, params| chain.answer(method, params)))
    });
    let json = audit(&[&server], &["--anchor", &anchor(), "--retries", "2"], YES);
    assert_eq!(json["blocks"]["checked_by_receipts"], 2);
}

#[test]
fn a_node_that_lags_is_asked_again() {
    let times = AtomicUsize::new(0);
    let server = provider(Chain::real_and(3), move |_, method, params| {
        let lags = method == "eth_getBlockByNumber"
            && text(&params[0]) == "0x10dde60"
            && times.fetch_add(1, Ordering::SeqCst) == 0;
        lags.then_some(Ok(Value::Null))
    });
    audit(&[&server], &["--anchor", &anchor()], YES);
}

/// An operator whose node hangs sees what the endpoint waits for.
#[test]
fn eth_serve_names_the_nodes_that_it_waits_for() {
    // The system accepts connections, and nobody answers.
    let hung = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", hung.local_addr().expect("bound"));
    let args = ["eth", "serve", "--trust-head", "--listen", "127.0.0.1:0", "--rpc", &url];
    let output = run(&[&args[..], &["--timeout", "1", "--retries", "1"]].concat()).exits(BAD_INPUT);
    let lines: Vec<_> = output.stderr.lines().collect();
    let [asks, waits, error] = &lines[..] else { panic!("{lines:?}") };
    assert!(asks.ends_with(&format!("note: asking which chain it is: {url}")), "{asks}");
    assert!(waits.contains("no complete answer") && waits.ends_with("asked again"), "{waits}");
    assert!(error.starts_with("error: eth_chainId"), "{error}");
}
