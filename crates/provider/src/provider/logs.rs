//! Logs of a query, with proof that none is missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use chainsieve::eth::audit::{AuditReport, Examined, Undecidable, Verdict};
use chainsieve::eth::header::{BlockRef, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use thiserror::Error;

use super::audit::{FetchedAnswers, FetchedReceipts};
use crate::anchor::{Tip, Trust};
use crate::error::FetchError;
use crate::nodes::ask::once;
use crate::nodes::{Node, ReceivedTransactions, RpcError};
use crate::report::{Note, Stage, Warning};

/// All logs of a query, read from receipts that match the receipts root of their block's header.
///
/// Each field of a log is proven, if the tip is on the chain. `transaction_hash` is proven by the
/// transactions root of the block, or `None`: then no node returned the right transactions, a
/// [warning](Warning::UnprovenHashes) says so, and `claimed_transaction_hash` has the node's claim.
/// See [`without_transaction_hashes`](crate::Builder::without_transaction_hashes).
///
/// `serde` writes all fields, but can't read them: a stored result proves nothing by itself.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct ProvenLogs {
    /// The logs, in the order of the chain.
    pub logs: Vec<LocatedLog>,
    /// The range of blocks for which the logs are complete.
    pub blocks: RangeInclusive<u64>,
    /// The block that the proof depends on. If this block is not an anchor of the caller, only the
    /// nodes vouch that the block is on the chain.
    pub tip: Tip,
    /// The lowest of the finalised blocks that the reachable nodes name; `None` if at least one of
    /// these nodes knows no finalised block.
    pub finalized: Option<BlockRef>,
    /// Number of blocks whose receipts were verified. The filters of all other blocks rule every
    /// match out.
    pub verified: u64,
    /// Warnings about the reliability of the result.
    pub warnings: Vec<Warning>,
}

/// Reason why the logs of a query could not be proven complete.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LogsError {
    /// The query could not be resolved, its headers could not be fetched, or a limit was exceeded.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Some blocks are not proven.
    #[error("{0}")]
    Incomplete(Box<Incomplete>),
}

/// The proven part of a query's result, and the blocks that are not proven.
#[derive(Debug, Clone, Error)]
#[error(
    "blocks {} to {}: {} of these blocks are not proven. The first such block is block {}: {}{}",
    .proven.blocks.start(), .proven.blocks.end(), .missing.len(),
    .missing.first().map_or_else(String::new, |(block, _)| block.to_string()),
    .missing.first().map_or(Undecidable::ReceiptsNotSupplied, |(_, why)| *why),
    .unreachable.as_ref().map_or_else(String::new, |error| format!(": {error}"))
)]
#[non_exhaustive]
pub struct Incomplete {
    /// All logs of the blocks that are not listed in `missing`. On a chain whose receipts do not
    /// commit to every log, the logs that were found in receipts of the listed blocks are included
    /// too.
    pub proven: ProvenLogs,
    /// Numbers of the blocks that may contain further logs, each with the reason.
    pub missing: Vec<(u64, Undecidable)>,
    /// The first error of an unreachable node; `None` if no receipts are missing.
    pub unreachable: Option<FetchError>,
}

/// Drops the logs of blocks above the anchor: there, a node may have invented headers and receipts.
pub(crate) fn drop_unanchored(logs: &mut Vec<LocatedLog>, report: &AuditReport) {
    let unanchored = Some(Verdict::Undecidable(Undecidable::Unanchored));
    logs.retain(|log| report.verdict(log.block_number) != unanchored);
}

impl ProvenLogs {
    /// `hashes` is a warning about transaction hashes.
    pub(crate) fn new(
        answers: &FetchedAnswers,
        fetched: FetchedReceipts,
        report: &AuditReport,
        logs: Vec<LocatedLog>,
        hashes: Option<Warning>,
    ) -> Result<Self, LogsError> {
        let is_verified = |block: &&Examined| block.verdict == Verdict::CheckedByReceipts;
        let mut warnings = answers.warnings.clone();
        warnings.extend(fetched.warnings);
        warnings.extend(hashes);
        // Without an anchor of the caller, only one node vouches for the tip, so the caller must be
        // warned if other nodes have a different block. An anchor needs no agreement of the nodes.
        if answers.tip.trust == Trust::NoAnchor && !answers.tip.is_agreed() {
            warnings.push(Warning::NotAgreed { tip: answers.tip.block });
        }
        let proven = Self {
            logs,
            blocks: answers.query.first..=answers.query.last,
            tip: answers.tip.clone(),
            finalized: answers.query.finalized,
            verified: report.examined().iter().filter(is_verified).count() as u64,
            warnings,
        };
        let missing: Vec<_> = report.undecided().collect();
        if missing.is_empty() {
            return Ok(proven);
        }
        let unreachable = fetched.unreachable;
        Err(LogsError::Incomplete(Box::new(Incomplete { proven, missing, unreachable })))
    }
}

/// Number of consecutive failed blocks after which a node is no longer asked.
const FAILURES: u32 = 3;

/// Asks the nodes, one after the other, for the transactions of blocks, beginning with node
/// `first`. Nodes that rest come last.
///
/// `take` gets the index of a node and its answer for a block. It returns `true` if the transactions
/// are right: then no further node is asked for this block.
///
/// # Errors
/// Returns the errors of `take`.
pub(crate) fn ask_transactions<E>(
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
/// Returns a warning if some hashes could not be proven. The claims about these hashes stay.
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
    ask_transactions(nodes, 0, &blocks, |index, at, received| {
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
