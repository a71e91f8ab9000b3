//! Audits of one provider, honest or not.

use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve::alloy_primitives::Log;
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log::LocatedLog;
use testkit::eth::log_lies::{Found, LIES, Place, tell};

use super::*;

#[test]
fn an_honest_provider_is_complete() {
    let server = honest(Chain::real_and(3));
    let json = audit(&[&server], &["--anchor", &anchor()], YES);
    assert_eq!((&json["status"], &json["logs"]), (&json!("complete"), &json!(7)));
    assert_eq!(json["blocks"]["checked_by_receipts"], 2);
    assert_eq!((&json["first"], &json["last"]), (&json!(17_686_111), &json!(17_686_112)));
    assert_eq!((&json["anchored_to"], &json["anchor_from"]), (&json!(17_686_112), &json!("user")));
    assert_eq!((&json["chain"], &json["chain_id"]), (&json!("ethereum"), &json!(1)));
    assert_eq!(json["provider"], json!({ "name": "A", "host": server.host() }));
    let provider = json!({ "name": "A", "host": server.host(), "receipts_of_blocks": 2 });
    assert_eq!(json["providers"], json!([provider]));
    assert_eq!(json["finalized"]["number"], 17_686_115);
    // The result is the same as that of an audit of files.
    let case = super::super::audit::Case::new("as-of-files");
    let more = ["--receipts", case.receipts.path(), "--anchor", &case.anchor];
    let files = case.audit_with(&answer(), &more, YES);
    for field in ["digest", "query", "examined", "findings", "blocks", "semantics", "wanted"] {
        assert_eq!(json[field], files[field], "{field}");
    }
    let urls = [server.url()];
    let page = discreet(&audit_args(&urls, &["--anchor", &anchor(), "--chain", "1"]));
    assert!(page.stdout.starts_with("complete: these are exactly the logs"), "{}", page.stdout);
    assert!(page.stdout.contains(&format!("A ({})", server.host())), "{}", page.stdout);
    assert!(page.stderr.contains("receipts of 2 blocks, about"), "{}", page.stderr);
}

#[test]
fn without_an_anchor_it_is_the_providers_own_word() {
    let server = honest(Chain::real_and(0));
    let json = audit(&[&server], &[], YES);
    assert_eq!((&json["anchored_to"], &json["anchor_from"]), (&Value::Null, &json!("provider")));
    assert_eq!(json["anchor"], json!({ "number": 17_686_112, "hash": anchor() }));
    assert!(text(&json["warnings"][0]).contains("the provider claims"), "{json}");
    let urls = [server.url()];
    let output = discreet(&audit_args(&urls, &[]));
    assert!(output.stderr.contains("\nwarning: no --anchor"), "{}", output.stderr);
    assert!(
        output.stdout.starts_with("complete if the provider's blocks are on the chain"),
        "{}",
        output.stdout
    );
    // Even without an anchor, an answer that contradicts the provider's own chain is proven wrong.
    let liar = provider(Chain::real_and(0), |_, method, _| {
        (method == "eth_getLogs").then(|| Ok(json!(answer()[1..])))
    });
    let json = audit(&[&liar], &[], WRONG);
    assert_eq!(kinds(&json), ["omitted_log"]);
}

/// Each lie about a log of the answer is found, as in the library's audits of the same lies.
#[test]
fn each_lie_is_found_and_named() {
    let read = |log: Value| serde_json::from_value::<LocatedLog>(log).expect("a log");
    let truth: Vec<_> = answer().into_iter().map(read).collect();
    let place = |block: &Block| {
        let header = HeaderView::decode(&block.header).expect("a header");
        Place { hash: header.hash(), number: header.number(), timestamp: header.timestamp() }
    };
    let blocks: Vec<_> = Block::both().iter().map(place).collect();
    let wanted = &truth[2].log;
    let wants = |log: &Log| {
        log.address == wanted.address && log.topics().starts_with(&wanted.topics()[..2])
    };
    let mut told_lies = 0;
    for lie in LIES {
        let told = tell(lie, &[2], &truth, &blocks, wants);
        if told.lies == 0 {
            continue;
        }
        told_lies += 1;
        let logs = json!(told.answer);
        let liar = provider(Chain::real_and(0), move |_, method, _| {
            (method == "eth_getLogs").then(|| Ok(logs.clone()))
        });
        let json = audit(&[&liar], &["--anchor", &anchor()], WRONG);
        let mut found = kinds(&json);
        found.sort_unstable();
        let mut expected: Vec<_> = told.expected.iter().map(Found::kind).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{lie:?}");
        for finding in json["findings"].as_array().expect("findings") {
            // Another fork, or a reorganisation, may be the reason for these.
            let is_proof = !["other_fork", "removed"].contains(&text(&finding["kind"]));
            let said = (&finding["proof"], &finding["provider"]);
            assert_eq!(said, (&json!(is_proof), &json!("A")), "{lie:?}");
        }
    }
    assert!(told_lies >= 14, "{told_lies}");
}

