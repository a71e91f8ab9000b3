//! Requests all receipts of blocks, by the best method that the node serves.

use std::sync::atomic::Ordering;

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::receipts::BlockReceipts;
use serde::Deserialize;
use serde_json::json;

use super::bounded;
use super::calls::Call;
use super::error::RpcError;
use super::{Node, Note};
use crate::in_order::in_order;

/// The methods for receipts, the best first. A request by hash is safer than one by number: a node
/// on another branch cannot answer with receipts of another block. `Raw` requests receipts by hash
/// too. `Each` comes last, because it makes one call for each transaction.
const METHODS: [Method; 4] = [Method::ByHash, Method::Raw, Method::ByNumber, Method::Each];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    ByHash,
    Raw,
    ByNumber,
    Each,
}

/// Receipts as a node sent them. Not verified.
#[derive(Debug)]
pub(crate) struct ReceivedReceipts {
    pub(crate) receipts: BlockReceipts,
    /// `true` if the answer can only mean the block that was asked for: it was asked for by its hash, or each
    /// receipt names the hash. An answer by number may be that of another block, which an honest node has
    /// after a reorganisation.
    #[cfg_attr(
        not(feature = "server"),
        expect(dead_code, reason = "only the endpoint counts false answers")
    )]
    pub(crate) is_of_block: bool,
}

impl ReceivedReceipts {
    fn new(receipts: BlockReceipts, method: Method, block: B256) -> Self {
        let is_of_block = method.is_by_hash() || names_block(&receipts, block);
        Self { receipts, is_of_block }
    }
}

/// Returns `true` if each receipt claims to be of this block. An empty list claims nothing.
fn names_block(receipts: &BlockReceipts, block: B256) -> bool {
    let claims = receipts.claims();
    !claims.is_empty() && claims.iter().all(|claims| claims.block_hash == Some(block))
}

/// Reads the result of a call as the receipts of the block with this number.
pub(super) type Read = fn(&str, u64) -> Result<Option<BlockReceipts>, RpcError>;

/// Maximum number of transactions in a block, which is more than any real block has.
const MAX_TRANSACTIONS: usize = 100_000;

impl Method {
    /// Returns `true` if the call names the block by its hash.
    const fn is_by_hash(self) -> bool {
        matches!(self, Self::ByHash | Self::Raw)
    }

    fn name(self) -> &'static str {
        match self {
            Self::ByHash => "eth_getBlockReceipts by hash",
            Self::Raw => "debug_getRawReceipts",
            Self::ByNumber => "eth_getBlockReceipts by number",
            Self::Each => "eth_getTransactionReceipt for each transaction",
        }
    }

    /// Returns the call, and what reads its result; `None` for the method with many calls.
    fn call(self, BlockRef { number, hash }: BlockRef) -> Option<(Call, Read)> {
        let by_number = || json!([format!("{number:#x}")]);
        match self {
            Self::ByHash => Some((Call::new("eth_getBlockReceipts", &json!([hash])), list)),
            Self::Raw => Some((Call::new("debug_getRawReceipts", &json!([hash])), encodings)),
            Self::ByNumber => Some((Call::new("eth_getBlockReceipts", &by_number()), list)),
            Self::Each => None,
        }
    }
}

impl Node {
    /// Requests all receipts of a block, by the first method that the node serves. Returns `None`
    /// if the node does not have the block.
    ///
    /// The methods are tried in this order: `eth_getBlockReceipts` by hash, `debug_getRawReceipts`,
    /// `eth_getBlockReceipts` by number, and `eth_getTransactionReceipt` for each transaction. The
    /// first method that the node serves is remembered for the node and its clones.
    ///
    /// The receipts are not verified here: the caller must check the receipts against the receipts
    /// root of the block's header.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if all methods fail: the error of the first method tried.
    pub fn receipts(&self, block: BlockRef) -> Result<Option<BlockReceipts>, RpcError> {
        Ok(self.received_receipts(block)?.map(|received| received.receipts))
    }

    /// The same as [`receipts`](Self::receipts), with what is known of the block that they are of.
    pub(crate) fn received_receipts(
        &self,
        block: BlockRef,
    ) -> Result<Option<ReceivedReceipts>, RpcError> {
        let known = self.known_method();
        let mut failed = None;
        for (at, method) in METHODS.into_iter().enumerate().skip(known) {
            let error = match self.receipts_by(method, block) {
                Ok(receipts) => {
                    if let Some((first, error)) = failed {
                        self.change_method((known, first), (at, method), error);
                    }
                    return Ok(receipts);
                }
                Err(error) => error,
            };
            // Only errors about the method itself are a reason to try the next one.
            let next_may_do = matches!(
                error.origin(),
                RpcError::MethodMissing { .. } | RpcError::Node { .. } | RpcError::Http { .. }
            );
            if !next_may_do {
                return Err(error);
            }
            failed.get_or_insert((method, error));
        }
        let missing = || RpcError::NotFound { what: format!("block {}", block.number) };
        Err(failed.map_or_else(missing, |(_, error)| error))
    }

