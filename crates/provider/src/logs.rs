//! Logs of a query, with proof that none is missing.

use std::ops::RangeInclusive;

use chainsieve::eth::audit::{AuditReport, Examined, Undecidable, Verdict};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use thiserror::Error;

use crate::error::FetchError;
use crate::fetched_answers::FetchedAnswers;
use crate::receipts::FetchedReceipts;
use crate::tip::Tip;
use crate::warning::Warning;

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
    /// The lowest of the finalised blocks that the reachable nodes name; `None` if one of these
    /// nodes knows no finalised block.
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
    "blocks {} to {}: {} of them are not proven. The first is block {}: {}{}",
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
        if answers.tip.has_no_anchor && !answers.tip.is_agreed() {
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
