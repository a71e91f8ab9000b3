//! The backend's side: a million watched scripts, and the outputs of a block that pay to them.
//!
//! `cargo run --example watch_set`

use std::error::Error;

use chainsieve::bitcoin::{Block, consensus::encode::deserialize_hex};
use chainsieve_filter::watch_set::{Added, Probe, Removed, WatchError, WatchSet, WatchSetBuilder};

/// Block 757,753 of the main chain.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_757753.json");
/// Scripts of three customers. The block pays to the first one twice.
const CUSTOMERS: [&str; 3] = [
    "a9147a74026f9739f0200dbbbb3fca4a8ffe0254983c87",
    "0014b8786395f03de1dd7da17025b4d7719c6659a81e",
    "00146e6223c7e7a004eb06e35969403cc21c83a76d28",
];

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let block: Block = deserialize_hex(fixture["block"].as_str().ok_or("no block")?)?;

    // Load the scripts at once. The scripts are hashed under a random key, because strangers choose
    // scripts.
    let watch: WatchSet = WatchSetBuilder::new().from_keys((0..1_000_000).map(made_up), |_| ())?;
    // From here on, add and remove scripts as customers come and go, from any thread.
    for script in CUSTOMERS {
        assert_eq!(watch.add(&hex::decode(script)?)?, Added::New);
    }
    // Two wallets may watch one script. The script stays until both have removed it.
    let shared = hex::decode(CUSTOMERS[1])?;
    assert_eq!(watch.add(&shared)?, Added::Again);
    assert_eq!(watch.remove(&shared)?, Removed::StillHeld);
    // Removing a script that was never added is an error, and removes no other script.
    assert_eq!(watch.remove(b"nobody's"), Err(WatchError::Unknown));

    let outputs: Vec<_> = block.txdata.iter().flat_map(|tx| &tx.output).collect();
    let scripts: Vec<_> = outputs.iter().map(|output| output.script_pubkey.as_bytes()).collect();
    // A probe reuses its memory for all blocks.
    let mut probe = Probe::new();
    // The filters are queried first, and then the keys where a filter matches: the result is exact.
    for hit in watch.confirm_batch(&scripts, &mut probe)? {
        println!("output {}: {}", hit.index, outputs[hit.index].value);
    }
    println!("{} of {} outputs", probe.hits().len(), outputs.len());

    let stats = watch.stats();
    println!("{} scripts, exact: {}", stats.keys, stats.is_exact);
    println!("beside the scripts: {:.0} bits each", stats.bits_per_key());
    // 500 blocks with outputs that pay to others.
    let mut looked_up = 0;
    for block in 0..500 {
        let first = 1_000_000 + block * 8_000;
        let others: Vec<_> = (first..first + 8_000).map(made_up).collect();
        looked_up += watch.contains_batch(&others, &mut probe).len();
    }
    assert!(looked_up < 30, "{looked_up} of four million strangers are looked up");
    println!("looked up without need: about one stranger in a million");
    Ok(())
}

/// Returns a P2WPKH script for which nobody has the key.
fn made_up(index: u64) -> [u8; 22] {
    let mut script = [0; 22];
    script[1] = 20;
    script[14..].copy_from_slice(&index.to_be_bytes());
    script
}
