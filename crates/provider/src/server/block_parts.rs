//! Methods about headers and about parts of blocks: transactions, ommers, and encodings.

use std::sync::Arc;

use alloy_consensus::TxEnvelope;
use alloy_eips::eip2718::Encodable2718 as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{B256, Bytes, U64, keccak256};
use chainsieve::eth::header::ChainBlock;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Proven;
use super::journal::BlockHeader;
use super::json;
use super::methods::{Answer, Method, block_by_hash, block_by_id, block_by_number, param};
use super::refusal::Refusal;
use crate::node::Node;
use crate::nodes::{Unaccepted, ask_if_any};

/// The methods of this file. Their parts are bound by the hash of the block.
pub(super) const METHODS: [(&str, Method); 18] = [
    ("debug_getRawBlock", |proven, params| {
        proven.part(block_by_id(proven, params)?, |block| proven.raw_block(block))
    }),
    ("debug_getRawHeader", |proven, params| {
        proven.part(block_by_id(proven, params)?, |block| {
            Ok(Bytes::copy_from_slice(block.header.rlp()))
        })
    }),
    ("debug_getRawReceipts", |proven, params| {
        proven.part(block_by_id(proven, params)?, |block| proven.raw_receipts(block))
    }),
    ("debug_getRawTransaction", raw_transaction_by_hash),
    ("eth_getBlockTransactionCountByHash", |proven, params| {
        proven.part(block_by_hash(proven, params)?, |block| proven.num_transactions(block))
    }),
    ("eth_getBlockTransactionCountByNumber", |proven, params| {
        proven.part(block_by_number(proven, params)?, |block| proven.num_transactions(block))
    }),
    ("eth_getHeaderByHash", |proven, params| {
        proven.part(block_by_hash(proven, params)?, json::head)
    }),
    ("eth_getHeaderByNumber", |proven, params| {
        proven.part(block_by_number(proven, params)?, json::head)
    }),
    ("eth_getRawTransactionByBlockHashAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_hash(proven, params)?, |block| proven.raw_transaction(block, index))
    }),
    ("eth_getRawTransactionByBlockNumberAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_number(proven, params)?, |block| proven.raw_transaction(block, index))
    }),
    ("eth_getRawTransactionByHash", raw_transaction_by_hash),
    ("eth_getTransactionByBlockHashAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_hash(proven, params)?, |block| proven.transaction_json(block, index))
    }),
    ("eth_getTransactionByBlockNumberAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_number(proven, params)?, |block| proven.transaction_json(block, index))
    }),
    ("eth_getTransactionByHash", |proven, params| {
        let found = proven.find_transaction(param(params, 0)?)?;
        let json = found.map(|found| {
            let place = found.block.as_ref().map(|(block, index)| (&**block, *index));
            json::transaction(place, &found.encoding)
        });
        proven.written(&json.transpose()?)
    }),
    ("eth_getUncleByBlockHashAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_hash(proven, params)?, |block| proven.ommer_json(block, index))
    }),
    ("eth_getUncleByBlockNumberAndIndex", |proven, params| {
        let index = index(params)?;
        proven.part(block_by_number(proven, params)?, |block| proven.ommer_json(block, index))
    }),
    ("eth_getUncleCountByBlockHash", |proven, params| {
        proven.part(block_by_hash(proven, params)?, |block| {
            Ok(U64::from(proven.ommers(block)?.len()))
        })
    }),
    ("eth_getUncleCountByBlockNumber", |proven, params| {
        proven.part(block_by_number(proven, params)?, |block| {
            Ok(U64::from(proven.ommers(block)?.len()))
        })
    }),
];

/// A transaction under its hash.
struct FoundTransaction {
    encoding: Bytes,
    /// The block of the verified chain that has it, and its index there; `None` if it waits for a block, as
    /// a node says.
    block: Option<(Arc<BlockHeader>, usize)>,
}

