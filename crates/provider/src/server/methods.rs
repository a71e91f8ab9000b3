//! The methods whose answers are proven: about logs and filters, blocks, and parts of blocks.

use std::sync::Arc;

use alloy_consensus::TxEnvelope;
use alloy_eips::eip2718::Encodable2718 as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{B256, Bytes, U64, keccak256};
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::{Answer, Call, Method};
use super::chain::BlockHeader;
use super::error::Refusal;
use super::filters::Changes;
use super::logs::SEMANTICS;
use super::{Proven, json};
use crate::nodes::ask::{Unaccepted, ask_if_any};
use crate::nodes::{Node, RpcError, bounded};
use crate::proven::Flights;

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

/// Returns a method that answers at once, so that its calls do not wait for other calls.
pub(super) fn find_instant(name: &str) -> Option<(&'static str, Method)> {
    INSTANT.into_iter().find(|(own, _)| *own == name)
}

/// Returns a proven method that may wait for other calls. The methods of subscriptions are not
/// among them.
pub(super) fn find(name: &str) -> Option<(&'static str, Method)> {
    METHODS.into_iter().chain(PARTS).find(|(own, _)| *own == name)
}

/// Maximum number of parameters, which is more than any method has.
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

/// Writes the id of a filter. If the id cannot be sent to the client, the filter is removed.
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
    call.block_at(tag(params, 0)?, &call.stop)
}

