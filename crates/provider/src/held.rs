//! How much of what nodes give is held in memory.

use chainsieve::alloy_primitives::Log;
use chainsieve::eth::receipts::BlockReceipts;

use crate::error::FetchError;
use crate::node::Node;

/// Bytes of one kind that an operation holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held(u64);

impl Held {
    /// Adds bytes of a node's answer.
    pub(crate) fn add(
        &mut self,
        node: &Node,
        what: &'static str,
        bytes: u64,
    ) -> Result<(), FetchError> {
        self.0 = self.0.saturating_add(bytes);
        let limit = node.options().max_held;
        if self.0 > limit {
            return Err(FetchError::TooMuch { node: node.name(), what, limit });
        }
        Ok(())
    }

    /// Takes off what is no longer held.
    pub(crate) fn sub(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// About as many bytes as a log takes without topics and data, with its place, and as a receipt
/// takes without logs.
const PLAIN: usize = 300;

/// Bytes that receipts take. Those without logs count, too: a node may make up any number.
pub(crate) fn bytes_of_receipts(receipts: &BlockReceipts) -> u64 {
    let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
    (PLAIN * receipts.len()) as u64 + bytes_of(logs)
}

/// Bytes that logs take, each with its place.
pub(crate) fn bytes_of<'a>(logs: impl IntoIterator<Item = &'a Log>) -> u64 {
    let of_log = |log: &Log| PLAIN + 32 * log.data.topics().len() + log.data.data.len();
    logs.into_iter().map(of_log).sum::<usize>() as u64
}
