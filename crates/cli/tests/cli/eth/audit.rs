//! Tests of `eth audit`: wrong answers of every kind, and evidence in every format.

use chainsieve::alloy_primitives::Address;
use chainsieve::eth::audit::AuditReport;
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};

use super::*;

/// The input files for audits of both blocks.
pub(super) struct Case {
    pub(super) headers: TempFile,
    pub(super) receipts: TempFile,
    pub(super) anchor: String,
    name: &'static str,
}

impl Case {
    pub(super) fn new(name: &'static str) -> Self {
        let blocks = Block::both();
        Self {
            headers: both_headers(&format!("{name}.rlp")),
            receipts: TempFile::new(&format!("{name}.era1"), write::era1(&blocks)),
            anchor: blocks[1].hash.clone(),
            name,
        }
    }

    pub(super) fn logs(&self, logs: &[Value]) -> TempFile {
        TempFile::new(&format!("{}.logs.json", self.name), write::reply(&json!(logs)).to_string())
    }

    /// Runs the audit with the query, the receipts and the anchor.
    fn audit(&self, logs: &[Value], code: i32) -> Value {
        let receipts = self.receipts.path();
        self.audit_with(logs, &["--receipts", receipts, "--anchor", &self.anchor], code)
    }

    pub(super) fn audit_with(&self, logs: &[Value], more: &[&str], code: i32) -> Value {
        let logs = self.logs(logs);
        let args = ["eth", "audit", self.headers.path(), "--logs", logs.path()];
        json_of(&[&args[..], &QUERY, &["--chain", "mainnet"], more].concat(), code)
    }
}

fn findings(json: &Value) -> Vec<&Value> {
    json["findings"].as_array().expect("findings").iter().collect()
}

#[test]
fn the_whole_answer_is_complete() {
    let case = Case::new("whole");
    let json = case.audit(&answer(), YES);
    assert_eq!((&json["status"], &json["logs"]), (&json!("complete"), &json!(7)));
    assert_eq!(json["blocks"]["checked_by_receipts"], 2);
    assert_eq!((&json["anchored_to"], &json["findings"]), (&json!(17_686_112), &json!([])));
    // Nodes report transaction hashes, but these receipts don't prove them.
    assert_eq!(json["transaction_hashes_unbound"], 0);
    let mut hashed = answer();
    hashed[0]["transactionHash"] = json!(B256::repeat_byte(1));
    assert_eq!(case.audit(&hashed, YES)["transaction_hashes_unbound"], 1);
    let logs = case.logs(&answer());
    let args = ["eth", "audit", case.headers.path(), "--logs", logs.path(), "--chain", "1"];
    let more = ["--receipts", case.receipts.path(), "--anchor", &case.anchor];
    let page = run(&[&args[..], &QUERY, &more].concat());
    assert_eq!(page.code, YES, "{}", page.stderr);
    assert!(page.stdout.starts_with("complete: these are exactly the logs"), "{}", page.stdout);
}

#[test]
fn each_log_withheld_is_named_and_proven() {
    let case = Case::new("withheld");
    let all = answer();
    for at in 0..all.len() {
        let mut logs = all.clone();
        let withheld = logs.remove(at);
        let json = case.audit(&logs, WRONG);
        let [finding] = findings(&json)[..] else { panic!("one finding: {json}") };
        assert_eq!((&finding["kind"], &finding["proof"]), (&json!("omitted_log"), &json!(true)));
        for field in ["address", "topics", "data", "logIndex", "transactionIndex", "blockHash"] {
            assert_eq!(finding["log"][field], withheld[field], "{field}");
        }
        // The proof starts at the receipts root of the header: its first node hashes to that root.
        let block = Block::both().into_iter().find(|block| block.hash == withheld["blockHash"]);
        let root = bytes(&finding["receipt_proof"]["nodes"][0]);
        let header = block.expect("one of both").header;
        assert_eq!(&items(&header)[5][1..], keccak256(&root).as_slice());
        // Any user of the library can read and verify the printed report.
        let answer: Vec<LocatedLog> = serde_json::from_value(json!(logs)).expect("logs");
        let query: LogQuery = serde_json::from_value(json["query"].clone()).expect("a query");
        let report: AuditReport = serde_json::from_value(json).expect("a report");
        let [omitted] = report.omitted().collect::<Vec<_>>()[..] else { panic!("{report:?}") };
        let header = HeaderView::decode(&header).expect("a header");
        omitted.verify(&header, &query, Semantics::Geth, &answer).expect("it is shown");
    }
    let none = case.audit(&[], WRONG);
    assert_eq!(findings(&none).len(), 7);
}

