//! Tests of `btc cf build`, `scan`, `audit` and `verify-headers`.

use std::path::Path;

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::consensus::encode::{deserialize_hex, serialize_hex};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, CompactTarget, ScriptBuf, Transaction, TxIn, TxOut, transaction,
};
use chainsieve::btc::descriptors::descriptor_scripts;

use super::*;

mod gap_limit;
mod interrupted;
mod streams;

/// The public key that received the coins of block 9, and the blocks with its transactions: public
/// history.
pub(crate) const KEY: &str = "0411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482ecad7b148a6909a5cb2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b412a3";
const BLOCKS_OF_KEY: [u64; 6] = [9, 170, 181, 182, 183, 248];
pub(crate) const MAINNET: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bitcoin/mainnet_0-255.json");
pub(crate) const GOLDEN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bitcoin/filters_mainnet_0-255.cbf");
pub(crate) const BLOCK_757753: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bitcoin/blocks/mainnet_757753.json");

/// A directory for one test, which is removed afterwards.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("chainsieve-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).expect("written");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Returns the JSON lines of a command: all lines before the last one, and the last line.
fn lines_of(args: &[&str], code: i32) -> (Vec<Value>, Value) {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    let mut lines: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("a summary");
    (lines, last)
}

fn golden() -> Vec<u8> {
    fs::read(GOLDEN).expect("a fixture")
}

#[test]
fn filters_of_mainnet_have_the_published_headers() {
    let folder = Folder::new("published");
    let out = folder.path("mainnet.cbf");
    let (lines, last) = lines_of(&["btc", "cf", "build", MAINNET, "--out", &out], YES);
    let rows = fixture("mainnet_0-255.json");
    assert_eq!(lines.len(), 256);
    for (line, row) in lines.iter().zip(rows.as_array().expect("rows")) {
        for name in ["height", "hash", "filter_header"] {
            assert_eq!(line[name], row[name]);
        }
    }
    assert_eq!(last["blocks"], 256);
    assert_eq!(last["filter_header"], rows[255]["filter_header"]);
    assert!(fs::read(&out).expect("written") == golden(), "the file of the fixtures");
    // A second run would overwrite the file, and is refused.
    fails(&["btc", "cf", "build", MAINNET, "--out", &out], b"", BAD_INPUT, &["--append"]);
}

#[test]
fn every_form_of_block_gives_the_same_filter() {
    let folder = Folder::new("forms");
    let rows = fixture("mainnet_0-255.json");
    let hex = text(&rows[170]["block"]);
    let coinbase_9 = deserialize_hex::<Block>(text(&rows[9]["block"])).expect("a block");
    let previous = folder.write("previous.hex", serialize_hex(&coinbase_9.txdata[0]));
    let context = ["--height", "170", "--previous-header", text(&rows[169]["filter_header"])];
    let raw = folder.write("170.raw", hex::decode(hex).expect("hex"));
    let lines = folder.write("170.hex", format!("\n{hex}\n"));
    for block in [hex, &raw, &lines] {
        let args = ["btc", "cf", "build", block, "--prev-txs", &previous];
        let (lines, _) = lines_of(&[&args[..], &context].concat(), YES);
        assert_eq!(lines[0]["filter_header"], rows[170]["filter_header"]);
        // The transaction whose output the block spends is not given.
        let args = [&["btc", "cf", "build", block][..], &context].concat();
        fails(&args, b"", BAD_INPUT, &["0437cd7f8525ceed2324359c2d0ba260", "--prev-txs"]);
    }

    let fixture = fixture("blocks/mainnet_757753.json");
    let block: Block = deserialize_hex(text(&fixture["block"])).expect("a block");
    let mut document = as_getblock_3(&block, fixture["prevouts"].as_array().expect("a list"));
    let form = folder.write("getblock.json", document.to_string());
    for block in [BLOCK_757753, &form] {
        let (lines, last) = lines_of(&["btc", "cf", "build", block], YES);
        assert_eq!(lines[0]["filter"], fixture["basic_filter"]);
        assert_eq!((&lines[0]["height"], &last["filter_header"]), (&json!(757_753), &json!(null)));
    }
    document["nonce"] = json!(0);
    let form = folder.write("getblock.json", document.to_string());
    fails(&["btc", "cf", "build", &form], b"", BAD_INPUT, &["document 1", "hash"]);
}

