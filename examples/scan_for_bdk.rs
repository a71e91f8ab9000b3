//! A wallet of `bdk_wallet` brought up to date from compact filters: mainnet's blocks 0 to 255, and
//! the key that received the first coins and made the first payment.
//!
//! `cargo run --example scan_for_bdk`

use std::collections::HashMap;
use std::error::Error;
use std::ops::ControlFlow;

use bdk_wallet::{KeychainKind, Wallet};
use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::{Block, Network, OutPoint, Transaction};
use chainsieve::btc::bip158::BlockFilter;
use chainsieve::btc::bip158::scan::{Cursor, FilterItem, Scan, WalletId, Wallets};
use chainsieve::simd::Backend;

/// Addresses behind the last one that was used.
const LOOK_AHEAD: u32 = 20;
const KEY: &str = "0411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482ecad7b148a6909a5cb2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b412a3";

fn main() -> Result<(), Box<dyn Error>> {
    let (blocks, filters) = blocks_and_filters()?;
    let items = (0..).zip(&filters).map(|(height, BlockFilter { block_hash, content })| {
        FilterItem { height, block_hash: *block_hash, content, commitment: None }
    });
    let mut wallet = Wallet::create_single(format!("pk({KEY})"))
        .network(Network::Bitcoin)
        .create_wallet_no_persist()?;

    let mut scan = Scan::new(Backend::best(), Cursor::at(1));
    let id = scan.wallets_mut().add(1);
    look_ahead(&wallet, id, scan.wallets_mut());
    let mut fetched = Vec::new();
    let outcome = scan.scan(items.skip(1), |candidate, wallets| {
        // A client fetches the block from a peer here.
        let block = &blocks[candidate.height as usize];
        fetched.push(candidate.height);
        let tip = wallet.latest_checkpoint();
        let below = tip.iter().find(|point| point.height() < candidate.height);
        let below = below.expect("the genesis block is always there").block_id();
        match wallet.apply_block_connected_to(block, candidate.height, below) {
            Ok(()) => look_ahead(&wallet, id, wallets),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    })?;
    if let ControlFlow::Break(error) = outcome {
        return Err(error.into());
    }

    println!("{} filters asked, blocks fetched: {fetched:?}", scan.statistics().filters);
    println!("{} transactions, {}", wallet.transactions().count(), wallet.balance().total());
    Ok(())
}

/// Adds the scripts up to some behind the last one used. Where that adds any, the filter at hand
/// and all later ones are asked for them.
fn look_ahead(wallet: &Wallet, id: WalletId, wallets: &mut Wallets) {
    let external = KeychainKind::External;
    let descriptor = wallet.public_descriptor(external);
    let used = wallet.spk_index().last_used_index(external).map_or(0, |index| index + 1);
    let end = if descriptor.has_wildcard() { used + LOOK_AHEAD } else { 1 };
    for index in wallets.scripts(id).len() as u32..end {
        let script = descriptor.at_derivation_index(index).map(|derived| derived.script_pubkey());
        wallets.push(id, script.expect("an index that is not hardened").as_bytes());
    }
}

/// The blocks, and their filters, as a client has them from its peers.
fn blocks_and_filters() -> Result<(Vec<Block>, Vec<BlockFilter>), Box<dyn Error>> {
    let facts: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/bitcoin/mainnet_0-255.json"))?;
    let blocks = facts.as_array().ok_or("no list")?.iter();
    let block = |fact: &serde_json::Value| deserialize_hex(fact["block"].as_str().unwrap_or(""));
    let blocks: Vec<Block> = blocks.map(block).collect::<Result<_, _>>()?;
    let outputs = |tx: &Transaction| {
        let txid = tx.compute_txid();
        let scripts = tx.output.iter().map(|output| output.script_pubkey.clone());
        (0..).map(move |vout| OutPoint { txid, vout }).zip(scripts).collect::<Vec<_>>()
    };
    let created: HashMap<_, _> =
        blocks.iter().flat_map(|block| &block.txdata).flat_map(outputs).collect();
    let filter = |block| BlockFilter::new(block, |outpoint| created.get(outpoint).cloned());
    let filters = blocks.iter().map(filter).collect::<Result<_, _>>()?;
    Ok((blocks, filters))
}
