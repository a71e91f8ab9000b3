//! Answers to the areas of Bitcoin.

use chainsieve::bitcoin::ScriptBuf;
use chainsieve::btc::bip37::{
    AddedData, BlockElements, BloomFilter, MerkleBlock, PayloadError, core_sizing,
};
use chainsieve::btc::bip158::{
    Acceptance, BlockFilter, GcsFilter, GcsParams, Matcher, PreparedScripts, filter_hash,
    filter_header, gcs,
};
use chainsieve::btc::script::{ScriptType, ops};
use chainsieve::hash::{SipKey, murmur3_32};
use serde_json::{Value, json};

use super::{Handler, Question, Refusal, invalid, number, unhex};

pub(super) const AREAS: [(&str, Handler); 18] = [
    ("bip37.murmur3", murmur3),
    ("bip37.sizing", sizing),
    ("bip37.filterload", filterload),
    ("bip37.filteradd", filteradd),
    ("bip37.insert", insert),
    ("bip37.contains", contains),
    ("bip37.match", match_block),
    ("bip37.merkleblock_build", build_merkleblock),
    ("bip37.merkleblock", merkleblock),
    ("script.pushes", pushes),
    ("script.kind", kind),
    ("gcs.build", build_set),
    ("gcs.decode", decode_set),
    ("gcs.match", match_item),
    ("gcs.match_any", match_any),
    ("bip157.header", header),
    ("bip158.basic", basic),
    ("bip158.check", check),
];

fn murmur3(question: &Question<'_>) -> Result<Value, Refusal> {
    let hash = murmur3_32(question.number("seed")?, &question.bytes("data")?);
    Ok(json!({ "hash": hash }))
}

fn sizing(question: &Question<'_>) -> Result<Value, Refusal> {
    let bits = question.member("fpr_bits", |bits| u64::from_str_radix(bits.as_str()?, 16).ok())?;
    let (bytes, hash_funcs) = core_sizing(question.number("elements")?, f64::from_bits(bits));
    Ok(json!({ "bytes": bytes, "hash_funcs": hash_funcs }))
}

/// Reads a filter as Core's deserialiser does: of any size, and trailing bytes are ignored.
fn filter(question: &Question<'_>, name: &str) -> Result<BloomFilter, Refusal> {
    let payload = question.bytes(name)?;
    BloomFilter::decode_any_size(&payload).map(|(filter, _)| filter).map_err(invalid)
}

fn filterload(question: &Question<'_>) -> Result<Value, Refusal> {
    let filter = filter(question, "payload")?;
    Ok(json!({
        "data": hex::encode(filter.data()),
        "hash_funcs": filter.hash_funcs(),
        "tweak": filter.tweak(),
        "flags": filter.flags(),
        "within_limits": filter.is_within_size_constraints(),
    }))
}

fn filteradd(question: &Question<'_>) -> Result<Value, Refusal> {
    let payload = question.bytes("payload")?;
    match AddedData::decode_prefix(&payload) {
        Ok((data, _)) => Ok(json!({ "data": hex::encode(data.as_bytes()), "within_limits": true })),
        // The library keeps no data over the limit: it is the last part of the payload.
        Err(PayloadError::DataTooLarge(length)) => {
            let data = &payload[payload.len() - length..];
            Ok(json!({ "data": hex::encode(data), "within_limits": false }))
        }
        Err(error) => Err(invalid(error)),
    }
}

fn insert(question: &Question<'_>) -> Result<Value, Refusal> {
    let mut filter = filter(question, "filter")?;
    for element in question.list("insert", unhex)? {
        filter.insert(&element);
    }
    Ok(json!({ "filter": hex::encode(filter.encode()) }))
}

fn contains(question: &Question<'_>) -> Result<Value, Refusal> {
    let contains = filter(question, "filter")?.contains(&question.bytes("data")?);
    Ok(json!({ "contains": contains }))
}

fn match_block(question: &Question<'_>) -> Result<Value, Refusal> {
    let mut filter = filter(question, "filter")?;
    let block = BlockElements::from_raw(&question.bytes("block")?).map_err(invalid)?;
    let matched: Vec<_> = filter.match_block(&block).iter().map(|found| found.index).collect();
    Ok(json!({ "matched": matched, "filter_after": hex::encode(filter.encode()) }))
}

