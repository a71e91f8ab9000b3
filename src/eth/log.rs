//! A log with its place in the chain, as `eth_getLogs` returns it.

use alloy_primitives::{B256, Log};

/// A log and what its source says of its place. Nothing of it is verified by being here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedLog {
    /// Address, topics and data.
    pub log: Log,
    /// Number of the block.
    pub block_number: u64,
    /// Hash of the block: what a log belongs to, whatever the number says.
    pub block_hash: B256,
    /// The block's timestamp in seconds, where the source gives it.
    pub block_timestamp: Option<u64>,
    /// Hash of the transaction, where the source gives it.
    pub transaction_hash: Option<B256>,
    /// Index of the transaction, and of its receipt, in the block.
    pub transaction_index: u64,
    /// Index of the log in the block, counted over all its receipts.
    pub log_index: u64,
    /// Whether the source says that a reorganisation took the block off the chain.
    pub removed: bool,
}
