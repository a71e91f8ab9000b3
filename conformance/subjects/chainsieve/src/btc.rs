//! Answers to the areas of Bitcoin.

use std::collections::BTreeSet;

use chainsieve::bitcoin::consensus::{deserialize, serialize};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message_bloom::{FilterAdd, FilterLoad};
use chainsieve::bitcoin::{self, Block, BlockHash, OutPoint, Script, ScriptBuf, Transaction, Txid};
use chainsieve::btc::bip37::{
    AddedData, BlockElements, BloomFilter, MatchReason, MerkleBlock, PayloadError, core_sizing,
};
use chainsieve::btc::bip158::{
    Acceptance, BlockFilter, DecodedFilter, GcsFilter, GcsParams, Matcher, PreparedScripts,
    filter_elements, filter_hash, filter_header, gcs,
};
use chainsieve::btc::merkle_tree::{MerklePath, merkle_root};
use chainsieve::btc::script::{ScriptType, is_well_formed, ops};
use chainsieve::hash::{SipKey, murmur3_32};
use chainsieve::simd::Backend;
use serde_json::{Value, json};

use crate::{Handler, Question, Refusal, invalid, number, same, unhex};

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
    let (elements, fpr) = (question.number("elements")?, f64::from_bits(bits));
    let (bytes, hash_funcs) = core_sizing(elements, fpr);
    same("core_sizing of no elements", &core_sizing(0, fpr), &(0, 0))?;
    for rate in [0.0, -1.0, 1.5, f64::NAN] {
        let is_refused = BloomFilter::with_core_sizing(elements, rate, 0, 0).is_err();
        same("with_core_sizing refuses the rate", &is_refused, &true)?;
    }
    let sized = BloomFilter::with_core_sizing(elements, fpr, 0, 0);
    same("with_core_sizing", &sized.is_ok(), &(elements > 0 && fpr > 0.0 && fpr <= 1.0))?;
    if let Ok(filter) = sized {
        let size = (filter.data().len(), filter.hash_funcs());
        same("with_core_sizing", &size, &(bytes as usize, hash_funcs))?;
    }
    Ok(json!({ "bytes": bytes, "hash_funcs": hash_funcs }))
}

/// Reads a filter as Core's deserialiser does: of any size, and trailing bytes are ignored.
fn filter(question: &Question<'_>, name: &str) -> Result<BloomFilter, Refusal> {
    let payload = question.bytes(name)?;
    let (filter, rest) = BloomFilter::decode_any_size(&payload).map_err(invalid)?;
    let decoded = BloomFilter::decode_prefix(&payload).ok();
    let admitted = filter.is_within_size_constraints().then(|| (filter.clone(), rest));
    same("decode_prefix", &decoded, &admitted)?;
    let whole = admitted.filter(|(_, rest)| rest.is_empty()).map(|(filter, _)| filter);
    same("decode", &BloomFilter::decode(&payload).ok(), &whole)?;
    // `FilterLoad` has no value for flags above 2.
    let message = whole.as_ref().and_then(|filter| FilterLoad::try_from(filter.clone()).ok());
    if let Some(message) = message {
        same("FilterLoad", &BloomFilter::try_from(message).ok(), &whole)?;
    }
    Ok(filter)
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
        Ok((data, rest)) => {
            let whole = rest.is_empty().then(|| data.clone());
            same("decode", &AddedData::decode(&payload).ok(), &whole)?;
            let again = AddedData::decode(&data.encode()).ok();
            same("encode", &again.as_ref(), &Some(&data))?;
            let message = AddedData::try_from(FilterAdd::from(data.clone())).ok();
            same("FilterAdd", &message.as_ref(), &Some(&data))?;
            Ok(json!({ "data": hex::encode(data.as_bytes()), "within_limits": true }))
        }
        // The library keeps no data over the limit: it is the last part of the payload.
        Err(PayloadError::DataTooLarge(length)) => {
            let data = &payload[payload.len() - length..];
            Ok(json!({ "data": hex::encode(data), "within_limits": false }))
        }
        Err(error) => Err(invalid(error)),
    }
}

