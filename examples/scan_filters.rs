//! Follows the coins of the first block that was ever spent from, through a file of filters. Each
//! filter is checked against the known filter headers, and only blocks whose filter matches are
//! read.
//!
//! `cargo run --example scan_filters`

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::ControlFlow;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::{Block, consensus::encode::deserialize_hex};
use chainsieve::btc::bip158::container::Records;
use chainsieve::btc::bip158::scan::{CandidateReason, FilterItem, FilterScan, ScanCursor};

/// The filters of mainnet's first 256 blocks, and the blocks with their filter headers.
const FILTERS: &[u8] = include_bytes!("../fixtures/bitcoin/filters_mainnet_0-255.cbf");
const BLOCKS: &str = include_str!("../fixtures/bitcoin/mainnet_0-255.json");

fn main() -> Result<(), Box<dyn Error>> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(BLOCKS)?;
    let text = |height: usize, field: &str| rows[height][field].as_str().unwrap_or_default();
    let block = |height: usize| deserialize_hex::<Block>(text(height, "block"));
    let headers: Result<Vec<FilterHeader>, _> =
        (0..rows.len()).map(|height| text(height, "filter_header").parse()).collect();
    let headers = headers?;

    let mut scan = FilterScan::new(ScanCursor::at(0));
    let wallet = scan.wallets_mut().add(9);
    let first = block(9)?.txdata[0].output[0].script_pubkey.clone();
    scan.wallets_mut().push(wallet, first.as_bytes());
    let mut watched = BTreeSet::from([first]);

    let mut records = Records::new(FILTERS)?;
    let file = *records.header();
    let items = records
        .by_ref()
        .map_while(Result::ok)
        .map(|item| FilterItem { commitment: file.commitment(&headers, item.height), ..item });
    let done = scan.scan(items, |candidate, wallets| {
        let height = candidate.height;
        match candidate.reason {
            CandidateReason::Scripts { indices, .. } => {
                println!("block {height}: scripts {indices:?}");
            }
            CandidateReason::NoAnswer(why) => println!("block {height} has to be looked at: {why}"),
        }
        // Scripts that are paid from watched coins are watched too, beginning with this block.
        let block = match block(height as usize) {
            Ok(block) => block,
            Err(error) => return ControlFlow::Break(error),
        };
        let coins = block.txdata.iter().skip(1).flat_map(|tx| &tx.output);
        for script in coins.map(|output| &output.script_pubkey) {
            if watched.insert(script.clone()) {
                wallets.push(wallet, script.as_bytes());
            }
        }
        ControlFlow::Continue(())
    })?;
    if let ControlFlow::Break(error) = done {
        return Err(error.into());
    }

    let (cursor, statistics) = (scan.cursor(), scan.statistics());
    println!("{} records intact, block {} is next", records.intact().records, cursor.next_height);
    println!(
        "{} filters asked, {} of them unverified; {} candidates, {:.4} scripts expected by chance",
        statistics.filters,
        statistics.unverified,
        statistics.candidates,
        statistics.expected_false()
    );
    Ok(())
}
