//! Logs that are proven to be all.

use std::ops::RangeInclusive;

use chainsieve::eth::audit::{AuditReport, Examined, Undecidable, Verdict};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use thiserror::Error;

use crate::asking::Asking;
use crate::error::FetchError;
use crate::receipts::Fetched;
use crate::tip::Tip;
use crate::warning::Warning;

/// All logs of a query, each read out of receipts that have the root of their block's header.
/// `transaction_hash` is the node's word: no receipt holds it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProvenLogs {
    /// The logs, in the order of the chain.
    pub logs: Vec<LocatedLog>,
    /// The blocks that they are all the logs of.
    pub blocks: RangeInclusive<u64>,
    /// The block that everything hangs on. Unless it is an anchor of the caller's, that it is on
    /// the chain is the nodes' word.
    pub tip: Tip,
    /// The finalised block: the lowest of those that the reachable nodes name; `None` if one of
    /// them knows none.
    pub finalized: Option<BlockRef>,
    /// The number of blocks whose receipts were verified; the filters of the others rule every
    /// match out.
    pub verified: u64,
    /// What the caller should know.
    pub warnings: Vec<Warning>,
}

/// Why not all logs are proven.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LogsError {
    /// There is no chain to prove them by.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Some blocks are proven, and others are not.
    #[error("{0}")]
    Incomplete(Box<Incomplete>),
}

/// The part of a query that is proven, and the blocks that are not.
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
    /// The logs of all blocks but those missing. Where receipts of the chain do not commit to every
    /// log, those of missing blocks that receipts have are among them.
    pub proven: ProvenLogs,
    /// The blocks that may have further logs, and why that is not known.
    pub missing: Vec<(u64, Undecidable)>,
    /// Why a node could not be reached, if receipts are missing: the first time of it.
    pub unreachable: Option<FetchError>,
}

impl ProvenLogs {
    pub(crate) fn new(
        asking: &Asking,
        fetched: Fetched,
        report: &AuditReport,
        logs: Vec<LocatedLog>,
    ) -> Result<Self, LogsError> {
        let is_verified = |block: &&Examined| block.verdict == Verdict::CheckedByReceipts;
        let mut warnings = asking.warnings.clone();
        warnings.extend(fetched.warnings);
        if asking.tip.is_own && !asking.tip.is_agreed() {
            warnings.push(Warning::NotAgreed { tip: asking.tip.block });
        }
        // Of a block above the anchor anyone may have made up header and receipts.
        let unanchored = Some(Verdict::Undecidable(Undecidable::Unanchored));
        let mut logs = logs;
        logs.retain(|log| report.verdict(log.block_number) != unanchored);
        let proven = Self {
            logs,
            blocks: asking.asked.first..=asking.asked.last,
            tip: asking.tip.clone(),
            finalized: asking.asked.finalized,
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