fn insert(question: &Question<'_>) -> Result<Value, Refusal> {
    let empty = filter(question, "filter")?;
    let (mut filter, mut union) = (empty.clone(), empty.clone());
    let elements = question.list("insert", unhex)?;
    for element in &elements {
        filter.insert(element);
        let mut one = empty.clone();
        match deserialize(element) {
            Ok(outpoint) => one.insert_outpoint(&outpoint),
            Err(_) => one.insert(element),
        }
        union.union(&one).map_err(invalid)?;
    }
    same("union", &union, &filter)?;
    let ones: u32 = filter.data().iter().map(|byte| byte.count_ones()).sum();
    same("bits_set", &filter.bits_set(), &u64::from(ones))?;
    Ok(json!({ "filter": hex::encode(filter.encode()) }))
}

fn contains(question: &Question<'_>) -> Result<Value, Refusal> {
    let (filter, data) = (filter(question, "filter")?, question.bytes("data")?);
    let contains = filter.contains(&data);
    if let Ok(outpoint) = deserialize::<OutPoint>(&data) {
        same("contains_outpoint", &filter.contains_outpoint(&outpoint), &contains)?;
    }
    Ok(json!({ "contains": contains }))
}

fn match_block(question: &Question<'_>) -> Result<Value, Refusal> {
    let filter = filter(question, "filter")?;
    let raw = question.bytes("block")?;
    let block = BlockElements::from_raw(&raw).map_err(invalid)?;
    let mut after = filter.clone();
    let matches = after.match_block(&block);
    for backend in Backend::available() {
        let mut other = filter.clone().with_backend(backend);
        same(backend.name(), &other.match_block(&block), &matches)?;
        same(backend.name(), &other, &after)?;
    }
    let parsed: Block = deserialize(&raw).map_err(invalid)?;
    let mut other = filter.clone();
    same("from_block", &other.match_block(&BlockElements::from_block(&parsed)), &matches)?;
    let matched: Vec<_> = matches.iter().map(|found| found.index).collect();
    let mut one_by_one = Vec::new();
    let mut other = filter;
    for (index, transaction) in (0..).zip(&parsed.txdata) {
        if other.is_relevant_and_update(transaction) {
            one_by_one.push(index);
        }
    }
    same("is_relevant_and_update", &one_by_one, &matched)?;
    same("is_relevant_and_update", &other, &after)?;
    for found in &matches {
        // Core stops at the first push of an output that matches, and at the first input.
        let places = found.reasons.iter().map(|reason| match *reason {
            MatchReason::Output { vout, .. } => (1, vout),
            MatchReason::Spent { .. } | MatchReason::InputData { .. } => (2, 0),
            _ => (0, 0),
        });
        same("the order of reasons", &places.is_sorted_by(|a, b| a < b), &true)?;
        for reason in &found.reasons {
            same(
                reason,
                &holds(&after, &parsed.txdata[found.index as usize], reason),
                &Some(true),
            )?;
        }
    }
    Ok(json!({ "matched": matched, "filter_after": hex::encode(after.encode()) }))
}

/// Returns whether the filter has what a reason for a match names; `None` if the transaction does not.
/// What was in the filter stays there.
fn holds(filter: &BloomFilter, transaction: &Transaction, reason: &MatchReason) -> Option<bool> {
    let push = |script: &Script, number: u32| {
        let data = ops(script.as_bytes()).map(|op| op.data).filter(|data| !data.is_empty());
        data.skip(number as usize).map(|data| filter.contains(data)).next()
    };
    Some(match *reason {
        MatchReason::Everything => filter.data().is_empty(),
        MatchReason::Txid => filter.contains(transaction.compute_txid().as_byte_array()),
        MatchReason::Output { vout, push: number, inserted } => {
            let outpoint = OutPoint { txid: transaction.compute_txid(), vout };
            let script = &transaction.output.get(vout as usize)?.script_pubkey;
            push(script, number)? && (!inserted || filter.contains_outpoint(&outpoint))
        }
        MatchReason::Spent { vin } => {
            filter.contains_outpoint(&transaction.input.get(vin as usize)?.previous_output)
        }
        MatchReason::InputData { vin, push: number } => {
            push(&transaction.input.get(vin as usize)?.script_sig, number)?
        }
        _ => return None,
    })
}

/// The most transactions that a block of 4,000,000 units of weight has room for.
const MOST_TRANSACTIONS: usize = 16_666;

