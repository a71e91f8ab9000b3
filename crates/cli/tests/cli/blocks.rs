//! Tests of `btc match` and `btc prove`.

use chainsieve::bitcoin::consensus::encode::serialize_hex;
use chainsieve::bitcoin::{Block, consensus::encode::deserialize_hex};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};

use super::*;

/// Returns the merkleblock of these transactions of a block, and the transactions without witness.
pub(crate) fn merkle_block(block: &str, indices: &[u32]) -> (String, Vec<String>) {
    let elements = BlockElements::from_raw(&hex::decode(block).expect("hex")).expect("a block");
    let made = MerkleBlock::new(elements.header(), elements.txids(), indices).expect("in order");
    let block: Block = deserialize_hex(block).expect("a block");
    let sent = indices.iter().map(|&index| {
        let mut transaction = block.txdata[index as usize].clone();
        transaction.input.iter_mut().for_each(|input| input.witness.clear());
        serialize_hex(&transaction)
    });
    (hex::encode(made.encode()), sent.collect())
}

/// Returns a node's answer for a block, and the filter afterwards.
fn answer_of_node(filter: &str, block: &str) -> (String, String) {
    let mut filter = BloomFilter::decode(&hex::decode(filter).expect("hex")).expect("a filter");
    let elements = BlockElements::from_raw(&hex::decode(block).expect("hex")).expect("a block");
    let found: Vec<_> = filter.match_block(&elements).iter().map(|found| found.index).collect();
    (merkle_block(block, &found).0, hex::encode(filter.encode()))
}

/// The published merkle blocks of Bitcoin Core's tests: insert elements, match, insert more, match
/// again.
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
            let mut new = vec!["btc", "bloom", "new", "--elements", "10", "--fpr", "0.000001"];
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

            let (made, after) = answer_of_node(filter, block);
            assert_eq!(matched["payload"], after);
            let proven = json_of(&["btc", "prove", "verify", &made], YES);
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
    // The key hash is in the first transaction only; the second one spends an output of the first.
    let new = [
        "btc",
        "bloom",
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
    // Without the first transaction, the second one does not match, because the outpoint that it
    // spends was not inserted.
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
    let missing = run(&["btc", "match", filter]);
    assert_eq!(missing.code, USAGE, "{}", missing.stderr);
    assert!(missing.stderr.contains("BLOCK|TX"), "{}", missing.stderr);
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
fn prove_verify_says_what_a_wallet_knows() {
    let txid = "433cfb525b7f653b725c7db804e4c0c772e30fedee30a8d86f1fb1ab67dd8ee2";
    let hash = "000000000000000000032c781dbe11459fba50312acfca3cd96fa2bc4367d5b1";
    let (made, sent) = merkle_block(&block_757753(), &[0, 18]);
    let proof = TempFile::new("proof.hex", format!("{made}\n"));
    let txs = TempFile::new("txs.hex", sent.join("\n"));

    let verify = ["btc", "prove", "verify", proof.path()];
    let full = json_of(&[&verify[..], &[txs.path(), "--block-hash", hash]].concat(), YES);
    assert_eq!(full["depth"], "coinbase");
    assert_eq!((&full["named"], &full["proof_of_work"]), (&json!(true), &json!(true)));
    assert_eq!(full["not_proven"].as_array().map(Vec::len), Some(1), "completeness is not proven");
    let bare = json_of(&verify, YES);
    assert_eq!(bare["depth"], "unproven");
    assert_eq!(bare["proven"][1], json!({"index": 18, "txid": txid, "delivered": false}));
    assert_eq!(bare["not_proven"].as_array().map(Vec::len), Some(4));
    let core = json_of(&[&verify[..], &["--policy", "core"]].concat(), YES);
    assert_eq!(core["proof_of_work"], false);

    let other = "00".repeat(32);
    let other = json_of(&[&verify[..], &["--block-hash", &other]].concat(), WRONG);
    assert_eq!((&other["valid"], &other["proven"]), (&json!(false), &json!([])));
    let vectors = fixture("bip37_vectors.json");
    let stranger = text(&vectors["transactions"]["funding"]["hex"]);
    let stranger = json_of(&[&verify[..], &[stranger]].concat(), NO);
    assert_eq!(stranger["not_in_tree"][0], vectors["transactions"]["funding"]["txid"]);
    // Change one bit of a hash in the tree, then one bit of the header's nonce.
    for (position, core_code) in [(400, WRONG), (158, YES)] {
        let mut damaged = proof.read().trim_end().to_owned();
        let digit = if &damaged[position..=position] == "0" { "1" } else { "0" };
        damaged.replace_range(position..=position, digit);
        let strict = json_of(&["btc", "prove", "verify", &damaged], WRONG);
        assert!(strict["error"].is_string());
        json_of(&["btc", "prove", "verify", &damaged, "--policy", "core"], core_code);
    }
}

#[test]
fn prove_refuses_with_the_place_and_the_reason() {
    let verify = |args: &[&str], words: &[&str]| {
        fails(&[&["btc", "prove", "verify"], args].concat(), b"", BAD_INPUT, words);
    };
    verify(&["00"], &["merkleblock, hex 00"]);
    verify(&["-"], &["merkleblock, standard input"]);
    // For a filter that matches nothing, a node sends a merkleblock too, which verifies.
    let (made, _) = merkle_block(&block_757753(), &[]);
    let verified = json_of(&["btc", "prove", "verify", &made], YES);
    assert_eq!(verified["proven"], json!([]));
}
