//! chain-gang: BIP37's filter (`util::BloomFilter`), the messages `filterload` and `merkleblock`.
//!
//! Its merkle block gives the matched transactions without their places in the block: a case with
//! such a match is skipped.
use chain_gang::messages::{FilterLoad, MerkleBlock};
use chain_gang::util::{BloomFilter, Serializable};
use protocol::{Answer, No, bytes, serve};
use serde_json::{Value, json};

#[path = "../../protocol.rs"]
mod protocol;

fn sizing(input: &Value) -> Answer {
    let elements = input["elements"].as_f64().expect("a number");
    let made = BloomFilter::new(elements, input["fpr"].as_str().expect("a string").parse()?)?;
    Ok(json!({ "bytes": made.filter.len(), "hash_funcs": made.num_hash_funcs }))
}

fn filterload(input: &Value) -> Answer {
    let read = FilterLoad::read(&mut bytes(&input["payload"]).as_slice())?;
    let limits = read.validate().is_ok();
    let filter = read.bloom_filter;
    Ok(json!({ "data": hex::encode(filter.filter), "hash_funcs": filter.num_hash_funcs,
        "tweak": filter.tweak, "flags": read.flags, "within_limits": limits }))
}

fn merkleblock(input: &Value) -> Answer {
    let read = MerkleBlock::read(&mut bytes(&input["merkleblock"]).as_slice())?;
    if read.validate()?.is_empty() {
        return Ok(json!({ "matches": [] }));
    }
    Err(No::Skipped("matches have no place in the block"))
}

fn main() {
    serve(&[
        ("bip37.sizing", sizing),
        ("bip37.filterload", filterload),
        ("bip37.merkleblock", merkleblock),
    ]);
}
