//! How go-ethereum and alloy read a log filter.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256};
use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption};
use serde_json::{Map, Value, json};

use crate::sources::{Sources, list};

/// What a filter says, in one form: sorted lists, empty for "any".
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Criteria {
    addresses: BTreeSet<Address>,
    topics: Vec<BTreeSet<B256>>,
    pub(crate) blocks: Map<String, Value>,
}

impl Criteria {
    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "addresses": self.addresses.iter().map(hex::encode).collect::<Vec<_>>(),
            "topics": self.topics.iter().map(|position| position.iter().map(hex::encode).collect::<Vec<_>>()).collect::<Vec<_>>(),
        });
        json.as_object_mut().expect("an object").extend(self.blocks.clone());
        json
    }

    pub(crate) fn matches(&self, log: &Log) -> bool {
        (self.addresses.is_empty() || self.addresses.contains(&log.address))
            && self.topics.len() <= log.topics.len()
            && self
                .topics
                .iter()
                .zip(&log.topics)
                .all(|(position, topic)| position.is_empty() || position.contains(topic))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
}

impl Log {
    pub(crate) fn json(&self) -> Value {
        let topics: Vec<_> = self.topics.iter().map(hex::encode).collect();
        json!({ "address": hex::encode(self.address), "topics": topics })
    }
}

/// Topics that go-ethereum accepts at a position.
pub(crate) const MOST_ALTERNATIVES: usize = 1_000;

/// A filter as go-ethereum reads it: FilterCriteria.UnmarshalJSON, and the limits of `GetLogs`.
pub(crate) fn geth(filter: &Value) -> Result<Criteria, &'static str> {
    let filter = filter.as_object().ok_or("not an object")?;
    let present = |name: &str| filter.get(name).filter(|value| !value.is_null());
    let mut blocks = Map::new();
    if let Some(hash) = present("blockHash") {
        if present("fromBlock").is_some() || present("toBlock").is_some() {
            return Err("block hash and range");
        }
        let hash: B256 = fixed(hash).map_err(|()| "block hash")?;
        blocks.insert("block_hash".into(), json!(hex::encode(hash)));
    } else {
        for (name, ours) in [("fromBlock", "from"), ("toBlock", "to")] {
            if let Some(block) = present(name) {
                blocks.insert(ours.into(), block_number(block)?);
            }
        }
    }
    let addresses = match present("address") {
        None => BTreeSet::new(),
        Some(Value::Array(list)) => {
            list.iter().map(fixed).collect::<Result<_, _>>().map_err(|()| "address")?
        }
        Some(one) => BTreeSet::from([fixed(one).map_err(|()| "address")?]),
    };
    let mut topics = Vec::new();
    if let Some(positions) = present("topics") {
        for position in positions.as_array().ok_or("topics")? {
            topics.push(match position {
                Value::Null => BTreeSet::new(),
                // Reading stops at a null, which makes the position a wildcard.
                Value::Array(list) => {
                    let mut topics = BTreeSet::new();
                    for topic in list {
                        if topic.is_null() {
                            topics.clear();
                            break;
                        }
                        topics.insert(fixed(topic).map_err(|()| "topic")?);
                    }
                    topics
                }
                one => BTreeSet::from([fixed(one).map_err(|()| "topic")?]),
            });
        }
    }
    if topics.len() > 4 {
        return Err("more than four topics");
    }
    // The default of its option for the size of a query; repeated values count.
    let positions = filter.get("topics").and_then(Value::as_array).into_iter().flatten();
    if positions.filter_map(Value::as_array).any(|list| list.len() > MOST_ALTERNATIVES) {
        return Err("too many alternatives");
    }
    Ok(Criteria { addresses, topics, blocks })
}

/// Bytes of a fixed length: 0x, then exactly so many digits of either case.
pub(crate) fn fixed<const N: usize, T: From<[u8; N]>>(value: &Value) -> Result<T, ()> {
    let digits = value
        .as_str()
        .and_then(|text| text.strip_prefix("0x").or(text.strip_prefix("0X")))
        .ok_or(())?;
    let bytes: [u8; N] = hex::decode(digits).map_err(drop)?.try_into().map_err(drop)?;
    Ok(bytes.into())
}

/// A block number or tag: rpc.BlockNumber.UnmarshalJSON.
fn block_number(value: &Value) -> Result<Value, &'static str> {
    const TAGS: [&str; 5] = ["earliest", "latest", "pending", "finalized", "safe"];
    let text = value.as_str().ok_or("block number")?;
    if TAGS.contains(&text) {
        return Ok(json!(text));
    }
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).ok_or("block number")?;
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return Err("block number");
    }
    let number = u64::from_str_radix(digits, 16).map_err(|_| "block number")?;
    if i64::try_from(number).is_err() {
        return Err("block number");
    }
    Ok(exact(number))
}

/// A number; as text if readers of JSON may round it.
fn exact(number: u64) -> Value {
    if number > 1 << 53 { json!(number.to_string()) } else { json!(number) }
}

/// A filter as alloy reads it, by running it.
pub(crate) fn alloy(filter: &Value) -> Result<(Criteria, Filter), &'static str> {
    let parsed: Filter = serde_json::from_value(filter.clone()).map_err(|_| "refused")?;
    let mut blocks = Map::new();
    let tag = |block: BlockNumberOrTag| match block {
        BlockNumberOrTag::Number(number) => exact(number),
        tag => json!(tag.to_string()),
    };
    match parsed.block_option {
        FilterBlockOption::Range { from_block, to_block } => {
            blocks.extend(from_block.map(|block| ("from".to_owned(), tag(block))));
            blocks.extend(to_block.map(|block| ("to".to_owned(), tag(block))));
        }
        FilterBlockOption::AtBlockHash(hash) => {
            blocks.insert("block_hash".into(), json!(hex::encode(hash)));
        }
    }
    let mut topics: Vec<BTreeSet<B256>> =
        parsed.topics.iter().map(|position| position.iter().copied().collect()).collect();
    while topics.last().is_some_and(BTreeSet::is_empty) {
        topics.pop();
    }
    Ok((Criteria { addresses: parsed.address.iter().copied().collect(), topics, blocks }, parsed))
}

/// Runs the reader over what go-ethereum's own tests expect, and over published queries.
pub(crate) fn check_reader(sources: &Sources) {
    let facts = sources.corpus_json("getlogs/facts/geth.json");
    for case in list(&facts["parsing"]) {
        let read = geth(&case["filter"]).expect("geth reads it");
        let criteria = &case["criteria"];
        let addresses = criteria["addresses"].as_array().map_or(0, Vec::len);
        assert_eq!(read.addresses.len(), addresses, "{case}");
        let topics: Vec<usize> = criteria["topics"].as_array().map_or(Vec::new(), |topics| {
            topics.iter().map(|position| list(position).len()).collect()
        });
        assert_eq!(read.topics.iter().map(BTreeSet::len).collect::<Vec<_>>(), topics, "{case}");
    }
}
