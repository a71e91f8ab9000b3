//! Counts the bytes of nodes' answers that are held in memory, and enforces a limit.

use chainsieve::alloy_primitives::Log;
use chainsieve::eth::receipts::BlockReceipts;

use crate::error::FetchError;
use crate::node::Node;

/// Number of bytes of one kind of data that an operation holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held(u64);

impl Held {
    /// Adds bytes of a node's answer. Returns an error if the node's limit is exceeded.
    pub(crate) fn add(
        &mut self,
        node: &Node,
        what: &'static str,
        bytes: u64,
    ) -> Result<(), FetchError> {
        self.0 = self.0.saturating_add(bytes);
        let limit = node.options().max_held;
        // Without the limit, a node could fill the memory with invented answers.
        if self.0 > limit {
            return Err(FetchError::TooMuch { node: node.name(), what, limit });
        }
        Ok(())
    }

    /// Subtracts bytes that are no longer held.
    pub(crate) fn sub(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// Approximate number of bytes of a located log without topics and data, and of a receipt without
/// logs. An estimate of the fixed fields: if these fields were not counted, a node could send any
/// number of empty logs and receipts at no cost.
const PLAIN: usize = 300;

/// Estimates the bytes that receipts take in memory. Receipts without logs are included, because a
/// node may invent any number of them.
pub(crate) fn bytes_of_receipts(receipts: &BlockReceipts) -> u64 {
    let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
    (PLAIN * receipts.len()) as u64 + bytes_of(logs)
}

/// Estimates the bytes that located logs take in memory.
pub(crate) fn bytes_of<'a>(logs: impl IntoIterator<Item = &'a Log>) -> u64 {
    let of_log = |log: &Log| PLAIN + 32 * log.data.topics().len() + log.data.data.len();
    logs.into_iter().map(of_log).sum::<usize>() as u64
}
