//! Random queries drawn from the logs of a block, and their JSON in all spellings that nodes
//! accept.

use alloy_primitives::hex;

use crate::Rng;
use crate::eth::naive_logs::{NaiveLog, NaiveQuery};

/// Returns a query with values of `logs`, and with some values that no log has. About seven in ten
/// queries match at least the log from which they were drawn.
pub fn query(rng: &mut Rng, logs: &[NaiveLog]) -> NaiveQuery {
    let base = rng.pick(logs);
    match rng.below(10) {
        0..=5 => around(rng, logs, base),
        // A query with up to four positions, of which the last ones accept any topic.
        6 | 7 => {
            let mut query = around(rng, logs, base);
            let more = rng.below(5 - query.positions.len());
            query.positions.resize(query.positions.len() + more, Vec::new());
            query
        }
        // A query with values of several logs. The positions of its topics are random.
        8 => {
            let addresses = (0..rng.below(3)).map(|_| rng.pick(logs).address).collect();
            let positions = (0..rng.below(5)).map(|_| {
                let count = rng.below(4);
                (0..count).filter_map(|_| any_topic(rng, logs)).collect()
            });
            NaiveQuery { addresses, positions: positions.collect() }
        }
        // A query in which one position or the address has a value that no log has.
        _ => {
            let mut query = around(rng, logs, base);
            let at = rng.below(query.positions.len() + 1);
            match query.positions.get_mut(at) {
                Some(position) => *position = vec![rng.array()],
                None => query.addresses = vec![rng.array()],
            }
            query
        }
    }
}

/// Returns a query that matches `base`.
fn around(rng: &mut Rng, logs: &[NaiveLog], base: &NaiveLog) -> NaiveQuery {
    let mut addresses = Vec::new();
    if !rng.one_in(3) {
        addresses.push(base.address);
        for _ in 0..rng.below(4) {
            addresses.push(if rng.one_in(2) { rng.array() } else { rng.pick(logs).address });
        }
    }
    let count = rng.below(base.topics.len() + 1);
    let positions = base.topics[..count].iter().map(|topic| {
        let mut values = Vec::new();
        if !rng.one_in(3) {
            values.push(*topic);
            for _ in 0..rng.below(3) {
                values.push(rng.array());
                values.extend(any_topic(rng, logs));
            }
        }
        values
    });
    let positions = positions.collect();
    NaiveQuery { addresses, positions }
}

fn any_topic(rng: &mut Rng, logs: &[NaiveLog]) -> Option<[u8; 32]> {
    let log = rng.pick(logs);
    (!log.topics.is_empty()).then(|| *rng.pick(&log.topics))
}

/// Returns the query as JSON, with a random spelling for each part.
pub fn json(rng: &mut Rng, query: &NaiveQuery) -> String {
    let mut fields = Vec::new();
    match query.addresses.as_slice() {
        [] if rng.one_in(2) => {}
        [] => fields.push(rng.pick(&[r#""address":[]"#, r#""address":null"#]).to_string()),
        values => fields.push(format!(r#""address":{}"#, set(rng, values))),
    }
    let positions: Vec<String> = query
        .positions
        .iter()
        .map(|values| match values.as_slice() {
            [] => {
                let topic = hex::encode(rng.array::<32>());
                match rng.below(4) {
                    0 => "[]".to_owned(),
                    1 => "[null]".to_owned(),
                    2 => format!(r#"["0x{topic}",null]"#),
                    _ => "null".to_owned(),
                }
            }
            values => set(rng, values),
        })
        .collect();
    if !positions.is_empty() || rng.one_in(2) {
        fields.push(format!(r#""topics":[{}]"#, positions.join(", ")));
    }
    if rng.one_in(4) {
        fields.push(r#""fromBlock":null"#.to_owned());
    }
    if rng.one_in(2) {
        fields.reverse();
    }
    format!("{{{}}}", fields.join(","))
}

/// Returns a JSON list of the values in random order, sometimes with one value twice. A single value may be written
/// without brackets.
fn set<const N: usize>(rng: &mut Rng, values: &[[u8; N]]) -> String {
    let quoted: Vec<_> =
        values.iter().map(|value| format!(r#""0x{}""#, hex::encode(value))).collect();
    if quoted.len() == 1 && rng.one_in(2) {
        return quoted[0].clone();
    }
    let mut quoted = quoted;
    let at = rng.below(quoted.len());
    quoted.rotate_left(at);
    if rng.one_in(8) {
        quoted.push(quoted[0].clone());
    }
    format!("[{}]", quoted.join(","))
}
