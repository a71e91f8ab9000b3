//! The log query of every `eth` command that takes one: its flags, and how it is read from them or from a file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::{Address, B256};
use chainsieve::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics, event_topic};
use chainsieve_report::args::{self, Choice, choice};
use chainsieve_report::{Exit, Reader, UsageError, excerpt, named, shorten};
use clap::Args;
use serde_json::value::RawValue;

/// The log query, as flags or as the filter object of `eth_getLogs`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which logs")]
pub(crate) struct QueryArgs {
    /// Logs of this contract; may be given again; @FILE reads a file with one address per line
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Vec<String>,
    /// Logs of this event, as Transfer(address,address,uint256) or as a Solidity declaration
    ///
    /// May be given again
    #[arg(long, value_name = "SIGNATURE")]
    pub(crate) event: Vec<String>,
    /// Logs with this first topic: 32 bytes, address:0x…, any or @FILE
    ///
    /// address:0x… is an address padded to 32 bytes. May be given again. The first topic of an event is
    /// the hash of its signature
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic0: Vec<String>,
    /// Logs with this second topic: the first indexed argument of an event
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic1: Vec<String>,
    /// Logs with this third topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic2: Vec<String>,
    /// Logs with this fourth topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic3: Vec<String>,
    /// The filter object of eth_getLogs, in a file, or - for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["address", "event", "topic0", "topic1", "topic2", "topic3"]
    )]
    pub(crate) query: Option<PathBuf>,
    /// The first block of the range
    ///
    /// [default: fromBlock of --query, or the first header]
    #[arg(long, value_name = "BLOCK", value_parser = block_number)]
    pub(crate) from: Option<u64>,
    /// The last block of the range
    ///
    /// [default: toBlock of --query, or the last header]
    #[arg(long, value_name = "BLOCK", value_parser = block_number)]
    pub(crate) to: Option<u64>,
    /// The rules to apply where nodes differ: for topics [A, null], geth requires two topics in a
    /// log, alloy only one
    #[arg(long, value_parser = choice(&SEMANTICS), default_value = "geth", hide_short_help = true)]
    pub(crate) semantics: Semantics,
}

/// Possible values of `--semantics`.
const SEMANTICS: [Choice<Semantics>; 2] =
    [("geth", Semantics::Geth, "go-ethereum"), ("alloy", Semantics::Alloy, "alloy and reth")];

fn not_a_number() -> String {
    String::from("not a block number")
}

/// Parses a block number: `17686111`, `17,686,111`, `1e6` or `0x10dde5f`.
pub(crate) fn block_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => return args::number(text).ok_or_else(not_a_number),
    };
    parsed.map_err(|_| not_a_number())
}

/// Parses a topic of the command line; returns `None` for `any`.
pub(crate) fn topic(text: &str) -> anyhow::Result<Option<B256>> {
    if text == "any" {
        return Ok(None);
    }
    if let Some(address) = text.strip_prefix("address:") {
        return Ok(Some(self::address(address)?.into_word()));
    }
    let bytes = bytes(text)?;
    match bytes.len() {
        32 => Ok(Some(B256::from_slice(&bytes))),
        20 => bail!("20 bytes, but a topic has 32: for an indexed address, write address:{text}"),
        length => bail!("{length} bytes, but a topic has 32"),
    }
}

/// Parses an address. Mixed-case hex must be a valid checksum (EIP-55).
pub(crate) fn address(text: &str) -> anyhow::Result<Address> {
    let bytes = bytes(text)?;
    match bytes.len() {
        20 => {}
        32 => bail!("32 bytes, but an address has 20: is it a topic?"),
        length => bail!("{length} bytes, but an address has 20"),
    }
    let mixed = text.bytes().any(|byte| byte.is_ascii_lowercase() && byte != b'x')
        && text.bytes().any(|byte| byte.is_ascii_uppercase());
    let address = Address::from_slice(&bytes);
    if mixed && address.to_checksum(None)[2..] != text[text.len() - 40..] {
        bail!("invalid EIP-55 checksum: at least one digit is wrong");
    }
    Ok(address)
}

fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    chainsieve_report::decode_hex(text.strip_prefix("0x").unwrap_or(text))
}

