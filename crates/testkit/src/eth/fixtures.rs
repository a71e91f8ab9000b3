//! The Ethereum headers and blocks of the repository's `fixtures/` folder.

use alloy_primitives::{B256, hex};
use serde_json::Value;

fn json(name: &str) -> Value {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ethereum").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("a text")).expect("hex")
}

/// A header of the file `headers.json`.
pub struct FixtureHeader {
    pub name: String,
    pub fork: Option<String>,
    pub number: u64,
    pub hash: B256,
    pub parent_hash: B256,
    pub rlp: Vec<u8>,
}

pub fn headers() -> Vec<FixtureHeader> {
    let rows = json("headers.json");
    let headers = rows.as_array().expect("rows").iter().map(|row| FixtureHeader {
        name: format!("{} {}", row["chain"].as_str().expect("a chain"), row["number"]),
        fork: row["fork"].as_str().map(str::to_owned),
        number: row["number"].as_u64().expect("a number"),
        hash: B256::from_slice(&bytes(&row["hash"])),
        parent_hash: B256::from_slice(&bytes(&row["parent_hash"])),
        rlp: bytes(&row["header"]),
    });
    headers.collect()
}

/// Returns the header and the encoded receipts of a block.
pub fn block(number: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
    let block = json(&format!("blocks/mainnet_{number}.json"));
    let receipts = block["receipts"].as_array().expect("receipts").iter().map(bytes).collect();
    (bytes(&block["header"]), receipts)
}
