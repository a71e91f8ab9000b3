//! Malformed answers of providers: each is refused with an error that describes it, and no secret
//! is shown.

use super::server::http;
use super::*;

/// The CRC-32 of gzip (RFC 1952, section 8).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

/// Returns a gzip file that contains the bytes uncompressed.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut chunks = bytes.chunks(0xffff).peekable();
    while let Some(chunk) = chunks.next() {
        let length = u16::try_from(chunk.len()).expect("short");
        file.push(u8::from(chunks.peek().is_none()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(chunk);
    }
    file.extend(crc32(bytes).to_le_bytes());
    file.extend(u32::try_from(bytes.len()).expect("short").to_le_bytes());
    file
}

#[test]
fn compressed_answers_are_read() {
    let chain = Chain::real_and(0);
    let server = Server::start(move |post| {
        let asked = post.head.to_ascii_lowercase();
        assert!(asked.contains("accept-encoding: gzip"), "{asked}");
        let json = replies(&post.body, |method, params| chain.answer(method, params)).to_string();
        Sent::Bytes(http(200, "Content-Encoding: gzip\r\n", &gzip(json.as_bytes())))
    });
    audit(&[&server], &["--anchor", &anchor()], YES);
    let broken = Server::start(|_| {
        let mut file = gzip(b"{}");
        let end = file.len() - 6;
        file[end] ^= 1;
        Sent::Bytes(http(200, "Content-Encoding: gzip\r\n", &file))
    });
    audit_fails(&broken, &[], BAD_INPUT, &["eth_chainId"]);
}

/// Returns a server that sends what `serve` returns; if `serve` returns `None`, the server sends
/// the true answer.
fn audit_of(serve: impl Fn(&Post) -> Option<Sent> + Send + Sync + 'static) -> Server {
    let chain = Chain::real_and(0);
    Server::start(move |post| {
        serve(post).unwrap_or_else(|| {
            Sent::Json(replies(&post.body, |method, params| chain.answer(method, params)))
        })
    })
}

#[test]
fn what_is_no_answer_is_refused() {
    type Answer = fn(&Post) -> Sent;
    let answers: [(&str, Answer, &str); 15] = [
        ("no JSON", |_| Sent::Bytes(http(200, "", b"<html>welcome</html>")), "not JSON-RPC"),
        ("nothing", |_| Sent::Bytes(http(200, "", b"")), "not JSON-RPC"),
        ("no UTF-8", |_| Sent::Bytes(http(200, "", b"{\"id\":\"\xff\"}")), "not UTF-8"),
        ("an empty object", |_| Sent::Json(json!({})), "another id"),
        ("a list", |_| Sent::Json(json!([])), "not JSON-RPC"),
        (
            "another id",
            |post| {
                let id = post.body["id"].as_u64().expect("a number") + 1;
                Sent::Json(json!({ "jsonrpc": "2.0", "id": id, "result": "0x1" }))
            },
            "another id",
        ),
        (
            "neither",
            |post| Sent::Json(json!({ "id": post.body["id"] })),
            "neither a result nor an error",
        ),
        (
            "a wrong type",
            |post| Sent::Json(json!({ "id": post.body["id"], "result": [1] })),
            "eth_chainId",
        ),
        (
            "a secret that a parser would quote",
            |post| {
                let line = post.head.lines().next().unwrap_or_default();
                let long = format!("{line}{}", "x".repeat(1 << 20));
                Sent::Json(json!({ "id": post.body["id"], "result": long }))
            },
            "eth_chainId",
        ),
        (
            "two ids",
            |post| {
                let id = &post.body["id"];
                Sent::Bytes(http(
                    200,
                    "",
                    format!("{{\"id\":{id},\"id\":{id},\"result\":\"0x1\"}}").as_bytes(),
                ))
            },
            "duplicate field",
        ),
        ("depth", |_| Sent::Bytes(http(200, "", "[".repeat(1 << 20).as_bytes())), "not JSON-RPC"),
        (
            "depth within",
            |post| {
                let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
                let json = format!("{{\"id\":{},\"result\":{deep}}}", post.body["id"]);
                Sent::Bytes(http(200, "", json.as_bytes()))
            },
            "eth_chainId",
        ),
        (
            "a redirect",
            |_| Sent::Status(302, "Location: http://127.0.0.1:1/\r\n", String::new()),
            "HTTP status 302",
        ),
        (
            "not allowed",
            |post| {
                // The provider repeats the request, which contains the secret.
                Sent::Status(401, "", format!("no such key: {}", post.head))
            },
            "HTTP status 401",
        ),
        ("no HTTP", |_| Sent::Bytes(b"SSH-2.0-x\r\n\r\n".to_vec()), "not HTTP"),
    ];
    for (name, answer, words) in answers {
        let server = audit_of(move |post| Some(answer(post)));
        let output = discreet(&audit_args(&[server.url()], &[]));
        assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""), "{name}");
        assert!(output.stderr.contains(words), "{name}: {}", output.stderr);
        assert!(output.stderr.contains(&server.host()), "{name}: {}", output.stderr);
        assert!(output.stderr.len() < 1000, "{name}: {}", output.stderr);
    }
}

