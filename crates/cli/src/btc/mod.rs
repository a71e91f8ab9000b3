//! The `btc` commands.

pub(crate) mod bloom;
pub(crate) mod cf;
pub(crate) mod client;
pub(crate) mod matching;
pub(crate) mod prove;
pub(crate) mod test_node;
pub(crate) mod watch;

use anyhow::Context as _;
use chainsieve::bitcoin::Transaction;
use chainsieve::btc::bip37::BloomFilter;
use chainsieve_report::blocks::decode;
use chainsieve_report::{Input, Reader, count};

/// Calls `take` with each transaction of the arguments: hex, files, or `-`.
fn for_each_transaction(
    reader: &Reader,
    arguments: &[String],
    mut take: impl FnMut(Transaction),
) -> anyhow::Result<()> {
    for argument in arguments {
        for Input { source, bytes } in reader.many(argument, "transaction")? {
            take(decode(&bytes).with_context(|| format!("transaction, {source}"))?);
        }
    }
    Ok(())
}

/// Reads a filter of a size that nodes accept, and adds a warning if it has trailing bytes or
/// matches everything.
fn load_filter(
    reader: &Reader,
    argument: &str,
    warnings: &mut Vec<String>,
) -> anyhow::Result<BloomFilter> {
    let Input { source, bytes } = reader.one(argument, "filter")?;
    let (filter, rest) =
        BloomFilter::decode_prefix(&bytes).with_context(|| format!("filter, {source}"))?;
    if !rest.is_empty() {
        warnings.push(format!(
            "{} after the filter: nodes ignore trailing bytes",
            count(rest.len(), "byte")
        ));
    }
    if filter.matches_everything() {
        warnings.push("the filter matches everything".into());
    }
    Ok(filter)
}
