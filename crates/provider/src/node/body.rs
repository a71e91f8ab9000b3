//! Requests the body of a block: its transactions and withdrawals, by itself or together with the
//! receipts. Not verified here.

use alloy_rpc_types_eth::Withdrawal;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::transactions::BlockTransactions;
use serde::Deserialize;
use serde_json::json;

use super::Node;
use super::calls::{Call, Caller};
use super::error::RpcError;
use super::transactions::{call, malformed};

/// The body of a block as a node gives it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Body {
    pub(crate) transactions: BlockTransactions,
    /// `None` before Shanghai.
    #[serde(default)]
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

/// What a node sent of a block.
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

impl Node {
    /// Requests the body of the block with this hash; `None` if the node does not have the block.
    pub(crate) fn body(&self, hash: B256) -> Result<Option<Body>, RpcError> {
        self.caller.call(&call(hash), |result| read(result, hash))
    }

    /// Requests all receipts and the body of each of these blocks, all in one request. What the node
    /// refuses or does not have is left out: whoever asks for it alone learns the error.
    pub(crate) fn receipts_and_bodies(&self, blocks: &[BlockRef]) -> Vec<ReceiptsAndBody> {
        if !self.together.may_be() || self.caller.batch() < 2 * blocks.len() {
            return Vec::new();
        }
        let receipts: Option<Vec<_>> =
            blocks.iter().map(|block| self.receipts_call(*block)).collect();
        let Some(receipts) = receipts else { return Vec::new() };
        let (calls, reads): (Vec<_>, Vec<_>) = receipts.into_iter().unzip();
        let bodies = blocks.iter().map(|block| call(block.hash));
        let calls: Vec<Call> = calls.into_iter().chain(bodies).collect();
        let answers = self.caller.batch_of(&calls, |at, result| {
            let block = blocks[at % blocks.len()];
            match reads.get(at) {
                Some(read) => Ok((read(result, block.number)?, None)),
                None => Ok((None, read(result, block.hash)?)),
            }
        });
        if answers.as_ref().is_err_and(|error| Caller::accepted(calls.len(), error).is_some()) {
            // Batches of short answers may still be accepted.
            self.together.set_missing();
        }
        let mut receipts: Vec<_> =
            answers.unwrap_or_default().into_iter().map(Result::ok).collect();
        let bodies = receipts.split_off(receipts.len() / 2);
        let both = blocks.iter().zip(receipts.into_iter().zip(bodies));
        both.map(|(&block, (receipts, body))| ReceiptsAndBody {
            block,
            receipts: receipts.and_then(|(receipts, _)| receipts),
            body: body.and_then(|(_, body)| body),
        })
        .collect()
    }

    /// Requests the header of an ommer of a block; `None` if the node does not have it.
    pub(crate) fn ommer(&self, block: B256, index: usize) -> Result<Option<HeaderBuf>, RpcError> {
        let params = json!([block, format!("{index:#x}")]);
        let call = Call::new("eth_getUncleByBlockHashAndIndex", &params);
        self.caller.call(&call, |result| super::headers::from_json(result, "an ommer"))
    }
}
