//! Answers to the areas of Ethereum.

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve::eth::audit::AuditQuestion;
use chainsieve::eth::bloom::{
    self, BloomView, accrue, accrue_bloom, accrue_log, accrue_logs, accrue_value, positions,
    positions_of_each_on,
};
use chainsieve::eth::certificate::{Certificate, VerifiedCertificate};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderBuf, HeaderError, HeaderView, bloom_at_fixed_place};
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, CompiledQuery, LogQuery, QueryLimits, ResolvedBlocks, Semantics,
};
use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};
use chainsieve::hash::{keccak256, keccak256_each};
use chainsieve::simd::Backend;
use serde_json::{Value, json};

use crate::{Handler, Question, Refusal, invalid, same, unhex};

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
    let decoded = HeaderView::decode(&rlp);
    let at_fixed_place = bloom_at_fixed_place(&rlp).map(BloomView::bytes);
    match &decoded {
        Ok(header) => {
            let bloom = header.logs_bloom().bytes();
            let expected = bloom.filter(|_| (256..1 << 16).contains(&rlp.len()));
            same("bloom_at_fixed_place", &at_fixed_place, &expected.map(Some))?;
        }
        // The prefixes up to the filter are part of the fixed place.
        Err(HeaderError::Length { .. } | HeaderError::UnexpectedList { .. }) => {
            same("bloom_at_fixed_place", &at_fixed_place, &None)?;
        }
        Err(_) => {}
    }
    let header = decoded.map_err(invalid)?;
    let bloom = header.logs_bloom().bytes();
    // The library reads a header whose filter has another length, because forks may shorten it. The
    // area asks for the 256 bytes that every fork so far has.
    if bloom.is_none() {
        return Err(invalid("the filter has not 256 bytes"));
    }
    // It also reads a header in whose later fields another chain has something else. The area asks
    // for those of mainnet.
    let later = fields(header).into_iter().skip(13).filter(|(_, field)| field.is_some()).count();
    if later + 13 != header.num_fields() {
        return Err(invalid("a field that mainnet does not have"));
    }
    // A batch of one is no batch: parts of the header, of other lengths, are hashed beside it.
    let parts: Vec<_> = (0..16).map(|part| &rlp[..rlp.len() - rlp.len() * part / 16]).collect();
    let each: Vec<_> = parts.iter().map(|part| keccak256(part)).collect();
    same("keccak256", &each[0].into(), &header.hash())?;
    for backend in Backend::available() {
        same(backend.name(), &keccak256_each(backend, &parts), &each)?;
    }
    Ok(json!({
        "hash": hex::encode(header.hash()),
        "parent_hash": hex::encode(header.parent_hash()),
        "number": header.number(),
        "receipts_root": hex::encode(header.receipts_root()),
        "logs_bloom": bloom.map(hex::encode),
    }))
}

fn header_json(question: &Question<'_>) -> Result<Value, Refusal> {
    let json = question.value("header_json")?;
    let header = HeaderBuf::from_json(&json.to_string()).map_err(invalid)?;
    let again = HeaderBuf::from_rlp(header.rlp().to_vec()).map_err(invalid)?;
    same("from_rlp", &again, &header)?;
    for (name, field) in fields(header.view()) {
        let given = json.get(name).and_then(Value::as_str).map(str::to_ascii_lowercase);
        same(name, &field, &given)?;
    }
    Ok(json!({ "hash": hex::encode(header.hash()) }))
}

