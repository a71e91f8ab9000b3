//! Checks facts that were read from the sources of go-ethereum and alloy. Facts that are said in words
//! (`refused_by_getLogs` and `json_rules` of geth) have their rows in `src/eth/log_query`.

use alloy_primitives::{Address, B256, Bytes, Log};
use alloy_rpc_types_eth::{BlockNumberOrTag, Filter};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, MAX_TOPICS, QueryError, QueryLimits, ResolvedBlocks,
    Semantics, TopicSet,
};
use serde_json::{Value, json};

use crate::readings::BOTH;
use testkit::eth::log_chains::Corpus;

fn facts(corpus: &Corpus, name: &str) -> Value {
    serde_json::from_str(&corpus.text(&format!("facts/{name}.json"))).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

fn values<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"))
}

fn geth(filter: &Value) -> Result<LogQuery, QueryError> {
    LogQuery::from_json(&filter.to_string(), Semantics::Geth)
}

fn log(address: Address, topics: Vec<B256>) -> Log {
    Log::new(address, topics, Bytes::new()).expect("at most four topics")
}

/// geth's `TestLogFilter`: filters of a subscription, in which a block number bounds the range, and
/// a tag or a missing block does not.
#[test]
fn geth_matches() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "geth");
    let logs: Vec<_> = list(&facts["matching"]["logs"])
        .iter()
        .map(|entry| {
            let address = values(&json!([entry["address"]]))[0];
            (entry["block"].as_u64().expect("a number"), log(address, values(&entry["topics"])))
        })
        .collect();
    let cases = list(&facts["matching"]["cases"]);
    for case in cases {
        let what = &case["what"];
        let query = geth(&case["filter"]).unwrap_or_else(|e| panic!("{what}: {e}"));
        let BlockSelection::Range { from, to } = *query.blocks() else { panic!("{what}") };
        let bound = |tag: Option<BlockTag>, otherwise| match tag {
            Some(BlockTag::Number(number)) => number,
            _ => otherwise,
        };
        let blocks = bound(from, 0)..=bound(to, u64::MAX);
        let found = logs.iter().enumerate().filter(|(_, (number, log))| {
            blocks.contains(number) && query.matches(log, Semantics::Geth)
        });
        let found: Vec<_> = found.map(|(at, _)| at).collect();
        assert_eq!(found, values::<usize>(&case["matches"]), "{what}");
    }
    assert_eq!((logs.len(), cases.len()), (5, 10));
}

/// Cases of geth's `TestUnmarshalJSONNewFilterArgs`.
#[test]
fn geth_parses() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "geth");
    let cases = list(&facts["parsing"]);
    for case in cases {
        let (filter, criteria) = (&case["filter"], &case["criteria"]);
        for semantics in BOTH {
            let query = LogQuery::from_json(&filter.to_string(), semantics);
            let query = query.unwrap_or_else(|e| panic!("{filter}: {e}"));
            let number = |field: &str| criteria[field].as_u64().map(BlockTag::Number);
            let blocks = BlockSelection::Range { from: number("from"), to: number("to") };
            assert_eq!(*query.blocks(), blocks, "{filter}");
            let mut addresses = criteria.get("addresses").map_or_else(Vec::new, values::<Address>);
            addresses.sort_unstable();
            assert_eq!(query.address_set(), addresses, "{filter}");
            let topics = criteria.get("topics").map_or_else(Vec::new, values::<Vec<B256>>);
            let topics: Vec<_> = topics.into_iter().map(TopicSet::from).collect();
            assert_eq!(query.topics(), topics, "{filter}");
        }
    }
    assert_eq!(cases.len(), 8);
}

/// Tags resolve as on geth, where the safe block may be unknown.
#[test]
fn geth_resolves_tags() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "geth");
    let heads = Heads { finalized: Some(90), ..Heads::latest(100) };
    let rows = list(&facts["tags"]);
    for row in rows {
        let query =
            geth(&json!({"fromBlock": row["from"], "toBlock": row["to"]})).expect("a query");
        let expected = match (row["result"].as_str(), row["error"].as_str()) {
            (Some("from the finalized block to the head"), None) => {
                Ok(ResolvedBlocks::Range { first: 90, last: 100 })
            }
            (None, Some("invalid block range params")) => {
                Err(QueryError::Reversed { first: 100, last: 90 })
            }
            (None, Some("safe header not found")) => Err(QueryError::UnknownTag("safe")),
            (None, Some("pending logs are not supported")) => Err(QueryError::Pending),
            other => panic!("no test knows {other:?}"),
        };
        assert_eq!(query.resolve(&heads), expected, "{row}");
    }
    assert_eq!(rows.len(), 5);
}

