//! JSON-RPC results of a simulated node: headers, transactions and receipts.

use std::ops::RangeInclusive;

use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::transaction::Recovered;
use alloy_consensus::{Header, ReceiptEnvelope, TxEnvelope};
use alloy_rlp::Decodable as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{Address, B256, Bytes, hex};
use serde_json::{Value, json};

use crate::eth::world::WorldBlock;

/// A block as a node serves it.
pub struct RpcBlock<'a> {
    pub header_rlp: &'a [u8],
    pub hash: B256,
    /// Hashes of the transactions.
    pub transactions: Vec<B256>,
    /// The transactions as encoded in the trie; empty if the node has only their hashes.
    pub bodies: Vec<Bytes>,
    pub receipts: Vec<Vec<u8>>,
}

impl<'a> From<&'a WorldBlock> for RpcBlock<'a> {
    fn from(block: &'a WorldBlock) -> Self {
        let encodings = block.receipts.encodings().expect("with a status each");
        Self {
            header_rlp: block.header.rlp(),
            hash: block.at.hash,
            transactions: block.hashes.clone(),
            bodies: block.transactions.clone(),
            receipts: encodings.into_iter().map(|bytes| bytes.to_vec()).collect(),
        }
    }
}

/// Returns a transaction as a node sends it, from a sender that it made up.
pub fn transaction_json(encoding: &[u8]) -> Value {
    let envelope = TxEnvelope::decode_2718_exact(encoding).expect("a transaction");
    json!(Transaction {
        inner: Recovered::new_unchecked(envelope, Address::repeat_byte(9)),
        block_hash: None,
        block_number: None,
        transaction_index: None,
        effective_gas_price: None,
        block_timestamp: None,
    })
}

/// Returns the result of `eth_getBlockReceipts`. `hash` returns the claimed hash of the transaction
/// with this index.
pub fn receipts_json(block: &RpcBlock<'_>, hash: impl Fn(usize) -> B256) -> Value {
    let receipts = block.receipts.iter().enumerate().map(|(index, encoding)| {
        let receipt = ReceiptEnvelope::decode_2718_exact(encoding).expect("a receipt");
        let mut json = serde_json::to_value(receipt).expect("JSON");
        json["transactionIndex"] = json!(format!("{index:#x}"));
        json["transactionHash"] = json!(hash(index));
        json["blockHash"] = json!(block.hash);
        json
    });
    receipts.collect()
}

/// Returns the result of `eth_getBlockByNumber`, with whole transactions if `is_full` is `true` and
/// the node has them.
fn block_json(block: &RpcBlock<'_>, is_full: bool) -> Value {
    let header = Header::decode(&mut &block.header_rlp[..]).expect("a header");
    let mut json = serde_json::to_value(&header).expect("JSON");
    json["hash"] = json!(block.hash);
    let has_bodies = block.bodies.len() == block.transactions.len();
    json["transactions"] = if is_full && has_bodies {
        block.bodies.iter().map(|encoding| transaction_json(encoding)).collect()
    } else {
        json!(block.transactions)
    };
    json
}

/// Returns the result of a method; `None` for an unknown method. `at` returns a block by its
/// number, its hash or a tag.
pub fn result<'a>(
    method: &str,
    params: &Value,
    at: impl FnOnce(&Value) -> Option<RpcBlock<'a>>,
) -> Option<Value> {
    let is_full = params[1] == json!(true);
    let of_block = |part: &dyn Fn(&RpcBlock<'_>) -> Value| {
        Some(at(&params[0]).as_ref().map_or(Value::Null, part))
    };
    match method {
        "eth_chainId" => Some(json!("0x539")),
        "debug_getRawHeader" => of_block(&|block| json!(hex::encode_prefixed(block.header_rlp))),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => {
            of_block(&|block| block_json(block, is_full))
        }
        "debug_getRawReceipts" => of_block(&|block| {
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
