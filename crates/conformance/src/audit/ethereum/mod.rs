//! Audits of an Ethereum node: headers, receipts, filters of logs, and the answers to
//! `eth_getLogs`.
//!
//! Every block is fetched by its number and by its hash, and its receipts by each method that the
//! node serves. The logs of verified receipts then give the right answer to any query, and the
//! audit derives [queries] from these logs.

mod blocks;
mod logs;
pub mod queries;

use std::ops::RangeInclusive;

use chainsieve_provider::Node;

use self::blocks::Blocks;
use super::report::{AuditError, AuditReport, length};

/// Maximum number of blocks in a query: many providers allow no more than 100.
const WINDOW: u64 = 64;

/// Audits the headers, receipts and logs of a range of blocks. `progress` gets the number of blocks
/// so far.
///
/// The node itself vouches for the hash of the first block. Geth's and alloy's rules for "any" at
/// the end of a query differ, and the audit accepts either, but not both in one node.
///
/// # Errors
/// Returns an error if the node does not answer, or lacks a block of the range. If that happens after
/// a difference was found, the report has the difference, and a note has the error.
pub fn audit_node(
    node: &Node,
    range: RangeInclusive<u64>,
    mut progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    length(&range)?;
    let mut report = AuditReport::new(&range);
    let mut semantics = logs::Observed::default();
    if let Err(error) = examine(node, &range, &mut semantics, &mut report, &mut progress) {
        // What is proven already stays proven.
        if report.differences.is_empty() || matches!(error, AuditError::Stopped) {
            return Err(error);
        }
        report.note(format!("the audit ended early: {error}"));
    }
    semantics.report(&mut report);
    Ok(report)
}

fn examine(
    node: &Node,
    range: &RangeInclusive<u64>,
    semantics: &mut logs::Observed,
    report: &mut AuditReport,
    progress: &mut impl FnMut(u64),
) -> Result<(), AuditError> {
    let count = length(range)?;
    let mut blocks = Blocks::new(node);
    let mut first = *range.start();
    while report.blocks < count && !report.is_full() {
        let last = first.saturating_add(WINDOW - 1).min(*range.end());
        let mut window = Vec::new();
        for number in first..=last {
            let block = blocks.audit(number, report)?;
            report.blocks += 1;
            if let Some(block) = block {
                window.push(block);
            } else {
                // A block whose logs are not known cannot be part of a range of a query.
                logs::audit(node, &std::mem::take(&mut window), semantics, report)?;
            }
            progress(report.blocks);
            if report.is_full() {
                break;
            }
        }
        logs::audit(node, &window, semantics, report)?;
        first = last.saturating_add(1);
    }
    Ok(())
}
