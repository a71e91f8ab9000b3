//! Tests of matching: the tables of geth's own tests, and the rules where nodes differ.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use alloy_primitives::{Address, B256, Bytes, Log, U256, address, b256};

use super::{BlockSelection, BlockTag, Heads, LogQuery, QueryError, ResolvedBlocks};
use super::{Semantics, TopicSet};
use crate::eth::bloom::{self, BloomAnswer};

/// Does the same as Go's `common.BytesToHash([]byte(text))`, which aligns the text to the right.
fn hash(text: &str) -> B256 {
    B256::left_padding_from(text.as_bytes())
}

fn log(address: Address, topics: &[B256]) -> Log {
    Log::new(address, topics.to_vec(), Bytes::new()).expect("at most four topics")
}

fn json(text: &str) -> LogQuery {
    LogQuery::from_json(text, Semantics::Geth).expect(text)
}

const CONTRACT: Address = address!("0xfe00000000000000000000000000000000000000");
const CONTRACT_2: Address = address!("0xff00000000000000000000000000000000000000");

/// The logs of the chain that `TestFilters` of geth builds (`eth/filters/filter_test.go`, as of
/// 2024): block number, emitter, topics.
fn chain() -> Vec<(u64, Log)> {
    let [one, two, three, four] = ["topic1", "topic2", "topic3", "topic4"].map(hash);
    vec![
        (2, log(CONTRACT, &[one])),
        (2, log(CONTRACT_2, &[one])),
        (3, log(CONTRACT, &[two, one])),
        (999, log(CONTRACT_2, &[three])),
        (1_000, log(CONTRACT, &[four])),
    ]
}

