//! The lines that `eth follow` prints: the start, logs, reorganisations, anchors, positions.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::follow::{Config, NextBlocks, Removed, Started};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::BlockSelection;
use chainsieve_provider::{Argument, DecodedEvent, EventDecoder, EventDecoderError};
use chainsieve_report::{count, grouped, json_line, printable_json};
use serde_json::{Value, json};

/// Value of the member `evidence` of a log; all logs are read from verified receipts.
const EVIDENCE: &str = "receipts";

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Format {
    /// Text for people.
    #[default]
    Text,
    Json,
    Csv,
}

/// Formats lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) format: Format,
    /// The events by which logs are decoded, if `--abi` is given.
    pub(super) events: Option<EventDecoder>,
}

/// The CSV header line. The last two columns are empty if a log is not decoded.
pub(super) const COLUMNS: &str = "block_number,block_hash,transaction_index,transaction_hash,log_index,removed,\
                       address,topic0,topic1,topic2,topic3,data,claimed_transaction_hash,event,\
                       arguments\r\n";

impl Lines {
    fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(super) fn of_removed(&self, removed: &Removed) -> String {
        let mut text = match self.format {
            Format::Csv => String::new(),
            _ => reorganised(removed, self.is_json()),
        };
        text.extend(removed.logs.iter().map(|log| self.of_log(log)));
        if let Some(last) = removed.last {
            text += &self.checkpoint(last, removed.finalized);
        }
        text
    }

    /// Returns the lines of blocks; blocks before `from` only link the chain and get no position
    /// line.
    pub(super) fn of_blocks(&self, blocks: &NextBlocks, from: u64) -> String {
        let mut text: String = blocks.logs.iter().map(|log| self.of_log(log)).collect();
        if blocks.last.number >= from {
            text += &self.checkpoint(blocks.last, blocks.finalized);
        }
        text
    }

    /// Returns the line for an anchor that the chain contains.
    pub(super) fn of_anchor(&self, at: BlockRef) -> String {
        match self.format {
            Format::Json => json_line("anchor", json!(at)),
            Format::Text => format!(
                "block {} is the anchor: all blocks up to it are authentic if the anchor is\n",
                grouped(at.number)
            ),
            Format::Csv => String::new(),
        }
    }

    /// Returns the position line of a block: everything up to this block is printed. Text contains
    /// no position lines, because there would be one for each block.
    fn checkpoint(&self, at: BlockRef, finalized: Option<BlockRef>) -> String {
        if !self.is_json() {
            return String::new();
        }
        let finalized = finalized.map(|block| block.number);
        let members = json!({ "block": at.number, "hash": at.hash, "finalized": finalized });
        json_line("checkpoint", members)
    }

    fn of_log(&self, log: &LocatedLog) -> String {
        let decoded = self.events.as_ref().map(|events| events.decode(&log.log)).transpose();
        let decoded = decoded.map(Option::flatten);
        match self.format {
            Format::Json => json_of(log, &decoded),
            Format::Csv => csv_of(log, decoded.ok().flatten().as_ref()),
            Format::Text => text_of(log, decoded.ok().flatten().as_ref()),
        }
    }
}

/// Returns the CSV line of a log.
fn csv_of(log: &LocatedLog, decoded: Option<&DecodedEvent<'_>>) -> String {
    let topic = |at: usize| log.log.topics().get(at).map_or(String::new(), B256::to_string);
    let hash = |hash: Option<B256>| hash.map_or(String::new(), |hash| hash.to_string());
    let (proven, claimed) = (hash(log.transaction_hash), hash(log.claimed_transaction_hash));
    let event = decoded.map_or("", |decoded| &decoded.event.name);
    let arguments = decoded.map_or_else(String::new, |decoded| {
        printable_json(decoded.to_json()["arguments"].to_string())
    });
    format!(
        "{},{},{},{proven},{},{},{},{},{},{},{},{},{claimed},{},{}\r\n",
        log.block_number,
        log.block_hash,
        log.transaction_index,
        log.log_index,
        log.removed,
        log.log.address,
        topic(0),
        topic(1),
        topic(2),
        topic(3),
        log.log.data.data,
        quoted(event),
        quoted(&arguments),
    )
}

type Decoded<'a> = Result<Option<DecodedEvent<'a>>, EventDecoderError>;