fn build_merkleblock(question: &Question<'_>) -> Result<Value, Refusal> {
    let block = BlockElements::from_raw(&question.bytes("block")?).map_err(invalid)?;
    let matched = question.list("matched", number)?;
    let built = MerkleBlock::new(block.header(), block.txids(), &matched).map_err(invalid)?;
    Ok(json!({ "merkleblock": hex::encode(built.encode()) }))
}

fn merkleblock(question: &Question<'_>) -> Result<Value, Refusal> {
    let payload = question.bytes("merkleblock")?;
    // Core ignores trailing bytes of a message.
    let (block, _) = MerkleBlock::decode_prefix(&payload).map_err(invalid)?;
    let tree = block.extract_matches().map_err(invalid)?;
    let matches: Vec<_> =
        tree.matches.iter().map(|(index, txid)| json!([index, txid.to_string()])).collect();
    Ok(json!({ "matches": matches }))
}

fn pushes(question: &Question<'_>) -> Result<Value, Refusal> {
    let script = question.bytes("script")?;
    let mut ops = ops(&script);
    let data = ops.by_ref().map(|op| op.data).filter(|data| !data.is_empty());
    let pushes: Vec<_> = data.map(hex::encode).collect();
    Ok(json!({ "pushes": pushes, "well_formed": ops.is_well_formed() }))
}

fn kind(question: &Question<'_>) -> Result<Value, Refusal> {
    let kind = ScriptType::of(&question.bytes("script")?);
    Ok(json!({ "kind": kind.to_string() }))
}

/// Reads the parameters and the key of a set.
fn params(question: &Question<'_>) -> Result<(GcsParams, SipKey), Refusal> {
    let unsupported = |error: gcs::GcsParamsError| Refusal::Skipped(error.to_string());
    let params = GcsParams::new(question.number("p")?, question.number("m")?);
    let key = question.member("key", |key| unhex(key)?.try_into().ok())?;
    Ok((params.map_err(unsupported)?, SipKey::from_bytes(key)))
}

fn build_set(question: &Question<'_>) -> Result<Value, Refusal> {
    let (params, key) = params(question)?;
    let items = question.list("items", unhex)?;
    let encoded = gcs::encode(params, key, items.iter().map(Vec::as_slice)).map_err(invalid)?;
    Ok(json!({ "encoded": hex::encode(encoded) }))
}

fn decode_set(question: &Question<'_>) -> Result<Value, Refusal> {
    let (params, key) = params(question)?;
    let encoded = question.bytes("encoded")?;
    let filter = GcsFilter::parse(params, key, &encoded, Acceptance::Core).map_err(invalid)?;
    filter.decode_into(&mut Vec::new()).map_err(invalid)?;
    Ok(json!({ "count": filter.num_elements() }))
}

fn match_item(question: &Question<'_>) -> Result<Value, Refusal> {
    match_set(question, &[question.bytes("item")?])
}

fn match_any(question: &Question<'_>) -> Result<Value, Refusal> {
    match_set(question, &question.list("items", unhex)?)
}

/// Matches all items at once, as a wallet's scripts are matched.
fn match_set(question: &Question<'_>, items: &[Vec<u8>]) -> Result<Value, Refusal> {
    let (params, key) = params(question)?;
    let encoded = question.bytes("encoded")?;
    let filter = GcsFilter::parse(params, key, &encoded, Acceptance::Core).map_err(invalid)?;
    let scripts: PreparedScripts = items.iter().collect();
    let matched = Matcher::new().match_any(&filter, &scripts).map_err(invalid)?;
    Ok(json!({ "match": matched }))
}

fn header(question: &Question<'_>) -> Result<Value, Refusal> {
    let previous =
        question.member("previous_header_display", |text| text.as_str()?.parse().ok())?;
    let hash = filter_hash(&question.bytes("filter")?);
    Ok(json!({
        "filter_hash_display": hash.to_string(),
        "filter_header_display": filter_header(&hash, &previous).to_string(),
    }))
}

fn block_filter(question: &Question<'_>) -> Result<BlockFilter, Refusal> {
    let scripts = question.list("prevout_scripts", |script| unhex(script).map(ScriptBuf::from))?;
    BlockFilter::from_raw_block(&question.bytes("block")?, &scripts).map_err(invalid)
}

fn basic(question: &Question<'_>) -> Result<Value, Refusal> {
    Ok(json!({ "filter": hex::encode(block_filter(question)?.content) }))
}

fn check(question: &Question<'_>) -> Result<Value, Refusal> {
    let correct = block_filter(question)?.content == question.bytes("filter")?;
    Ok(json!({ "correct": correct }))
}
