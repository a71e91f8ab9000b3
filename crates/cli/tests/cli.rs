//! The binary as users call it: each command on real data, with wrong inputs, and its exit codes.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// BIP84's test wallet.
const XPUB: &str = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";
const YES: i32 = 0;
const NO: i32 = 1;
const USAGE: i32 = 2;
const BAD_INPUT: i32 = 3;

struct Output {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run_with(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that reads no input may be gone before it is all written.
    drop(child.stdin.take().expect("piped").write_all(stdin));
    let output = child.wait_with_output().expect("the binary ends");
    Output {
        code: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

/// Runs with `--json` and expects an exit code.
fn json_of(args: &[&str], code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).expect("--json prints JSON")
}

/// Expects an error that says each of `words`, and nothing on standard output.
fn fails(args: &[&str], stdin: &[u8], code: i32, words: &[&str]) {
    let output = run_with(args, stdin);
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "{args:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{args:?}: {word:?} is not in {}", output.stderr);
    }
}

fn fixture(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bitcoin").join(name);
    serde_json::from_slice(&fs::read(path).expect("fixture")).expect("fixture is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn block_757753() -> String {
    text(&fixture("blocks/mainnet_757753.json")["block"]).to_owned()
}

/// A file for one test, removed afterwards.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, contents: impl AsRef<[u8]>) -> Self {
        let file = Self::absent(name);
        fs::write(&file.0, contents).expect("temporary file");
        file
    }

    fn absent(name: &str) -> Self {
        let name = format!("chainsieve-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    fn read(&self) -> String {
        fs::read_to_string(&self.0).expect("written")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[test]
fn filter_new_gives_the_published_payloads() {
    let vectors = fixture("bip37_vectors.json");
    let mut count = 0;
    for case in vectors["filterload"].as_array().expect("cases") {
        let filter = &case["filter"];
        assert_eq!(filter["flags"], 1);
        let numbers = ["elements", "fpr", "tweak"].map(|name| filter[name].to_string());
        let mut args: Vec<&str> = vec!["btc", "filter", "new"];
        for (flag, number) in ["--elements", "--fpr", "--tweak"].iter().zip(&numbers) {
            args.extend([flag, number.as_str()]);
        }
        // The third case has a private key in place of data.
        let Some(inserted) = case["insert"].as_array() else { continue };
        args.extend(inserted.iter().flat_map(|data| ["--data", text(data)]));
        let output = run(&args);
        assert_eq!(output.code, YES);
        assert_eq!(output.stdout.trim_end(), text(&case["payload"]));
        assert!(output.stderr.contains("3 bytes, 5 hash functions"), "{}", output.stderr);
        count += 1;
    }
    assert_eq!(count, 2);
    // The key of that private key.
    let key = "045b81f0017e2091e2edcd5eecf10d5bdd120a5514cb3ee65b8447ec18bfc4575c6d5bf415e54e03b1067934a0f0ba76b01c6b9ab227142ee1d543764b69d901e0";
    let args = ["btc", "filter", "new", "--elements", "2", "--fpr", "0.001", "--tweak", "0"];
    let both = run(&[&args[..], &["--with-keys", "--key", key]].concat());
    assert_eq!(both.stdout.trim_end(), "038fc16b080000000000000001");
    assert!(both.stderr.contains("keys beside their hashes"), "{}", both.stderr);
    let hash_only = json_of(&[&args[..], &["--key", key]].concat(), YES);
    assert_eq!(hash_only["elements"].as_array().map(Vec::len), Some(1));
}

#[test]
fn filter_new_takes_every_kind_of_item_from_flags_files_and_standard_input() {
    let address = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
    let outpoint = "32814b7911b053b7c62c621b70878f3452ab331b2998dc639abf109a407d0a0b:0";
    let key = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    let descriptor = format!("wpkh({XPUB}/<0;1>/*)");
    let lines = format!(
        "# a wallet\n{address} # the first\n\n{outpoint}\n{key}\n{descriptor}\n\
         script:5120{}\ndata: c0ffee00c0ffee00\n",
        "ab".repeat(32)
    );
    let expected = json!([
        ["address", null, "58ead0c62ba5970f9f68d8d66d820af3a65e0d2c"],
        [
            "outpoint",
            null,
            "0b0a7d409a10bf9a63dc98291b33ab52348f87701b622cc6b753b011794b813200000000"
        ],
        ["key", null, "751e76e8199196d454941c45d1b3a323f1433bd6"],
        ["descriptor", 0, "c0cebcd6c3d3ca8c75dc5ec62ebe55330ef910e2"],
        ["descriptor", 1, "9c90f934ea51fa0f6504177043e0908da6929983"],
        ["descriptor", 0, "3e34985dca6fddc9fb369940e4c7d8e2873f529c"],
        ["descriptor", 1, "4227d834f1aae95273f0c87495f4ff0cb3665452"],
        ["script", null, "ab".repeat(32)],
        ["data", null, "c0ffee00c0ffee00"],
    ]);
    let shown = |json: &Value| -> Value {
        let elements = json["elements"].as_array().expect("elements");
        elements.iter().map(|e| json!([e["kind"], e["index"], e["data"]])).collect()
    };
    let common = ["btc", "filter", "new", "--json", "--tweak", "0x10", "--range", "0-1"];
    let file = TempFile::new("wallet.txt", &lines);
    let from_file = run(&[&common[..], &["--file", file.path()]].concat());
    let from_file: Value = serde_json::from_str(&from_file.stdout).expect("JSON");
    assert_eq!(shown(&from_file), expected);
    assert_eq!(from_file["tweak"], 16);
    assert_eq!(from_file["sized_for"], 109, "100 elements of room");
    let from_stdin = run_with(&[&common[..], &["-"]].concat(), lines.as_bytes());
    let from_stdin: Value = serde_json::from_str(&from_stdin.stdout).expect("JSON");
    assert_eq!(from_stdin, from_file);
    let from_flags = run(&[
        &common[..],
        &["--address", address, "--outpoint", outpoint, "--key", key],
        &["--descriptor", &descriptor, &format!("script:5120{}", "ab".repeat(32))],
        &["--data", "c0ffee00c0ffee00"],
    ]
    .concat());
    let from_flags: Value = serde_json::from_str(&from_flags.stdout).expect("JSON");
    assert_eq!(from_flags["payload"], from_file["payload"]);
}

#[test]
fn filter_new_writes_files_and_makes_random_tweaks() {
    let address = "bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n";
    let args = ["btc", "filter", "new", "--tweak", "7", address];
    let payload = run(&args).stdout;
    let out = TempFile::absent("filter.hex");
    let silent = run(&[&args[..], &["--out", out.path()]].concat());
    assert_eq!((silent.code, silent.stdout.as_str()), (YES, ""));
    assert_eq!(out.read(), payload);
    run(&[&args[..], &["--out", out.path(), "--raw"]].concat());
    assert_eq!(hex::encode(fs::read(&out.0).expect("written")), payload.trim_end());
    let random = || json_of(&["btc", "filter", "new", address], YES);
    let (one, two) = (random(), random());
    assert_eq!(one["tweak_random"], true);
    assert_ne!(one["tweak"], two["tweak"]);
    assert!(text(&one["warnings"][0]).contains(&format!("--tweak {}", one["tweak"])));
}

#[test]
fn filter_new_warns_of_what_it_cannot_do() {
    let warnings = |args: &[&str]| {
        let json = json_of(&[&["btc", "filter", "new", "--tweak", "1"], args].concat(), YES);
        json["warnings"].to_string()
    };
    let data = "data:c0ffee00c0ffee00";
    assert_eq!(warnings(&[data]), "[]");
    assert!(warnings(&[data, "script:51"]).contains("pushes no data"));
    assert!(warnings(&["script:02aabb05cc"]).contains("ends inside a push"));
    assert!(warnings(&["data:c0ffee"]).contains("3 bytes also stand in others' scripts"));
    assert!(warnings(&[data, data]).contains("given twice"));
    assert!(
        warnings(&["--elements", "1", "--fpr", "0.01", data, "data:00000000c0ffee00"])
            .contains("sized for 1")
    );
    let address = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
    let page = run(&["btc", "filter", "new", "--fpr", "0.01", "--elements", "2", address, data]);
    assert!(page.stderr.contains("fewer than 15"), "{}", page.stderr);
    assert!(warnings(&[address, "--update", "none"]).contains("--update none the node inserts"));
    assert!(warnings(&[address, "--elements", "4"]).contains("little room"));
}

#[test]
fn filter_new_refuses_with_the_place_and_the_reason() {
    let new = ["btc", "filter", "new"];
    let fails = |args: &[&str], code, words: &[&str]| {
        fails(&[&new[..], args].concat(), b"", code, words);
    };
    fails(&[], USAGE, &["nothing to watch"]);
    fails(&["--fpr", "much"], USAGE, &["--fpr"]);
    fails(&["--range", "9-0", "data:00"], USAGE, &["greater"]);
    fails(&["--update", "some", "data:00"], USAGE, &["p2pubkey-only"]);
    fails(&["--raw", "data:00"], USAGE, &["--out"]);
    fails(&["satoshi"], BAD_INPUT, &["satoshi", "neither an address"]);
    fails(&["00ff"], BAD_INPUT, &["script:HEX, data:HEX or txid:HEX"]);
    fails(&["--data", "0g"], BAD_INPUT, &["'g' at position 1"]);
    fails(&["--data", ""], BAD_INPUT, &["no bytes"]);
    fails(&["--script", "51"], BAD_INPUT, &["BIP37 cannot watch"]);
    let typo = "bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4x";
    fails(&[typo], BAD_INPUT, &[typo, "wrong checksum"]);
    fails(&["1979m9gb8qypkDp8HYV3HvbWxCBX5anSzz"], BAD_INPUT, &["checksum"]);
    fails(&["--fpr", "0", "data:00"], BAD_INPUT, &["rate 0 is not between 0 and 1"]);
    fails(&["--elements", "0", "data:00"], BAD_INPUT, &["0 elements"]);
    fails(&["--elements", "1", "--fpr", "0.1", "data:00"], BAD_INPUT, &["matches everything"]);
    fails(&["tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"], BAD_INPUT, &["--network testnet"]);
    fails(&[XPUB], BAD_INPUT, &["descriptor"]);
    fails(
        &[
            "wpkh(xprv9s21ZrQH143K31xYSDQpPDxsXRTUcvj2iNHm5NUtrGiGG5e2DtALGdso3pGz6ssrdK4PFmM8NSpSBHNqPqm55Qn3LqFtT2emdEXVYsCzC2U)",
        ],
        BAD_INPUT,
        &["private key"],
    );
    fails(&["--file", "/nonexistent/wallet"], BAD_INPUT, &["/nonexistent/wallet"]);
    // Private keys are refused, and not shown: errors end up in logs.
    let wif = "5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15C";
    for item in [wif.to_owned(), format!("pkh({wif})"), format!("descriptor:wpkh({wif})")] {
        let output = run(&[&new[..], &[&item]].concat());
        assert_eq!(output.code, BAD_INPUT);
        assert!(!output.stderr.contains("5Kg1"), "{}", output.stderr);
    }
    let file = TempFile::new("bad.txt", "data:00\n\ndata:0\n");
    fails(&["--file", file.path()], BAD_INPUT, &["line 3", "an odd number of digits"]);
    fails(&["-", "-"], USAGE, &["only once"]);
}

#[test]
fn filter_inspect_shows_fields_and_what_is_odd() {
    let inspect = |hex: &str, code| json_of(&["btc", "filter", "inspect", hex], code);
    let json = inspect("03614e9b050000000000000001", YES);
    assert_eq!(json["bytes"], 3);
    assert_eq!(json["hash_funcs"], 5);
    assert_eq!(json["update"], "all");
    assert_eq!((&json["bits"], &json["bits_set"]), (&json!(24), &json!(12)));
    assert_eq!(json["rate"], 0.03125);
    assert_eq!(json["warnings"], json!([]));
    let odd = inspect("03614e9b0500000000000000817f", YES);
    assert_eq!((&odd["flags"], &odd["trailing_bytes"]), (&json!(0x81), &json!(1)));
    assert_eq!(odd["warnings"].as_array().map(Vec::len), Some(2));
    let empty = inspect("00050000000000000000", YES);
    assert_eq!(
        (&empty["matches_everything"], &empty["estimated_elements"]),
        (&json!(true), &json!(null))
    );
    let greedy = inspect("0100330000000000000001", NO);
    assert_eq!(greedy["accepted_by_nodes"], false);
    let large = format!("fda18c{}050000000000000001", "00".repeat(36_001));
    let file = TempFile::new("large.hex", &large);
    assert_eq!(inspect(file.path(), NO)["bytes"], 36_001);
    let page = run_with(&["btc", "filter", "inspect", "-"], b"03614e9b05000000\n0000000001\n");
    assert_eq!(page.code, YES);
    assert!(page.stdout.contains("50.0 %, 12 of 24 bits"), "{}", page.stdout);
    fails(&["btc", "filter", "inspect", "0361"], b"", BAD_INPUT, &["hex 0361", "ends early"]);
    fails(&["btc", "filter", "inspect", "zz"], b"", BAD_INPUT, &["no such file", "not hex"]);
    fails(&["btc", "filter", "inspect", "-"], b"", BAD_INPUT, &["filter"]);
    fails(&["btc", "filter", "inspect"], b"", USAGE, &["FILTER"]);
}

/// The published merkle blocks of Bitcoin Core's tests: insert, match, insert more, match again.
#[test]
fn match_and_prove_agree_with_the_published_blocks() {
    let vectors = fixture("bip37_vectors.json");
    let mut steps = 0;
    for case in vectors["merkle_blocks"].as_array().expect("cases") {
        let block = text(&vectors["blocks"][text(&case["block"])]);
        let flags = case["filter"]["flags"].as_u64().expect("flags");
        let update = ["none", "all", "p2pubkey-only"][usize::try_from(flags).expect("small")];
        let mut data = Vec::new();
        for step in case["steps"].as_array().expect("steps") {
            let Some(expected) = step["matches"].as_array() else { break };
            if let Some(txid) = step["insert_txid"].as_str() {
                let mut bytes = hex::decode(txid).expect("hex");
                bytes.reverse();
                data.push(hex::encode(bytes));
            }
            match &step["insert"] {
                Value::String(one) => data.push(one.clone()),
                Value::Array(many) => data.extend(many.iter().map(|one| text(one).to_owned())),
                _ => {}
            }
            let mut new = vec!["btc", "filter", "new", "--elements", "10", "--fpr", "0.000001"];
            new.extend(["--tweak", "0", "--update", update]);
            new.extend(data.iter().flat_map(|one| ["--data", one]));
            let filter = run(&new).stdout;
            let filter = filter.trim_end();

            let matched = json_of(&["btc", "match", filter, block], YES);
            let input = &matched["inputs"][0];
            assert_eq!(input["hash"], case["block"]);
            let pairs = |list: &Value| -> Vec<Value> {
                let list = list.as_array().expect("a list");
                list.iter().map(|found| json!([found["index"], found["txid"]])).collect()
            };
            assert_eq!(&pairs(&input["matches"]), expected);

            let made = json_of(&["btc", "prove", "make", block, "--filter", filter], YES);
            assert_eq!(&pairs(&made["proven"]), expected);
            assert_eq!(made["payload"], matched["payload"]);
            let proven = json_of(&["btc", "prove", "verify", text(&made["merkleblock"])], YES);
            assert_eq!(&pairs(&proven["proven"]), expected);
            assert_eq!(proven["block_hash"], case["block"]);
            steps += 1;
        }
    }
    assert!(steps >= 6, "{steps}");
}

#[test]
fn match_says_why_and_carries_the_filter_from_input_to_input() {
    let vectors = fixture("bip37_vectors.json");
    let [funding, spending] =
        ["funding", "spending"].map(|name| text(&vectors["transactions"][name]["hex"]).to_owned());
    // The key hash is in the first transaction only; the second spends its output.
    let new = [
        "btc",
        "filter",
        "new",
        "--tweak",
        "0",
        "--data",
        "04943fdd508053c75000106d3bc6e2754dbcff19",
    ];
    let filter = run(&new).stdout;
    let filter = filter.trim_end();
    let after = TempFile::absent("after.hex");
    let stdin = format!("{funding}\n{spending}\n");
    let args = ["btc", "match", filter, "-", "--json", "--filter-out", after.path()];
    let output = run_with(&args, stdin.as_bytes());
    assert_eq!(output.code, YES, "{}", output.stderr);
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((&json["matched"], &json["inserted"]), (&json!(2), &json!(1)));
    assert_eq!(json["inputs"][0]["source"], "standard input, line 1");
    let reason = &json["inputs"][0]["matches"][0]["reasons"][0];
    assert_eq!(reason["kind"], "output");
    assert_eq!(reason["data"], "04943fdd508053c75000106d3bc6e2754dbcff19");
    assert_eq!(reason["address"], "1RDJKdHEZoApED4gMcsMAVrYL8vUUCwhv");
    assert_eq!(reason["inserted"], true);
    let funding_txid = text(&vectors["transactions"]["funding"]["txid"]);
    let spent = &json["inputs"][1]["matches"][0]["reasons"][0];
    assert_eq!(spent["kind"], "spent");
    assert_eq!(text(&spent["outpoint"]).split(':').next(), Some(funding_txid));
    assert_eq!(after.read().trim_end(), text(&json["payload"]));
    assert_ne!(json["payload"], filter);
    // Alone, the second shows nothing that was inserted.
    let alone = run(&["btc", "match", filter, &spending]);
    assert_eq!(alone.code, NO);
    assert!(alone.stdout.contains("no match"), "{}", alone.stdout);
    assert_eq!(run(&["btc", "match", after.path(), &spending, "--as", "tx"]).code, YES);
}

#[test]
fn match_refuses_with_the_place_and_the_reason() {
    let filter = "03614e9b050000000000000001";
    let fails = |args: &[&str], code, words: &[&str]| {
        fails(&[&["btc", "match"], args].concat(), b"00", code, words);
    };
    fails(&[filter], USAGE, &["BLOCK|TX"]);
    fails(&[filter, "-", "-"], USAGE, &["only once"]);
    fails(&["-", "-"], USAGE, &["only once"]);
    fails(&[filter, "00"], BAD_INPUT, &["neither a block", "nor a transaction"]);
    fails(&[filter, "00", "--as", "block"], BAD_INPUT, &["block, hex 00"]);
    fails(&["0100330000000000000001", "00"], BAD_INPUT, &["51 hash functions, the limit is 50"]);
    fails(&[filter, "/nonexistent/block"], BAD_INPUT, &["no such file"]);
    fails(&[filter, "/"], BAD_INPUT, &["/"]);
    let file = TempFile::new("blocks.hex", format!("{}\n00\n", block_757753()));
    fails(&[filter, file.path()], BAD_INPUT, &["line 2"]);
}

#[test]
fn prove_goes_from_a_block_to_what_a_wallet_knows() {
    let block = TempFile::new("block.hex", block_757753());
    let txid = "433cfb525b7f653b725c7db804e4c0c772e30fedee30a8d86f1fb1ab67dd8ee2";
    let hash = "000000000000000000032c781dbe11459fba50312acfca3cd96fa2bc4367d5b1";
    let (proof, txs) = (TempFile::absent("proof.hex"), TempFile::absent("txs.hex"));
    let command = ["btc", "prove", "make", block.path(), "--txid", txid, "--coinbase"];
    let outs = ["--out", proof.path(), "--txs-out", txs.path()];
    let made = json_of(&[&command[..], &outs].concat(), YES);
    assert_eq!(made["proven"][1]["index"], 18);
    assert_eq!(proof.read().trim_end(), text(&made["merkleblock"]));
    assert_eq!(run(&command).stdout, proof.read());

    let verify = ["btc", "prove", "verify", proof.path()];
    let full = json_of(&[&verify[..], &[txs.path(), "--block-hash", hash]].concat(), YES);
    assert_eq!(full["depth"], "coinbase");
    assert_eq!((&full["named"], &full["proof_of_work"]), (&json!(true), &json!(true)));
    assert_eq!(full["not_proven"].as_array().map(Vec::len), Some(1), "omission, always");
    let bare = json_of(&verify, YES);
    assert_eq!(bare["depth"], "unproven");
    assert_eq!(bare["proven"][1], json!({"index": 18, "txid": txid, "delivered": false}));
    assert_eq!(bare["not_proven"].as_array().map(Vec::len), Some(4));
    let core = json_of(&[&verify[..], &["--policy", "core"]].concat(), YES);
    assert_eq!(core["proof_of_work"], false);

    let other = "00".repeat(32);
    let other = json_of(&[&verify[..], &["--block-hash", &other]].concat(), NO);
    assert_eq!((&other["valid"], &other["proven"]), (&json!(false), &json!([])));
    let vectors = fixture("bip37_vectors.json");
    let stranger = text(&vectors["transactions"]["funding"]["hex"]);
    let stranger = json_of(&[&verify[..], &[stranger]].concat(), NO);
    assert_eq!(stranger["not_in_tree"][0], vectors["transactions"]["funding"]["txid"]);
    // One bit of one hash in the tree; then one bit of the header's nonce.
    for (position, core_code) in [(400, NO), (158, YES)] {
        let mut damaged = proof.read().trim_end().to_owned();
        let digit = if &damaged[position..=position] == "0" { "1" } else { "0" };
        damaged.replace_range(position..=position, digit);
        let strict = json_of(&["btc", "prove", "verify", &damaged], NO);
        assert!(strict["error"].is_string());
        json_of(&["btc", "prove", "verify", &damaged, "--policy", "core"], core_code);
    }
}

#[test]
fn prove_refuses_with_the_place_and_the_reason() {
    let block = TempFile::new("refused.hex", block_757753());
    let refused = |args: &[&str], code, words: &[&str]| {
        fails(&[&["btc", "prove", "make", block.path()], args].concat(), b"", code, words);
    };
    refused(&[], USAGE, &["--filter"]);
    refused(&["--txid", "00"], USAGE, &["--txid"]);
    refused(&["--txid", &"ab".repeat(32)], BAD_INPUT, &["abab", "is not in the block"]);
    refused(&["--filter", "00"], BAD_INPUT, &["filter, hex 00", "ends early"]);
    fails(&["btc", "prove", "make", "00", "--filter", "00"], b"", BAD_INPUT, &["filter"]);
    let verify = |args: &[&str], words: &[&str]| {
        fails(&[&["btc", "prove", "verify"], args].concat(), b"", BAD_INPUT, words);
    };
    verify(&["00"], &["merkleblock, hex 00"]);
    verify(&["-"], &["merkleblock, standard input"]);
    // A filter that matches nothing still has a merkleblock, and it verifies.
    let nothing = "0100010000000000000000";
    let made = json_of(&["btc", "prove", "make", block.path(), "--filter", nothing], NO);
    let verified = json_of(&["btc", "prove", "verify", text(&made["merkleblock"])], YES);
    assert_eq!(verified["proven"], json!([]));
}

#[test]
fn demo_tells_the_whole_story() {
    let page = run(&["demo"]);
    assert_eq!((page.code, page.stderr.as_str()), (YES, ""));
    assert!(page.stdout.lines().count() <= 40);
    assert!(!page.stdout.contains('\x1b'), "no colours in a pipe");
    let json = json_of(&["demo"], YES);
    let own: Vec<_> =
        json["matches"].as_array().expect("matches").iter().filter(|m| m["own"] == true).collect();
    let indices: Vec<_> = own.iter().map(|found| &found["index"]).collect();
    assert_eq!(indices, [&json!(0), &json!(2), &json!(9), &json!(18)]);
    assert_eq!(own[3]["reasons"][0]["kind"], "spent");
    assert_eq!(json["depth"], "coinbase");
    let verified = json_of(&["btc", "prove", "verify", text(&json["merkleblock"])], YES);
    assert_eq!(
        verified["proven"].as_array().map(Vec::len),
        json["matches"].as_array().map(Vec::len)
    );
    let block = block_757753();
    let matched = json_of(&["btc", "match", text(&json["payload"]), &block], YES);
    assert_eq!(matched["matched"], json["matches"].as_array().map_or(0, Vec::len));
}

#[test]
fn help_names_the_exit_codes_and_every_command_has_its_fields() {
    let help = run(&["--help"]);
    assert_eq!(help.code, YES);
    assert!(help.stdout.contains("Exit codes:"), "{}", help.stdout);
    for command in [
        &["btc", "filter", "new"][..],
        &["btc", "filter", "inspect"],
        &["btc", "match"],
        &["btc", "prove", "make"],
        &["btc", "prove", "verify"],
        &["demo"],
    ] {
        let help = run(&[command, &["--help"]].concat());
        assert_eq!(help.code, YES);
        assert!(help.stdout.contains("JSON: "), "{command:?}: {}", help.stdout);
    }
    assert_eq!(run(&[]).code, USAGE);
    assert_eq!(run(&["btc", "mach"]).code, USAGE);
    assert!(run(&["--version"]).stdout.starts_with("chainsieve "));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let everything = "00010000000000000001";
    let block = TempFile::new("pipe.hex", block_757753());
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
        .args(["btc", "match", "--json", everything, block.path(), block.path(), block.path()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(YES));
}

/// Every prefix of each kind of input, as each kind of input: an exit code, never a panic.
#[test]
fn no_input_panics() {
    let vectors = fixture("bip37_vectors.json");
    let payloads = [
        "03614e9b050000000000000001",
        text(&vectors["transactions"]["funding"]["hex"]),
        text(
            &vectors["blocks"]["000000000000dab0130bbcc991d3d7ae6b81aa6f50a798888dfe62337458dc45"],
        ),
    ];
    for payload in payloads {
        for end in (0..payload.len()).step_by(26) {
            let cut = &payload.as_bytes()[..end];
            for args in [
                &["btc", "filter", "inspect", "-"][..],
                &["btc", "match", "00010000000000000001", "-"],
                &["btc", "prove", "verify", "-", "--policy", "core"],
                &["btc", "prove", "make", "-", "--filter", "00010000000000000001"],
                &["btc", "filter", "new", "-"],
            ] {
                let output = run_with(args, cut);
                assert!((0..=3).contains(&output.code), "{args:?} {end}: {}", output.stderr);
                assert!(!output.stderr.contains("panicked"), "{args:?} {end}: {}", output.stderr);
            }
        }
    }
}