fn index(params: &[&RawValue]) -> Result<usize, Refusal> {
    let index: U64 = param(params, 1)?;
    Ok(usize::try_from(index.to::<u64>()).unwrap_or(usize::MAX))
}

fn raw_transaction_by_hash(proven: &Proven, params: &[&RawValue]) -> Answer {
    let found = proven.find_transaction(param(params, 0)?)?;
    proven.written(&found.map(|found| found.encoding))
}

impl Proven {
    /// Writes a part of a block; `null` if there is no such block, or no such part.
    fn part<T: serde::Serialize>(
        &self,
        block: Option<Arc<BlockHeader>>,
        part: impl FnOnce(&BlockHeader) -> Result<T, Refusal>,
    ) -> Answer {
        self.written(&block.map(|block| part(&block)).transpose()?)
    }

    fn num_transactions(&self, block: &BlockHeader) -> Result<U64, Refusal> {
        Ok(U64::from(self.blocks.hashes(&ChainBlock::from(block))?.len()))
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
        encoding.map(|encoding| json::transaction(Some((block, index)), &encoding)).transpose()
    }

    fn raw_receipts(&self, block: &BlockHeader) -> Result<Vec<Bytes>, Refusal> {
        let receipts = self.blocks.receipts(&ChainBlock::from(block))?;
        // Without an outcome, their root could not be computed.
        receipts.receipts().encodings().ok_or(Refusal::Internal)
    }

    fn ommer_json(&self, block: &BlockHeader, index: usize) -> Result<Option<Value>, Refusal> {
        let ommers = self.ommers(block)?;
        ommers.get(index).map(json::ommer).transpose()
    }

    /// Asks the upstreams for the block of a transaction, which proves that it is there. A transaction that
    /// waits for a block is bound by its hash alone.
    fn find_transaction(&self, hash: B256) -> Result<Option<FoundTransaction>, Refusal> {
        self.first_named(|node| {
            let method = "eth_getTransactionByHash";
            let Some(answer) = node.call::<Option<Value>>(method, &json!([hash]))? else {
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
            Ok(self.transaction_in(block_hash, hash))
        })
    }

    fn transaction_in(
        &self,
        block_hash: B256,
        hash: B256,
    ) -> Result<Option<FoundTransaction>, Refusal> {
        let Some(block) = self.block_of(block_hash)? else { return Ok(None) };
        let transactions = self.blocks.transactions(&ChainBlock::from(&*block))?;
        let index = transactions.hashes().iter().position(|own| *own == hash);
        let found = index.and_then(|index| Some((index, transactions.encodings().get(index)?)));
        Ok(found.map(|(index, encoding)| FoundTransaction {
            encoding: encoding.clone(),
            block: Some((block, index)),
        }))
    }

    /// Asks the upstreams in turn until one names what proves a result. `None` is what a node says: that a
    /// transaction is in no block cannot be proven. Where one names a block of the chain whose contents
    /// nobody has, the result is not `None`.
    pub(super) fn first_named<T>(
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
        let has_none = unanswered.0.iter().any(|(_, why)| why.is_none());
        match refused {
            Some(refusal @ Refusal::NotProven { .. }) => Err(refusal),
            _ if has_none => Ok(None),
            Some(refusal) => Err(refusal),
            None => Err(Refusal::Upstream(unanswered.lines("null").swap_remove(0))),
        }
    }
}

/// Where a node says that a transaction is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    /// `None` if the transaction waits for a block.
    #[serde(default)]
    pub(super) block_hash: Option<B256>,
}

/// Returns the encoding of a transaction in JSON, if it has this hash.
fn encoded(json: Value, hash: B256) -> Option<Bytes> {
    let transaction: Transaction<TxEnvelope> = serde_json::from_value(json).ok()?;
    // The hash that the JSON states is only a claim.
    let encoding = transaction.inner.into_inner().encoded_2718();
    (keccak256(&encoding) == hash).then(|| encoding.into())
}
