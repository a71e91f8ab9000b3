//! The wallet's side: a merkleblock from an untrusted node, and the proof that it contains.
//!
//! `cargo run --example verify_merkleblock`

use std::error::Error;

use chainsieve::bitcoin::consensus::encode::deserialize_hex;
use chainsieve::bitcoin::{Block, Network, Transaction};
use chainsieve::btc::bip37::{HeaderLink, MerkleBlock, Policy, Proof};

/// Block 170 of the main chain, the first that contains a payment.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_170.json");

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let block: Block = deserialize_hex(fixture["block"].as_str().ok_or("no block")?)?;
    // The node sends the merkleblock and then the transactions. A filter that contains the null
    // outpoint matches the coinbase transaction of every block.
    let txids: Vec<_> = block.txdata.iter().map(Transaction::compute_txid).collect();
    let mut payload = MerkleBlock::new(&block.header, &txids, &[0, 1])?.encode();

    let received = MerkleBlock::decode(&payload)?;
    let proof = Proof::verify(&received, Policy::Strict(Network::Bitcoin), &block.txdata)?;
    println!("{proof}");
    assert_eq!(proof.coinbase, Some(txids[0]));
    // Only the wallet knows its chain of headers.
    let proof = proof.linked(HeaderLink::InChain { height: 170, confirmations: 6 });
    assert!(proof.is_inclusion_in_chain());
    println!("{proof}");

    // Without the transactions, nothing proves that the leaves are transactions.
    let bare = Proof::verify(&received, Policy::Strict(Network::Bitcoin), [])?;
    println!("{bare}");

    // One changed bit in one hash gives another root.
    payload[90] ^= 1;
    let damaged = MerkleBlock::decode(&payload)?;
    match Proof::verify(&damaged, Policy::Core, []) {
        Ok(_) => Err("a damaged merkleblock was accepted".into()),
        Err(error) => {
            println!("refused: {error}");
            Ok(())
        }
    }
}
