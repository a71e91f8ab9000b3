//! Fetches the transactions of blocks with logs, which prove the logs' transaction hashes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chainsieve::eth::header::{BlockRef, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;

use crate::error::FetchError;
use crate::node::{Node, ReceivedTransactions, RpcError};
use crate::nodes::once;
use crate::note::{Note, Stage};
use crate::warning::Warning;

/// Number of failed blocks in a row after which a node is not asked any more.
const FAILURES: u32 = 3;

/// Asks the nodes, one after the other, for the transactions of blocks, beginning with node
/// `first`. Those that rest come last.
///
/// `take` gets the index of a node and its answer for a block. It returns `true` if the transactions
/// are right: then no further node is asked for this block.
///
/// # Errors
/// Returns the errors of `take`.
pub(crate) fn ask<E>(
    nodes: &[Node],
    first: usize,
    blocks: &[BlockRef],
    mut take: impl FnMut(usize, BlockRef, ReceivedTransactions) -> Result<bool, E>,
) -> Result<(), E> {
    let mut left = blocks.to_vec();
    let mut in_turn: Vec<usize> = (first..nodes.len()).chain(0..first).collect();
    in_turn.sort_by_cached_key(|index| nodes[*index].rests());
    let mut turns: VecDeque<(usize, Node)> =
        in_turn.into_iter().map(|index| (index, once(nodes, &nodes[index]))).collect();
    while let Some((index, node)) = turns.pop_front() {
        let (mut right, mut failures, mut has_failed) = (BTreeSet::new(), 0, false);
        // `Err(None)` ends the requests early because the node has failed too often.
        let asked = node.transactions_of(&left, |at, received| {
            let is_silent = received.as_ref().is_err_and(|error| error.origin().is_transient());
            has_failed |= is_silent;
            failures = if is_silent { failures + 1 } else { 0 };
            if take(index, at, received).map_err(Some)? {
                right.insert(at.hash);
            }
            if failures >= FAILURES { Err(None) } else { Ok(()) }
        });
        if let Err(Some(error)) = asked {
            return Err(error);
        }
        left.retain(|at| !right.contains(&at.hash));
        if left.is_empty() {
            break;
        }
        // Failed requests are repeated after the other nodes: while one may answer, nobody waits.
        if has_failed && node.options().retries < nodes[index].options().retries {
            turns.push_back((index, nodes[index].clone()));
        }
    }
    Ok(())
}

/// Proves the transaction hashes of logs by the transactions of their blocks, which must be on the
/// chain. The logs must be in the order of the chain.
///
/// Returns a warning if some hashes could not be proven. The claims about these stay.
///
/// # Errors
/// Returns [`FetchError::Stopped`] if the operation was stopped.
pub(crate) fn prove_hashes(
    nodes: &[Node],
    chain: &LinkedHeaders,
    logs: &mut [LocatedLog],
) -> Result<Option<Warning>, FetchError> {
    let of_log = |log: &LocatedLog| BlockRef { number: log.block_number, hash: log.block_hash };
    let mut blocks: Vec<BlockRef> = logs.iter().map(of_log).collect();
    blocks.dedup();
    let total = blocks.len() as u64;
    let mut done = 0;
    // The first problem with each block that is not proven.
    let mut problems: BTreeMap<u64, (String, String)> = BTreeMap::new();
    ask(nodes, 0, &blocks, |index, at, received| {
        let node = &nodes[index];
        let problem = match received {
            Err(RpcError::Stopped) => return Err(FetchError::Stopped),
            Err(error) => error.to_string(),
            Ok(None) => "the node does not have the block".to_owned(),
            Ok(Some(transactions)) => {
                let root = chain.block(at.number).map(|block| block.transactions_root);
                let start = logs.partition_point(|log| log.block_number < at.number);
                let of_block = |log: &&mut LocatedLog| log.block_number == at.number;
                let of_block = logs[start..].iter_mut().take_while(of_block);
                match transactions.prove_hashes(root.unwrap_or_default(), of_block) {
                    Ok(()) => {
                        problems.remove(&at.number);
                        done += 1;
                        node.note(&Note::Progress { stage: Stage::Transactions, done, total });
                        return Ok(true);
                    }
                    Err(error) => error.to_string(),
                }
            }
        };
        problems.entry(at.number).or_insert_with(|| (node.name(), problem));
        Ok(false)
    })?;
    let unproven = |log: &&LocatedLog| log.transaction_hash.is_none();
    let mut blocks: Vec<u64> = logs.iter().filter(unproven).map(|log| log.block_number).collect();
    blocks.dedup();
    let Some(&first) = blocks.first() else { return Ok(None) };
    // Only a made-up block can have more receipts than transactions.
    let made_up = || (nodes[0].name(), "the block has more receipts than transactions".to_owned());
    let (node, why) = problems.into_values().next().unwrap_or_else(made_up);
    Ok(Some(Warning::UnprovenHashes { blocks: blocks.len() as u64, first, node, why }))
}
