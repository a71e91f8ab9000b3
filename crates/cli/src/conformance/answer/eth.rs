//! Answers to the areas of Ethereum.

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve::eth::bloom::{BloomView, accrue_logs, positions};
use chainsieve::eth::certificate::{Certificate, Trust};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderBuf, HeaderView};
use chainsieve::eth::log_query::{BlockSelection, BlockTag, LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::{BlockReceipts, VerifyError};
use serde_json::{Value, json};

use super::{Handler, Question, Refusal, invalid, unhex};

pub(super) const AREAS: [(&str, Handler); 9] = [
    ("header.hash", header_hash),
    ("header.json", header_json),
    ("logsbloom.build", build_bloom),
    ("logsbloom.test", test_bloom),
    ("logs.parse", parse_filter),
    ("logs.match", match_logs),
    ("receipts.encode", encode_receipt),
    ("receipts.root", receipts_root),
    ("certificate.verify", verify_certificate),
];

fn header_hash(question: &Question<'_>) -> Result<Value, Refusal> {
    let rlp = question.bytes("header")?;
    let header = HeaderView::decode(&rlp).map_err(invalid)?;
    let bloom = header.logs_bloom().bytes();
    Ok(json!({
        "hash": hex::encode(header.hash()),
        "parent_hash": hex::encode(header.parent_hash()),
        "number": header.number(),
        "receipts_root": hex::encode(header.receipts_root()),
        // The view has no bytes of a filter of another length.
        "logs_bloom": bloom.map(hex::encode),
    }))
}

fn header_json(question: &Question<'_>) -> Result<Value, Refusal> {
    let header = HeaderBuf::from_json(&question.value("header_json")?.to_string());
    Ok(json!({ "hash": hex::encode(header.map_err(invalid)?.hash()) }))
}

fn address(value: &Value) -> Option<Address> {
    Address::try_from(unhex(value)?.as_slice()).ok()
}

fn word(value: &Value) -> Option<B256> {
    B256::try_from(unhex(value)?.as_slice()).ok()
}

/// Reads the logs of an input; their data may be missing.
fn logs(question: &Question<'_>) -> Result<Vec<Log>, Refusal> {
    question.list("logs", |log| {
        let topics = log["topics"].as_array()?.iter().map(word).collect::<Option<_>>()?;
        let data = log.get("data").map_or(Some(Vec::new()), unhex)?;
        Some(Log::new_unchecked(address(&log["address"])?, topics, data.into()))
    })
}

fn build_bloom(question: &Question<'_>) -> Result<Value, Refusal> {
    let mut bloom = [0; 256];
    accrue_logs(&mut bloom, &logs(question)?);
    Ok(json!({ "bloom": hex::encode(bloom) }))
}

fn test_bloom(question: &Question<'_>) -> Result<Value, Refusal> {
    let item = question.bytes("item")?;
    let expected = match question.text("kind")? {
        "address" => Address::len_bytes(),
        "topic" => B256::len_bytes(),
        other => return Err(Refusal::Malformed(format!("kind {other}"))),
    };
    if item.len() != expected {
        return Err(invalid(format!("{} bytes, but {expected} are needed", item.len())));
    }
    let bloom = question.bytes("bloom")?;
    let bloom = BloomView::from_wire(&bloom);
    // Such a filter rules nothing out; the library calls its answer "no information".
    if bloom.bytes().is_none() {
        return Err(invalid("the filter has not 256 bytes"));
    }
    Ok(json!({ "may_contain": bloom.answer(&positions(&item)).is_candidate() }))
}

fn query(question: &Question<'_>) -> Result<LogQuery, Refusal> {
    let filter = question.value("filter")?.to_string();
    LogQuery::from_json(&filter, question.semantics).map_err(invalid)
}

fn parse_filter(question: &Question<'_>) -> Result<Value, Refusal> {
    let query = query(question)?;
    let mut topics: Vec<Vec<_>> =
        query.topics().iter().map(|set| set.values().iter().map(hex::encode).collect()).collect();
    // By alloy's rules, trailing positions without a value demand nothing.
    while question.semantics == Semantics::Alloy && topics.last().is_some_and(Vec::is_empty) {
        topics.pop();
    }
    let addresses: Vec<_> = query.address_set().iter().map(hex::encode).collect();
    let mut parsed = json!({ "addresses": addresses, "topics": topics });
    let tag = |tag: BlockTag| match tag {
        // Readers of JSON may round a larger number.
        BlockTag::Number(number) if number > 1 << 53 => json!(number.to_string()),
        BlockTag::Number(number) => json!(number),
        tag => json!(tag.to_string()),
    };
    match *query.blocks() {
        BlockSelection::AtHash(hash) => parsed["block_hash"] = hex::encode(hash).into(),
        BlockSelection::Range { from, to } => {
            for (name, block) in [("from", from), ("to", to)] {
                if let Some(block) = block {
                    parsed[name] = tag(block);
                }
            }
        }
    }
    Ok(parsed)
}

fn match_logs(question: &Question<'_>) -> Result<Value, Refusal> {
    let query = query(question)?;
    let logs = logs(question)?;
    let matches = |(_, log): &(usize, &Log)| query.matches(log, question.semantics);
    let matches: Vec<_> = logs.iter().enumerate().filter(matches).map(|(index, _)| index).collect();
    Ok(json!({ "matches": matches }))
}

fn encode_receipt(question: &Question<'_>) -> Result<Value, Refusal> {
    let receipt = question.part(question.value("receipt")?);
    let quantity = |name| receipt.number(name).map(|number: u64| format!("{number:#x}"));
    let logs: Vec<_> = logs(&receipt)?
        .iter()
        .map(|log| json!({ "address": log.address, "topics": log.topics(), "data": log.data.data }))
        .collect();
    let mut json = json!({
        "transactionIndex": "0x0",
        "type": quantity("type")?,
        "cumulativeGasUsed": quantity("cumulative_gas")?,
        "logs": logs,
    });
    if receipt.input.get("post_state").is_some() {
        json["root"] = format!("0x{}", receipt.text("post_state")?).into();
    } else {
        json["status"] = quantity("status")?.into();
    }
    let receipts = BlockReceipts::from_json(&json!([json]).to_string()).map_err(invalid)?;
    let encodings = receipts.encodings().ok_or_else(|| invalid("neither status nor post-state"))?;
    Ok(json!({ "encoded": encodings.iter().map(hex::encode).collect::<String>() }))
}

fn receipts_root(question: &Question<'_>) -> Result<Value, Refusal> {
    let encodings: Vec<Bytes> =
        question.list("receipts", |encoding| unhex(encoding).map(Bytes::from))?;
    let receipts = BlockReceipts::from_encodings(&encodings).map_err(invalid)?.after_byzantium();
    // The library compares roots, and names the computed one if it is another.
    match receipts.verify(B256::ZERO, BloomView::from_wire(&[])) {
        Err(VerifyError::RootMismatch { computed, .. }) => {
            Ok(json!({ "root": hex::encode(computed) }))
        }
        Err(error) => Err(invalid(error)),
        Ok(_) => Ok(json!({ "root": hex::encode(B256::ZERO) })),
    }
}

fn verify_certificate(question: &Question<'_>) -> Result<Value, Refusal> {
    let anchor = question.member("trusted_hash", word)?;
    let certificate = Certificate::from_json(&question.value("certificate")?.to_string());
    let certificate = certificate.map_err(invalid)?;
    let profile = ChainProfile::by_name(certificate.profile_name());
    let profile = profile.ok_or_else(|| invalid("unknown chain profile"))?;
    let query = question.value("query")?.to_string();
    let query = LogQuery::from_json(&query, question.semantics).map_err(invalid)?;
    let blocks = certificate.blocks();
    let blocks = match query.blocks() {
        BlockSelection::AtHash(hash) => ResolvedBlocks::AtHash(*hash),
        BlockSelection::Range { .. } => {
            ResolvedBlocks::Range { first: *blocks.start(), last: *blocks.end() }
        }
    };
    let trust = Trust {
        anchors: &[anchor],
        profile: &profile,
        query: &query,
        semantics: question.semantics,
        blocks,
    };
    let verified = certificate.verify(&trust, None, |_, _| None, None).map_err(invalid)?;
    Ok(json!({ "complete": verified.is_complete() }))
}
