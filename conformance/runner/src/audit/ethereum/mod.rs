//! Audits of an Ethereum node: headers, receipts, filters of logs, and the answers to
//! `eth_getLogs`.
//!
//! Every block is fetched by its number and by its hash, and its receipts by each method that the
//! node serves. The logs of verified receipts then give the right answer to any query, and the
//! audit derives [queries] from these logs.

mod ask;
mod blocks;
mod chain;
mod headers;
mod logs;
mod members;
mod places;
pub mod queries;
mod receipts;

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::U64;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve_provider::{Node, RpcError};
use serde_json::json;

use self::ask::called;
use self::blocks::{Block, Blocks};
use self::chain::Chain;
use super::report::{AuditError, AuditReport, length};

/// Maximum number of blocks in a query: many providers allow no more than 100.
const WINDOW: u64 = 64;

/// Maximum size of an answer in bytes.
///
/// The longest honest answer is that about the receipts of a block that only emits empty logs: each
/// costs 375 gas and has some 400 bytes of JSON, so that a block of 60 million gas has 64 MB. A
/// longer answer is not held against a node.
const MAX_ANSWER: u64 = 64 << 20;

/// Maximum size in memory of the logs of the blocks in a query, except that one block is always
/// allowed.
const MAX_LOGS: usize = 64 << 20;

/// Returns the number of the newest block of a node.
///
/// # Errors
/// Returns an error if the node does not answer.
pub fn last_block(node: &Node) -> Result<u64, AuditError> {
    let what = "eth_blockNumber";
    let number = node.read(what, &json!([]), |number| serde_json::from_str::<U64>(number).ok());
    let number = called(what, number)?.ok_or_else(|| AuditError::Rpc {
        what: what.to_owned(),
        error: RpcError::Malformed("no number of a block".to_owned()),
    })?;
    Ok(number.to())
}

/// Audits the headers, receipts and logs of a range of blocks. `progress` gets the number of blocks
/// so far.
///
/// The node itself vouches for the hash of the first block. Geth's and alloy's rules for "any" at
/// the end of a query differ, and the audit accepts either, but not both in one node.
///
/// The rules are those of the [profile](ChainProfile::of_chain_id) of the chain id that the node
/// names. Networks with the ids 1337 and 31337, which test nodes make up, follow Ethereum's rules.
/// On other chains, only what holds everywhere is held against a node: see [`audit_node_of`].
///
/// # Errors
/// Returns an error if the node does not answer, or lacks a block of the range. If that happens after
/// a difference was found, the report has the difference, and a note has the error.
pub fn audit_node(
    node: &Node,
    range: RangeInclusive<u64>,
    progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    audit(node, None, range, progress)
}

/// Does the same as [`audit_node`], with a profile of the chain that the caller states.
///
/// # Errors
/// Returns the same errors as [`audit_node`].
pub fn audit_node_of(
    node: &Node,
    profile: &ChainProfile,
    range: RangeInclusive<u64>,
    progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    audit(node, Some(profile), range, progress)
}

fn audit(
    node: &Node,
    profile: Option<&ChainProfile>,
    range: RangeInclusive<u64>,
    mut progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    length(&range)?;
    let node = &node.with_max_answer(MAX_ANSWER);
    let mut report = AuditReport::new(&range);
    let chain = Chain::of(node, profile, &mut report)?;
    let mut semantics = logs::Observed::default();
    let examined = examine(node, &chain, &range, &mut semantics, &mut report, &mut progress);
    if let Err(error) = examined {
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
    chain: &Chain,
    range: &RangeInclusive<u64>,
    semantics: &mut logs::Observed,
    report: &mut AuditReport,
    progress: &mut impl FnMut(u64),
) -> Result<(), AuditError> {
    let count = length(range)?;
    let mut blocks = Blocks::new(node, chain);
    let mut first = *range.start();
    while report.blocks < count && !report.is_full() {
        let last = first.saturating_add(WINDOW - 1).min(*range.end());
        let (mut window, mut size) = (Vec::new(), 0);
        for number in first..=last {
            let block = blocks.audit(number, report)?;
            report.blocks += 1;
            let is_gap = block.is_none();
            size += block.as_ref().map_or(0, Block::size);
            window.extend(block);
            // A block whose logs are not known cannot be part of a range of a query.
            if is_gap || size > MAX_LOGS {
                logs::audit(node, &std::mem::take(&mut window), semantics, report)?;
                size = 0;
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
