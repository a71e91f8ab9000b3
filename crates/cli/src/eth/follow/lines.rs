//! The lines that are printed: logs, what was removed, how far it is.

use chainsieve::eth::log::LocatedLog;
use serde_json::{Value, json};

use super::blocks::Point;
use super::machine::Machine;
use super::messages::Batch;
use crate::output::{count, grouped};

/// What the logs of a line come from.
const EVIDENCE: &str = "receipts";

/// The lines of a batch, and how many of them are logs.
pub(super) fn of_batch(machine: &Machine, batch: Batch, json: bool) -> (String, u64) {
    let mut text = String::new();
    let mut logs = 0;
    let from = machine.rules().from;
    match batch {
        Batch::Reorg => {
            let Some(reorg) = machine.pending_reorg() else { return (text, logs) };
            logs = reorg.removed.iter().map(|block| block.logs().len() as u64).sum();
            text += &reorganised(reorg.ancestor, reorg.removed.len(), logs, json);
            for log in reorg.removed.iter().flat_map(|block| block.logs().iter().rev()) {
                let removed = LocatedLog { removed: true, ..log.clone() };
                text += &of_log(&removed, json);
            }
            // The ancestor, or below: of what a killed process printed, not all may be out.
            let last = machine.blocks().last_printed();
            if let Some(last) = last.filter(|last| last.number >= from) {
                text += &checkpoint(last, machine.finalized(), json);
            }
        }
        Batch::Blocks(count) => {
            let mut last = None;
            for block in machine.blocks().pending().take(count) {
                last = Some(block.at);
                for log in block.logs() {
                    logs += 1;
                    text += &of_log(log, json);
                }
            }
            if let Some(last) = last.filter(|last| last.number >= from) {
                text += &checkpoint(last, machine.finalized(), json);
            }
        }
    }
    (text, logs)
}

fn of_log(log: &LocatedLog, json: bool) -> String {
    if json {
        let mut text = log.to_json();
        // It ends with the brace of the object.
        text.pop();
        return format!("{text},\"evidence\":\"{EVIDENCE}\"}}\n");
    }
    let removed = if log.removed { "removed  " } else { "" };
    let topics = log.log.topics();
    let topic = topics.first().map_or_else(|| "no topic".into(), ToString::to_string);
    let more = topics.len().saturating_sub(1);
    let transaction =
        log.transaction_hash.map_or_else(|| "?".into(), |transaction| transaction.to_string());
    format!(
        "{removed}{:<11}  log {:<4}  {}  {topic}{}  {}  transaction {transaction}\n",
        grouped(log.block_number),
        log.log_index,
        log.log.address,
        if more == 0 { String::new() } else { format!(" and {}", count(more, "topic")) },
        count(log.log.data.data.len(), "byte"),
    )
}

fn reorganised(ancestor: Option<Point>, blocks: usize, logs: u64, json: bool) -> String {
    if json {
        let reorg = json!({
            "ancestor": ancestor.map(|point| point.number),
            "hash": ancestor.map(|point| point.hash),
            "blocks": blocks,
            "logs": logs,
        });
        return format!("{}\n", json!({ "reorg": reorg }));
    }
    let behind = ancestor.map_or_else(String::new, |point| {
        format!(" behind block {}, {}", grouped(point.number), point.hash)
    });
    let logs = count(usize::try_from(logs).unwrap_or(usize::MAX), "log");
    format!("reorganisation{behind}: {} and {logs} left the chain\n", count(blocks, "block"))
}

/// All up to this block is out. For people nothing: it would be a line for each block.
fn checkpoint(at: Point, finalized: Option<Point>, json: bool) -> String {
    if !json {
        return String::new();
    }
    let finalized = finalized.map(|point| point.number);
    format!("{}\n", json!({ "block": at.number, "hash": at.hash, "finalized": finalized }))
}

/// An anchor was passed.
pub(super) fn anchored(at: Point, json: bool) -> String {
    if json {
        let anchored: Value = json!({ "number": at.number, "hash": at.hash });
        return format!("{}\n", json!({ "anchored": anchored }));
    }
    format!("block {} is the anchor: all up to it are authentic if it is\n", grouped(at.number))
}
