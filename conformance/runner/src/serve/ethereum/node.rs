//! The built-in chain: two consecutive blocks of mainnet with all transactions and receipts, answered as
//! geth does.

use chainsieve::alloy_primitives::{B256, U64};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{
    BlockTag, Heads, LogQuery, QueryLimits, ResolvedBlocks, Semantics,
};
use serde_json::{Map, Value, json};

use super::block::Block;
use crate::serve::json_rpc::Fault;

/// Number of the first built-in block.
pub const FIRST: u64 = 17_686_111;
/// Number of the last built-in block, which is the head of the chain.
pub const LAST: u64 = 17_686_112;

/// An honest node with the built-in blocks.
pub(super) struct Node {
    blocks: Vec<Block>,
}

impl Node {
    pub(super) fn new() -> Self {
        let fixture = |number: u64| {
            let path = format!("ethereum/blocks/mainnet_{number}.json");
            let found = chainsieve_vectors::FIXTURES.iter().find(|(name, _)| *name == path);
            Block::of_fixture(found.expect("a fixture of the package").1)
        };
        Self { blocks: (FIRST..=LAST).map(fixture).collect() }
    }

    /// Answers one call.
    pub(super) fn answer(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        let block = || self.find(params.get(0).unwrap_or(&Value::Null));
        match method {
            "eth_chainId" => Ok(json!("0x1")),
            "net_version" => Ok(json!("1")),
            "web3_clientVersion" => Ok(json!(concat!("chainsieve/", env!("CARGO_PKG_VERSION")))),
            "eth_syncing" => Ok(json!(false)),
            "eth_blockNumber" => Ok(json!(U64::from(LAST))),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                let is_full = params.get(1) == Some(&Value::Bool(true));
                Ok(block()?.map_or(Value::Null, |block| block.to_json(is_full)))
            }
            "eth_getBlockReceipts" => {
                let block = match params.get(0) {
                    Some(Value::Object(block)) => self.find_object(block)?,
                    _ => block()?,
                };
                Ok(block.map_or(Value::Null, |block| block.receipts.clone().into()))
            }
            "eth_getTransactionByHash" => {
                let hash = transaction_hash(params)?;
                let mut all = self.blocks.iter().flat_map(|block| &block.transactions);
                Ok(all.find(|transaction| transaction["hash"] == hash).cloned().unwrap_or_default())
            }
            "eth_getTransactionReceipt" => {
                let hash = transaction_hash(params)?;
                let mut receipts = self.blocks.iter().flat_map(|block| &block.receipts);
                let found = receipts.find(|receipt| receipt["transactionHash"] == hash);
                Ok(found.cloned().unwrap_or_default())
            }
            "eth_getLogs" => self.logs(params.get(0).unwrap_or(&Value::Null)),
            method => Err(Fault::method_not_found(method)),
        }
    }

    fn heads() -> Heads {
        let mut heads = Heads::latest(LAST);
        (heads.earliest, heads.safe, heads.finalized) = (FIRST, Some(LAST), Some(LAST));
        heads
    }

    /// Returns the block that a parameter names by its number, its hash or a tag.
    fn find(&self, block: &Value) -> Result<Option<&Block>, Fault> {
        let text = block.as_str().ok_or_else(|| Fault::invalid_params("a block is a string"))?;
        if text.len() == 66 {
            let hash = hash_of(text).ok_or_else(|| Fault::invalid_params("not a hash"))?;
            return Ok(self.with_hash(hash));
        }
        let tag: BlockTag =
            text.parse().map_err(|error| Fault::invalid_params(format!("{error}")))?;
        let range = LogQuery::new().from_block(tag).to_block(tag);
        // An error means that the block is before or after the built-in blocks, or pending.
        let Ok(ResolvedBlocks::Range { first: number, .. }) = range.resolve(&Self::heads()) else {
            return Ok(None);
        };
        Ok(self.blocks.iter().find(|block| block.at().number == number))
    }

    /// Returns the block that an object names by its `blockHash` or its `blockNumber` (EIP-1898).
    fn find_object(&self, block: &Map<String, Value>) -> Result<Option<&Block>, Fault> {
        let hash = || Fault::invalid_params("blockHash is a hash");
        match (block.get("blockHash"), block.get("blockNumber")) {
            (Some(name), None) => {
                let hash = name.as_str().and_then(hash_of).ok_or_else(hash)?;
                Ok(self.with_hash(hash))
            }
            (None, Some(name)) => self.find(name),
            _ => Err(Fault::invalid_params("a block has either a blockHash or a blockNumber")),
        }
    }

    fn with_hash(&self, hash: B256) -> Option<&Block> {
        self.blocks.iter().find(|block| block.at().hash == hash)
    }

    /// Answers `eth_getLogs` by geth's rules.
    fn logs(&self, query: &Value) -> Result<Value, Fault> {
        let invalid = |error: &dyn std::fmt::Display| Fault::invalid_params(error.to_string());
        let query = LogQuery::from_json(&query.to_string(), Semantics::Geth);
        let query = query.map_err(|error| invalid(&error))?;
        let blocks = query.resolve(&Self::heads()).map_err(|error| invalid(&error))?;
        QueryLimits::geth().check(&query, &blocks).map_err(|error| invalid(&error))?;
        if let ResolvedBlocks::AtHash(hash) = blocks
            && self.with_hash(hash).is_none()
        {
            return Err(Fault::new(-32000, "unknown block"));
        }
        let all = self.blocks.iter().flat_map(|block| &block.logs);
        let wanted = |log: &&LocatedLog| {
            blocks.contains(log.block_number, &log.block_hash)
                && query.matches(&log.log, Semantics::Geth)
        };
        Ok(all.filter(wanted).map(|log| json!(log)).collect())
    }
}

/// Returns the first parameter, a hash, in the form of the answers: in lower case.
fn transaction_hash(params: &Value) -> Result<Value, Fault> {
    let hash = params.get(0).and_then(Value::as_str).and_then(hash_of);
    Ok(json!(hash.ok_or_else(|| Fault::invalid_params("not a hash"))?))
}

/// Reads a hash, which is written with `0x`.
fn hash_of(text: &str) -> Option<B256> {
    text.starts_with("0x").then(|| text.parse().ok()).flatten()
}
