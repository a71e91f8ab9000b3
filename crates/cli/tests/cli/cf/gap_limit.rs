//! The gap limit of `btc cf scan`: a rule about indices, whatever the order of the blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use chainsieve::bitcoin::OutPoint;

use super::*;

/// The highest index that the chains use.
const MOST: u32 = 7;

/// Payments and spends of one block, by derivation index. Index 0 is never used.
#[derive(Default, Clone)]
struct Uses {
    pays: Vec<u32>,
    /// Indices of earlier blocks, whose coins the block spends.
    spends: Vec<u32>,
}

fn descriptor() -> String {
    format!("wpkh({XPUB}/0/*)")
}

/// Writes the filters of a chain to a file and returns the file's path.
fn filters(folder: &TestFolder, name: &str, chain: &[Uses]) -> String {
    let scripts = descriptor_scripts(&descriptor(), 0..=MOST).expect("a descriptor");
    let script = |index: &u32| scripts[*index as usize].script.clone();
    let mut coins = BTreeMap::new();
    let mut prev_blockhash = BlockHash::all_zeros();
    let mut blocks = Vec::new();
    for (height, Uses { pays, spends }) in (0..).zip(chain) {
        let output = |script_pubkey| TxOut { value: Amount::ONE_SAT, script_pubkey };
        let transaction = |input, output| Transaction {
            version: transaction::Version::ONE,
            lock_time: LockTime::from_consensus(height),
            input,
            output,
        };
        let mut outputs: Vec<_> = pays.iter().map(|index| output(script(index))).collect();
        outputs.push(output(ScriptBuf::from(vec![0x51])));
        let mut txdata = vec![transaction(vec![TxIn::default()], outputs)];
        for index in spends {
            let previous_output = coins.remove(index).expect("paid in an earlier block");
            let input = TxIn { previous_output, ..TxIn::default() };
            txdata.push(transaction(vec![input], vec![output(ScriptBuf::from(vec![0x52]))]));
        }
        let txid = txdata[0].compute_txid();
        coins.extend((0..).zip(pays).map(|(vout, index)| (*index, OutPoint { txid, vout })));
        let txids = txdata.iter().map(|tx| tx.compute_txid().to_raw_hash());
        let merkle_root = chainsieve::bitcoin::merkle_tree::calculate_root(txids).expect("some");
        let bits = CompactTarget::from_consensus(0x207f_ffff);
        let (version, time, nonce) = (Version::ONE, height, 0);
        let merkle_root = merkle_root.into();
        let header = Header { version, prev_blockhash, merkle_root, time, bits, nonce };
        prev_blockhash = header.block_hash();
        blocks.push(serialize_hex(&Block { header, txdata }));
    }
    let file = folder.write(&format!("{name}.hex"), blocks.join("\n"));
    let out = folder.file(&format!("{name}.cbf"));
    assert_eq!(run(&["btc", "cf", "build", &file, "--height", "0", "--out", &out]).code, YES);
    out
}

/// Returns the heights and indices of the hits, and the summary. No hit may occur twice.
fn hits(args: &[&str], code: i32) -> (BTreeSet<(u64, u64)>, Value) {
    let (lines, last) = lines_of(args, code);
    let mut found = BTreeSet::new();
    for line in &lines {
        for script in line["scripts"].as_array().expect("scripts") {
            let hit = (line["height"].as_u64(), script["index"].as_u64());
            let hit = (hit.0.expect("a height"), hit.1.expect("an index"));
            assert!(found.insert(hit), "{hit:?} is printed twice");
        }
    }
    (found, last)
}

/// The first block pays index 7, the second index 4, and the third spends the coin of index 7. The
/// range has indices 0 to 4, and index 7 is within the gap limit of index 4.
fn backwards() -> [Uses; 3] {
    let pays = |index| Uses { pays: vec![index], spends: vec![] };
    [pays(7), pays(4), Uses { pays: vec![], spends: vec![7] }]
}

const RANGE: [&str; 4] = ["--range", "0-4", "--gap-limit", "3"];

#[test]
fn a_script_within_the_gap_limit_is_found_whatever_the_order_of_the_blocks() {
    let folder = TestFolder::new("gap-order");
    let out = filters(&folder, "backwards", &backwards());
    let descriptor = descriptor();
    let scan = [&["btc", "cf", "scan", &out, &descriptor][..], &RANGE].concat();
    let (found, last) = hits(&scan, YES);
    assert_eq!(found, BTreeSet::from([(0, 7), (1, 4), (2, 7)]));
    assert_eq!((&last["passes"], &last["unsearched"]), (&json!(2), &json!([])));
    assert_eq!((&last["filters"], &last["scripts"]), (&json!(3), &json!(11)));
    let page = run(&scan);
    assert!(page.stdout.contains("read again"), "{}", page.stdout);
    assert!(page.stdout.contains("candidates     3;"), "{}", page.stdout);
    // No script was used before the birthday, so only the blocks from there on are searched again.
    let (found, _) = hits(&[&scan[..], &["--birthday", "1"]].concat(), YES);
    assert_eq!(found, BTreeSet::from([(1, 4), (2, 7)]));
    // With --to, no later block is read in any pass.
    let (found, _) = hits(&[&scan[..], &["--to", "1"]].concat(), YES);
    assert_eq!(found, BTreeSet::from([(0, 7), (1, 4)]));
}

/// A pipe cannot be read again. What was not searched is in the report, and the exit code is not
/// that of an answer.
#[test]
fn a_scan_of_a_pipe_tells_what_it_could_not_search_again() {
    let folder = TestFolder::new("gap-pipe");
    let out = filters(&folder, "backwards", &backwards());
    let fifo = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let descriptor = descriptor();
    let through = |more: &[&str], code| {
        let (path, bytes) = (fifo.clone(), fs::read(&out).expect("a file"));
        let writer = std::thread::spawn(move || fs::write(path, bytes));
        let scan = [&["btc", "cf", "scan", &fifo, &descriptor][..], more].concat();
        let found = hits(&scan, code);
        writer.join().expect("no panic").expect("all was read");
        found
    };
    let (found, last) = through(&RANGE, UNDECIDED);
    assert_eq!(found, BTreeSet::from([(1, 4), (2, 7)]));
    let unsearched = json!({
        "item": descriptor, "first_index": 5, "last_index": 10, "first": 0, "last": 1,
    });
    assert_eq!(last["unsearched"], json!([unsearched]));
    let warnings = last["warnings"].to_string();
    assert!(warnings.contains("index 5 to 10") && warnings.contains("pipe"), "{warnings}");
    // Nothing is left to search if the range is wide enough, or if nothing lies before the hit.
    let (found, _) = through(&["--range", "0-20", "--gap-limit", "3"], YES);
    assert_eq!(found, BTreeSet::from([(0, 7), (1, 4), (2, 7)]));
    let (_, last) = through(&[&RANGE[..], &["--birthday", "1", "--to", "1"]].concat(), YES);
    assert_eq!(last["unsearched"], json!([]));
}
