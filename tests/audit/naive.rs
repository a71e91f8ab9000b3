//! Queries as lists of values, with the simplest matcher, which serves as the oracle.

use alloy_primitives::{Address, B256, Log};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;

use testkit::eth::audit_runs::Run;

/// A query in which an empty list matches any value. An empty list still requires a topic at its
/// position (geth's rule).
#[derive(Debug, Clone, Default)]
pub(crate) struct Naive {
    pub(crate) addresses: Vec<Address>,
    pub(crate) topics: Vec<Vec<B256>>,
}

impl Naive {
    pub(crate) fn wants(&self, log: &Log) -> bool {
        let address = self.addresses.is_empty() || self.addresses.contains(&log.address);
        let topics = log.topics();
        address
            && self.topics.len() <= topics.len()
            && self.topics.iter().zip(topics).all(|(any, one)| any.is_empty() || any.contains(one))
    }

    /// Returns the same query over the blocks of `run`, read from JSON.
    pub(crate) fn query(&self, run: &Run) -> LogQuery {
        let topics: Vec<_> = self.topics.iter().map(|any| serde_json::json!(any)).collect();
        let json = serde_json::json!({
            "fromBlock": format!("{:#x}", run.first()),
            "toBlock": format!("{:#x}", run.last()),
            "address": self.addresses,
            "topics": topics,
        });
        LogQuery::from_json(&json.to_string(), chainsieve::eth::log_query::Semantics::Geth)
            .expect("a query")
    }

    /// Returns the true answer over `run`.
    pub(crate) fn answer(&self, run: &Run) -> Vec<LocatedLog> {
        let logs = run.blocks.iter().flat_map(|block| &block.logs);
        logs.filter(|log| self.wants(&log.log)).cloned().collect()
    }
}

/// Draws about `count` queries of every shape from the logs of a run. Returns none if the run has
/// fewer than `count` logs.
pub(crate) fn drawn(run: &Run, count: usize) -> Vec<Naive> {
    let logs: Vec<_> = run.blocks.iter().flat_map(|block| &block.logs).collect();
    let Some(step) = logs.len().checked_div(count).filter(|step| *step > 0) else {
        return Vec::new();
    };
    let mut queries = Vec::new();
    for (turn, located) in logs.iter().step_by(step).enumerate() {
        let (log, other) = (&located.log, &logs[(turn * 7_919 + 13) % logs.len()].log);
        let topic = |log: &Log, at: usize| log.topics().get(at).copied().into_iter().collect();
        let address = vec![log.address];
        queries.push(match turn % 8 {
            0 => Naive { addresses: address, topics: vec![] },
            1 => Naive { addresses: address, topics: vec![topic(log, 0)] },
            2 => Naive { addresses: vec![], topics: vec![vec![], topic(log, 1)] },
            3 => Naive { addresses: vec![log.address, other.address], topics: vec![] },
            4 => Naive { addresses: vec![], topics: vec![topic(log, 0), vec![], topic(log, 2)] },
            5 => Naive { addresses: vec![], topics: vec![vec![], vec![], vec![], vec![]] },
            6 => {
                let mut either: Vec<B256> = topic(log, 0);
                either.extend(topic(other, 0));
                Naive { addresses: address, topics: vec![either, vec![]] }
            }
            _ => Naive { addresses: vec![Address::repeat_byte(0x77)], topics: vec![] },
        });
    }
    queries
}
