//! Requests the body of a block: its transactions and withdrawals, by itself or together with the
//! receipts. The body is not verified here.

use alloy_rpc_types_eth::Withdrawal;
use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::transactions::ClaimedTransactions;
use serde::Deserialize;
use serde::de::{DeserializeSeed as _, Deserializer};
use serde_json::json;

use super::Node;
use super::blocks::{call, from_json, malformed};
use super::calls::{Call, Caller};
use super::error::RpcError;
use super::receipts::{ReceiptRoom, malformed as malformed_receipts};

/// The body of a block as a node sent it, not verified.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Body {
    #[serde(deserialize_with = "transactions")]
    pub(crate) transactions: ClaimedTransactions,
    /// `None` before Shanghai.
    #[serde(default)]
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

/// Maximum number of transactions in a block, which is more than any real block has.
const MAX_TRANSACTIONS: usize = 100_000;

fn transactions<'de, D: Deserializer<'de>>(json: D) -> Result<ClaimedTransactions, D::Error> {
    ClaimedTransactions::at_most(MAX_TRANSACTIONS).deserialize(json)
}

/// A block whose receipts and body are requested, and the limit for the size of its receipts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) block: BlockRef,
    pub(crate) room: ReceiptRoom,
}

/// The receipts and the body that a node sent for a block.
#[derive(Debug)]
pub(crate) struct ReceiptsAndBody {
    pub(crate) block: BlockRef,
    pub(crate) receipts: Option<BlockReceipts>,
    pub(crate) body: Option<Body>,
}

/// Reads the result of [`call`]; `None` if the node does not have the block.
fn read(result: &str, hash: B256) -> Result<Option<Body>, RpcError> {
    serde_json::from_str(result).map_err(|error| malformed(hash, &error))
}

/// Returns the encodings of the transactions in the RLP of a block.
fn encodings_of(block: &[u8]) -> Result<Vec<Bytes>, alloy_rlp::Error> {
    let mut fields = alloy_rlp::Header::decode_bytes(&mut &*block, true)?;
    // The header comes first.
    alloy_rlp::Header::decode_bytes(&mut fields, true)?;
    let mut transactions = alloy_rlp::Header::decode_bytes(&mut fields, true)?;
    let mut encodings = Vec::new();
    while !transactions.is_empty() {
        let whole = transactions;
        let header = alloy_rlp::Header::decode(&mut transactions)?;
        let (payload, rest) = transactions.split_at(header.payload_length);
        transactions = rest;
        // A legacy transaction is a list, and its encoding has the header of the list. A typed one is a
        // string in the block.
        let encoding = if header.list { &whole[..whole.len() - rest.len()] } else { payload };
        encodings.push(Bytes::copy_from_slice(encoding));
    }
    Ok(encodings)
}

impl Node {
    /// Requests the body of the block with this hash; `None` if the node does not have the block.
    ///
    /// The encodings of transactions of an unknown type are requested, too. If the node does not send them,
    /// they stay unknown.
    pub(crate) fn body(&self, hash: B256) -> Result<Option<Body>, RpcError> {
        let body: Option<Body> =
            self.caller.call(&call(hash, true), |result| read(result, hash))?;
        let Some(mut body) = body else { return Ok(None) };
        let unknown: Vec<usize> = body.transactions.unknown().map(|(index, _)| index).collect();
        if !unknown.is_empty() {
            for (index, encoding) in self.encodings(hash, &unknown)? {
                body.transactions.set(index, encoding);
            }
        }
        Ok(Some(body))
    }

