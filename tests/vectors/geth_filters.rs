//! The tables of go-ethereum's own tests of log filters: `TestUnmarshalJSONNewFilterArgs`
//! (`eth/filters/api_test.go`), `TestLogFilter`, `TestInvalidLogFilterCreation`,
//! `TestInvalidGetLogsRequest` (`eth/filters/filter_system_test.go`).

use alloy_primitives::{Address, B256, Bytes, Log, address, b256};
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, QueryError, ResolvedBlocks, Semantics, TopicSet,
};

/// Addresses and topics of geth's test.
const ADDRESS_0: Address = address!("0x70c87d191324e6712a591f304b4eedef6ad9bb9d");
const ADDRESS_1: Address = address!("0x9b2055d370f73ec7d8a03e965129118dc8f5bf83");
const TOPIC_0: B256 = b256!("0x3ac225168df54212a25c1c01fd35bebfea408fdac2e31ddd6f80a4bbf9a5f1ca");
const TOPIC_1: B256 = b256!("0x9084a792d2f8b16a62b882fd56f7860c07bf5fa91dd8a2ae7e809e5180fef0b3");
const TOPIC_2: B256 = b256!("0x6ccae1c4af4152f460ff510e573399795dfab5dcf1fa60d1f33ac8fdc1e480ce");

