//! The message `filterload`, merkle blocks.
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::p2p::message_bloom::FilterLoad;
use bitcoin::{Block, MerkleBlock};
use serde_json::{Value, json};

use crate::protocol::{Answer, bytes, list};

pub fn filterload(input: &Value) -> Answer {
    let read: FilterLoad = deserialize(&bytes(&input["payload"]))?;
    let (data, flags) = (hex::encode(read.filter), serialize(&read.flags)[0]);
    // The library has no limits: whatever it reads is a filter to it.
    Ok(json!({ "data": data, "hash_funcs": read.hash_funcs, "tweak": read.tweak, "flags": flags,
        "within_limits": true }))
}

pub fn merkleblock_build(input: &Value) -> Answer {
    let block: Block = deserialize(&bytes(&input["block"]))?;
    let txid_at = |at: &Value| block.txdata[at.as_u64().expect("an index") as usize].compute_txid();
    let wanted = list(&input["matched"], txid_at);
    let built = MerkleBlock::from_block_with_predicate(&block, |txid| wanted.contains(txid));
    Ok(json!({ "merkleblock": hex::encode(serialize(&built)) }))
}

pub fn merkleblock(input: &Value) -> Answer {
    let read: MerkleBlock = deserialize(&bytes(&input["merkleblock"]))?;
    let (mut txids, mut indices) = (Vec::new(), Vec::new());
    read.extract_matches(&mut txids, &mut indices)?;
    let txids = txids.iter().map(ToString::to_string);
    Ok(json!({ "matches": indices.into_iter().zip(txids).collect::<Vec<_>>() }))
}
