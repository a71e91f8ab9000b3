//! A node with many light clients. Each client loads its filter, and every relayed transaction is
//! tested against all filters at once.
//!
//! `cargo run --example filter_bank`

use std::collections::BTreeMap;
use std::error::Error;

use chainsieve::bitcoin::Block;
use chainsieve::bitcoin::consensus::deserialize;
use chainsieve::btc::bip37::{BloomFilter, FilterBank, UpdateMode};

/// Block 150,013 of the main chain, for its transactions.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_150013.json");

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let block: Block = deserialize(&hex::decode(fixture["block"].as_str().ok_or("no block")?)?)?;

    let mut bank = FilterBank::new();
    // Peer 1 looks for one key hash. Peers 2 to 1,000 look for a hash that nobody pays to.
    let hash = hex::decode("44be49d2bb148a12efe5210900ca4936cdff3b3d")?;
    for peer in 1..=1_000_u32 {
        let mut filter = BloomFilter::new(101, 0.00001, peer, UpdateMode::All)?;
        filter.insert(if peer == 1 { &hash } else { &[0xee; 20] });
        // The payload of a `filterload` message.
        bank.load_payload(peer, &filter.encode())?;
    }
    // Peer 1,001 sends `filterclear`, so from now on it receives every transaction.
    bank.clear(1_001);

    let mut announced: BTreeMap<u32, usize> = BTreeMap::new();
    for transaction in &block.txdata {
        for (peer, found) in bank.match_transaction(transaction) {
            if peer == 1 {
                println!("peer 1: {} ({})", found.txid, found.reasons[0]);
            }
            *announced.entry(peer).or_default() += 1;
        }
    }
    for (peer, count) in announced {
        println!("peer {peer} hears of {count} of {} transactions", block.txdata.len());
    }

    // Adding more than 520 bytes, or adding without a filter, is misbehaviour of a peer.
    let error = bank.add(&1_001, &[1; 20]).expect_err("no filter is loaded");
    println!("peer 1001: {error}");
    Ok(())
}
