//! Requests the body of a block: its transactions and withdrawals. Not verified here.

use alloy_rpc_types_eth::{Transaction, Withdrawal};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::HeaderBuf;
use chainsieve::eth::transactions::BlockTransactions;
use serde::Deserialize;
use serde_json::json;

use super::Node;
use super::calls::Call;
use super::error::RpcError;

/// The body of a block as a node gives it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) transactions: BlockTransactions,
    /// `None` before Shanghai.
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

/// Returns the call for the body of the block with this hash.
pub(super) fn call(hash: B256) -> Call {
    Call::new("eth_getBlockByHash", &json!([hash, true]))
}

/// Reads the result of [`call`]; `None` if the node does not have the block.
pub(super) fn read(result: &str, hash: B256) -> Result<Option<Body>, RpcError> {
    #[derive(Deserialize)]
    struct Block {
        transactions: Vec<Transaction>,
        #[serde(default)]
        withdrawals: Option<Vec<Withdrawal>>,
    }
    let malformed = |error: &dyn std::fmt::Display| {
        RpcError::Malformed(format!("the body of block {hash}: {error}"))
    };
    let block: Option<Block> = serde_json::from_str(result).map_err(|error| malformed(&error))?;
    let Some(block) = block else { return Ok(None) };
    let transactions =
        BlockTransactions::try_from(&block.transactions[..]).map_err(|error| malformed(&error))?;
    Ok(Some(Body { transactions, withdrawals: block.withdrawals }))
}

impl Node {
    /// Requests the body of the block with this hash; `None` if the node does not have the block.
    pub(crate) fn body(&self, hash: B256) -> Result<Option<Body>, RpcError> {
        self.caller.call(&call(hash), |result| read(result, hash))
    }

    /// Requests the header of an ommer of a block; `None` if the node does not have it.
    pub(crate) fn ommer(&self, block: B256, index: usize) -> Result<Option<HeaderBuf>, RpcError> {
        let params = json!([block, format!("{index:#x}")]);
        let call = Call::new("eth_getUncleByBlockHashAndIndex", &params);
        self.caller.call(&call, |result| super::headers::from_json(result, "an ommer"))
    }
}