/// Returns the block that the first parameter names by its hash.
pub(super) fn block_by_hash(
    call: &Call,
    params: &[&RawValue],
) -> Result<Option<Arc<BlockHeader>>, Refusal> {
    call.block_of(param(params, 0)?, false, &call.stop)
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

/// A block in the form that `eth_getBlockReceipts` accepts: a tag, a number, a hash, or an object
/// with a number or a hash (EIP-1898).
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
        call.block_at(tag, &call.stop)
    };
    match param(params, 0)? {
        BlockId::Hash(hash) | BlockId::Object { block_hash: Some(hash), block_number: None } => {
            call.block_of(hash, false, &call.stop)
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

/// Finds the block that the first parameter names.
type Find = fn(&Call, &[&RawValue]) -> Result<Option<Arc<BlockHeader>>, Refusal>;

fn head(_: &Proven, block: &BlockHeader) -> Result<Value, Refusal> {
    json::head(block)
}

/// Methods about headers and about parts of blocks. A part is bound by the hash of the block.
const PARTS: [(&str, Method); 18] = [
    ("debug_getRawBlock", |call, params| call.part(block_by_id, params, Proven::raw_block)),
    ("debug_getRawHeader", |call, params| {
        let rlp = |_: &Proven, block: &BlockHeader| Ok(Bytes::copy_from_slice(block.header.rlp()));
        call.part(block_by_id, params, rlp)
    }),
    ("debug_getRawReceipts", |call, params| call.part(block_by_id, params, Proven::raw_receipts)),
    ("debug_getRawTransaction", raw_transaction_by_hash),
    ("eth_getBlockTransactionCountByHash", |call, params| {
        call.part(block_by_hash, params, Proven::num_transactions)
    }),
    ("eth_getBlockTransactionCountByNumber", |call, params| {
        call.part(block_by_number, params, Proven::num_transactions)
    }),
    ("eth_getHeaderByHash", |call, params| call.part(block_by_hash, params, head)),
    ("eth_getHeaderByNumber", |call, params| call.part(block_by_number, params, head)),
    ("eth_getRawTransactionByBlockHashAndIndex", |call, params| {
        call.element(block_by_hash, params, Proven::raw_transaction)
    }),
    ("eth_getRawTransactionByBlockNumberAndIndex", |call, params| {
        call.element(block_by_number, params, Proven::raw_transaction)
    }),
    ("eth_getRawTransactionByHash", raw_transaction_by_hash),
    ("eth_getTransactionByBlockHashAndIndex", |call, params| {
        call.element(block_by_hash, params, Proven::transaction_json)
    }),
    ("eth_getTransactionByBlockNumberAndIndex", |call, params| {
        call.element(block_by_number, params, Proven::transaction_json)
    }),
    ("eth_getTransactionByHash", |call, params| {
        let found = call.find_transaction(param(params, 0)?)?;
        let json = found.map(|found| match &found.block {
            Some((block, index)) => call.transaction_of(block, *index, &found.encoding),
            None => json::transaction(None, &found.encoding, None),
        });
        call.written(&json.transpose()?)
    }),
    ("eth_getUncleByBlockHashAndIndex", |call, params| {
        call.element(block_by_hash, params, Proven::ommer_json)
    }),
    ("eth_getUncleByBlockNumberAndIndex", |call, params| {
        call.element(block_by_number, params, Proven::ommer_json)
    }),
    ("eth_getUncleCountByBlockHash", |call, params| {
        call.part(block_by_hash, params, Proven::num_ommers)
    }),
    ("eth_getUncleCountByBlockNumber", |call, params| {
        call.part(block_by_number, params, Proven::num_ommers)
    }),
];

/// Name of the method that returns a transaction and its block.
const BY_HASH: &str = "eth_getTransactionByHash";

/// A block of the verified chain, and the index of a transaction there.
pub(super) type InBlock = (Arc<BlockHeader>, usize);

/// A transaction that is proven by its hash.
#[derive(Debug, Clone)]
struct FoundTransaction {
    encoding: Bytes,
    /// `None` if the transaction is pending, as a node claims.
    block: Option<InBlock>,
}

/// Running searches for transactions, by the hash of the transaction.
#[derive(Debug)]
pub(super) struct Lookups {
    transactions: Flights<B256, Result<Option<FoundTransaction>, Refusal>>,
    places: Flights<B256, Result<Option<InBlock>, Refusal>>,
}

impl Lookups {
    pub(super) fn new() -> Self {
        Self { transactions: Flights::new(), places: Flights::new() }
    }
}

fn raw_transaction_by_hash(call: &Call, params: &[&RawValue]) -> Answer {
    let found = call.find_transaction(param(params, 0)?)?;
    call.written(&found.map(|found| found.encoding))
}

impl Call {
    /// Writes a part of the block that `find` finds; `null` if there is no such block.
    fn part<T: Serialize>(
        &self,
        find: Find,
        params: &[&RawValue],
        part: impl FnOnce(&Proven, &BlockHeader) -> Result<T, Refusal>,
    ) -> Answer {
        let block = find(self, params)?;
        self.written(&block.map(|block| part(self, &block)).transpose()?)
    }

    /// Writes the element of a block whose index is the second parameter; `null` if there is no such
    /// block or no such element.
    fn element<T: Serialize>(
        &self,
        find: Find,
        params: &[&RawValue],
        element: impl FnOnce(&Proven, &BlockHeader, usize) -> Result<Option<T>, Refusal>,
    ) -> Answer {
        let index: U64 = param(params, 1)?;
        let index = usize::try_from(index.to::<u64>()).unwrap_or(usize::MAX);
        self.part(find, params, |proven, block| element(proven, block, index))
    }
}

impl Proven {
    fn num_transactions(&self, block: &BlockHeader) -> Result<U64, Refusal> {
        Ok(U64::from(self.blocks.hashes(&ChainBlock::from(block))?.len()))
    }

    fn num_ommers(&self, block: &BlockHeader) -> Result<U64, Refusal> {
        Ok(U64::from(self.blocks.ommers(block)?.len()))
    }

    fn raw_transaction(&self, block: &BlockHeader, index: usize) -> Result<Option<Bytes>, Refusal> {
        let transactions = self.blocks.transactions(&ChainBlock::from(block))?;
        Ok(transactions.encodings().get(index).cloned())
    }

    fn transaction_json(
        &self,
        block: &BlockHeader,
        index: usize,
    ) -> Result<Option<Value>, Refusal> {
        let encoding = self.raw_transaction(block, index)?;
        encoding.map(|encoding| self.transaction_of(block, index, &encoding)).transpose()
    }

    fn raw_receipts(&self, block: &BlockHeader) -> Result<Vec<Bytes>, Refusal> {
        let receipts = self.blocks.receipts(&ChainBlock::from(block))?;
        // Without an outcome, their root could not be computed.
        receipts.receipts().encodings().ok_or(Refusal::Internal)
    }

    fn ommer_json(&self, block: &BlockHeader, index: usize) -> Result<Option<Value>, Refusal> {
        let ommers = self.blocks.ommers(block)?;
        ommers.get(index).map(json::ommer).transpose()
    }
}

impl Call {
    /// Returns a transaction by its hash: either with the block that proves its place, or as a pending
    /// transaction, which is proven by its hash alone.
    fn find_transaction(&self, hash: B256) -> Result<Option<FoundTransaction>, Refusal> {
        if let Some((block, index)) = self.remembered(hash)? {
            return self.found_in(block, index).map(Some);
        }
        self.lookups.transactions.run(&hash, || {
            self.first_named(|node| {
                let Some(answer) = node.call::<Option<Value>>(BY_HASH, &json!([hash]))? else {
                    return Ok(Ok(None));
                };
                let wrong = |why: &str| Unaccepted::Answer(why.to_owned());
                // The words of the parser would quote the answer.
                let place = Place::deserialize(&answer);
                let place = place.map_err(|_| wrong("the answer is not a transaction"))?;
                let Some(block_hash) = place.block_hash else {
                    let encoding = encoded(answer, hash);
                    let encoding =
                        encoding.ok_or_else(|| wrong("the answer is another transaction"))?;
                    return Ok(Ok(Some(FoundTransaction { encoding, block: None })));
                };
                Ok(self.index_in(block_hash, hash).and_then(|found| {
                    found.map(|(block, index)| self.found_in(block, index)).transpose()
                }))
            })
        })
    }

    fn found_in(&self, block: Arc<BlockHeader>, index: usize) -> Result<FoundTransaction, Refusal> {
        let encoding = self.raw_transaction(&block, index)?.ok_or(Refusal::Internal)?;
        Ok(FoundTransaction { encoding, block: Some((block, index)) })
    }

    /// Returns the block of the verified chain that contains a transaction, and the index of the
    /// transaction in the block. Upstreams claim the place; only the block proves it.
    pub(super) fn place_of(&self, hash: B256) -> Result<Option<InBlock>, Refusal> {
        if let Some(found) = self.remembered(hash)? {
            return Ok(Some(found));
        }
        self.lookups.places.run(&hash, || {
            self.first_named(|node| {
                let params = json!([hash]);
                let place = match node.call::<Option<Place>>("eth_getTransactionReceipt", &params) {
                    // A receipt may have any number of logs.
                    Err(error) if matches!(error.origin(), RpcError::TooLarge { .. }) => {
                        node.call(BY_HASH, &params)?
                    }
                    place => place?,
                };
                let block_hash = place.and_then(|place| place.block_hash);
                Ok(block_hash.map_or(Ok(None), |block_hash| self.index_in(block_hash, hash)))
            })
        })
    }

    /// Returns the place where a transaction was found before, if its block is still on the chain.
    fn remembered(&self, transaction: B256) -> Result<Option<InBlock>, Refusal> {
        match self.blocks.places.get(transaction) {
            Some(block_hash) => self.index_in(block_hash, transaction),
            None => Ok(None),
        }
    }

    fn index_in(&self, block_hash: B256, transaction: B256) -> Result<Option<InBlock>, Refusal> {
        // Others may wait for the same, so that it does not end with this call.
        let stop = &self.proven.stop;
        let Some(block) = self.block_of(block_hash, true, stop)? else { return Ok(None) };
        let hashes = self.blocks.hashes(&ChainBlock::from(&*block))?;
        let index = hashes.iter().position(|own| *own == transaction);
        if index.is_some() {
            self.blocks.places.set(transaction, block_hash);
        }
        Ok(index.map(|index| (block, index)))
    }

    /// Asks the upstreams in turn until one of them names a block that proves a result. `None` is only the
    /// claim of a node: nothing proves that a transaction is in no block. If a node names a block of the
    /// chain whose contents no node has, the result is an error, not `None`.
    fn first_named<T>(
        &self,
        mut name: impl FnMut(&Node) -> Result<Result<Option<T>, Refusal>, Unaccepted>,
    ) -> Result<Option<T>, Refusal> {
        self.heads()?;
        let mut refused = None;
        let asked = ask_if_any(self.blocks.nodes(), |node| {
            name(node)?.map_err(|refusal| {
                let why = refusal.outcome().to_owned();
                if !matches!(refused, Some(Refusal::NotProven { .. })) {
                    refused = Some(refusal);
                }
                Unaccepted::Answer(why)
            })
        });
        let unanswered = match asked {
            Ok(found) => return Ok(Some(found)),
            Err(unanswered) => unanswered,
        };
        let has_none = unanswered.has_none();
        match refused {
            Some(refusal @ Refusal::NotProven { .. }) => Err(refusal),
            _ if has_none => Ok(None),
            Some(refusal) => Err(refusal),
            None => Err(Refusal::Upstream(unanswered.lines("null").swap_remove(0))),
        }
    }
}

/// The place of a transaction, as a node claims.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    /// `None` if the transaction is pending.
    #[serde(default)]
    block_hash: Option<B256>,
}

/// Returns the encoding of a transaction in JSON, if it has this hash.
fn encoded(json: Value, hash: B256) -> Option<Bytes> {
    let transaction: Transaction<TxEnvelope> = serde_json::from_value(json).ok()?;
    // The hash that the JSON states is only a claim.
    let encoding = transaction.inner.into_inner().encoded_2718();
    (keccak256(&encoding) == hash).then(|| encoding.into())
}
