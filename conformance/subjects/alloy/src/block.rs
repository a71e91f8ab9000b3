//! Receipts and headers.
use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope, TxType};
use alloy_eips::eip2718::Encodable2718 as _;
use alloy_primitives::B256;
use serde_json::{Value, json};

use crate::protocol::{Answer, bytes, list};

pub fn encode(input: &Value) -> Answer {
    let told = &input["receipt"];
    let number = |name| told[name].as_u64().expect("a number");
    let status = match told.get("post_state") {
        Some(root) => Eip658Value::PostState(B256::from_slice(&bytes(root))),
        None => Eip658Value::Eip658(number("status") == 1),
    };
    let logs = list(&told["logs"], crate::log);
    let receipt = Receipt { status, cumulative_gas_used: number("cumulative_gas"), logs };
    let receipt = ReceiptEnvelope::from_typed(TxType::try_from(number("type"))?, receipt);
    Ok(json!({ "encoded": hex::encode(receipt.encoded_2718()) }))
}

pub fn header(input: &Value) -> Answer {
    let header: Header = alloy_rlp::decode_exact(bytes(&input["header"]))?;
    Ok(json!({
        "hash": hex::encode(header.hash_slow()),
        "parent_hash": hex::encode(header.parent_hash),
        "number": header.number,
        "receipts_root": hex::encode(header.receipts_root),
        "logs_bloom": hex::encode(header.logs_bloom),
    }))
}

pub fn header_json(input: &Value) -> Answer {
    let read: alloy_rpc_types_eth::Header = serde_json::from_value(input["header_json"].clone())?;
    // The library keeps the claimed hash unchecked; its documentation leaves the comparison to the
    // caller.
    let hash = read.inner.hash_slow();
    if hash == read.hash { Ok(json!({ "hash": hex::encode(hash) })) } else { Err("another hash")? }
}

pub fn root(input: &Value) -> Answer {
    let root = alloy_trie::root::ordered_trie_root_encoded(&list(&input["receipts"], bytes));
    Ok(json!({ "root": hex::encode(root) }))
}
