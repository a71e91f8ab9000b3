//! The lines that are printed: what is followed, logs, what was removed, how far it is.

use chainsieve::eth::follow::{Config, NextBlocks, Note, Removed, Started};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::BlockSelection;
use serde_json::json;

use crate::output::{self, count, grouped};

/// What the logs of a line come from.
const EVIDENCE: &str = "receipts";

/// The first line of the JSON.
pub(super) fn of_start(
    started: &Started,
    config: &Config,
    provider: &str,
    warnings: &[String],
) -> String {
    let query = config.query.clone().in_blocks(BlockSelection::default());
    let line = json!({ "follow": {
        "chain_id": config.chain_id,
        "chain": config.profile.name(),
        "provider": provider,
        "from": started.from,
        "to": started.to,
        "resumed": started.resumed.map(|last| last.number),
        "bloom": config.profile.at(started.from).bloom,
        "anchors": started.anchors,
        "confirmations": config.confirmations,
        "keep": config.keep,
        "index_to": started.index_to,
        "query": query,
        "semantics": config.semantics,
        "warnings": warnings,
    }});
    format!("{line}\n")
}

/// What people are told at the start.
pub(super) fn note_of_start(started: &Started, config: &Config) -> String {
    let from = match started.resumed {
        Some(last) => format!("on from block {}, {}", grouped(last.number), last.hash),
        None => format!("from block {}", grouped(started.from)),
    };
    let filters = config.profile.at(started.from).bloom;
    format!("chain {}, filters {filters}, {from}", config.chain_id)
}

pub(super) fn of_removed(removed: &Removed, json: bool) -> String {
    let mut text = reorganised(removed, json);
    text.extend(removed.logs.iter().map(|log| of_log(log, json)));
    if let Some(last) = removed.last {
        text += &checkpoint(last, removed.finalized, json);
    }
    text
}

/// The lines of blocks; those before `from` only lead to it.
pub(super) fn of_blocks(blocks: &NextBlocks, from: u64, json: bool) -> String {
    let mut text: String = blocks.logs.iter().map(|log| of_log(log, json)).collect();
    if blocks.last.number >= from {
        text += &checkpoint(blocks.last, blocks.finalized, json);
    }
    text
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

fn reorganised(removed: &Removed, json: bool) -> String {
    let (ancestor, logs) = (removed.ancestor, removed.logs.len());
    if json {
        let reorg = json!({
            "ancestor": ancestor.map(|block| block.number),
            "hash": ancestor.map(|block| block.hash),
            "blocks": removed.blocks,
            "logs": logs,
        });
        return format!("{}\n", json!({ "reorg": reorg }));
    }
    let after = ancestor.map_or_else(String::new, |block| {
        format!(" after block {}, {}", grouped(block.number), block.hash)
    });
    let (blocks, logs) = (count(removed.blocks, "block"), count(logs, "log"));
    format!("reorganisation{after}: {blocks} and {logs} left the chain\n")
}

/// All up to this block is printed. For people nothing: it would be a line for each block.
fn checkpoint(at: BlockRef, finalized: Option<BlockRef>, json: bool) -> String {
    if !json {
        return String::new();
    }
    let finalized = finalized.map(|block| block.number);
    format!("{}\n", json!({ "block": at.number, "hash": at.hash, "finalized": finalized }))
}

/// An anchor was passed.
pub(super) fn of_anchor(at: BlockRef, json: bool) -> String {
    if json {
        return format!("{}\n", json!({ "anchored": at }));
    }
    format!("block {} is the anchor: all up to it are authentic if it is\n", grouped(at.number))
}

/// What people are told meanwhile.
pub(super) fn of_note(note: &Note) -> String {
    match note {
        Note::Lags { head, last } => format!(
            "its head is block {}, before block {} that it gave earlier: it lags",
            grouped(head.number),
            grouped(last.number)
        ),
        Note::Reorganization(head) => format!(
            "block {} is another now, {}: a reorganisation",
            grouped(head.number),
            head.hash
        ),
        Note::Failed { question, error, wait } => {
            format!("{question}: {error}; again in {}", output::duration(*wait))
        }
        Note::OtherMethod { at, error, method } => {
            format!("receipts of {at}: {error}; {method} gave them")
        }
        Note::NoFinality(failure) => format!("it does not say which block is final: {failure}"),
        Note::AnchorNotCompared(anchor) => {
            format!(
                "anchor {} is before the blocks that are known: it is not compared",
                anchor.hash
            )
        }
        other => format!("{other:?}"),
    }
}
