//! A node's part: a filter as a peer sent it, a block, and the answer.
//!
//! `cargo run --example match_block`

use std::error::Error;

use chainsieve::bitcoin::Block;
use chainsieve::bitcoin::consensus::encode::deserialize_hex;
use chainsieve::btc::bip37::{BloomFilter, MerkleBlock, UpdateMode};

/// Block 150,013 of the main chain.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_150013.json");

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let block: Block = deserialize_hex(fixture["block"].as_str().ok_or("no block")?)?;

    // What a wallet might send: one key hash, and its outpoints inserted as they appear.
    let mut wallet = BloomFilter::new(100, 0.0001, 7, UpdateMode::All)?;
    wallet.insert(&hex::decode("44be49d2bb148a12efe5210900ca4936cdff3b3d")?);
    let payload = wallet.encode();

    // Limits are checked here: at most 36,000 bytes and 50 hash functions.
    let mut filter = BloomFilter::decode(&payload)?;
    let mut matched = Vec::new();
    let mut txids = Vec::new();
    for (index, tx) in (0..).zip(&block.txdata) {
        txids.push(tx.compute_txid());
        if let Some(found) = filter.match_transaction(tx) {
            // The second match spends what the first received: the filter was updated in between.
            println!("{index}: {}", found.txid);
            found.reasons.iter().for_each(|reason| println!("    {reason}"));
            matched.push(index);
        }
    }
    let answer = MerkleBlock::new(&block.header, &txids, &matched)?;
    println!("{} of {} transactions matched", matched.len(), txids.len());
    println!("merkleblock {} bytes", answer.encode().len());
    Ok(())
}
