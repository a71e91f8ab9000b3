//! Logs, queries and filters written from the texts, slow and plain. Shares no code with the
//! library.
//!
//! Sources: the topic filters of the JSON-RPC documentation on ethereum.org, `FilterQuery` of
//! go-ethereum's `interfaces.go`, the bloom of execution-specs (`add_to_bloom`).

use alloy_primitives::{Bloom, Log, keccak256};

/// A log as far as queries look at it.
pub struct NaiveLog {
    pub address: [u8; 20],
    pub topics: Vec<[u8; 32]>,
}

impl NaiveLog {
    pub fn of(log: &Log) -> Self {
        let topics = log.topics().iter().map(|topic| topic.0).collect();
        Self { address: log.address.into_array(), topics }
    }
}

/// What a query asks for. No values are "any".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NaiveQuery {
    pub addresses: Vec<[u8; 20]>,
    pub positions: Vec<Vec<[u8; 32]>>,
}

impl NaiveQuery {
    /// As geth does it: a log with fewer topics than the query has positions is not wanted.
    pub fn wanted_by_geth(&self, log: &NaiveLog) -> bool {
        self.positions.len() <= log.topics.len() && self.wanted_by_alloy(log)
    }

    /// As alloy does it: only a position with values needs a topic.
    pub fn wanted_by_alloy(&self, log: &NaiveLog) -> bool {
        if !self.addresses.is_empty() && !self.addresses.contains(&log.address) {
            return false;
        }
        for (position, values) in self.positions.iter().enumerate() {
            if values.is_empty() {
                continue;
            }
            match log.topics.get(position) {
                Some(topic) if values.contains(topic) => {}
                _ => return false,
            }
        }
        true
    }

    /// Whether a filter has all bits of one value of each set.
    pub fn passes(&self, bloom: &Bloom) -> bool {
        let any = |values: &mut dyn Iterator<Item = &[u8]>| {
            let mut empty = true;
            for value in values {
                if bits(value).into_iter().all(|(byte, mask)| bloom[byte] & mask != 0) {
                    return true;
                }
                empty = false;
            }
            empty
        };
        any(&mut self.addresses.iter().map(|address| &address[..]))
            && self.positions.iter().all(|set| any(&mut set.iter().map(|topic| &topic[..])))
    }
}

/// Byte and mask of each bit of a value, as execution-specs has it: of three pairs of bytes of the
/// hash the lower 11 bits, counted from the end of the filter.
pub fn bits(value: &[u8]) -> [(usize, u8); 3] {
    let hash = keccak256(value);
    [0, 2, 4].map(|at| {
        let bit = (usize::from(hash[at]) * 256 + usize::from(hash[at + 1])) % 2048;
        let index = 2047 - bit;
        (index / 8, 1 << (7 - index % 8))
    })
}

/// The filter of logs.
pub fn bloom<'a>(logs: impl IntoIterator<Item = &'a NaiveLog>) -> Bloom {
    let mut bloom = Bloom::ZERO;
    for log in logs {
        let topics = log.topics.iter().map(|topic| &topic[..]);
        for value in core::iter::once(&log.address[..]).chain(topics) {
            for (byte, mask) in bits(value) {
                bloom.0[byte] |= mask;
            }
        }
    }
    bloom
}
