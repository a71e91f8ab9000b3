//! Areas of log filters: reading one, selecting logs, asking a node.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256};
use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption};
use serde_json::{Map, Value, json};

use crate::headers::LOG;
use crate::logs_node;
use crate::pack::{Answer, Area, Case, Expect, Group, Kind, Level, member, optional, sides};
use crate::sources::{Sources, list, text};

pub(crate) const FLAGS: &[(&str, &str)] = &[
    (
        "Arity",
        "geth demands a topic for each position, wildcards included; alloy drops trailing wildcards",
    ),
    ("NullInList", "a null in a list of alternatives makes the position a wildcard"),
    ("EmptyList", "an empty list is a wildcard"),
    ("Refused", "geth refuses the filter"),
    ("UnknownMember", "geth ignores members that it does not know; alloy refuses them"),
    ("NumberForm", "a number in another form than 0x with the fewest digits"),
    ("MixedCase", "hex digits of either case are the same bytes"),
    ("BlockHash", "a block by its hash; nothing else may name blocks beside it"),
    ("TooManyTopics", "more than four positions"),
    (
        "TooManyAlternatives",
        "geth takes at most 1,000 topics at a position, unless it is told otherwise",
    ),
    ("Range", "the range of blocks cannot be answered"),
];

const GETH: &str = "go-ethereum, eth/filters as read in October 2026; alloy-rpc-types-eth 2.5, run";

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    check_reader(sources);
    vec![parse(sources), select(sources), logs_node::area()]
}

/// What a filter says, in one form: sorted lists, empty for "any".
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Criteria {
    addresses: BTreeSet<Address>,
    topics: Vec<BTreeSet<B256>>,
    pub(crate) blocks: Map<String, Value>,
}

