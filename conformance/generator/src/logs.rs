//! Areas of log filters: reading one, selecting logs, asking a node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::headers::LOG;
use crate::log_filter::{self, Log, MOST_ALTERNATIVES, alloy, fixed, geth};
use crate::log_readings::{self, alternatives};
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
    log_filter::check_reader(sources);
    vec![parse(sources), select(sources), logs_node::area()]
}

pub(crate) fn answer(criteria: Result<Value, &'static str>) -> Answer {
    match criteria {
        Ok(value) => Answer::Value(value),
        Err(class) => Answer::Invalid(class),
    }
}

/// The level of a case: open where the readers differ.
pub(crate) fn level_of(expect: &Expect) -> Level {
    if matches!(expect, Expect::AnyOf(_)) { Level::Open } else { Level::Reference }
}

fn parse(sources: &Sources) -> Area {
    let mut cases: Vec<_> = log_readings::readings()
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
