//! Requests all receipts of blocks, by the best method that the node serves.

use std::sync::atomic::Ordering;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::receipts::{BlockReceipts, ReceiptLimits, ReceiptsReader, SingleReceipts};
use serde::Deserialize;
use serde::de::DeserializeSeed as _;
use serde_json::json;

use super::ask::in_order;
use super::blocks::call;
use super::calls::{Call, Caller};
use super::error::RpcError;
use super::limit::Limit;
use super::transport::Lengths;
use super::{Node, Note};

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

/// Receipts as a node sent them, not verified.
#[derive(Debug)]
pub(crate) struct ReceivedReceipts {
    pub(crate) receipts: BlockReceipts,
    /// `true` if the answer can only mean the requested block: the request named its hash, or each receipt
    /// names the hash. The answer to a request by number may be about another block, which an honest node has
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

/// Maximum number of transactions in a block, which is more than any real block has.
const MAX_TRANSACTIONS: usize = 100_000;
/// Maximum number of single receipts in one batch request. If the answer is too long, each receipt is
/// requested by itself, and read while it arrives.
const TOGETHER: usize = 32;
const MAX_TOGETHER: u64 = 16 << 20;

/// The limits for the receipts of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiptRoom {
    reader: ReceiptsReader,
    /// `true` to keep the place (block and index) that receipts claim.
    keeps_claims: bool,
    json: Lengths,
    encodings: Lengths,
}

impl ReceiptRoom {
    /// Allows any receipts in an answer of at most `max_answer` bytes.
    fn of_any_block(max_answer: u64) -> Self {
        let limits = ReceiptLimits { receipts: MAX_TRANSACTIONS as u64, ..ReceiptLimits::NONE };
        let lengths = Lengths { answer: max_answer, string: max_answer };
        let reader = ReceiptsReader::new(limits);
        Self { reader, keeps_claims: true, json: lengths, encodings: lengths }
    }

    /// Allows receipts of any type, of a block whose trusted header states this gas. Receipts of any length can
    /// then be proven, and a node cannot send more than the header allows.
    ///
    /// A log without topics costs 375 gas, and nodes write it in about 430 bytes. A byte of data costs 8 gas,
    /// and nodes write it as two digits. So 4 bytes for each unit of gas are always enough. Encodings have no
    /// names and no places, so that half a byte for each unit of gas is enough.
    #[cfg(feature = "server")]
    pub(crate) const fn of_gas(gas_used: u64) -> Self {
        // A header under a head that a node names may state any gas.
        let gas_used = if gas_used < MOST_GAS { gas_used } else { MOST_GAS };
        let mut limits = ReceiptLimits::of_gas(gas_used);
        limits.bytes = MAX_KEPT;
        let json = Lengths {
            answer: (16 << 20) + gas_used.saturating_mul(4),
            string: (1 << 20) + gas_used / 4,
        };
        let encodings =
            Lengths { answer: (4 << 20) + gas_used / 2, string: (1 << 20) + gas_used / 4 };
        Self {
            reader: ReceiptsReader::new(limits).any_type(),
            keeps_claims: false,
            json,
            encodings,
        }
    }

    #[cfg(feature = "server")]
    pub(crate) const fn reader(&self) -> ReceiptsReader {
        self.reader.without_claims()
    }

    /// Returns the reader for the answers of a method. The claims of receipts that are asked for by number
    /// are kept: they name the block.
    const fn reader_of(&self, method: Method) -> ReceiptsReader {
        if self.keeps_claims || matches!(method, Method::ByNumber) {
            self.reader
        } else {
            self.reader.without_claims()
        }
    }
}

/// An amount of gas that no block exceeds: ten times the gas of a mainnet block in 2026.
#[cfg(feature = "server")]
const MOST_GAS: u64 = 600_000_000;