/// A node whose errors repeat the URL and its parts, and contain terminal control characters.
#[test]
fn a_nodes_words_hold_no_secret() {
    let server = audit_of(|post| {
        let line = post.head.lines().next().unwrap_or_default().to_owned();
        let basic = post.head.lines().find(|line| line.to_ascii_lowercase().contains("basic "));
        let words = format!(
            "invalid key {SECRET}2 or {SECRET}3 of user:{SECRET}1 at {line}, {}\x1b[31m",
            basic.unwrap_or("no authorization")
        );
        Some(Sent::Json(replies(&post.body, |_, _| Err(error(-32000, &words)))))
    });
    let urls = [server.url()];
    let header = format!("X-Key: {SECRET}4");
    let output = discreet(&audit_args(&urls, &["--rpc-header", &header]));
    assert!(output.stderr.contains("invalid key … or … of …"), "{}", output.stderr);
    assert!(output.stderr.contains("\\u{1b}[31m"), "{}", output.stderr);
    assert!(!output.stderr.contains("dXNlcjpT"), "the encoded user: {}", output.stderr);
    let post = &server.posts()[0];
    assert_eq!(post["method"], "eth_chainId");
}

#[test]
fn headers_of_the_user_are_sent() {
    let server = audit_of(|post| {
        let head = post.head.to_ascii_lowercase();
        let has = |line: &str| head.contains(&line.to_ascii_lowercase());
        // The user and the secret of the URL, encoded as in RFC 7617.
        let basic = has("authorization: Basic dXNlcjpT");
        (!basic || !has(&format!("x-key: {SECRET}4")) || !has("post /v3/"))
            .then(|| Sent::Status(403, "", String::new()))
    });
    let header = format!("X-Key: {SECRET}4");
    audit(&[&server], &["--anchor", &anchor(), "--rpc-header", &header], YES);
    audit_fails(&server, &[], BAD_INPUT, &["HTTP status 403"]);
}

/// Returns a server that changes the replies to batches.
fn of_batches(change: impl Fn(&mut Vec<Value>) + Send + Sync + 'static) -> Server {
    let chain = Chain::real_and(0);
    Server::start(move |post| {
        let mut replies = replies(&post.body, |method, params| chain.answer(method, params));
        replies.as_array_mut().into_iter().for_each(&change);
        Sent::Json(replies)
    })
}

#[test]
fn batches_must_be_answered_call_by_call() {
    type Change = fn(&mut Vec<Value>);
    let changes: [(&str, Change, &str); 4] = [
        ("one is missing", |replies| drop(replies.pop()), "not answered"),
        ("two of one", |replies| replies[1] = replies[0].clone(), "two answers to one call"),
        ("another id", |replies| replies[1]["id"] = json!(1_000_000), "an id that no call has"),
        ("one more", |replies| replies.push(replies[0].clone()), "a list of more than 2"),
    ];
    for (name, change, words) in changes {
        let server = of_batches(change);
        let output = discreet(&audit_args(&[server.url()], &["--anchor", &anchor()]));
        assert_eq!(output.code, BAD_INPUT, "{name}: {}", output.stdout);
        assert!(output.stderr.contains(words), "{name}: {}", output.stderr);
        assert!(output.stderr.contains("headers, http://"), "{name}: {}", output.stderr);
    }
}

