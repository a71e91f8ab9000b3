//! The methods whose answers are proven.

use std::sync::Arc;
use std::time::Instant;

use chainsieve::alloy_primitives::{B256, U64};
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::block_parts;
use super::filters::Changes;
use super::journal::BlockHeader;
use super::logs::SEMANTICS;
use super::refusal::Refusal;
use super::{Proven, json, subscriptions};

/// The answer to a call, as JSON.
pub(super) type Answer = Result<Box<RawValue>, Refusal>;
pub(super) type Method = fn(&Proven, &[&RawValue]) -> Answer;

const METHODS: [(&str, Method); 14] = [
    ("eth_blockNumber", block_number),
    ("eth_chainId", chain_id),
    ("eth_getBlockByHash", get_block_by_hash),
    ("eth_getBlockByNumber", get_block_by_number),
    ("eth_getBlockReceipts", get_block_receipts),
    ("eth_getFilterChanges", get_filter_changes),
    ("eth_getFilterLogs", get_filter_logs),
    ("eth_getLogs", get_logs),
    ("eth_getTransactionReceipt", get_transaction_receipt),
    ("eth_newBlockFilter", new_block_filter),
    ("eth_newFilter", new_filter),
    ("eth_uninstallFilter", uninstall_filter),
    ("net_version", net_version),
    ("web3_clientVersion", client_version),
];

/// Returns every method but subscriptions.
pub(super) fn all() -> impl Iterator<Item = (&'static str, Method)> {
    METHODS.into_iter().chain(block_parts::METHODS)
}

/// Returns the methods as jsonrpsee takes them.
pub(super) fn module(proven: Arc<Proven>) -> Result<RpcModule<Proven>, RegisterMethodError> {
    let mut module = RpcModule::from_arc(proven);
    for (name, method) in all() {
        module.register_async_method(name, move |params, proven, _| {
            call(name, method, params, proven)
        })?;
    }
    subscriptions::register(&mut module)?;
    Ok(module)
}

/// Calls a method on a thread that may wait, and counts the outcome.
async fn call(
    name: &'static str,
    method: Method,
    params: Params<'static>,
    proven: Arc<Proven>,
) -> Result<Box<RawValue>, ErrorObjectOwned> {
    let began = Instant::now();
    let permit = proven.calls.clone().try_acquire_owned();
    let counted = Arc::clone(&proven);
    let answer = if let Ok(permit) = permit {
        let work = move || {
            let answer = list(&params).and_then(|params| method(&proven, &params));
            drop(permit);
            answer
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Internal))
    } else {
        let limit = counted.limits.max_calls;
        Err(Refusal::Limit { what: "calls at once", found: limit + 1, limit })
    };
    let outcome = answer.as_ref().map_or_else(Refusal::outcome, |_| "ok");
    counted.metrics.answered(name, outcome, began.elapsed());
    answer.map_err(ErrorObjectOwned::from)
}

/// Returns the list of parameters.
pub(super) fn list<'a>(params: &'a Params<'_>) -> Result<Vec<&'a RawValue>, Refusal> {
    params.as_str().map_or(Ok(Vec::new()), list_of)
}

