//! Tests of `eth audit`: omissions, whose printed reports are verified, and evidence in every format.

use chainsieve::alloy_primitives::Bloom;
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

    fn logs(&self, logs: &[Value]) -> TempFile {
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
}

/// Before Byzantium, receipts are hashed with a state root that many nodes no longer have. Receipts
/// without it decide nothing, and those of another file do, whichever file is read first.
#[test]
fn receipts_without_state_roots_do_not_stand_in_for_those_of_another_file() {
    let contract = [0x11; 20];
    let mut bloom = Bloom::ZERO;
    bloom.accrue_raw_log(contract.into(), &[]);
    let log = write::list(&[write::string(&contract), write::list(&[]), write::string(&[7])]);
    let receipt = write::list(&[
        write::string(&[0x22; 32]),
        write::string(&[0x52, 0x08]),
        write::string(bloom.as_slice()),
        write::list(&[log]),
    ]);
    // A trie of one value is one leaf: the rest of the path, and the value. The key is 0x80.
    let leaf = write::list(&[write::string(&[0x20, 0x80]), write::string(&receipt)]);
    let mut header = Block::read(FIRST).header;
    header[157..189].copy_from_slice(keccak256(leaf).as_slice());
    header[192..448].copy_from_slice(bloom.as_slice());
    let (hash, number) = (keccak256(&header).to_string(), "0x10dde5f");
    let located = json!({
        "address": hex0x(&contract), "topics": [], "data": "0x07", "blockNumber": number, "blockHash": hash,
        "transactionIndex": "0x0", "logIndex": "0x0", "removed": false,
    });
    let dropped = json!([{
        "type": "0x0", "status": "0x1", "cumulativeGasUsed": "0x5208", "transactionIndex": "0x0",
        "blockNumber": number, "blockHash": hash, "logs": [located],
    }]);
    let headers = TempFile::new("state-roots.headers.rlp", header);
    let with = TempFile::new("state-roots.receipts.rlp", write::list(&[receipt]));
    let without = TempFile::new("state-roots.receipts.json", write::reply(&dropped).to_string());
    let certificate = TempFile::new("state-roots.certificate.json", "");
    let address = hex0x(&contract);
    let known = ["--address", &address, "--anchor", &hash];
    let assumed = ["--assume-bloom", "exact", "--assume-receipts", "every-log"];
    let audit = |logs: &[Value], files: &[&TempFile], more: &[&str], code| {
        let logs = write::reply(&json!(logs)).to_string();
        let logs = TempFile::new("state-roots.logs.json", logs);
        let mut args = vec!["eth", "audit", headers.path(), "--logs", logs.path()];
        args.extend(files.iter().flat_map(|file| ["--receipts", file.path()]));
        json_of(&[&args[..], &known, &assumed, more].concat(), code)
    };
    assert_eq!(audit(&[], &[&without], &[], UNDECIDED)["findings"], json!([]));
    for files in [[&without, &with], [&with, &without]] {
        let json = audit(&[], &files, &[], WRONG);
        assert_eq!(findings(&json)[0]["kind"], "omitted_log");
        let issue = ["--certificate", certificate.path(), "--embed", "--force"];
        audit(std::slice::from_ref(&located), &files, &issue, YES);
        let block = ["--from", "17686111", "--to", "17686111"];
        let verify = ["eth", "verify-certificate", certificate.path()];
        let json = json_of(&[&verify[..], &known, &assumed, &block].concat(), YES);
        assert_eq!(json["count"], 1);
    }
}