fn build_merkleblock(question: &Question<'_>) -> Result<Value, Refusal> {
    let block = BlockElements::from_raw(&question.bytes("block")?).map_err(invalid)?;
    let matched = question.list("matched", number)?;
    let txids = block.txids();
    let built = MerkleBlock::new(block.header(), txids, &matched).map_err(invalid)?;
    let root = merkle_root(txids);
    same("merkle_root", &root, &Some(block.header().merkle_root))?;
    let transactions = u32::try_from(txids.len()).map_err(invalid)?;
    for wrong in [&[transactions][..], &[0, 0]] {
        let is_refused = MerkleBlock::new(block.header(), txids, wrong).is_err();
        same("an index too large, or twice, is refused", &is_refused, &true)?;
    }
    if transactions == 1 {
        for (count, is_possible) in [(MOST_TRANSACTIONS, true), (MOST_TRANSACTIONS + 1, false)] {
            let built = MerkleBlock::new(block.header(), &vec![txids[0]; count], &[]);
            same("the number of transactions", &built.is_ok(), &is_possible)?;
        }
    }
    let height = transactions.next_power_of_two().trailing_zeros();
    let last = MerklePath::new(txids, transactions - 1).ok_or_else(|| invalid("no last one"))?;
    let beyond = MerklePath { index: transactions, ..last };
    let of_last = beyond.root(txids[txids.len() - 1], transactions).ok();
    same("MerklePath::root of a place after the last", &of_last, &None)?;
    same("MerklePath::new", &MerklePath::new(txids, transactions), &None)?;
    for index in matched.iter().take(8).copied().chain(0..transactions.min(3)) {
        let path = MerklePath::new(txids, index).ok_or_else(|| invalid("no such transaction"))?;
        let txid = txids[index as usize];
        same("MerklePath::root", &path.root(txid, transactions).ok(), &root)?;
        same("root_at_height", &path.root_at_height(txid, height).ok(), &root)?;
        // The same siblings, for a place after the last.
        let beyond = MerklePath { index: index + (1 << height), ..path };
        same("root_at_height", &beyond.root_at_height(txid, height).ok(), &None)?;
    }
    Ok(json!({ "merkleblock": hex::encode(built.encode()) }))
}

fn merkleblock(question: &Question<'_>) -> Result<Value, Refusal> {
    let payload = question.bytes("merkleblock")?;
    // Core ignores trailing bytes of a message.
    let (block, rest) = MerkleBlock::decode_prefix(&payload).map_err(invalid)?;
    let whole = rest.is_empty().then(|| block.clone());
    same("decode", &MerkleBlock::decode(&payload).ok(), &whole)?;
    let message = bitcoin::MerkleBlock::try_from(&block).map_err(invalid)?;
    same("bitcoin::MerkleBlock", &MerkleBlock::from(&message), &block)?;
    let matches = block.extract_matches().map_err(invalid)?;
    let matches: Vec<_> =
        matches.iter().map(|(index, txid)| json!([index, txid.to_string()])).collect();
    Ok(json!({ "matches": matches }))
}

fn pushes(question: &Question<'_>) -> Result<Value, Refusal> {
    let script = question.bytes("script")?;
    let data = ops(&script).map(|op| op.data).filter(|data| !data.is_empty());
    let pushes: Vec<_> = data.map(hex::encode).collect();
    Ok(json!({ "pushes": pushes, "well_formed": is_well_formed(&script) }))
}

fn kind(question: &Question<'_>) -> Result<Value, Refusal> {
    let kind = ScriptType::of(&question.bytes("script")?);
    Ok(json!({ "kind": kind.to_string() }))
}

/// Reads the parameters and the key of a set.
fn params(question: &Question<'_>) -> Result<(GcsParams, SipKey), Refusal> {
    let unsupported = |error: gcs::GcsError| Refusal::Skipped(error.to_string());
    let params = GcsParams::new(question.number("p")?, question.number("m")?);
    let key = question.member("key", |key| unhex(key)?.try_into().ok())?;
    Ok((params.map_err(unsupported)?, SipKey::from_bytes(key)))
}