/// Returns the fields of a header as nodes write them, in lower case.
fn fields(header: HeaderView<'_>) -> [(&'static str, Option<String>); 23] {
    let quantity = |number: u64| format!("{number:#x}");
    let bytes = |bytes: &[u8]| format!("0x{}", hex::encode(bytes));
    let hash = |hash: B256| bytes(hash.as_slice());
    [
        ("parentHash", Some(hash(header.parent_hash()))),
        ("sha3Uncles", Some(hash(header.ommers_hash()))),
        ("miner", Some(bytes(header.beneficiary().as_slice()))),
        ("stateRoot", Some(hash(header.state_root()))),
        ("transactionsRoot", Some(hash(header.transactions_root()))),
        ("receiptsRoot", Some(hash(header.receipts_root()))),
        ("logsBloom", header.logs_bloom().bytes().map(|bloom| bytes(bloom))),
        ("difficulty", Some(format!("{:#x}", header.difficulty()))),
        ("number", Some(quantity(header.number()))),
        ("gasLimit", Some(quantity(header.gas_limit()))),
        ("gasUsed", Some(quantity(header.gas_used()))),
        ("timestamp", Some(quantity(header.timestamp()))),
        ("extraData", Some(bytes(header.extra_data()))),
        ("mixHash", header.mix_hash().map(hash)),
        ("nonce", header.nonce().map(|nonce| bytes(&nonce))),
        ("baseFeePerGas", header.base_fee_per_gas().map(|fee| format!("{fee:#x}"))),
        ("withdrawalsRoot", header.withdrawals_root().map(hash)),
        ("blobGasUsed", header.blob_gas_used().map(quantity)),
        ("excessBlobGas", header.excess_blob_gas().map(quantity)),
        ("parentBeaconBlockRoot", header.parent_beacon_block_root().map(hash)),
        ("requestsHash", header.requests_hash().map(hash)),
        ("blockAccessListHash", header.block_access_list_hash().map(hash)),
        ("slotNumber", header.slot_number().map(quantity)),
    ]
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
    let logs = logs(question)?;
    accrue_logs(&mut bloom, &logs);
    let topics = logs.iter().flat_map(|log| log.topics()).map(B256::as_slice);
    let values: Vec<_> = topics.chain(logs.iter().map(|log| log.address.as_slice())).collect();
    for backend in Backend::available() {
        let mut other = [0; 256];
        for value in positions_of_each_on(backend, &values) {
            let mut one = [0; 256];
            accrue(&mut one, &value);
            accrue_bloom(&mut other, &one);
        }
        same(backend.name(), &other, &bloom)?;
    }
    let ones: u32 = bloom.iter().map(|byte| byte.count_ones()).sum();
    same("count_ones", &bloom::count_ones(&bloom), &ones)?;
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
    let view = BloomView::from_wire(&bloom);
    // Such a filter rules nothing out; the library calls its answer "no information".
    let Some(bloom) = view.bytes() else {
        return Err(invalid("the filter has not 256 bytes"));
    };
    let value = positions(&item);
    let may_contain = view.answer(&value).is_candidate();
    for backend in Backend::available() {
        same(
            backend.name(),
            &positions_of_each_on(backend, &[item.as_slice(); 9]),
            &vec![value; 9],
        )?;
    }
    // Not every node sets the filter of a block without logs, so zeros rule nothing out.
    if view.informative().is_some() {
        same("contains", &bloom::contains(bloom, &value), &may_contain)?;
        let mut one = [0; 256];
        accrue_value(&mut one, &item);
        same("covers", &bloom::covers(bloom, &one), &may_contain)?;
    }
    let query = CompiledQuery::new(vec![vec![value]]);
    same("CompiledQuery", &query.answer(view).is_candidate(), &may_contain)?;
    Ok(json!({ "may_contain": may_contain }))
}

