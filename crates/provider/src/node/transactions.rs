//! Requests all transactions of blocks. Not verified here.

use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::transactions::BlockTransactions;
use serde::Deserialize;
use serde_json::json;

use super::Node;
use super::calls::{Call, Caller};
use super::error::RpcError;
use crate::in_order::in_order;

/// The transactions of a block as a node gives them; `None` if it does not have the block.
pub(crate) type ReceivedTransactions = Result<Option<BlockTransactions>, RpcError>;

/// Maximum number of blocks in one request. Some hundred kilobytes each; with more, providers begin
/// to refuse the answer for its size.
const AT_A_TIME: usize = 8;

/// Returns the call for the block with this hash, with whole transactions.
pub(super) fn call(hash: B256) -> Call {
    Call::new("eth_getBlockByHash", &json!([hash, true]))
}

fn read(result: &str, hash: B256) -> ReceivedTransactions {
    #[derive(Deserialize)]
    struct Block {
        transactions: BlockTransactions,
    }
    let block: Option<Block> =
        serde_json::from_str(result).map_err(|error| malformed(hash, &error))?;
    Ok(block.map(|block| block.transactions))
}

/// Returns the error of a malformed answer to [`call`].
pub(super) fn malformed(hash: B256, error: &serde_json::Error) -> RpcError {
    RpcError::Malformed(format!("the transactions of block {hash}: {error}"))
}

impl Node {
    /// Requests all transactions of each of these blocks, several requests in parallel, and passes
    /// each result to `take` in order.
    ///
    /// # Errors
    /// Returns the errors of `take`.
    pub(crate) fn transactions_of<E>(
        &self,
        blocks: &[BlockRef],
        mut take: impl FnMut(BlockRef, ReceivedTransactions) -> Result<(), E>,
    ) -> Result<(), E> {
        let parallel = self.options().parallel;
        // Few blocks are spread over all parallel requests.
        let at_a_time = blocks.len().div_ceil(parallel).min(self.caller.batch());
        let parts = blocks.chunks(at_a_time.clamp(1, AT_A_TIME));
        let are_batches_accepted = AtomicBool::new(true);
        let work = |part| (part, self.some_transactions(part, &are_batches_accepted));
        in_order(parallel, parts, work, |(part, received): (&[BlockRef], _)| {
            part.iter().zip(received).try_for_each(|(&at, received)| take(at, received))
        })
    }

    fn some_transactions(
        &self,
        blocks: &[BlockRef],
        are_batches_accepted: &AtomicBool,
    ) -> Vec<ReceivedTransactions> {
        let calls: Vec<Call> = blocks.iter().map(|block| call(block.hash)).collect();
        let read = |at: usize, result: &str| read(result, blocks[at].hash);
        if calls.len() > 1 && are_batches_accepted.load(Ordering::Relaxed) {
            match self.caller.batch_of(&calls, read) {
                Ok(received) => return received,
                // Batches of shorter answers may still be accepted, so this is not remembered for
                // other methods.
                Err(error) if Caller::accepted(calls.len(), &error).is_some() => {
                    are_batches_accepted.store(false, Ordering::Relaxed);
                }
                Err(error) if is_silence(&error) => return vec![Err(error); calls.len()],
                // The error of one block spoils no other.
                Err(_) => {}
            }
        }
        let mut received: Vec<ReceivedTransactions> = Vec::with_capacity(calls.len());
        let (mut bytes, limit) = (0, self.caller.transport().max_body());
        for (at, call) in calls.iter().enumerate() {
            // Each further call to a silent node could take a whole timeout too.
            let silence = match received.last() {
                Some(Err(error)) if is_silence(error) => Some(error.clone()),
                _ => None,
            };
            let one = match silence {
                Some(error) => Err(error),
                // All answers together are no longer than one may be.
                None if bytes > limit => Err(RpcError::TooLarge { limit }),
                None => self.caller.call(call, |result| {
                    let transactions = read(at, result)?;
                    Ok((transactions, result.len() as u64))
                }),
            };
            received.push(one.map(|(transactions, length)| {
                bytes += length;
                transactions
            }));
        }
        received
    }
}

/// Returns `true` if the node did not answer at all, so that another request would not be answered,
/// either.
fn is_silence(error: &RpcError) -> bool {
    matches!(error.origin(), RpcError::Timeout { .. } | RpcError::Transport(_) | RpcError::Stopped)
}