/// Parses a block hash.
pub(crate) fn hash(text: &str) -> Result<B256, String> {
    let bytes = bytes(text).map_err(|error| format!("{error:#}"))?;
    B256::try_from(bytes.as_slice())
        .map_err(|_| format!("{} bytes, but a hash has 32", bytes.len()))
}

/// Reads the query of a command whose other arguments `others` may be standard input.
pub(crate) fn of_args<'a>(
    args: &'a QueryArgs,
    others: impl IntoIterator<Item = &'a OsStr>,
) -> anyhow::Result<LogQuery> {
    read(args, &stdin_once(args, others)?)
}

/// Reads the query. `--from` and `--to` override the range of `--query`.
pub(crate) fn read(args: &QueryArgs, reader: &Reader) -> anyhow::Result<LogQuery> {
    let mut query = match &args.query {
        Some(path) => {
            let text = reader.text(path)?;
            let named = || format!("query, {}", named(path));
            let query = LogQuery::from_json(&text, args.semantics).with_context(named)?;
            known_fields(&text).with_context(named)?;
            query
        }
        None => from_flags(args, reader)?,
    };
    if (args.from.is_some() || args.to.is_some()) && is_at_hash(&query) {
        bail!(UsageError("--from and --to cannot be used with a query for one blockHash"));
    }
    if let Some(from) = args.from {
        query = query.from_block(from);
    }
    if let Some(to) = args.to {
        query = query.to_block(to);
    }
    if let (Some(from), Some(to)) = bounds(&query)
        && from > to
    {
        if args.from.is_some() && args.to.is_some() {
            bail!(UsageError("--from is a later block than --to"));
        }
        bail!("the range begins at block {from} and ends before it, at {to}");
    }
    Ok(query)
}

/// Returns an error if no first block is given with `--rpc`: `eth_getLogs` without `fromBlock`
/// searches only the newest block.
pub(crate) fn require_from(args: &QueryArgs) -> Result<(), UsageError> {
    if args.query.is_none() && args.from.is_none() {
        return Err(UsageError("--from is missing: with --rpc, give the first block of the range"));
    }
    Ok(())
}

/// The fields of the object that `eth_getLogs` takes.
const FIELDS: [&str; 5] = ["address", "topics", "fromBlock", "toBlock", "blockHash"];

/// Rejects unknown fields. Nodes ignore unknown fields, so a misspelt name, or a whole JSON-RPC
/// request in place of its filter object, would request every log.
fn known_fields(query: &str) -> anyhow::Result<()> {
    let query = query.trim_start_matches('\u{feff}');
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(query)?;
    match fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        Some(field) => bail!(
            "unknown field {:?}: the filter object of eth_getLogs has the fields {}",
            excerpt(field),
            FIELDS.join(", ")
        ),
        None => Ok(()),
    }
}

fn is_at_hash(query: &LogQuery) -> bool {
    matches!(query.blocks(), BlockSelection::AtHash(_))
}

fn from_flags(args: &QueryArgs, reader: &Reader) -> anyhow::Result<LogQuery> {
    let addresses: Vec<Address> = each(&args.address, "--address", reader, address)?;
    let mut query = LogQuery::new().addresses(addresses);
    let mut topics: Vec<Option<Vec<B256>>> = vec![
        topic_set(&args.topic0, "--topic0", reader)?,
        topic_set(&args.topic1, "--topic1", reader)?,
        topic_set(&args.topic2, "--topic2", reader)?,
        topic_set(&args.topic3, "--topic3", reader)?,
    ];
    for signature in &args.event {
        let hash = event_topic(signature)
            .with_context(|| format!("--event {}", shorten(signature)))
            .map_err(|error| Exit::Usage.error(error))?;
        topics[0].get_or_insert_default().push(hash);
    }
    // The query ends with the last topic position that has a flag.
    while topics.pop_if(|topics| topics.is_none()).is_some() {}
    for (position, topics) in topics.into_iter().enumerate() {
        let topics = topics.unwrap_or_default();
        query = match position {
            0 => query.topic0(topics),
            1 => query.topic1(topics),
            2 => query.topic2(topics),
            _ => query.topic3(topics),
        };
    }
    Ok(query)
}

/// Returns the topics of a position: `None` if none was given, an empty list for `any`.
fn topic_set(
    given: &[String],
    flag: &'static str,
    reader: &Reader,
) -> anyhow::Result<Option<Vec<B256>>> {
    if given.is_empty() {
        return Ok(None);
    }
    let topics = each(given, flag, reader, topic)?;
    // If `any` is one of the topics of a position, the position matches any topic.
    Ok(Some(topics.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default()))
}