fn query(question: &Question<'_>) -> Result<LogQuery, Refusal> {
    let filter = question.value("filter")?.to_string();
    let query = LogQuery::from_json(&filter, question.semantics).map_err(invalid)?;
    let again = LogQuery::from_json(&query.to_json(), question.semantics);
    same("to_json", &again.ok().as_ref(), &Some(&query))?;
    // geth refuses a query over its limits. alloy reads it: the limits of its nodes are their own.
    if question.semantics == Semantics::Geth {
        let one_block = ResolvedBlocks::Range { first: 0, last: 0 };
        QueryLimits::geth().check(&query, &one_block).map_err(invalid)?;
    }
    Ok(query)
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
    let compiled = query.compile();
    for &index in &matches {
        let mut bloom = [0; 256];
        accrue_logs(&mut bloom, &logs[index..=index]);
        same("CompiledQuery", &compiled.answer(&bloom).is_candidate(), &true)?;
    }
    // A filter rules a query out if it has no value of one of the query's sets.
    let sets = query.topics().iter().map(|set| set.values().iter().map(B256::as_slice).collect());
    let addresses = query.address_set().iter().map(|address| address.as_slice()).collect();
    let sets: Vec<Vec<&[u8]>> = core::iter::once(addresses).chain(sets).collect();
    for log in &logs {
        let mut bloom = [0; 256];
        accrue_log(&mut bloom, log);
        let has_one = |set: &Vec<&[u8]>| {
            set.is_empty() || set.iter().any(|value| bloom::contains(&bloom, &positions(value)))
        };
        let is_candidate = sets.iter().all(has_one);
        same("CompiledQuery", &compiled.answer(&bloom).is_candidate(), &is_candidate)?;
    }
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
    encode_block(&json, &encodings[0])?;
    let again = BlockReceipts::from_encodings(&encodings).map_err(invalid)?;
    same("from_encodings", &again.encodings().as_ref(), &Some(&encodings))?;
    same("from_encodings", &again.iter().eq(receipts.iter()), &true)?;
    // A receipt without an outcome has no encoding, so its block has none either.
    let mut unknown = json.clone();
    unknown["transactionIndex"] = "0x1".into();
    for outcome in ["root", "status"] {
        unknown.as_object_mut().and_then(|members| members.remove(outcome));
    }
    let unknown = BlockReceipts::from_json(&json!([json, unknown]).to_string()).map_err(invalid)?;
    same("a receipt without an outcome", &unknown.encodings(), &None)?;
    // No receipt but that of a deposit has a fifth field.
    let mut longer = encodings[0].to_vec();
    let start = usize::from(longer[0] < 0xc0);
    if longer[start] == 0xf9 && receipt.number::<u8>("type")? != 0x7e {
        longer[start + 2] = longer[start + 2].wrapping_add(1);
        longer[start + 1] += u8::from(longer[start + 2] == 0);
        longer.push(0x80);
        let is_refused = BlockReceipts::from_encodings(&[Bytes::from(longer)]).is_err();
        same("a fifth field is refused", &is_refused, &true)?;
    }
    // Some nodes write both a status and a root, of which only one is the receipt's.
    if receipt.input.get("post_state").is_some() {
        json["status"] = "0x1".into();
    } else if receipt.number::<u8>("type")? != 0 {
        json["root"] = B256::ZERO.to_string().into();
    }
    let both = BlockReceipts::from_json(&json!([json]).to_string()).map_err(invalid)?;
    same("status and root", &both.encodings().as_ref(), &Some(&encodings))?;
    Ok(json!({ "encoded": encodings.iter().map(hex::encode).collect::<String>() }))
}

/// Encodes a receipt as one of two of a block, which come in any order.
fn encode_block(json: &Value, encoding: &Bytes) -> Result<(), Refusal> {
    let mut other = json.clone();
    other["transactionIndex"] = "0x1".into();
    other["logs"] = json!([]);
    let of_block = |receipts: &[&Value]| {
        let receipts = BlockReceipts::from_json(&json!(receipts).to_string()).map_err(invalid)?;
        receipts.encodings().ok_or_else(|| invalid("neither status nor post-state"))
    };
    let block = of_block(&[&other, json])?;
    same("the first of two receipts", &block[0], encoding)?;
    other["transactionIndex"] = "0x0".into();
    same("a receipt without logs", &block[1], &of_block(&[&other])?[0])?;
    if json["type"] == "0x0" {
        let mut legacy = json.clone();
        legacy.as_object_mut().and_then(|members| members.remove("type"));
        same("a receipt without a type", &of_block(&[&legacy])?[0], encoding)?;
    }
    Ok(())
}

fn receipts_root(question: &Question<'_>) -> Result<Value, Refusal> {
    let encodings: Vec<Bytes> =
        question.list("receipts", |encoding| unhex(encoding).map(Bytes::from))?;
    let receipts = BlockReceipts::from_encodings(&encodings).map_err(invalid)?.after_byzantium();
    // The library compares roots, and names the computed one if it is another.
    let root = match receipts.verify(B256::ZERO, BloomView::from_wire(&[])) {
        Err(ReceiptsError::RootMismatch { computed, .. }) => computed,
        Err(error) => return Err(invalid(error)),
        Ok(_) => B256::ZERO,
    };
    let verified = receipts.verify(root, BloomView::from_wire(&[])).map_err(invalid)?;
    same("unsound_receipt", &verified.unsound_receipt(), &None)?;
    // An index after the last receipt has no proof.
    let indices: Vec<_> = (0..=receipts.len() as u64).collect();
    let proofs = verified.proofs(&indices);
    same("proofs", &proofs.len(), &receipts.len())?;
    for (proof, receipt) in proofs.iter().zip(receipts.iter()) {
        same("ReceiptProof", &proof.verify(root).ok().as_ref(), &Some(receipt))?;
    }
    Ok(json!({ "root": hex::encode(root) }))
}