/// A node that takes blocks by number alone. Raw receipts and those of each transaction are asked for by the
/// library's tests.
#[test]
fn receipts_are_asked_for_by_number() {
    let server = provider(Chain::real_and(0), |_, method, params| {
        let is_refused = method == "eth_getBlockReceipts" && text(&params[0]).len() == 66;
        is_refused.then(|| Err(error(-32602, "invalid argument 0")))
    });
    let json = audit(&[&server], &["--anchor", &anchor()], YES);
    assert_eq!(json["blocks"]["checked_by_receipts"], 2);
    assert_eq!(server.params("eth_getTransactionReceipt"), Vec::<Value>::new());
}

#[test]
fn headers_come_raw_where_they_are_served() {
    let server = provider(Chain::real_and(4), |chain, method, params| {
        (method == "debug_getRawHeader").then(|| {
            let number = u64::from_str_radix(&text(&params[0])[2..], 16).expect("a number");
            let block = chain.blocks.iter().find(|block| block.number == number);
            Ok(json!(hex0x(&block.expect("one of the chain").header)))
        })
    });
    let end = Chain::real_and(4).last().hash.clone();
    let json = audit(&[&server], &["--anchor", &end, "--batch", "2"], YES);
    assert_eq!(json["anchored_to"], 17_686_116, "an anchor after the range");
    assert_eq!(json["last"], 17_686_112);
    let raw = server.params("debug_getRawHeader");
    assert_eq!(raw.len(), 6);
    for call in server.params("eth_getBlockByNumber") {
        assert!(["latest", "finalized", "0x10dde64"].contains(&text(&call[0])), "{call}");
    }
}