/// Reads the values of a flag; `@FILE` reads the values from a file, one per line.
fn each<T>(
    given: &[String],
    flag: &'static str,
    reader: &Reader,
    read: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut values = Vec::new();
    for argument in given {
        let Some(path) = argument.strip_prefix('@') else {
            let value = read(argument).with_context(|| format!("{flag} {}", shorten(argument)));
            values.push(value.map_err(|error| Exit::Usage.error(error))?);
            continue;
        };
        let text = reader.text(Path::new(path)).context(flag)?;
        let before = values.len();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let value = read(line);
                values.push(value.with_context(|| format!("{flag} {path}, line {number}"))?);
            }
        }
        anyhow::ensure!(values.len() > before, "{flag} {path}: the file contains no values");
    }
    Ok(values)
}

/// Returns the block numbers at the two ends of a query's range; `None` for a tag or an open end.
pub(crate) fn bounds(query: &LogQuery) -> (Option<u64>, Option<u64>) {
    let number = |tag: Option<BlockTag>| match tag {
        Some(BlockTag::Number(number)) => Some(number),
        _ => None,
    };
    match *query.blocks() {
        BlockSelection::Range { from, to } => (number(from), number(to)),
        BlockSelection::AtHash(_) => (None, None),
    }
}

/// Checks that headers from a first to a last block cover a range.
pub(crate) fn check_coverage(
    (first, last): (u64, u64),
    (from, to): (Option<u64>, Option<u64>),
) -> anyhow::Result<()> {
    if let Some(from) = from.filter(|&from| from < first) {
        bail!("the headers begin at block {first}, but the range begins at block {from}");
    }
    if let Some(to) = to.filter(|&to| to > last) {
        bail!("the headers end at block {last}, but the range ends at block {to}");
    }
    Ok(())
}

/// Checks that at most one argument is standard input.
pub(crate) fn stdin_once<'a>(
    args: &'a QueryArgs,
    others: impl IntoIterator<Item = &'a OsStr>,
) -> Result<Reader, UsageError> {
    let lists = [&args.address, &args.topic0, &args.topic1, &args.topic2, &args.topic3];
    let listed = lists.into_iter().flatten().filter_map(|value| value.strip_prefix('@'));
    let query = args.query.as_deref().map(AsRef::as_ref);
    Reader::of(query.into_iter().chain(listed.map(OsStr::new)).chain(others))
}

/// Returns the names and values of a query's clauses, in the order of the compiled query.
pub(crate) fn clauses(query: &LogQuery) -> Vec<(String, Vec<String>)> {
    let mut clauses = Vec::new();
    if !query.address_set().is_empty() {
        let addresses = query.address_set().iter().map(ToString::to_string).collect();
        clauses.push(("addresses".into(), addresses));
    }
    for (position, topics) in query.topics().iter().enumerate() {
        if !topics.is_any() {
            let values = topics.values().iter().map(ToString::to_string).collect();
            clauses.push((format!("topic{position}"), values));
        }
    }
    clauses
}

#[cfg(test)]
mod tests {
    use super::address as address_of;
    use super::*;

    #[test]
    fn topics_are_padded_only_where_it_is_said() {
        let address = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
        let padded = topic(&format!("address:{address}")).unwrap().unwrap();
        assert!(padded[..12].iter().all(|&byte| byte == 0));
        assert_eq!(hex::encode(&padded[12..]), address[2..].to_lowercase());
        let error = topic(address).unwrap_err().to_string();
        assert!(error.contains("write address:0xdAC1"), "{error}");
        assert_eq!(topic("any").unwrap(), None);
        assert_eq!(topic(&padded.to_string()).unwrap(), Some(padded));
    }

    #[test]
    fn a_wrong_digit_shows_in_the_checksum() {
        let right = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
        assert!(address_of(right).is_ok());
        assert!(address_of(&right.to_lowercase()).is_ok());
        assert!(address_of(&right.replace("31ec7", "31ec8")).is_err());
        assert_eq!(block_number("17,686,111"), block_number("0x10dde5f"));
        assert!(block_number("latest").is_err());
    }
}
