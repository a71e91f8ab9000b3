//! JSON-RPC results of a simulated node: headers and receipts.

use std::ops::RangeInclusive;

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, hex};
use serde_json::{Value, json};

use crate::eth::world::WorldBlock;

/// A block as a node serves it.
pub struct RpcBlock<'a> {
    pub header_rlp: &'a [u8],
    pub hash: B256,
    pub transactions: Vec<B256>,
    pub receipts: Vec<Vec<u8>>,
}

impl<'a> From<&'a WorldBlock> for RpcBlock<'a> {
    fn from(block: &'a WorldBlock) -> Self {
        let encodings = block.receipts.encodings().expect("with a status each");
        Self {
            header_rlp: block.header.rlp(),
            hash: block.at.hash,
            transactions: vec![B256::ZERO; block.receipts.len()],
            receipts: encodings.into_iter().map(|bytes| bytes.to_vec()).collect(),
        }
    }
}

/// Returns the result of `eth_getBlockByNumber`, with only the hashes of the transactions.
fn block_json(block: &RpcBlock<'_>) -> Value {
    let header = Header::decode(&mut &block.header_rlp[..]).expect("a header");
    let mut json = serde_json::to_value(&header).expect("JSON");
    json["hash"] = json!(block.hash);
    json["transactions"] = json!(block.transactions);
    json
}

/// Returns the result of a method; `None` for an unknown method. `at` returns a block by its
/// number, its hash or a tag.
pub fn result<'a>(
    method: &str,
    params: &Value,
    at: impl FnOnce(&Value) -> Option<RpcBlock<'a>>,
) -> Option<Value> {
    let of_block =
        |part: fn(&RpcBlock<'_>) -> Value| Some(at(&params[0]).as_ref().map_or(Value::Null, part));
    match method {
        "eth_chainId" => Some(json!("0x539")),
        "debug_getRawHeader" => of_block(|block| json!(hex::encode_prefixed(block.header_rlp))),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => of_block(block_json),
        "debug_getRawReceipts" => of_block(|block| {
            block.receipts.iter().map(|bytes| json!(hex::encode_prefixed(bytes))).collect()
        }),
        _ => None,
    }
}

/// The block parameter of a request: a tag, a hash or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockId<'a> {
    Tag(&'a str),
    Hash(B256),
    Number(u64),
}

impl<'a> BlockId<'a> {
    /// Parses a parameter. Returns `None` if the parameter is not a tag, a hash or a number.
    pub fn of(param: &'a Value) -> Option<Self> {
        let text = param.as_str()?;
        Some(match text.strip_prefix("0x") {
            None => Self::Tag(text),
            Some(digits) if digits.len() == 64 => Self::Hash(text.parse().ok()?),
            Some(digits) => Self::Number(u64::from_str_radix(digits, 16).ok()?),
        })
    }
}

/// Returns the block range of a log filter. `number` returns the number of the block that a
/// parameter names.
pub fn range(filter: &Value, number: impl Fn(&Value) -> Option<u64>) -> RangeInclusive<u64> {
    let number = |tag: &Value| number(tag).unwrap_or(u64::MAX);
    if filter["blockHash"].is_null() {
        return number(&filter["fromBlock"])..=number(&filter["toBlock"]);
    }
    let number = number(&filter["blockHash"]);
    number..=number
}
