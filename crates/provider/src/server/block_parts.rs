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

use super::journal::BlockHeader;
use super::json;
use super::methods::{Answer, Method, block_by_hash, block_by_id, block_by_number, param};
use super::refusal::Refusal;
use super::{Proven, unverified};
use crate::node::Node;

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
            let answer: Option<Value> = node
                .call(method, &json!([hash]))
                .map_err(|error| unverified::upstream(node, &error))?;
            let Some(answer) = answer else { return Ok(None) };
            // The words of the parser would quote the answer.
            let place = Place::deserialize(&answer)
                .map_err(|_| unverified::upstream(node, &"the answer is not a transaction"))?;
            let Some(block_hash) = place.block_hash else {
                let encoding = encoded(answer, hash).ok_or_else(|| {
                    unverified::upstream(node, &"the answer is another transaction")
                })?;
                return Ok(Some(FoundTransaction { encoding, block: None }));
            };
            let Some(block) = self.block_of(block_hash)? else { return Ok(None) };
            let transactions = self.blocks.transactions(&ChainBlock::from(&*block))?;
            let index = transactions.hashes().iter().position(|own| *own == hash);
            let found = index.and_then(|index| Some((index, transactions.encodings().get(index)?)));
            Ok(found.map(|(index, encoding)| FoundTransaction {
                encoding: encoding.clone(),
                block: Some((block, index)),
            }))
        })
    }

    /// Asks the upstreams in turn until one names what proves a result. `None` is what a node says: that a
    /// transaction is in no block cannot be proven. Where one names a block of the chain whose contents
    /// nobody has, the result is not `None`.
    pub(super) fn first_named<T>(
        &self,
        ask: impl Fn(&Node) -> Result<Option<T>, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        self.heads()?;
        let (mut has_none, mut failed) = (false, None);
        for node in &self.blocks.nodes() {
            match ask(node) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => has_none = true,
                Err(refusal @ Refusal::NotProven { .. }) => failed = Some(refusal),
                Err(refusal) => drop(failed.get_or_insert(refusal)),
            }
        }
        match failed {
            Some(refusal @ Refusal::NotProven { .. }) => Err(refusal),
            Some(refusal) if !has_none => Err(refusal),
            _ => Ok(None),
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