/// The rows of geth's `TestFilters`: each row has a filter, and either the logs that the filter
/// finds in the chain or an error. The head is block 1000, block 999 is finalised, and no safe
/// block is known.
#[test]
fn geth_test_filters() {
    let [one, two, three, four] = ["topic1", "topic2", "topic3", "topic4"].map(hash);
    let (latest, finalized) = (BlockTag::Latest, BlockTag::Finalized);
    let all = || LogQuery::new().from_block(0).to_block(latest);
    let range = |from: BlockTag, to: BlockTag| LogQuery::new().from_block(from).to_block(to);
    let rows: Vec<(LogQuery, Result<Vec<usize>, QueryError>)> = vec![
        (all().address(CONTRACT).topic0([one, two, three, four]), Ok(vec![0, 2, 4])),
        (range(900.into(), 999.into()).address(CONTRACT).topic0(three), Ok(vec![])),
        (range(990.into(), latest).address(CONTRACT_2).topic0(three), Ok(vec![3])),
        (range(1.into(), 10.into()).topic0([one, two]), Ok(vec![0, 1, 2])),
        (all().topic0(hash("fail")), Ok(vec![])),
        (all().address(Address::left_padding_from(b"failmenow")), Ok(vec![])),
        (all().topic0(hash("fail")).topic1(one), Ok(vec![])),
        (range(latest, latest), Ok(vec![4])),
        (range(finalized, latest), Ok(vec![3, 4])),
        (range(finalized, finalized), Ok(vec![3])),
        // geth's table has an empty list here; later versions of geth return an error.
        (range(latest, finalized), Err(QueryError::Reversed { first: 1_000, last: 999 })),
        (range(BlockTag::Safe, latest), Err(QueryError::UnknownTag("safe"))),
        (range(BlockTag::Safe, BlockTag::Safe), Err(QueryError::UnknownTag("safe"))),
        (range(latest, BlockTag::Safe), Err(QueryError::UnknownTag("safe"))),
        (range(BlockTag::Pending, BlockTag::Pending), Err(QueryError::Pending)),
        (range(latest, BlockTag::Pending), Err(QueryError::Pending)),
        (range(BlockTag::Pending, latest), Err(QueryError::Pending)),
    ];
    assert_eq!(rows.len(), 17);
    let heads = Heads { finalized: Some(999), ..Heads::latest(1_000) };
    for (at, (query, expected)) in rows.into_iter().enumerate() {
        let found = query.resolve(&heads).map(|blocks| {
            let chain = chain().into_iter().enumerate();
            let found = chain.filter(|(_, (number, log))| {
                blocks.contains(*number, &B256::ZERO) && query.matches(log, Semantics::Geth)
            });
            found.map(|(index, _)| index).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "row {at}");
    }
}

/// The table in the documentation of `FilterQuery.Topics` in geth (interfaces.go), with additional
/// rows for queries that end in "any", as geth's `filterLogs` handles them. Columns: topics of the
/// query, logs that geth finds, logs that alloy finds. The logs are [], [A], [B], [A, A], [A, B],
/// [B, A], [B, B], [A, B, A, B].
#[test]
fn arity_and_order() {
    let [a, b] = [hash("A"), hash("B")];
    let logs: [&[B256]; 8] = [&[], &[a], &[b], &[a, a], &[a, b], &[b, a], &[b, b], &[a, b, a, b]];
    let logs = logs.map(|topics| log(CONTRACT, topics));
    let rows: [(&str, &[usize], &[usize]); 15] = [
        ("null", &[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("[]", &[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("[A]", &[1, 3, 4, 7], &[1, 3, 4, 7]),
        ("[[A]]", &[1, 3, 4, 7], &[1, 3, 4, 7]),
        ("[null]", &[1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("[[]]", &[1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("[[A, null]]", &[1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ("[null, B]", &[4, 6, 7], &[4, 6, 7]),
        ("[[], B]", &[4, 6, 7], &[4, 6, 7]),
        ("[A, B]", &[4, 7], &[4, 7]),
        ("[[A, B], [A, B]]", &[3, 4, 5, 6, 7], &[3, 4, 5, 6, 7]),
        ("[A, null]", &[3, 4, 7], &[1, 3, 4, 7]),
        ("[A, null, null]", &[7], &[1, 3, 4, 7]),
        ("[null, null, A]", &[7], &[7]),
        ("[null, null, null, null]", &[7], &[0, 1, 2, 3, 4, 5, 6, 7]),
    ];
    for (topics, geth, alloy) in rows {
        let spelt = topics.replace('A', &format!("\"{a}\"")).replace('B', &format!("\"{b}\""));
        let query = json(&format!(r#"{{"topics":{spelt}}}"#));
        let found = |semantics| {
            let found = logs.iter().enumerate().filter(|(_, log)| query.matches(log, semantics));
            found.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(found(Semantics::Geth), geth, "{topics} by geth");
        assert_eq!(found(Semantics::Alloy), alloy, "{topics} by alloy");
        for (at, log) in logs.iter().enumerate() {
            let either = geth.contains(&at) != alloy.contains(&at);
            assert_eq!(query.depends_on_semantics(log), either, "{topics} on log {at}");
        }
        assert!(query.ends_in_any() || geth == alloy, "{topics}");
    }
}

/// A zero topic is not "any": the sender of a mint is zero. Old versions of geth read a zero topic
/// as "any".
#[test]
fn the_zero_topic_is_not_any() {
    let query = LogQuery::new().topic1(Address::ZERO);
    assert!(query.matches(&log(CONTRACT, &[hash("A"), B256::ZERO]), Semantics::Geth));
    assert!(!query.matches(&log(CONTRACT, &[hash("A"), hash("A")]), Semantics::Geth));
    assert!(!query.ends_in_any());
}

#[test]
fn values_become_topics_as_the_abi_pads_them() {
    let account = address!("0x28c6c06298d514db089934071355e5743bf21d60");
    let padded = b256!("0x00000000000000000000000028c6c06298d514db089934071355e5743bf21d60");
    let one = b256!("0x0000000000000000000000000000000000000000000000000000000000000001");
    assert_eq!(TopicSet::from(account).values(), [padded]);
    assert_eq!(TopicSet::from(U256::from(1)).values(), [one]);
    assert_eq!(TopicSet::from(true).values(), [one]);
    assert_eq!(TopicSet::from(false).values(), [B256::ZERO]);
    assert_eq!(
        TopicSet::from([U256::from(1), U256::ZERO, U256::from(1)]).values(),
        [B256::ZERO, one]
    );
    assert!(TopicSet::from(Vec::<Address>::new()).is_any());
}

#[test]
fn a_hash_and_a_range_replace_each_other() {
    let query = LogQuery::new().from_block(3).to_block(9).at_hash(hash("A"));
    assert_eq!(*query.blocks(), BlockSelection::AtHash(hash("A")));
    let query = query.to_block(BlockTag::Safe);
    assert_eq!(*query.blocks(), BlockSelection::Range { from: None, to: Some(BlockTag::Safe) });
}

/// Rows: first block, last block, resolved numbers or error. The head is block 100, and the blocks
/// before 10 are pruned.
#[test]
fn ranges_resolve_as_on_a_pruned_node() {
    use QueryError as E;
    type Row = (Option<BlockTag>, Option<BlockTag>, Result<(u64, u64), QueryError>);
    let heads = Heads { earliest: 10, latest: 100, safe: Some(90), finalized: Some(80) };
    let rows: [Row; 16] = [
        (None, None, Ok((100, 100))),
        (Some(20.into()), None, Ok((20, 100))),
        (Some(100.into()), Some(100.into()), Ok((100, 100))),
        (None, Some(100.into()), Ok((100, 100))),
        (None, Some(99.into()), Err(E::Reversed { first: 100, last: 99 })),
        (Some(20.into()), Some(19.into()), Err(E::Reversed { first: 20, last: 19 })),
        (Some(20.into()), Some(0.into()), Err(E::Reversed { first: 20, last: 0 })),
        (Some(BlockTag::Finalized), Some(BlockTag::Safe), Ok((80, 90))),
        (Some(20.into()), Some(101.into()), Err(E::BeyondHead { last: 101, head: 100 })),
        (Some(200.into()), Some(300.into()), Err(E::BeyondHead { last: 300, head: 100 })),
        (Some(101.into()), None, Err(E::BeginsAfterHead { first: 101, head: 100 })),
        (Some(101.into()), Some(50.into()), Err(E::Reversed { first: 101, last: 50 })),
        (Some(BlockTag::Earliest), None, Ok((10, 100))),
        (Some(9.into()), None, Err(E::Pruned { first: 9, earliest: 10 })),
        (Some(0.into()), Some(5.into()), Err(E::Pruned { first: 0, earliest: 10 })),
        (Some(BlockTag::Pending), None, Err(E::Pending)),
    ];
    for (from, to, expected) in rows {
        let expected = expected.map(|(first, last)| ResolvedBlocks::Range { first, last });
        let query = LogQuery::of(BlockSelection::Range { from, to });
        assert_eq!(query.resolve(&heads), expected, "{from:?} to {to:?}");
    }
    let hash = hash("A");
    let at_hash = LogQuery::new().at_hash(hash).resolve(&heads).expect("needs no head");
    assert_eq!(at_hash, ResolvedBlocks::AtHash(hash));
    assert!(at_hash.contains(7, &hash) && !at_hash.contains(7, &B256::ZERO));
}

/// Each clause has the values of one set, and a set that is "any" gives no clause.
#[test]
fn compiled_clauses() {
    let [a, b, c] = ["A", "B", "C"].map(hash);
    let query = LogQuery::new().addresses([CONTRACT, CONTRACT_2]).topic0(a).topic2([b, c]);
    let bits = |values: &[&[u8]]| -> Vec<_> {
        values.iter().map(|value| bloom::positions(value)).collect()
    };
    let compiled = query.compile();
    assert_eq!(
        compiled.clauses(),
        [
            bits(&[CONTRACT.as_slice(), CONTRACT_2.as_slice()]),
            bits(&[a.as_slice()]),
            bits(&[b.as_slice(), c.as_slice()]),
        ]
    );
    assert!(!compiled.matches_everything());
    assert!(LogQuery::new().topic3(TopicSet::any()).compile().matches_everything());
    let mut filter = [0; bloom::BYTES];
    bloom::accrue_log(&mut filter, &log(CONTRACT_2, &[a, a, c]));
    assert_eq!(compiled.answer(&filter), BloomAnswer::Maybe);
    let mut other = [0; bloom::BYTES];
    bloom::accrue_log(&mut other, &log(CONTRACT_2, &[a, a]));
    assert_eq!(compiled.answer(&other), BloomAnswer::No);
}

/// Each message names the requested block and the available one.
#[test]
fn messages() {
    let message = |error: QueryError| -> String { format!("{error}") };
    assert_eq!(
        message(QueryError::BeyondHead { last: 101, head: 100 }),
        "the range ends at block 101, beyond the head 100"
    );
    assert_eq!(
        message(QueryError::Pruned { first: 9, earliest: 10 }),
        "the range begins at block 9, but the node has pruned blocks before 10"
    );
}