/// Returns a node's answer to `getblock` with verbosity 3, reduced to the fields that the command
/// reads.
fn as_getblock_3(block: &Block, prevouts: &[Value]) -> Value {
    let mut prevouts = prevouts.iter();
    let transactions: Vec<Value> = block
        .txdata
        .iter()
        .map(|tx| {
            let input = |input: &TxIn| {
                if input.previous_output.is_null() {
                    return json!({"coinbase": "00"});
                }
                let prevout = prevouts.next().expect("one each");
                json!({"prevout": {"scriptPubKey": {"hex": prevout["script_pubkey"]}}})
            };
            json!({"vin": tx.input.iter().map(input).collect::<Vec<_>>(), "hex": serialize_hex(tx)})
        })
        .collect();
    let header = &block.header;
    json!({
        "hash": block.block_hash().to_string(),
        "confirmations": 1,
        "height": 757_753,
        "version": header.version.to_consensus(),
        "merkleroot": header.merkle_root.to_string(),
        "time": header.time,
        "nonce": header.nonce,
        "bits": format!("{:08x}", header.bits.to_consensus()),
        "previousblockhash": header.prev_blockhash.to_string(),
        "tx": transactions,
    })
}

#[test]
fn filters_are_appended_also_to_a_file_that_was_cut() {
    let folder = Folder::new("append");
    let rows = fixture("mainnet_0-255.json");
    let rows = rows.as_array().expect("rows");
    let first = folder.write("first.json", Value::from(rows[..100].to_vec()).to_string());
    // The file contains concatenated JSON documents.
    let rest: Vec<_> = rows[100..].iter().map(Value::to_string).collect();
    let rest = folder.write("rest.json", rest.join("\n"));
    let out = folder.path("mainnet.cbf");
    let build = |blocks: &str, more: &[&str]| {
        run(&[&["btc", "cf", "build", blocks, "--out", &out][..], more].concat())
    };
    assert_eq!(build(&first, &[]).code, YES);
    let whole = fs::read(&out).expect("written");
    fs::write(&out, [&whole, &golden()[whole.len()..whole.len() + 20]].concat()).expect("written");
    // Blocks before 170 spend nothing. Later blocks spend outputs of earlier blocks in the file.
    let hundred = folder.write("next.json", Value::from(rows[100..170].to_vec()).to_string());
    assert_eq!(build(&hundred, &["--append"]).code, YES);
    assert!(golden().starts_with(&fs::read(&out).expect("written")));
    let wrong = build(&first, &["--append"]);
    assert_eq!(wrong.code, BAD_INPUT);
    assert!(wrong.stderr.contains("expected 170"), "{}", wrong.stderr);
    let spent = rows[..170].iter().map(|row| deserialize_hex::<Block>(text(&row["block"])));
    let spent = spent.flat_map(|block| block.expect("a block").txdata);
    let spent: Vec<_> = spent.map(|tx| serialize_hex(&tx)).collect();
    let spent = folder.write("spent.hex", spent.join("\n"));
    let rest_from_170: Vec<_> = rows[170..].iter().map(Value::to_string).collect();
    fs::write(&rest, rest_from_170.join("\n")).expect("written");
    assert_eq!(build(&rest, &["--append", "--prev-txs", &spent]).code, YES);
    assert!(fs::read(&out).expect("written") == golden());
}

#[test]
fn scans_find_what_is_known_of_the_chain() {
    let rows = fixture("mainnet_0-255.json");
    let heights = |lines: &[Value]| -> Vec<u64> {
        lines.iter().map(|line| line["height"].as_u64().expect("a height")).collect()
    };
    let scan = ["btc", "cf", "scan", GOLDEN, KEY];
    let (lines, last) = lines_of(&scan, YES);
    assert_eq!(heights(&lines), BLOCKS_OF_KEY);
    assert_eq!(lines[1]["hash"], rows[170]["hash"]);
    assert_eq!(lines[1]["scripts"][0]["script"], format!("41{KEY}ac"));
    assert_eq!((&last["filters"], &last["compared_to"]), (&json!(256), &json!(null)));
    for threads in ["1", "2"] {
        let (same, _) = lines_of(&[&scan[..], &["--threads", threads]].concat(), YES);
        assert_eq!(same, lines);
    }
    let (lines, last) = lines_of(&[&scan[..], &["--birthday", "171", "--to", "182"]].concat(), YES);
    assert_eq!(heights(&lines), [181, 182]);
    assert_eq!((&last["first"], &last["last"]), (&json!(171), &json!(182)));

    let header = |height: usize| format!("{height}:{}", text(&rows[height]["filter_header"]));
    let trusted = [header(100), header(255)];
    let args = [&scan[..], &["--header", &trusted[0], "--header", &trusted[1]]].concat();
    let (_, last) = lines_of(&args, YES);
    assert_eq!(last["compared_to"], 255);
    assert!(text(&last["warnings"][0]).contains("--block-headers"), "{last}");
    let other = format!("255:{}", text(&rows[254]["filter_header"]));
    let args = [&scan[..], &["--header", &other]].concat();
    let output = run(&args);
    assert_eq!(output.code, WRONG);
    assert!(output.stderr.contains("height 255"), "{}", output.stderr);

    // First, the item is a script that no filter can match. Then, the item is an address that was
    // never paid in these blocks.
    let genesis = ["btc", "cf", "scan", GOLDEN, "script:6a00"];
    fails(&genesis, b"", BAD_INPUT, &["OP_RETURN"]);
    let absent = ["btc", "cf", "scan", GOLDEN, "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"];
    assert_eq!(lines_of(&absent, NO).0, Vec::<Value>::new());
}