fn build_set(question: &Question<'_>) -> Result<Value, Refusal> {
    let (params, key) = params(question)?;
    let items = question.list("items", unhex)?;
    let items = || items.iter().map(Vec::as_slice);
    let encoded = gcs::encode(params, key, items()).map_err(invalid)?;
    for backend in Backend::available() {
        let other = gcs::encode_on(backend, params, key, items());
        same(backend.name(), &other.as_ref(), &Ok(&encoded))?;
    }
    let set = GcsFilter::parse(params, key, &encoded, Acceptance::Strict).map_err(invalid)?;
    same_values(&set, items())?;
    let longer = [encoded.as_slice(), &[0; 3]].concat();
    let longer = GcsFilter::parse(params, key, &longer, Acceptance::Core)
        .and_then(|set| set.decode_into(&mut Vec::new()));
    same("trailing bytes", &longer, &Err(gcs::GcsError::TrailingBytes(3)))?;
    Ok(json!({ "encoded": hex::encode(encoded) }))
}

/// Checks that a set is read as the values of its elements.
fn same_values<'e>(
    set: &GcsFilter<'_>,
    elements: impl Iterator<Item = &'e [u8]>,
) -> Result<(), Refusal> {
    let distinct: BTreeSet<_> = elements.collect();
    let mut values: Vec<_> = distinct.into_iter().map(|element| set.value(element)).collect();
    values.sort_unstable();
    for backend in Backend::available() {
        let mut read = Vec::new();
        set.decode_into_on(backend, &mut read).map_err(invalid)?;
        same(backend.name(), &read, &values)?;
    }
    Ok(())
}

fn decode_set(question: &Question<'_>) -> Result<Value, Refusal> {
    let (params, key) = params(question)?;
    let encoded = question.bytes("encoded")?;
    let filter = GcsFilter::parse(params, key, &encoded, Acceptance::Core).map_err(invalid)?;
    let mut values = Vec::new();
    let result = filter.decode_into(&mut values);
    for backend in Backend::available() {
        let mut other = Vec::new();
        same(backend.name(), &filter.decode_into_on(backend, &mut other), &result)?;
        if result.is_ok() {
            same(backend.name(), &other, &values)?;
        }
    }
    result.map_err(invalid)?;
    let count = filter.num_elements();
    same("decode_into", &values.len(), &(count as usize))?;
    // No builder writes values that are not below N × M, or a last byte that does not end in zeros.
    let (p, range) = (u32::from(params.p()), u64::from(count) * u64::from(params.m()));
    let deltas = values.iter().zip([0].iter().chain(&values)).map(|(value, before)| value - before);
    let bits: u64 = deltas.map(|delta| (delta >> p) + 1 + u64::from(p)).sum();
    let padding = encoded.last().map_or(0, |last| last & ((1 << (bits.wrapping_neg() % 8)) - 1));
    let is_strict = count == 0 || padding == 0 && values.last().is_none_or(|last| *last < range);
    let strict = GcsFilter::parse(params, key, &encoded, Acceptance::Strict).map_err(invalid)?;
    same("Strict", &strict.decode_into(&mut Vec::new()).is_ok(), &is_strict)?;
    Ok(json!({ "count": count }))
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
    let result = Matcher::new().match_any(&filter, &scripts);
    // A matcher keeps its memory from filter to filter: the one before has all items and some more.
    for more in [40, 1_000_u16] {
        let others: Vec<_> = (0..more).map(|other| other.to_le_bytes().repeat(10)).collect();
        let before = items.iter().chain(&others).map(Vec::as_slice);
        let before = gcs::encode(params, key, before).map_err(invalid)?;
        let before = GcsFilter::parse(params, key, &before, Acceptance::Strict).map_err(invalid)?;
        for backend in Backend::available() {
            let mut matcher = Matcher::new().with_backend(backend);
            same("match_all", &matcher.match_all(&before, &scripts), &Ok(true))?;
            same(backend.name(), &matcher.match_any(&filter, &scripts), &result)?;
        }
    }
    let matched = result.map_err(invalid)?;
    let matching = Matcher::new().matching(&filter, &scripts).map_err(invalid)?;
    same("matching", &!matching.is_empty(), &matched)?;
    same("the order of matching", &matching.is_sorted(), &true)?;
    let all = matching.len() == items.len();
    let mut values = Vec::new();
    filter.decode_into(&mut values).map_err(invalid)?;
    for (index, item) in items.iter().enumerate() {
        let is_there = values.binary_search(&filter.value(item)).is_ok();
        same("value", &is_there, &matching.binary_search(&index).is_ok())?;
    }
    for backend in Backend::available() {
        let mut matcher = Matcher::new().with_backend(backend);
        same("matching", &matcher.matching(&filter, &scripts).as_ref(), &Ok(&matching))?;
        same("match_all", &matcher.match_all(&filter, &scripts), &Ok(all))?;
        let decoded = DecodedFilter::decode(&filter).map_err(invalid)?.with_backend(backend);
        same("DecodedFilter::match_any", &decoded.match_any(&scripts), &matched)?;
        same("DecodedFilter::match_all", &decoded.match_all(&scripts), &all)?;
        let middle = items.len() / 3;
        let mut found = decoded.matching(&scripts, 0..middle);
        same("a range", &found.iter().all(|index| *index < middle), &true)?;
        found.extend(decoded.matching(&scripts, middle..items.len()));
        same("DecodedFilter::matching", &found, &matching)?;
        let any = items.iter().any(|item| decoded.may_contain(item));
        same("may_contain", &any, &matched)?;
    }
    Ok(json!({ "match": matched }))
}

