//! Blocks as a node gives them over JSON-RPC: headers and receipts.

use std::ops::RangeInclusive;

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, hex};
use serde_json::{Value, json};

use crate::eth::world::WorldBlock;

/// What a node says of a block.
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

/// As `eth_getBlockByNumber` has it, without what its body holds besides the transactions' hashes.
fn block_json(block: &RpcBlock<'_>) -> Value {
    let header = Header::decode(&mut &block.header_rlp[..]).expect("a header");
    let mut json = serde_json::to_value(&header).expect("JSON");
    json["hash"] = json!(block.hash);
    json["transactions"] = json!(block.transactions);
    json
}

/// What a method returns; `None` if there is no such method. `at` finds a block by its number, its
/// hash or a tag.
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

/// What a parameter names a block by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockId<'a> {
    Tag(&'a str),
    Hash(B256),
    Number(u64),
}

impl<'a> BlockId<'a> {
    /// `None` if it is neither of them.
    pub fn of(param: &'a Value) -> Option<Self> {
        let text = param.as_str()?;
        Some(match text.strip_prefix("0x") {
            None => Self::Tag(text),
            Some(digits) if digits.len() == 64 => Self::Hash(text.parse().ok()?),
            Some(digits) => Self::Number(u64::from_str_radix(digits, 16).ok()?),
        })
    }
}

/// The blocks of a filter; `number` is that of the block which a parameter names.
pub fn range(filter: &Value, number: impl Fn(&Value) -> Option<u64>) -> RangeInclusive<u64> {
    let number = |tag: &Value| number(tag).unwrap_or(u64::MAX);
    if filter["blockHash"].is_null() {
        return number(&filter["fromBlock"])..=number(&filter["toBlock"]);
    }
    let number = number(&filter["blockHash"]);
    number..=number
}