impl Criteria {
    fn json(&self) -> Value {
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

/// Topics that go-ethereum accepts at a position.
pub(crate) const MOST_ALTERNATIVES: usize = 1_000;

/// So many alternatives for a position, all different.
fn alternatives(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("0x{:064x}", number + 1)).collect()
}

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
fn fixed<const N: usize, T: From<[u8; N]>>(value: &Value) -> Result<T, ()> {
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

pub(crate) fn answer(criteria: Result<Value, &'static str>) -> Answer {
    match criteria {
        Ok(value) => Answer::Value(value),
        Err(class) => Answer::Invalid(class),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
}

impl Log {
    fn json(&self) -> Value {
        let topics: Vec<_> = self.topics.iter().map(hex::encode).collect();
        json!({ "address": hex::encode(self.address), "topics": topics })
    }
}

/// Runs the reader over what go-ethereum's own tests expect, and over published queries.
fn check_reader(sources: &Sources) {
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

struct Filters {
    a: &'static str,
    b: &'static str,
    s: String,
    t: String,
}

/// Filters that are read differently, or wrongly by some.
fn readings() -> Vec<(Option<&'static str>, &'static str, Value, &'static [&'static str])> {
    let Filters { a, b, s, t } = Filters {
        a: "0x70c87d191324e6712a591f304b4eedef6ad9bb9d",
        b: "0x9b2055d370f73ec7d8a03e965129118dc8f5bf83",
        s: format!("0x{}", "11".repeat(32)),
        t: format!("0x{}", "2a".repeat(32)),
    };
    let (s, t) = (s.as_str(), t.as_str());
    let hash = s;
    vec![
        (Some("nothing"), "an empty object", json!({}), &[]),
        (
            None,
            "a range of numbers, as most clients write it",
            json!({ "fromBlock": "0x1", "toBlock": "0xff" }),
            &[],
        ),
        (
            None,
            "block 0: a zero is not a missing number",
            json!({ "fromBlock": "0x0", "toBlock": "0x0" }),
            &[],
        ),
        (
            None,
            "tags: they stay words",
            json!({ "fromBlock": "earliest", "toBlock": "latest" }),
            &[],
        ),
        (
            None,
            "safe and finalized: tags since the merge",
            json!({ "fromBlock": "safe", "toBlock": "finalized" }),
            &[],
        ),
        (
            Some("tag-in-capitals"),
            "a tag in capitals",
            json!({ "fromBlock": "LATEST" }),
            &["NumberForm"],
        ),
        (Some("unknown-tag"), "an unknown tag", json!({ "fromBlock": "newest" }), &["Refused"]),
        (
            Some("leading-zero"),
            "a number with a leading zero",
            json!({ "fromBlock": "0x01" }),
            &["NumberForm"],
        ),
        (
            Some("decimal"),
            "a number without 0x",
            json!({ "fromBlock": "12" }),
            &["Refused", "NumberForm"],
        ),
        (
            Some("json-number"),
            "a number as a JSON number",
            json!({ "fromBlock": 20 }),
            &["NumberForm"],
        ),
        (Some("0x-alone"), "0x without digits", json!({ "fromBlock": "0x" }), &["NumberForm"]),
        (Some("empty-number"), "an empty number", json!({ "fromBlock": "" }), &["NumberForm"]),
        (
            Some("2-to-the-63-minus-1"),
            "block 2^63 - 1, the last that geth takes",
            json!({ "fromBlock": "0x7fffffffffffffff" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-64-minus-1"),
            "block 2^64 - 1, the last that alloy takes",
            json!({ "fromBlock": "0xffffffffffffffff" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-63"),
            "block 2^63",
            json!({ "fromBlock": "0x8000000000000000" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-64"),
            "block 2^64",
            json!({ "fromBlock": "0x10000000000000000" }),
            &["Refused", "NumberForm"],
        ),
        (
            Some("null-range"),
            "null for both ends",
            json!({ "fromBlock": null, "toBlock": null }),
            &[],
        ),
        (None, "one address, not in a list", json!({ "address": a }), &[]),
        (None, "two addresses: alternatives", json!({ "address": [a, b] }), &[]),
        (None, "an address twice counts once", json!({ "address": [a, a] }), &[]),
        (
            Some("no-addresses"),
            "an empty list of addresses: any",
            json!({ "address": [] }),
            &["EmptyList"],
        ),
        (Some("null-address"), "null as address: any", json!({ "address": null }), &[]),
        (
            Some("list-of-null"),
            "null in the list of addresses",
            json!({ "address": [null] }),
            &["NullInList"],
        ),
        (
            Some("null-among-addresses"),
            "null before an address",
            json!({ "address": [null, a] }),
            &["NullInList"],
        ),
        (
            Some("short-address"),
            "an address of 19 bytes",
            json!({ "address": &a[..40] }),
            &["Refused"],
        ),
        (
            Some("long-address"),
            "an address of 21 bytes",
            json!({ "address": format!("{a}00") }),
            &["Refused"],
        ),
        (
            Some("address-without-0x"),
            "an address without 0x",
            json!({ "address": &a[2..] }),
            &["Refused"],
        ),
        (
            Some("address-in-capitals"),
            "an address in capitals",
            json!({ "address": format!("0x{}", a[2..].to_uppercase()) }),
            &["MixedCase"],
        ),
        (
            Some("checksum-not-checked"),
            "an address in mixed case, with a false checksum",
            json!({ "address": "0x70C87d191324e6712a591f304b4eedef6ad9bB9d" }),
            &["MixedCase"],
        ),
        (
            Some("address-not-hex"),
            "an address with other letters",
            json!({ "address": format!("0xzz{}", &a[4..]) }),
            &["Refused"],
        ),
        (None, "one topic: one position", json!({ "topics": [s] }), &[]),
        (None, "two topics: two positions, not alternatives", json!({ "topics": [s, t] }), &[]),
        (None, "four topics: the most that a log has", json!({ "topics": [s, t, s, t] }), &[]),
        (None, "alternatives: one position", json!({ "topics": [[s, t]] }), &[]),
        (None, "an alternative twice counts once", json!({ "topics": [[s, s]] }), &[]),
        (Some("no-topics"), "an empty list of topics", json!({ "topics": [] }), &["EmptyList"]),
        (Some("null-topics"), "null as topics", json!({ "topics": null }), &[]),
        (Some("null-first"), "a wildcard, then a topic", json!({ "topics": [null, s] }), &[]),
        (
            Some("empty-list-first"),
            "an empty list, then a topic",
            json!({ "topics": [[], s] }),
            &["EmptyList"],
        ),
        (
            Some("one-null"),
            "one wildcard: a log needs a topic",
            json!({ "topics": [null] }),
            &["Arity"],
        ),
        (
            Some("one-empty-list"),
            "one empty list",
            json!({ "topics": [[]] }),
            &["Arity", "EmptyList"],
        ),
        (
            Some("topic-then-null"),
            "a topic, then a wildcard: a log needs two topics",
            json!({ "topics": [s, null] }),
            &["Arity"],
        ),
        (
            Some("topic-then-empty-list"),
            "a topic, then an empty list",
            json!({ "topics": [s, []] }),
            &["Arity", "EmptyList"],
        ),
        (
            Some("four-nulls"),
            "four wildcards: only logs with four topics",
            json!({ "topics": [null, null, null, null] }),
            &["Arity"],
        ),
        (
            Some("null-in-alternatives"),
            "null after an alternative",
            json!({ "topics": [[s, null]] }),
            &["Arity", "NullInList"],
        ),
        (
            Some("null-before-alternatives"),
            "null before an alternative, then a topic",
            json!({ "topics": [[null, s], t] }),
            &["NullInList"],
        ),
        (
            Some("null-hides-a-bad-topic"),
            "null, then something that is no topic: geth does not read it",
            json!({ "topics": [[null, "0x01"], t] }),
            &["NullInList"],
        ),
        (
            Some("list-of-one-null"),
            "a list with null only",
            json!({ "topics": [[null]] }),
            &["Arity", "NullInList"],
        ),
        (
            Some("five-topics"),
            "five positions",
            json!({ "topics": [s, t, s, t, s] }),
            &["TooManyTopics", "Refused"],
        ),
        (
            Some("five-nulls"),
            "five wildcards",
            json!({ "topics": [null, null, null, null, null] }),
            &["TooManyTopics", "Refused"],
        ),
        (
            Some("topics-as-text"),
            "a topic in the place of the list",
            json!({ "topics": s }),
            &["Refused"],
        ),
        (Some("short-topic"), "a topic of 31 bytes", json!({ "topics": [&s[..64]] }), &["Refused"]),
        (
            Some("long-topic"),
            "a topic of 33 bytes",
            json!({ "topics": [format!("{s}00")] }),
            &["Refused"],
        ),
        (
            Some("topic-without-0x"),
            "a topic without 0x",
            json!({ "topics": [&s[2..]] }),
            &["Refused"],
        ),
        (
            Some("topic-in-capitals"),
            "a topic in capitals",
            json!({ "topics": [format!("0x{}", t[2..].to_uppercase())] }),
            &["MixedCase"],
        ),
        (
            Some("list-in-a-list"),
            "a list in a list of alternatives",
            json!({ "topics": [[[s]]] }),
            &["Refused"],
        ),
        (Some("topic-is-a-number"), "a number as topic", json!({ "topics": [1] }), &["Refused"]),
        (None, "a block by its hash, and no range", json!({ "blockHash": hash }), &["BlockHash"]),
        (
            Some("hash-and-from"),
            "blockHash beside fromBlock",
            json!({ "blockHash": hash, "fromBlock": "0x1" }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("hash-and-to"),
            "blockHash beside toBlock",
            json!({ "blockHash": hash, "toBlock": "0x1" }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("hash-and-null"),
            "blockHash beside null",
            json!({ "blockHash": hash, "fromBlock": null }),
            &["BlockHash"],
        ),
        (
            Some("short-hash"),
            "a block hash of 31 bytes",
            json!({ "blockHash": &hash[..64] }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("unknown-member"),
            "a member that nobody defines",
            json!({ "fromBlock": "0x1", "limit": "0x1" }),
            &["UnknownMember"],
        ),
        (
            Some("1001-alternatives"),
            "1,001 topics at a position: one more than geth takes",
            json!({ "topics": [alternatives(MOST_ALTERNATIVES + 1)] }),
            &["TooManyAlternatives"],
        ),
        (
            None,
            "everything at once: no member disturbs another",
            json!({ "fromBlock": "0x10", "toBlock": "0x20", "address": [a, b], "topics": [[s, t], null, t] }),
            &[],
        ),
    ]
}

/// The level of a case: open where the readers differ.
pub(crate) fn level_of(expect: &Expect) -> Level {
    if matches!(expect, Expect::AnyOf(_)) { Level::Open } else { Level::Reference }
}

fn parse(sources: &Sources) -> Area {
    let mut cases: Vec<_> = readings()
        .into_iter()
        .map(|(name, comment, filter, flags)| {
            let of_geth = answer(geth(&filter).map(|criteria| criteria.json()));
            let of_alloy = answer(alloy(&filter).map(|(criteria, _)| criteria.json()));
            let expect = match (&of_geth, &of_alloy) {
                (Answer::Invalid(_), Answer::Invalid(_)) => Expect::One(of_geth),
                _ => sides([("geth", of_geth), ("alloy", of_alloy)]),
            };
            let level = level_of(&expect);
            let case = Case::new(comment, json!({ "filter": filter }), expect).level(level);
            let case = flags.iter().fold(case, |case, flag| case.flag(flag));
            match name {
                Some(name) => case.named(name),
                None => case,
            }
        })
        .collect();
    let facts = sources.corpus_json("getlogs/facts/geth.json");
    for case in list(&facts["parsing"]) {
        let filter = &case["filter"];
        let of_geth = answer(geth(filter).map(|criteria| criteria.json()));
        let of_alloy = answer(alloy(filter).map(|(criteria, _)| criteria.json()));
        let expect = sides([("geth", of_geth), ("alloy", of_alloy)]);
        let level = level_of(&expect);
        cases.push(
            Case::new(
                "a filter of go-ethereum's own tests: addresses, topics or blocks as their authors expect",
                json!({ "filter": filter }),
                expect,
            )
            .level(level)
            .source("go-ethereum, TestUnmarshalJSONNewFilterArgs"),
        );
    }
    Area {
        name: "logs.parse",
        title: "Reading a filter of eth_getLogs",
        about: "Which addresses, topics and blocks a filter asks for. Lists of the answer are sorted and \
                have each value once; an empty list means any. Where go-ethereum and alloy differ, both \
                answers are given.",
        source: GETH,
        input: vec![member("filter", Kind::Json, "filter of eth_getLogs")],
        value: vec![
            member("addresses", Kind::List(&Kind::Fixed(20)), "addresses, sorted"),
            member(
                "topics",
                Kind::List(&Kind::List(&Kind::Fixed(32))),
                "alternatives of each position, sorted",
            ),
            optional("from", Kind::IntegerOr(TAGS), "first block"),
            optional("to", Kind::IntegerOr(TAGS), "last block"),
            optional("block_hash", Kind::Fixed(32), "the only block"),
        ],
        flags: FLAGS,
        groups: vec![Group { cases, ..Group::default() }],
    }
}

const TAGS: &[&str] = &["earliest", "latest", "pending", "finalized", "safe"];

fn selected(filter: &Value, logs: &[Log]) -> Expect {
    let of_geth = geth(filter).map(|criteria| {
        let matches = (0..logs.len()).filter(|at| criteria.matches(&logs[*at]));
        json!({ "matches": matches.collect::<Vec<_>>() })
    });
    let of_alloy = alloy(filter).map(|(_, filter)| {
        let matches = (0..logs.len()).filter(|at| {
            filter.matches_address(logs[*at].address) && filter.matches_topics(&logs[*at].topics)
        });
        json!({ "matches": matches.collect::<Vec<_>>() })
    });
    match (answer(of_geth), answer(of_alloy)) {
        (geth @ Answer::Invalid(_), Answer::Invalid(_)) => Expect::One(geth),
        (geth, alloy) => sides([("geth", geth), ("alloy", alloy)]),
    }
}

fn log_of(value: &Value) -> Log {
    Log {
        address: fixed(&value["address"]).expect("an address"),
        topics: list(&value["topics"]).iter().map(|topic| fixed(topic).expect("a topic")).collect(),
    }
}

/// Why a published query is among the cases: what it is about, over logs of a chain.
fn comment(category: &str, logs: &[Log]) -> String {
    let why = match category {
        category if category.starts_with("arity") => "logs with fewer topics than positions",
        category if category.contains("null") => "what a null demands, and of which logs",
        category if category.contains("upper-case") => "digits in capitals are the same bytes",
        "address-list" | "topic0-list" | "topic0-or" | "or-both" => {
            "either of several values is enough"
        }
        "absent" | "address-unknown" => "a value that no log has selects nothing",
        category if category.contains("twice") => "a repeated value changes nothing",
        category if category.contains("other-topic") => "both conditions must hold for one log",
        _ => "which logs match, and which do not",
    };
    format!("{}, {} logs of a test chain: {why}", category.replace('-', " "), logs.len())
}

fn select(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    let case = |comment: &str, filter: &Value, logs: &[Log]| {
        let expect = selected(filter, logs);
        let open = matches!(expect, Expect::AnyOf(_));
        // A filter that alloy refuses has a member that it does not know. One that geth refuses has
        // too many alternatives.
        let unknown = open && alloy(filter).is_err();
        let too_many = open && geth(filter).is_err();
        let logs: Vec<_> = logs.iter().map(Log::json).collect();
        let level = level_of(&expect);
        Case::new(comment, json!({ "filter": filter, "logs": logs }), expect)
            .level(level)
            .flag_if(open && !unknown && !too_many, "Arity")
            .flag_if(unknown, "UnknownMember")
            .flag_if(too_many, "TooManyAlternatives")
    };
    // go-ethereum's own tests, whose results are asserted here.
    let facts = sources.corpus_json("getlogs/facts/geth.json");
    let logs: Vec<_> = list(&facts["matching"]["logs"]).iter().map(log_of).collect();
    for row in list(&facts["matching"]["cases"]) {
        // The tests of ranges belong to another area.
        if row["filter"].get("fromBlock").is_some() || row["filter"].get("toBlock").is_some() {
            continue;
        }
        let expected = Answer::Value(json!({ "matches": row["matches"] }));
        let expect = selected(&row["filter"], &logs);
        let geths = match &expect {
            Expect::One(answer) => answer,
            Expect::AnyOf(sides) => &sides[0].1,
        };
        assert_eq!(*geths, expected, "{row}");
        cases.push(
            case(text(&row["what"]), &row["filter"], &logs).source("go-ethereum, TestLogFilter"),
        );
    }
    let a = "0x1111111111111111111111111111111111111111";
    let b = "0x2222222222222222222222222222222222222222";
    let topic = |byte: &str| format!("0x{}", byte.repeat(32));
    let (x, y, z) = (topic("aa"), topic("bb"), topic("cc"));
    let log = |address: &str, topics: &[&String]| {
        log_of(&json!({ "address": address, "topics": topics }))
    };
    // One log for each number of topics, and some that differ in one place.
    let logs = vec![
        log(a, &[]),
        log(a, &[&x]),
        log(a, &[&x, &y]),
        log(a, &[&x, &y, &z]),
        log(a, &[&x, &y, &z, &x]),
        log(b, &[&x]),
        log(b, &[&y, &x]),
        log(b, &[&x, &x]),
    ];
    for (name, comment, filter) in [
        ("all", "no condition", json!({})),
        ("address", "one address", json!({ "address": b })),
        ("addresses", "two addresses: either", json!({ "address": [a, b] })),
        (
            "topic",
            "a topic at position 0, of logs with one topic or more",
            json!({ "topics": [x] }),
        ),
        ("topic-at-1", "a topic at position 1", json!({ "topics": [null, x] })),
        ("topic-at-3", "a topic at position 3", json!({ "topics": [null, null, null, x] })),
        ("alternatives", "either topic", json!({ "topics": [[x, y]] })),
        ("position-counts", "a topic at another position does not match", json!({ "topics": [z] })),
        ("both", "address and topic", json!({ "address": b, "topics": [x] })),
        ("arity-1", "one wildcard: logs without topics are left out", json!({ "topics": [null] })),
        ("arity-1-list", "an empty list does the same", json!({ "topics": [[]] })),
        (
            "arity-2",
            "a topic and a wildcard: logs with one topic are left out",
            json!({ "topics": [x, null] }),
        ),
        (
            "arity-4",
            "four wildcards: only logs with four topics",
            json!({ "topics": [null, null, null, null] }),
        ),
        (
            "arity-null-in-list",
            "a null among alternatives is a wildcard that counts",
            json!({ "topics": [x, [y, null]] }),
        ),
        ("no-such-topic", "a topic that no log has", json!({ "topics": [topic("dd")] })),
    ] {
        cases.push(case(comment, &filter, &logs).named(name));
    }
    // The last of the alternatives is the topic of a log.
    for (name, comment, others) in [
        (
            "1000-alternatives",
            "1,000 topics at a position, the most that geth takes: the last one matches",
            MOST_ALTERNATIVES - 1,
        ),
        ("1001-alternatives", "1,001 topics at a position: geth refuses them", MOST_ALTERNATIVES),
    ] {
        let mut list = alternatives(others);
        list.push(x.clone());
        cases.push(case(comment, &json!({ "topics": [list] }), &logs[..3]).named(name));
    }
    let mut addresses: Vec<_> =
        (1..MOST_ALTERNATIVES as u64).map(|number| format!("0x{number:040x}")).collect();
    addresses.push(logs[0].address.to_string().to_lowercase());
    cases.push(
        case(
            "1,000 addresses, the most that geth takes: the last one matches",
            &json!({ "address": addresses }),
            &logs[..3],
        )
        .named("1000-addresses"),
    );
    let mut descending = [&x, &y, &topic("dd"), &topic("01")].map(String::clone);
    descending.sort_unstable_by(|a, b| b.cmp(a));
    cases.push(
        case(
            "alternatives in descending order: their order means nothing",
            &json!({ "topics": [descending] }),
            &logs,
        )
        .named("alternatives-descending"),
    );
    // Published queries over test chains, with the logs that they select.
    for chain in ["ea2025b", "ea2026", "ethtest"] {
        let blocks = sources.lines(&format!("getlogs/chains/{chain}/blocks.jsonl"));
        let logs: BTreeMap<u64, Vec<Log>> = blocks
            .iter()
            .map(|block| {
                let receipts = list(&block["receipts"]).iter();
                let logs =
                    receipts.flat_map(|receipt| list(&receipt["logs"])).map(log_of).collect();
                (block["number"].as_u64().expect("a number"), logs)
            })
            .collect();
        for row in
            sources.lines("getlogs/queries/cases.jsonl").iter().filter(|row| row["chain"] == chain)
        {
            let (Some(expected), Ok(read)) =
                (row["expect"]["logs"].as_array(), geth(&row["filter"]))
            else {
                continue;
            };
            let (Some(from), Some(to)) = (
                read.blocks.get("from").and_then(Value::as_u64),
                read.blocks.get("to").and_then(Value::as_u64),
            ) else {
                continue;
            };
            // All logs of the range, by their place.
            let all: Vec<_> = logs
                .range(from..=to)
                .flat_map(|(number, logs)| {
                    logs.iter().enumerate().map(move |(at, log)| ((*number, at as u64), log))
                })
                .collect();
            let selected: BTreeSet<(u64, u64)> = expected
                .iter()
                .map(|place| {
                    (place[0].as_u64().expect("a block"), place[1].as_u64().expect("an index"))
                })
                .collect();
            for (place, log) in &all {
                assert_eq!(read.matches(log), selected.contains(place), "{row} at {place:?}");
            }
            // Some of those that match, and some of those that do not.
            let some: Vec<Log> = all
                .iter()
                .filter(|(place, _)| selected.contains(place))
                .take(4)
                .chain(all.iter().filter(|(place, _)| !selected.contains(place)).take(6))
                .map(|(_, log)| (*log).clone())
                .collect();
            let mut filter = row["filter"].clone();
            let object = filter.as_object_mut().expect("an object");
            object.remove("fromBlock");
            object.remove("toBlock");
            cases.push(
                case(&comment(text(&row["category"]), &some), &filter, &some)
                    .source(format!("the test chain {chain}")),
            );
        }
    }
    Area {
        name: "logs.match",
        title: "Selecting logs by a filter",
        about: "Which of the logs match. Blocks play no part here.",
        source: GETH,
        input: vec![
            member("filter", Kind::Json, "filter of eth_getLogs, without blocks"),
            member("logs", Kind::List(&Kind::Object(LOG)), "logs"),
        ],
        value: vec![member("matches", Kind::List(&Kind::Integer), "indices of matching logs")],
        flags: FLAGS,
        groups: vec![Group { cases, ..Group::default() }],
    }
}
