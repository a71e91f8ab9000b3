//! The Bitcoin blocks of the `fixtures/` folder, with the scripts that they spend and their
//! published filters.

use chainsieve::bitcoin::ScriptBuf;

use crate::btc::fixtures;
use crate::btc::gcs_cases::SpentBlock;
use crate::btc::oracle::from_hex;

/// Returns the block at one of the heights of [`fixtures::BLOCKS`], the scripts that it spends, and
/// its filter.
pub fn spent_block(height: u32) -> (SpentBlock, Vec<u8>) {
    let json = fixtures::read(&format!("blocks/mainnet_{height}.json"));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let spent = json["prevouts"].as_array().expect("a list").iter();
    let spent = spent.map(|prevout| from_hex(prevout["script_pubkey"].as_str().expect("hex")));
    let spent = spent.map(ScriptBuf::from_bytes).collect();
    let filter = from_hex(json["basic_filter"].as_str().expect("hex"));
    ((fixtures::block(height), spent), filter)
}