#[test]
fn a_range_ends_at_the_finalised_block() {
    let mut chain = Chain::real_and(10);
    chain.finalized = 17_686_112;
    let server = honest(chain);
    let url = server.url();
    let args = |more: &[&'static str]| {
        let mut args = vec!["eth", "audit", "--rpc", &url, "--from", "17686111"];
        args.extend(QUERY);
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |more: &[&'static str]| {
        let args = args(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        discreet(&args)
    };
    let json: Value = serde_json::from_str(&run(&["--json"]).stdout).expect("JSON");
    assert_eq!((&json["last"], &json["status"]), (&json!(17_686_112), &json!("complete")));
    assert_eq!(json["finalized"]["hash"], json!(anchor()));
    let above = run(&["--to", "17686115"]);
    assert_eq!((above.code, above.stdout.as_str()), (BAD_INPUT, ""));
    assert!(above.stderr.contains("after the finalised block, 17686112"), "{}", above.stderr);
    assert!(above.stderr.contains("--unfinalized"), "{}", above.stderr);
    let beyond = run(&["--to", "17686199", "--unfinalized"]);
    assert!(beyond.stderr.contains("beyond the head 17686122"), "{}", beyond.stderr);
    assert_eq!(run(&["--to", "17686199"]).code, BAD_INPUT);
    // After the finalised block, each block's logs are requested by block hash.
    let before = server.params("eth_getLogs").len();
    let json: Value =
        serde_json::from_str(&run(&["--unfinalized", "--json"]).stdout).expect("JSON");
    assert_eq!((&json["last"], &json["status"]), (&json!(17_686_122), &json!("complete")));
    let filters = server.params("eth_getLogs").split_off(before);
    let hashes: Vec<_> = filters.iter().map(|call| &call[0]["blockHash"]).collect();
    assert_eq!(hashes.iter().filter(|hash| hash.is_null()).count(), 1);
    let chain = Chain::real_and(10);
    for block in &chain.blocks[2..] {
        assert_eq!(hashes.iter().filter(|hash| **hash == &json!(block.hash)).count(), 1);
    }
}

#[test]
fn a_node_that_knows_no_finalised_block_is_not_believed_blindly() {
    let nulls = provider(Chain::real_and(0), |_, _, params| {
        (params[0] == "finalized").then_some(Ok(Value::Null))
    });
    let errors = provider(Chain::real_and(0), |_, _, params| {
        (params[0] == "finalized").then(|| Err(error(-39001, "unknown block")))
    });
    let others = provider(Chain::real_and(0), |_, _, params| {
        (params[0] == "finalized").then(|| Err(error(-32000, "finalized block not found")))
    });
    for server in [nulls, errors, others] {
        audit_fails(&server, &[], BAD_INPUT, &["knows no finalised block", "--unfinalized"]);
        let json = audit(&[&server], &["--unfinalized", "--anchor", &anchor()], YES);
        assert_eq!(json["finalized"], Value::Null);
        for filter in server.params("eth_getLogs") {
            assert_eq!(text(&filter[0]["blockHash"]).len(), 66, "by hash: {filter}");
        }
    }
    // A malformed answer is an error, and does not mean that the node lacks finality.
    let broken = provider(Chain::real_and(0), |_, _, params| {
        (params[0] == "finalized").then(|| Ok(json!([])))
    });
    audit_fails(&broken, &["--unfinalized"], BAD_INPUT, &["the finalized block"]);
}

#[test]
fn tags_of_a_query_become_numbers() {
    let mut chain = Chain::real_and(5);
    chain.finalized = 17_686_113;
    let server = honest(chain);
    let url = server.url();
    let ask = |range: Value| {
        let query = TempFile::new("tags.json", range.to_string());
        let args = ["eth", "audit", "--rpc", &url, "--query", query.path(), "--json"];
        discreet(&args)
    };
    let from = "0x10dde5f";
    let address = WETH.to_lowercase();
    let finalized = ask(json!({ "fromBlock": from, "toBlock": "finalized", "address": address }));
    let json: Value = serde_json::from_str(&finalized.stdout).expect("JSON");
    assert_eq!(finalized.code, YES, "{}", finalized.stderr);
    assert_eq!(json["query"]["toBlock"], "0x10dde61");
    let latest = ask(json!({ "fromBlock": from, "toBlock": "latest", "address": address }));
    let json: Value = serde_json::from_str(&latest.stdout).expect("JSON");
    assert_eq!(json["last"], 17_686_113);
    assert!(json["warnings"].to_string().contains("the latest block is 17686117"), "{json}");
    for (range, words) in [
        (json!({ "fromBlock": from, "toBlock": "pending" }), "pending"),
        (json!({ "fromBlock": "latest", "toBlock": from }), "ends before it"),
        (json!({ "blockHash": Chain::real_and(5).last().hash }), "--unfinalized"),
        (json!({ "blockHash": B256::repeat_byte(1) }), "no node has the query's block"),
    ] {
        let output = ask(range);
        let unknown = words.starts_with("no node");
        let code = if unknown { UNDECIDED } else { BAD_INPUT };
        assert_eq!(output.code, code, "{}", output.stderr);
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
    let at_hash = ask(json!({ "blockHash": anchor(), "address": address }));
    let json: Value = serde_json::from_str(&at_hash.stdout).expect("JSON");
    assert_eq!((at_hash.code, &json["first"]), (YES, &json!(17_686_112)));
}

#[test]
fn a_certificate_of_a_providers_answer_verifies() {
    let server = honest(Chain::real_and(0));
    let file = TempFile::absent("of-provider.json");
    let anchor = anchor();
    let more = ["--anchor", &anchor, "--certificate", file.path(), "--embed"];
    let json = audit(&[&server], &more, YES);
    assert_eq!(json["certificate"], json!(file.path()));
    let mut args = vec!["eth", "verify-certificate", file.path(), "--anchor", &anchor];
    args.extend(["--chain", "1", "--from", "17686111", "--to", "17686112"]);
    args.extend(QUERY);
    let verified = json_of(&args, YES);
    assert_eq!((&verified["count"], &verified["digest"]), (&json!(7), &json["digest"]));
}

/// The answer of one provider, with the evidence of another one.
#[test]
fn an_answer_from_a_file_is_audited_with_a_providers_evidence() {
    let server = honest(Chain::real_and(3));
    let anchor = anchor();
    let of_file = |logs: &[Value], code| {
        let file = TempFile::new("audit-logs-rpc.json", json!(logs).to_string().as_bytes());
        audit(&[&server], &["--anchor", &anchor, "--logs", file.path()], code)
    };
    let json = of_file(&answer(), YES);
    assert_eq!((&json["status"], &json["logs"]), (&json!("complete"), &json!(7)));
    let evidence = json!({ "name": "A", "host": server.host(), "receipts_of_blocks": 2 });
    // The provider is not accused of what the file says.
    assert_eq!((&json["provider"], &json["providers"]), (&Value::Null, &json!([evidence])));
    let json = of_file(&answer()[1..], WRONG);
    assert_eq!(kinds(&json), ["omitted_log"]);
    assert_eq!(json["findings"][0]["provider"], Value::Null);
    assert_eq!(server.params("eth_getLogs").len(), 0);
    let file = TempFile::new("audit-logs-two.json", b"[]");
    let urls = [server.url(), server.url()];
    let output = discreet(&audit_args(&urls, &["--anchor", &anchor, "--logs", file.path()]));
    assert_eq!(output.code, USAGE);
    assert!(output.stderr.contains("--logs with two providers"), "{}", output.stderr);
    let output = discreet(&audit_args(&urls[..1], &["--anchor", &anchor, "--logs", file.path()]));
    assert_eq!(output.code, WRONG, "{}", output.stderr);
    let words = format!("evidence  headers and receipts of {}", server.host());
    assert!(output.stdout.contains(&words), "{}", output.stdout);
}

#[test]
fn what_makes_no_sense_is_said() {
    let server = honest(Chain::real_and(2));
    let url = server.url();
    let output = discreet(&["eth", "audit", "--rpc", &url, "--address", WETH]);
    assert_eq!((output.code, output.stdout.as_str()), (USAGE, ""), "{}", output.stderr);
    assert!(output.stderr.contains("--from is missing"), "{}", output.stderr);
    audit_fails(&server, &["--chain", "sepolia"], BAD_INPUT, &["sepolia", "id 1, ethereum"]);
    audit_fails(&server, &["--max-receipts", "1"], BAD_INPUT, &["--max-receipts allows 1 block"]);
    audit_fails(&server, &["--max-headers", "1"], BAD_INPUT, &["--max-headers allows 1"]);
    let unknown = provider(Chain::real_and(0), |_, method, _| {
        (method == "eth_chainId").then(|| Ok(json!("0x539")))
    });
    audit_fails(&unknown, &[], BAD_INPUT, &["id 1337", "--assume-bloom"]);
    let json = audit(
        &[&unknown],
        &["--assume-bloom", "exact", "--assume-receipts", "every-log", "--anchor", &anchor()],
        YES,
    );
    assert_eq!(json["chain"], "assumed");
}

/// An anchor does not prove which rules the blooms of its chain follow; without `--chain`, only the
/// provider claims which rules these are. By mainnet's rules, a chain whose blooms are all empty
/// would have no logs.
#[test]
fn whose_word_the_chain_is_is_said() {
    let server = honest(Chain::real_and(0));
    let anchor = anchor();
    for (more, from) in [
        (&[][..], "provider"),
        (&["--chain", "ethereum"], "user"),
        (&["--assume-bloom", "exact", "--assume-receipts", "every-log"], "user"),
    ] {
        let json = audit(&[&server], &[&["--anchor", &anchor][..], more].concat(), YES);
        assert_eq!((&json["chain_id"], &json["chain_from"]), (&json!(1), &json!(from)));
        let warnings = json["warnings"].to_string();
        let is_said =
            warnings.contains("only the provider claims that the blocks are of chain 1, ethereum");
        assert_eq!(is_said, from == "provider", "{warnings}");
    }
}

#[test]
fn an_anchor_that_nobody_has_leaves_it_undecided() {
    let server = honest(Chain::real_and(0));
    let stranger = B256::repeat_byte(7).to_string();
    let json = audit(&[&server], &["--anchor", &stranger], UNDECIDED);
    assert_eq!((&json["anchored_to"], &json["anchor_from"]), (&Value::Null, &json!("user")));
    assert!(json["warnings"].to_string().contains("no node has the block of anchor"));
}

/// The chain is reorganised while its headers are fetched.
#[test]
fn a_reorganisation_meanwhile_is_followed() {
    let old = Chain::real_and(8);
    let mut new = Chain::real_and(4);
    for mark in ["a", "b", "c", "d", "e"] {
        let child = chain::child(new.last(), mark);
        new.blocks.push(child);
    }
    let last = new.blocks[7].hash.clone();
    assert_ne!(last, old.blocks[7].hash);
    for (chains, moment) in [([&old, &new], "headers"), ([&old, &new], "logs")] {
        let finalized = 17_686_112;
        let [old, new] = chains.map(|chain| {
            let blocks = chain.blocks.iter().map(|block| Block {
                number: block.number,
                hash: block.hash.clone(),
                header: block.header.clone(),
                receipts: block.receipts.clone(),
            });
            Chain { blocks: blocks.collect(), finalized }
        });
        let changed = AtomicBool::new(false);
        let server = Server::start(move |post| {
            let answer = |method: &str, params: &Value| {
                let turns = match moment {
                    "headers" => method == "eth_getBlockByNumber" && params[0] == "0x10dde66",
                    _ => method == "eth_getLogs" && !params[0]["blockHash"].is_null(),
                };
                if turns {
                    changed.store(true, Ordering::SeqCst);
                }
                let chain = if changed.load(Ordering::SeqCst) { &new } else { &old };
                chain.answer(method, params)
            };
            Sent::Json(replies(&post.body, answer))
        });
        let url = server.url();
        let mut args = vec!["eth", "audit", "--rpc", &url, "--from", "17686111", "--json"];
        args.extend(["--to", "17686118", "--unfinalized", "--batch", "1", "--parallel", "1"]);
        args.extend(QUERY);
        let output = discreet(&args);
        assert_eq!(output.code, YES, "{moment}: {}", output.stderr);
        assert!(output.stderr.contains("reorganised"), "{moment}: {}", output.stderr);
        let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
        assert_eq!((&json["last"], &json["logs"]), (&json!(17_686_118), &json!(7)));
        assert_eq!(json["anchor"], json!({ "number": 17_686_118, "hash": last }));
    }
}

#[test]
fn a_url_may_stand_in_a_file() {
    let server = honest(Chain::real_and(0));
    let file = TempFile::new("url.txt", format!("{}\n", server.url()));
    let urls = [format!("@{}", file.path())];
    discreet(&audit_args(&urls, &["--anchor", &anchor()])).exits(YES);
    let missing = discreet(&audit_args(&[format!("@/no/{SECRET}/file")], &[]));
    assert_eq!(missing.code, BAD_INPUT);
    assert!(missing.stderr.contains("--rpc @…, a file with the URL"), "{}", missing.stderr);
}

/// If a node returns incomplete receipts by one method, the command uses another method.
#[test]
fn receipts_are_asked_for_by_another_way_if_they_are_not_the_blocks() {
    let server = provider(Chain::real_and(0), |chain, method, params| {
        (method == "eth_getBlockReceipts" && text(&params[0]).len() == 66).then(|| {
            let receipts = chain.answer(method, params)?;
            Ok(json!(receipts.as_array().expect("a list")[1..]))
        })
    });
    let json = audit(&[&server], &["--anchor", &anchor()], YES);
    assert_eq!(json["providers"][0]["receipts_of_blocks"], 2);
    assert!(json["warnings"].to_string().contains("receipts of block 17686111"), "{json}");
}
