//! Tests of `btc cf build`, `scan`, `audit` and `verify-headers`.

use std::path::Path;

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::consensus::encode::{deserialize_hex, serialize_hex};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, CompactTarget, ScriptBuf, Transaction, TxIn, TxOut, transaction,
};
use chainsieve::btc::descriptors::descriptor_scripts;
use testkit::TestFolder;

use super::*;

mod gap_limit;
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

/// Returns the JSON lines of a command: all lines before the last one, and the last line.
fn lines_of(args: &[&str], code: i32) -> (Vec<Value>, Value) {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    let mut lines = output.lines();
    let last = lines.pop().expect("a summary");
    (lines, last)
}

fn golden() -> Vec<u8> {
    fs::read(GOLDEN).expect("a fixture")
}

#[test]
fn every_form_of_block_gives_the_same_filter() {
    let folder = TestFolder::new("forms");
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

/// Returns blocks in hex that pay to these scripts. The blocks spend nothing, and have no proof of
/// work.
pub(crate) fn chain_of(scripts: &[Vec<ScriptBuf>]) -> Vec<String> {
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