/// Returns the list of parameters in a text.
pub(super) fn list_of(text: &str) -> Result<Vec<&RawValue>, Refusal> {
    serde_json::from_str(text)
        .map_err(|_| Refusal::Params("the parameters are not a list".to_owned()))
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

/// Room for what surrounds a result in an answer, but for the id that a client chooses.
const ENVELOPE: u64 = 64;

impl Proven {
    /// Returns a result as JSON, if it is not too large for an answer.
    pub(super) fn written(&self, value: &(impl serde::Serialize + ?Sized)) -> Answer {
        let json = to_raw_value(value).map_err(|error| Refusal::Params(error.to_string()))?;
        let (found, limit) = (json.get().len() as u64 + ENVELOPE, self.limits.max_answer.into());
        if found > limit {
            return Err(Refusal::Limit { what: "bytes of the answer", found, limit });
        }
        Ok(json)
    }
}

fn get_logs(proven: &Proven, params: &[&RawValue]) -> Answer {
    proven.written(&json::logs(&proven.logs(&query(params)?)?))
}

fn new_filter(proven: &Proven, params: &[&RawValue]) -> Answer {
    let id = proven.new_filter(query(params)?)?;
    proven.count_filters();
    proven.written(&id)
}

fn new_block_filter(proven: &Proven, _: &[&RawValue]) -> Answer {
    let id = proven.new_block_filter()?;
    proven.count_filters();
    proven.written(&id)
}

fn uninstall_filter(proven: &Proven, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    let was_there = proven.uninstall_filter(&id);
    proven.count_filters();
    proven.written(&was_there)
}

fn get_filter_changes(proven: &Proven, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    proven.filter_changes(&id, |changes| match changes {
        Changes::Logs(logs) => proven.written(&json::logs(logs)),
        Changes::Blocks(hashes) => proven.written(hashes),
    })
}

fn get_filter_logs(proven: &Proven, params: &[&RawValue]) -> Answer {
    let id: String = param(params, 0)?;
    proven.written(&json::logs(&proven.filter_logs(&id)?))
}

fn block_number(proven: &Proven, _: &[&RawValue]) -> Answer {
    proven.written(&U64::from(proven.heads()?.latest))
}

fn chain_id(proven: &Proven, _: &[&RawValue]) -> Answer {
    proven.written(&U64::from(proven.chain_id))
}

fn net_version(proven: &Proven, _: &[&RawValue]) -> Answer {
    proven.written(&proven.chain_id.to_string())
}

/// Returns the block that the first parameter names by a tag or number.
pub(super) fn block_by_number(
    proven: &Proven,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    proven.block_at(tag(params, 0)?)
}

/// Returns the block that the first parameter names by its hash.
pub(super) fn block_by_hash(
    proven: &Proven,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    proven.block_of(param(params, 0)?)
}

fn get_block_by_number(proven: &Proven, params: &[&RawValue]) -> Answer {
    block(proven, block_by_number(proven, params)?.as_deref(), params)
}

fn get_block_by_hash(proven: &Proven, params: &[&RawValue]) -> Answer {
    block(proven, block_by_hash(proven, params)?.as_deref(), params)
}

fn block(proven: &Proven, block: Option<&BlockHeader>, params: &[&RawValue]) -> Answer {
    let is_full = param::<Option<bool>>(params, 1)?.unwrap_or_default();
    match block {
        Some(block) => proven.written(&proven.block_json(block, is_full)?),
        None => proven.written(&Value::Null),
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
    proven: &Proven,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    let by_tag = |text: &str| {
        let tag = text.parse();
        let tag = tag.map_err(|error| Refusal::Params(format!("invalid argument 0: {error}")))?;
        proven.block_at(tag)
    };
    match param(params, 0)? {
        BlockId::Hash(hash) | BlockId::Object { block_hash: Some(hash), block_number: None } => {
            proven.block_of(hash)
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

fn get_block_receipts(proven: &Proven, params: &[&RawValue]) -> Answer {
    match block_by_id(proven, params)? {
        Some(block) => proven.written(&proven.receipts_json(&block)?),
        None => proven.written(&Value::Null),
    }
}

fn get_transaction_receipt(proven: &Proven, params: &[&RawValue]) -> Answer {
    let hash: B256 = param(params, 0)?;
    let place = proven.place_of(hash)?;
    let receipt = place.map(|(block, index)| proven.receipt_json(&block, index));
    proven.written(&receipt.transpose()?)
}

fn client_version(proven: &Proven, _: &[&RawValue]) -> Answer {
    proven.written(concat!("chainsieve/", env!("CARGO_PKG_VERSION")))
}
