//! Answers to the areas of membership filters in the formats of other programs.

use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse16};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::{Filter, KeyHasher};
use serde_json::{Value, json};

use super::{Handler, Question, Refusal, invalid};

pub(super) const AREAS: [(&str, Handler); 3] =
    [("filter.parquet", split_block), ("filter.fuse8", fuse8), ("filter.fuse16", fuse16)];

fn split_block(question: &Question<'_>) -> Result<Value, Refusal> {
    let bitset = question.bytes("bitset")?;
    // The library reads the header that precedes the bitset in a file: in Thrift's compact
    // protocol, the length, and one of one algorithm, hash function and compression.
    let mut filter = vec![0x15];
    let mut zigzag = bitset.len() << 1;
    while zigzag >= 0x80 {
        filter.push(zigzag.to_le_bytes()[0] | 0x80);
        zigzag >>= 7;
    }
    filter.push(zigzag.to_le_bytes()[0]);
    filter.extend([0x1c, 0x1c, 0, 0].repeat(3));
    filter.push(0);
    filter.extend(bitset);
    let filter = parquet::decode(&filter).map_err(invalid)?;
    Ok(json!({ "contains": filter.contains(&question.bytes("data")?) }))
}

/// How other programs hash the text of a key.
const TEXT: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });

fn fuse8(question: &Question<'_>) -> Result<Value, Refusal> {
    let decoded = xor_singleheader::decode(&question.bytes("bytes")?, TEXT);
    let filter: BinaryFuse8 = decoded.map_err(invalid)?;
    contains(question, &filter)
}

fn fuse16(question: &Question<'_>) -> Result<Value, Refusal> {
    let decoded = xor_singleheader::decode(&question.bytes("bytes")?, TEXT);
    let filter: BinaryFuse16 = decoded.map_err(invalid)?;
    contains(question, &filter)
}

fn contains(question: &Question<'_>, filter: &impl Filter<Hash = u64>) -> Result<Value, Refusal> {
    let keys = question.list("keys", Value::as_str)?;
    let hashes: Vec<_> = keys.iter().map(|key| TEXT.hash(key.as_bytes())).collect();
    let mut contains = vec![false; keys.len()];
    filter.contains_batch(&hashes, &mut contains);
    Ok(json!({ "contains": contains }))
}