#[test]
fn lies_are_told_apart() {
    let case = Case::new("lies");
    let kinds = |lie: &dyn Fn(&mut Vec<Value>), code| -> Vec<String> {
        let mut logs = answer();
        lie(&mut logs);
        let json = case.audit(&logs, code);
        findings(&json).iter().map(|finding| text(&finding["kind"]).to_owned()).collect()
    };
    let altered = kinds(&|logs| logs[2]["data"] = json!(format!("0x{:064x}", 1)), WRONG);
    assert_eq!(altered.len(), 2);
    assert!(altered.iter().any(|kind| kind == "forged_log"), "{altered:?}");
    assert!(altered.iter().any(|kind| kind == "omitted_log"), "{altered:?}");
    assert_eq!(kinds(&|logs| logs[2]["logIndex"] = json!("0x1"), WRONG), ["wrong_field"]);
    let number = kinds(&|logs| logs[6]["blockNumber"] = json!("0x10dde5f"), WRONG);
    assert_eq!(number, ["wrong_field"]);
    assert_eq!(kinds(&|logs| logs.push(logs[0].clone()), WRONG), ["duplicate"]);
    let stranger = |logs: &mut Vec<Value>| {
        let mut log = logs[0].clone();
        log["address"] = json!(format!("{:#x}", Address::repeat_byte(9)));
        logs.push(log);
    };
    assert!(kinds(&stranger, WRONG).contains(&"forged_log".to_owned()));
    let fork = |logs: &mut Vec<Value>| logs[0]["blockHash"] = json!(B256::repeat_byte(3));
    assert!(kinds(&fork, WRONG).contains(&"other_fork".to_owned()));
    let mut logs = answer();
    fork(&mut logs);
    let warnings = case.audit(&logs, WRONG)["warnings"].to_string();
    assert!(warnings.contains("happened between"), "{warnings}");
    assert!(kinds(&|logs| logs[0]["removed"] = json!(true), WRONG).contains(&"removed".to_owned()));
}

#[test]
fn missing_receipts_are_asked_for() {
    let case = Case::new("missing");
    let [first, second] = Block::both();
    let wanted = TempFile::absent("wanted.txt");
    let anchor = ["--anchor", &case.anchor, "--wanted", wanted.path()];
    let json = case.audit_with(&answer(), &anchor, UNDECIDED);
    assert_eq!(json["blocks"]["undecidable"], 2);
    let both = [&first, &second].map(|block| json!({ "number": block.number, "hash": block.hash }));
    assert_eq!(json["wanted"], json!(both));
    let lines = [&first, &second].map(|block| format!("{} {}\n", block.number, block.hash));
    assert_eq!(wanted.read(), lines.concat());
    let one = TempFile::new("one.receipts.rlp", first.receipts_rlp());
    let more = ["--anchor", &case.anchor, "--receipts", one.path()];
    let more = [&more[..], &["--wanted", wanted.path(), "--force"]].concat();
    let json = case.audit_with(&answer(), &more, UNDECIDED);
    assert_eq!(json["wanted"], json!([both[1]]));
    assert_eq!(wanted.read(), lines[1]);
    // A wrong log in a checked block is found, even if receipts of other blocks are missing.
    let json = case.audit_with(&answer()[1..], &more, WRONG);
    assert_eq!(json["blocks"]["undecidable"], 1);
    // Receipts of another block are no evidence, and they do not prove a fault of the provider.
    let other = Block::read("mainnet_14764013");
    let other = TempFile::new("other.receipts.rlp", other.receipts_rlp());
    let more = ["--anchor", &case.anchor, "--receipts", other.path()];
    let json = case.audit_with(&answer(), &more, UNDECIDED);
    assert!(text(&json["warnings"][0]).contains("other.receipts.rlp"), "{json}");
    // The file claims that one legacy receipt is the list of all receipts of the block.
    let legacy = first.receipts.iter().find(|receipt| receipt[0] >= 0xc0).expect("a legacy one");
    let claimed = json!({ "hash": first.hash, "receipts": [hex0x(legacy)] });
    let claimed = TempFile::new("claimed.json", claimed.to_string());
    let more = ["--anchor", &case.anchor, "--receipts", claimed.path()];
    let json = case.audit_with(&answer(), &more, UNDECIDED);
    assert!(text(&json["warnings"][0]).contains("1 receipts have the root"), "{json}");
    assert_eq!(json["undecided"][0]["why"], "receipts_not_supplied");
}

