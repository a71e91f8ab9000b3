//! All receipts of blocks, by whichever method the node serves. Whether they are the block's is
//! for its header to say.

use std::sync::atomic::Ordering;

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::receipts::BlockReceipts;
use serde::Deserialize;
use serde_json::json;

use super::Provider;
use super::bounded;
use super::calls::Call;
use super::error::RpcError;
use super::in_order::in_order;
use super::transport::MAX_BODY;
use crate::output::grouped;

/// The ways to receipts, the best first: by hash, a node on another branch does not have them.
const WAYS: [Way; 4] = [Way::ByHash, Way::Raw, Way::ByNumber, Way::Each];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ByHash,
    Raw,
    ByNumber,
    Each,
}

/// Transactions of a block: more than any has.
const MAX_TRANSACTIONS: usize = 100_000;

impl Way {
    fn words(self) -> &'static str {
        match self {
            Self::ByHash => "eth_getBlockReceipts by hash",
            Self::Raw => "debug_getRawReceipts",
            Self::ByNumber => "eth_getBlockReceipts by number",
            Self::Each => "eth_getTransactionReceipt for each transaction",
        }
    }
}

impl Provider {
    /// All receipts of a block; none if the provider does not have it.
    pub(crate) fn receipts(
        &self,
        number: u64,
        hash: B256,
    ) -> Result<Option<BlockReceipts>, RpcError> {
        let known = self.receipts_way.load(Ordering::Relaxed).min(WAYS.len() - 1);
        let mut failed = None;
        for (at, way) in WAYS.into_iter().enumerate().skip(known) {
            let error = match self.receipts_by(way, number, hash) {
                Ok(receipts) => {
                    if let Some((first, error)) = failed {
                        self.changes_way((known, first), (at, way), &error);
                    }
                    return Ok(receipts);
                }
                Err(error) => error,
            };
            let next_may_do = matches!(
                error.origin(),
                RpcError::MethodMissing { .. } | RpcError::Node { .. } | RpcError::Http { .. }
            );
            if !next_may_do {
                return Err(error);
            }
            failed.get_or_insert((way, error));
        }
        // What the best way had to say.
        Err(failed
            .map_or(RpcError::NotFound { what: format!("block {number}") }, |(_, error)| error))
    }

    /// Notes that the node serves another way only, once.
    fn changes_way(&self, from: (usize, Way), to: (usize, Way), error: &RpcError) {
        let ((from, first), (to, way)) = (from, to);
        let changed =
            self.receipts_way.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            self.note(&format!("{}: {error}; from now on {}", first.words(), way.words()));
        }
    }

    /// All receipts of each of these blocks, several requests at a time, handed over in order.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn receipts_of(
        &self,
        blocks: &[(u64, B256)],
        mut take: impl FnMut((u64, B256), Result<Option<BlockReceipts>, RpcError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let work = |(number, hash)| ((number, hash), self.receipts(number, hash));
        in_order(self.parallel, blocks.iter().copied(), work, |(block, receipts)| {
            take(block, receipts)
        })
    }

    /// All receipts of a block by each way that there is, whatever was learnt of the node, until
    /// `take`, which is told the way, has what it wants.
    pub(crate) fn receipts_each_way(
        &self,
        number: u64,
        hash: B256,
        mut take: impl FnMut(&'static str, Result<Option<BlockReceipts>, RpcError>) -> bool,
    ) {
        for way in WAYS {
            if take(way.words(), self.receipts_by(way, number, hash)) {
                return;
            }
        }
    }

    fn receipts_by(
        &self,
        way: Way,
        number: u64,
        hash: B256,
    ) -> Result<Option<BlockReceipts>, RpcError> {
        let by_number = || json!([format!("{number:#x}")]);
        match way {
            Way::ByHash => {
                let call = Call::new("eth_getBlockReceipts", &json!([hash]));
                self.caller.call(&call, |result| list(result, number))
            }
            Way::ByNumber => {
                let call = Call::new("eth_getBlockReceipts", &by_number());
                self.caller.call(&call, |result| list(result, number))
            }
            Way::Raw => {
                let call = Call::new("debug_getRawReceipts", &json!([hash]));
                self.caller.call(&call, |result| encodings(result, number))
            }
            Way::Each => self.each_receipt(number, hash),
        }
    }

    fn each_receipt(&self, number: u64, hash: B256) -> Result<Option<BlockReceipts>, RpcError> {
        #[derive(Deserialize)]
        struct Block {
            transactions: Vec<B256>,
        }
        let call = Call::new("eth_getBlockByHash", &json!([hash, false]));
        let block: Option<Block> = self.caller.call(&call, |result| {
            serde_json::from_str(result).map_err(|error| malformed(number, &error))
        })?;
        let Some(Block { transactions }) = block else { return Ok(None) };
        if transactions.len() > MAX_TRANSACTIONS {
            let found = grouped(transactions.len() as u64);
            return Err(malformed(number, &format!("{found} transactions")));
        }
        let calls: Vec<Call> = transactions
            .iter()
            .map(|hash| Call::new("eth_getTransactionReceipt", &json!([hash])))
            .collect();
        let mut receipts = Vec::with_capacity(calls.len());
        let mut bytes = 0;
        for (hash, receipt) in
            transactions.iter().zip(self.caller.calls(&calls, |_, result| Ok(result.to_owned()))?)
        {
            let receipt = receipt?;
            if receipt == "null" {
                return Err(malformed(number, &format!("no receipt of its transaction {hash}")));
            }
            bytes += receipt.len() as u64;
            if bytes > MAX_BODY {
                return Err(RpcError::TooLarge { limit: MAX_BODY });
            }
            receipts.push(receipt);
        }
        BlockReceipts::from_json_each(&receipts)
            .map(Some)
            .map_err(|error| self.caller.clean(malformed(number, &error)))
    }
}

fn malformed(number: u64, error: &impl ToString) -> RpcError {
    RpcError::Malformed(format!("receipts of block {number}: {}", error.to_string()))
}

fn list(result: &str, number: u64) -> Result<Option<BlockReceipts>, RpcError> {
    if result == "null" {
        return Ok(None);
    }
    BlockReceipts::from_json(result).map(Some).map_err(|error| malformed(number, &error))
}

fn encodings(result: &str, number: u64) -> Result<Option<BlockReceipts>, RpcError> {
    if result == "null" {
        return Ok(None);
    }
    let list: Vec<Bytes> =
        bounded::list(result, MAX_TRANSACTIONS).map_err(|error| malformed(number, &error))?;
    BlockReceipts::from_encodings(&list).map(Some).map_err(|error| malformed(number, &error))
}
