//! Queries of `eth_getLogs` that are derived from logs, so that each of them tests something that
//! some node gets wrong.

use std::collections::BTreeSet;

use chainsieve::alloy_primitives::{Address, B256, keccak256};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::MAX_TOPICS;
use serde_json::{Map, Value, json};

/// Maximum number of values of each kind that are queried. More of them test nothing new.
const SAMPLES: usize = 16;

/// Returns queries about these logs, as the members `address` and `topics` of a filter. The caller
/// adds the blocks.
///
/// The queries are: no condition; each address; each first topic; each pair of both with the exact
/// number of topics, and with one more; each number of topics; the forms of "any"; lists of
/// alternatives; all topics of a log; and values that no log has. Of many values, at most 16 are
/// used.
pub fn about(logs: &[LocatedLog]) -> Vec<Map<String, Value>> {
    let mut queries = vec![json!({}), json!({ "address": [] }), json!({ "topics": [] })];
    // "Any" in its three forms, and as a demand for a number of topics.
    queries.extend([json!({ "topics": [[]] }), json!({ "topics": [[null]] })]);
    queries.extend((1..=MAX_TOPICS).map(|count| json!({ "topics": vec![Value::Null; count] })));

    let addresses: BTreeSet<Address> = logs.iter().map(|log| log.log.address).collect();
    let addresses = sampled(addresses);
    queries.extend(addresses.iter().map(|address| json!({ "address": address })));
    if let [first, .., last] = addresses.as_slice() {
        queries.push(json!({ "address": [first, last] }));
    }
    let topics = |log: &LocatedLog| log.log.topics().to_vec();
    let firsts: BTreeSet<B256> =
        logs.iter().filter_map(|log| log.log.topics().first().copied()).collect();
    let firsts = sampled(firsts);
    queries.extend(firsts.iter().map(|topic| json!({ "topics": [topic] })));
    if let [first, .., last] = firsts.as_slice() {
        queries.push(json!({ "topics": [[first, last]] }));
    }
    let pairs: BTreeSet<(Address, B256, usize)> = logs
        .iter()
        .filter_map(|log| Some((log.log.address, *log.log.topics().first()?, topics(log).len())))
        .collect();
    for (address, topic, count) in sampled(pairs) {
        // viem and ox send "any" for each argument after the first topic, so that the query has as
        // many positions as the event has topics.
        for positions in [count, count + 1] {
            if positions <= MAX_TOPICS {
                let mut positions = vec![Value::Null; positions];
                positions[0] = json!(topic);
                queries.push(json!({ "address": [address], "topics": positions }));
            }
        }
    }
    let long: BTreeSet<Vec<B256>> = logs.iter().map(topics).filter(|all| all.len() > 1).collect();
    for all in sampled(long).into_iter().take(4) {
        queries.push(json!({ "topics": [[], all[1]] }));
        queries.push(json!({ "topics": [null, [all[1], all[0]]] }));
        queries.push(json!({ "topics": all }));
    }
    // Values that no log has.
    queries.push(json!({ "address": Address::from_word(keccak256("no address")) }));
    queries.push(json!({ "topics": [keccak256("no topic")] }));
    queries.into_iter().filter_map(|query| query.as_object().cloned()).collect()
}

/// Returns at most [`SAMPLES`] values, evenly spread over the set.
fn sampled<T>(values: BTreeSet<T>) -> Vec<T> {
    let step = values.len().div_ceil(SAMPLES).max(1);
    values.into_iter().step_by(step).collect()
}