#[test]
fn without_an_anchor_nothing_is_proven() {
    let case = Case::new("unanchored");
    let receipts = ["--receipts", case.receipts.path()];
    let json = case.audit_with(&answer(), &receipts, UNDECIDED);
    assert_eq!(
        (&json["anchored_to"], &json["undecided"][0]["why"]),
        (&Value::Null, &json!("unanchored"))
    );
    assert!(text(&json["warnings"][0]).contains("no --anchor"));
    // Without an anchor, an omission is found but not proven, because the headers are not
    // authenticated.
    let json = case.audit_with(&answer()[1..], &receipts, UNDECIDED);
    assert_eq!(findings(&json)[0]["grounds"], "unanchored");
    // An anchor authenticates the headers up to its block, and none after it.
    let first = Block::read(FIRST).hash;
    let more = [&receipts[..], &["--anchor", &first]].concat();
    let json = case.audit_with(&answer(), &more, UNDECIDED);
    assert_eq!(json["undecided"], json!([{ "number": 17_686_112, "why": "unanchored" }]));
}

#[test]
fn receipts_in_every_form() {
    let case = Case::new("forms");
    let blocks = Block::both();
    let hex = |block: &Block| json!(block.receipts.iter().map(|r| hex0x(r)).collect::<Vec<_>>());
    let fixtures =
        blocks.each_ref().map(|block| json!({ "hash": block.hash, "receipts": hex(block) }));
    let lists = blocks.each_ref().map(Block::receipts_rlp);
    let slim = blocks.each_ref().map(Block::slim_rlp);
    let objects = blocks.each_ref().map(write::rpc_receipts);
    let replies = objects.each_ref().map(|receipts| write::reply(&json!(receipts)));
    let each = objects.concat();
    let each_in_reply: Vec<_> = each.iter().map(write::reply).collect();
    let forms: Vec<(&str, Vec<u8>)> = vec![
        ("replies", json!(replies).to_string().into()),
        ("objects", objects.map(|receipts| json!(receipts).to_string()).join("\n").into()),
        ("each", each.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into()),
        ("batch", json!(each_in_reply).to_string().into()),
        ("lists", lists.concat()),
        ("slim", slim.concat()),
        ("hex", lists.each_ref().map(|list| hex0x(list)).join("\n").into()),
        ("ere", write::ere(&blocks)),
        ("fixtures", json!(fixtures).to_string().into()),
        (
            "raw",
            blocks.each_ref().map(|block| write::reply(&hex(block)).to_string()).join("\n").into(),
        ),
        ("arrays", blocks.each_ref().map(|block| hex(block).to_string()).join("\n").into()),
    ];
    for (name, contents) in forms {
        let file = TempFile::new(&format!("receipts-{name}"), contents);
        let more = ["--anchor", &case.anchor, "--receipts", file.path()];
        let json = case.audit_with(&answer(), &more, YES);
        assert_eq!(json["blocks"]["checked_by_receipts"], 2, "{name}");
    }
    let folder = TempFile::absent("folder");
    fs::create_dir(&folder.0).expect("a folder");
    for (block, list) in blocks.iter().zip(lists) {
        fs::write(folder.0.join(format!("block_{}.receipts.rlp", block.number)), list)
            .expect("a file");
        fs::write(folder.0.join("notes.txt"), "nothing of interest").expect("a file");
    }
    let more = ["--anchor", &case.anchor, "--receipts", folder.path()];
    assert_eq!(case.audit_with(&answer(), &more, YES)["warnings"], json!([]));
    // A damaged file is skipped with a warning if the command line names only its folder, and not
    // the file itself.
    let damaged = folder.0.join("damaged.era1");
    fs::write(&damaged, &write::ere(&blocks)[..500]).expect("a file");
    let warnings = case.audit_with(&answer(), &more, YES)["warnings"].to_string();
    assert!(warnings.contains("skipped") && warnings.contains("damaged.era1"), "{warnings}");
    let (logs, damaged) = (case.logs(&answer()), damaged.to_str().expect("UTF-8"));
    let named = ["eth", "audit", case.headers.path(), "--logs", logs.path(), "--chain", "1"];
    let named = [&named[..], &QUERY, &["--receipts", damaged]].concat();
    fails(&named, b"", BAD_INPUT, &["damaged.era1"]);
    fs::remove_dir_all(&folder.0).expect("ours");
}