    fn known_method(&self) -> usize {
        self.receipts_method.load(Ordering::Relaxed).min(METHODS.len() - 1)
    }

    /// Returns the call for the receipts of a block by the method that the node is known to serve, and
    /// what reads its result; `None` for the method with many calls.
    #[cfg(feature = "server")]
    pub(super) fn receipts_call(&self, block: BlockRef) -> Option<(Call, Read)> {
        METHODS[self.known_method()].call(block)
    }

    /// Records that the node serves only a later method, and reports it in a note the first time.
    fn change_method(&self, from: (usize, Method), to: (usize, Method), error: RpcError) {
        let ((from, before), (to, now)) = (from, to);
        let changed =
            self.receipts_method.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            let (before, now) = (before.name(), now.name());
            self.note(&Note::ReceiptsBy { before, error, now });
        }
    }

    /// Requests all receipts of each of these blocks, several requests in parallel, and passes each
    /// result of [`receipts`](Self::receipts) to `take` in order.
    ///
    /// # Errors
    /// Returns the errors of `take`.
    pub fn receipts_of<E>(
        &self,
        blocks: &[BlockRef],
        mut take: impl FnMut(BlockRef, Result<Option<BlockReceipts>, RpcError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let work = |block| (block, self.receipts(block));
        let blocks = blocks.iter().copied();
        in_order(self.options().parallel, blocks, work, |(block, receipts)| take(block, receipts))
    }

    /// Requests all receipts of a block by every method in turn, even by those that have failed
    /// before.
    ///
    /// After each method, `take` receives the name of the method and the result. If `take` returns
    /// `true`, no further method is tried.
    ///
    /// Each method makes one call, except that the last one makes a call for each transaction. This
    /// function returns when the last of these calls has ended.
    pub fn receipts_by_each_method(
        &self,
        block: BlockRef,
        mut take: impl FnMut(&'static str, Result<Option<BlockReceipts>, RpcError>) -> bool,
    ) {
        self.received_by_each_method(block, |method, received| {
            take(method, received.map(|received| Some(received?.receipts)))
        });
    }

    /// The same as [`receipts_by_each_method`](Self::receipts_by_each_method), with what is known of the block
    /// that they are of.
    pub(crate) fn received_by_each_method(
        &self,
        block: BlockRef,
        mut take: impl FnMut(&'static str, Result<Option<ReceivedReceipts>, RpcError>) -> bool,
    ) {
        for method in METHODS {
            if take(method.name(), self.receipts_by(method, block)) {
                return;
            }
        }
    }

    fn receipts_by(
        &self,
        method: Method,
        block: BlockRef,
    ) -> Result<Option<ReceivedReceipts>, RpcError> {
        let receipts = match method.call(block) {
            Some((call, read)) => self.caller.call(&call, |result| read(result, block.number)),
            None => self.each_receipt(block.number, block.hash),
        };
        let received = |receipts| ReceivedReceipts::new(receipts, method, block.hash);
        Ok(receipts?.map(received))
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
        // A node could invent a long list of transactions, which would cause one call for each
        // entry.
        if transactions.len() > MAX_TRANSACTIONS {
            return Err(malformed(number, &format!("{} transactions", transactions.len())));
        }
        let calls: Vec<Call> = transactions
            .iter()
            .map(|hash| Call::new("eth_getTransactionReceipt", &json!([hash])))
            .collect();
        let mut receipts = Vec::with_capacity(calls.len());
        let answers = self.caller.calls(&calls, |_, result| Ok(result.to_owned()))?;
        for (hash, receipt) in transactions.iter().zip(answers) {
            let receipt = receipt?;
            // Without the receipt of one transaction, the receipts root cannot be verified.
            if receipt == "null" {
                let what = format!("the receipt of transaction {hash} in block {number}");
                return Err(RpcError::NotFound { what });
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
    // A node answers `null` for a block that it does not have.
    if result == "null" {
        return Ok(None);
    }
    BlockReceipts::from_json(result).map(Some).map_err(|error| malformed(number, &error))
}

fn encodings(result: &str, number: u64) -> Result<Option<BlockReceipts>, RpcError> {
    // A node answers `null` for a block that it does not have.
    if result == "null" {
        return Ok(None);
    }
    let list: Vec<Bytes> =
        bounded::list(result, MAX_TRANSACTIONS).map_err(|error| malformed(number, &error))?;
    BlockReceipts::from_encodings(&list).map(Some).map_err(|error| malformed(number, &error))
}