#[test]
fn geth_limits() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "geth");
    let limits = facts["limits"].as_object().expect("an object");
    let geth = QueryLimits::geth();
    assert_eq!(limits["topic_positions"], MAX_TOPICS);
    assert_eq!(limits["topics_in_a_position"], geth.topics_per_position.expect("a limit"));
    assert_eq!(limits["log_query_limit_default"], geth.addresses.expect("a limit"));
    assert_eq!((limits["range_limit_default"].as_str(), geth.blocks), (Some("none"), None));
    assert_eq!(limits.len(), 4);
}

/// Filters that alloy reads differently from geth. The library and alloy's own filter must agree
/// with the corpus.
#[test]
fn alloy_differs() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "alloy");
    let rows = list(&facts["differences_from_geth"]);
    for row in rows {
        let (what, json) = (row["what"].as_str().expect("a text"), row["filter"].to_string());
        let alloy = serde_json::from_str::<Filter>(&json);
        let read = [("geth", Semantics::Geth), ("alloy", Semantics::Alloy)]
            .map(|(name, semantics)| (&row[name], LogQuery::from_json(&json, semantics)));
        let topics = row.get("log_topics").map_or_else(Vec::new, values);
        let log = log(Address::ZERO, topics);
        for ((said, query), semantics) in read.iter().zip(BOTH) {
            let at = format!("{what}, {semantics:?}: {query:?}");
            if *said == "error" {
                assert!(query.is_err(), "{at}");
                continue;
            }
            let query = query.as_ref().expect(&at);
            let from = match query.blocks() {
                BlockSelection::Range { from, .. } => *from,
                BlockSelection::AtHash(_) => None,
            };
            match said {
                Value::Bool(wanted) => assert_eq!(query.matches(&log, semantics), *wanted, "{at}"),
                Value::Number(number) => assert_eq!(from, number.as_u64().map(Into::into), "{at}"),
                Value::String(said) => match said.as_str() {
                    "parsed" => assert_eq!(*query, LogQuery::new(), "{at}"),
                    "any address" => assert!(query.address_set().is_empty(), "{at}"),
                    "wildcard" => assert_eq!(query.topics(), [TopicSet::any()], "{at}"),
                    "latest" => assert_eq!(from, Some(BlockTag::Latest), "{at}"),
                    "by hash" => {
                        assert!(matches!(query.blocks(), BlockSelection::AtHash(_)), "{at}");
                    }
                    other => panic!("no test knows {other:?}"),
                },
                other => panic!("no test knows {other}"),
            }
        }
        // alloy's own filter gives the same result.
        let [_, (said, query)] = read;
        assert_eq!(alloy.is_err(), *said == "error", "{what}: {alloy:?}");
        let (Ok(alloy), Ok(query)) = (alloy, query) else { continue };
        assert_eq!(alloy.matches(&log), query.matches(&log, Semantics::Alloy), "{what}");
        assert_eq!(alloy.address.len(), query.address_set().len(), "{what}");
        assert_eq!(
            alloy.get_block_hash().is_some(),
            matches!(query.blocks(), BlockSelection::AtHash(_)),
            "{what}"
        );
        match said {
            Value::Number(number) => assert_eq!(alloy.get_from_block(), number.as_u64(), "{what}"),
            said if said == "latest" => {
                let tag = alloy.block_option.get_from_block();
                assert_eq!(tag, Some(&BlockNumberOrTag::Latest), "{what}");
            }
            _ => {}
        }
    }
    assert_eq!(rows.len(), 7);
    // A repeated member is an error.
    let twice = r#"{"address":null,"address":null}"#;
    assert!(serde_json::from_str::<Filter>(twice).is_err());
    let error = LogQuery::from_json(twice, Semantics::Alloy);
    assert_eq!(error, Err(QueryError::DuplicateField("address")));
}

/// A log that the library writes has the members that execution-apis lists.
#[test]
fn execution_apis_members_of_a_log() {
    let Some(corpus) = Corpus::open() else { return };
    let facts = facts(corpus, "execution_apis");
    let mut expected: Vec<_> = list(&facts["log_members"])
        .iter()
        .map(|member| member.as_str().expect("a text").split(' ').next().expect("a name"))
        .collect();
    let log: &LocatedLog = &corpus.chains["ea2026"].run.block(5).logs[0];
    let written: Value = serde_json::from_str(&log.to_json()).expect("JSON");
    let mut members: Vec<_> = written.as_object().expect("an object").keys().collect();
    members.sort_unstable();
    expected.sort_unstable();
    assert_eq!(members, expected);
}