#[test]
fn a_folder_is_scanned_as_one_and_damage_is_named() {
    let folder = Folder::new("folder");
    let rows = fixture("mainnet_0-255.json");
    let rows = rows.as_array().expect("rows");
    let parts = folder.path("parts");
    fs::create_dir(&parts).expect("a folder");
    let part = |name: &str| Path::new(&parts).join(name).to_str().expect("text").to_owned();
    let first = folder.write("first.json", Value::from(rows[..120].to_vec()).to_string());
    let build = ["btc", "cf", "build", &first, "--out", &part("b")];
    assert_eq!(run(&build).code, YES);
    let second = folder.write("second.json", Value::from(rows[120..170].to_vec()).to_string());
    let header = text(&rows[119]["filter_header"]);
    let build = ["btc", "cf", "build", &second, "--out", &part("a"), "--previous-header", header];
    assert_eq!(run(&build).code, YES);
    fs::write(part("notes.txt"), "not a file of filters").expect("written");
    let (lines, last) = lines_of(&["btc", "cf", "scan", &parts, KEY], YES);
    assert_eq!((lines.len(), &last["filters"]), (1, &json!(170)));
    let verified = json_of(&["btc", "cf", "verify-headers", &parts], YES);
    assert_eq!(verified["filter_header"], rows[169]["filter_header"]);

    let mut damaged = golden();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let damaged = folder.write("damaged.cbf", damaged);
    let output = run(&["btc", "cf", "scan", &damaged, KEY]);
    assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
    assert!(output.stderr.contains("is damaged"), "{}", output.stderr);
    // With and without matches, the last line names the height that the scan reached.
    for item in [KEY, "script:51"] {
        let (lines, last) = lines_of(&["btc", "cf", "scan", &damaged, item], BAD_INPUT);
        assert_eq!(lines.len(), usize::from(item == KEY));
        assert!(text(&last["damage"]).contains("checksum"), "{last}");
        let next = last["last"].as_u64().expect("a height") + 1;
        assert!(text(&last["damage"]).contains(&format!("(height {next},")), "{last}");
    }
    assert!(output.stderr.contains("intact"), "{}", output.stderr);
    let verified = json_of(&["btc", "cf", "verify-headers", &damaged], BAD_INPUT);
    assert!(text(&verified["damage"]).contains("checksum"), "{verified}");
}

#[test]
fn look_ahead_asks_the_same_filter_again() {
    let folder = Folder::new("look-ahead");
    let descriptor = format!("wpkh({XPUB}/0/*)");
    let scripts = descriptor_scripts(&descriptor, 0..=60).expect("a descriptor");
    let pays = |indices: &[usize]| -> Vec<ScriptBuf> {
        indices.iter().map(|&index| scripts[index].script.clone()).collect()
    };
    // Index 10 is found first and extends the range of indices, so that index 25 is found in the
    // same block. Index 50 is too far beyond index 25, but not beyond index 40, so that block 1 is
    // searched again.
    let blocks = chain_of(&[pays(&[10, 25]), pays(&[50]), pays(&[40]), pays(&[50])]);
    let blocks = folder.write("blocks.hex", blocks.join("\n"));
    let out = folder.path("filters.cbf");
    assert_eq!(run(&["btc", "cf", "build", &blocks, "--out", &out]).code, YES);
    let scan = ["btc", "cf", "scan", &out, &descriptor, "--range", "0-19"];
    let found = |more: &[&str]| -> Vec<(u64, u64)> {
        let (lines, _) = lines_of(&[&scan[..], more].concat(), YES);
        let of = |line: &Value| {
            let height = line["height"].as_u64().expect("a height");
            let scripts = line["scripts"].as_array().expect("scripts").clone();
            scripts.into_iter().map(move |s| (height, s["index"].as_u64().expect("an index")))
        };
        lines.iter().flat_map(of).collect()
    };
    assert_eq!(found(&[]), [(0, 10)]);
    assert_eq!(found(&["--gap-limit", "20"]), [(0, 10), (0, 25), (2, 40), (3, 50), (1, 50)]);
    let fixed = ["btc", "cf", "scan", &out, KEY, "--gap-limit", "20"];
    fails(&fixed, b"", USAGE, &["ranged"]);
}

