//! Reads the log query from flags or from a file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::{Address, B256};
use chainsieve::eth::log_query::{BlockSelection, BlockTag, LogQuery, event_topic};
use chainsieve_report::{Exit, Reader, UsageError, excerpt, named, shorten};
use serde_json::value::RawValue;

use crate::args::eth::QueryArgs;
use crate::args::eth::query::{address, topic};

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
