//! A made-up chain as a node gives it over JSON-RPC: headers and receipts.

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, hex};
use serde_json::{Value, json};

use super::world::WorldBlock;

/// What a method returns; `None` if there is no such method. `at` finds a block by its number, its
/// hash or a tag.
pub(crate) fn result<'a>(
    method: &str,
    params: &Value,
    at: impl FnOnce(&Value) -> Option<&'a WorldBlock>,
) -> Option<Value> {
    let of_block = |part: fn(&WorldBlock) -> Value| at(&params[0]).map_or(Value::Null, part);
    Some(match method {
        "eth_chainId" => json!("0x539"),
        "debug_getRawHeader" => of_block(|it| json!(hex::encode_prefixed(it.header.rlp()))),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => of_block(block_json),
        "debug_getRawReceipts" => of_block(|block| {
            let encodings = block.receipts.encodings().expect("with a status each");
            encodings.into_iter().map(|bytes| json!(bytes)).collect()
        }),
        _ => return None,
    })
}

fn block_json(block: &WorldBlock) -> Value {
    let header = Header::decode(&mut block.header.rlp()).expect("a header");
    let mut json = serde_json::to_value(&header).expect("JSON");
    json["hash"] = json!(block.at.hash);
    json["transactions"] = json!(vec![B256::ZERO; block.receipts.len()]);
    json
}
