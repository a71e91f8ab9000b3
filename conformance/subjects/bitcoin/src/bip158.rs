//! Golomb-coded sets, basic filters, filter headers.
use std::collections::HashMap;

use bitcoin::bip158::{BlockFilter, FilterHash, FilterHeader, GcsFilterReader, GcsFilterWriter};
use bitcoin::consensus::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, ScriptBuf};
use serde_json::{Value, json};

use crate::protocol::{Answer, No, bytes, list};

/// k0, k1, M and P.
fn parameters(input: &Value) -> (u64, u64, u64, u8) {
    let key = bytes(&input["key"]);
    let half = |at| u64::from_le_bytes(key[at..at + 8].try_into().expect("8 bytes"));
    let [m, p] = ["m", "p"].map(|name| input[name].as_u64().expect("a number"));
    (half(0), half(8), m, p as u8)
}

pub fn build(input: &Value) -> Answer {
    let (k0, k1, m, p) = parameters(input);
    let mut encoded = Vec::new();
    let mut writer = GcsFilterWriter::new(&mut encoded, k0, k1, m, p);
    for item in list(&input["items"], bytes) {
        writer.add_element(&item);
    }
    writer.finish()?;
    Ok(json!({ "encoded": hex::encode(encoded) }))
}

pub fn match_any(input: &Value, items: &[Vec<u8>]) -> Answer {
    let (k0, k1, m, p) = parameters(input);
    let reader = GcsFilterReader::new(k0, k1, m, p);
    let items = items.iter().map(Vec::as_slice);
    Ok(json!({ "match": reader.match_any(&mut &*bytes(&input["encoded"]), items)? }))
}

pub fn header(input: &Value) -> Answer {
    let filter = bytes(&input["filter"]);
    let previous: FilterHeader =
        input["previous_header_display"].as_str().expect("text").parse()?;
    let header = BlockFilter::new(&filter).filter_header(&previous).to_string();
    let hash = FilterHash::hash(&filter).to_string();
    Ok(json!({ "filter_hash_display": hash, "filter_header_display": header }))
}

pub fn basic(input: &Value) -> Result<String, No> {
    let block: Block = deserialize(&bytes(&input["block"]))?;
    let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
    let scripts = list(&input["prevout_scripts"], bytes).into_iter().map(ScriptBuf::from_bytes);
    let coins: HashMap<_, _> = inputs.map(|input| input.previous_output).zip(scripts).collect();
    let filter =
        BlockFilter::new_script_filter(&block, |outpoint| Ok(coins[outpoint].as_script()))?;
    Ok(hex::encode(filter.content))
}
