//! Log queries, as flags of the command and as filters of `eth_getLogs`.

use chainsieve::alloy_primitives::{Address, B256, Bloom, BloomInput};
use serde_json::{Value, json};

use super::Chain;

/// A log query by addresses and topics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    addresses: Vec<Address>,
    /// Alternatives at each position; an empty list matches any topic.
    topics: Vec<Vec<B256>>,
}

impl Query {
    /// Returns queries of every form about a chain.
    pub(crate) fn all(chain: &Chain) -> Vec<Self> {
        let (runners, topics) = (&chain.runners, &chain.topics);
        let of = |addresses: &[Address], topics: &[&[B256]]| Self {
            addresses: addresses.to_vec(),
            topics: topics.iter().map(|position| position.to_vec()).collect(),
        };
        vec![
            of(&[runners[0]], &[]),
            of(&runners[1..4], &[]),
            of(&[], &[&topics[..1]]),
            of(&[], &[&topics[..3]]),
            of(&[], &[&[], &topics[1..3]]),
            of(&[], &[&topics[..4], &[], &topics[..2]]),
            of(&[], &[&[], &[], &[], &topics[2..5]]),
            of(&runners[..2], &[&topics[..2], &topics[2..]]),
            // Values that no log has.
            of(&[Address::repeat_byte(0xaa)], &[]),
            of(&[], &[&[B256::repeat_byte(0xbb)]]),
        ]
    }

    /// Returns the query that matches every log.
    pub(crate) fn everything() -> Self {
        Self::default()
    }

    /// Returns `true` if a block's bloom may match the query, as tested with alloy.
    pub(crate) fn may_be_in(&self, bloom: &Bloom) -> bool {
        let has = |item: &[u8]| bloom.contains_input(BloomInput::Raw(item));
        let addresses = &self.addresses;
        (addresses.is_empty() || addresses.iter().any(|address| has(address.as_slice())))
            && self.topics.iter().all(|alternatives| {
                alternatives.is_empty() || alternatives.iter().any(|topic| has(topic.as_slice()))
            })
    }

    /// Returns the flags of the command for this query.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        for address in &self.addresses {
            flags.extend([String::from("--address"), address.to_string()]);
        }
        for (position, alternatives) in self.topics.iter().enumerate() {
            for topic in alternatives {
                flags.extend([format!("--topic{position}"), topic.to_string()]);
            }
            if alternatives.is_empty() {
                flags.extend([format!("--topic{position}"), String::from("any")]);
            }
        }
        flags
    }

    /// Returns the `eth_getLogs` filter for this query.
    pub(crate) fn filter(&self, from: u64, to: u64) -> Value {
        let mut filter =
            json!({ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}") });
        if !self.addresses.is_empty() {
            filter["address"] = json!(self.addresses);
        }
        let position =
            |topics: &Vec<B256>| if topics.is_empty() { Value::Null } else { json!(topics) };
        if !self.topics.is_empty() {
            filter["topics"] = self.topics.iter().map(position).collect();
        }
        filter
    }
}
