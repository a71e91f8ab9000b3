//! The methods whose answers are proven.

use std::sync::Arc;

use chainsieve::alloy_primitives::{B256, U64};
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::block_parts;
use super::call::{Answer, Call, Method};
use super::filters::Changes;
use super::journal::BlockHeader;
use super::json;
use super::logs::SEMANTICS;
use super::refusal::Refusal;
use crate::node::bounded;

/// Methods that ask no node, read nothing from disk and search nothing.
const INSTANT: [(&str, Method); 7] = [
    ("eth_blockNumber", block_number),
    ("eth_chainId", chain_id),
    ("eth_newBlockFilter", new_block_filter),
    ("eth_newFilter", new_filter),
    ("eth_uninstallFilter", uninstall_filter),
    ("net_version", net_version),
    ("web3_clientVersion", client_version),
];

const METHODS: [(&str, Method); 7] = [
    ("eth_getBlockByHash", get_block_by_hash),
    ("eth_getBlockByNumber", get_block_by_number),
    ("eth_getBlockReceipts", get_block_receipts),
    ("eth_getFilterChanges", get_filter_changes),
    ("eth_getFilterLogs", get_filter_logs),
    ("eth_getLogs", get_logs),
    ("eth_getTransactionReceipt", get_transaction_receipt),
];

/// Returns a method whose answer takes no time, so that it waits for no other call.
pub(super) fn find_instant(name: &str) -> Option<(&'static str, Method)> {
    INSTANT.into_iter().find(|(own, _)| *own == name)
}

/// Returns one of the other methods, but for subscriptions.
pub(super) fn find(name: &str) -> Option<(&'static str, Method)> {
    METHODS.into_iter().chain(block_parts::METHODS).find(|(own, _)| *own == name)
}

/// More parameters than any method has.
const MOST_PARAMS: usize = 16;

/// Returns the list of parameters in a text.
pub(super) fn list_of(text: &str) -> Result<Vec<&RawValue>, Refusal> {
    bounded::list(text, MOST_PARAMS).map_err(|_| {
        let why = format!("the parameters are not a list of at most {MOST_PARAMS}");
        Refusal::Params(why)
    })
}

/// Returns the parameter with this index.
pub(super) fn param<'a, T: Deserialize<'a>>(
    params: &[&'a RawValue],
    index: usize,
) -> Result<T, Refusal> {
    let missing = || Refusal::Params(format!("missing value for required argument {index}"));
    let text = params.get(index).ok_or_else(missing)?.get();
    serde_json::from_str(text)
        .map_err(|error| Refusal::Params(format!("invalid argument {index}: {error}")))
}

fn query(params: &[&RawValue]) -> Result<LogQuery, Refusal> {
    let text: &RawValue = param(params, 0)?;
    Ok(LogQuery::from_json(text.get(), SEMANTICS)?)
}

fn tag(params: &[&RawValue], index: usize) -> Result<BlockTag, Refusal> {
    let text: String = param(params, index)?;
    text.parse().map_err(|error| Refusal::Params(format!("invalid argument {index}: {error}")))
}

fn get_logs(call: &Call, params: &[&RawValue]) -> Answer {
    call.written(&json::logs(&call.logs(&query(params)?)?))
}

fn new_filter(call: &Call, params: &[&RawValue]) -> Answer {
    installed(call, &call.new_filter(query(params)?)?)
}

fn new_block_filter(call: &Call, _: &[&RawValue]) -> Answer {
    installed(call, &call.new_block_filter()?)
}

/// Writes the id of a filter, which is of no use if nobody learns it.
fn installed(call: &Call, id: &str) -> Answer {
    call.written(id).inspect_err(|_| {
        call.uninstall_filter(id);
    })
}

fn uninstall_filter(call: &Call, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    let was_there = call.uninstall_filter(&id);
    call.written(&was_there)
}

fn get_filter_changes(call: &Call, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    call.filter_changes(&id, |changes| match changes {
        Changes::Logs(logs) => call.written(&json::logs(logs)),
        Changes::Blocks(hashes) => call.written(hashes),
    })
}

fn get_filter_logs(call: &Call, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    call.written(&json::logs(&call.filter_logs(&id)?))
}

fn block_number(call: &Call, _: &[&RawValue]) -> Answer {
    call.written(&U64::from(call.heads()?.latest))
}

fn chain_id(call: &Call, _: &[&RawValue]) -> Answer {
    call.written(&U64::from(call.chain_id))
}

fn net_version(call: &Call, _: &[&RawValue]) -> Answer {
    call.written(&call.chain_id.to_string())
}

/// Returns the block that the first parameter names by a tag or number.
pub(super) fn block_by_number(
    call: &Call,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    call.block_at(tag(params, 0)?, call.stop())
}

/// Returns the block that the first parameter names by its hash.
pub(super) fn block_by_hash(
    call: &Call,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    call.block_of(param(params, 0)?, false, call.stop())
}

fn get_block_by_number(call: &Call, params: &[&RawValue]) -> Answer {
    block(call, block_by_number(call, params)?.as_deref(), params)
}

fn get_block_by_hash(call: &Call, params: &[&RawValue]) -> Answer {
    block(call, block_by_hash(call, params)?.as_deref(), params)
}

fn block(call: &Call, block: Option<&BlockHeader>, params: &[&RawValue]) -> Answer {
    let is_full = param::<Option<bool>>(params, 1)?.unwrap_or_default();
    match block {
        Some(block) => call.written(&call.block_json(block, is_full)?),
        None => call.written(&Value::Null),
    }
}

/// A block as `eth_getBlockReceipts` takes it: a tag, a number, a hash, or an object with one of the
/// last two (EIP-1898).
#[derive(Deserialize)]
#[serde(untagged)]
enum BlockId {
    Hash(B256),
    Tag(String),
    #[serde(rename_all = "camelCase")]
    Object {
        block_hash: Option<B256>,
        block_number: Option<String>,
    },
}

/// Returns the block that the first parameter names in any way.
pub(super) fn block_by_id(
    call: &Call,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    let by_tag = |text: &str| {
        let tag = text.parse();
        let tag = tag.map_err(|error| Refusal::Params(format!("invalid argument 0: {error}")))?;
        call.block_at(tag, call.stop())
    };
    match param(params, 0)? {
        BlockId::Hash(hash) | BlockId::Object { block_hash: Some(hash), block_number: None } => {
            call.block_of(hash, false, call.stop())
        }
        BlockId::Tag(text) | BlockId::Object { block_hash: None, block_number: Some(text) } => {
            by_tag(&text)
        }
        BlockId::Object { .. } => {
            let why = "invalid argument 0: either blockHash or blockNumber";
            Err(Refusal::Params(why.to_owned()))
        }
    }
}

fn get_block_receipts(call: &Call, params: &[&RawValue]) -> Answer {
    match block_by_id(call, params)? {
        Some(block) => call.receipts_json(&block),
        None => call.written(&Value::Null),
    }
}

fn get_transaction_receipt(call: &Call, params: &[&RawValue]) -> Answer {
    let hash: B256 = param(params, 0)?;
    let place = call.place_of(hash)?;
    let receipt = place.map(|(block, index)| call.receipt_json(&block, index));
    call.written(&receipt.transpose()?)
}

fn client_version(call: &Call, _: &[&RawValue]) -> Answer {
    call.written(concat!("chainsieve/", env!("CARGO_PKG_VERSION")))
}