/// Returns blocks in hex that pay to these scripts. The blocks spend nothing, and have no proof of
/// work.
fn chain_of(scripts: &[Vec<ScriptBuf>]) -> Vec<String> {
    let mut prev_blockhash = BlockHash::all_zeros();
    let block = |scripts: &Vec<ScriptBuf>| {
        let output = |script_pubkey: &ScriptBuf| TxOut {
            value: Amount::ONE_SAT,
            script_pubkey: script_pubkey.clone(),
        };
        let coinbase = Transaction {
            version: transaction::Version::ONE,
            lock_time: LockTime::ZERO,
            input: vec![TxIn::default()],
            output: scripts.iter().map(output).collect(),
        };
        let merkle_root = coinbase.compute_txid().to_raw_hash().into();
        let bits = CompactTarget::from_consensus(0x207f_ffff);
        let version = Version::ONE;
        let header = Header { version, prev_blockhash, merkle_root, time: 0, bits, nonce: 0 };
        prev_blockhash = header.block_hash();
        serialize_hex(&Block { header, txdata: vec![coinbase] })
    };
    scripts.iter().map(block).collect()
}

#[test]
fn audits_and_their_proofs() {
    let folder = Folder::new("audit");
    let fixture_of = |height: u32| fixture(&format!("blocks/mainnet_{height}.json"));
    let filter = fixture_of(757_753);
    let filter = text(&filter["basic_filter"]);
    let audit = |filter: &str, more: &[&str], code| {
        json_of(&[&["btc", "cf", "audit", filter, BLOCK_757753][..], more].concat(), code)
    };
    let valid = audit(filter, &[], YES);
    assert_eq!((text(&valid["verdict"]), text(&valid["basis"])), ("valid", "trusted"));
    let open = audit(filter, &["--distrust-prevouts"], UNDECIDED);
    assert_eq!(open["verdict"], "undecidable");
    let other = fixture_of(255_018);
    let other = text(&other["basic_filter"]);
    let without_proof = audit(other, &[], WRONG);
    assert_eq!(without_proof["verdict"], "invalid");

    let proof = folder.path("proof.hex");
    let invalid = audit(other, &["--distrust-prevouts", "--proof-out", &proof], WRONG);
    assert_eq!(invalid["proof"]["out"], proof.as_str());
    let block_hash = fixture_of(757_753)["hash"].clone();
    let verify = ["btc", "cf", "audit", "--proof", &proof, "--block-hash"];
    let holds = json_of(&[&verify[..], &[text(&block_hash)]].concat(), YES);
    assert_eq!((&holds["holds"], &holds["warnings"]), (&json!(true), &json!([])));
    for (height, code) in [(255_018, YES), (757_753, WRONG)] {
        let meant = fixture_of(height);
        let meant = hex::decode(text(&meant["basic_filter"])).expect("hex");
        let meant = FilterHash::hash(&meant).to_string();
        let args = [&verify[..], &[text(&block_hash), "--filter-hash", &meant]].concat();
        assert_eq!(json_of(&args, code)["holds"], code == YES);
    }
    let elsewhere = fixture_of(255_018)["hash"].clone();
    let fails_there = json_of(&[&verify[..], &[text(&elsewhere)]].concat(), WRONG);
    assert_eq!(fails_there["holds"], false);
    let cut = fs::read_to_string(&proof).expect("written");
    fails(&["btc", "cf", "audit", "--proof", &cut[..400]], b"", BAD_INPUT, &["proof"]);

    // If the transactions whose outputs block 170 spends are given, the filter of the block can be
    // decided without trusting the prevouts.
    let rows = fixture("mainnet_0-255.json");
    let coinbase_9 = deserialize_hex::<Block>(text(&rows[9]["block"])).expect("a block");
    let previous = folder.write("previous.hex", serialize_hex(&coinbase_9.txdata[0]));
    let args = ["btc", "cf", "audit", GOLDEN, text(&rows[170]["block"])];
    let open = json_of(&args, UNDECIDED);
    assert_eq!(
        open["missing_txids"],
        json!(["0437cd7f8525ceed2324359c2d0ba26006d92d856a9c20fa0241106ee5a597c9"])
    );
    let proven = json_of(&[&args[..], &["--prev-txs", &previous]].concat(), YES);
    assert_eq!(proven["basis"], "transactions");
    // A block that does not match its own header is no evidence about any filter.
    let mut bytes = hex::decode(text(&rows[170]["block"])).expect("hex");
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    let args = ["btc", "cf", "audit", "00", &hex::encode(bytes)];
    fails(&args, b"", BAD_INPUT, &["merkle root"]);
}

