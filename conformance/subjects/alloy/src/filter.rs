//! Filters of `eth_getLogs`.
use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption, FilterSet};
use serde_json::{Value, json};

use crate::protocol::{Answer, list};

fn sorted<T: AsRef<[u8]> + Copy + Eq + std::hash::Hash>(set: &FilterSet<T>) -> Vec<String> {
    let mut items: Vec<_> = set.iter().map(hex::encode).collect();
    items.sort();
    items
}

pub fn parse(input: &Value) -> Answer {
    let filter: Filter = serde_json::from_value(input["filter"].clone())?;
    let mut topics: Vec<_> = filter.topics.iter().map(sorted).collect();
    // The library has four positions always: whether the last ones were given is lost.
    topics.truncate(topics.iter().rposition(|topics| !topics.is_empty()).map_or(0, |at| at + 1));
    let mut criteria = json!({ "addresses": sorted(&filter.address), "topics": topics });
    // Integers above 2^53 are text.
    let block = |block: BlockNumberOrTag| match block.as_number() {
        Some(number) if number > 1 << 53 => json!(number.to_string()),
        Some(number) => json!(number),
        None => json!(block.to_string()),
    };
    match filter.block_option {
        FilterBlockOption::AtBlockHash(hash) => criteria["block_hash"] = hex::encode(hash).into(),
        FilterBlockOption::Range { from_block, to_block } => {
            for (name, given) in [("from", from_block), ("to", to_block)] {
                given.map(|given| criteria[name] = block(given));
            }
        }
    }
    Ok(criteria)
}

pub fn select(input: &Value) -> Answer {
    let filter: Filter = serde_json::from_value(input["filter"].clone())?;
    let logs = list(&input["logs"], crate::log);
    let matches = (0..logs.len()).filter(|at| filter.matches(&logs[*at]));
    Ok(json!({ "matches": matches.collect::<Vec<_>>() }))
}
