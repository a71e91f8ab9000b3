//! Addresses and topics that are in so many logs that a query for them excludes hardly any block.
//! The values are counted in a megabyte, for any number of values, and compared with exact counts.
//!
//! `cargo run --example popular_values`. If `CHAINSIEVE_CORPUS` is set, the receipts of the corpus
//! are counted too.
#![expect(clippy::cast_precision_loss, reason = "small counts, shown as shares")]

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_filter::count_min::{CountMin, UpdateRule};
use chainsieve_filter::{Filter, KeyHasher};

/// Estimates are too high by at most this share of all counts, except for a share of `DELTA`.
const EPSILON: f64 = 1.1e-4;
/// Share of values whose estimate may be higher.
const DELTA: f64 = 1e-4;
/// Share of logs from which a value is popular: a value in one log of twenty is in nearly every
/// block.
const POPULAR: f64 = 0.05;

/// Returns the receipts of the blocks in a folder: `{receipts}` in JSON, or one RLP list.
fn blocks(folder: &Path) -> Result<Vec<BlockReceipts>, Box<dyn Error>> {
    let mut files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    let mut blocks = Vec::new();
    for file in files.iter().map(fs::DirEntry::path) {
        let name = file.to_string_lossy();
        if name.ends_with(".receipts.rlp") {
            blocks.push(BlockReceipts::from_rlp_list(&fs::read(&file)?)?);
        } else if name.ends_with(".json") && !name.contains(".receipts.") {
            let block: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
            let receipts = block["receipts"].as_array().ok_or("no receipts")?.iter();
            let receipts = receipts.filter_map(|receipt| receipt.as_str()?.strip_prefix("0x"));
            let receipts: Vec<_> = receipts.map(hex::decode).collect::<Result<_, _>>()?;
            blocks.push(BlockReceipts::from_encodings(&receipts)?);
        }
    }
    Ok(blocks)
}

fn report(source: &str, blocks: &[BlockReceipts]) -> Result<(), Box<dyn Error>> {
    let hasher = KeyHasher::siphash_1_3([1, 2]);
    let mut sketch = CountMin::with_error(EPSILON, DELTA, UpdateRule::Conservative, hasher)?;
    let (mut exact, mut logs) = (HashMap::<Vec<u8>, u32>::new(), 0_u32);
    for log in blocks.iter().flat_map(BlockReceipts::iter).flat_map(|receipt| &receipt.logs) {
        logs += 1;
        // A value that occurs twice in a log counts once.
        let topics = log.topics().iter().map(|topic| &topic[..]);
        let values: BTreeSet<&[u8]> = topics.chain([log.address.as_slice()]).collect();
        for value in values {
            sketch.add(value, 1);
            *exact.entry(value.to_vec()).or_default() += 1;
        }
    }
    println!("{source}: {} blocks, {logs} logs, {} values", blocks.len(), exact.len());
    let (bytes, bound) = (sketch.num_bits() / 8, sketch.error_bound());
    println!(
        "sketch {bytes} bytes, estimates at most {bound:.1} too high, but for {DELTA} of values"
    );
    let mut too_high = 0;
    let mut popular = Vec::new();
    for (value, count) in &exact {
        let estimate = sketch.estimate(value);
        assert!(estimate >= *count, "never too low");
        too_high += u32::from(f64::from(estimate - count) > bound);
        if f64::from(estimate) >= POPULAR * f64::from(logs) {
            popular.push((estimate, *count, value));
        }
    }
    assert!(f64::from(too_high) <= DELTA * exact.len() as f64, "{too_high} are too high");
    popular.sort_unstable_by(|a, b| b.cmp(a));
    for (estimate, count, value) in popular {
        let share = 100.0 * f64::from(estimate) / f64::from(logs);
        println!("{share:.0} % of logs: 0x{}, {estimate} ({count} exactly)", hex::encode(value));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ethereum/blocks");
    report("fixtures", &blocks(&fixtures)?)?;
    if let Some(corpus) = env::var_os("CHAINSIEVE_CORPUS") {
        report("corpus", &blocks(&Path::new(&corpus).join("ethereum/mainnet/blocks"))?)?;
    }
    Ok(())
}
