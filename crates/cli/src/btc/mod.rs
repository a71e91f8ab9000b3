//! The `btc` commands.

mod describe;
pub(crate) mod filter_inspect;
pub(crate) mod filter_new;
pub(crate) mod matching;
mod watch;

use anyhow::Context as _;
use chainsieve::btc::bip37::BloomFilter;

use crate::input::{Input, Reader};
use crate::output::count;

/// Reads a filter that a node would accept, and warns of bytes behind it.
fn load_filter(
    reader: &Reader,
    argument: &str,
    warnings: &mut Vec<String>,
) -> anyhow::Result<BloomFilter> {
    let Input { source, bytes } = reader.one(argument, "filter")?;
    let (filter, rest) =
        BloomFilter::decode_prefix(&bytes).with_context(|| format!("filter, {source}"))?;
    if !rest.is_empty() {
        warnings.push(format!("{} after the filter; nodes ignore them", count(rest.len(), "byte")));
    }
    if filter.matches_everything() {
        warnings.push("the filter matches everything".into());
    }
    Ok(filter)
}