fn header(question: &Question<'_>) -> Result<Value, Refusal> {
    let previous =
        question.member("previous_header_display", |text| text.as_str()?.parse().ok())?;
    let content = question.bytes("filter")?;
    let hash = filter_hash(&content);
    let header = filter_header(&hash, &previous);
    let filter = BlockFilter { block_hash: BlockHash::all_zeros(), content };
    same("BlockFilter::filter_hash", &filter.filter_hash(), &hash)?;
    same("BlockFilter::filter_header", &filter.filter_header(&previous), &header)?;
    Ok(json!({
        "filter_hash_display": hash.to_string(),
        "filter_header_display": header.to_string(),
    }))
}

fn block_filter(question: &Question<'_>) -> Result<BlockFilter, Refusal> {
    let scripts = question.list("prevout_scripts", |script| unhex(script).map(ScriptBuf::from))?;
    let raw = question.bytes("block")?;
    let filter = BlockFilter::from_raw_block(&raw, &scripts);
    let block = deserialize::<Block>(&raw);
    same("from_raw_block", &filter.is_ok(), &block.is_ok())?;
    let (filter, block) = (filter.map_err(invalid)?, block.map_err(invalid)?);
    let other = BlockFilter::from_prevout_scripts(&block, &scripts).map_err(invalid)?;
    same("from_prevout_scripts", &other, &filter)?;
    let set = filter.gcs(Acceptance::Strict).map_err(invalid)?;
    let elements = filter_elements(&block, &scripts).map_err(invalid)?;
    same_values(&set, elements)?;
    // Only the null outpoint makes an input that of a coinbase, and a coinbase has no other input.
    let outpoints = [
        (Txid::all_zeros(), 0, 1),
        (block.txdata[0].compute_txid(), u32::MAX, 1),
        (Txid::from_byte_array(*b"\0 is one of the bytes of an id.."), u32::MAX, 1),
        (Txid::all_zeros(), u32::MAX, 2),
    ];
    for (txid, vout, inputs) in outpoints {
        let mut block = block.clone();
        let spending = &mut block.txdata[0].input;
        spending[0].previous_output = OutPoint { txid, vout };
        spending.resize(inputs, spending[0].clone());
        let is_refused = BlockFilter::from_raw_block(&serialize(&block), &scripts).is_err();
        same("a block without a coinbase is refused", &is_refused, &true)?;
        let is_refused = BlockFilter::from_prevout_scripts(&block, &scripts).is_err();
        same("a block without a coinbase is refused", &is_refused, &true)?;
    }
    let empty = Block { header: block.header, txdata: Vec::new() };
    let is_refused = BlockFilter::from_raw_block(&serialize(&empty), &scripts).is_err();
    same("a block without transactions is refused", &is_refused, &true)?;
    Ok(filter)
}

fn basic(question: &Question<'_>) -> Result<Value, Refusal> {
    Ok(json!({ "filter": hex::encode(block_filter(question)?.content) }))
}

fn check(question: &Question<'_>) -> Result<Value, Refusal> {
    let correct = block_filter(question)?.content == question.bytes("filter")?;
    Ok(json!({ "correct": correct }))
}
