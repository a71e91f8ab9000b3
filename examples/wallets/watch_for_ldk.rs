//! An output that LDK registers with its `chain::Filter`, found through compact filters: the first
//! coin ever spent.
//!
//! `cargo run -p wallets --bin watch_for_ldk`

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Mutex;

use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::{Block, Network, OutPoint, Script, ScriptBuf, Txid};
use chainsieve::btc::bip158::BoundBlock;
use chainsieve::btc::bip158::container::Records;
use chainsieve::btc::bip158::scan::{FilterScan, ScanCursor, Wallets};
use chainsieve::btc::wallet::{History, WatchedItems};
use lightning::chain::{Filter, WatchedOutput, transaction};

/// The filters of mainnet's first 256 blocks, and the blocks as peers would send them.
const FILTERS: &[u8] = include_bytes!("../../fixtures/bitcoin/filters_mainnet_0-255.cbf");
const BLOCKS: &str = include_str!("../../fixtures/bitcoin/mainnet_0-255.json");

/// Keeps registrations until the scan takes them, because LDK may register during a scan.
#[derive(Default)]
struct Registered(Mutex<Vec<(Option<OutPoint>, ScriptBuf)>>);

impl Filter for Registered {
    fn register_tx(&self, _txid: &Txid, script_pubkey: &Script) {
        self.0.lock().expect("no panic").push((None, script_pubkey.to_owned()));
    }

    fn register_output(&self, WatchedOutput { outpoint, script_pubkey, .. }: WatchedOutput) {
        let outpoint = Some(outpoint.into_bitcoin_outpoint());
        self.0.lock().expect("no panic").push((outpoint, script_pubkey));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let blocks: Vec<serde_json::Value> = serde_json::from_str(BLOCKS)?;
    let block = |at: u32| deserialize_hex::<Block>(blocks[at as usize]["block"].as_str()?).ok();
    let registered = Registered::default();
    // A channel monitor does this for its funding output.
    let funding = block(9).expect("a block of the fixture").txdata.remove(0);
    registered.register_output(WatchedOutput {
        block_hash: None,
        outpoint: transaction::OutPoint { txid: funding.compute_txid(), index: 0 },
        script_pubkey: funding.output[0].script_pubkey.clone(),
    });

    let mut watch = WatchedItems::new();
    let mut scan = FilterScan::new(ScanCursor::at(10));
    let wallet = scan.wallets_mut().add(10);
    let take = |wallets: &mut Wallets, watch: &mut WatchedItems| {
        for (outpoint, script) in registered.0.lock().expect("no panic").drain(..) {
            wallets.push(wallet, script.as_bytes());
            match outpoint {
                Some(outpoint) => watch.add_outpoint(outpoint, Some(script)),
                None => Some(watch.add_script(script, None, History::Complete)),
            };
        }
    };
    take(scan.wallets_mut(), &mut watch);
    let filters = Records::new(FILTERS)?.map_while(Result::ok).skip(10);
    let outcome = scan.scan(filters, |candidate, wallets| {
        let block = block(candidate.height).expect("a block of the fixture");
        match BoundBlock::bind(&block, candidate.block_hash, Network::Bitcoin) {
            Err(error) => return ControlFlow::Break(error),
            // Pass them to `Confirm::transactions_confirmed`. If LDK then registers a new script,
            // the scan reports this block again.
            Ok(bound) => {
                for tx in watch.scan(candidate.height, &bound).transactions {
                    let spent = tx.relevance.spent.iter().filter(|spent| spent.certain);
                    println!("block {}: {} spends {}", candidate.height, tx.txid, spent.count());
                }
            }
        }
        take(wallets, &mut watch);
        ControlFlow::Continue(())
    })?;
    outcome.break_value().map_or(Ok(()), |error| Err(error.into()))
}