#[test]
fn headers_that_are_not_the_chains_are_refused() {
    type Lie = fn(&Chain, &Value) -> Option<Answer>;
    let lies: [(&str, Lie, &str); 4] = [
        (
            "a field is changed",
            |chain, params| {
                let mut block = chain.answer("eth_getBlockByNumber", params).expect("it answers");
                block["gasUsed"] = json!("0x1");
                Some(Ok(block))
            },
            "the claimed hash is",
        ),
        (
            "another block",
            |chain, _| Some(chain.answer("eth_getBlockByNumber", &json!(["0x10dde5f", false]))),
            "the answer is that of block 17686111",
        ),
        ("none", |_, _| Some(Ok(Value::Null)), "does not have block 17686112"),
        ("no object", |_, _| Some(Ok(json!("0x"))), "block 17686112"),
    ];
    for (name, lie, words) in lies {
        let server = provider(Chain::real_and(2), move |chain, method, params| {
            (method == "eth_getBlockByNumber" && params[0] == "0x10dde60")
                .then(|| lie(chain, params))
                .flatten()
        });
        let output = discreet(&audit_args(&[server.url()], &["--anchor", &anchor()]));
        assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""), "{name}");
        assert!(output.stderr.contains(words), "{name}: {}", output.stderr);
    }
    // On every attempt, the provider returns a header with the right number but another parent.
    let forked = provider(Chain::real_and(2), |chain, method, params| {
        let stranger = chain::child(&chain::child(&chain.blocks[0], "x"), "y");
        (method == "eth_getBlockByNumber" && params[0] == "0x10dde61")
            .then(|| Ok(write::rpc_header(&stranger.header)))
    });
    let end = Chain::real_and(2).last().hash.clone();
    audit_fails(
        &forked,
        &["--anchor", &end],
        UNDECIDED,
        &["6 times in a row", "the parent of block 17686113", "fetched again"],
    );
}

/// Returns `true` if the value names the second block, by hash or by number.
fn of_second(block: &Value) -> bool {
    text(block) == anchor() || block == "0x10dde60"
}

#[test]
fn receipts_that_are_not_the_blocks_leave_it_undecided() {
    type Lie = fn(&mut Vec<Value>);
    let lies: [(&str, Lie, &str); 3] = [
        ("one less", |receipts| drop(receipts.pop()), "root"),
        ("one twice", |receipts| receipts[1] = receipts[0].clone(), "duplicate"),
        ("no list of logs", |receipts| receipts[0]["logs"] = json!({}), "logs"),
    ];
    for (name, lie, words) in lies {
        let server = provider(Chain::real_and(0), move |chain, method, params| {
            if method == "eth_getTransactionReceipt" {
                return Some(Err(error(-32601, "method not found")));
            }
            (method == "eth_getBlockReceipts" && of_second(&params[0])).then(|| {
                let mut receipts = chain.answer(method, params)?;
                lie(receipts.as_array_mut().expect("a list"));
                Ok(receipts)
            })
        });
        let json = audit(&[&server], &["--anchor", &anchor()], UNDECIDED);
        assert_eq!(
            json["undecided"],
            json!([{ "number": 17_686_112, "why": "receipts_not_supplied" }])
        );
        assert_eq!(json["wanted"][0]["hash"], json!(anchor()));
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains(words), "{name}: {warnings}");
        assert!(warnings.contains("receipts of block 17686112"), "{name}: {warnings}");
    }
    let none = provider(Chain::real_and(0), |_, method, params| {
        (method == "eth_getBlockReceipts" && of_second(&params[0]))
            .then_some(Ok(Value::Null))
            .or((method == "eth_getTransactionReceipt").then_some(Ok(Value::Null)))
    });
    let json = audit(&[&none], &["--anchor", &anchor()], UNDECIDED);
    assert!(json["warnings"].to_string().contains("the node does not have the receipts"), "{json}");
}