#[test]
fn unmarshal_new_filter_args() {
    type Row = (String, BlockSelection, Vec<Address>, Vec<Vec<B256>>);
    let any = BlockSelection::Range { from: None, to: None };
    let range = BlockSelection::Range {
        from: Some(BlockTag::Number(0x12_3435)),
        to: Some(BlockTag::Number(0xab_cdef)),
    };
    let rows: [Row; 8] = [
        ("{}".into(), any, vec![], vec![]),
        (r#"{"fromBlock":"0x123435","toBlock":"0xabcdef"}"#.into(), range, vec![], vec![]),
        (format!(r#"{{"address": "{ADDRESS_0:#x}"}}"#), any, vec![ADDRESS_0], vec![]),
        (
            format!(r#"{{"address": ["{ADDRESS_0:#x}", "{ADDRESS_1:#x}"]}}"#),
            any,
            vec![ADDRESS_0, ADDRESS_1],
            vec![],
        ),
        (format!(r#"{{"topics": ["{TOPIC_0}"]}}"#), any, vec![], vec![vec![TOPIC_0]]),
        (
            format!(r#"{{"topics": ["{TOPIC_0}", "{TOPIC_1}"]}}"#),
            any,
            vec![],
            vec![vec![TOPIC_0], vec![TOPIC_1]],
        ),
        (
            format!(r#"{{"topics": ["{TOPIC_0}", null, "{TOPIC_2}"]}}"#),
            any,
            vec![],
            vec![vec![TOPIC_0], vec![], vec![TOPIC_2]],
        ),
        (
            format!(r#"{{"topics": [["{TOPIC_0}", "{TOPIC_1}"], null, ["{TOPIC_2}", null]]}}"#),
            any,
            vec![],
            vec![vec![TOPIC_0, TOPIC_1], vec![], vec![]],
        ),
    ];
    for (json, blocks, addresses, topics) in rows {
        for semantics in [Semantics::Geth, Semantics::Alloy] {
            let query = LogQuery::from_json(&json, semantics).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(*query.blocks(), blocks, "{json}");
            assert_eq!(query.address_set(), addresses, "{json}");
            let sets: Vec<_> = query.topics().iter().map(TopicSet::values).collect();
            assert_eq!(sets, topics, "{json}");
        }
    }
}

/// The rows of `TestLogFilter` over mined blocks, by their index in the test. Rows 6, 7 and 11 ask
/// for the pending block. The head is block 3.
#[test]
fn log_filter() {
    let [first, second, third, not_used] = [0x11, 0x22, 0x33, 0x99].map(Address::repeat_byte);
    let [topic_1, topic_2, topic_9] = [0x11, 0x22, 0x99].map(B256::repeat_byte);
    let log = |address, topics: &[B256]| Log::new_unchecked(address, topics.to_vec(), Bytes::new());
    let logs = [
        (0, log(first, &[])),
        (1, log(first, &[topic_1])),
        (1, log(second, &[topic_1])),
        (2, log(third, &[topic_2])),
        (3, log(third, &[topic_2])),
    ];
    // The subscription in geth's test has no first block, so the queries here start at block 0.
    let all = || LogQuery::new().from_block(0);
    let rows: [(usize, LogQuery, &[usize]); 10] = [
        (0, all(), &[0, 1, 2, 3, 4]),
        (1, all().addresses([Address::ZERO, not_used]).topic0(TopicSet::any()), &[]),
        (2, all().address(first), &[0, 1]),
        (3, all().address(second).topic0(topic_9), &[]),
        (4, all().address(third).topic0([topic_1, topic_2]), &[3, 4]),
        (5, all().addresses([second, third]).topic0([topic_1, topic_2]), &[2, 3, 4]),
        (8, LogQuery::new().from_block(2).to_block(BlockTag::Latest), &[3, 4]),
        (9, all().to_block(BlockTag::Latest), &[0, 1, 2, 3, 4]),
        (10, LogQuery::new().from_block(1).to_block(2).topic0(topic_2), &[3]),
        (12, all().topic0(TopicSet::any()), &[1, 2, 3, 4]),
    ];
    for (row, query, expected) in rows {
        let blocks = query.resolve(&Heads::latest(3)).unwrap_or_else(|e| panic!("{row}: {e}"));
        let wanted = |(number, log): &(u64, Log)| {
            blocks.contains(*number, &B256::ZERO) && query.matches(log, Semantics::Geth)
        };
        let found: Vec<_> = (0..logs.len()).filter(|at| wanted(&logs[*at])).collect();
        assert_eq!(found, expected, "row {row}");
    }
    let pending = LogQuery::new().from_block(BlockTag::Pending).to_block(BlockTag::Pending);
    assert_eq!(pending.resolve(&Heads::latest(3)), Err(QueryError::Pending));
}

/// Ranges that `NewFilter` rejects, and a block hash with a range, which `GetLogs` rejects.
#[test]
fn invalid_requests() {
    let heads = Heads::latest(1_000);
    let refused = |from: BlockTag, to: BlockTag| {
        LogQuery::new().from_block(from).to_block(to).resolve(&heads).expect_err("refused")
    };
    assert_eq!(refused(BlockTag::Pending, BlockTag::Latest), QueryError::Pending);
    assert_eq!(refused(BlockTag::Pending, 100.into()), QueryError::Pending);
    let reversed = QueryError::Reversed { first: 1_000, last: 100 };
    assert_eq!(refused(BlockTag::Latest, 100.into()), reversed);
    assert_eq!(refused(2.into(), 1.into()), QueryError::Reversed { first: 2, last: 1 });

    // "block range extends beyond current head block" (GetLogs, eth/filters/api.go).
    let beyond = QueryError::BeyondHead { last: 1_001, head: 1_000 };
    assert_eq!(refused(1.into(), 1_001.into()), beyond);
    assert_eq!(refused(1_001.into(), 1_001.into()), beyond);
    let open = LogQuery::new().from_block(1_001).resolve(&heads);
    assert_eq!(open, Err(QueryError::BeginsAfterHead { first: 1_001, head: 1_000 }));

    let hash = B256::repeat_byte(0x11);
    let by_hash = format!(r#"{{"blockHash":"{hash}""#);
    for beside in [r#""fromBlock":"0x64""#, r#""toBlock":"0x1f4""#, r#""fromBlock":"latest""#] {
        for semantics in [Semantics::Geth, Semantics::Alloy] {
            let result = LogQuery::from_json(&format!("{by_hash},{beside}}}"), semantics);
            assert_eq!(result, Err(QueryError::HashAndRange), "{beside}");
        }
    }
    let alone = LogQuery::from_json(&format!("{by_hash},\"toBlock\":null}}"), Semantics::Geth);
    let blocks = alone.map(|query| query.resolve(&heads));
    assert_eq!(blocks, Ok(Ok(ResolvedBlocks::AtHash(hash))));
}

/// Filters that `UnmarshalJSON` and `GetLogs` reject according to eth/filters/api.go: a fifth
/// position, and values whose length is not that of an address or of a topic.
#[test]
fn sizes_that_geth_refuses() {
    let topics = |count| format!(r#"{{"topics":[{}]}}"#, vec!["null"; count].join(","));
    assert!(LogQuery::from_json(&topics(4), Semantics::Geth).is_ok());
    let result = LogQuery::from_json(&topics(5), Semantics::Geth);
    assert_eq!(result, Err(QueryError::TooManyPositions { found: 5 }));
    let short = &ADDRESS_0.to_string()[..40];
    let padded = format!("{:#x}", ADDRESS_0.into_word());
    let refused = [
        format!(r#"{{"address":"{short}"}}"#),
        format!(r#"{{"address":"{padded}"}}"#),
        format!(r#"{{"address":["{padded}"]}}"#),
        format!(r#"{{"topics":["{ADDRESS_0:#x}"]}}"#),
        format!(r#"{{"topics":[["{ADDRESS_0:#x}"]]}}"#),
        format!(r#"{{"topics":[[["{TOPIC_0}"]]]}}"#),
        format!(r#"{{"topics":"{TOPIC_0}"}}"#),
        format!(r#"{{"topics":[{{"0":"{TOPIC_0}"}}]}}"#),
        r#"{"address":[null]}"#.to_owned(),
        r#"{"address":7}"#.to_owned(),
        r#"{"fromBlock":7}"#.to_owned(),
        r#"{"fromBlock":"7"}"#.to_owned(),
        r#"{"fromBlock":"0x"}"#.to_owned(),
        r#"{"fromBlock":"0x07"}"#.to_owned(),
        r#"{"fromBlock":"0x8000000000000000"}"#.to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        String::new(),
    ];
    for json in refused {
        assert!(LogQuery::from_json(&json, Semantics::Geth).is_err(), "{json}");
    }
}
