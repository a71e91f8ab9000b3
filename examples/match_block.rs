//! The node's side: a filter as a peer sent it, a block as it is stored on disk, and the answer.
//!
//! `cargo run --example match_block`

use std::error::Error;

use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock, UpdateMode};

/// Block 150,013 of the main chain.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_150013.json");

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let raw = hex::decode(fixture["block"].as_str().ok_or("no block")?)?;

    // A wallet's filter with one key hash. Matching inserts the wallet's outpoints as they appear.
    let mut wallet = BloomFilter::new(101, 0.00001, 7, UpdateMode::All)?;
    wallet.insert(&hex::decode("44be49d2bb148a12efe5210900ca4936cdff3b3d")?);
    let payload = wallet.encode();

    // Decoding checks the limits: at most 36,000 bytes and 50 hash functions.
    let mut filter = BloomFilter::decode(&payload)?;
    // The block is split into elements once, and matched against as many filters as there are
    // peers.
    let block = BlockElements::from_raw(&raw)?;
    let found = filter.match_block(&block);
    for found in &found {
        // The second match spends an output of the first: the filter was updated in between.
        println!("{}: {}", found.index, found.txid);
        found.reasons.iter().for_each(|reason| println!("    {reason}"));
    }
    println!("{} of {} transactions matched", found.len(), block.txids().len());

    let matched: Vec<_> = found.iter().map(|found| found.index).collect();
    let answer = MerkleBlock::new(block.header(), block.txids(), &matched)?;
    println!("merkleblock {} bytes", answer.encode().len());
    Ok(())
}
