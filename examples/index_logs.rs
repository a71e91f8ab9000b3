//! An index of headers in a folder, a query to the index, and the check that a candidate's header
//! is the one from which the index was built.
//!
//! `cargo run --example index_logs`

use std::error::Error;

use chainsieve::alloy_primitives::address;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Folder, Index, Settings, Writer};
use chainsieve::eth::log_query::LogQuery;

/// Headers of mainnet, seven consecutive ones of May 2025 among them.
const HEADERS: &str = include_str!("../fixtures/ethereum/headers.json");

/// Returns the RLP of the headers of some blocks.
fn headers(numbers: impl Iterator<Item = u64>) -> Result<Vec<u8>, Box<dyn Error>> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(HEADERS)?;
    let mut rlp = Vec::new();
    for number in numbers {
        let row = rows.iter().find(|row| row["number"] == number).ok_or("no such header")?;
        let digits = row["header"].as_str().ok_or("no header")?;
        rlp.extend(hex::decode(digits.trim_start_matches("0x"))?);
    }
    Ok(rlp)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("chainsieve-index-logs-{}", std::process::id()));
    std::fs::create_dir_all(&path)?;

    // The builder of an index verifies the headers. Here they are linked by hash. The last hash
    // should also be one that the builder trusts.
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&headers(22_431_080..=22_431_086)?)?;
    let mut writer = Writer::open(Folder::new(&path), &Settings::new("mainnet")?)?;
    writer.append(&chain)?;
    writer.sync()?; // from here on the blocks are durable

    // Other processes may read while one writes.
    let index = Index::open(Folder::new(&path))?;
    let blocks = index.numbers().ok_or("no blocks")?;
    println!("blocks {} to {} of {}", blocks.start(), blocks.end(), index.settings().label());

    // Transfers of the DAI stablecoin.
    let query = LogQuery::new()
        .address(address!("6b175474e89094c44da98b954eedeac495271d0f"))
        .event("Transfer(address,address,uint256)")?
        .compile();
    let candidates = index.candidates(&query, blocks)?;
    println!("{} candidates", candidates.count());

    // A candidate's header may come from anyone. If it is linked to the next hash that the index
    // has, it is the header that was indexed. In a sealed section, this is the hash of the last
    // block.
    for number in candidates.iter() {
        let (anchor, hash) = index.next_known_hash(number)?;
        let mut given = LinkedHeaders::new();
        given.extend_from_rlp(&headers(number..=anchor)?)?;
        let shown = given.anchored_to(&[hash]) == Some(anchor);
        println!("block {number}, by block {anchor}: {}", if shown { "shown" } else { "another" });
    }
    std::fs::remove_dir_all(&path)?;
    Ok(())
}
