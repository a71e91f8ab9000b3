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
use super::call::{Answer, Call, Method};
use super::journal::BlockHeader;
use super::json;
use super::methods::{block_by_hash, block_by_id, block_by_number, param};
use super::refusal::Refusal;
use crate::node::{Node, RpcError};
use crate::nodes::{Unaccepted, ask_if_any};
use crate::proven::Flights;

/// The methods of this file. Their parts are bound by the hash of the block.
pub(super) const METHODS: [(&str, Method); 18] = [
    ("debug_getRawBlock", |call, params| {
        call.part(block_by_id(call, params)?, |block| call.raw_block(block))
    }),
    ("debug_getRawHeader", |call, params| {
        call.part(block_by_id(call, params)?, |block| {
            Ok(Bytes::copy_from_slice(block.header.rlp()))
        })
    }),
    ("debug_getRawReceipts", |call, params| {
        call.part(block_by_id(call, params)?, |block| call.raw_receipts(block))
    }),
    ("debug_getRawTransaction", raw_transaction_by_hash),
    ("eth_getBlockTransactionCountByHash", |call, params| {
        call.part(block_by_hash(call, params)?, |block| call.num_transactions(block))
    }),
    ("eth_getBlockTransactionCountByNumber", |call, params| {
        call.part(block_by_number(call, params)?, |block| call.num_transactions(block))
    }),
    ("eth_getHeaderByHash", |call, params| call.part(block_by_hash(call, params)?, json::head)),
    ("eth_getHeaderByNumber", |call, params| call.part(block_by_number(call, params)?, json::head)),
    ("eth_getRawTransactionByBlockHashAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_hash(call, params)?, |block| call.raw_transaction(block, index))
    }),
    ("eth_getRawTransactionByBlockNumberAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_number(call, params)?, |block| call.raw_transaction(block, index))
    }),
    ("eth_getRawTransactionByHash", raw_transaction_by_hash),
    ("eth_getTransactionByBlockHashAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_hash(call, params)?, |block| call.transaction_json(block, index))
    }),
    ("eth_getTransactionByBlockNumberAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_number(call, params)?, |block| call.transaction_json(block, index))
    }),
    ("eth_getTransactionByHash", |call, params| {
        let found = call.find_transaction(param(params, 0)?)?;
        let json = found.map(|found| {
            let place = found.block.as_ref().map(|(block, index)| (&**block, *index));
            match place {
                Some((block, index)) => call.transaction_of(block, index, &found.encoding),
                None => json::transaction(None, &found.encoding, None),
            }
        });
        call.written(&json.transpose()?)
    }),
    ("eth_getUncleByBlockHashAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_hash(call, params)?, |block| call.ommer_json(block, index))
    }),
    ("eth_getUncleByBlockNumberAndIndex", |call, params| {
        let index = index(params)?;
        call.part(block_by_number(call, params)?, |block| call.ommer_json(block, index))
    }),
    ("eth_getUncleCountByBlockHash", |call, params| {
        call.part(block_by_hash(call, params)?, |block| {
            Ok(U64::from(call.blocks.ommers(block)?.len()))
        })
    }),
    ("eth_getUncleCountByBlockNumber", |call, params| {
        call.part(block_by_number(call, params)?, |block| {
            Ok(U64::from(call.blocks.ommers(block)?.len()))
        })
    }),
];

/// Gives a transaction and its block.
const BY_HASH: &str = "eth_getTransactionByHash";

/// A block of the verified chain, and the index of a transaction there.
pub(super) type InBlock = (Arc<BlockHeader>, usize);

/// A transaction under its hash.
#[derive(Debug, Clone)]
struct FoundTransaction {
    encoding: Bytes,
    /// `None` if it waits for a block, as a node says.
    block: Option<InBlock>,
}

/// Transactions that are looked for now, by their hash.
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

fn index(params: &[&RawValue]) -> Result<usize, Refusal> {
    let index: U64 = param(params, 1)?;
    Ok(usize::try_from(index.to::<u64>()).unwrap_or(usize::MAX))
}

fn raw_transaction_by_hash(call: &Call, params: &[&RawValue]) -> Answer {
    let found = call.find_transaction(param(params, 0)?)?;
    call.written(&found.map(|found| found.encoding))
}

impl Call {
    /// Writes a part of a block; `null` if there is no such block, or no such part.
    fn part<T: serde::Serialize>(
        &self,
        block: Option<Arc<BlockHeader>>,
        part: impl FnOnce(&BlockHeader) -> Result<T, Refusal>,
    ) -> Answer {
        self.written(&block.map(|block| part(&block)).transpose()?)
    }
}

impl Proven {
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
    /// Returns a transaction by its hash: with its block, which proves that it is there, or as one that waits
    /// for a block. The latter is bound by its hash alone.
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

    /// Returns the block of the verified chain that has a transaction, and its index there. Upstreams say
    /// where it is; only the block proves it.
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

    /// Returns where a transaction was found before, if its block is still on the chain.
    fn remembered(&self, transaction: B256) -> Result<Option<InBlock>, Refusal> {
        match self.blocks.place(transaction) {
            Some(block_hash) => self.index_in(block_hash, transaction),
            None => Ok(None),
        }
    }

    fn index_in(&self, block_hash: B256, transaction: B256) -> Result<Option<InBlock>, Refusal> {
        // Others may wait for the same, so that it does not end with this call.
        let stop = &self.proven().stop;
        let Some(block) = self.block_of(block_hash, true, stop)? else { return Ok(None) };
        let hashes = self.blocks.hashes(&ChainBlock::from(&*block))?;
        let index = hashes.iter().position(|own| *own == transaction);
        if index.is_some() {
            self.blocks.set_place(transaction, block_hash);
        }
        Ok(index.map(|index| (block, index)))
    }

    /// Asks the upstreams in turn until one names what proves a result. `None` is what a node says: that a
    /// transaction is in no block cannot be proven. Where one names a block of the chain whose contents
    /// nobody has, the result is not `None`.
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

/// Where a node says that a transaction is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    /// `None` if the transaction waits for a block.
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