#[test]
fn logs_in_every_form_and_what_is_wrong_with_them() {
    let case = Case::new("logs");
    let anchor = ["--anchor", &case.anchor, "--receipts", case.receipts.path()];
    let audit = |contents: &str| {
        let file = TempFile::new("answer.json", contents);
        let args =
            ["eth", "audit", case.headers.path(), "--logs", file.path(), "--chain", "mainnet"];
        run(&[&args[..], &QUERY, &anchor].concat())
    };
    let logs = answer();
    let lines = logs.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let replies = json!([write::reply(&json!(logs[..3])), write::reply(&json!(logs[3..]))]);
    for contents in [json!(logs).to_string(), lines.clone(), replies.to_string()] {
        let output = audit(&contents);
        assert_eq!(output.code, YES, "{}", output.stderr);
    }
    let refused = |contents: &str, words: &[&str]| {
        let output = audit(contents);
        assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""), "{}", output.stderr);
        let all = [&["answer.json"], words].concat();
        for word in all {
            assert!(output.stderr.contains(word), "{}", output.stderr);
        }
    };
    let mut bad = logs[1].clone();
    bad["topics"][1] = json!("0x12");
    refused(&format!("{}\n{bad}\n", logs[0]), &["line 2", "log 1", "topics[1]"]);
    refused(&write::reply(&json!([logs[0], bad])).to_string(), &["line 1", "log 1", "topics[1]"]);
    refused(&lines[..lines.len() - 20], &["line 7", "ends inside a JSON value"]);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}", &["no result"]);
    refused("7", &["a log is an object"]);
}

#[test]
fn slips_in_audits_exit_with_1_or_2() {
    let case = Case::new("slips");
    let logs = case.logs(&answer());
    let base = ["eth", "audit", case.headers.path(), "--logs", logs.path()];
    let refused = |more: &[&str], code, words: &[&str]| {
        fails(&[&base[..], &QUERY, more].concat(), b"", code, words);
    };
    refused(&[], USAGE, &["--chain"]);
    refused(&["--chain", "dogecoin"], USAGE, &["sepolia", "--assume-bloom"]);
    refused(&["--chain", "1", "--assume-bloom", "exact"], USAGE, &["--assume-bloom"]);
    refused(&["--chain", "1", "--to", "17686113"], BAD_INPUT, &["end at block 17686112"]);
    refused(&["--chain", "1", "--from", "17686110"], BAD_INPUT, &["17686110"]);
    refused(
        &["--chain", "1", "--receipts", "/no/such/file"],
        BAD_INPUT,
        &["receipts, /no/such/file"],
    );
    let junk = TempFile::new("junk.receipts.rlp", [0xc2, 0x01, 0x02]);
    refused(
        &["--chain", "1", "--receipts", junk.path()],
        BAD_INPUT,
        &["junk.receipts.rlp", "byte 0"],
    );
    let short = TempFile::new("short.receipts.rlp", [0xf9, 0xff]);
    refused(
        &["--chain", "1", "--receipts", short.path()],
        BAD_INPUT,
        &["within the length of a list"],
    );
    fails(&["eth", "audit", case.headers.path(), "--chain", "1"], b"", USAGE, &["--logs"]);
    // The blooms of this chain prove nothing, so every block must be checked, and its receipts need
    // not contain all logs.
    let assumed = ["--assume-bloom", "unsound", "--receipts", case.receipts.path()];
    let args = [&base[..], &QUERY, &assumed, &["--anchor", &case.anchor]].concat();
    let json = json_of(&args, UNDECIDED);
    assert_eq!(json["undecided"][0]["why"], "receipts_not_every_log");
    let every = [&args[..], &["--assume-receipts", "every-log"]].concat();
    assert_eq!(json_of(&every, YES)["chain"], "assumed");
}
