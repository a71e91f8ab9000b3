//! Area of `eth_getLogs` of a running node.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};
use serde_json::{Map, Value, json};

use crate::log_filter::{Log, alloy, geth};
use crate::logs::{FLAGS, answer, level_of};
use crate::pack::{Answer, Area, Case, Expect, Group, Kind, member, sides};
use crate::sources::text;

/// A log of the chain that the runner makes: label, contract (by its number of topics), topics.
const SETUP: [(&str, usize, &[&str]); 9] = [
    ("a", 0, &[]),
    ("b", 1, &["T1"]),
    ("c", 2, &["T1", "T2"]),
    ("d", 3, &["T1", "T2", "T3"]),
    ("e", 4, &["T1", "T2", "T3", "T4"]),
    ("f", 1, &["T2"]),
    ("g", 2, &["T2", "T1"]),
    ("h", 2, &["T1", "T1"]),
    ("i", 3, &["T3", "T1", "T2"]),
];

pub(crate) fn area() -> Area {
    // The chain, for the readers: block numbers 1 to 9, a contract for each number of topics.
    let names = ["T1", "T2", "T3", "T4", "T5"];
    // The digits have letters, which may be in capitals.
    let topics: BTreeMap<&str, B256> =
        names.into_iter().zip([0x1a, 0x2b, 0x3c, 0x4d, 0x5e].map(B256::repeat_byte)).collect();
    let contract =
        |number: usize| Address::repeat_byte(0xc0 + u8::try_from(number).expect("small"));
    let logs: Vec<Log> = SETUP
        .iter()
        .map(|(_, number, of)| Log {
            address: contract(*number),
            topics: of.iter().map(|name| topics[name]).collect(),
        })
        .collect();
    let head = SETUP.len() as u64;
    // Puts values in the place of placeholders.
    let hash = |label: &str| B256::repeat_byte(label.as_bytes()[0]);
    let number_of =
        |label: &str| 1 + SETUP.iter().position(|(of, ..)| *of == label).expect("a label") as u64;
    let resolve = |filter: &Value| -> Value {
        let text = filter.to_string();
        let mut out = text;
        for (name, topic) in &topics {
            out = out.replace(&format!("$topic:{name}"), &topic.to_string());
        }
        for number in 0..5 {
            out = out.replace(
                &format!("$contract:{number}"),
                &contract(number).to_string().to_lowercase(),
            );
        }
        out = out.replace("$head+1", &format!("{:#x}", head + 1));
        for (label, ..) in SETUP {
            out = out.replace(&format!("$hash:{label}"), &hash(label).to_string());
            out = out.replace(&format!("$block:{label}"), &format!("{:#x}", number_of(label)));
        }
        serde_json::from_str(&out).expect("JSON")
    };
    let labels = |from: u64, to: u64, matches: &dyn Fn(&Log) -> bool| {
        let labels = (from..=to)
            .filter_map(|number| usize::try_from(number).ok()?.checked_sub(1))
            .filter(|at| matches(&logs[*at]))
            .map(|at| SETUP[at].0);
        json!({ "logs": labels.collect::<Vec<_>>() })
    };
    // The rules of ranges are go-ethereum's for both sides.
    let range = |blocks: &Map<String, Value>| -> Result<(u64, u64), &'static str> {
        if let Some(of) = blocks.get("block_hash") {
            let number = SETUP
                .iter()
                .position(|(label, ..)| hex::encode(hash(label)) == text(of))
                .ok_or("unknown block")? as u64
                + 1;
            return Ok((number, number));
        }
        let number = |name: &str| match blocks.get(name) {
            None => Ok(head),
            Some(Value::Number(number)) => Ok(number.as_u64().expect("a u64")),
            Some(tag) => match text(tag) {
                "earliest" => Ok(0),
                "latest" => Ok(head),
                _ => Err("pending logs are not supported"),
            },
        };
        let (from, to) = (number("from")?, number("to")?);
        if from > to {
            return Err("invalid block range");
        }
        if to > head {
            return Err("range beyond the head");
        }
        Ok((from, to))
    };
    let all = json!({ "fromBlock": "$block:a", "toBlock": "$block:i" });
    let with = |more: Value| {
        let mut filter = all.clone();
        filter
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        filter
    };
    let mut cases = Vec::new();
    for (name, comment, filter, flag) in [
        ("all", "a range, no condition", all.clone(), None),
        ("no-range", "no blocks: the newest one", json!({}), None),
        ("one-block", "one block", json!({ "fromBlock": "$block:c", "toBlock": "$block:c" }), None),
        ("from-only", "from a block to the newest", json!({ "fromBlock": "$block:e" }), None),
        (
            "tags",
            "from the earliest to the latest",
            json!({ "fromBlock": "earliest", "toBlock": "latest" }),
            None,
        ),
        ("address", "one address", with(json!({ "address": "$contract:2" })), None),
        (
            "addresses",
            "two addresses",
            with(json!({ "address": ["$contract:2", "$contract:3"] })),
            None,
        ),
        (
            "topic-in-capitals",
            "a topic in capitals",
            with(json!({ "topics": [format!("0x{}", "1A".repeat(32))] })),
            Some("MixedCase"),
        ),
        (
            "no-addresses",
            "an empty list of addresses: any",
            with(json!({ "address": [] })),
            Some("EmptyList"),
        ),
        ("null-address", "null as address: any", with(json!({ "address": null })), None),
        (
            "list-of-null",
            "null in the list of addresses",
            with(json!({ "address": [null] })),
            Some("NullInList"),
        ),
        (
            "short-address",
            "an address of 19 bytes",
            with(json!({ "address": format!("0x{}", "c2".repeat(19)) })),
            Some("Refused"),
        ),
        ("topic", "a topic", with(json!({ "topics": ["$topic:T1"] })), None),
        ("topics", "two topics", with(json!({ "topics": ["$topic:T1", "$topic:T2"] })), None),
        (
            "topic-at-1",
            "a topic at position 1",
            with(json!({ "topics": [null, "$topic:T1"] })),
            None,
        ),
        (
            "topic-at-2",
            "a topic at position 2",
            with(json!({ "topics": [null, null, "$topic:T3"] })),
            None,
        ),
        (
            "topic-at-3",
            "a topic at position 3",
            with(json!({ "topics": [null, null, null, "$topic:T4"] })),
            None,
        ),
        (
            "alternatives",
            "either topic",
            with(json!({ "topics": [["$topic:T2", "$topic:T3"]] })),
            None,
        ),
        (
            "alternatives-at-1",
            "either topic at position 1",
            with(json!({ "topics": [null, ["$topic:T1", "$topic:T2"]] })),
            None,
        ),
        (
            "no-such-topic",
            "a topic that no log has",
            with(json!({ "topics": ["$topic:T5"] })),
            None,
        ),
        (
            "address-and-topic",
            "address and topic",
            with(json!({ "address": "$contract:2", "topics": ["$topic:T1"] })),
            None,
        ),
        ("null-topics", "null as topics", with(json!({ "topics": null })), None),
        ("no-topics", "an empty list of topics", with(json!({ "topics": [] })), Some("EmptyList")),
        ("one-null", "one wildcard", with(json!({ "topics": [null] })), Some("Arity")),
        ("two-nulls", "two wildcards", with(json!({ "topics": [null, null] })), Some("Arity")),
        (
            "four-nulls",
            "four wildcards",
            with(json!({ "topics": [null, null, null, null] })),
            Some("Arity"),
        ),
        (
            "topic-then-null",
            "a topic, then a wildcard",
            with(json!({ "topics": ["$topic:T1", null] })),
            Some("Arity"),
        ),
        (
            "topics-then-null",
            "two topics, then a wildcard",
            with(json!({ "topics": ["$topic:T1", "$topic:T2", null] })),
            Some("Arity"),
        ),
        (
            "topic-then-two-nulls",
            "a topic, then two wildcards",
            with(json!({ "topics": ["$topic:T1", null, null] })),
            Some("Arity"),
        ),
        ("one-empty-list", "one empty list", with(json!({ "topics": [[]] })), Some("EmptyList")),
        (
            "empty-list-then-topic",
            "an empty list, then a topic",
            with(json!({ "topics": [[], "$topic:T1"] })),
            Some("EmptyList"),
        ),
        (
            "topic-then-empty-list",
            "a topic, then an empty list",
            with(json!({ "topics": ["$topic:T1", []] })),
            Some("EmptyList"),
        ),
        (
            "null-in-alternatives",
            "null after an alternative",
            with(json!({ "topics": [["$topic:T1", null]] })),
            Some("NullInList"),
        ),
        (
            "null-before-alternatives",
            "null before an alternative",
            with(json!({ "topics": [[null, "$topic:T1"]] })),
            Some("NullInList"),
        ),
        (
            "list-of-one-null",
            "a list with null only",
            with(json!({ "topics": [[null]] })),
            Some("NullInList"),
        ),
        (
            "five-topics",
            "five positions",
            with(
                json!({ "topics": ["$topic:T1", "$topic:T2", "$topic:T3", "$topic:T4", "$topic:T5"] }),
            ),
            Some("TooManyTopics"),
        ),
        (
            "five-nulls",
            "five wildcards",
            with(json!({ "topics": [null, null, null, null, null] })),
            Some("TooManyTopics"),
        ),
        (
            "topics-as-text",
            "a topic in the place of the list",
            with(json!({ "topics": "$topic:T1" })),
            Some("Refused"),
        ),
        (
            "short-topic",
            "a topic of 31 bytes",
            with(json!({ "topics": [format!("0x{}", "11".repeat(31))] })),
            Some("Refused"),
        ),
        ("block-hash", "a block by its hash", json!({ "blockHash": "$hash:d" }), Some("BlockHash")),
        (
            "block-hash-and-topics",
            "a block by its hash, and a topic",
            json!({ "blockHash": "$hash:d", "topics": ["$topic:T1"] }),
            Some("BlockHash"),
        ),
        (
            "block-hash-and-from",
            "blockHash beside fromBlock",
            json!({ "blockHash": "$hash:d", "fromBlock": "$block:a" }),
            Some("BlockHash"),
        ),
        (
            "unknown-block-hash",
            "a hash that no block has",
            json!({ "blockHash": format!("0x{}", "99".repeat(32)) }),
            Some("BlockHash"),
        ),
        (
            "from-after-to",
            "the range is reversed",
            json!({ "fromBlock": "$block:d", "toBlock": "$block:c" }),
            Some("Range"),
        ),
        (
            "beyond-the-head",
            "a range that ends after the newest block",
            json!({ "fromBlock": "$block:a", "toBlock": "$head+1" }),
            Some("Range"),
        ),
        (
            "after-the-head",
            "a range after the newest block",
            json!({ "fromBlock": "$head+1", "toBlock": "$head+1" }),
            Some("Range"),
        ),
        (
            "from-after-the-head",
            "from the block after the newest one to the newest: refused as reversed, not empty",
            json!({ "fromBlock": "$head+1", "toBlock": "latest" }),
            Some("Range"),
        ),
        (
            "to-only",
            "only an end, before the newest block: the beginning is the newest, so it is reversed",
            json!({ "toBlock": "$block:c" }),
            Some("Range"),
        ),
        (
            "to-latest-only",
            "only an end, the newest block: that block alone",
            json!({ "toBlock": "latest" }),
            None,
        ),
        (
            "pending",
            "up to the pending block: go-ethereum has no pending logs",
            json!({ "fromBlock": "latest", "toBlock": "pending" }),
            Some("Range"),
        ),
        (
            "pending-only",
            "the pending block alone: go-ethereum has no pending logs",
            json!({ "fromBlock": "pending", "toBlock": "pending" }),
            Some("Range"),
        ),
        (
            "block-hash-and-null",
            "blockHash beside a fromBlock of null: a null says nothing",
            json!({ "blockHash": "$hash:d", "fromBlock": null }),
            Some("BlockHash"),
        ),
        (
            "leading-zero",
            "a number with a leading zero",
            json!({ "fromBlock": "0x01", "toBlock": "latest" }),
            Some("NumberForm"),
        ),
        (
            "decimal",
            "a number without 0x",
            json!({ "fromBlock": "1", "toBlock": "latest" }),
            Some("NumberForm"),
        ),
        (
            "unknown-member",
            "a member that nobody defines",
            with(json!({ "limit": "0x1" })),
            Some("UnknownMember"),
        ),
    ] {
        let resolved = resolve(&filter);
        let of_geth = geth(&resolved).and_then(|criteria| {
            let (from, to) = range(&criteria.blocks)?;
            Ok(labels(from, to, &|log| criteria.matches(log)))
        });
        let of_alloy = alloy(&resolved).and_then(|(criteria, filter)| {
            let (from, to) = range(&criteria.blocks)?;
            Ok(labels(from, to, &|log| {
                filter.matches_address(log.address) && filter.matches_topics(&log.topics)
            }))
        });
        let expect = match (answer(of_geth), answer(of_alloy)) {
            (geth @ Answer::Invalid(_), Answer::Invalid(_)) => Expect::One(geth),
            (geth, alloy) => sides([("geth", geth), ("alloy", alloy)]),
        };
        // Numbers of blocks stand for those of a chain that begins at 0 with the contracts.
        let level = level_of(&expect);
        let case = Case::new(comment, json!({ "query": filter }), expect).named(name).level(level);
        cases.push(match flag {
            Some(flag) => case.flag(flag),
            None => case,
        });
    }
    let mut params = Map::new();
    params.insert("topics".into(), json!(topics));
    params.insert("setup".into(), SETUP.iter().map(|(label, number, topics)| json!({ "label": label, "contract": number, "topics": topics })).collect());
    Area {
        name: "logs.node",
        title: "eth_getLogs of a running node",
        about: "The runner deploys five contracts, of which contract n emits logs with n topics, makes one \
                block for each log of `setup`, and asks. `$contract:n`, `$topic:name`, `$block:label`, \
                `$hash:label` and `$head+1` in a query stand for what the chain has. A JSON-RPC error is a \
                refusal. Where the readings of go-ethereum and alloy differ, both answers are given; ranges of \
                blocks follow go-ethereum's rules in both.",
        source: "go-ethereum, eth/filters as read, and execution-apis; alloy-rpc-types-eth 2.5, run, with the same rules of ranges",
        input: vec![member("query", Kind::Json, "filter of eth_getLogs with placeholders")],
        value: vec![member(
            "logs",
            Kind::List(&Kind::OneOf(&["a", "b", "c", "d", "e", "f", "g", "h", "i"])),
            "labels of the returned logs, in their order",
        )],
        flags: FLAGS,
        groups: vec![Group { params, cases }],
    }
}
