//! The blocks of a range that may contain logs of a query, the certainty of this, and the cost of
//! reading their receipts. Only headers are read.
//!
//! `cargo run --example scan_headers`

use std::error::Error;

use chainsieve::alloy_primitives::{B256, address};
use chainsieve::eth::forecast::Forecast;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::log_query::LogQuery;

/// Headers of mainnet, seven consecutive ones of May 2025 among them.
const HEADERS: &str = include_str!("../fixtures/ethereum/headers.json");

fn main() -> Result<(), Box<dyn Error>> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(HEADERS)?;
    let mut rlp = Vec::new();
    for number in 22_431_080_u64..=22_431_086 {
        let row = rows.iter().find(|row| row["number"] == number).ok_or("no such header")?;
        let digits = row["header"].as_str().ok_or("no header")?;
        rlp.extend(hex::decode(digits.trim_start_matches("0x"))?);
    }

    // The headers are linked by parent hash, so the trusted hash of the last block authenticates
    // all before it.
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&rlp)?;
    let trusted: B256 =
        "0xda4fb6651ac95062a61b2d58af531a01c9ea4b2e56aa0d4214d070e1ab2ae18b".parse()?;
    let anchored = chain.anchored_to(&[trusted]).ok_or("these headers lead to another block")?;
    println!("{} headers, authentic up to block {anchored}", chain.len());

    // Transfers of the DAI stablecoin.
    let query = LogQuery::new()
        .address(address!("6b175474e89094c44da98b954eedeac495271d0f"))
        .event("Transfer(address,address,uint256)")?
        .compile();
    let candidates: Vec<u64> = chain.candidates(&query).map(|block| block.number).collect();
    for block in chain.blocks() {
        let answer = if candidates.contains(&block.number) { "perhaps" } else { "no: proven" };
        println!("block {}: {answer}", block.number);
    }

    let mut forecast = Forecast::new(query);
    forecast.add(&chain);
    println!(
        "{} candidates, {:.1} expected by chance; about {:.0} kB of receipts",
        forecast.candidates(),
        forecast.expected_false(),
        forecast.slim_bytes() / 1e3
    );
    for (name, clause) in ["address", "topic 0"].into_iter().zip(forecast.clauses()) {
        let note = if clause.selects_nothing() { ", which selects nothing" } else { "" };
        println!("{name} alone: {:.0} % of blocks{note}", clause.share() * 100.0);
    }
    Ok(())
}