#[test]
fn filter_headers_are_compared_with_lists() {
    let folder = Folder::new("headers");
    let rows = fixture("mainnet_0-255.json");
    let headers: Vec<_> =
        rows.as_array().expect("rows").iter().map(|row| text(&row["filter_header"])).collect();
    let list = folder.write("headers.txt", headers.join("\n"));
    let verify = ["btc", "cf", "verify-headers", GOLDEN];
    let verified = json_of(&[&verify[..], &["--headers", &list]].concat(), YES);
    assert_eq!((&verified["compared"], &verified["mismatch"]), (&json!(256), &json!(null)));
    let raw: Vec<u8> = headers[10..]
        .iter()
        .flat_map(|header| hex::decode(header).expect("hex").into_iter().rev().collect::<Vec<_>>())
        .collect();
    let raw = folder.write("headers.bin", raw);
    let args = [&verify[..], &["--headers", &raw, "--headers-from", "10"]].concat();
    assert_eq!(json_of(&args, YES)["compared"], 246);
    let shifted = json_of(&[&verify[..], &["--headers", &raw]].concat(), WRONG);
    assert_eq!(shifted["mismatch"]["height"], 0);
    let mut changed = headers.clone();
    changed[77] = headers[78];
    let list = folder.write("headers.txt", changed.join("\n"));
    let differs = json_of(&[&verify[..], &["--headers", &list]].concat(), WRONG);
    assert_eq!(differs["mismatch"]["height"], 77);
    assert_eq!(text(&differs["mismatch"]["computed"]), headers[77]);
}

#[test]
fn mistakes_around_compact_filters() {
    let scan = ["btc", "cf", "scan", GOLDEN];
    let outpoint = format!("{}:0", "ab".repeat(32));
    fails(&[&scan[..], &[&outpoint]].concat(), b"", BAD_INPUT, &["whole scripts", "address"]);
    fails(&scan, b"", USAGE, &["nothing to search for"]);
    let testnet = [&scan[..], &[KEY, "--network", "testnet"]].concat();
    fails(&testnet, b"", BAD_INPUT, &["do not belong to network testnet"]);
    fails(
        &[&scan[..], &[KEY, "--birthday", "9", "--to", "8"]].concat(),
        b"",
        USAGE,
        &["--birthday"],
    );
    let block = text(&fixture("mainnet_0-255.json")[5]["block"]).to_owned();
    let build = ["btc", "cf", "build", &block];
    fails(&build, b"", USAGE, &["--height"]);
    let out = std::env::temp_dir().join("chainsieve-never-written.cbf");
    let out = out.to_str().expect("text");
    let headless = [&build[..], &["--height", "5", "--out", out]].concat();
    fails(&headless, b"", USAGE, &["--previous-header"]);
    assert!(!Path::new(out).exists());
    fails(&["btc", "cf", "scan", MAINNET, KEY], b"", BAD_INPUT, &["not a file of filters"]);
    fails(&["btc", "cf", "build", "nowhere.json"], b"", BAD_INPUT, &["no such file"]);
    let nothing = run_with(&["btc", "cf", "build", "-"], b"  \n");
    assert_eq!(nothing.code, BAD_INPUT);
    fails(&["btc", "cf", "build", "-"], b"{\"blocks\": 1}", BAD_INPUT, &["document 1", "block"]);
}