    /// Requests the encodings of the transactions with these indices in a block, by the first of two methods
    /// that the node serves. Encodings that the node does not send are left out.
    fn encodings(&self, block: B256, indices: &[usize]) -> Result<Vec<(usize, Bytes)>, RpcError> {
        if self.raw_blocks.may_be() {
            let call = Call::new("debug_getRawBlock", &json!([block]));
            let read = |result: &str| {
                let block: Option<Bytes> = serde_json::from_str(result).unwrap_or_default();
                Ok(block.and_then(|block| encodings_of(&block).ok()))
            };
            match self.caller.call(&call, read) {
                Ok(Some(all)) => {
                    let one = |&index: &usize| Some((index, all.get(index)?.clone()));
                    return Ok(indices.iter().filter_map(one).collect());
                }
                Err(RpcError::Stopped) => return Err(RpcError::Stopped),
                Err(error) if matches!(error.origin(), RpcError::MethodMissing { .. }) => {
                    self.raw_blocks.set_missing();
                }
                _ => {}
            }
        }
        let call = |index: &usize| {
            let params = json!([block, format!("{index:#x}")]);
            Call::new("eth_getRawTransactionByBlockHashAndIndex", &params)
        };
        let calls: Vec<Call> = indices.iter().map(call).collect();
        let read = |_, result: &str| Ok(serde_json::from_str::<Bytes>(result).ok());
        let answers = match self.caller.calls(&calls, read) {
            Err(RpcError::Stopped) => return Err(RpcError::Stopped),
            answers => answers.unwrap_or_default(),
        };
        let both = indices.iter().zip(answers);
        Ok(both.filter_map(|(&index, answer)| Some((index, answer.ok()??))).collect())
    }

    /// Requests all receipts and the body of each of these blocks, all in one request. Data that the
    /// node refuses or does not have is left out: a separate request for this data returns the
    /// error.
    pub(crate) fn receipts_and_bodies(&self, blocks: &[Wanted]) -> Vec<ReceiptsAndBody> {
        if !self.together.may_be() || self.caller.batch() < 2 * blocks.len() {
            return Vec::new();
        }
        let receipts: Option<Vec<_>> =
            blocks.iter().map(|wanted| self.receipts_call(wanted.block)).collect();
        let Some(receipts) = receipts else { return Vec::new() };
        let (calls, are_encoded): (Vec<_>, Vec<_>) = receipts.into_iter().unzip();
        let bodies = blocks.iter().map(|wanted| call(wanted.block.hash, true));
        let calls: Vec<Call> = calls.into_iter().chain(bodies).collect();
        let answers = self.caller.batch_of(&calls, |at, result| {
            let Wanted { block, room } = blocks[at % blocks.len()];
            let Some(are_encoded) = are_encoded.get(at) else {
                return Ok((None, read(result, block.hash)?));
            };
            let mut json = serde_json::Deserializer::from_str(result);
            let receipts = if *are_encoded {
                room.reader().hex_encodings().deserialize(&mut json)
            } else {
                room.reader().json().deserialize(&mut json)
            };
            let receipts = receipts.and_then(|receipts| json.end().map(|()| receipts));
            Ok((receipts.map_err(|error| malformed_receipts(block.number, &error))?, None))
        });
        if answers.as_ref().is_err_and(|error| Caller::accepted(calls.len(), error).is_some()) {
            // Batches of short answers may still be accepted.
            self.together.set_missing();
        }
        let mut receipts: Vec<_> =
            answers.unwrap_or_default().into_iter().map(Result::ok).collect();
        let bodies = receipts.split_off(receipts.len() / 2);
        let both = blocks.iter().zip(receipts.into_iter().zip(bodies));
        both.map(|(wanted, (receipts, body))| ReceiptsAndBody {
            block: wanted.block,
            receipts: receipts.and_then(|(receipts, _)| receipts),
            body: body.and_then(|(_, body)| body),
        })
        .collect()
    }

    /// Requests the header of an ommer of a block; `None` if the node does not have it.
    pub(crate) fn ommer(&self, block: B256, index: usize) -> Result<Option<HeaderBuf>, RpcError> {
        let params = json!([block, format!("{index:#x}")]);
        let call = Call::new("eth_getUncleByBlockHashAndIndex", &params);
        self.caller.call(&call, |result| from_json(result, "an ommer"))
    }
}