fn verify_certificate(question: &Question<'_>) -> Result<Value, Refusal> {
    let anchor = question.member("trusted_hash", word)?;
    let certificate = Certificate::from_json(&question.value("certificate")?.to_string());
    let certificate = certificate.map_err(invalid)?;
    let again = Certificate::from_json(&certificate.to_json());
    same("to_json", &again.ok().as_ref(), &Some(&certificate))?;
    let profile = ChainProfile::by_name(certificate.profile_name());
    let profile = profile.ok_or_else(|| invalid("unknown chain profile"))?;
    let query = question.value("query")?.to_string();
    let query = LogQuery::from_json(&query, question.semantics).map_err(invalid)?;
    let (first, last) = certificate.blocks().into_inner();
    let number = |block: &Option<BlockTag>, unknown| match block {
        Some(BlockTag::Number(number)) => *number,
        _ => unknown,
    };
    let blocks = match query.blocks() {
        BlockSelection::AtHash(hash) => ResolvedBlocks::AtHash(*hash),
        BlockSelection::Range { from, to } => {
            ResolvedBlocks::Range { first: number(from, first), last: number(to, last) }
        }
    };
    let chain = certificate.chain().map_err(invalid)?;
    let trust = AuditQuestion {
        chain: &chain,
        // Other trusted hashes, in no order.
        anchors: &[B256::repeat_byte(0xff), B256::repeat_byte(0xfe), anchor],
        profile: &profile,
        query: &query,
        semantics: question.semantics,
        blocks,
    };
    let mut asked = 0;
    let verified = certificate.verify(
        trust,
        |_, _| {
            asked += 1;
            None
        },
        None,
    );
    let verified = verified.map_err(invalid)?;
    let complete = verified.is_complete();
    verify_by_own_data(question, &certificate, trust, &verified)?;
    let receipts = receipts_of(question)?;
    let is_needed = receipts.len() as u64 + asked <= verified.report.counts.examined;
    same("no receipts are asked for that are there", &is_needed, &true)?;
    Ok(json!({ "complete": complete }))
}

/// Returns the receipts of a certificate, each block's by its hash.
fn receipts_of(question: &Question<'_>) -> Result<Vec<(B256, BlockReceipts)>, Refusal> {
    let receipts = question.value("certificate")?.get("receipts").and_then(Value::as_array);
    let of_block = |block: &Value| {
        let encodings = block["receipts"].as_array()?.iter();
        let encodings = encodings.map(|encoding| encoding.as_str()?.parse::<Bytes>().ok());
        let receipts = BlockReceipts::from_encodings(&encodings.collect::<Option<Vec<_>>>()?);
        Some((block["blockHash"].as_str()?.parse().ok()?, receipts.ok()?))
    };
    let receipts = receipts.into_iter().flatten().map(of_block).collect::<Option<_>>();
    receipts.ok_or_else(|| invalid("receipts"))
}

/// Verifies a certificate as before, with parts of it given by the verifier.
fn verify_by_own_data(
    question: &Question<'_>,
    certificate: &Certificate,
    trust: AuditQuestion<'_>,
    verified: &VerifiedCertificate,
) -> Result<(), Refusal> {
    let complete = Some(verified.is_complete());
    let is_complete = |verified: Result<VerifiedCertificate, _>| {
        verified.ok().as_ref().map(VerifiedCertificate::is_complete)
    };
    if let Some(logs) = &verified.logs {
        same("removed", &logs.iter().any(|log| log.removed), &false)?;
        let reversed: Vec<_> = logs.iter().rev().cloned().collect();
        for logs in [logs, &reversed] {
            let other = certificate.verify(trust, |_, _| None, Some(logs));
            same("with given logs", &is_complete(other), &complete)?;
        }
    }
    let receipts = receipts_of(question)?;
    let given = |_, hash| receipts.iter().find(|(of, _)| *of == hash).map(|(_, own)| own.clone());
    let mut bare = question.value("certificate")?.clone();
    if let Some(members) = bare.as_object_mut() {
        members.remove("receipts");
    }
    let bare = Certificate::from_json(&bare.to_string()).map_err(invalid)?;
    same("with given receipts", &is_complete(bare.verify(trust, given, None)), &complete)
}