fn json_of(log: &LocatedLog, decoded: &Decoded<'_>) -> String {
    // The log is a JSON object that is not empty. The braces around the members of the log are
    // removed.
    let log = log.to_json();
    let members = log.strip_prefix('{').and_then(|log| log.strip_suffix('}')).unwrap_or(&log);
    let decoded = match decoded {
        Ok(None) => String::new(),
        Ok(Some(decoded)) => format!(",\"decoded\":{}", decoded.to_json()),
        Err(error) => format!(",\"undecoded\":{}", json!(error.to_string())),
    };
    printable_json(format!("{{\"kind\":\"log\",{members},\"evidence\":\"{EVIDENCE}\"{decoded}}}\n"))
}

fn text_of(log: &LocatedLog, decoded: Option<&DecodedEvent<'_>>) -> String {
    let removed = if log.removed { "removed  " } else { "" };
    let topics = log.log.topics();
    let what = if let Some(decoded) = decoded {
        let arguments = decoded.arguments.iter();
        let arguments = arguments.map(|it| format!("{} {}", it.name, shown(it)));
        let arguments: Vec<String> = arguments.collect();
        format!("{}({})", decoded.event.name, arguments.join(", "))
    } else {
        let topic = topics.first().map_or_else(|| "no topic".into(), ToString::to_string);
        let more = match topics.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" and {}", count(more, "topic")),
        };
        format!("{topic}{more}  {}", count(log.log.data.data.len(), "byte"))
    };
    let transaction = match (log.transaction_hash, log.claimed_transaction_hash) {
        (Some(proven), _) => proven.to_string(),
        (None, Some(claimed)) => format!("{claimed}, not proven"),
        (None, None) => "?".to_owned(),
    };
    format!(
        "{removed}{:<11}  log {:<4}  {}  {what}  transaction {transaction}\n",
        grouped(log.block_number),
        log.log_index,
        log.log.address,
    )
}

/// Formats an argument for people. A string is quoted, because a contract can write any text into
/// it, including line breaks.
fn shown(argument: &Argument<'_>) -> String {
    match argument.to_json() {
        Value::String(text) if argument.solidity_type == "string" => format!("{text:?}"),
        Value::String(text) => text,
        value => printable_json(value.to_string()),
    }
}

/// Returns a CSV field, quoted if necessary (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

/// Returns the first JSON line.
pub(super) fn of_start(
    started: &Started,
    config: &Config,
    provider: &str,
    light_client: &Value,
    warnings: &[String],
) -> String {
    let query = config.query.clone().in_blocks(BlockSelection::default());
    let members = json!({
        "chain_id": config.chain_id,
        "chain": config.profile.name(),
        "provider": provider,
        "from": started.from,
        "to": started.to,
        "resumed": started.resumed.map(|last| last.number),
        "bloom": config.profile.at(started.from).bloom,
        "anchors": started.anchors,
        "light_client": light_client,
        "confirmations": config.confirmations,
        "keep": config.keep,
        "index_to": started.index_to,
        "query": query,
        "semantics": config.semantics,
        "warnings": warnings,
    });
    json_line("follow", members)
}

/// Returns the note that is printed for people at the start.
pub(super) fn note_of_start(started: &Started, config: &Config) -> String {
    let from = match started.resumed {
        Some(last) => format!("continuing after block {}, {}", grouped(last.number), last.hash),
        None => format!("from block {}", grouped(started.from)),
    };
    let filters = config.profile.at(started.from).bloom;
    format!("chain {}, filters {filters}, {from}", config.chain_id)
}

fn reorganised(removed: &Removed, json: bool) -> String {
    let (ancestor, logs) = (removed.ancestor, removed.logs.len());
    if json {
        let members = json!({
            "ancestor": ancestor.map(|block| block.number),
            "hash": ancestor.map(|block| block.hash),
            "blocks": removed.blocks,
            "logs": logs,
        });
        return json_line("reorg", members);
    }
    let after = ancestor.map_or_else(String::new, |block| {
        format!(" after block {}, {}", grouped(block.number), block.hash)
    });
    let (blocks, logs) = (count(removed.blocks, "block"), count(logs, "log"));
    format!("reorganisation{after}: {blocks} and {logs} were removed from the chain\n")
}