/// Maximum size of the receipts of a block in memory. With 300 million gas, a block has at most 800,000
/// logs, which take 64 MiB.
#[cfg(feature = "server")]
const MAX_KEPT: u64 = 160 << 20;

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

    /// Returns the call; `None` for the method with many calls.
    fn call(self, BlockRef { number, hash }: BlockRef) -> Option<Call> {
        match self {
            Self::ByHash => Some(Call::new("eth_getBlockReceipts", &json!([hash]))),
            Self::Raw => Some(Call::new("debug_getRawReceipts", &json!([hash]))),
            Self::ByNumber => {
                Some(Call::new("eth_getBlockReceipts", &json!([format!("{number:#x}")])))
            }
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
        let received = self.receipts_within(block, &self.room())?;
        Ok(received.map(|received| received.receipts))
    }

    fn room(&self) -> ReceiptRoom {
        ReceiptRoom::of_any_block(self.caller.transport.max_body)
    }

    /// Requests all receipts of a block as [`receipts`](Self::receipts) does. `room` limits their size.
    pub(crate) fn receipts_within(
        &self,
        block: BlockRef,
        room: &ReceiptRoom,
    ) -> Result<Option<ReceivedReceipts>, RpcError> {
        let known = self.known_method();
        let mut failed = None;
        for (at, method) in METHODS.into_iter().enumerate().skip(known) {
            let error = match self.receipts_by(method, block, room) {
                Ok(receipts) => {
                    // A method whose only fault is an answer that is too long is still the best
                    // method for other blocks.
                    let is_about_method =
                        |error: &RpcError| !is_about_size(error) && !error.origin().is_transient();
                    if let Some((first, error)) = failed.filter(|(_, error)| is_about_method(error))
                    {
                        self.change_method((known, first), (at, method), error);
                    }
                    return Ok(receipts);
                }
                Err(error) => error,
            };
            // Only errors about the method itself, or the length of its answer, are a reason to try the
            // next one.
            let next_may_do = is_about_size(&error)
                || matches!(
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
    /// whether its result is a list of encodings; `None` for the method with many calls.
    #[cfg(feature = "server")]
    pub(super) fn receipts_call(&self, block: BlockRef) -> Option<(Call, bool)> {
        let method = METHODS[self.known_method()];
        method.call(block).map(|call| (call, method == Method::Raw))
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
    /// Each method makes one call, except that the last method makes a call for each transaction.
    /// This function returns when the last of these calls has ended.
    pub fn receipts_by_each_method(
        &self,
        block: BlockRef,
        mut take: impl FnMut(&'static str, Result<Option<BlockReceipts>, RpcError>) -> bool,
    ) {
        self.receipts_within_by_each_method(block, &self.room(), |method, received| {
            take(method, received.map(|received| Some(received?.receipts)))
        });
    }

    /// Requests all receipts of a block by every method in turn. `room` limits their size.
    pub(crate) fn receipts_within_by_each_method(
        &self,
        block: BlockRef,
        room: &ReceiptRoom,
        mut take: impl FnMut(&'static str, Result<Option<ReceivedReceipts>, RpcError>) -> bool,
    ) {
        for method in METHODS {
            if take(method.name(), self.receipts_by(method, block, room)) {
                return;
            }
        }
    }

    fn receipts_by(
        &self,
        method: Method,
        block: BlockRef,
        room: &ReceiptRoom,
    ) -> Result<Option<ReceivedReceipts>, RpcError> {
        let reader = room.reader_of(method);
        let read = match (method, method.call(block)) {
            (_, None) => self.each_receipt(block.number, block.hash, room),
            (Method::Raw, Some(call)) => {
                let read = self.caller.stream(&call, room.encodings, || reader.hex_encodings());
                read.map_err(|error| named(error, block.number))
            }
            (_, Some(call)) => {
                let read = self.caller.stream(&call, room.json, || reader.json());
                read.map_err(|error| named(error, block.number))
            }
        };
        let received = |receipts| ReceivedReceipts::new(receipts, method, block.hash);
        Ok(read?.map(received))
    }

    fn each_receipt(
        &self,
        number: u64,
        hash: B256,
        room: &ReceiptRoom,
    ) -> Result<Option<BlockReceipts>, RpcError> {
        #[derive(Deserialize)]
        struct Block {
            transactions: Vec<B256>,
        }
        let block: Option<Block> = self.caller.call(&call(hash, false), |result| {
            serde_json::from_str(result).map_err(|error| malformed(number, &error))
        })?;
        let Some(Block { transactions }) = block else { return Ok(None) };
        // A node could invent a long list of transactions, which would cause one call for each
        // entry.
        if transactions.len() > MAX_TRANSACTIONS {
            return Err(malformed(number, &format!("{} transactions", transactions.len())));
        }
        let mut receipts = room.reader_of(Method::Each).one_by_one();
        let mut are_together = true;
        for part in transactions.chunks(TOGETHER.min(self.caller.batch()).max(1)) {
            let answers = if are_together && part.len() > 1 {
                self.receipts_together(part, number, receipts.reader())?
            } else {
                None
            };
            // Some receipts of the block are long, so that the others may be, too.
            are_together = answers.is_some();
            let mut answers = answers.map(Vec::into_iter);
            for hash in part {
                let receipt = if let Some(answers) = &mut answers {
                    answers.next().flatten()
                } else {
                    let reader = receipts.reader();
                    let read = self.caller.stream(&single(*hash), room.json, || reader.single());
                    read.map_err(|error| named(error, number))?
                };
                // Without the receipt of one transaction, the receipts root cannot be verified.
                let receipt = receipt.ok_or_else(|| RpcError::NotFound {
                    what: format!("the receipt of transaction {hash} in block {number}"),
                })?;
                receipts.add(receipt).map_err(|error| malformed(number, &error))?;
            }
        }
        let receipts = receipts.finish();
        receipts.map(Some).map_err(|error| self.caller.clean(malformed(number, &error)))
    }

    /// Requests the receipts of some transactions in one request. Returns `None` if the answer is too long, or
    /// if the node does not accept the batch.
    fn receipts_together(
        &self,
        transactions: &[B256],
        number: u64,
        reader: ReceiptsReader,
    ) -> Result<Option<Vec<Option<SingleReceipts>>>, RpcError> {
        let calls: Vec<Call> = transactions.iter().map(|hash| single(*hash)).collect();
        let mut caller = self.caller.clone();
        caller.transport.max_body = caller.transport.max_body.min(MAX_TOGETHER);
        let answers = caller.batch_of(&calls, |_, result| {
            let mut json = serde_json::Deserializer::from_str(result);
            let read = reader.single().deserialize(&mut json);
            let read = read.and_then(|receipt| json.end().map(|()| receipt));
            read.map_err(|error| malformed(number, &error))
        });
        match answers {
            Ok(answers) => answers.into_iter().collect::<Result<_, _>>().map(Some),
            Err(error) if Caller::accepted(calls.len(), &error).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn single(transaction: B256) -> Call {
    Call::new("eth_getTransactionReceipt", &json!([transaction]))
}

/// Returns `true` if an answer was too long, for us or for the node.
fn is_about_size(error: &RpcError) -> bool {
    matches!(
        error.origin(),
        RpcError::TooLarge { .. }
            | RpcError::LimitExceeded { limit: Limit::ResponseBytes | Limit::Time, .. }
    )
}

pub(super) fn malformed(number: u64, error: &impl ToString) -> RpcError {
    RpcError::Malformed(format!("receipts of block {number}: {}", error.to_string()))
}

/// Adds the name of the requested data to the error of a malformed answer.
fn named(error: RpcError, number: u64) -> RpcError {
    match error {
        RpcError::Malformed(words) => malformed(number, &words),
        error => error,
    }
}