#[test]
fn a_provider_that_does_not_answer_is_given_up() {
    let silent = Server::start(|_| Sent::Nothing);
    let words =
        ["eth_chainId", "no complete answer within 1 s", "2 times in a row", "http://127.0.0.1"];
    audit_fails(&silent, &["--timeout", "1"], BAD_INPUT, &words);
    assert_eq!(silent.posts().len(), 2);
    let dies = audit_of(|post| {
        (post.body["method"] == "eth_getBlockReceipts").then(|| {
            // Nothing that has come is wrong: only the end is missing.
            let whole = http(200, "", &[b' '; 5000]);
            Sent::Bytes(whole[..whole.len() - 1].to_vec())
        })
    });
    let words = ["receipts of block 1768611", "ended too early, 2 times in a row"];
    audit_fails(&dies, &["--anchor", &anchor()], BAD_INPUT, &words);
    let busy = Server::start(|_| Sent::Status(429, "Retry-After: 0\r\n", String::new()));
    audit_fails(&busy, &["--retries", "3"], BAD_INPUT, &["too many requests", "4 times in a row"]);
    assert_eq!(busy.posts().len(), 4);
}

/// Missing receipts do not hide what other receipts prove.
#[test]
fn what_is_proven_is_said_though_some_receipts_do_not_come() {
    let chain = Chain::real_and(0);
    let silent = |omits: usize| {
        let chain = Chain::real_and(0);
        audit_of(move |post| {
            let call = &post.body;
            let of_block =
                call["method"] == "eth_getBlockReceipts" && of_second(&call["params"][0]);
            if of_block || call.to_string().contains("eth_getTransactionReceipt") {
                return Some(Sent::Status(503, "", String::new()));
            }
            let answer = |method: &str, params: &Value| match method {
                "eth_getLogs" => Ok(json!(answer()[omits..])),
                _ => chain.answer(method, params),
            };
            Some(Sent::Json(replies(call, answer)))
        })
    };
    for (omits, status, code) in [(1, "wrong", WRONG), (0, "undecided", UNDECIDED)] {
        let json = audit(&[&silent(omits)], &["--anchor", &chain.last().hash], code);
        assert_eq!(json["status"], status);
        let undecided = json!([{ "number": 17_686_112, "why": "receipts_not_supplied" }]);
        assert_eq!(json["undecided"], undecided);
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains("HTTP status 503"), "{warnings}");
        assert!(warnings.contains("receipts of 1 block are missing"), "{warnings}");
    }
}

/// Starts a program that listens as a proxy, and records the start of each connection.
fn proxy() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let (noted, begins) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut begin = String::new();
            let mut reader = std::io::BufReader::new(&mut stream);
            while !begin.ends_with("\r\n\r\n")
                && std::io::BufRead::read_line(&mut reader, &mut begin).is_ok_and(|read| read > 0)
            {
            }
            if noted.send(begin).is_err() {
                return;
            }
            drop(stream.write_all(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    (address, begins)
}

/// Runs an audit with a proxy in the environment.
fn audit_by_proxy(url: &str, proxy: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve"));
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        command.env(name, format!("http://{proxy}")).env_remove(name.to_ascii_lowercase());
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    let urls = [url.to_owned()];
    let anchor = anchor();
    let more = ["--anchor", &anchor, "--retries", "0"];
    let output = command.args(audit_args(&urls, &more)).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(!stderr.contains(SECRET), "{stderr}");
    Output { code: output.status.code().expect("no signal"), stdout, stderr }
}

#[test]
fn a_proxy_gets_no_key_of_this_machine_and_of_others_it_is_said() {
    let (address, begins) = proxy();
    let server = audit_of(|_| None);
    let output = audit_by_proxy(&server.url(), &address).exits(YES);
    assert!(!output.stderr.contains("proxy"), "{}", output.stderr);
    assert!(begins.try_recv().is_err(), "nothing went through it");
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://provider.invalid/v3/{SECRET}2");
        let output = audit_by_proxy(&url, &address);
        assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""));
        let begin = begins.recv_timeout(std::time::Duration::from_mins(1)).expect("it went there");
        assert!(begin.starts_with("CONNECT provider.invalid:"), "{begin}");
        assert!(!begin.contains(SECRET), "{begin}");
        let is_said = output.stderr.contains("through the proxy of the environment");
        assert_eq!(is_said, scheme == "http", "{}", output.stderr);
    }
}
