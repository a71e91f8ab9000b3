//! A wallet of `bdk_wallet`, brought up to date from the compact filters of mainnet's blocks 0 to
//! 255. The wallet has the key that received the first coins and made the first payment.
//!
//! `cargo run -p wallets --bin scan_for_bdk`

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::ControlFlow;

use bdk_wallet::{KeychainKind, Wallet};
use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::{Block, Network};
use chainsieve::btc::bip158::container::Records;
use chainsieve::btc::bip158::scan::{Candidate, FilterScan, ScanCursor, Wallets};

/// The filters of mainnet's first 256 blocks, and the blocks as peers would send them.
const FILTERS: &[u8] = include_bytes!("../../fixtures/bitcoin/filters_mainnet_0-255.cbf");
const BLOCKS: &str = include_str!("../../fixtures/bitcoin/mainnet_0-255.json");
/// Number of addresses after the last one that was used.
const LOOK_AHEAD: u32 = 20;
/// Public key of the coinbase of block 9, which made the first payment in block 170.
const KEY: &str = "0411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482ecad7b148a6909a5cb2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b412a3";

fn main() -> Result<(), Box<dyn Error>> {
    let blocks: Vec<serde_json::Value> = serde_json::from_str(BLOCKS)?;
    let block =
        |height: u32| deserialize_hex::<Block>(blocks[height as usize]["block"].as_str()?).ok();
    let mut wallet = Wallet::create_single(format!("pk({KEY})"))
        .network(Network::Bitcoin)
        .create_wallet_no_persist()?;

    let mut scan = FilterScan::new(ScanCursor::at(0));
    let id = scan.wallets_mut().add(1);
    look_ahead(&wallet, id, scan.wallets_mut());
    let mut fetched = BTreeSet::new();
    let apply = |height: u32, wallet: &mut Wallet| {
        // A client fetches the block from a peer here.
        let block = block(height).expect("a block of the fixture");
        let tip = wallet.latest_checkpoint();
        let below = tip.iter().find(|point| point.height() < height);
        let below = below.expect("the genesis block is always there").block_id();
        wallet.apply_block_connected_to(&block, height, below)
    };
    let mut found = |candidate: Candidate, wallets: &mut Wallets| {
        fetched.insert(candidate.height);
        match apply(candidate.height, &mut wallet) {
            Ok(()) => look_ahead(&wallet, id, wallets),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    };
    let filters = |from: u32| {
        Records::new(FILTERS).map(|records| records.map_while(Result::ok).skip(from as usize))
    };
    let mut outcome = scan.scan(filters(0)?, &mut found)?;
    // Payments to the new scripts may be in blocks below those that led to the scripts.
    while let (Some(heights), ControlFlow::Continue(())) = (scan.missed(), &outcome) {
        outcome = scan.scan_missed(filters(heights.start)?, &mut found)?;
    }
    if let ControlFlow::Break(error) = outcome {
        return Err(error.into());
    }
    // A coin that was found late may be spent in a block above, which was applied without it.
    for &height in &fetched {
        apply(height, &mut wallet)?;
    }

    println!("{} filters asked, blocks fetched: {fetched:?}", scan.statistics().filters);
    println!("{} transactions, {}", wallet.transactions().count(), wallet.balance().total());
    Ok(())
}

/// Adds the scripts up to `LOOK_AHEAD` after the last one used. If any are added, the current
/// filter and all later ones are matched against them, and the earlier ones in another pass.
fn look_ahead(wallet: &Wallet, id: usize, wallets: &mut Wallets) {
    let external = KeychainKind::External;
    let descriptor = wallet.public_descriptor(external);
    let used = wallet.spk_index().last_used_index(external).map_or(0, |index| index + 1);
    let end = if descriptor.has_wildcard() { used + LOOK_AHEAD } else { 1 };
    for index in (0..end).skip(wallets.scripts(id).len()) {
        let script = descriptor.at_derivation_index(index).map(|derived| derived.script_pubkey());
        wallets.push(id, script.expect("an index that is not hardened").as_bytes());
    }
}
