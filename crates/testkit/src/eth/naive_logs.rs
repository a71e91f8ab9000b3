//! Logs, queries and blooms written from the specifications, slow and simple. This code shares no
//! code with the library.
//!
//! Sources: the topic filters of the JSON-RPC documentation on ethereum.org, `FilterQuery` of
//! go-ethereum's `interfaces.go`, the bloom of execution-specs (`add_to_bloom`).

use alloy_primitives::{Bloom, Log, keccak256};

/// The fields of a log that queries test.
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

/// A log query. An empty list of values matches anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NaiveQuery {
    pub addresses: Vec<[u8; 20]>,
    pub positions: Vec<Vec<[u8; 32]>>,
}

impl NaiveQuery {
    /// Returns `true` if the log matches by geth's rule: a log with fewer topics than the query has
    /// positions does not match.
    pub fn wanted_by_geth(&self, log: &NaiveLog) -> bool {
        self.positions.len() <= log.topics.len() && self.wanted_by_alloy(log)
    }

    /// Returns `true` if the log matches by alloy's rule: only a position with values requires a
    /// topic.
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

    /// Returns `true` if the bloom contains, for each set, all bits of at least one value.
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

/// Returns byte and mask of each of a value's three bits, as in execution-specs. The lower 11 bits
/// of a pair of bytes of the hash are the position of a bit, counted from the end of the bloom.
pub fn bits(value: &[u8]) -> [(usize, u8); 3] {
    let hash = keccak256(value);
    [0, 2, 4].map(|at| {
        let bit = (usize::from(hash[at]) * 256 + usize::from(hash[at + 1])) % 2048;
        let index = 2047 - bit;
        (index / 8, 1 << (7 - index % 8))
    })
}

/// Returns the bloom of the logs.
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
