//! alloy: `Bloom` of alloy-primitives 1.7.3, `Filter` and `Header` of alloy-rpc-types-eth 2.5.0,
//! receipts and headers of alloy-consensus 2.5.0, tries of alloy-trie 0.9.9.
use alloy_primitives::{Address, B256, Bloom, BloomInput, Log, logs_bloom};
use protocol::{Answer, bytes, list, serve};
use serde_json::{Value, json};

mod block;
mod filter;
#[path = "../../protocol.rs"]
mod protocol;

fn log(log: &Value) -> Log {
    let topics = list(&log["topics"], |topic| B256::from_slice(&bytes(topic)));
    let data = log["data"].as_str().map_or_else(Vec::new, |_| bytes(&log["data"]));
    Log::new_unchecked(Address::from_slice(&bytes(&log["address"])), topics, data.into())
}

fn test(input: &Value) -> Answer {
    let bloom = Bloom::try_from(bytes(&input["bloom"]).as_slice())?;
    Ok(json!({ "may_contain": bloom.contains_input(BloomInput::Raw(&bytes(&input["item"]))) }))
}

fn main() {
    serve(&[
        ("logsbloom.build", |input| {
            Ok(json!({ "bloom": hex::encode(logs_bloom(&list(&input["logs"], log))) }))
        }),
        ("logsbloom.test", test),
        ("logs.parse", filter::parse),
        ("logs.match", filter::select),
        ("receipts.encode", block::encode),
        ("receipts.root", block::root),
        ("header.hash", block::header),
        ("header.json", block::header_json),
    ]);
}
